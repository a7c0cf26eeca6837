/** `farebox accounts limit` and `farebox keys limit`, and the limits that a running server applies. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { runCli } from '../../test/support/run-cli.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { RateLimitsResponse } from '../account/rate-limits.ts';

const NONE = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  rpcRequestsPerMinute: null,
  rpcCreditsPerDay: null,
};

describe('limits from the command line', () => {
  let bench: Bench;
  const clock = new TestClock();
  before(async () => {
    bench = await startWithEngine({ clock });
  });
  after(() => bench.stop());

  function farebox(...argv: string[]) {
    const { dataFolder } = bench.farebox.config;
    return runCli(dataFolder, argv, { FAREBOX_DATA: dataFolder });
  }

  async function limitsOf(...argv: string[]): Promise<unknown> {
    const { code, out, err } = await farebox(...argv, '--json');
    assert.equal(code, 0, err || out);
    return (JSON.parse(out) as { limits: unknown }).limits;
  }

  /** The limits in the headers of a request, after the server has read the key again. */
  async function enforced(secret: string) {
    clock.advance(3_001);
    const { headers } = await call(bench.farebox, '/chat/completions', {
      secret,
      body: chatBody(),
    });
    return ['limit-requests', 'limit-tokens', 'type'].map((name) =>
      headers.get(`x-ratelimit-${name}`),
    );
  }

  test('`accounts limit` sets one limit, keeps the others and restores the limits of the plan', async () => {
    const { accountId, secret } = await bench.farebox.account('1');
    const usual = await enforced(secret);
    assert.deepEqual(await limitsOf('accounts', 'limit', accountId), NONE);
    const first = await limitsOf('accounts', 'limit', accountId, '--requests-per-minute', '60');
    assert.deepEqual(first, { ...NONE, requestsPerMinute: 60 });
    const both = await limitsOf('accounts', 'limit', accountId, '--tokens-per-minute', '9000');
    assert.deepEqual(both, { ...NONE, requestsPerMinute: 60, tokensPerMinute: 9_000 });
    assert.deepEqual(await enforced(secret), ['60', '9000', 'user']);
    const options = ['--requests-per-minute', 'default', '--tokens-per-minute', 'default'];
    assert.deepEqual(await limitsOf('accounts', 'limit', accountId, ...options), NONE);
    assert.deepEqual(await enforced(secret), usual);
  });

  test('`keys limit` sets limits of a key, also for blockchain RPC', async () => {
    const { accountId, secret } = await bench.farebox.account('1');
    const page = { limit: 1, offset: 0 };
    const [key] = await bench.farebox.app.stores.identity.listKeys(accountId, {}, page);
    assert.ok(key);
    const command = ['keys', 'limit', key.id, '--account', accountId];
    const options = ['--requests-per-minute', '7', '--rpc-credits-per-day', '500'];
    const limits = { ...NONE, requestsPerMinute: 7, rpcCreditsPerDay: 500 };
    assert.deepEqual(await limitsOf(...command, ...options), limits);
    assert.deepEqual((await enforced(secret)).slice(0, 1), ['7']);
    const { body } = await call(bench.farebox, '/api_keys/rate_limits', { secret });
    const { data } = RateLimitsResponse.parse(body);
    const rates = data.rateLimits.find(({ apiModelId }) => apiModelId === 'atlas')?.rateLimits;
    assert.equal(rates?.find(({ type }) => type === 'RPM')?.amount, 7);
    const { out } = await farebox(...command);
    assert.match(out, /requests-per-minute +7\n.*tokens-per-minute +default\n/);
  });

  test('the commands reject invalid limits, unknown accounts and unknown keys', async () => {
    const { accountId } = await bench.farebox.account('1');
    const limit = ['accounts', 'limit', accountId, '--tokens-per-minute'];
    for (const word of ['0', '-1', '1.5', '10000000000', 'many']) {
      const { code, err } = await farebox(...limit, word);
      assert.deepEqual([code, /must be a whole number from 1/.test(err)], [2, true], word);
    }
    assert.equal((await farebox('accounts', 'limit')).code, 2);
    const unknown = await farebox('accounts', 'limit', 'nobody');
    assert.deepEqual([unknown.code, /no account "nobody"/.test(unknown.err)], [1, true]);
    const gone = await farebox('keys', 'limit', 'key_gone', '--account', accountId);
    assert.deepEqual([gone.code, /no active key "key_gone"/.test(gone.err)], [1, true]);
  });
});
