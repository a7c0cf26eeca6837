/**
 * CPU time of wire formats, without sockets and engines. Each line is a median in microseconds per
 * operation. The baselines parse and stringify JSON.
 *
 * Run: node bench/chat-wire.ts
 */
import { ResponseBlocks } from '../src/chat/agents/response-blocks.ts';
import { MessageWriter } from '../src/chat/messages/message-writer.ts';
import { ResponsesBody } from '../src/chat/responses/request-schema.ts';
import { ResponseWriter } from '../src/chat/responses/response-writer.ts';
import { planTools } from '../src/chat/responses/tools.ts';
import { parseChatRequest } from '../src/chat/wire/chat-request.ts';
import { readChatResponse, writeChatResponse } from '../src/chat/wire/chat-response.ts';
import { ChatStream } from '../src/chat/wire/chat-stream.ts';
import { Frame } from '../src/http/stream-writer.ts';
import { localDialect } from '../src/chat/wire/engine-dialect.ts';
import { engineRequest } from '../src/chat/wire/engine-request.ts';
import {
  embeddingsEnd,
  type EmbeddingsEnd,
  type EngineEmbeddings,
  readEmbeddings,
  type VectorFormat,
  vectorPieces,
} from '../src/embeddings/embeddings-response.ts';
import { SVC_PARAMETER_DEFAULTS } from '../src/chat/wire/svc-parameters.ts';
import { median } from './harness.ts';

const ROUNDS = 15;
const ROUND_MS = 20;
/** Enough rounds for the optimizing compiler, also on a busy machine. */
const WARM_MS = 500;

function measure(name: string, work: () => void, perCall = 1): void {
  for (let warm = performance.now(); performance.now() - warm < WARM_MS;) work();
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const start = performance.now();
    const before = process.cpuUsage();
    let calls = 0;
    while (performance.now() - start < ROUND_MS) {
      for (let at = 0; at < 8; at += 1) work();
      calls += 8;
    }
    const { user, system } = process.cpuUsage(before);
    rounds.push((user + system) / calls / perCall);
  }
  console.log(`${name.padEnd(58)} ${median(rounds).toFixed(2).padStart(10)} µs`);
}

const PROSE =
  'The quick brown fox jumps over the "lazy" dog.\nAnd then some more text follows it. ';

function chatBody(sizeBytes: number, messages: number): Buffer {
  const each = PROSE.repeat(Math.ceil(sizeBytes / messages / PROSE.length));
  const list = Array.from({ length: messages }, (_, at) => ({
    role: at % 2 === 0 ? 'user' : 'assistant',
    content: each,
  }));
  return Buffer.from(
    JSON.stringify({
      model: 'atlas-24b',
      messages: list,
      temperature: 0.7,
      max_tokens: 256,
      stream: true,
    }),
  );
}

const ABILITIES = { capabilities: new Set<never>() };
const TARGET = {
  model: 'mistral-small',
  dialect: localDialect('llama.cpp'),
  abilities: ABILITIES,
  maxOutputTokens: 256,
};
const OPTIONS = { serviceName: 'svc' };

for (const [label, body] of [
  ['1 KB, 3 messages', chatBody(900, 3)],
  ['100 KB, 1 message', chatBody(100_000, 1)],
  ['100 KB, 101 messages', chatBody(100_000, 101)],
  ['1 MB, 1001 messages', chatBody(1_000_000, 1001)],
] as const) {
  measure(`request ${label}: parse and stringify`, () => {
    Buffer.from(JSON.stringify({ ...JSON.parse(body.toString()), model: 'x' }));
  });
  measure(`request ${label}: JSON.parse alone`, () => void JSON.parse(body.toString()));
  measure(
    `request ${label}: ours (parse, validate, facts)`,
    () => void parseChatRequest(body, OPTIONS),
  );
  const request = parseChatRequest(body, OPTIONS);
  measure(
    `request ${label}: ours, engine body by splice`,
    () => void engineRequest(request, TARGET),
  );
}

const answer = Buffer.from(
  JSON.stringify({
    id: 'u',
    object: 'chat.completion',
    created: 1,
    model: 'u',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: PROSE.repeat(14),
          reasoning_content: null,
          tool_calls: [],
        },
        logprobs: null,
        finish_reason: 'stop',
        stop_reason: null,
      },
    ],
    usage: { prompt_tokens: 5, completion_tokens: 300, total_tokens: 305 },
  }),
);
const usage = {
  promptTokens: 5,
  completionTokens: 300,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
};
const cost = { usd: 0.0001, diem: 0 };
const parameters = SVC_PARAMETER_DEFAULTS;
const keep = {
  stripThinkTags: false,
  dropReasoning: false,
  choiceCount: 1,
  maxOutputTokens: 100_000,
};
measure('response 1.5 KB: parse and stringify', () => {
  Buffer.from(JSON.stringify({ ...JSON.parse(answer.toString()), id: 'x' }));
});
measure('response 1.5 KB: ours', () => {
  writeChatResponse(
    readChatResponse(answer, keep),
    { id: 'chatcmpl-x', model: 'm', createdS: 1, serviceName: 'svc' },
    { usage, cost, parameters, citations: [] },
  );
});

