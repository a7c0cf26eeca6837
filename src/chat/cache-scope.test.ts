import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CacheScope } from './cache-scope.ts';

const KEY = Buffer.alloc(32, 7);
const PER_ACCOUNT = { current: { promptCaches: { perAccount: true } } };

test('keys and salts differ by account and installation, and are stable', () => {
  const scope = new CacheScope(KEY, PER_ACCOUNT);
  const restarted = new CacheScope(Buffer.from(KEY), PER_ACCOUNT);
  const other = new CacheScope(Buffer.alloc(32, 8), PER_ACCOUNT);
  const texts = [
    scope.keyOf('a', 'thread'),
    scope.keyOf('b', 'thread'),
    scope.keyOf('a', 'other'),
    other.keyOf('a', 'thread'),
    scope.saltOf('a'),
    scope.saltOf('b'),
    other.saltOf('a'),
    // A salt that a caller chose is one of its account.
    scope.saltOf('a', 'mine'),
    scope.saltOf('b', 'mine'),
    scope.saltOf('a', ''),
  ];
  assert.equal(new Set(texts).size, texts.length);
  for (const text of texts) assert.match(text ?? '', /^[\w-]{32}$/);
  assert.equal(restarted.keyOf('a', 'thread'), texts[0]);
  assert.equal(restarted.saltOf('a'), texts[4]);
  assert.equal(scope.saltOf('a'), texts[4]);
  // A salt that is not a string has no effect.
  assert.equal(scope.saltOf('a', ['x']), texts[4]);
});

test('without account scopes keys are unchanged and there is no salt', () => {
  const promptCaches = { perAccount: false };
  const config = { current: { promptCaches } };
  const scope = new CacheScope(KEY, config);
  assert.equal(scope.keyOf('a', 'thread'), 'thread');
  assert.equal(scope.saltOf('a'), undefined);
  promptCaches.perAccount = true;
  assert.notEqual(scope.keyOf('a', 'thread'), 'thread');
  assert.notEqual(scope.saltOf('a'), undefined);
});

test('an evicted salt is the same when it is computed again', () => {
  const scope = new CacheScope(KEY, PER_ACCOUNT);
  const first = scope.saltOf('account-0');
  for (let at = 1; at < 10_002; at += 1) scope.saltOf(`account-${at}`);
  assert.equal(scope.saltOf('account-0'), first);
});
