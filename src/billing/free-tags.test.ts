import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DAY_MS } from '../core/clock.ts';
import { FreeTags, MAX_ROWS, OTHER_VALUES } from './free-tags.ts';

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

test('what it remembers is bounded: the accounts that came first are forgotten', () => {
  const tags = new FreeTags();
  const fill = (accountId: string) => {
    for (let at = 0; at < MAX_ROWS; at += 1) {
      tags.bounded({ ...USAGE, accountId }, { user: `u${at}` }, 0);
    }
  };
  const next = (accountId: string) => tags.bounded({ ...USAGE, accountId }, { user: 'next' }, 0);
  fill('first');
  assert.deepEqual(next('first'), { user: OTHER_VALUES });
  for (let at = 0; at < 100; at += 1) fill(`account${at}`);
  assert.deepEqual(next('first'), { user: 'next' });
  assert.deepEqual(next('account99'), { user: OTHER_VALUES });
});
