/** Reports compared with the sums of their receipts, after any order of changes and jobs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, HOUR_MS, dayOf } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import { nano, usdToNano } from '../../core/money.ts';
import type { Store } from '../../db/db.ts';
import {
  type AnyUsageFilter,
  LEDGER_MIGRATIONS,
  type UsageGrouping,
  type UsageRecord,
  addReportDays,
  costGroups,
  tagSums,
} from './ledger.ts';

const sale = fc.record({
  step: fc.constant('sell' as const),
  account: fc.constantFrom('a', 'b', 'c'),
  model: fc.constantFrom('m', 'n'),
  engine: fc.constantFrom(undefined, 'e', 'f'),
  nano: fc.nat(1_000_000),
  costNano: fc.option(fc.nat(1_000), { nil: undefined }),
  daysAgo: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(90)),
  isJob: fc.boolean(),
  team: fc.constantFrom(undefined, 'x', 'y'),
});
const steps = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: sale },
    fc.record({ step: fc.constant('end' as const), isFailed: fc.boolean() }),
    fc.record({ step: fc.constant('wait' as const), hours: fc.integer({ min: 1, max: 900 }) }),
    fc.record({ step: fc.constant('add' as const) }),
  ),
  { minLength: 30, maxLength: 60 },
);
type Sale = typeof sale extends fc.Arbitrary<infer T> ? T : never;

const ONE: Sale = {
  step: 'sell',
  account: 'a',
  model: 'm',
  engine: 'e',
  nano: 5,
  costNano: 1,
  daysAgo: 0,
  isJob: false,
  team: 'x',
};

interface Sold {
  readonly usage: UsageRecord;
  readonly costNano: bigint | undefined;
  /** Cost of a job, which is known at its end. */
  readonly ofJob: number | undefined;
  engine: string;
  usdNano: bigint;
  errors: bigint;
}

type Filter = Pick<AnyUsageFilter, 'modelId' | 'engine'>;

const REPORTS: readonly (readonly [by: readonly UsageGrouping[], of: Filter])[] = [
  [['day'], {}],
  [['model_id'], {}],
  [['engine'], { modelId: 'm' }],
  [['account_id'], {}],
  [['account_id'], { modelId: 'm' }],
  [['account_id'], { engine: 'e' }],
  [['account_id'], { modelId: 'n', engine: 'g' }],
  [['key_id'], {}],
  [['key_id'], { modelId: 'n' }],
  [['key_id'], { engine: 'g' }],
  [[], {}],
  [['day', 'engine'], {}],
  [['day', 'model_id'], {}],
];

