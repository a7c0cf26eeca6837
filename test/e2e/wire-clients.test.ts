/**
 * The unmodified clients against the wire alone: their own bodies through the parser, our bytes
 * through their decoders. A function stands in for the network.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { AIMessage, HumanMessage, SystemMessage } from '@langchain/core/messages';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { embed, generateText, jsonSchema, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import * as z from 'zod';
import { parseChatRequest, type ChatRequest } from '../../src/chat/wire/chat-request.ts';
import { readChatResponse, writeChatResponse } from '../../src/chat/wire/chat-response.ts';
import { ChatStream } from '../../src/chat/wire/chat-stream.ts';
import { Frame } from '../../src/http/stream-writer.ts';
import { parseEmbeddingsRequest } from '../../src/embeddings/embeddings-request.ts';
import {
  embeddingsEnd,
  readEmbeddings,
  vectorPieces,
} from '../../src/embeddings/embeddings-response.ts';
import { floatsToBase64 } from '../../src/core/vectors.ts';

const USAGE = {
  promptTokens: 9,
  completionTokens: 4,
  cachedTokens: 3,
  cacheWriteTokens: 0,
  reasoningTokens: 1,
};
const COST = { usd: 0.0001, diem: 0 };
const ID = `chatcmpl-${'0'.repeat(32)}`;
const KEEP = {
  stripThinkTags: false,
  dropReasoning: false,
  choiceCount: 4,
  maxOutputTokens: 1_000,
};
const BASE = 'http://127.0.0.1/api/v1';

type Reply = (request: ChatRequest) => { readonly content: string | null; readonly call?: string };

interface Net {
  readonly fetch: typeof fetch;
  readonly requests: ChatRequest[];
}

function net(reply: Reply): Net {
  const requests: ChatRequest[] = [];
  const answer = async (_url: unknown, init?: { body?: unknown }): Promise<Response> => {
    const bytes = Buffer.from(String(init?.body));
    const request = parseChatRequest(bytes, { serviceName: 'svc' });
    requests.push(request);
    const isStream = request.stream;
    const body = isStream ? streamed(request, reply(request)) : whole(request, reply(request));
    const type = isStream ? 'text/event-stream' : 'application/json';
    return new Response(new Uint8Array(body), { headers: { 'content-type': type } });
  };
  return { fetch: answer, requests };
}

function whole(request: ChatRequest, { content, call }: ReturnType<Reply>): Buffer {
  const tool_calls =
    call === undefined
      ? undefined
      : [{ id: 'c1', type: 'function', function: { name: call, arguments: '{"city":"Bern"}' } }];
  const message = { role: 'assistant', content, reasoning: 'hm', tool_calls };
  const upstream = {
    id: 'u',
    object: 'chat.completion',
    created: 1,
    model: 'u',
    choices: [{ index: 0, message, finish_reason: 'stop' }],
  };
  const written = writeChatResponse(
    readChatResponse(Buffer.from(JSON.stringify(upstream)), KEEP),
    { id: ID, model: request.model, createdS: 1, serviceName: 'svc' },
    { usage: USAGE, cost: COST, parameters: request.parameters, citations: [] },
  );
  return typeof written === 'string' ? Buffer.from(written, 'latin1') : written;
}

function streamed(request: ChatRequest, { content, call }: ReturnType<Reply>): Buffer {
  const stream = new ChatStream({
    ...KEEP,
    id: ID,
    model: request.model,
    createdS: 1,
    serviceName: 'svc',
    newCallId: () => 'call_x',
  });
  const deltas: object[] = [{ reasoning: 'hm' }];
  for (const letter of content ?? '') deltas.push({ content: letter });
  if (call !== undefined) {
    deltas.push({ tool_calls: [{ id: 'c1', function: { name: call, arguments: '' } }] });
    for (const letter of '{"city":"Bern"}')
      deltas.push({ tool_calls: [{ index: 0, function: { arguments: letter } }] });
  }
  const chunks = deltas.map((delta) => ({
    id: 'u',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'u',
    choices: [{ index: 0, delta, finish_reason: null }],
  }));
  const end = {
    id: 'u',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'u',
    choices: [{ index: 0, delta: {}, finish_reason: 'stop' }],
  };
  const source = [...chunks, end].map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('');
  const shown = new Frame();
  stream.push(Buffer.from(source), shown);
  const closing = stream.closing({
    usage: USAGE,
    cost: COST,
    parameters: request.parameters,
    citations: [],
  });
  return Buffer.concat([shown.take(), closing]);
}

const WEATHER = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
};

test('openai: create, stream helper, tools round trip and parse', async () => {
  const { fetch, requests } = net((request) => {
    if (request.responseFormat !== undefined) return { content: '{"city":"Bern"}' };
    return request.tools.length > 0 && request.messages.length === 1
      ? { content: null, call: 'weather' }
      : { content: 'Hello' };
  });
  const client = new OpenAI({ apiKey: 'k', baseURL: BASE, fetch, maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: 'Hi' }];
  const plain = await client.chat.completions.create({ model: 'm', messages });
  assert.equal(plain.choices[0]?.message.content, 'Hello');
  assert.equal(plain.usage?.total_tokens, 13);

  const helper = client.chat.completions.stream({
    model: 'm',
    messages,
    stream_options: { include_usage: true },
  });
  const final = await helper.finalChatCompletion();
  assert.equal(final.choices[0]?.message.content, 'Hello');
  assert.equal(final.usage?.prompt_tokens_details?.cached_tokens, 3);
  assert.equal(final.id, ID);

  const seen: string[] = [];
  const runner = client.chat.completions.runTools({
    model: 'm',
    messages,
    stream: true,
    tools: [
      {
        type: 'function',
        function: {
          name: 'weather',
          description: 'w',
          parameters: WEATHER,
          parse: (args: string) => args,
          function: (args: string) => {
            seen.push(args);
            return 'sunny';
          },
        },
      },
    ],
  });
  assert.equal(await runner.finalContent(), 'Hello');
  assert.deepEqual(seen, ['{"city":"Bern"}']);
  assert.deepEqual(
    requests.at(-1)?.messages.map((message) => message.role),
    ['user', 'assistant', 'tool'],
  );

  const parsed = await client.chat.completions.parse({
    model: 'm',
    messages,
    response_format: zodResponseFormat(z.object({ city: z.string() }), 'place'),
  });
  assert.deepEqual(parsed.choices[0]?.message.parsed, { city: 'Bern' });
});

test('ai with openai-compatible: text, stream, reasoning, tools', async () => {
  const { fetch, requests } = net((request) =>
    request.tools.length > 0 && request.messages.length === 1
      ? { content: null, call: 'weather' }
      : { content: 'Hello' },
  );
  const model = createOpenAICompatible({
    name: 'svc',
    baseURL: BASE,
    apiKey: 'k',
    fetch,
    includeUsage: true,
  })('m');
  const text = await generateText({ model, prompt: 'Hi', maxRetries: 0 });
  assert.equal(text.text, 'Hello');
  assert.equal(text.reasoningText, 'hm');
  assert.equal(text.usage.inputTokens, 9);

  const stream = streamText({ model, prompt: 'Hi', maxRetries: 0 });
  assert.equal(await stream.text, 'Hello');
  assert.equal((await stream.usage).outputTokens, 4);

  const weather = tool({
    inputSchema: jsonSchema<{ city: string }>(WEATHER),
    execute: ({ city }) => `${city}: sunny`,
  });
  const first = streamText({ model, prompt: 'Weather?', tools: { weather }, maxRetries: 0 });
  const results = await first.toolResults;
  assert.equal(results[0]?.output, 'Bern: sunny');
  const { messages } = await first.response;
  const second = await generateText({
    model,
    messages: [{ role: 'user', content: 'Weather?' }, ...messages],
    tools: { weather },
    maxRetries: 0,
  });
  assert.equal(second.text, 'Hello');
  const asked = requests.at(-1)?.messages[1];
  assert.equal(
    asked?.role === 'assistant' && asked.tool_calls?.[0]?.function.arguments,
    '{"city":"Bern"}',
  );
});

test('langchain: invoke and stream', async () => {
  const { fetch, requests } = net(() => ({ content: 'Hello' }));
  const model = new ChatOpenAI({
    model: 'm',
    apiKey: 'k',
    maxRetries: 0,
    configuration: { baseURL: BASE, fetch },
  });
  const history = [
    new SystemMessage('s'),
    new HumanMessage('a'),
    new AIMessage('b'),
    new HumanMessage('c'),
  ];
  assert.equal((await model.invoke(history)).content, 'Hello');
  let text = '';
  let tokens: number | undefined;
  for await (const chunk of await model.stream(history)) {
    text += chunk.text;
    // The type of a chunk's metadata depends on a declaration that is not loaded here.
    const usage = chunk.usage_metadata as { total_tokens: number } | undefined;
    tokens = usage?.total_tokens ?? tokens;
  }
  assert.equal(text, 'Hello');
  assert.equal(tokens, 13);
  assert.deepEqual(
    requests[0]?.messages.map((message) => message.role),
    ['system', 'user', 'assistant', 'user'],
  );
});

test('embeddings: openai and langchain decode base64, ai takes floats', async () => {
  const fetchEmbeddings = (async (_url: unknown, init?: { body?: unknown }) => {
    const request = parseEmbeddingsRequest(Buffer.from(String(init?.body)));
    const data = request.inputs.map((_, index) => ({
      object: 'embedding',
      index,
      embedding: floatsToBase64(new Float32Array([index, 0.5])),
    }));
    const bytes = Buffer.from(JSON.stringify({ data }));
    const embeddings = await readEmbeddings(bytes, request.inputs.length);
    const body = Buffer.concat([
      ...vectorPieces(embeddings, request),
      embeddingsEnd({ model: request.model, promptTokens: 2, cost: COST }),
    ]);
    return new Response(new Uint8Array(body), { headers: { 'content-type': 'application/json' } });
  }) as typeof fetch;
  const client = new OpenAI({ apiKey: 'k', baseURL: BASE, fetch: fetchEmbeddings, maxRetries: 0 });
  const made = await client.embeddings.create({ model: 'e', input: ['a', 'b'] });
  assert.deepEqual(
    made.data.map((item) => item.embedding),
    [
      [0, 0.5],
      [1, 0.5],
    ],
  );
  const ids = await client.embeddings.create({
    model: 'e',
    input: [[1, 2], [3]],
    encoding_format: 'float',
  });
  assert.deepEqual(ids.data[1]?.embedding, [1, 0.5]);

  const chain = new OpenAIEmbeddings({
    model: 'e',
    apiKey: 'k',
    maxRetries: 0,
    configuration: { baseURL: BASE, fetch: fetchEmbeddings },
  });
  assert.deepEqual(await chain.embedDocuments(['a', 'b']), [
    [0, 0.5],
    [1, 0.5],
  ]);

  const provider = createOpenAICompatible({
    name: 'svc',
    baseURL: BASE,
    apiKey: 'k',
    fetch: fetchEmbeddings,
  });
  const { embedding } = await embed({
    model: provider.embeddingModel('e'),
    value: 'a',
    maxRetries: 0,
  });
  assert.deepEqual(embedding, [0, 0.5]);
});
