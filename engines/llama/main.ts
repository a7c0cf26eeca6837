/**
 * Entry file of the llama engine: loads the models and serves `GET /health`, `GET /v1/models`,
 * `POST /v1/chat/completions`, `POST /v1/completions` and `POST /v1/embeddings` of the OpenAI
 * protocol. A disconnect of the caller aborts its generation.
 */
import { floatsToBase64 } from '../../src/core/vectors.ts';
import type { ServerResponse } from 'node:http';
import { Fault } from '../../src/core/faults.ts';
import { reasonOf } from '../../src/core/log.ts';
import {
  type EngineRequest,
  sendJson,
  serveEngine,
  writeEvent,
  writeEvents,
} from '../server/server.ts';
import { readBody } from '../server/request-body.ts';
import { collectedResponse, newHead, streamedResponse } from './chat-response.ts';
import type { ChatListener } from './chat-model.ts';
import { type ChatRequest, parseChatRequest } from './chat-request.ts';
import {
  CollectedCompletion,
  type CompletionRequest,
  completeAll,
  parseCompletionRequest,
} from './completion.ts';
import { type EmbeddingRequest, parseEmbeddingRequest } from './embedding-model.ts';
import type {
  LlamaCommand,
  LlamaReport,
  LlamaSettings,
  LlamaModelSpec,
  LoadedLlamaModel,
} from '../../src/engines/embedded/program-contract.ts';
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
  /** Handles a JSON request; converts errors into the format of OpenAI clients. */
  const route =
    (work: (body: unknown, request: EngineRequest, response: ServerResponse) => Promise<void>) =>
    async (request: EngineRequest, response: ServerResponse): Promise<void> => {
      try {
        await work(await readJson(request.raw), request, response);
      } catch (error) {
        throw faultOf(error);
      }
    };
  return {
    routes: {
      'GET /v1/models': (_request, response) =>
        sendJson(response, 200, { object: 'list', data: models.list().map(modelItem) }),
      'POST /v1/chat/completions': route((body, request, response) =>
        chat(models, parseChatRequest(body), request, response),
      ),
      'POST /v1/completions': route((body, request, response) =>
        complete(models, parseCompletionRequest(body), request, response),
      ),
      'POST /v1/embeddings': route((body, request, response) =>
        embed(models, parseEmbeddingRequest(body), request, response),
      ),
    },
    onMessage: (message) => void load((message as LlamaCommand).model), // sent by `LlamaEngine`
  };
});

async function chat(
  models: LoadedModels,
  request: ChatRequest,
  turn: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const model = models.chat(request.model);
  const head = newHead(request.model, Date.now());
  if (!request.stream) {
    const collected = collectedResponse(request.choices, request.logprobs);
    const usage = await model.generate(request, collected.listener, turn);
    return sendJson(response, 200, collected.body(head, usage));
  }
  const streamed = streamedResponse(head, request.choices, (text) => writeEvents(response, text));
  await endWithErrorEvent(turn, response, async () => {
    const usage = await model.generate(request, streamed.listener, turn);
    streamed.finish(request.includeUsage ? usage : undefined);
  });
}

async function complete(
  models: LoadedModels,
  request: CompletionRequest,
  turn: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const model = models.chat(request.model);
  const { created } = newHead(request.model, Date.now());
  const head = { id: 'cmpl-0', object: 'text_completion', created, model: request.model };
  const generate = (chat: ChatRequest, listener: ChatListener) =>
    model.generate(chat, listener, turn);
  if (!request.stream) {
    const collected = new CollectedCompletion();
    const usage = await completeAll(request, generate, (choice) => collected.add(choice));
    return sendJson(response, 200, { ...head, choices: collected.choices, usage });
  }
  const write = (fields: unknown): void => writeEvent(response, fields);
  await endWithErrorEvent(turn, response, async () => {
    const usage = await completeAll(request, generate, (one) => write({ ...head, choices: [one] }));
    if (request.includeUsage) write({ ...head, choices: [], usage });
  });
}

/**
 * Runs `work`, which writes events, and ends the stream. An error sets the status before the first
 * byte; afterwards it is an event.
 */
async function endWithErrorEvent(
  { signal }: EngineRequest,
  response: ServerResponse,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!response.headersSent || signal.aborted) throw error;
    writeEvent(response, faultOf(error).options.body);
  }
  response.end('data: [DONE]\n\n');
}

async function embed(
  models: LoadedModels,
  request: EmbeddingRequest,
  turn: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const { vectors, tokens } = await models.embeddings(request.model).embed(request, turn);
  sendJson(response, 200, {
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

function modelItem(model: LoadedLlamaModel): object {
  return { id: model.id, object: 'model', created: 0, owned_by: 'farebox-llama', meta: model };
}

async function readJson(raw: EngineRequest['raw']): Promise<unknown> {
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
  return refusal('internal_error', `The model failed: ${reasonOf(error)}`);
}
