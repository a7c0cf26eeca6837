/** Prices by kind of token, length, service tier and time of day, on bills, receipts and lists. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../app/call.ts';
import type { Behaviour } from '../support/test-upstream.ts';
import { type StillClock, stillClock } from '../support/still-clock.ts';
import { usdToNano } from '../../src/core/money.ts';

const PRICES = `{
  input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75, cacheWrite1h: 6, audioInput: 40, imageInput: 5,
  reasoning: 12, audioOutput: 80, perRequest: 0.000001,
  extended: [{ above: 1000, input: 6, output: 22.5 }, { above: 2000, input: 7.000001, output: 30 }],
  serviceTiers: { priority: { factor: 2 } },
  windows: [{ from: "16:30", to: "00:30", factor: 0.5 }] }`.replaceAll('\n', ' ');

const LONG = 'word '.repeat(1_000);

function reports(usage: Readonly<Record<string, unknown>>, tier?: string): Behaviour {
  return {
    kind: 'own',
    answer: (response, body) => {
      const choice = { index: 0, finish_reason: 'stop' };
      const more = { usage, ...(tier === undefined ? {} : { service_tier: tier }) };
      if (!body.includes('"stream":true')) {
        const choices = [{ ...choice, message: { role: 'assistant', content: 'Hi' } }];
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ object: 'chat.completion', choices, ...more }));
        return;
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const delta = { role: 'assistant', content: 'Hi' };
      for (const chunk of [{ choices: [{ ...choice, delta }] }, { choices: [], ...more }]) {
        response.write(
          `data: ${JSON.stringify({ object: 'chat.completion.chunk', ...chunk })}\n\n`,
        );
      }
      response.end('data: [DONE]\n\n');
    },
  };
}

const ALL_KINDS = {
  prompt_tokens: 900,
  completion_tokens: 40,
  prompt_tokens_details: { cached_tokens: 300, audio_tokens: 50, image_tokens: 20 },
  cache_creation_input_tokens: 200,
  cache_creation: { ephemeral_5m_input_tokens: 150, ephemeral_1h_input_tokens: 50 },
  completion_tokens_details: { reasoning_tokens: 10, audio_tokens: 5 },
};

describe('prices', () => {
  let bench: Bench;
  let clock: StillClock;
  let secret: string;
  let accountId: string;

  before(async () => {
    clock = stillClock();
    bench = await startWithEngine({
      clock: clock.clock,
      model: `  - { id: rich, type: text, context: 65536, maxCompletionTokens: 64, price: ${PRICES}, replicas: [{ engine: rack1, model: tiny, cost: { input: 2, output: 10 } }] }`,
    });
    ({ secret, accountId } = await bench.farebox.account('10'));
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  async function bill(behaviour: Behaviour, extra: Readonly<Record<string, unknown>> = {}) {
    bench.upstream.script.push(behaviour);
    const ledger = bench.farebox.app.stores.ledger;
    const before = (await ledger.balances(accountId)).usdNano;
    const messages = [{ role: 'user', content: LONG }];
    const body = chatBody({ model: 'rich', messages, ...extra });
    const sent = await call(bench.farebox, '/chat/completions', { secret, body });
    assert.equal(sent.status, 200, sent.text);
    const id = sent.headers.get('x-request-id') ?? '';
    const { body: receipt } = await call(bench.farebox, `/usage/${id}`, { secret });
    const spent = before - (await ledger.balances(accountId)).usdNano;
    assert.equal(sumOfLines(receipt.lines), spent * 1_000_000n, JSON.stringify(receipt.lines));
    assert.equal(Number(receipt.cost.usd), Number(spent) / 1e9);
    return { spent, receipt, sent, engineBody: JSON.parse(bench.upstream.seen.at(-1)?.body ?? '') };
  }

  for (const stream of [false, true]) {
    test(`a bill has every kind of token at its price, with stream ${stream}`, async () => {
      const { spent, receipt, sent } = await bill(reports(ALL_KINDS), { stream });
      const perMillion =
        330 * 3 + 50 * 40 + 20 * 5 + 300 * 0.3 + 50 * 6 + 150 * 3.75 + 5 * 80 + 10 * 12 + 25 * 15;
      assert.equal(spent, BigInt(perMillion * 1_000) + 1_000n);
      assert.deepEqual(
        receipt.lines.map((line: { kind: string; quantity: number }) => [line.kind, line.quantity]),
        [
          ['audio_input_tokens', 50],
          ['image_input_tokens', 20],
          ['input_tokens', 330],
          ['cache_read_tokens', 300],
          ['cache_write_1h_tokens', 50],
          ['cache_write_tokens', 150],
          ['audio_output_tokens', 5],
          ['reasoning_tokens', 10],
          ['output_tokens', 25],
          ['request', 1],
        ],
      );
      assert.equal(receipt.extras.lines, undefined);
      assert.match(sent.text, /"ephemeral_1h_input_tokens":50/);
      const { body: signed } = await call(bench.farebox, `/usage/${receipt.requestId}/signed`, {
        secret,
      });
      assert.deepEqual(signed.usage.lines, receipt.lines);
    });
  }

  test('a longer prompt has the prices of the highest step below its length', async () => {
    const usage = (prompt_tokens: number) => reports({ prompt_tokens, completion_tokens: 1 });
    assert.equal((await bill(usage(1_000))).spent, 3_016_000n);
    assert.equal((await bill(usage(1_001))).spent, 6_006_000n + 22_500n + 1_000n);
    const { spent, receipt } = await bill(usage(2_001));
    // 2001 tokens at 7.000001 are 14,007.002001 nano-USD times 1,000: rounded once.
    assert.equal(spent, 14_007_002n + 30_000n + 1_000n);
    assert.deepEqual(receipt.lines.at(-1), { kind: 'rounding', usd: '-0.000000000001' });
  });

  test('a service tier is requested and billed only if it has a price', async () => {
    const usage = { prompt_tokens: 100, completion_tokens: 10 };
    const wanted = { service_tier: 'priority' };
    const fast = await bill(reports(usage, 'priority'), wanted);
    assert.equal(fast.engineBody.service_tier, 'priority');
    assert.equal(fast.spent, 2n * (300_000n + 150_000n + 1_000n));
    const lowered = await bill(reports(usage, 'default'), wanted);
    assert.equal(lowered.spent, 451_000n);
    const lines = await bill(reports(usage, 'default'), { ...wanted, stream: true });
    assert.equal(lines.spent, 451_000n);
    const silent = await bill(reports(usage), wanted);
    assert.equal(silent.spent, 451_000n);
    const unsold = await bill(reports(usage), { service_tier: 'flex' });
    assert.equal(unsold.engineBody.service_tier, undefined);
    assert.equal(unsold.spent, 451_000n);
    const { body } = await call(bench.farebox, '/responses', {
      secret,
      body: {
        model: 'rich',
        input: LONG,
        service_tier: 'priority',
        max_output_tokens: 50,
        store: false,
      },
    });
    assert.equal(body.status, 'completed');
    assert.equal(JSON.parse(bench.upstream.seen.at(-1)?.body ?? '').service_tier, 'priority');
  });

  test('the time of day selects the price, and its receipt keeps the prices', async () => {
    clock.pass(5 * 3_600_000);
    const { spent, receipt } = await bill(reports({ prompt_tokens: 100, completion_tokens: 10 }));
    assert.equal(spent, 225_500n);
    assert.equal(receipt.unitPrices.input, '1.5000');
    clock.pass(8 * 3_600_000);
    const { body } = await call(bench.farebox, `/usage/${receipt.requestId}`, { secret });
    assert.deepEqual(body.lines, receipt.lines);
  });

  test('the hold covers the most expensive tokens, and the list shows every price', async () => {
    const usage = {
      prompt_tokens: 900,
      completion_tokens: 50,
      prompt_tokens_details: { audio_tokens: 900 },
      completion_tokens_details: { audio_tokens: 50 },
    };
    const { spent, receipt } = await bill(reports(usage));
    assert.equal(spent, BigInt(900 * 40_000 + 50 * 80_000) + 1_000n);
    assert.ok(usdToNano(receipt.reserved) >= spent);
    const { body } = await call(bench.farebox, '/models/rich');
    const { pricing } = body.model_spec;
    const usd = (name: string) => pricing[name].usd;
    assert.deepEqual(
      ['cache_write_1h', 'audio_input', 'image_input', 'reasoning', 'audio_output'].map(usd),
      [6, 40, 5, 12, 80],
    );
    assert.equal(pricing.extended.context_token_threshold, 1_000);
    assert.equal(pricing.extended.further[0].input.usd, 7.000001);
    assert.equal(pricing.priority.input.usd, 6);
    assert.deepEqual([pricing.windows[0].from, pricing.windows[0].output.usd], ['16:30', 7.5]);
    assert.doesNotMatch(JSON.stringify(body), /cost/);
  });
});

/** Femto-USD. */
function sumOfLines(lines: readonly { readonly usd: string }[]): bigint {
  return lines.reduce((sum, { usd }) => {
    const [whole = '', fraction = ''] = usd.replace('-', '').split('.');
    const femto = BigInt(whole + fraction.padEnd(15, '0'));
    return usd.startsWith('-') ? sum - femto : sum + femto;
  }, 0n);
}
