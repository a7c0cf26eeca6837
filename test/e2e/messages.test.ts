/**
 * `POST /messages` through the unmodified Anthropic clients, with scripted completions, compared
 * with the ledger.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { createAnthropic } from '@ai-sdk/anthropic';
import { generateText, Output, streamText, tool } from 'ai';
import fc from 'fast-check';
import * as z from 'zod';
import { usdToNano } from '../../src/core/money.ts';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type Behaviour, type ScriptedResponse, TestUpstream } from '../support/test-upstream.ts';
import { sameMinute } from '../support/still-clock.ts';
import { pngHead } from '../media/png-head.ts';
import { TestWeb } from '../web/test-web.ts';

let upstream: TestUpstream;
let web: TestWeb;
let farebox: TestApp;
let client: Anthropic;

before(async () => {
  upstream = await TestUpstream.start();
  web = await TestWeb.start();
  const can = 'functionCalling, reasoning, reasoningEffort, responseSchema, vision';
  const more = `capabilities: [${can}], replicas: [{ engine: rack }]`;
  farebox = await startTestApp({
    clock: sameMinute(),
    yaml: `
engines: { rack: { url: "${upstream.url}" } }
models:
  - { id: atlas, type: text, context: 32000, maxCompletionTokens: 8000, price: { input: 1, output: 2, cacheInput: 0.5 }, ${more} }
  - { id: dear, type: text, context: 32000, maxCompletionTokens: 8000, price: { input: 100, output: 200 }, ${more} }
  - { id: small, type: text, context: 2000, maxCompletionTokens: 1000, price: { input: 1, output: 2 }, ${more} }
search: { provider: searxng, url: "${web.url}" }
fetch: { allow: ["127.0.0.0/8"] }
`,
  });
  client = clientOf(farebox.owner.secret);
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await upstream.kill();
    await web.stop();
  }
});
beforeEach(() => {
  upstream.seen.length = 0;
  upstream.script.length = 0;
  web.results = [
    { title: 'Tides', url: 'https://example.com/tides', content: 'The moon pulls the sea' },
  ];
});

function clientOf(secret: string, maxRetries = 0): Anthropic {
  const baseURL = farebox.url.replace(/\/v1$/, '');
  return new Anthropic({ baseURL, apiKey: secret, authToken: null, maxRetries });
}

function says(answer: Omit<ScriptedResponse, 'kind'>): void {
  upstream.script.push({ kind: 'answer', ...answer });
}

function asked(at = -1): Record<string, unknown> {
  return JSON.parse(upstream.seen.at(at)?.body ?? '{}');
}

const MESSAGES = [{ role: 'user' as const, content: 'Hello' }];
const HEAD = { model: 'atlas', max_tokens: 2_000, messages: MESSAGES };
const THINKING = { type: 'enabled' as const, budget_tokens: 5_000 };
const WEATHER: Anthropic.Tool = {
  name: 'weather',
  description: 'The weather of a city',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

const balance = async (accountId = farebox.owner.accountId): Promise<bigint> =>
  (await farebox.app.stores.ledger.balances(accountId)).usdNano;

/** Members of a message that the types of the SDK lack. */
interface Charged {
  readonly cost: { readonly usd: number };
  readonly svc_parameters: Record<string, unknown>;
}

