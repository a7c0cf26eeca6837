import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FAULTS } from '../../core/fault-table.ts';
import type { FaultCode } from '../../core/faults.ts';
import type { RequestTry } from '../../core/request-tries.ts';
import { operatorStep } from './next-steps.ts';

test('an embedded engine that downloads its model does not lack capacity', () => {
  const tried: RequestTry = {
    engine: 'embedded-speech',
    target: 'voice',
    result: 'overloaded',
    status: 503,
    startedMs: 0,
    tookMs: 1,
    detail: '',
    words: '',
  };
  const request = { route: 'POST /audio/speech', message: 'The voice is being downloaded' };
  assert.match(operatorStep(request, 'MODEL_OFFLINE', [tried]), /^Wait for the download/);
  assert.match(operatorStep(request, 'MODEL_OVERLOADED', [tried]), /^Add a replica of voice/);
});

test('no failure of the server is left to the caller', () => {
  for (const [code, { status }] of Object.entries(FAULTS)) {
    if (status < 500) continue;
    const request = { route: 'POST /chat/completions', message: '' };
    assert.doesNotMatch(operatorStep(request, code as FaultCode, []), /the caller has to/, code);
  }
});
