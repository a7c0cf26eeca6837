/**
 * Video jobs of a provider package over the OpenAI API: `POST /v1/videos`, `GET /v1/videos`,
 * `GET /v1/videos/{id}` and `/content`. The id of a job contains what the package needs to find it
 * at the provider, so that jobs survive this process.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type {
  Experimental_VideoModelV4 as VideoModelV4,
  Experimental_VideoModelV4CallOptions as VideoOptions,
  Experimental_VideoModelV4File as VideoFile,
  Experimental_VideoModelV4VideoData as VideoData,
} from '@ai-sdk/provider';
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import * as z from 'zod';
import { sniffMedia } from '../../src/core/media-type.ts';
import { isJsonObject } from '../../src/json/json-scan.ts';
import { parsedJson } from '../../src/json/json-text.ts';
import { fieldsIn, readUpload } from '../server/request-body.ts';
import { type EngineRequest, sendBytes, sendJson } from '../server/server.ts';
import type { Downloads } from './downloads.ts';
import { ProviderFailure } from './failure.ts';
import type { Provider } from './provider.ts';

const MAX_FILE_BYTES = 100_000_000;
/** All files are in memory. */
const MAX_UPLOAD_BYTES = 300_000_000;
const MAX_FILES = 40;
/** Jobs that a list contains, and whose idempotency keys are known. */
const MAX_LISTED = 1_000;
const MAX_ID_CHARACTERS = 500;
const MAX_JOB_BYTES = 100_000;

const Fields = z.looseObject({
  model: z.string().min(1),
  prompt: z.string().optional(),
  duration: z.string().optional(),
  seconds: z.coerce.number().optional(),
  resolution: z.string().optional(),
  size: z.string().optional(),
  aspect_ratio: z.string().optional(),
  audio: z.enum(['true', 'false']).optional(),
  negative_prompt: z.string().optional(),
  seed: z.coerce.number().optional(),
});
const Job = z.object({ model: z.string(), operation: z.json() });
type Job = z.infer<typeof Job>;

interface ListedJob {
  readonly id: string;
  readonly key: string;
}

type StartedModel = VideoModelV4 & Required<Pick<VideoModelV4, 'doStart' | 'doStatus'>>;

export class Videos {
  readonly #provider: Provider;
  /** The newest last. */
  readonly #jobs: ListedJob[] = [];

  constructor(provider: Provider) {
    this.#provider = provider;
  }

  list(_request: EngineRequest, response: ServerResponse): void {
    const data = this.#jobs.toReversed().map(({ id, key }) => {
      return { id, object: 'video', metadata: { idempotency_key: key } };
    });
    sendJson(response, 200, { object: 'list', data });
  }

  async create({ raw, signal }: EngineRequest, response: ServerResponse): Promise<void> {
    if (Number(raw.headers['content-length'] ?? 0) > MAX_UPLOAD_BYTES) {
      throw new ProviderFailure(413, `The files are larger than ${MAX_UPLOAD_BYTES} bytes`);
    }
    const upload = await readUpload(raw, { maxFileBytes: MAX_FILE_BYTES, maxFiles: MAX_FILES });
    const fields = fieldsIn(upload, Fields);
    const key = String(raw.headers['idempotency-key'] ?? '');
    const known = key === '' ? undefined : this.#jobs.find((job) => job.key === key);
    if (known !== undefined) return sendJson(response, 200, described(known.id, 'queued'));
    const files = [...upload.files].map(([name, { data }]) => [name, videoFile(data)] as const);
    const model = this.#model(fields.model);
    // A started job costs money, so a closed connection does not cancel its start: the list has it.
    signal.throwIfAborted();
    const { operation } = await model.doStart({
      ...optionsOf(fields, files),
      providerOptions: this.#provider.callOptions({
        negativePrompt: fields.negative_prompt,
        resolution: fields.resolution,
      }),
    });
    const id = idOf({ model: fields.model, operation: Job.shape.operation.parse(operation) });
    this.#jobs.push({ id, key });
    if (this.#jobs.length > MAX_LISTED) this.#jobs.shift();
    sendJson(response, 200, described(id, 'queued'));
  }

  async status({ id, signal }: EngineRequest, response: ServerResponse): Promise<void> {
    const status = await this.#statusOf(id, signal);
    if (status.status === 'pending') return sendJson(response, 200, described(id, 'in_progress'));
    if (status.status === 'completed') return sendJson(response, 200, described(id, 'completed'));
    const error = { message: status.error, code: codeOf(status.error) };
    sendJson(response, 200, { ...described(id, 'failed'), error });
  }

  async content({ id, signal }: EngineRequest, response: ServerResponse): Promise<void> {
    const status = await this.#statusOf(id, signal);
    const [video] = status.status === 'completed' ? status.videos : [];
    if (video === undefined) throw new ProviderFailure(404, 'The video is not available');
    await sendVideo(video, this.#provider.downloads, signal, response);
  }

  /** Cancels the job. A job that the provider cannot cancel stays in the list. */
  async cancel({ id }: EngineRequest, response: ServerResponse): Promise<void> {
    const { model, operation } = jobOf(id);
    if (!isJsonObject(operation)) throw new ProviderFailure(404, 'There is no such video');
    await this.#provider.cancelVideo(model, operation);
    sendJson(response, 200, { ...described(id, 'cancelled'), deleted: true });
  }

  async #statusOf(id: string, signal: AbortSignal) {
    const { model, operation } = jobOf(id);
    return await this.#model(model).doStatus({ operation, abortSignal: signal });
  }

  #model(id: string): StartedModel {
    const model = this.#provider.model('video', id);
    if (model.doStart === undefined || model.doStatus === undefined) {
      throw new ProviderFailure(
        501,
        'The package cannot continue a video job; it only waits for it',
      );
    }
    return model as StartedModel; // checked above
  }
}

