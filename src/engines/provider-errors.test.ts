import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PROVIDERS } from '../../test/support/providers.ts';
import type { EngineFailure } from './contract.ts';
import { engineFault, saysContextOverflow } from './engine-refusal.ts';
import { verdictOfError } from './verdict.ts';

/** Code for the caller, and whether another replica is tried. */
const MEANINGS: Readonly<Record<string, readonly [code: string, isRetried: boolean]>> = {
  moderation: ['CONTENT_POLICY_VIOLATION', false],
  overflow: ['overflow', false],
  invalid: ['INVALID_REQUEST', false],
  large: ['PAYLOAD_TOO_LARGE', false],
  'rate-limit': ['MODEL_OVERLOADED', true],
  overloaded: ['MODEL_OVERLOADED', true],
  operator: ['INFERENCE_FAILED', true],
  unsupported: ['INVALID_MODEL', true],
  generation: ['INFERENCE_FAILED', true],
  failed: ['INFERENCE_FAILED', true],
  timeout: ['REQUEST_TIMEOUT', true],
  offline: ['MODEL_OFFLINE', true],
};

const ERRORS = PROVIDERS.flatMap(([provider, { errors = [], embeddings }]) => [
  ...errors.map((error) => ({ ...error, provider, isOptionalPath: false })),
  ...(embeddings?.errors ?? []).map((error) => {
    return { ...error, provider: `${provider} for embeddings`, isOptionalPath: true };
  }),
]);
for (const { provider, name, status, body, meaning, isOptionalPath } of ERRORS) {
  test(`the error "${name}" of ${provider} means ${meaning}`, () => {
    const bytes = Buffer.from(JSON.stringify(body));
    const { reason, retry } = verdictOfError(status, bytes, isOptionalPath);
    const failure: EngineFailure = {
      ok: false,
      reason,
      message: `HTTP ${status}`,
      status,
      body: bytes,
      retryAfterSeconds: null,
      attempts: 1,
      replica: null,
      sawFirstByte: false,
      bytes: 0,
      wasSent: true,
      wasWorking: false,
      isOwn: false,
    };
    const code = saysContextOverflow(failure) ? 'overflow' : engineFault(failure, 'm').code;
    assert.deepEqual([code, retry !== 'never'], MEANINGS[meaning]);
  });
}

test('a rejection that echoes text of the caller does not count against the engine', () => {
  const phrases = [
    'Incorrect API key provided',
    'API key not valid',
    'Your credit balance is too low',
    'You exceeded your current quota, please check your plan',
    'User location is not supported for the API',
  ];
  for (const phrase of phrases) {
    const error = { message: `Invalid value for "stop": "${phrase}"` };
    const { breaker } = verdictOfError(400, Buffer.from(JSON.stringify({ error })));
    assert.equal(breaker, 'success', phrase);
  }
});