describe('@anthropic-ai/sdk', () => {
  test('`create()` returns a message, the balance falls by its cost, and the receipt names the protocol', async () => {
    says({
      content: 'Hi',
      promptTokens: 20,
      completionTokens: 3,
      extraUsage: { prompt_tokens_details: { cached_tokens: 8 } },
    });
    const before = await balance();
    const { data, response } = await client.messages
      .create(
        { ...HEAD, system: 'Be brief', metadata: { user_id: 'anna' } },
        { headers: { 'x-claude-code-session-id': 'session-7' } },
      )
      .withResponse();
    assert.deepEqual(data.content, [{ type: 'text', text: 'Hi' }]);
    assert.equal(data.stop_reason, 'end_turn');
    assert.equal(data.model, 'atlas');
    assert.deepEqual(
      [data.usage.input_tokens, data.usage.cache_read_input_tokens, data.usage.output_tokens],
      [12, 8, 3],
    );
    const paid = before - (await balance());
    assert.equal(paid, 12_000n + 4_000n + 6_000n);
    const { cost, svc_parameters: echo } = data as unknown as Charged;
    assert.equal(cost.usd, Number(paid) / 1e9);
    assert.equal(echo['enable_web_search'], 'off');
    assert.equal(response.headers.get('x-svc-model-id'), 'atlas');
    const requestId = response.headers.get('x-request-id') ?? '';
    assert.equal(data.id, `msg_${requestId}`);
    assert.equal(response.headers.get('request-id'), requestId);
    const receipt = await receiptOf(farebox.app.stores.store, farebox.owner.accountId, requestId);
    assert.deepEqual(JSON.parse(String(receipt?.metadata)), {
      user_id: 'anna',
      protocol: 'messages',
      prompt_cache_key: 'session-7',
    });
    const headers = { authorization: `Bearer ${farebox.owner.secret}` };
    const usage = await fetch(`${farebox.url}/usage?tag=prompt_cache_key&tagValue=session-7`, {
      headers,
    });
    const { totals } = (await usage.json()) as { totals: { requests: number } };
    assert.equal(totals.requests, 1);
    assert.deepEqual(asked()['messages'], [{ role: 'system', content: 'Be brief' }, ...MESSAGES]);
  });

  test('the events of a stream fold to the message of the non-streaming response', async () => {
    const answer = {
      reasoning: 'Let me "think"\n',
      content: 'I look: “ünïcode” \u{1F600}',
      toolCalls: [
        { name: 'weather', arguments: '{"city":"Oslo"}' },
        { name: 'weather', arguments: '{"city":"Ro\\nme"}' },
      ],
      promptTokens: 30,
      completionTokens: 40,
    };
    const request = { ...HEAD, thinking: THINKING, tools: [WEATHER] };
    says(answer);
    const whole = await client.messages.create(request);
    says(answer);
    const stream = client.messages.stream(request);
    const types: string[] = [];
    stream.on('streamEvent', (event) => types.push(event.type));
    const folded = await stream.finalMessage();
    assert.equal(types[0], 'message_start');
    assert.equal(types.at(-1), 'message_stop');
    assert.equal(await stream.finalText(), answer.content);
    assert.deepEqual(plain(folded), plain(whole));
    assert.equal(whole.stop_reason, 'tool_use');
    assert.deepEqual(
      whole.content.map((block) => block.type),
      ['thinking', 'text', 'tool_use', 'tool_use'],
    );
    const [thought] = whole.content;
    assert.ok(thought?.type === 'thinking' && thought.thinking === answer.reasoning);
    assert.match(thought.signature, /^fbx1\./);
  });

  test('reasoning is restored from its signature, only for the account that received it', async () => {
    says({
      reasoning: 'A secret plan',
      toolCalls: [{ name: 'weather', arguments: '{"city":"Oslo"}' }],
    });
    const thinking = { type: 'adaptive' as const, display: 'omitted' as const };
    const request = { ...HEAD, thinking, tools: [WEATHER] };
    const stream = client.messages.stream(request);
    const deltas: string[] = [];
    stream.on('streamEvent', (event) => {
      if (event.type === 'content_block_delta') deltas.push(event.delta.type);
    });
    const first = await stream.finalMessage();
    assert.deepEqual(deltas.slice(0, 1), ['signature_delta']);
    const [thought, call] = first.content;
    assert.ok(thought?.type === 'thinking' && call?.type === 'tool_use');
    assert.equal(thought.thinking, '');
    const result = { type: 'tool_result' as const, tool_use_id: call.id, content: '3 °C' };
    const next = {
      ...request,
      messages: [
        ...MESSAGES,
        { role: 'assistant' as const, content: first.content },
        { role: 'user' as const, content: [result] },
      ],
    };
    const reasoning = (): unknown =>
      (asked()['messages'] as { reasoning_content?: string }[])[1]?.reasoning_content;
    says({ content: 'Cold' });
    await client.messages.create(next);
    assert.equal(reasoning(), 'A secret plan');
    const other = await farebox.account('1');
    says({ content: 'Cold' });
    await clientOf(other.secret).messages.create(next);
    assert.equal(reasoning(), undefined);
  });

  test('a request without thinking gets none, and none is sold under another name', async () => {
    says({ reasoning: 'hm', content: 'Hi' });
    const { content } = await client.messages.create(HEAD);
    assert.deepEqual(content, [{ type: 'text', text: 'Hi' }]);
    assert.deepEqual(asked()['chat_template_kwargs'], { enable_thinking: false });
    says({ content: 'Hi' });
    await client.messages.create({ ...HEAD, thinking: THINKING });
    assert.equal(asked()['reasoning_effort'], 'medium');
  });

  test('`toolRunner()` runs parallel calls without a container', async () => {
    const calls = [
      { name: 'weather', arguments: '{"city":"Oslo"}' },
      { name: 'weather', arguments: '{"city":"Rome"}' },
    ];
    says({ toolCalls: calls });
    says({ content: 'Oslo is colder' });
    const ran: string[] = [];
    const weather = betaZodTool({
      name: 'weather',
      description: 'The weather of a city',
      inputSchema: z.object({ city: z.string() }),
      run: ({ city }) => {
        ran.push(city);
        return `${city}: 3 °C`;
      },
    });
    const final = await client.beta.messages.toolRunner({ ...HEAD, tools: [weather] });
    assert.deepEqual(ran.toSorted(), ['Oslo', 'Rome']);
    assert.deepEqual(
      final.content.map((block) => block.type === 'text' && block.text),
      ['Oslo is colder'],
    );
    const history = asked()['messages'] as { role: string; content: string }[];
    assert.deepEqual(
      history.map(({ role }) => role),
      ['user', 'assistant', 'tool', 'tool'],
    );
    assert.equal(history.at(-1)?.content, 'Rome: 3 °C');
    assert.equal(upstream.seen.length, 2);
  });

  test('`parse()` returns an object that matches the schema', async () => {
    says({ content: '{"name":"red","count":2}' });
    const schema = z.object({ name: z.string(), count: z.number() });
    const answer = await client.messages.parse({
      ...HEAD,
      output_config: { format: zodOutputFormat(schema) },
    });
    assert.deepEqual(answer.parsed_output, { name: 'red', count: 2 });
    const format = asked()['response_format'] as { type: string };
    assert.equal(format.type, 'json_schema');
  });

  test('a stop sequence, a truncation and the end have different stop reasons', async () => {
    const ends: readonly (readonly [object, string, string | null])[] = [
      [{ finish_reason: 'stop', stop_reason: 'END' }, 'stop_sequence', 'END'],
      [{ finish_reason: 'stop', stop_reason: 'other' }, 'end_turn', null],
      [{ finish_reason: 'length' }, 'max_tokens', null],
      [{ finish_reason: 'content_filter' }, 'refusal', null],
    ];
    for (const [end, reason, sequence] of ends) {
      upstream.script.push(choiceOf({ message: { role: 'assistant', content: 'x' }, ...end }));
      const message = await client.messages.create({ ...HEAD, stop_sequences: ['END'] });
      assert.deepEqual([message.stop_reason, message.stop_sequence], [reason, sequence]);
    }
  });

  test('`countTokens()` is free, and close to the estimate of the hold', async () => {
    const before = await balance();
    const { input_tokens } = await client.messages.countTokens({
      model: 'atlas',
      system: 'x'.repeat(400),
      messages: MESSAGES,
      tools: [WEATHER],
    });
    assert.ok(input_tokens > 100 && input_tokens < 250, String(input_tokens));
    assert.equal(await balance(), before);
    await assert.rejects(
      client.messages.countTokens({ model: 'atlsa', messages: MESSAGES }),
      Anthropic.NotFoundError,
    );
    assert.equal(upstream.seen.length, 0);
  });

  test('`max_tokens` is clamped to the model, not refused', async () => {
    says({ content: 'Hi' });
    await client.messages.create(
      { ...HEAD, max_tokens: 128_000, stream: false },
      { timeout: 60_000 },
    );
    assert.equal(asked()['max_tokens'], 8_000);
  });

  test('`max_tokens` is clamped to the rest of the context, not refused', async () => {
    says({ content: 'Hi' });
    // At most 26,000 of 32,000 tokens, as a third of its bytes, and the template.
    const long = { role: 'user' as const, content: 'word '.repeat(15_600) };
    await client.messages.create({ ...HEAD, max_tokens: 8_000, messages: [long] });
    const granted = Number(asked()['max_tokens']);
    assert.ok(granted > 5_000 && granted < 6_000, String(granted));
  });

  test('an image and a text document reach the engine', async () => {
    says({ content: 'A dot' });
    const data = pngHead(64, 64).toString('base64');
    const content: Anthropic.ContentBlockParam[] = [
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data } },
      { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Notes' } },
      { type: 'text', text: 'What is it?' },
    ];
    await client.messages.create({ ...HEAD, messages: [{ role: 'user', content }] });
    assert.match(JSON.stringify(asked()['messages']), /data:image\/png;base64,iVBOR.*Notes.*What/);
  });
});