onEachStore('sums of reports', (fixture) => {
  async function bench() {
    const b = await ledgerBench(fixture);
    const sold: Sold[] = [];
    for (const accountId of ['a', 'b', 'c']) {
      const from = 'house:operator-credit';
      const credit = { accountId, amountNano: usdToNano('1'), kind: 'CREDIT', from } as const;
      await b.store.transaction((tx) => b.ledger.creditIn(tx, { ...credit, id: `c-${accountId}` }));
    }
    const sell = async ({
      account,
      model,
      engine,
      costNano,
      daysAgo,
      isJob,
      team,
      ...one
    }: Sale) => {
      const id = `r${sold.length}`;
      const { usage } = bill(b.clock, id, nano(0n), { accountId: account, keyId: `k-${account}` });
      const full: UsageRecord = {
        ...usage,
        createdMs: usage.createdMs - daysAgo * DAY_MS,
        modelId: model,
        replica: engine,
        metadata: team === undefined ? undefined : { team },
        status: isJob ? 'running' : 'completed',
        ...(isJob ? {} : costOf(costNano)),
      };
      const request = { costNano: nano(BigInt(one.nano)), usage: full };
      const { usdNano } = await b.store.transaction((tx) => b.ledger.settleIn(tx, request));
      const ofJob = isJob ? costNano : undefined;
      const cost = isJob || costNano === undefined ? undefined : BigInt(costNano);
      sold.push({ usage: full, costNano: cost, ofJob, engine: engine ?? '', usdNano, errors: 0n });
    };
    /** Ends the first running job; a successful one has run on another engine. */
    const end = async (isFailed: boolean) => {
      const at = sold.findIndex(({ usage }) => usage.status === 'running');
      const job = sold[at];
      if (job === undefined) return;
      const usage: UsageRecord = {
        ...job.usage,
        replica: isFailed ? job.usage.replica : 'g',
        ...costOf(job.ofJob),
        status: isFailed ? 'failed' : 'completed',
      };
      const ended = await b.store.transaction((tx) =>
        isFailed ? b.ledger.refundIn(tx, usage) : b.ledger.closeIn(tx, usage),
      );
      assert.ok(ended);
      const back = isFailed ? { usdNano: 0n, errors: 1n } : {};
      const costNano = job.ofJob === undefined ? undefined : BigInt(job.ofJob);
      sold[at] = { ...job, usage, costNano, engine: usage.replica ?? '', ...back };
    };
    const add = () => addReportDays({ store: b.store, clock: b.clock, log: silentLog });
    const today = () => dayOf(b.clock.nowMs());
    const report = (by: readonly UsageGrouping[], fromDay: number, toDay: number, of = {}) =>
      costGroups(b.store, { fromDay, toDay, ...of }, { by, limit: 1_000, nowMs: b.clock.nowMs() });
    const tags = (of: Pick<AnyUsageFilter, 'fromDay' | 'toDay'>) =>
      tagSums(b.store, of, { limit: 1_000, nowMs: b.clock.nowMs() });
    const compare = async (daysBack: number) => {
      const [fromDay, toDay] = [today() - daysBack, today() - (daysBack % 3)];
      const range = { fromDay, toDay };
      for (const [by, of] of REPORTS) {
        const rows = await report(by, fromDay, toDay, of);
        const wanted = expected(sold, by, { ...range, ...of });
        assert.deepEqual(textsOf(rows, by), wanted, `${by.join()} ${JSON.stringify(of)}`);
      }
      assert.deepEqual(textsOf(await tags(range), ['value']), expectedTags(sold, range));
    };
    return { ...b, sold, sell, end, add, today, report, tags, compare };
  }

  test('equal the sums of receipts after any order of charges, refunds, days and jobs', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (all) => {
        const b = await bench();
        for (const [at, one] of all.entries()) {
          if (one.step === 'sell') await b.sell(one);
          if (one.step === 'end') await b.end(one.isFailed);
          if (one.step === 'wait') b.clock.advance(one.hours * HOUR_MS);
          if (one.step === 'add') await b.add();
          if (at % 12 === 11) await b.compare((at * 37) % 300);
        }
        await b.add();
        await b.compare(1_000);
        await b.audit();
      }),
      { numRuns: fixture.dialect === 'sqlite' ? 3 : 2, endOnFailure: true },
    );
  });

  test('are read instead of the rows by key of past days, until a day has a late change', async () => {
    const b = await bench();
    await b.sell(ONE);
    b.clock.advance(30 * DAY_MS);
    await b.sell(ONE);
    await b.add();
    // Shows which rows a report reads.
    await b.store.query('UPDATE ledger_report_engine SET usd_nano = 1000');
    await b.store.query('UPDATE ledger_report_account SET usd_nano = 1000');
    await b.store.query('UPDATE ledger_report_tag SET usd_nano = 1000');
    const range = { fromDay: b.today() - 60, toDay: b.today() };
    const sum = (rows: readonly { usd_nano: bigint }[]) =>
      rows.reduce((all, { usd_nano: usd }) => all + usd, 0n);
    const read = async (by: UsageGrouping, of: Filter = {}) =>
      sum(await b.report([by], range.fromDay, range.toDay, of));
    const readAll = async () => [
      await read('model_id'),
      await read('day'),
      await read('account_id'),
      await read('key_id'),
      await read('account_id', { modelId: 'm' }),
      await read('key_id', { engine: 'e' }),
      sum(await b.tags(range)),
    ];
    assert.deepEqual(await readAll(), Array(7).fill(1005n));
    await b.sell({ ...ONE, daysAgo: 30 });
    assert.deepEqual(await readAll(), Array(7).fill(15n));
    await b.add();
    assert.deepEqual(await readAll(), Array(7).fill(15n));
    assert.deepEqual(await b.store.query('SELECT id FROM ledger_report_late'), []);
  });

  test('are complete if two processes add the same days at once', async () => {
    const b = await bench();
    for (let day = 0; day < 40; day += 1) await b.sell({ ...ONE, daysAgo: day });
    const added = await Promise.all([b.add(), b.add(), b.add()]);
    assert.ok(added.includes(true), 'the last run is not ended by another');
    await b.sell({ ...ONE, daysAgo: 20 });
    await Promise.all([b.add(), b.add()]);
    assert.deepEqual(await b.store.query('SELECT id FROM ledger_report_late'), []);
    await b.compare(60);
  });

  test('are not changed by a run that another process has overtaken', async () => {
    const b = await bench();
    for (let day = 0; day < 9; day += 1) await b.sell({ ...ONE, daysAgo: day });
    let isOvertaken = false;
    const overtake = async () => {
      if (isOvertaken) return;
      isOvertaken = true;
      await b.sell({ ...ONE, daysAgo: 8 });
      assert.ok(await b.add());
    };
    // The run has read the sums of the first day before the first transaction.
    const store = new Proxy(b.store, {
      get: (target, name: keyof Store) => {
        if (name !== 'transaction') {
          const member = target[name];
          return typeof member === 'function' ? member.bind(target) : member;
        }
        return async (...options: Parameters<Store['transaction']>) => {
          await overtake();
          return target.transaction(...options);
        };
      },
    });
    assert.equal(await addReportDays({ store, clock: b.clock, log: silentLog }), false);
    await b.compare(60);
  });

  test('of the version before are stored again, with those that it did not have', async () => {
    const url = await fixture.freshUrl();
    const before = LEDGER_MIGRATIONS.filter(({ id }) => id !== 'ledger-0025');
    const old = await fixture.open(before, url);
    const day = dayOf(Date.UTC(2027, 0, 2));
    const sums = 'requests, prompt_tokens, completion_tokens, usd_nano, diem_nano';
    await old.query(`INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, engine, ${sums})
      VALUES ('a', ${day}, 'k', 'm', 'e', 3, 0, 0, 30, 0)`);
    await old.query(`INSERT INTO ledger_usage_tag (account_id, name, day, value, key_id, model_id, ${sums})
      VALUES ('a', 'team', ${day}, 'x', 'k', 'm', 3, 0, 0, 30, 0)`);
    await old.query(`INSERT INTO ledger_report_until (name, day) VALUES ('reports', ${day + 2})`);
    await old.query(`INSERT INTO ledger_report_engine (day, model_id, engine, errors, uncosted, ${sums})
      VALUES (${day}, 'm', 'e', 0, 3, 3, 0, 0, 30, 0)`);

    const store = await fixture.open(LEDGER_MIGRATIONS, url);
    const clock = new TestClock((day + 2) * DAY_MS + 2 * HOUR_MS);
    const range = { fromDay: day, toDay: day + 2 };
    const read = async () => {
      const of = { limit: 9, nowMs: clock.nowMs() };
      const accounts = await costGroups(
        store,
        { ...range, engine: 'e' },
        { by: ['account_id'], ...of },
      );
      const models = await costGroups(store, range, { by: ['model_id'], ...of });
      return [...accounts, ...models, ...(await tagSums(store, range, of))].map(
        ({ requests, usd_nano: usd }) => `${requests} ${usd}`,
      );
    };
    assert.deepEqual(await read(), ['3 30', '3 30', '3 30'], 'before the job has run');
    assert.ok(await addReportDays({ store, clock, log: silentLog }));
    await store.query('DELETE FROM ledger_usage_day');
    await store.query('DELETE FROM ledger_usage_tag');
    assert.deepEqual(await read(), ['3 30', '3 30', '3 30'], 'from the stored sums');
  });

  test('start again if a process with a wrong clock has added days', async () => {
    const b = await bench();
    b.clock.advance(400 * DAY_MS);
    await b.add();
    b.clock.advance(-400 * DAY_MS);
    await b.sell(ONE);
    await b.compare(9);
    await b.add();
    b.clock.advance(2 * DAY_MS);
    await b.add();
    await b.compare(9);
  });
});

