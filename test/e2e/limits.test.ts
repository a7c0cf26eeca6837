/** Limits are exact: one request above each gets the one error response, and reserved tokens are released. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { MINUTE_MS } from '../../src/core/clock.ts';
import { usdToNano } from '../../src/core/money.ts';
import { TestClock } from '../support/test-clock.ts';
import { type Bench, type Called, call, chatBody, startWithEngine } from '../app/call.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { until } from '../support/until.ts';

const TIERS = ['XS', 'S', 'M', 'L'] as const;

/** Limits, "Text models" and "Partner tier". */
const TABLE = {
  paid: { XS: [500, 1_000_000], S: [75, 750_000], M: [50, 750_000], L: [20, 500_000] },
  partner: { XS: [500, 2_000_000], S: [150, 1_500_000], M: [100, 1_500_000], L: [60, 1_000_000] },
} as const;

/** Limits, "Other model types": type, default, partner. */
const OTHERS = [
  ['image', 20, 60],
  ['asr', 60, 120],
  ['embedding', 500, 500],
  ['video', 40, 40],
] as const;

const KEYS_AT_ONCE = 4;

for (const dialect of ['sqlite', 'postgres'] as const) {
  describe(`limits under load (${dialect})`, () => {
    let bench: Bench;
    const clock = new TestClock();
    before(async () => {
      bench = await startWithEngine({
        clock,
        yaml: 'limits: { guard: { failures: 100000 } }',
        model: TIERS.map((tier) => textModel(tier)).join('\n'),
        ...(dialect === 'sqlite' ? {} : { databaseUrl: await emptyPostgresDatabase() }),
      });
    });
    after(async () => {
      await bench.farebox.audit();
      await bench.stop();
    });

    const chat = (secret: string, extra = {}) =>
      call(bench.farebox, '/chat/completions', { secret, body: chatBody(extra) });
    const atOnce = (count: number, secret: string, extra = {}): Promise<Called[]> =>
      Promise.all(Array.from({ length: count }, () => chat(secret, extra)));
    const left = (answer: Called) => Number(answer.headers.get('x-ratelimit-remaining-tokens'));

    for (const tier of ['L', 'M'] as const) {
      test(`of one request above the ${tier} limit exactly one is refused`, async () => {
        const { secret } = await bench.farebox.account('5');
        const [limit] = TABLE.paid[tier];
        const answers = await atOnce(limit + 1, secret, { model: `text-${tier.toLowerCase()}` });
        const refused = answers.filter((one) => one.status === 429);
        assert.equal(refused.length, 1);
        assert.equal(refused[0]?.body.code, 'RATE_LIMIT_EXCEEDED');
        assert.equal(refused[0].headers.get('x-ratelimit-remaining-requests'), '0');
        assert.equal(answers.filter((one) => one.status === 200).length, limit);
      });
    }

    test('tokens are reserved: one request too many gets 429, and the others release their tokens', async () => {
      const tokensPerMinute = 100_000;
      const probe = await bench.farebox.account('5', { limits: { tokensPerMinute } });
      bench.upstream.script.push({ kind: 'stream', chunks: 5, usage: true });
      // The headers of a stream leave first, with the estimate; those of JSON say what was used.
      const reserved = tokensPerMinute - left(await chat(probe.secret, { stream: true }));
      assert.ok(reserved > 50, 'prompt and completion are reserved');
      const next = await chat(probe.secret);
      assert.equal(tokensPerMinute - left(next), 17 + 17);

      const { secret } = await bench.farebox.account('5', {
        limits: { tokensPerMinute: 5 * reserved },
      });
      const slow = { kind: 'stream', chunks: 5, everyMs: 40 } as const;
      bench.upstream.script.push(slow, slow, slow, slow, slow);
      const answers = await atOnce(6, secret, { stream: true });
      const refused = answers.filter((one) => one.status === 429);
      assert.equal(refused.length, 1);
      assert.match(refused[0]?.body.error, /tokens per minute/);
      assert.equal(refused[0]?.headers.get('x-ratelimit-type'), 'api_key');
      const after = await chat(secret);
      assert.equal(after.status, 200);
      // Five streams of 12 + 5 tokens, and this one.
      assert.equal(5 * reserved - left(after), 5 * 17 + 17);
    });

    test('a text completion reserves at most 1,024 tokens for each response', async () => {
      const { secret } = await bench.farebox.account('5', { limits: { tokensPerMinute: 9_000 } });
      const body = { model: 'atlas', prompt: 'Hello', max_tokens: 8_000 };
      const complete = () => call(bench.farebox, '/completions', { secret, body });
      const answers = await Promise.all([complete(), complete()]);
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200],
      );
    });

    test('every end of a request releases its reserved tokens: rejection, failure, disconnect', async () => {
      const tokensPerMinute = 100_000;
      const { accountId, secret } = await bench.farebox.account('5', {
        limits: { tokensPerMinute },
      });
      await chat(secret);
      bench.upstream.script.push({ kind: 'status', status: 400 });
      assert.equal((await chat(secret)).status, 400);
      const poor = await bench.farebox.key({ accountId, usdLimitNano: usdToNano('0') });
      assert.equal((await chat(poor)).status, 402);
      bench.upstream.script.push({ kind: 'stream', chunks: 5, hangAfter: 2 });
      const leave = new AbortController();
      const response = await fetch(`${bench.farebox.url}/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: JSON.stringify(chatBody({ stream: true })),
        signal: leave.signal,
      });
      await response.body?.getReader().read();
      leave.abort();
      const receipts = () =>
        bench.farebox.app.stores.store.query(
          "SELECT prompt_tokens + completion_tokens AS tokens FROM ledger_usage WHERE account_id = $1 AND status = 'aborted'",
          [accountId],
        );
      let aborted = await receipts();
      await until(async () => (aborted = await receipts()).length > 0, 'the receipt of the abort');
      // The tokens of the aborted request are released right after its receipt; each further
      // request uses 17.
      const used = 17 + Number(aborted[0]?.['tokens']) + 17;
      let asked = 0;
      let counted = tokensPerMinute - left(await chat(secret));
      while (counted !== used + 17 * asked && asked < 20) {
        asked += 1;
        counted = tokensPerMinute - left(await chat(secret));
      }
      assert.equal(counted, used + 17 * asked);
    });

    test('usage above the estimate counts, also in the next minute', async () => {
      const { secret } = await bench.farebox.account('5', { limits: { tokensPerMinute: 3_000 } });
      clock.advance(MINUTE_MS - (clock.nowMs() % MINUTE_MS));
      const long = { kind: 'answer', content: 'word', promptTokens: 12 } as const;
      bench.upstream.script.push({ ...long, completionTokens: 2_000 });
      const one = { max_completion_tokens: undefined };
      assert.equal(left(await chat(secret, one)), 3_000 - 2_012);
      const gate = Promise.withResolvers<void>();
      bench.upstream.script.push({ ...long, completionTokens: 4_000, after: gate.promise });
      clock.advance(MINUTE_MS);
      const slow = chat(secret, one);
      await until(() => bench.upstream.active > 0, 'the work');
      clock.advance(MINUTE_MS);
      gate.resolve();
      assert.equal((await slow).status, 200);
      assert.equal((await chat(secret, one)).status, 429);
    });

    test('a new minute resets the limits, and the headers contain its start', async () => {
      const { secret } = await bench.farebox.account('5', { limits: { requestsPerMinute: 1 } });
      clock.advance(MINUTE_MS - (clock.nowMs() % MINUTE_MS) + 15_000);
      const first = await chat(secret);
      assert.equal(first.headers.get('x-ratelimit-reset-tokens'), '45');
      const resetsAt = Number(first.headers.get('x-ratelimit-reset-requests')) * 1_000;
      assert.equal(resetsAt, clock.nowMs() + 45_000);
      const refused = await chat(secret);
      assert.equal(refused.status, 429);
      assert.equal(refused.headers.get('retry-after'), '45');
      clock.advance(44_999);
      assert.equal((await chat(secret)).status, 429);
      clock.advance(1);
      assert.equal((await chat(secret)).status, 200);
    });
  });
}

test('the limits of each plan equal the tables of the specification', async () => {
  const models = [
    ...TIERS.map((tier) => textModel(tier)),
    ...OTHERS.map(([type]) => otherModel(type)),
  ];
  const bench = await startWithEngine({ model: models.join('\n') });
  try {
    const { identity } = bench.farebox.app.stores;
    for (const plan of ['paid', 'pro', 'partner', 'staff'] as const) {
      const { id: accountId } = await identity.createAccount(plan, plan);
      const secret = await bench.farebox.key({ accountId });
      const { body } = await call(bench.farebox, '/api_keys/rate_limits', { secret });
      const isPartner = plan === 'partner' || plan === 'staff';
      const rates = (id: string) =>
        body.data.rateLimits
          .find((row: { apiModelId: string }) => row.apiModelId === id)
          ?.rateLimits.map((rate: { amount: number }) => rate.amount);
      for (const tier of TIERS) {
        const row = TABLE[isPartner ? 'partner' : 'paid'][tier];
        assert.deepEqual(rates(`text-${tier.toLowerCase()}`), row, `${plan} ${tier}`);
      }
      for (const [type, usual, partner] of OTHERS) {
        assert.deepEqual(rates(`one-${type}`), [isPartner ? partner : usual], `${plan} ${type}`);
      }
    }
  } finally {
    await bench.stop();
  }
});

test('one request above the concurrency limit gets 429', async () => {
  const bench = await startWithEngine({ yaml: `limits: { keyConcurrency: ${KEYS_AT_ONCE} }` });
  try {
    const { secret } = await bench.farebox.account('5');
    const gate = Promise.withResolvers<void>();
    bench.upstream.otherwise = { kind: 'answer', content: 'word', after: gate.promise };
    const all = Array.from({ length: KEYS_AT_ONCE + 1 }, () =>
      call(bench.farebox, '/chat/completions', { secret, body: chatBody({ stream: true }) }),
    );
    await Promise.race(all);
    gate.resolve();
    const answers = await Promise.all(all);
    const refused = answers.filter((one) => one.status === 429);
    assert.equal(refused.length, 1);
    assert.match(refused[0]?.body.error, /at most 4 can run at the same time/);
    assert.equal(
      (await call(bench.farebox, '/chat/completions', { secret, body: chatBody({ stream: true }) }))
        .status,
      200,
    );
  } finally {
    await bench.stop();
  }
});

test('a request that continues after a disconnect counts as concurrent', async () => {
  const bench = await startWithEngine({ yaml: `limits: { keyConcurrency: ${KEYS_AT_ONCE} }` });
  try {
    const { secret } = await bench.farebox.account('5');
    const ask = (key: string, signal?: AbortSignal) =>
      call(bench.farebox, '/chat/completions', {
        secret,
        body: chatBody(),
        headers: { 'idempotency-key': key },
        ...(signal === undefined ? {} : { signal }),
      });
    const leave = new AbortController();
    const gate = Promise.withResolvers<void>();
    const slow = { kind: 'answer', content: 'word', after: gate.promise } as const;
    bench.upstream.script.push(slow, slow, slow, slow);
    const left = Array.from({ length: KEYS_AT_ONCE }, (_, index) =>
      assert.rejects(ask(`left-${index}`, leave.signal)),
    );
    await until(() => bench.upstream.active === KEYS_AT_ONCE);
    leave.abort();
    await Promise.all(left);
    await sleep(50);
    const refused = await ask('next');
    assert.equal(refused.status, 429);
    assert.match(refused.body.error, /at most 4 can run at the same time/);
    gate.resolve();
    await until(async () => (await ask('next')).status === 200);
  } finally {
    await bench.stop();
  }
});

function textModel(tier: string): string {
  return `  - { id: text-${tier.toLowerCase()}, type: text, tier: ${tier}, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }`;
}

function otherModel(type: string): string {
  const further = {
    image: 'price: { perImage: 0.01 }',
    asr: 'price: { perSecond: 0.0001 }',
    embedding: 'price: { input: 1 }, embedding: { dimensions: 8, maxInputTokens: 100 }',
    video:
      'video: { task: text-to-video, pricing: { kind: generation, perGeneration: 0.1 }, durations: [1 gen] }',
  }[type];
  return `  - { id: one-${type}, type: ${type}, ${further}, replicas: [{ engine: rack1, model: tiny }] }`;
}
