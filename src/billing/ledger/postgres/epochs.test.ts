import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { lossy } from '../../../../test/databases/lossy-store.ts';
import { storeFixture } from '../../../../test/databases/stores.ts';
import { systemIds } from '../../../core/ids.ts';
import { silentLog } from '../../../core/log.ts';
import { usdToNano } from '../../../core/money.ts';
import { TestClock } from '../../../../test/support/test-clock.ts';
import { type LogLine, memoryLog } from '../../../../test/support/memory-log.ts';
import { TestLedger, bill } from '../../../../test/support/test-ledger.ts';
import { type Store, StoreUnavailable } from '../../../db/db.ts';
import { Heartbeats } from './epochs.ts';
import { LEDGER_MIGRATIONS } from '../ledger.ts';
import { until } from '../../../../test/support/until.ts';

const DEAD_AFTER_MS = 6_000;

const CENT = usdToNano('0.01');

function holdRequest(requestId: string, lifetime: 'process' | 'durable' = 'process') {
  const floorNano = usdToNano('0');
  return { requestId, accountId: 'a', minNano: CENT, maxNano: CENT, floorNano, lifetime };
}

describe('a process in the ledger (postgres)', () => {
  const fixture = storeFixture('postgres');
  const folders: string[] = [];
  const ledgers: TestLedger[] = [];
  after(async () => {
    for (const ledger of ledgers) await ledger.stop();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });

  async function open(store: Store, clock: TestClock, folder = newFolder()): Promise<TestLedger> {
    const ledger = new TestLedger({
      store,
      clock,
      ids: systemIds(),
      log: silentLog,
      journalFolder: folder,
      epochDeadAfterMs: DEAD_AFTER_MS,
    });
    await ledger.start();
    ledgers.push(ledger);
    return ledger;
  }

  function newFolder(): string {
    const folder = mkdtempSync(join(tmpdir(), 'farebox-journal-'));
    folders.push(folder);
    return folder;
  }

  async function fund(ledger: TestLedger, store: Store): Promise<void> {
    await store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId: 'a',
        amountNano: usdToNano('100'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: 'first',
      }),
    );
  }

  /** Advances the clock until `look` resolves to `true`; the database needs real time meanwhile. */
  async function inTime(clock: TestClock, look: () => Promise<boolean>): Promise<void> {
    await until(async () => {
      if (await look()) return true;
      clock.advance(DEAD_AFTER_MS / 6);
      return false;
    });
  }

  const rowsOf = async (store: Store): Promise<number> =>
    (await store.query('SELECT request_id FROM ledger_hold')).length;
  const openHolds = async (ledger: TestLedger): Promise<number> => (await ledger.audit()).openHolds;

  test('a process releases its holds whose database reply was lost', async () => {
    const real = await fixture.open(LEDGER_MIGRATIONS);
    const { store, lose } = lossy(real);
    const clock = new TestClock();
    const ledger = await open(store, clock);
    await fund(ledger, real);
    for (const lifetime of ['process', 'durable'] as const) {
      lose('transaction');
      await assert.rejects(
        ledger.hold(holdRequest(`lost ${lifetime}`, lifetime)),
        StoreUnavailable,
      );
    }
    assert.ok((await ledger.hold(holdRequest('kept'))).ok);
    // A row for the first request, one for the job, and the lease that contains the other hold.
    assert.equal(await rowsOf(real), 3);
    assert.equal(await openHolds(ledger), 3);
    await inTime(clock, async () => (await rowsOf(real)) === 1);
    assert.ok((await ledger.settle(bill(clock, 'kept', CENT))).fresh);
    assert.deepEqual((await ledger.audit()).differences, []);
  });

  test('a settle whose database reply was lost is journaled and charged once', async () => {
    const real = await fixture.open(LEDGER_MIGRATIONS);
    const { store, lose } = lossy(real);
    const clock = new TestClock();
    const ledger = await open(store, clock);
    await fund(ledger, real);
    const answer = await ledger.hold(holdRequest('r1'));
    assert.ok(answer.ok);
    lose('transaction');
    const settlement = await ledger.settle(bill(clock, 'r1', CENT), answer.hold);
    assert.equal(settlement.usdNano, CENT);
    assert.equal(ledger.holds.journaled, 1);
    await inTime(clock, async () => ledger.holds.journaled === 0);
    assert.equal((await ledger.balances('a')).usdNano, usdToNano('99.99'));
    assert.deepEqual((await ledger.audit()).differences, []);
  });

  test('another process settles the journal of an ended process once', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const folder = newFolder();
    const { store: weak, lose } = lossy(store);
    const ended = await open(weak, new TestClock(), folder);
    await fund(ended, store);
    const other = await open(store, clock, folder);
    const answer = await ended.hold(holdRequest('r1'));
    assert.ok(answer.ok);
    lose('transaction');
    await ended.settle(bill(clock, 'r1', CENT), answer.hold);
    // Releases its folder lock, as the end of the process would; nothing else is cleaned up.
    lose('transaction');
    await ended.stop();
    await inTime(clock, async () => (await rowsOf(store)) === 0);
    assert.equal((await other.balances('a')).usdNano, usdToNano('99.99'));
    assert.deepEqual((await other.audit()).differences, []);
  });

  test('a process that stops without its database is known to the next one of its folder', async (t) => {
    const url = await fixture.freshUrl();
    const [store, own] = [
      await fixture.open(LEDGER_MIGRATIONS, url),
      await fixture.open(LEDGER_MIGRATIONS, url),
    ];
    const parts = { clock: new TestClock(), ids: systemIds(), journalFolder: newFolder() };
    const ended = new TestLedger({ ...parts, store: own, processId: 'p1', log: silentLog });
    await ended.start();
    await fund(ended, store);
    assert.ok((await ended.hold(holdRequest('r1'))).ok);
    for (const name of ['query', 'transaction'] as const) {
      t.mock.method(own, name, () => Promise.reject(new StoreUnavailable('away')));
    }
    await ended.stop();
    const next = new TestLedger({ ...parts, store, processId: 'p2', log: silentLog });
    await next.start();
    ledgers.push(next);
    assert.deepEqual(next.holds.endedBefore, ['p1']);
    await next.holds.processEnded('p1');
    assert.equal(await rowsOf(store), 0);
  });

  test('`processEnded` settles the journal and releases the leases of a process at once', async (t) => {
    const url = await fixture.freshUrl();
    const [store, own] = [
      await fixture.open(LEDGER_MIGRATIONS, url),
      await fixture.open(LEDGER_MIGRATIONS, url),
    ];
    const [folder, lines]: [string, LogLine[]] = [newFolder(), []];
    const parts = { clock: new TestClock(), ids: systemIds(), journalFolder: folder };
    const ended = new TestLedger({ ...parts, store: own, processId: 'p1', log: silentLog });
    await ended.start();
    const [heir, another] = ['p2', 'p11'].map(
      (processId) => new TestLedger({ ...parts, store, processId, log: memoryLog(lines) }),
    ) as [TestLedger, TestLedger];
    for (const ledger of [heir, another]) {
      await ledger.start();
      ledgers.push(ledger);
    }
    await fund(heir, store);
    const [first, second] = [
      await ended.hold(holdRequest('r1')),
      await ended.hold(holdRequest('r2')),
    ];
    assert.ok(first.ok && second.ok);
    assert.ok((await another.hold(holdRequest('r3'))).ok);
    // The database is unreachable when it settles, and when it stops.
    for (const name of ['query', 'transaction'] as const) {
      t.mock.method(own, name, () => Promise.reject(new StoreUnavailable('away')));
    }
    await ended.settle(bill(parts.clock, 'r1', CENT), first.hold);
    await ended.stop();
    await heir.holds.processEnded('p1');
    assert.equal((await heir.balances('a')).usdNano, usdToNano('99.99'));
    const epochs = await store.query('SELECT DISTINCT epoch_id FROM ledger_hold');
    assert.deepEqual(epochs, [{ epoch_id: 'p11' }]);
    // The settle came out of its lease, so it is not logged as late.
    assert.deepEqual(
      lines.filter(({ level }) => level !== 'info'),
      [],
    );
    assert.deepEqual((await heir.audit()).differences, []);
  });

  test('a clock that differs from the database is logged once, and once when it agrees again', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const lines: LogLine[] = [];
    const clock = new TestClock(Date.now() - 60_000);
    const parts = { store, clock, ids: systemIds(), log: memoryLog(lines) };
    const ledger = new TestLedger({ ...parts, epochDeadAfterMs: DEAD_AFTER_MS });
    await ledger.start();
    ledgers.push(ledger);
    await inTime(clock, async () => lines.length === 2);
    const [off, right] = lines;
    assert.match(
      `${off?.level} ${off?.message}`,
      /^warn The clocks of this machine and of the database differ/,
    );
    assert.ok(Number(off?.fields['aheadSeconds']) < -50, JSON.stringify(off));
    assert.match(
      `${right?.level} ${right?.message}`,
      /^info The clocks of this machine and of the database agree/,
    );
  });

  test('two processes that close one epoch concurrently release every hold once', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const dead = await open(store, new TestClock());
    await fund(dead, store);
    assert.ok((await dead.hold(holdRequest('r'))).ok);
    // More rows than one transaction releases.
    await store.query(
      `WITH added AS (INSERT INTO ledger_hold SELECT 'r' || n, account_id, NULL, 0, 1, 0, daily_day,
         epoch_id, created_ms FROM ledger_hold, generate_series(1, 1200) n RETURNING usd_nano)
       UPDATE ledger_account SET held_nano = held_nano + (SELECT sum(usd_nano) FROM added)`,
    );
    const clock = new TestClock();
    await open(store, clock);
    await open(store, clock);
    await inTime(clock, async () => (await rowsOf(store)) === 0);
    // Time passes quickly: a process that renewed late is also considered dead, and starts a new
    // epoch.
    await inTime(clock, async () => {
      return (await store.query('SELECT id FROM ledger_epoch')).length === 2;
    });
    assert.deepEqual((await dead.audit()).differences, []);
  });
});

test('`Heartbeats` reports an epoch that has not changed for the dead-after time', () => {
  const clock = new TestClock();
  const heartbeats = new Heartbeats(clock, DEAD_AFTER_MS);
  const still = { id: 'still', heartbeat: 9_999_999_999_999n };
  let beat = 0n;
  const look = (): string[] => {
    beat += 1n;
    return heartbeats.dead([still, { id: 'alive', heartbeat: beat }]).map(({ id }) => id);
  };
  for (let round = 0; round < 6; round += 1) {
    assert.deepEqual(look(), []);
    clock.advance(1_000);
  }
  assert.deepEqual(look(), ['still']);
});

test('`Heartbeats` reports no epoch until it has observed it again after a disconnection', () => {
  const clock = new TestClock();
  const heartbeats = new Heartbeats(clock, DEAD_AFTER_MS);
  const epochs = [{ id: 'other', heartbeat: 1n }];
  heartbeats.dead(epochs);
  clock.advance(60_000);
  assert.deepEqual(heartbeats.dead(epochs), []);
  clock.advance(2_000);
  assert.deepEqual(heartbeats.dead(epochs), []);
});