function costOf(costNano: number | undefined): Pick<UsageRecord, 'supplier'> {
  return costNano === undefined ? {} : { supplier: { nano: nano(BigInt(costNano)), lines: [] } };
}

type Texts = Record<string, unknown>;

function textsOf(rows: readonly object[], by: readonly string[]): Texts[] {
  const texts = rows.map((row) =>
    Object.fromEntries(
      Object.entries(row)
        .filter(([name]) => name !== 'uncosted')
        .map(([name, value]) => [name, String(value)]),
    ),
  );
  return sorted(texts, by);
}

function sorted(rows: readonly Texts[], by: readonly string[]): Texts[] {
  const keyOf = (row: Texts) => by.map((name) => row[name]).join(' ');
  return rows.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

type Range = Filter & Pick<AnyUsageFilter, 'fromDay' | 'toDay'>;

function isWithin({ usage, engine }: Sold, { fromDay, toDay, ...of }: Range): boolean {
  const day = dayOf(usage.createdMs);
  const isOf = (of.modelId ?? usage.modelId) === usage.modelId && (of.engine ?? engine) === engine;
  return day >= fromDay && day <= toDay && isOf;
}

function expectedTags(sold: readonly Sold[], range: Range): Texts[] {
  const rows = ['x', 'y'].map((value) => {
    const { cost_nano: _cost, ...sums } = textsOfSums(
      sold.filter((one) => isWithin(one, range) && one.usage.metadata?.['team'] === value),
    );
    return { name: 'team', value, ...sums };
  });
  return rows.filter(({ requests }) => requests !== '0');
}

function expected(sold: readonly Sold[], by: readonly UsageGrouping[], range: Range) {
  const groups = new Map<string, { names: Texts; sums: Sold[] }>();
  for (const one of sold) {
    if (!isWithin(one, range)) continue;
    const { accountId, keyId, modelId, createdMs } = one.usage;
    const all = { day: String(dayOf(createdMs)), model_id: modelId, engine: one.engine };
    const names = { ...all, account_id: accountId, key_id: keyId };
    const id = by.map((name) => names[name]).join(' ');
    const group = groups.get(id) ?? {
      names: Object.fromEntries(by.map((name) => [name, names[name]])),
      sums: [],
    };
    group.sums.push(one);
    groups.set(id, group);
  }
  if (by.length === 0 && groups.size === 0) groups.set('', { names: {}, sums: [] });
  const rows = [...groups.values()].map(({ names, sums }) => ({ ...names, ...textsOfSums(sums) }));
  return sorted(rows, by);
}

function textsOfSums(sums: readonly Sold[]) {
  const total = (of: (one: Sold) => bigint) => sums.reduce((sum, one) => sum + of(one), 0n);
  const isCosted = sums.some(({ costNano }) => costNano !== undefined);
  return {
    requests: String(sums.length),
    errors: String(total(({ errors }) => errors)),
    prompt_tokens: '0',
    completion_tokens: '0',
    usd_nano: String(total(({ usdNano }) => usdNano)),
    diem_nano: '0',
    cost_nano: isCosted ? String(total(({ costNano }) => costNano ?? 0n)) : 'null',
  };
}
