/**
 * Entry file of the llama engine: loads the models and serves `GET /health`, `GET /v1/models`,
 * `POST /v1/chat/completions`, `POST /v1/completions` and `POST /v1/embeddings` of the OpenAI
 * protocol. A disconnect of the caller aborts its generation.
 */
import { floatsToBase64 } from '../../src/core/vectors.ts';
import type { ServerResponse } from 'node:http';
import { Fault } from '../../src/core/faults.ts';
import { reasonOf } from '../../src/core/log.ts';
import { type EngineRequest, answerJson, serveEngine } from '../server/server.ts';
import { readBody } from '../server/request-body.ts';
import { collectedResponse, newHead, streamedResponse } from './chat-response.ts';
import type { ChatListener } from './chat-model.ts';
import { type ChatRequest, parseChatRequest } from './chat-request.ts';
import { CollectedCompletion, completeAll, parseCompletionRequest } from './completion.ts';
import { parseEmbeddingRequest } from './embedding-model.ts';
import type {
  LlamaCommand,
  LlamaReport,
  LlamaSettings,
  LlamaModelSpec,
  LoadedLlamaModel,
} from '../../src/engines/embedded/llama-models.ts';
import type { LoadedModels } from './loaded-models.ts';
import { refusal } from './refusal.ts';

/** The gateway accepts bodies of up to 35 MB. */
const MAX_BODY_BYTES = 40 * 1024 * 1024;

serveEngine(async (given, send) => {
  // Imported here, after `serveEngine` has registered the package folder.
  const { LoadedModels } = await import('./loaded-models.ts');
  const { threads, models: specs } = given as LlamaSettings; // sent by `LlamaEngine`
  const report = (message: LlamaReport): void => send(message);
  const models = await LoadedModels.open(Math.max(1, threads));
  const load = async (model: LlamaModelSpec): Promise<void> => {
    const { id } = model;
    try {
      report({ type: 'loaded', id, model: await models.load(model) });
    } catch (error) {
      // A file that does not load must not affect the other models.
      report({ type: 'load-failed', id, reason: reasonOf(error) });
    }
  };
  for (const spec of specs) await load(spec);
  return {
    async handle(request, response) {
      try {
        await route(models, request, response);
      } catch (error) {
        throw faultOf(error);
      }
    },
    onMessage: (message) => void load((message as LlamaCommand).model), // sent by `LlamaEngine`
  };
});

async function route(
  models: LoadedModels,
  request: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const { method, path } = request;
  switch (`${method} ${path}`) {
    case 'GET /health':
      return answerJson(response, 200, { status: 'ok' });
    case 'GET /v1/models':
      return answerJson(response, 200, { object: 'list', data: models.list().map(modelOnWire) });
    case 'POST /v1/chat/completions':
      return await chat(models, parseChatRequest(await readJson(request)), request, response);
    case 'POST /v1/completions':
      return await complete(models, request, response);
    case 'POST /v1/embeddings':
      return await embed(models, request, response);
    default:
      throw refusal('not_found', `No such endpoint: ${method} ${path}`);
  }
}

async function chat(
  models: LoadedModels,
  request: ChatRequest,
  turn: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const { signal } = turn;
  const model = models.chat(request.model);
  const head = newHead(request.model, Date.now());
  if (!request.stream) {
    const collected = collectedResponse(request.choices, request.logprobs);
    const usage = await model.answer(request, collected.listener, turn);
    return answerJson(response, 200, collected.body(head, usage));
  }
  const streamed = streamedResponse(head, request.choices, (text) => {
    if (!response.headersSent) beginStream(response);
    response.write(text);
  });
  try {
    const usage = await model.answer(request, streamed.listener, turn);
    streamed.finish(request.includeUsage ? usage : undefined);
    response.end();
  } catch (error) {
    // An error status is possible only before the first byte; afterwards the error is an event.
    if (!response.headersSent || signal.aborted) throw error;
    streamed.fail(faultOf(error).options.body);
    response.end();
  }
}

async function complete(
  models: LoadedModels,
  turn: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const { signal } = turn;
  const request = parseCompletionRequest(await readJson(turn));
  const model = models.chat(request.model);
  const { created } = newHead(request.model, Date.now());
  const head = { id: 'cmpl-0', object: 'text_completion', created, model: request.model };
  const answer = (chat: ChatRequest, listener: ChatListener) => model.answer(chat, listener, turn);
  if (!request.stream) {
    const collected = new CollectedCompletion();
    const usage = await completeAll(request, answer, (choice) => collected.add(choice));
    return answerJson(response, 200, { ...head, choices: collected.choices, usage });
  }
  const write = (fields: unknown): void => {
    if (!response.headersSent) beginStream(response);
    response.write(`data: ${JSON.stringify(fields)}\n\n`);
  };
  try {
    const usage = await completeAll(request, answer, (one) => write({ ...head, choices: [one] }));
    if (request.includeUsage) write({ ...head, choices: [], usage });
  } catch (error) {
    // An error status is possible only before the first byte; afterwards the error is an event.
    if (!response.headersSent || signal.aborted) throw error;
    write(faultOf(error).options.body);
  }
  response.end('data: [DONE]\n\n');
}

function beginStream(response: ServerResponse): void {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
  });
}

async function embed(
  models: LoadedModels,
  turn: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const request = parseEmbeddingRequest(await readJson(turn));
  const { vectors, tokens } = await models.embeddings(request.model).embed(request, turn);
  answerJson(response, 200, {
    object: 'list',
    data: vectors.map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: request.format === 'base64' ? floatsToBase64(vector) : Array.from(vector),
    })),
    model: request.model,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  });
}

function modelOnWire(model: LoadedLlamaModel): object {
  return { id: model.id, object: 'model', created: 0, owned_by: 'farebox-llama', meta: model };
}

async function readJson({ raw }: Pick<EngineRequest, 'raw'>): Promise<unknown> {
  const bytes = await readBody(raw, MAX_BODY_BYTES);
  try {
    return JSON.parse(bytes.toString());
  } catch {
    // The parser's message quotes the body, which must not be returned.
    throw refusal('invalid_request', 'The body is not valid JSON');
  }
}

function faultOf(error: unknown): Fault {
  if (error instanceof Fault) return error;
  return refusal('internal_error', `The model could not answer: ${reasonOf(error)}`);
}
