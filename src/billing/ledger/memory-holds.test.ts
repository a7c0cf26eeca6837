/** Holds with SQLite: many at once, beside commands, and rows of an older version. */
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { describe, test } from 'node:test';
import { storeFixture } from '../../../test/databases/stores.ts';
import { systemIds } from '../../core/ids.ts';
import { type LogLine, memoryLog } from '../../../test/support/memory-log.ts';
import { DAY_MS } from '../../core/clock.ts';
import { type Nano, ZERO, nano, usdToNano } from '../../core/money.ts';
import { seededIds } from '../../../test/support/seeded-ids.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { bill } from '../../../test/support/test-ledger.ts';
import type { Store } from '../../db/db.ts';
import { type Hold, type HoldRequest, LEDGER_MIGRATIONS, Ledger } from './ledger.ts';

const SEED = Number(process.env['SEED'] ?? '20261122');
const REQUESTS = 120_000;
const AT_ONCE = 96;

describe('holds in memory', () => {
  const fixture = storeFixture('sqlite');
  const clock = new TestClock();
  const lines: LogLine[] = [];

  function ledgerOn(store: Store): Ledger {
    return new Ledger({ store, clock, ids: systemIds(), log: memoryLog(lines) });
  }

  async function fund(store: Store, ledger: Ledger, amountNano: Nano): Promise<void> {
    const from = 'house:operator-credit';
    const credit = { accountId: 'a', amountNano, from, kind: 'CREDIT', id: 'first' } as const;
    await store.transaction((tx) => ledger.creditIn(tx, credit));
  }

  function wanted(requestId: string, minNano: Nano, maxNano = minNano): HoldRequest {
    return { requestId, accountId: 'a', minNano, maxNano, floorNano: ZERO };
  }

  async function place(ledger: Ledger, request: HoldRequest): Promise<Hold> {
    const answer = await ledger.holds.place(request);
    assert.ok(answer.ok);
    return answer.hold;
  }

  test(`${REQUESTS} requests of ${AT_ONCE} callers never hold or take more than there is`, async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const ledger = ledgerOn(store);
    const random = seededIds(SEED);
    const fundsNano = usdToNano('40');
    await fund(store, ledger, fundsNano);
    let next = 0;
    let takenNano = 0n;
    let refused = 0;
    const cents = (most: number): Nano => nano(1 + Math.floor(random.fraction() * most * 1e7));
    const caller = async (): Promise<void> => {
      while (next < REQUESTS) {
        const id = `r${(next += 1)}`;
        const minNano = cents(3);
        const answer = await ledger.holds.place(wanted(id, minNano, nano(minNano + cents(6))));
        const { amountNano } = ledger.holds.figures();
        assert.ok(amountNano <= fundsNano, `seed ${SEED}: ${amountNano} is held`);
        if (!answer.ok) {
          refused += 1;
          await new Promise((resolve) => setImmediate(resolve));
          continue;
        }
        const { grantedNano } = answer.hold;
        // Most requests cost a small part of their hold; some are released, and some settle twice.
        const share = BigInt(Math.floor(random.fraction() * 100));
        const costNano = share > 90n ? grantedNano : nano((grantedNano * share) / 50_000n);
        const request = bill(clock, id, share < 5n ? ZERO : costNano);
        const [first, second] = await Promise.all([
          ledger.holds.settle(request, answer.hold),
          share % 10n === 0n ? ledger.holds.settle(request, answer.hold) : undefined,
        ]);
        assert.ok(first.fresh && second?.fresh !== true);
        takenNano += first.usdNano;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, caller));
    const { usdNano } = await ledger.balances('a');
    assert.ok(usdNano >= 0n && takenNano <= fundsNano, `seed ${SEED}`);
    assert.equal(usdNano, fundsNano - takenNano, `seed ${SEED}`);
    assert.ok(refused > 0 && usdNano < usdToNano('0.1'), `seed ${SEED}: nothing was scarce`);
    assert.deepEqual(ledger.holds.figures(), { count: 0, amountNano: 0n });
    assert.deepEqual((await ledger.audit()).differences, []);
    assert.deepEqual(
      lines.filter(({ level }) => level === 'error'),
      [],
    );
  });

  test('a settle reports its expected result once, before it is on disk', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const ledger = ledgerOn(store);
    await fund(store, ledger, usdToNano('1'));
    const hold = await place(ledger, wanted('r1', usdToNano('0.6')));
    const results: unknown[] = [];
    const expected = (settlement: unknown): void => void results.push(settlement);
    const settle = () => ledger.holds.settle(bill(clock, 'r1', usdToNano('0.2')), hold, expected);
    const [first, second] = [settle(), settle()];
    void first.then(() => results.push('settled'));
    const settlement = await first;
    assert.equal((await second).fresh, false);
    assert.deepEqual(results, [settlement, 'settled']);
  });

  test('a settle takes what a command beside the server has left of the balance, and jobs keep their holds', async () => {
    const url = await fixture.freshUrl();
    const store = await fixture.open(LEDGER_MIGRATIONS, url);
    const server = ledgerOn(store);
    const command = ledgerOn(await fixture.open(LEDGER_MIGRATIONS, url));
    await fund(store, server, usdToNano('1'));
    const hold = await place(server, wanted('r1', usdToNano('0.6')));
    const job = { ...wanted('job', usdToNano('0.3')), lifetime: 'durable' } as const;
    assert.ok((await server.holds.place(job)).ok);
    const debit = (ledger: Ledger, id: string, usd: string) => {
      const to = 'house:operator-credit';
      const amountNano = usdToNano(usd);
      const movement = { accountId: 'a', amountNano, to, kind: 'CREDIT', id } as const;
      return store.transaction((tx) => ledger.debitIn(tx, movement));
    };
    assert.equal(await debit(server, 'of-the-server', '0.2'), undefined, 'it knows its holds');
    assert.equal(await debit(command, 'of-a-command', '0.8'), undefined, 'a job keeps its money');
    assert.equal(await debit(command, 'of-a-command', '0.5'), usdToNano('0.5'));
    const settled = await server.holds.settle(bill(clock, 'r1', usdToNano('0.6')), hold);
    assert.equal(settled.usdNano, usdToNano('0.2'));
    assert.equal(settled.after.usdNano, usdToNano('0.3'));
    assert.match(lines.at(-1)?.message ?? '', /above its hold/);
    const done = await store.transaction((tx) =>
      server.settleIn(tx, bill(clock, 'job', usdToNano('0.3'))),
    );
    assert.equal(done.after.usdNano, 0n);
    assert.deepEqual((await server.audit()).differences, []);
  });

  test('a settle on its own writes at most 20 KiB to the disk', async () => {
    const url = await fixture.freshUrl();
    const store = await fixture.open(LEDGER_MIGRATIONS, url);
    const ledger = ledgerOn(store);
    await fund(store, ledger, usdToNano('1'));
    const logBytes = () => statSync(`${url.slice('sqlite:'.length)}-wal`).size;
    const before = logBytes();
    // Fewer commits than before the log is copied and written again from its start.
    const settles = 50;
    const costNano = usdToNano('0.001');
    for (let at = 0; at < settles; at += 1) {
      const id = systemIds().ordered(clock.nowMs() + at);
      await ledger.holds.settle(
        bill(clock, id, costNano),
        await place(ledger, wanted(id, costNano)),
      );
    }
    const bytes = (logBytes() - before) / settles;
    assert.ok(bytes > 0 && bytes <= 20 * 1_024, `${bytes} bytes`);
  });

  test('a cap counts every hold even if there are more caps than counters', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const ledger = ledgerOn(store);
    await fund(store, ledger, usdToNano('1'));
    const caps = 10_001;
    await store.query(
      `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < $1 - 1)
       INSERT INTO ledger_allowance (id, account_id, period, period_start_ms, usd_limit_nano,
         usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano, budget_id)
       SELECT 'cap-' || i, 'a', 'LIFETIME', 0, $2, 0, 0, 0, 0, iif(i = 0, NULL, 'cap-' || i) FROM n`,
      [caps, usdToNano('0.1')],
    );
    // All but the last cap have counters, and nothing is held under them.
    for (let cap = 0; cap < caps - 1; cap += 1) {
      const request = { ...wanted('first', usdToNano('0.01')), capIds: [`cap-${cap}`] };
      ledger.holds.release(await place(ledger, request));
    }
    const most = { ...wanted('most', usdToNano('0.1')), capIds: ['cap-0'] };
    await place(ledger, { ...most, capIds: ['cap-0', `cap-${caps - 1}`] });
    const beyond = await ledger.holds.place({ ...most, requestId: 'beyond' });
    assert.equal(beyond.ok, false);
  });

  test('a cap counts each charge once after the clock was set back before its period', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const ahead = new TestClock();
    const ledger = new Ledger({ store, clock: ahead, ids: systemIds(), log: memoryLog(lines) });
    await fund(store, ledger, usdToNano('1'));
    const limits = { usdLimitNano: usdToNano('0.10'), diemLimitNano: undefined };
    const cap = { id: 'k', accountId: 'a', period: 'EPOCH', ...limits } as const;
    await store.transaction((tx) => ledger.setCap(tx, cap));
    const price = usdToNano('0.01');
    let sold = 0;
    const buy = async (): Promise<string> => {
      const requestId = `r${(sold += 1)}`;
      const answer = await ledger.holds.place({ ...wanted(requestId, price), capIds: ['k'] });
      if (!answer.ok) return answer.reason;
      await ledger.holds.settle(bill(ahead, requestId, price), answer.hold);
      return 'sold';
    };
    assert.equal(await buy(), 'sold');
    ahead.setWallBack(DAY_MS);
    for (let left = 9; left > 0; left -= 1) assert.equal(await buy(), 'sold');
    assert.equal(await buy(), 'cap-usd');
    assert.deepEqual(ledger.holds.figures(), { count: 0, amountNano: 0n });
  });

  test('the migration releases request holds of an older version, but not those of jobs', async () => {
    const url = await fixture.freshUrl();
    const before = LEDGER_MIGRATIONS.filter(({ id }) => id < 'ledger-0007');
    const store = await fixture.open(before, url);
    const old = ledgerOn(store);
    // Columns that today's statements use, added to the tables of the previous version.
    const added = ['ledger_hold ADD COLUMN budget_ids', 'ledger_allowance ADD COLUMN budget_id'];
    await store.run(added.map((one) => ({ sql: `ALTER TABLE ${one} TEXT`, parameters: [] })));
    await fund(store, old, usdToNano('1'));
    await old.setDailyAllocation('a', usdToNano('0.4'));
    await store.query(
      "INSERT INTO ledger_allowance VALUES ('k', 'a', 'LIFETIME', 0, $1, NULL, 0, 0, 0, 0, NULL)",
      [usdToNano('0.9')],
    );
    const capped = { ...wanted('job', usdToNano('0.7')), capIds: ['k'] };
    assert.ok((await old.holds.place({ ...capped, lifetime: 'durable' })).ok);
    // The previous version wrote the hold of a request like this: 0.2 USD and 0.1 of today's
    // credit.
    const [usd, daily] = [usdToNano('0.2'), usdToNano('0.1')];
    await store.run([
      { sql: "UPDATE ledger_hold SET allowance_id = 'k', budget_ids = NULL", parameters: [] },
      {
        sql: `INSERT INTO ledger_hold SELECT 'killed', account_id, allowance_id, allowance_start_ms,
          $1, $2, daily_day, 'epoch-of-it', created_ms, NULL FROM ledger_hold`,
        parameters: [usd, daily],
      },
      {
        sql: `UPDATE ledger_account SET held_nano = held_nano + $1, daily_held_nano = daily_held_nano + $2`,
        parameters: [usd, daily],
      },
      {
        sql: `UPDATE ledger_allowance SET usd_held_nano = usd_held_nano + $1, diem_held_nano = diem_held_nano + $2`,
        parameters: [usd, daily],
      },
      {
        sql: `INSERT INTO ledger_epoch (id, started_ms, heartbeat_ms) VALUES ('epoch-of-it', 1, 1)`,
        parameters: [],
      },
    ]);
    assert.deepEqual((await old.audit()).differences, []);
    assert.equal((await old.audit()).openHolds, 2);
    const gone = added.map((one) => one.replace('ADD', 'DROP'));
    await store.run(gone.map((one) => ({ sql: `ALTER TABLE ${one}`, parameters: [] })));
    const now = ledgerOn(await fixture.open(LEDGER_MIGRATIONS, url));
    await now.start();
    const report = await now.audit();
    assert.deepEqual([report.differences, report.openHolds], [[], 1]);
    const { count, jobs } = await now.openHolds();
    assert.deepEqual([count, jobs], [0, { count: 1, amountNano: usdToNano('0.7') }]);
    // 1.00 of balance minus 0.30 of the job; all of its 0.40 of daily credit is held.
    const rest = await place(now, wanted('r1', usdToNano('0.7')));
    assert.equal(rest.grantedNano, usdToNano('0.7'));
  });
});
