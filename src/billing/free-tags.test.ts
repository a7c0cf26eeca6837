import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DAY_MS } from '../core/clock.ts';
import { FEW_ROWS, FreeTags, MAX_ALL_ROWS, MAX_ROWS, OTHER_VALUES } from './free-tags.ts';

const USAGE = { accountId: 'a', keyId: 'k', modelId: 'm' };

test('values above the bound of a day count as one, and those that were seen go on', () => {
  const tags = new FreeTags();
  const user = (at: number) => ({ user: `u${at}` });
  for (let at = 0; at < MAX_ROWS; at += 1) {
    assert.deepEqual(tags.bounded(USAGE, user(at), 0), user(at));
  }
  assert.deepEqual(tags.bounded(USAGE, { ...user(MAX_ROWS), run: '1' }, 0), {
    user: OTHER_VALUES,
    [OTHER_VALUES]: OTHER_VALUES,
  });
  assert.deepEqual(tags.bounded(USAGE, user(7), 0), user(7));
  const otherModel = { ...USAGE, modelId: 'n' };
  assert.deepEqual(tags.bounded(otherModel, user(7), 0), { user: OTHER_VALUES });
  assert.deepEqual(tags.bounded({ ...USAGE, accountId: 'b' }, user(MAX_ROWS), 0), user(MAX_ROWS));
  assert.deepEqual(tags.bounded(USAGE, user(MAX_ROWS), DAY_MS), user(MAX_ROWS), 'a new day');
});

test('names are bounded apart, since each has a row for what is not told apart', () => {
  const tags = new FreeTags();
  const named = (at: number) => tags.bounded(USAGE, { [`tag${at}`]: 'x' }, 0);
  const kept = Array.from({ length: 200 }, (_, at) => named(at)).filter(
    (one) => !(OTHER_VALUES in one),
  );
  assert.equal(kept.length, 64);
  assert.deepEqual(tags.bounded(USAGE, { tag3: 'y' }, 0), { tag3: 'y' });
});

test('however many accounts there are, their rows are bounded, and the last ones still get some', () => {
  const tags = new FreeTags();
  let all = 0;
  const kept = (accountId: string) => {
    let rows = 0;
    for (let at = 0; at < MAX_ROWS; at += 1) {
      const { user } = tags.bounded({ ...USAGE, accountId }, { user: `u${at}` }, 0);
      if (user !== undefined && user !== OTHER_VALUES) rows += 1;
    }
    all += rows;
    return rows;
  };
  assert.equal(kept('first'), MAX_ROWS);
  for (let at = 1; at < MAX_ALL_ROWS / 2 / MAX_ROWS; at += 1) kept(`account${at}`);
  assert.equal(kept('in the second half'), FEW_ROWS);
  const one = tags.bounded({ ...USAGE, accountId: 'first' }, { user: 'one more' }, 0);
  assert.deepEqual(one, { user: OTHER_VALUES }, 'what was counted is not forgotten');
  for (let at = 0; all < MAX_ALL_ROWS; at += 1) {
    const { user } = tags.bounded({ ...USAGE, accountId: `new${at}` }, { user: 'u' }, 0);
    if (user === 'u') all += 1;
    else break;
  }
  assert.equal(all, MAX_ALL_ROWS);
  const late = tags.bounded({ ...USAGE, accountId: 'late' }, { user: 'u' }, 0);
  assert.deepEqual(late, { [OTHER_VALUES]: OTHER_VALUES });
});
