/** The response to a tool call while it is written. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SECOND_MS } from '../core/clock.ts';
import type { RequestContext } from '../http/request-context.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { CallResult } from './call-response.ts';

test('a result that is being compressed is followed by no keep-alive', async () => {
  const clock = new TestClock(0);
  const { promise: compressed, resolve: compress } = Promise.withResolvers<void>();
  const begun: string[] = [];
  const context = {
    isGone: false,
    header: () => 'application/json, text/event-stream',
    json: async () => {
      begun.push('json');
      await compressed;
    },
    set: () => undefined,
    stream: () => {
      begun.push('stream');
      return { write: () => true };
    },
  } as unknown as RequestContext; // the members that a response uses
  const response = new CallResult(context, clock, 1);
  const ended = response.end({ jsonrpc: '2.0' });
  clock.advance(20 * SECOND_MS);
  compress();
  await ended;
  assert.deepEqual(begun, ['json']);
});
