import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import type { LimitLog } from '../billing/limits/limits.ts';
import type { ConfigInForce } from '../config/config.ts';
import { SECOND_MS, systemClock } from '../core/clock.ts';
import { type Log, silentLog } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import { type Caller, walletCaller } from '../identity/identity.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { sameMinute } from '../../test/support/still-clock.ts';
import { AbuseGuard } from './abuse-guard.ts';
import type { RequestContext } from './request-context.ts';

test('failures with a payment only do not block the sign-in of its wallet', () => {
  const limits = { guard: { failures: 20, windowSeconds: 30, blockSeconds: 30 } };
  const current = { limits, service: {}, publicUrl: 'http://shop' };
  const guard = new AbuseGuard({
    store: {} as Store, // not shared
    processId: '1',
    config: { current } as unknown as ConfigInForce, // all that it reads
    limitLog: { add: () => undefined } as unknown as LimitLog, // all that it calls
    clock: new TestClock(),
    basePath: '/api/v1',
  });
  const wallet = walletCaller('0x01');
  const payment = { amountNano: 1n, limitNano: usdToNano('1'), take: async () => undefined };
  const route = {
    method: 'POST',
    path: '/x',
    auth: 'key-or-wallet',
    handle: () => undefined,
  } as const;
  const request = (callerIfKnown: Caller) =>
    ({ callerIfKnown, statusCode: 400, route }) as unknown as RequestContext; // all that it reads
  // Another shop can have obtained the signature of the payment.
  for (let count = 0; count < 21; count += 1) guard.ended(request({ ...wallet, payment }));
  assert.throws(() => guard.refuse(request({ ...wallet, payment }), route), /failed requests/);
  guard.refuse(request(wallet), route);
  guard.close();
});

describe('the abuse guard', () => {
  let bench: Bench;
  const clock = new TestClock();
  before(async () => {
    bench = await startWithEngine({
      clock,
      yaml: '  - { id: away, type: text, offline: true, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
    });
  });
  after(() => bench.stop());

  const chat = (secret: string | undefined, extra = {}) =>
    call(bench.farebox, '/chat/completions', {
      ...(secret === undefined ? {} : { secret }),
      body: chatBody(extra),
    });
  const fail = async (secret: string | undefined, times: number, status: number) => {
    for (let index = 0; index < times; index += 1) {
      const extra = secret === undefined ? {} : { temperature: 9 };
      assert.equal((await chat(secret, extra)).status, status);
    }
  };

  test('21 failures in 30 s block a key for 30 s, and the guard itself does not count', async () => {
    const { accountId, secret } = await bench.farebox.account('1');
    const other = await bench.farebox.key({ accountId });
    const admin = await bench.farebox.key({ accountId, kind: 'ADMIN' });
    await fail(secret, 20, 400);
    assert.equal((await chat(secret)).status, 200);
    await fail(secret, 1, 400);
    for (let index = 0; index < 25; index += 1) {
      const blocked = await chat(secret);
      assert.equal(blocked.status, 429);
      assert.equal(blocked.body.code, 'FAILED_REQUESTS');
      assert.match(
        blocked.body.error,
        /More than 20 failed requests in 30 seconds.*wait 30 seconds/,
      );
      assert.match(blocked.body.error, /\/docs\)/);
      assert.equal(blocked.headers.get('retry-after'), '30');
    }
    assert.equal((await chat(other)).status, 200);
    clock.advance(29 * SECOND_MS);
    assert.equal((await chat(secret)).headers.get('retry-after'), '1');
    clock.advance(SECOND_MS);
    assert.equal((await chat(secret)).status, 200);
    const log = await call(bench.farebox, '/api_keys/rate_limit_logs', { secret: admin });
    assert.equal(log.body.data.length, 26);
    assert.equal(log.body.data[0].rateLimitType, 'FAILED_REQUESTS');
    assert.equal(log.body.data[0].modelId, 'endpoint:api/v1/chat/completions');
  });

  test('setting the system clock back by 10 minutes does not prolong a block', async () => {
    const { secret } = await bench.farebox.account('1');
    await fail(secret, 21, 400);
    clock.setWallBack(600 * SECOND_MS);
    assert.equal((await chat(secret)).headers.get('retry-after'), '30');
    clock.advance(30 * SECOND_MS);
    assert.equal((await chat(secret)).status, 200);
  });

  test('failures further apart than the window do not add up', async () => {
    const { secret } = await bench.farebox.account('1');
    await fail(secret, 20, 400);
    clock.advance(30 * SECOND_MS);
    await fail(secret, 20, 400);
    assert.equal((await chat(secret)).status, 200);
  });

  test('failed credentials count by address and prefix, and do not block other callers', async () => {
    const { secret } = await bench.farebox.account('1');
    const wrong = () => chat('SVC_INFERENCE_KEY_wrong');
    for (let index = 0; index < 21; index += 1) assert.equal((await wrong()).status, 401);
    assert.equal((await wrong()).status, 429);
    assert.equal((await chat('SVC_INFERENCE_KEY_another-one-that-is-wrong')).status, 401);
    assert.equal((await chat(undefined)).status, 402);
    assert.equal((await call(bench.farebox, '/models')).status, 200);
    assert.notEqual((await call(bench.farebox, '/x402/top-up', { body: {} })).status, 429);
    assert.equal((await call(bench.farebox, '/nowhere')).status, 404);
    assert.equal((await chat(secret)).status, 200);
    clock.advance(30 * SECOND_MS);
    assert.equal((await wrong()).status, 401);
  });

  test('many unknown keys block their address, but not a valid key at the same address', async () => {
    clock.advance(60 * SECOND_MS);
    const { secret } = await bench.farebox.account('1');
    const guess = (at: number) => chat(`SVC_INFERENCE_KEY_${at}-${'x'.repeat(30)}`);
    for (let index = 0; index < 201; index += 1) assert.equal((await guess(index)).status, 401);
    const blocked = await guess(500);
    assert.equal(blocked.status, 429);
    assert.equal(blocked.body.code, 'FAILED_REQUESTS');
    assert.equal((await chat(undefined)).status, 402);
    assert.equal((await chat(secret)).status, 200);
    assert.equal((await call(bench.farebox, '/models')).status, 200);
    clock.advance(60 * SECOND_MS);
  });

  test('unknown paths with a valid key count for the key, not for its address', async () => {
    const { secret } = await bench.farebox.account('1');
    const neighbour = await bench.farebox.account('1');
    for (let index = 0; index < 25; index += 1) {
      assert.equal((await call(bench.farebox, '/nowhere', { secret })).status, 404);
    }
    const blocked = await chat(secret);
    assert.deepEqual([blocked.status, blocked.body.code], [429, 'FAILED_REQUESTS']);
    assert.equal((await call(bench.farebox, '/models', { secret })).status, 200);
    assert.equal((await chat(undefined)).status, 402);
    assert.equal((await chat(neighbour.secret)).status, 200);
    for (let index = 0; index < 50; index += 1) {
      assert.equal((await call(bench.farebox, '/nowhere')).status, 404);
    }
    assert.equal((await call(bench.farebox, '/models')).status, 200);
  });

  test('the discovery 402, 429s and our own 5xx do not count', async () => {
    clock.advance(60 * SECOND_MS);
    await fail(undefined, 25, 402);
    assert.equal((await call(bench.farebox, '/models')).status, 200);
    const { secret } = await bench.farebox.account('1');
    for (let index = 0; index < 25; index += 1) {
      assert.equal((await chat(secret, { model: 'away' })).status, 503);
    }
    const limited = await bench.farebox.account('1', { limits: { requestsPerMinute: 1 } });
    assert.equal((await chat(limited.secret)).status, 200);
    for (let index = 0; index < 25; index += 1) {
      const refused = await chat(limited.secret);
      assert.equal(refused.body.code, 'RATE_LIMIT_EXCEEDED');
    }
  });

  test('error responses of a known caller count: 401 of an admin route, 402 of an empty balance', async () => {
    const { secret } = await bench.farebox.account('0.01');
    for (let index = 0; index < 10; index += 1) {
      assert.equal((await call(bench.farebox, '/api_keys', { secret })).status, 401);
      assert.equal((await chat(secret)).status, 402);
    }
    assert.equal((await chat(secret)).status, 402);
    assert.equal((await chat(secret)).body.code, 'FAILED_REQUESTS');
    const neighbour = await bench.farebox.account('1');
    assert.equal((await chat(neighbour.secret)).status, 200);
  });
});