describe('the hosted web search', () => {
  const search = { type: 'web_search_20250305' as const, name: 'web_search' as const, max_uses: 3 };

  test('is the search of this server, shown and cited, and charged', async () => {
    const script = (): void => {
      says({
        content: 'Let me see.',
        toolCalls: [{ name: 'web_search', arguments: '{"query":"tide"}' }],
      });
      says({ content: 'The moon pulls.[REF]0[/REF] So.' });
    };
    script();
    const request = { ...HEAD, max_tokens: 500, tools: [search] };
    const before = await balance();
    const whole = await client.messages.create(request);
    assert.ok(before - (await balance()) > 0n);
    assert.deepEqual(
      whole.content.map((block) => block.type),
      ['text', 'server_tool_use', 'web_search_tool_result', 'text'],
    );
    const [, use, found, text] = whole.content;
    assert.ok(use?.type === 'server_tool_use');
    assert.deepEqual(use.input, { query: 'tide' });
    assert.ok(found?.type === 'web_search_tool_result' && Array.isArray(found.content));
    assert.equal(found.tool_use_id, use.id);
    assert.equal(found.content[0]?.url, 'https://example.com/tides');
    assert.ok(text?.type === 'text');
    assert.equal(text.text, 'The moon pulls. So.');
    const [citation] = text.citations ?? [];
    assert.equal(citation?.type, 'web_search_result_location');
    assert.equal(citation?.cited_text, 'The moon pulls the sea');
    assert.equal(whole.usage.server_tool_use?.web_search_requests, 1);
    script();
    // The results of this message are stored, so nothing is searched or charged again.
    const folded = await client.messages.stream(request).finalMessage();
    assert.deepEqual(plain(folded), plain(whole));
  });

  test('runs immediately if it is required, as by an agent that requests only a search', async () => {
    says({ content: 'Found.' });
    const message = await client.messages.create({
      ...HEAD,
      messages: [{ role: 'user', content: 'Search for: high tide' }],
      tools: [search],
      tool_choice: { type: 'tool', name: 'web_search' },
    });
    assert.deepEqual(
      message.content.map((block) => block.type),
      ['server_tool_use', 'web_search_tool_result', 'text'],
    );
    assert.equal(asked()['tools'], undefined);
  });
});

