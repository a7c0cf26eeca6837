import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EngineFailure } from './engines.ts';
import { mediaEngineFault } from './media-engine-fault.ts';

const FAILURE: Omit<EngineFailure, 'status' | 'body' | 'isOwn'> = {
  ok: false,
  reason: 'refused',
  sawFirstByte: false,
  bytes: 0,
  retryAfterSeconds: null,
  attempts: 1,
  wasSent: true,
  wasWorking: false,
  replica: null,
  message: 'refused',
};
const CODES = {
  byStatus: { 422: 'CORRUPTED_IMAGE' },
  refused: 'INFERENCE_FAILED',
  failed: 'INFERENCE_FAILED',
} as const;

describe('`mediaEngineFault`', () => {
  const fault = (status: number, body: string, isOwn = true): string[] => {
    const failure = { ...FAILURE, status, body: Buffer.from(body), isOwn };
    const { code, message } = mediaEngineFault(failure, 'm', CODES);
    return [code, message];
  };

  test('it uses code and message of embedded engines', () => {
    assert.deepEqual(fault(400, '{"error":"Too small","code":"IMAGE_TOO_SMALL"}'), [
      'IMAGE_TOO_SMALL',
      'Too small',
    ]);
  });

  test('it maps the status of other engines, and ignores a code with another status', () => {
    const body = '{"error":{"message":"cuda out of memory at 0x7f"},"code":"IMAGE_TOO_SMALL"}';
    for (const status of [400, 422]) {
      const [code, message] = fault(status, body, false);
      assert.equal(code, status === 422 ? 'CORRUPTED_IMAGE' : 'INFERENCE_FAILED');
      assert.doesNotMatch(message!, /cuda/);
    }
    assert.equal(fault(422, '{"error":"x","code":"INSUFFICIENT_BALANCE"}')[0], 'CORRUPTED_IMAGE');
    assert.equal(fault(418, '<html>')[0], 'INFERENCE_FAILED');
  });
});
