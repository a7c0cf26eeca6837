/**
 * The OpenAI protocol over plain `node:http`, inside the llama child: `GET /health`,
 * `GET /v1/models`, `POST /v1/models/load`, `POST /v1/chat/completions`, `POST /v1/embeddings`.
 * A caller that hangs up aborts its generation.
 */
import { timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

import { z } from 'zod';

import { CollectedAnswer, newHead, StreamedAnswer } from './chat-answer.ts';
import { type ChatRequest, parseChatRequest, refusalOf } from './chat-request.ts';
import { base64OfVector, parseEmbeddingRequest } from './embedding-model.ts';
import { EngineRefusal } from './engine-refusal.ts';
import type { LoadedLlamaModel } from './llama-wire.ts';
import type { LoadedModels } from './loaded-models.ts';

/** The gateway takes bodies of up to 35 MB; text for a model is far below. */
const MAX_BODY_BYTES = 40 * 1024 * 1024;
const RETRY_AFTER_SECONDS = 1;

const modelSpec = z.object({
  id: z.string().min(1),
  path: z.string().min(1),
  work: z.enum(['chat', 'embeddings']),
  contextTokens: z.number().int().min(64),
  sequences: z.number().int().min(1).max(64),
  isDemo: z.boolean().default(false),
});

/** Makes the server; the caller listens. `apiKey` null leaves it open. */
export function createLlamaServer(models: LoadedModels, apiKey: string | null): Server {
  const server = createServer((request, response) => {
    void answer(models, apiKey, request, response);
  });
  server.keepAliveTimeout = 120_000;
  return server;
}

async function answer(
  models: LoadedModels,
  apiKey: string | null,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const left = new AbortController();
  response.on('close', () => {
    if (!response.writableEnded) left.abort(new DOMException('The caller left', 'AbortError'));
  });
  try {
    checkKey(request, apiKey);
    await route(models, request, response, left.signal);
  } catch (error) {
    // Whoever has left hears nothing; everyone else gets a body that says what was wrong.
    if (left.signal.aborted) return;
    refuse(response, refusalFrom(error));
  }
}

function checkKey(request: IncomingMessage, apiKey: string | null): void {
  if (apiKey === null) return;
  const given = Buffer.from(request.headers.authorization ?? '');
  const wanted = Buffer.from(`Bearer ${apiKey}`);
  if (given.length === wanted.length && timingSafeEqual(given, wanted)) return;
  throw new EngineRefusal('invalid_api_key', 'The key of the engine is missing or wrong');
}

async function route(
  models: LoadedModels,
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const path = request.url?.split('?', 1)[0];
  switch (`${request.method} ${path}`) {
    case 'GET /health':
      return sendJson(response, { status: 'ok' });
    case 'GET /v1/models':
      return sendJson(response, { object: 'list', data: models.list().map(modelOnWire) });
    case 'POST /v1/models/load':
      return sendJson(response, modelOnWire(await loadModel(models, await readJson(request))));
    case 'POST /v1/chat/completions':
      return await chat(models, parseChatRequest(await readJson(request)), response, signal);
    case 'POST /v1/embeddings':
      return await embed(models, await readJson(request), response, signal);
    default:
      throw new EngineRefusal('not_found', `No such endpoint: ${request.method} ${path}`);
  }
}

async function loadModel(models: LoadedModels, body: unknown): Promise<LoadedLlamaModel> {
  const parsed = modelSpec.safeParse(body);
  if (!parsed.success) throw refusalOf(parsed.error);
  return await models.load(parsed.data);
}

async function chat(
  models: LoadedModels,
  request: ChatRequest,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const model = models.chat(request.model);
  const head = newHead(request.model, Date.now());
  if (!request.stream) {
    const collected = new CollectedAnswer(request.choices, request.logprobs);
    const usage = await model.answer(request, collected, signal);
    return sendJson(response, collected.body(head, usage));
  }
  const options = { choices: request.choices, withLogprobs: request.logprobs };
  const streamed = new StreamedAnswer(head, options, (text) => {
    if (!response.headersSent) beginStream(response);
    response.write(text);
  });
  try {
    const usage = await model.answer(request, streamed, signal);
    streamed.finish(request.includeUsage ? usage : undefined);
    response.end();
  } catch (error) {
    // Before the first byte a status can still say it; afterwards only an event can.
    if (!response.headersSent || signal.aborted) throw error;
    streamed.fail(refusalFrom(error).body());
    response.end();
  }
}

function beginStream(response: ServerResponse): void {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
  });
}

async function embed(
  models: LoadedModels,
  body: unknown,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const request = parseEmbeddingRequest(body);
  const { vectors, tokens } = await models.embeddings(request.model).embed(request, signal);
  sendJson(response, {
    object: 'list',
    data: vectors.map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: request.format === 'base64' ? base64OfVector(vector) : Array.from(vector),
    })),
    model: request.model,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

function modelOnWire(model: LoadedLlamaModel): Record<string, unknown> {
  return { id: model.id, object: 'model', created: 0, owned_by: 'farebox-llama', meta: model };
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    // A request without an encoding set gives buffers.
    const bytes = chunk as Buffer;
    size += bytes.length;
    if (size > MAX_BODY_BYTES) {
      throw new EngineRefusal(
        'payload_too_large',
        `The body is larger than ${MAX_BODY_BYTES} bytes`,
      );
    }
    chunks.push(bytes);
  }
  try {
    // JSON.parse gives `any`; a schema looks at it next.
    return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
  } catch {
    // The parser's own words quote the body, which must not come back.
    throw new EngineRefusal('invalid_request', 'The body is not valid JSON');
  }
}

function sendJson(response: ServerResponse, body: unknown): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': bytes.length });
  response.end(bytes);
}

function refuse(response: ServerResponse, refusal: EngineRefusal): void {
  if (refusal.code === 'overloaded') response.setHeader('retry-after', RETRY_AFTER_SECONDS);
  response.writeHead(refusal.status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(refusal.body()));
}

function refusalFrom(error: unknown): EngineRefusal {
  if (error instanceof EngineRefusal) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new EngineRefusal('internal_error', `The model could not answer: ${reason}`);
}
