/** Limits of accounts and keys from the command line, as a running server then enforces them. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { RateLimitsResponse } from '../account/rate-limits.ts';
import { runCommand } from './cli.ts';

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

  async function farebox(...argv: string[]) {
    const said = { out: '', err: '' };
    const code = await runCommand({
      argv,
      env: { ...process.env, FAREBOX_DATA: bench.farebox.config.dataFolder, PORT: '' },
      cwd: bench.farebox.config.dataFolder,
      stdout: { write: (text) => void (said.out += text) },
      stderr: { write: (text) => void (said.err += text) },
      onSignal: () => undefined,
    });
    return { code, ...said };
  }

  async function limitsOf(...argv: string[]): Promise<unknown> {
    const { code, out, err } = await farebox(...argv, '--json');
    assert.equal(code, 0, err || out);
    return (JSON.parse(out) as { limits: unknown }).limits;
  }

  /** What a request of the key shows; the server reads the key anew after three seconds. */
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

  test('an account gets limits, keeps the others, and goes back to those of its plan', async () => {
    const { accountId, secret } = await bench.farebox.account('1');
    const usual = await enforced(secret);
    assert.deepEqual(await limitsOf('accounts', 'limit', accountId), NONE);
    const first = await limitsOf('accounts', 'limit', accountId, '--requests-per-minute', '60');
    assert.deepEqual(first, { ...NONE, requestsPerMinute: 60 });
    const both = await limitsOf('accounts', 'limit', accountId, '--tokens-per-minute', '9000');
    assert.deepEqual(both, { ...NONE, requestsPerMinute: 60, tokensPerMinute: 9_000 });
    assert.deepEqual(await enforced(secret), ['60', '9000', 'user']);
    const words = ['--requests-per-minute', 'default', '--tokens-per-minute', 'default'];
    assert.deepEqual(await limitsOf('accounts', 'limit', accountId, ...words), NONE);
    assert.deepEqual(await enforced(secret), usual);
  });

  test('a key gets limits of its own, those of blockchain RPC among them', async () => {
    const { accountId, secret } = await bench.farebox.account('1');
    const [key] = await bench.farebox.app.stores.identity.listKeys(
      accountId,
      {},
      { limit: 1, offset: 0 },
    );
    assert.ok(key);
    const command = ['keys', 'limit', key.id, '--account', accountId];
    const words = ['--requests-per-minute', '7', '--rpc-credits-per-day', '500'];
    const limits = { ...NONE, requestsPerMinute: 7, rpcCreditsPerDay: 500 };
    assert.deepEqual(await limitsOf(...command, ...words), limits);
    assert.deepEqual((await enforced(secret)).slice(0, 1), ['7']);
    const answer = await call(bench.farebox, '/api_keys/rate_limits', { secret });
    const { data } = RateLimitsResponse.parse(answer.body);
    const rates = data.rateLimits.find(({ apiModelId }) => apiModelId === 'atlas')?.rateLimits;
    assert.equal(rates?.find(({ type }) => type === 'RPM')?.amount, 7);
    const { out } = await farebox(...command);
    assert.match(out, /requests-per-minute +7\n.*tokens-per-minute +default\n/);
  });

  test('what is no limit, no account or no key is named', async () => {
    const { accountId } = await bench.farebox.account('1');
    for (const word of ['0', '-1', '1.5', '10000000000', 'many']) {
      const { code, err } = await farebox(
        'accounts',
        'limit',
        accountId,
        '--tokens-per-minute',
        word,
      );
      assert.deepEqual([code, /must be a whole number from 1/.test(err)], [2, true], word);
    }
    assert.equal((await farebox('accounts', 'limit')).code, 2);
    const unknown = await farebox('accounts', 'limit', 'nobody');
    assert.deepEqual([unknown.code, /no account "nobody"/.test(unknown.err)], [1, true]);
    const gone = await farebox('keys', 'limit', 'key_gone', '--account', accountId);
    assert.deepEqual([gone.code, /no active key "key_gone"/.test(gone.err)], [1, true]);
  });
});
