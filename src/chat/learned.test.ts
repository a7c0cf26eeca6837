import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestClock } from '../../test/support/test-clock.ts';
import { HOUR_MS, MINUTE_MS } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import type { EngineFailure } from '../engines/engines.ts';
import { LearnedDialects } from './learned.ts';

test('a parameter is sent again an hour after an engine has rejected it', () => {
  const clock = new TestClock();
  const dialects = new LearnedDialects(() => new Map(), clock, silentLog);
  const replica = { engine: 'vllm', model: 'm' };
  const body = Buffer.from('{"error":{"message":"Unknown parameter: cache_salt"}}');
  const rejection = { body, isOwn: false } as EngineFailure; // the members that are read
  assert.ok(dialects.of(replica).cacheSalt);
  assert.ok(dialects.learnSalt(replica, {}, rejection));
  clock.advance(HOUR_MS - MINUTE_MS);
  assert.ok(!dialects.of(replica).cacheSalt);
  clock.advance(MINUTE_MS);
  assert.ok(dialects.of(replica).cacheSalt);
});