describe('@ai-sdk/anthropic', () => {
  const model = () =>
    createAnthropic({ baseURL: farebox.url, apiKey: farebox.owner.secret })('atlas');
  const maxOutputTokens = 2_000;

  test('generates and streams text with reasoning, and runs a tool', async () => {
    says({ reasoning: 'hm', toolCalls: [{ name: 'weather', arguments: '{"city":"Oslo"}' }] });
    says({ reasoning: 'so', content: 'Cold' });
    const weather = tool({
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => `${city}: 3 °C`,
    });
    const providerOptions = {
      anthropic: { thinking: { type: 'enabled', budgetTokens: 5_000 } },
    } as const;
    const result = await generateText({
      model: model(),
      maxOutputTokens,
      prompt: 'Weather in Oslo?',
      tools: { weather },
      stopWhen: ({ steps }) => steps.length === 2,
      providerOptions,
    });
    assert.equal(result.text, 'Cold');
    assert.equal(result.steps[0]?.reasoningText, 'hm');
    assert.match(JSON.stringify(asked()['messages']), /"reasoning_content":"hm".*3 °C/);
    says({ reasoning: 'again', content: 'Hello there' });
    const streamed = streamText({ model: model(), maxOutputTokens, prompt: 'Hi', providerOptions });
    let text = '';
    for await (const piece of streamed.textStream) text += piece;
    assert.equal(text, 'Hello there');
    assert.equal(await streamed.reasoningText, 'again');
    assert.equal(await streamed.finishReason, 'stop');
    assert.ok(((await streamed.usage).outputTokens ?? 0) > 0);
  });

  test('generates an object by a required tool', async () => {
    upstream.otherwise = {
      kind: 'own',
      answer: (response, body) => {
        const request = JSON.parse(body) as { tools?: unknown[] };
        const text = '{"name":"red"}';
        const call = { id: 'c', type: 'function', function: { name: 'json', arguments: text } };
        const message =
          request.tools === undefined
            ? { role: 'assistant', content: text }
            : { role: 'assistant', content: null, tool_calls: [call] };
        answerWith(response, { message, finish_reason: 'stop' });
      },
    };
    const { output } = await generateText({
      model: model(),
      maxOutputTokens,
      prompt: 'A colour',
      output: Output.object({ schema: z.object({ name: z.string() }) }),
    });
    upstream.otherwise = { kind: 'json', usage: true };
    assert.deepEqual(output, { name: 'red' });
  });

  test('shows the message of an error response', async () => {
    const poor = await farebox.account('0.000001');
    const broke = createAnthropic({ baseURL: farebox.url, apiKey: poor.secret })('atlas');
    await assert.rejects(
      generateText({ model: broke, maxOutputTokens, prompt: 'Hi', maxRetries: 0 }),
      /Your credit balance is too low/,
    );
  });
});

