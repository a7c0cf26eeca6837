/** The unmodified `openai` SDK against a real server with the real demo engine. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import * as z from 'zod';
import { call } from '../app/call.ts';
import { type TestApp, modelIsThere, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';

describe('openai SDK', () => {
  let farebox: TestApp;
  let client: OpenAI;

  before(async () => {
    farebox = await startTestApp({ embedded: true, sentences: true });
    await modelIsThere(farebox, 'farebox-demo');
    await modelIsThere(farebox, 'farebox-sentences');
    client = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
  });

  test('`create()` returns a completion, and the balance falls by exactly the cost', async () => {
    const { ledger } = farebox.app.stores;
    const before = (await ledger.balances(farebox.owner.accountId)).usdNano;
    const { data, response } = await client.chat.completions
      .create({ model: 'default', messages: [{ role: 'user', content: 'Hello' }] })
      .withResponse();
    assert.equal(data.object, 'chat.completion');
    assert.equal(data.model, 'farebox-demo');
    assert.ok((data.choices[0]?.message.content ?? '').length > 0);
    const { cost } = data as unknown as { cost: { usd: number; diem: number } };
    const paid = before - (await ledger.balances(farebox.owner.accountId)).usdNano;
    assert.equal(Number(paid) / 1e9, cost.usd);
    assert.ok(paid > 0n);
    assert.equal(response.headers.get('x-svc-model-id'), 'farebox-demo');
    assert.ok((data as { _request_id?: string })._request_id);
  });

  test('the default embedding model ranks meaning; the demo is free and has no trait', async () => {
    const traits = (await (await fetch(`${farebox.url}/models/traits?type=embedding`)).json()) as {
      data: Record<string, string>;
    };
    assert.deepEqual(traits.data, {
      default: 'farebox-sentences',
      fastest: 'farebox-sentences',
    });
    const { data, model } = await client.embeddings.create({
      model: 'default',
      input: ['It is raining heavily', 'There is a downpour outside', 'The sun is shining'],
    });
    assert.equal(model, 'farebox-sentences');
    const [rain, same, other] = data.map(({ embedding }) => embedding);
    const near = (a: number[], b: number[]): number =>
      a.reduce((sum, value, index) => sum + value * b[index]!, 0);
    assert.ok(near(rain!, same!) > near(rain!, other!));
    const list = await client.models.list({ query: { type: 'embedding' } });
    const demo = list.data.find(({ id }) => id === 'farebox-demo-embedding') as unknown as {
      model_spec: { traits: string[]; pricing: { input: { usd: number } } };
    };
    assert.deepEqual([demo.model_spec.traits, demo.model_spec.pricing.input.usd], [[], 0]);
  });

  test('documents are ranked by default, and their tokens charged', async () => {
    const before = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
    const { status, body } = await call(farebox, '/rerank', {
      secret: farebox.owner.secret,
      body: {
        query: 'When do I get my money back?',
        documents: ['Cats purr.', 'Refunds are paid within five days.', 'It is raining.'],
        top_n: 1,
      },
    });
    assert.equal(status, 200);
    assert.deepEqual([body.model, body.results[0].index], ['farebox-rerank', 1]);
    const after = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
    // Tokens at 0.0125 USD a million.
    const nano = (BigInt(body.usage.prompt_tokens) * 125n + 5n) / 10n;
    assert.equal(before.usdNano - after.usdNano, nano);
    assert.ok(nano > 0n);
  });

  test('a stream has a role, content, a finish reason, usage with cost, and ends', async () => {
    const stream = await client.chat.completions.create({
      model: 'farebox-demo',
      messages: [{ role: 'user', content: 'Hello' }],
      stream: true,
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    assert.equal(chunks[0]?.choices[0]?.delta.role, 'assistant');
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
    assert.ok(text.length > 0);
    const last = chunks.at(-1);
    assert.deepEqual(last?.choices, []);
    assert.ok((last?.usage?.completion_tokens ?? 0) > 0);
    assert.ok((last as unknown as { cost: { usd: number } }).cost.usd > 0);
  });

  test('the `.stream()` helper collects the final completion', async () => {
    const final = await client.chat.completions
      .stream({ model: 'default', messages: [{ role: 'user', content: 'Hi' }] })
      .finalChatCompletion();
    assert.ok((final.choices[0]?.message.content ?? '').length > 0);
    assert.equal(final.choices[0]?.finish_reason, 'stop');
  });

  test('a tool call and its result complete a turn', async () => {
    const tools = [
      {
        type: 'function' as const,
        function: {
          name: 'get_weather',
          parameters: {
            type: 'object',
            properties: { city: { type: 'string', enum: ['Oslo', 'Rome'] } },
            required: ['city'],
            additionalProperties: false,
          },
        },
      },
    ];
    const first = await client.chat.completions.create({
      model: 'default',
      messages: [{ role: 'user', content: 'Weather in Oslo?' }],
      tools,
      tool_choice: 'required',
    });
    const call = first.choices[0]?.message.tool_calls?.[0];
    assert.ok(call?.type === 'function');
    assert.equal(first.choices[0]?.finish_reason, 'tool_calls');
    assert.match(JSON.parse(call.function.arguments).city, /^(Oslo|Rome)$/);
    const second = await client.chat.completions.create({
      model: 'default',
      messages: [
        { role: 'user', content: 'Weather in Oslo?' },
        first.choices[0].message,
        { role: 'tool', tool_call_id: call.id, content: '{"celsius": 3}' },
      ],
      tools,
      tool_choice: 'none',
    });
    assert.ok((second.choices[0]?.message.content ?? '').length > 0);
  });

  test('`parse()` returns an object that matches the zod schema', async () => {
    const schema = z.object({ name: z.enum(['red', 'green']), count: z.number().int() });
    const answer = await client.chat.completions.parse({
      model: 'default',
      messages: [{ role: 'user', content: 'A colour and a number' }],
      response_format: zodResponseFormat(schema, 'colour'),
    });
    assert.ok(schema.safeParse(answer.choices[0]?.message.parsed).success);
  });

  test('an abort ends the stream, charges the output, and leaves no hold', async () => {
    const stream = await client.chat.completions.create({
      model: 'default',
      messages: [{ role: 'user', content: 'Tell me a lot' }],
      stream: true,
      max_tokens: 400,
    });
    let seen = 0;
    await assert.doesNotReject(async () => {
      for await (const _ of stream) {
        seen += 1;
        if (seen === 3) stream.controller.abort();
      }
    });
    await holdsAreGone(farebox);
    await farebox.audit();
  });

  test('`models.list()` lists the demo model', async () => {
    const models = await client.models.list();
    assert.ok(models.data.some((model) => model.id === 'farebox-demo'));
  });

  test('a wrong key is an AuthenticationError, an unknown model a NotFoundError', async () => {
    const wrong = new OpenAI({
      baseURL: farebox.url,
      apiKey: 'SVC_INFERENCE_KEY_nope',
      maxRetries: 0,
    });
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    await assert.rejects(
      wrong.chat.completions.create({ model: 'default', messages }),
      OpenAI.AuthenticationError,
    );
    await assert.rejects(
      client.chat.completions.create({ model: 'farebox-demi', messages }),
      (error) => error instanceof OpenAI.NotFoundError && /farebox-demo/.test(error.message),
    );
  });
});

async function holdsAreGone(farebox: TestApp): Promise<void> {
  await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
}
