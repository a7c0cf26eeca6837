/**
 * Entry file of a process that runs one provider package of the AI SDK and serves it over the OpenAI
 * API. The server that calls it limits times and concurrent calls; a closed connection cancels the
 * call at the provider.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { LanguageModelV4StreamPart, SharedV4Warning } from '@ai-sdk/provider';
import { Fault } from '../../src/core/faults.ts';
import { systemIds } from '../../src/core/ids.ts';
import type { ProviderSettings } from '../../src/engines/embedded/program-contract.ts';
import { readJson } from '../server/request-body.ts';
import {
  type EngineRequest,
  sendJson,
  serveEngine,
  writeEvent,
  writeEvents,
} from '../server/server.ts';
import { ChunkWriter, type Frame, completionOf } from './chat-completion.ts';
import { ChatBody, callOptionsOf } from './chat-request.ts';
import { editImages, embed, generateImages, rerank, speak, transcribe } from './media.ts';
import { Videos } from './videos.ts';
import { Redaction, failureOf } from './failure.ts';
import { IgnoredSettings } from './ignored-settings.ts';
import { listModels, modelListBody } from './model-list.ts';
import { Provider } from './provider.ts';

/** As the limit of bodies with media in the server. */
const MAX_BODY_BYTES = 256_000_000;

type ModelWork = (
  provider: Provider,
  request: EngineRequest,
  response: ServerResponse,
) => Promise<void>;
type Work = (request: EngineRequest, response: ServerResponse) => Promise<void>;

serveEngine(async (given) => {
  const settings = given as ProviderSettings; // from the parent, of the same version
  const redaction = new Redaction({ ...settings.settings });
  keepPromptsOutOfOutput(redaction);
  const provider = await Provider.load(settings);
  const ids = systemIds();
  const ignored = new IgnoredSettings();

  /** Sends errors of the provider in the format of the OpenAI API. */
  const handle =
    (work: Work): Work =>
    async (request, response) => {
      try {
        await work(request, response);
      } catch (error) {
        if (response.destroyed || request.signal.aborted) return;
        if (error instanceof Fault) throw error;
        const failure = failureOf(error);
        const body = redaction.body(failure);
        if (response.headersSent) {
          writeEvent(response, body);
          response.end();
          return;
        }
        const { retryAfterSeconds } = failure;
        if (retryAfterSeconds !== undefined) {
          response.setHeader('retry-after', String(retryAfterSeconds));
        }
        if (!request.raw.complete) request.raw.resume();
        sendJson(response, failure.status, body);
      }
    };

  const of = (work: ModelWork): Work =>
    handle((request, response) => work(provider, request, response));
  const videos = new Videos(provider);

  return {
    routes: {
      'GET /v1/models': handle(async ({ signal }, response) => {
        sendJson(response, 200, modelListBody(await listModels(settings, signal)));
      }),
      'POST /v1/embeddings': of(embed),
      'POST /v1/rerank': of(rerank),
      'POST /v1/images/generations': of(generateImages),
      'POST /v1/images/edits': of(editImages),
      'POST /v1/audio/speech': of(speak),
      'POST /v1/audio/transcriptions': of(transcribe),
      'GET /v1/videos': (request, response) => videos.list(request, response),
      'POST /v1/videos': handle((request, response) => videos.create(request, response)),
      'GET /v1/videos/{id}': handle((request, response) => videos.status(request, response)),
      'DELETE /v1/videos/{id}': handle((request, response) => videos.cancel(request, response)),
      'GET /v1/videos/{id}/content': handle((request, response) => {
        return videos.content(request, response);
      }),
      'POST /v1/chat/completions': handle(async ({ raw, signal }, response) => {
        const body = await readJson(raw, MAX_BODY_BYTES, ChatBody);
        const model = provider.model('language', body.model);
        const options = await callOptionsOf(body, { provider, model, signal });
        ignored.check(body.model, options);
        const frame = {
          id: `chatcmpl-${ids.hex(12)}`,
          model: body.model,
          createdS: Math.floor(Date.now() / 1_000),
        };
        if (body.stream !== true) {
          const result = await model.doGenerate(options);
          ignored.learn(body.model, result.warnings);
          sendJson(response, 200, completionOf(result, frame));
          return;
        }
        const { stream } = await model.doStream(options);
        const onStart = (warnings: SharedV4Warning[]): void => ignored.learn(body.model, warnings);
        await sendStream(stream, { frame, onStart, signal }, response);
      }),
    },
  };
});

async function sendStream(
  stream: ReadableStream<LanguageModelV4StreamPart>,
  {
    frame,
    onStart,
    signal,
  }: {
    readonly frame: Frame;
    readonly onStart: (warnings: SharedV4Warning[]) => void;
    readonly signal: AbortSignal;
  },
  response: ServerResponse,
): Promise<void> {
  const writer = new ChunkWriter(frame);
  for await (const part of stream) {
    if (part.type === 'stream-start') onStart(part.warnings);
    for (const chunk of writer.chunks(part)) writeEvent(response, chunk);
    if (response.writableNeedDrain) await once(response, 'drain', { signal });
  }
  writeEvents(response, 'data: [DONE]\n\n');
  response.end();
}

/** Node prints the members of an uncaught error, which can contain the request. */
function keepPromptsOutOfOutput(redaction: Redaction): void {
  const print = (error: unknown): void => {
    process.stderr.write(`${redaction.text(failureOf(error).message)}\n`);
  };
  process.on('unhandledRejection', print);
  process.on('uncaughtException', (error) => {
    print(error);
    process.exit(1);
  });
}