function described(id: string, status: string) {
  return { id, object: 'video', status };
}

function idOf(job: Job): string {
  const id = deflateRawSync(JSON.stringify(job)).toString('base64url');
  if (id.length > MAX_ID_CHARACTERS) {
    throw new ProviderFailure(502, 'The provider returned an operation that is too long');
  }
  return id;
}

function jobOf(id: string): Job {
  try {
    const limits = { maxOutputLength: MAX_JOB_BYTES };
    const json = inflateRawSync(Buffer.from(id, 'base64url'), limits).toString();
    return Job.parse(parsedJson(json));
  } catch {
    // The id is not from this program.
    throw new ProviderFailure(404, 'There is no such video');
  }
}

/** The code of the protocol for rejected content, which the message of the provider names. */
function codeOf(message: string): string {
  return /safety|policy|moderat|nsfw|sensitive/i.test(message) ? 'content_filter' : 'failed';
}

function videoFile(data: Buffer): VideoFile {
  return { type: 'file', mediaType: sniffMedia(data) ?? 'image/png', data };
}

function optionsOf(
  fields: z.infer<typeof Fields>,
  files: readonly (readonly [name: string, file: VideoFile])[],
): Omit<VideoOptions, 'providerOptions'> {
  const named = (name: string): VideoFile | undefined => files.find(([one]) => one === name)?.[1];
  const image = named('input_reference');
  const last = named('end_image_url');
  const isReference = /^(?:reference_(?:image|video)_urls\.\d+|input_video)$/;
  const references = files.filter(([name]) => isReference.test(name)).map(([, file]) => file);
  const other = files.find(
    ([name]) => !isReference.test(name) && !['input_reference', 'end_image_url'].includes(name),
  );
  if (other !== undefined) {
    throw new ProviderFailure(400, `The provider does not support "${other[0]}"; omit it`);
  }
  const frames = [
    ...(image && last ? [{ image, frameType: 'first_frame' as const }] : []),
    ...(last ? [{ image: last, frameType: 'last_frame' as const }] : []),
  ];
  const ratio = /^\d{1,2}:\d{1,2}$/.exec(fields.aspect_ratio ?? '')?.[0];
  const seconds = fields.seconds ?? Number(/^(\d+)s$/.exec(fields.duration ?? '')?.[1] ?? NaN);
  return {
    prompt: fields.prompt,
    n: 1,
    aspectRatio: ratio as VideoOptions['aspectRatio'], // by its pattern
    resolution: frameSize(fields),
    duration: Number.isNaN(seconds) ? undefined : seconds,
    fps: undefined,
    seed: fields.seed,
    image: frames.length > 0 ? undefined : image,
    frameImages: frames.length > 0 ? frames : undefined,
    inputReferences: references.length > 0 ? references : undefined,
    generateAudio: fields.audio === undefined ? undefined : fields.audio === 'true',
  };
}

/** `480p` -> `854x480`: packages convert the landscape size back, whatever the ratio is. */
function frameSize({ size, resolution = '' }: z.infer<typeof Fields>): VideoOptions['resolution'] {
  const given = /^\d{2,5}x\d{2,5}$/.exec(size ?? resolution)?.[0];
  if (given !== undefined) return given as VideoOptions['resolution']; // by its pattern
  const height = Number(/^(\d{3,4})p$/.exec(resolution.replace(/^4k$/i, '2160p'))?.[1] ?? NaN);
  if (Number.isNaN(height)) return undefined;
  return `${Math.ceil((height * 8) / 9) * 2}x${height}`;
}

async function sendVideo(
  video: VideoData,
  downloads: Downloads,
  signal: AbortSignal,
  response: ServerResponse,
): Promise<void> {
  const { mediaType } = video;
  if (video.type === 'base64') {
    sendBytes(response, 200, mediaType, Buffer.from(video.data, 'base64'));
  } else if (video.type === 'binary') sendBytes(response, 200, mediaType, video.data);
  else if (video.type === 'url') {
    const write = async (chunk: Buffer): Promise<void> => {
      if (!response.headersSent) response.writeHead(200, { 'content-type': mediaType });
      if (!response.write(chunk)) await once(response, 'drain', { signal });
    };
    try {
      await downloads.stream(video.url, write, signal);
    } catch (error) {
      // An error event would become a part of the video.
      if (response.headersSent) response.destroy();
      throw error;
    }
    response.end();
  } else throw new ProviderFailure(404, 'The provider has delivered the video elsewhere');
}