describe('an error response', () => {
  async function refused(
    request: Anthropic.MessageCreateParams,
    secret = farebox.owner.secret,
  ): Promise<{
    status: number;
    type: string;
    message: string;
    retry: string | null;
    after: string | null;
  }> {
    try {
      await clientOf(secret).messages.create({ ...request, stream: false }, { timeout: 60_000 });
    } catch (error) {
      assert.ok(error instanceof Anthropic.APIError);
      const body = error.error as { error: { type: string; message: string }; request_id: string };
      assert.match(body.request_id, /^[0-9a-f]{32}$/);
      const { type, message } = body.error;
      const retry = error.headers?.get('x-should-retry') ?? null;
      const after = error.headers?.get('retry-after') ?? null;
      return { status: Number(error.status), type, message, retry, after };
    }
    throw new Error('Nothing was refused');
  }

  test('has the type, the message and the headers that its client expects', async () => {
    const wrong = await refused({ ...HEAD, messages: [] });
    assert.deepEqual(
      [wrong.status, wrong.type, wrong.retry],
      [400, 'invalid_request_error', 'false'],
    );
    const key = await refused(HEAD, 'SVC_INFERENCE_KEY_none');
    assert.deepEqual([key.status, key.type, key.retry], [401, 'authentication_error', 'false']);
    const model = await refused({ ...HEAD, model: 'atlsa' });
    assert.deepEqual([model.status, model.type, model.retry], [404, 'not_found_error', 'false']);
    const limited = await farebox.key({ models: ['small'] });
    const foreign = await refused(HEAD, limited);
    assert.deepEqual([foreign.status, foreign.type], [403, 'permission_error']);
    const capped = await farebox.key({ usdLimitNano: usdToNano('0') });
    const spent = await refused(HEAD, capped);
    assert.deepEqual([spent.status, spent.type, spent.retry], [402, 'billing_error', 'false']);
    assert.match(
      spent.message,
      /^Your credit balance is too low\. The spend limit of this API key/,
    );
    const slow = await farebox.key({ limits: { requestsPerMinute: 1 } });
    says({ content: 'Hi' });
    await clientOf(slow).messages.create(HEAD);
    const rate = await refused(HEAD, slow);
    assert.deepEqual([rate.status, rate.type, rate.retry], [429, 'rate_limit_error', null]);
    assert.ok(Number(rate.after) > 0);
  });

  test('about a balance for less than 1,024 tokens is a payment error, not a truncated completion', async () => {
    const dear = { ...HEAD, model: 'dear', max_tokens: 8_000 };
    const poor = await farebox.account('0.2');
    const short = await refused(dear, poor.secret);
    assert.deepEqual([short.status, short.type], [402, 'billing_error']);
    says({ content: 'Hi' });
    await clientOf(poor.secret).messages.create({ ...dear, max_tokens: 100 });
    assert.equal(asked()['max_tokens'], 100);
    const rich = await farebox.account('1');
    says({ content: 'Hi' });
    await clientOf(rich.secret).messages.create(dear);
    const granted = Number(asked()['max_tokens']);
    assert.ok(granted >= 1_024 && granted < 8_000, String(granted));
  });

  test('about a prompt that is too long has the token counts that agents need to compact', async () => {
    const long = { role: 'user' as const, content: 'word '.repeat(20_000) };
    const ours = await refused({ ...HEAD, model: 'small', messages: [long] });
    assert.equal(ours.status, 400);
    assert.match(ours.message, /^prompt is too long: 2\d{4} tokens > 2000 maximum$/);
    upstream.script.push({
      kind: 'status',
      status: 400,
      body: '{"error":{"message":"This model\'s maximum context length is 2000 tokens","code":"context_length_exceeded"}}',
    });
    const engines = await refused({ ...HEAD, model: 'small' });
    assert.equal(engines.message, 'prompt is too long: 2001 tokens > 2000 maximum');
  });

  test('about a failed engine has a long `Retry-After`', async () => {
    upstream.otherwise = { kind: 'status', status: 500 };
    const before = await balance();
    const failed = await refused(HEAD);
    upstream.otherwise = { kind: 'json', usage: true };
    assert.ok(failed.status >= 500);
    assert.deepEqual([failed.type, failed.retry], ['api_error', 'false']);
    assert.equal(await balance(), before);
  });

  test('contains the payment options if the request has no key', async () => {
    const answer = await fetch(`${farebox.url}/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(HEAD),
    });
    assert.equal(answer.status, 402);
    const body = (await answer.json()) as Record<string, unknown>;
    assert.equal(body['type'], 'error');
    assert.ok(Array.isArray(body['accepts']));
    assert.doesNotMatch(JSON.stringify(body['error']), /Your credit balance/);
  });

  test('is an event after the stream has started; the sent text is charged', async () => {
    const before = await balance();
    upstream.script.push({ kind: 'stream', chunks: 20, cutAfter: 8 });
    const stream = client.messages.stream(HEAD);
    let text = '';
    stream.on('text', (piece) => (text += piece));
    await assert.rejects(stream.finalMessage(), (error) => {
      assert.ok(error instanceof Anthropic.APIError);
      const { error: inner, cost } = error.error as { error: { type: string } } & Charged;
      assert.equal(inner.type, 'api_error');
      assert.ok(cost.usd > 0);
      return true;
    });
    assert.match(text, /w0 w1/);
    assert.ok((await balance()) < before);
  });
});

/** Model output in the usual order, and optional usage of the engine. */
const ANSWER = fc.record(
  {
    reasoning: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 300 }),
    content: fc.string({ unit: 'grapheme', minLength: 1, maxLength: 300 }),
    toolCalls: fc.array(
      fc.record({
        name: fc.constantFrom('weather', 'other'),
        arguments: fc
          .dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 1 }))
          .map((input) => JSON.stringify(input)),
      }),
      { maxLength: 3 },
    ),
    promptTokens: fc.constantFrom(0, 12, 900, 40_000, 2 ** 40),
    completionTokens: fc.constantFrom(0, 7, 2_000, 90_000, 2 ** 40),
    usage: fc.boolean(),
  },
  { requiredKeys: ['promptTokens', 'completionTokens'] },
);

test('with any engine output, the balance is not negative and both response forms are equal', async () => {
  await fc.assert(
    fc.asyncProperty(
      ANSWER,
      fc.constantFrom('0.31', '0.4', '3'),
      fc.constantFrom('enabled' as const, 'disabled' as const),
      async (answer, usd, type) => {
        const thinking = type === 'enabled' ? THINKING : { type };
        const request = { ...HEAD, model: 'dear', thinking, tools: [WEATHER] };
        const forms: unknown[] = [];
        for (const isStream of [false, true]) {
          const { accountId, secret } = await farebox.account(usd);
          says(answer);
          const { messages } = clientOf(secret);
          const message = isStream
            ? await messages.stream(request).finalMessage()
            : await messages.create(request);
          forms.push(plain(message));
          const left = await balance(accountId);
          assert.ok(left >= 0n, `${left} is left of ${usd}`);
          const { cost } = message as unknown as Charged;
          if (!isStream) assert.equal(BigInt(Math.round(cost.usd * 1e9)), usdToNano(usd) - left);
        }
        assert.deepEqual(forms[1], forms[0]);
      },
    ),
    { numRuns: 15 },
  );
  await farebox.audit();
});

test('a body of megabytes is parsed in a worker thread', async () => {
  const content = 'word '.repeat(300_000);
  const messages = [{ role: 'user' as const, content }];
  await assert.rejects(client.messages.create({ ...HEAD, messages }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.match(error.message, /prompt is too long: 3\d{5} tokens > 32000 maximum/);
    return true;
  });
  const { input_tokens } = await client.messages.countTokens({ model: 'atlas', messages });
  assert.ok(input_tokens > 300_000);
});

/** A message without what differs from request to request. */
function plain(message: unknown): unknown {
  const text = JSON.stringify(message, (key, value: unknown) =>
    [
      'id',
      'tool_use_id',
      'signature',
      'cost',
      'svc_parameters',
      '_request_id',
      'stop_details',
      'parsed_output',
    ].includes(key)
      ? undefined
      : value,
  );
  return JSON.parse(text);
}

function choiceOf(choice: object): Behaviour {
  return { kind: 'own', answer: (response) => answerWith(response, choice) };
}

function answerWith(
  response: { end: (text: string) => unknown; setHeader: (name: string, value: string) => unknown },
  choice: object,
): void {
  response.setHeader('content-type', 'application/json');
  const usage = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 };
  const head = { id: 'x', object: 'chat.completion', created: 1, model: 'x' };
  response.end(JSON.stringify({ ...head, choices: [{ index: 0, ...choice }], usage }));
}
