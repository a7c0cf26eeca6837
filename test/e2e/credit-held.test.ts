/**
 * Requests that run together share a balance: a reservation of one never makes another 402 while
 * posted credit suffices, and the limit of tokens per minute counts near real use.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { usdToNano } from '../../src/core/money.ts';
import { type Bench, call, chatBody, startWithEngine } from '../app/call.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';

/** The longest completion of this model costs 4.80 USD. */
const DEAR = `  - { id: dear, type: text, context: 200000, maxCompletionTokens: 64000, price: { input: 15, output: 75 }, replicas: [{ engine: rack1, model: tiny }] }
  - { id: wordy, type: text, tier: M, context: 1000000, maxCompletionTokens: 100000, price: { input: 0.01, output: 0.01 }, replicas: [{ engine: rack1, model: tiny }] }`;
const SLOW = { kind: 'answer', afterMs: 300, content: 'Hello', completionTokens: 5 } as const;
const PROMPT = { model: 'dear', messages: [{ role: 'user' as const, content: 'Hello' }] };

for (const dialect of ['sqlite', 'postgres'] as const) {
  describe(`credit that is held (${dialect})`, () => {
    let bench: Bench;
    before(async () => {
      bench = await startWithEngine({
        model: DEAR,
        ...(dialect === 'sqlite' ? {} : { databaseUrl: await emptyPostgresDatabase() }),
      });
    });
    after(async () => {
      await bench.farebox.audit();
      await bench.stop();
    });

    const sdk = (apiKey: string) => new OpenAI({ baseURL: bench.farebox.url, apiKey });
    const lastAsked = () => JSON.parse(bench.upstream.seen.at(-1)?.body ?? '{}');

    for (const count of [3, 10]) {
      for (const stream of [false, true]) {
        test(`${count} at once without max_tokens are all served (${stream ? 'streams' : 'JSON'})`, async () => {
          const { secret } = await bench.farebox.account('4.50');
          bench.upstream.otherwise = SLOW;
          const client = sdk(secret);
          await Promise.all(
            Array.from({ length: count }, async () => {
              const body = { ...PROMPT, stream: true as const };
              const chunks = [];
              if (stream)
                for await (const one of await client.chat.completions.create(body))
                  chunks.push(one);
              else chunks.push(await client.chat.completions.create(PROMPT));
              assert.ok(chunks.length > 0);
            }),
          );
          bench.upstream.otherwise = { kind: 'json', usage: true };
        });
      }
    }

    test('requests beyond the balance wait or get 429, and never 402', async () => {
      const { secret } = await bench.farebox.account('0.30');
      bench.upstream.otherwise = SLOW;
      const answers = await Promise.all(
        Array.from({ length: 40 }, () =>
          call(bench.farebox, '/chat/completions', { secret, body: { ...PROMPT, stream: true } }),
        ),
      );
      bench.upstream.otherwise = { kind: 'json', usage: true };
      const statuses = answers.map((one) => one.status);
      assert.ok(
        statuses.every((status) => status === 200 || status === 429),
        statuses.join(),
      );
      for (const refused of answers.filter((one) => one.status === 429)) {
        assert.equal(refused.body.code, 'CREDIT_HELD');
        assert.equal(refused.headers.get('retry-after'), '1');
        assert.equal(refused.headers.get('x-should-retry'), null);
        assert.ok(refused.headers.has('x-ratelimit-remaining-requests'));
        assert.ok(refused.headers.has('x-svc-balance-usd'));
      }
    });

    test('a requested size that the balance covers is granted; without a size, a share', async () => {
      const { secret } = await bench.farebox.account('4.50');
      const chat = (extra = {}) =>
        call(bench.farebox, '/chat/completions', { secret, body: { ...PROMPT, ...extra } });
      assert.equal((await chat({ max_completion_tokens: 50_000 })).status, 200);
      assert.equal(lastAsked().max_tokens ?? lastAsked().max_completion_tokens, 50_000);
      assert.equal((await chat()).status, 200);
      const share = lastAsked().max_tokens ?? lastAsked().max_completion_tokens;
      // A quarter of 4.50 USD at 75 USD per million, minus the minimum of a useful completion.
      assert.ok(share > 15_000 && share < 15_400, `${share} tokens`);
    });

    test('too little posted credit gets 402, independent of holds', async () => {
      const { secret } = await bench.farebox.account('0.05');
      const answer = await call(bench.farebox, '/chat/completions', { secret, body: PROMPT });
      assert.equal(answer.status, 402);
      assert.match(answer.body.error, /0\.050000 USD is posted and at least 0\.100000 USD/);
    });

    test('concurrent requests share the cap of a key, and get an error when it is spent', async () => {
      const { accountId } = await bench.farebox.account('100');
      const secret = await bench.farebox.key({ accountId, usdLimitNano: usdToNano('0.5') });
      bench.upstream.otherwise = SLOW;
      const client = sdk(secret);
      await Promise.all(Array.from({ length: 6 }, () => client.chat.completions.create(PROMPT)));
      bench.upstream.otherwise = { kind: 'json', usage: true };
      const spent = await bench.farebox.key({ accountId, usdLimitNano: 1n as never });
      const answer = await call(bench.farebox, '/chat/completions', {
        secret: spent,
        body: PROMPT,
      });
      assert.equal(answer.status, 402);
      assert.equal(answer.body.code, 'API_KEY_USD_SPEND_LIMIT_EXCEEDED');
    });

    test('ten prompts of 60,000 tokens pass a limit of 750,000 a minute', async () => {
      const { secret } = await bench.farebox.account('100');
      const content = 'four'.repeat(60_000);
      const body = { model: 'wordy', messages: [{ role: 'user', content }] };
      bench.upstream.otherwise = {
        kind: 'answer',
        content: 'Yes',
        promptTokens: 60_000,
        completionTokens: 10,
      };
      const answers = await Promise.all(
        Array.from({ length: 10 }, () =>
          call(bench.farebox, '/chat/completions', { secret, body }),
        ),
      );
      assert.deepEqual(
        answers.map((one) => one.status),
        answers.map(() => 200),
      );
      bench.upstream.otherwise = { kind: 'json', usage: true };
    });

    test('the header of remaining tokens includes the request', async () => {
      const { secret } = await bench.farebox.account('100');
      const small = { ...chatBody({ model: 'wordy' }), max_completion_tokens: undefined };
      const answer = await call(bench.farebox, '/chat/completions', { secret, body: small });
      const limit = Number(answer.headers.get('x-ratelimit-limit-tokens'));
      assert.equal(limit - Number(answer.headers.get('x-ratelimit-remaining-tokens')), 17);
    });
  });
}
