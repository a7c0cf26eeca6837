/** Reports compared with the sums of their receipts, after any order of changes and jobs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, HOUR_MS, dayOf } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import { nano, usdToNano } from '../../core/money.ts';
import { type UsageGrouping, type UsageRecord, addReportDays, costGroups } from './ledger.ts';

const sale = fc.record({
  step: fc.constant('sell' as const),
  account: fc.constantFrom('a', 'b', 'c'),
  model: fc.constantFrom('m', 'n'),
  engine: fc.constantFrom(undefined, 'e', 'f'),
  nano: fc.nat(1_000_000),
  costNano: fc.option(fc.nat(1_000), { nil: undefined }),
  daysAgo: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(90)),
  isJob: fc.boolean(),
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

const REPORTS: readonly (readonly UsageGrouping[])[] = [
  ['day'],
  ['model_id'],
  ['engine'],
  ['account_id'],
  ['key_id'],
  [],
  ['day', 'engine'],
  ['day', 'model_id'],
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
    const sell = async ({ account, model, engine, costNano, daysAgo, isJob, ...one }: Sale) => {
      const id = `r${sold.length}`;
      const { usage } = bill(b.clock, id, nano(0n), { accountId: account, keyId: `k-${account}` });
      const full: UsageRecord = {
        ...usage,
        createdMs: usage.createdMs - daysAgo * DAY_MS,
        modelId: model,
        replica: engine,
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
    const compare = async (daysBack: number) => {
      const [fromDay, toDay] = [today() - daysBack, today() - (daysBack % 3)];
      for (const by of REPORTS) {
        const rows = await report(by, fromDay, toDay);
        assert.deepEqual(textsOf(rows, by), expected(sold, by, fromDay, toDay), by.join());
      }
    };
    return { ...b, sold, sell, end, add, today, report, compare };
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
      { numRuns: 3, endOnFailure: true },
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
    await b.store.query('UPDATE ledger_report_key SET usd_nano = 1000');
    const read = async (by: UsageGrouping) => {
      const rows = await b.report([by], b.today() - 60, b.today());
      return rows.reduce((sum, { usd_nano: usd }) => sum + usd, 0n);
    };
    assert.deepEqual(
      [await read('model_id'), await read('day'), await read('account_id'), await read('key_id')],
      [1005n, 1005n, 1005n, 1005n],
    );
    await b.sell({ ...ONE, daysAgo: 30 });
    assert.deepEqual([await read('model_id'), await read('account_id')], [15n, 15n]);
    await b.add();
    assert.deepEqual([await read('model_id'), await read('account_id')], [15n, 15n]);
    assert.deepEqual(await b.store.query('SELECT id FROM ledger_report_late'), []);
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

function textsOf(rows: readonly object[], by: readonly UsageGrouping[]): Texts[] {
  const texts = rows.map((row) =>
    Object.fromEntries(
      Object.entries(row)
        .filter(([name]) => name !== 'uncosted')
        .map(([name, value]) => [name, String(value)]),
    ),
  );
  return sorted(texts, by);
}

function sorted(rows: readonly Texts[], by: readonly UsageGrouping[]): Texts[] {
  const keyOf = (row: Texts) => by.map((name) => row[name]).join(' ');
  return rows.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}

function expected(sold: readonly Sold[], by: readonly UsageGrouping[], from: number, to: number) {
  const groups = new Map<string, { names: Texts; sums: Sold[] }>();
  for (const one of sold) {
    const day = dayOf(one.usage.createdMs);
    if (day < from || day > to) continue;
    const { accountId, keyId, modelId } = one.usage;
    const all = { day: String(day), model_id: modelId, engine: one.engine };
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
  const rows = [...groups.values()].map(({ names, sums }) => {
    const total = (of: (one: Sold) => bigint) => sums.reduce((sum, one) => sum + of(one), 0n);
    const costed = rowsWithCost(sums);
    return {
      ...names,
      requests: String(sums.length),
      errors: String(total(({ errors }) => errors)),
      prompt_tokens: '0',
      completion_tokens: '0',
      usd_nano: String(total(({ usdNano }) => usdNano)),
      diem_nano: '0',
      cost_nano: costed.length === 0 ? 'null' : String(total(({ costNano }) => costNano ?? 0n)),
    };
  });
  return sorted(rows, by);
}

function rowsWithCost(sums: readonly Sold[]): Sold[] {
  return sums.filter(({ costNano }) => costNano !== undefined);
}
