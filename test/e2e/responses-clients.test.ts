/**
 * The clients of the Responses protocol, unmodified, against a real server whose engine is scripted:
 * `openai`, the Agents SDK, and two providers of the AI SDK.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { createOpenResponses } from '@ai-sdk/open-responses';
import { createOpenAI } from '@ai-sdk/openai';
import { Agent, OpenAIProvider, Runner, tool as agentTool, webSearchTool } from '@openai/agents';
import { APICallError, generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import * as z from 'zod';
import type { ScriptedResponse } from '../support/test-upstream.ts';
import { type Bench, startWithEngine } from '../app/call.ts';
import { TestWeb } from '../web/test-web.ts';

const AGENT = `  - id: agent
    type: text
    context: 65536
    maxCompletionTokens: 8192
    capabilities: [functionCalling, reasoning, reasoningEffort, vision, responseSchema]
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack1, model: tiny }]`;

const WEATHER = {
  type: 'function' as const,
  name: 'weather',
  description: 'The weather of a city',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
  strict: true,
};
const BERN = { name: 'weather', arguments: '{"city":"Bern"}' };
const ROME = { name: 'weather', arguments: '{"city":"Rome"}' };

describe('clients of the Responses protocol', () => {
  let bench: Bench;
  let web: TestWeb;
  let client: OpenAI;
  let secret: string;

  before(async () => {
    web = await TestWeb.start();
    web.results = [{ title: 'Bern', url: 'https://bern.example/', content: 'The capital' }];
    bench = await startWithEngine({
      model: AGENT,
      yaml: `search: { provider: searxng, url: "${web.url}" }\nfetch: { allow: ["127.0.0.0/8"] }`,
    });
    ({ secret } = await bench.farebox.account('5'));
    client = new OpenAI({ baseURL: bench.farebox.url, apiKey: secret, maxRetries: 0 });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
    await web.stop();
  });
  beforeEach(() => {
    bench.upstream.script.length = 0;
    bench.upstream.seen.length = 0;
  });

  const says = (...answers: readonly Omit<ScriptedResponse, 'kind'>[]) => {
    for (const answer of answers) bench.upstream.script.push({ kind: 'answer', ...answer });
  };
  const asked = () => JSON.parse(bench.upstream.seen.at(-1)?.body ?? '{}');

  describe('openai', () => {
    test('`create()` and its stream', async () => {
      says({ content: 'Hello you' }, { content: 'Hello you' });
      const { data, response } = await client.responses
        .create({ model: 'agent', input: 'Hi' })
        .withResponse();
      assert.equal(data.output_text, 'Hello you');
      assert.equal(response.headers.get('x-svc-model-id'), 'agent');
      const stream = await client.responses.create({ model: 'agent', input: 'Hi', stream: true });
      let text = '';
      let last = '';
      for await (const event of stream) {
        if (event.type === 'response.output_text.delta') text += event.delta;
        last = event.type;
      }
      assert.equal(text, 'Hello you');
      assert.equal(last, 'response.completed');
    });

    test('`.stream()` collects reasoning, text and parallel calls', async () => {
      says({ reasoning: 'hm', content: 'Let me see', toolCalls: [BERN, ROME] });
      const stream = client.responses.stream({ model: 'agent', input: 'Hi', tools: [WEATHER] });
      const pieces: string[] = [];
      stream.on('response.function_call_arguments.delta', ({ delta }) => pieces.push(delta));
      const final = await stream.finalResponse();
      assert.deepEqual(
        final.output.map(({ type }) => type),
        ['reasoning', 'message', 'function_call', 'function_call'],
      );
      assert.equal(pieces.join(''), BERN.arguments + ROME.arguments);
      const calls = final.output.filter((item) => item.type === 'function_call');
      assert.deepEqual(
        calls.map(({ parsed_arguments }) => parsed_arguments),
        [{ city: 'Bern' }, { city: 'Rome' }],
      );
    });

    test('`parse()` returns an object that matches the schema', async () => {
      says({ content: '{"name":"red","count":3}' });
      const schema = z.object({ name: z.enum(['red', 'green']), count: z.number().int() });
      const answer = await client.responses.parse({
        model: 'agent',
        input: 'A colour and a number',
        text: { format: zodTextFormat(schema, 'colour') },
      });
      assert.deepEqual(answer.output_parsed, { name: 'red', count: 3 });
      assert.equal(asked().response_format.json_schema.strict, true);
    });

    test('a tool loop by items, with encrypted reasoning, and nothing stored', async () => {
      says({ reasoning: 'I look', toolCalls: [BERN] }, { content: 'Rain' });
      const settings = {
        model: 'agent',
        tools: [WEATHER],
        store: false,
        include: ['reasoning.encrypted_content' as const],
      };
      const input: OpenAI.Responses.ResponseInput = [{ role: 'user', content: 'Weather?' }];
      const first = await client.responses.create({ ...settings, input });
      for (const item of first.output) {
        input.push(item as OpenAI.Responses.ResponseInputItem); // what came out goes in again
        if (item.type !== 'function_call') continue;
        input.push({ type: 'function_call_output', call_id: item.call_id, output: 'rain' });
      }
      const second = await client.responses.create({ ...settings, input });
      assert.equal(second.output_text, 'Rain');
      const { messages } = asked();
      assert.equal(messages[1].reasoning_content, 'I look');
      assert.deepEqual(messages[2], { role: 'tool', tool_call_id: 'call_0', content: 'rain' });
    });

    test('a tool loop by `previous_response_id`, and the routes of stored responses', async () => {
      says({ toolCalls: [BERN] }, { content: 'Rain' });
      const tools = [WEATHER];
      const first = await client.responses.create({ model: 'agent', input: 'Weather?', tools });
      const [made] = first.output;
      assert.ok(made?.type === 'function_call');
      const second = await client.responses.create({
        model: 'agent',
        tools,
        previous_response_id: first.id,
        input: [{ type: 'function_call_output', call_id: made.call_id, output: 'rain' }],
      });
      assert.equal(second.output_text, 'Rain');
      assert.equal(asked().messages.length, 3);
      const kept = await client.responses.retrieve(second.id);
      assert.equal(kept.output_text, 'Rain');
      const items = await client.responses.inputItems.list(first.id);
      assert.equal(items.data[0]?.type, 'message');
      await client.responses.delete(first.id);
      await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
      const count = await client.responses.inputTokens.count({ model: 'agent', input: 'Hi' });
      assert.ok(count.input_tokens > 0);
    });

    test('a failed stream ends with an error event, and an error has its code', async () => {
      bench.upstream.script.push({ kind: 'stream', chunks: 4, cutAfter: 3 });
      const stream = client.responses.stream({ model: 'agent', input: 'Hi' });
      const seen: string[] = [];
      for await (const event of stream) seen.push(event.type);
      assert.equal(seen.at(-1), 'response.failed');
      await assert.rejects(client.responses.create({ model: 'nobody', input: 'Hi' }), {
        status: 404,
        code: 'model_not_found',
      });
    });
  });

  describe('Agents SDK', () => {
    const runner = () =>
      new Runner({
        modelProvider: new OpenAIProvider({ openAIClient: client, useResponses: true }),
        tracingDisabled: true,
      });
    const weather = agentTool({
      name: 'weather',
      description: 'The weather of a city',
      parameters: z.object({ city: z.string() }),
      execute: async ({ city }) => `rain in ${city}`,
    });

    test('runs parallel tools, whole and streamed', async () => {
      const agent = new Agent({
        name: 'a',
        instructions: 'Help',
        model: 'agent',
        tools: [weather],
      });
      says({ reasoning: 'hm', toolCalls: [BERN, ROME] }, { content: 'Rain everywhere' });
      const whole = await runner().run(agent, 'Weather?');
      assert.equal(whole.finalOutput, 'Rain everywhere');
      assert.deepEqual(
        asked()
          .messages.slice(3)
          .map(({ content }: { content: string }) => content),
        ['rain in Bern', 'rain in Rome'],
      );
      says({ toolCalls: [BERN, ROME] }, { content: 'Rain everywhere' });
      const streamed = await runner().run(agent, 'Weather?', { stream: true });
      let text = '';
      for await (const piece of streamed.toTextStream()) text += piece;
      await streamed.completed;
      assert.equal(text, 'Rain everywhere');
    });

    test('gets a typed output', async () => {
      says({ content: '{"city":"Bern"}' });
      const outputType = z.object({ city: z.string() });
      const agent = new Agent({ name: 'a', model: 'agent', outputType });
      const { finalOutput } = await runner().run(agent, 'Which city?');
      assert.deepEqual(finalOutput, { city: 'Bern' });
    });

    test('searches the web with the hosted tool', async () => {
      const search = { name: 'web_search', arguments: '{"query":"capital"}' };
      says({ toolCalls: [search] }, { content: 'Bern[REF]0[/REF]' });
      const agent = new Agent({ name: 'a', model: 'agent', tools: [webSearchTool()] });
      const { finalOutput } = await runner().run(agent, 'Capital?');
      assert.equal(finalOutput, 'Bern[1]');
      assert.equal(web.queries.at(-1), 'capital');
    });
  });

  const providers = {
    '@ai-sdk/openai': () =>
      createOpenAI({ baseURL: bench.farebox.url, apiKey: secret }).responses('agent'),
    '@ai-sdk/open-responses': () =>
      createOpenResponses({
        name: 'farebox',
        url: `${bench.farebox.url}/responses`,
        apiKey: secret,
      })('agent'),
  };
  for (const [name, model] of Object.entries(providers)) {
    describe(name, () => {
      const weather = tool({
        description: 'The weather of a city',
        inputSchema: jsonSchema<{ city: string }>(WEATHER.parameters as never), // of a literal
        execute: async ({ city }) => `rain in ${city}`,
      });

      test('runs a tool loop, whole', async () => {
        says({ reasoning: 'hm', toolCalls: [BERN, ROME] }, { content: 'Rain' });
        const result = await generateText({
          model: model(),
          prompt: 'Weather?',
          tools: { weather },
          stopWhen: isStepCount(3),
        });
        assert.equal(result.text, 'Rain');
        assert.equal(result.steps.length, 2);
        const { messages } = asked();
        assert.deepEqual(
          messages.slice(-2).map(({ role }: { role: string }) => role),
          ['tool', 'tool'],
        );
      });

      test('streams reasoning, text and usage', async () => {
        says({ reasoning: 'hm', content: 'Hello you', promptTokens: 30, completionTokens: 4 });
        const result = streamText({ model: model(), prompt: 'Hi' });
        assert.equal(await result.text, 'Hello you');
        const { inputTokens, outputTokens } = await result.usage;
        assert.deepEqual([inputTokens, outputTokens], [30, 4]);
        assert.equal(await result.finishReason, 'stop');
      });

      test('gets an object', async () => {
        says({ content: '{"city":"Bern"}' });
        const schema = z.object({ city: z.string() });
        const { output } = await generateText({
          model: model(),
          prompt: 'Which?',
          output: Output.object({ schema }),
        });
        assert.deepEqual(output, { city: 'Bern' });
      });

      test('receives our error message once', async () => {
        const { id } = await bench.farebox.app.stores.identity.createAccount('poor', 'paid');
        const poor = await bench.farebox.key({ accountId: id });
        const known = secret;
        secret = poor;
        try {
          await assert.rejects(generateText({ model: model(), prompt: 'Hi' }), (error) => {
            assert.ok(APICallError.isInstance(error));
            assert.equal(error.statusCode, 402);
            assert.match(error.message, /balance is too low/);
            return true;
          });
        } finally {
          secret = known;
        }
      });
    });
  }

  test('@ai-sdk/openai shows reasoning, and names it by its id in the next turn', async () => {
    const model = createOpenAI({ baseURL: bench.farebox.url, apiKey: secret }).responses('agent');
    says({ reasoning: 'I think', content: 'Hello' }, { content: 'Bye' });
    const first = await generateText({ model, prompt: 'Hi' });
    assert.equal(first.reasoningText, 'I think');
    const messages = [
      { role: 'user' as const, content: 'Hi' },
      ...first.response.messages,
      { role: 'user' as const, content: 'And?' },
    ];
    const second = await generateText({ model, messages });
    assert.equal(second.text, 'Bye');
    assert.equal(asked().messages[1].content, 'Hello');
  });
});
