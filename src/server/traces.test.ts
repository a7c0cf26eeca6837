import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatTraceParent, parseTraceParent, passableTraceState } from './traces.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

describe('trace context', () => {
  test('a valid `traceparent` is parsed and formatted', () => {
    const header = `00-${TRACE}-${SPAN}-01`;
    const parent = parseTraceParent(header);
    assert.deepEqual(parent, { traceId: TRACE, spanId: SPAN, isSampled: true });
    assert.equal(formatTraceParent(parent), header);
    assert.equal(parseTraceParent(`00-${TRACE}-${SPAN}-02`)?.isSampled, false);
  });

  test('a later version of `traceparent` may have further fields', () => {
    assert.equal(parseTraceParent(`01-${TRACE}-${SPAN}-01-more`)?.traceId, TRACE);
  });

  test('an invalid `traceparent` is ignored', () => {
    for (const header of [
      undefined,
      '',
      'x'.repeat(10_000),
      `ff-${TRACE}-${SPAN}-01`,
      `00-${TRACE}-${SPAN}-01-more`,
      `00-${'0'.repeat(32)}-${SPAN}-01`,
      `00-${TRACE}-${'0'.repeat(16)}-01`,
      `00-${TRACE.toUpperCase()}-${SPAN}-01`,
      `00-${TRACE}-${SPAN}`,
    ]) {
      assert.equal(parseTraceParent(header), undefined, String(header));
    }
  });

  test('a `tracestate` is forwarded if it is short text', () => {
    assert.equal(passableTraceState('a=1,b=2'), 'a=1,b=2');
    assert.equal(passableTraceState('a=1\r\nx: y'), undefined);
    assert.equal(passableTraceState('a'.repeat(600)), undefined);
  });
});
