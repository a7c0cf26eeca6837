import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestClock } from '../../test/support/test-clock.ts';
import { HOUR_MS } from '../core/clock.ts';
import type { EngineFailure } from './contract.ts';
import { LearnedFields, OmittedFields, rejectsAsUnknown } from './learned-fields.ts';

test('a rejected field is omitted for its caller only, for an hour', () => {
  const clock = new TestClock();
  const learned = new LearnedFields(clock);
  const replica = { engine: 'studio', model: 'm' };
  const fieldsOf = (caller: string) =>
    new OmittedFields(learned, caller, [['style', rejectsAsUnknown('style')]]);
  const body = Buffer.from('{"error":"Unknown parameter: style"}');
  const rejection = { status: 400, body } as EngineFailure; // the members that are read
  const fields = fieldsOf('one');
  assert.ok(fields.add(replica, rejection));
  assert.ok(!fieldsOf('one').has(replica, 'style'));
  fields.learn(replica);
  assert.ok(fieldsOf('one').has(replica, 'style'));
  assert.ok(!fieldsOf('two').has(replica, 'style'));
  clock.advance(HOUR_MS);
  assert.ok(!fieldsOf('one').has(replica, 'style'));
});