test('failures at two servers with one database add up, and block at both', async () => {
  const databaseUrl = await emptyPostgresDatabase();
  const [first, second] = [
    await startWithEngine({ databaseUrl, clock: sameMinute() }),
    await startWithEngine({ databaseUrl, clock: sameMinute() }),
  ];
  try {
    const { accountId, secret } = await first.farebox.account('1');
    const neighbour = await first.farebox.key({ accountId });
    const chat = ({ farebox }: Bench, key: string, extra = {}) =>
      call(farebox, '/chat/completions', { secret: key, body: chatBody(extra) });
    // As many as one key may fail, and one more, at neither server alone.
    for (const [at, times] of [
      [first, 11],
      [second, 10],
    ] as const) {
      for (let index = 0; index < times; index += 1) {
        assert.equal((await chat(at, secret, { temperature: 9 })).status, 400);
        assert.equal((await chat(at, 'SVC_INFERENCE_KEY_wrong')).status, 401);
      }
    }
    for (const at of [first, second]) {
      for (const key of [secret, 'SVC_INFERENCE_KEY_wrong']) {
        let answer = await chat(at, key);
        for (let look = 0; look < LOOKS && answer.status !== 429; look += 1) {
          await systemClock().sleep(500 * (look + 1));
          answer = await chat(at, key);
        }
        assert.deepEqual([answer.status, answer.body.code], [429, 'FAILED_REQUESTS']);
      }
      assert.equal((await chat(at, neighbour)).status, 200);
    }
  } finally {
    await second.stop();
    await first.stop();
  }
});

/**
 * Servers tell each other four times a second. Looks that fail are too few to block by themselves, so
 * each waits longer than the one before.
 */
const LOOKS = 8;

test('an untrusted proxy is logged once, with the setting that trusts it', async () => {
  const warned: string[] = [];
  const log: Log = {
    ...silentLog,
    warn: (_fields: object, message: string) => void warned.push(message),
  };
  const headers = { 'x-forwarded-for': '203.0.113.9' };
  const notices = () => warned.filter((message) => message.includes('http.trustProxy'));
  const without = await startWithEngine({ log });
  try {
    assert.equal((await call(without.farebox, '/models')).status, 200);
    assert.equal(notices().length, 0);
    for (let index = 0; index < 3; index += 1) {
      assert.equal((await call(without.farebox, '/models', { headers })).status, 200);
    }
    assert.equal(notices().length, 1);
  } finally {
    await without.stop();
  }
  const trusting = await startWithEngine({ log, yaml: 'http: { trustProxy: true }' });
  try {
    assert.equal((await call(trusting.farebox, '/models', { headers })).status, 200);
    assert.equal(notices().length, 1);
  } finally {
    await trusting.stop();
  }
});
