import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DAY_MS } from '../core/clock.ts';
import {
  FEW_ROWS,
  MAX_ALL_ROWS,
  MAX_OTHER_ROWS,
  MAX_ROWS,
  OTHER_VALUES,
  ROW_BYTES,
  ROW_NANO,
  TagBounds,
} from './tag-bounds.ts';

const USAGE = { accountId: 'a', keyId: 'k', modelId: 'm' };
const user = (at: number) => ({ user: `u${at}` });

function useUp(bounds: TagBounds, usage = USAGE): void {
  for (let at = 0; at < MAX_ROWS; at += 1) {
    assert.deepEqual(bounds.bounded(usage, user(at), 0n, 0), user(at));
  }
}

test('values above the daily bound are merged, and known values are not', () => {
  const bounds = new TagBounds();
  useUp(bounds);
  const named = bounds.bounded(USAGE, { ...user(MAX_ROWS), run: '1' }, 0n, 0);
  assert.deepEqual(named, { user: OTHER_VALUES, run: OTHER_VALUES });
  assert.deepEqual(bounds.bounded(USAGE, user(7), 0n, 0), user(7));
  const otherModel = { ...USAGE, modelId: 'n' };
  assert.deepEqual(bounds.bounded(otherModel, user(7), 0n, 0), { user: OTHER_VALUES });
  const otherAccount = { ...USAGE, accountId: 'b' };
  assert.deepEqual(bounds.bounded(otherAccount, user(MAX_ROWS), 0n, 0), user(MAX_ROWS));
  assert.deepEqual(bounds.bounded(USAGE, user(MAX_ROWS), 0n, DAY_MS), user(MAX_ROWS), 'a new day');
});

test('a day after the clock was set back by days, values have their daily bound again', () => {
  const bounds = new TagBounds();
  bounds.bounded(USAGE, user(-1), 0n, 30 * DAY_MS);
  for (let at = 1; at < MAX_ROWS; at += 1) bounds.bounded(USAGE, user(at), 0n, 0);
  const another = user(MAX_ROWS);
  assert.deepEqual(bounds.bounded(USAGE, another, 0n, DAY_MS - 1), { user: OTHER_VALUES });
  assert.deepEqual(bounds.bounded(USAGE, another, 0n, DAY_MS), another);
});

test('the count of a day does not restart if the clock is set back', () => {
  const bounds = new TagBounds();
  bounds.bounded(USAGE, user(-1), 0n, DAY_MS);
  for (let at = 1; at < MAX_ROWS; at += 1) bounds.bounded(USAGE, user(at), 0n, DAY_MS - 1);
  assert.deepEqual(bounds.bounded(USAGE, user(0), 0n, DAY_MS), { user: OTHER_VALUES });
});

test('a charge allows rows in proportion to its amount', () => {
  const bounds = new TagBounds();
  useUp(bounds);
  const next = (costNano: number) =>
    bounds.bounded(USAGE, user(MAX_ROWS + costNano), BigInt(costNano), 0);
  assert.deepEqual(next(ROW_NANO - 1), { user: OTHER_VALUES });
  assert.deepEqual(next(1), user(MAX_ROWS + 1), 'both together pay for one');
  assert.deepEqual(next(0), { user: OTHER_VALUES });
});

test('one USD of charges allows less than 1 GB of rows', () => {
  const bounds = new TagBounds();
  const costNano = 600n;
  const requests = 20_000;
  let rows = 0;
  let receiptBytes = 0;
  for (let at = 0; at < requests; at += 1) {
    const tags = Object.fromEntries(
      Array.from({ length: 16 }, (_, tag) => [`tag${tag}`, `${at} ${tag} `.padEnd(500, 'x')]),
    );
    const kept = Object.entries(bounds.bounded(USAGE, tags, costNano, 0));
    rows += kept.filter(([, value]) => value !== OTHER_VALUES).length;
    receiptBytes += kept.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  }
  const spentNano = Number(costNano) * requests;
  const free = 2 * MAX_ROWS * ROW_BYTES;
  // Names of merged values are no longer than their names here.
  const names = requests * 16 * (OTHER_VALUES.length + 5);
  assert.ok(rows * ROW_BYTES < spentNano + free, `${rows} rows for ${spentNano} nano-USD`);
  assert.ok(receiptBytes < spentNano + free + names, `${receiptBytes} bytes on receipts`);
});

test('large tags count as rows and are merged on the receipt above the bound', () => {
  const bounds = new TagBounds();
  const large = { note: 'x'.repeat(500), user: 'anna' };
  // One row for each receipt and one for each value.
  for (let at = 0; at < MAX_ROWS - 2; at += 1) {
    assert.deepEqual(bounds.bounded(USAGE, large, 0n, 0), large);
  }
  assert.deepEqual(bounds.bounded(USAGE, large, 0n, 0), { [OTHER_VALUES]: OTHER_VALUES });
  assert.deepEqual(bounds.bounded(USAGE, { user: 'anna' }, 0n, 0), { user: 'anna' });
  assert.deepEqual(bounds.bounded(USAGE, large, BigInt(ROW_NANO), 0), large, 'it paid for that');
});

test('rows of merged values are bounded by name, key and model', () => {
  const bounds = new TagBounds();
  useUp(bounds);
  const named = (at: number) => bounds.bounded(USAGE, { [`tag${at}`]: 'new' }, 0n, 0);
  const kept = Array.from({ length: 2 * MAX_OTHER_ROWS }, (_, at) => named(at)).filter(
    (one) => !(OTHER_VALUES in one),
  );
  assert.equal(kept.length, MAX_OTHER_ROWS);
});

test('the rows of all accounts together are bounded, and late accounts still get some', () => {
  const bounds = new TagBounds();
  let all = 0;
  const kept = (accountId: string) => {
    let rows = 0;
    for (let at = 0; at < MAX_ROWS; at += 1) {
      const { user: value } = bounds.bounded({ ...USAGE, accountId }, user(at), 0n, 0);
      if (value !== undefined && value !== OTHER_VALUES) rows += 1;
    }
    all += rows;
    return rows;
  };
  assert.equal(kept('first'), MAX_ROWS);
  for (let at = 1; at < MAX_ALL_ROWS / 2 / MAX_ROWS; at += 1) kept(`account${at}`);
  assert.equal(kept('in the second half'), FEW_ROWS);
  const one = bounds.bounded({ ...USAGE, accountId: 'first' }, { user: 'one more' }, 0n, 0);
  assert.deepEqual(one, { user: OTHER_VALUES }, 'what was counted is not forgotten');
  for (let at = 0; all < MAX_ALL_ROWS; at += 1) {
    const accountId = `new${at}`;
    if (bounds.bounded({ ...USAGE, accountId }, user(0), 0n, 0)['user'] !== 'u0') break;
    all += 1;
  }
  assert.equal(all, MAX_ALL_ROWS);
  const late = { ...USAGE, accountId: 'late' };
  assert.deepEqual(bounds.bounded(late, user(0), 0n, 0), { user: OTHER_VALUES });
});