const EVENTS = 512;
const event = (at: number): string =>
  `data: ${JSON.stringify({ id: 'chatcmpl-00000000000000000000000000000000', object: 'chat.completion.chunk', created: 1, model: 'mistral-small', choices: [{ index: 0, delta: { content: ` token${at}` }, logprobs: null, finish_reason: null }] })}\n\n`;
const events = Array.from({ length: EVENTS }, (_, at) => Buffer.from(event(at)));
const bursts: Buffer[] = [];
for (let at = 0; at < EVENTS; at += 16) bursts.push(Buffer.concat(events.slice(at, at + 16)));

/** Parses as the stream writer does, one chunk at a time. */
function pushAll(stream: ChatStream, pieces: readonly Buffer[]): void {
  const shown = new Frame();
  for (const piece of pieces) {
    stream.push(piece, shown);
    if (!shown.isEmpty) shown.takeChunk(false);
  }
}

function streamOptions(stripThinkTags: boolean): ConstructorParameters<typeof ChatStream>[0] {
  return {
    ...keep,
    stripThinkTags,
    id: 'chatcmpl-11111111111111111111111111111111',
    model: 'atlas-24b',
    createdS: 1,
    serviceName: 'svc',
    newCallId: () => 'call',
  };
}

function messageBlocks(): ResponseBlocks {
  const frame = { ...streamOptions(false), requestId: '1'.repeat(32), promptTokens: 10 };
  const writer = new MessageWriter(frame, {
    thinking: 'hidden',
    stopSequences: [],
    toolNames: new Map(),
    seal: (text) => text,
    contextTokens: 0,
  });
  const newCallId = (): string => 'toolu_1';
  return new ResponseBlocks({ writer, sources: undefined, takenCallIds: new Set(), newCallId });
}

function responseBlocks(): ResponseBlocks {
  const frame = { ...streamOptions(false), requestId: '1'.repeat(32), promptTokens: 10 };
  const body = ResponsesBody.parse({ model: 'atlas-24b', input: 'Hello' });
  const request = parseChatRequest(chatBody(900, 3), OPTIONS);
  const turn = { body, request, tools: planTools(body), items: [], callIds: new Set<string>() };
  const nowS = (): number => 1;
  const writer = new ResponseWriter({
    turn,
    frame,
    keeper: undefined,
    seal: (text) => text,
    isSealed: false,
    nowS,
  });
  const newCallId = (): string => 'call_1';
  return new ResponseBlocks({ writer, sources: undefined, takenCallIds: new Set(), newCallId });
}

for (const [label, pieces] of [
  ['one event a piece', events],
  ['16 events a piece', bursts],
] as const) {
  for (const strip of [false, true]) {
    measure(
      `stream, ${label}, ${strip ? 'think tags stripped' : 'fast path'}, an event`,
      () => {
        const stream = new ChatStream(streamOptions(strip));
        pushAll(stream, pieces);
      },
      EVENTS,
    );
  }
  measure(
    `stream, ${label}, as events of Messages, an event`,
    () => {
      const stream = new ChatStream({ ...streamOptions(false), events: messageBlocks() });
      pushAll(stream, pieces);
    },
    EVENTS,
  );
  measure(
    `stream, ${label}, as events of Responses, an event`,
    () => {
      const stream = new ChatStream({ ...streamOptions(false), events: responseBlocks() });
      pushAll(stream, pieces);
    },
    EVENTS,
  );
  measure(
    `stream, ${label}, parse and stringify, an event`,
    () => {
      for (const piece of pieces) {
        const out = piece
          .toString()
          .split('\n\n')
          .filter(Boolean)
          .map(
            (text) =>
              `data: ${JSON.stringify({ ...JSON.parse(text.slice(6)), id: 'x', model: 'y' })}\n\n`,
          );
        Buffer.from(out.join(''));
      }
    },
    EVENTS,
  );
}

const vectors = Array.from({ length: 64 }, (_, index) => ({
  object: 'embedding',
  index,
  embedding: Array.from({ length: 768 }, (__, at) => Math.fround(Math.sin(index * 768 + at))),
}));
const floats = Buffer.from(JSON.stringify({ data: vectors }));
function writeEmbeddings(
  embeddings: EngineEmbeddings,
  frame: VectorFormat & EmbeddingsEnd,
): Buffer {
  return Buffer.concat([...vectorPieces(embeddings, frame), embeddingsEnd(frame)]);
}
const base64 = writeEmbeddings(await readEmbeddings(floats, 64), {
  model: 'e',
  encoding: 'base64',
  dimensions: undefined,
  promptTokens: 1,
  cost,
});
for (const [label, bytes] of [
  ['floats', floats],
  ['base64', base64],
] as const) {
  const embeddings = await readEmbeddings(bytes, 64);
  for (const encoding of ['float', 'base64'] as const) {
    measure(`write embeddings 64 x 768, engine ${label}, caller ${encoding}`, () => {
      writeEmbeddings(embeddings, {
        model: 'e',
        encoding,
        dimensions: undefined,
        promptTokens: 1,
        cost,
      });
    });
  }
}
