/**
 * The video APIs of Kling, Luma and Runway, for which there is no package of the AI SDK, with the
 * interface of such a package. A job is started by one request and read by its id.
 */
import { createHmac } from 'node:crypto';
import type {
  Experimental_VideoModelV4CallOptions as VideoOptions,
  Experimental_VideoModelV4File as VideoFile,
} from '@ai-sdk/provider';
import { isJsonObject, type JsonObject } from '../../src/json/json-scan.ts';
import { parsedJson } from '../../src/json/json-text.ts';
import { ProviderFailure } from './failure.ts';

interface TaskSettings {
  readonly apiKey?: string;
  readonly baseURL?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Instead of `apiKey`, for tokens that the API accepts for half an hour. */
  readonly accessKey?: string;
  readonly secretKey?: string;
}

interface TaskApi {
  readonly baseURL: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly start: (
    model: string,
    options: VideoOptions,
  ) => readonly [path: string, body: JsonObject];
  /** The path of a job, below the base URL; `started` is the path that has started it. */
  readonly pathOf: (id: string, started: string) => string;
  readonly hasCancel: boolean;
  readonly idOf: (body: JsonObject) => unknown;
  readonly read: (body: JsonObject) => { state: unknown; url?: unknown; error?: unknown };
}

const DONE: readonly unknown[] = ['SUCCEEDED', 'completed', 'succeed'];
const FAILED: readonly unknown[] = ['FAILED', 'CANCELLED', 'failed'];
const TIMEOUT_MS = 120_000;
const MAX_BODY_BYTES = 1_000_000;
const TOKEN_SECONDS = 1_800;

/** Frames of Runway by height of the landscape frame; other models have other ones. */
const RUNWAY_RATIOS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  720: {
    '16:9': '1280:720',
    '9:16': '720:1280',
    '4:3': '1104:832',
    '3:4': '832:1104',
    '1:1': '960:960',
    '21:9': '1584:672',
  },
  1080: { '16:9': '1920:1080', '9:16': '1080:1920' },
};

const APIS: Readonly<Record<string, TaskApi>> = {
  kling: {
    baseURL: 'https://api-singapore.klingai.com',
    start: (model_name, options) => {
      const { first, last } = framesOf(options);
      const { prompt, aspectRatio: aspect_ratio, duration } = options;
      return [
        `/v1/videos/${first === undefined ? 'text2video' : 'image2video'}`,
        {
          model_name,
          prompt,
          aspect_ratio,
          duration: duration && String(duration),
          image: first && base64Of(first),
          image_tail: last && base64Of(last),
        },
      ];
    },
    pathOf: (id, started) => `${started}/${id}`,
    hasCancel: false,
    idOf: (body) => member(body, 'data')['task_id'],
    read: (body) => {
      const data = member(body, 'data');
      const { videos } = member(data, 'task_result');
      const [video] = Array.isArray(videos) ? (videos as unknown[]) : []; // JSON
      return {
        state: data['task_status'],
        url: isJsonObject(video) ? video['url'] : undefined,
        error: data['task_status_msg'],
      };
    },
  },
  luma: {
    baseURL: 'https://api.lumalabs.ai/dream-machine/v1',
    start: (model, options) => {
      const { prompt, aspectRatio: aspect_ratio, duration } = options;
      if (framesOf(options).first !== undefined) {
        throw new ProviderFailure(400, 'The provider takes images by URL only; omit the image');
      }
      const height = heightOf(options);
      const resolution = height && (height === '2160' ? '4k' : `${height}p`);
      const body = { model, prompt, aspect_ratio, resolution };
      return ['/generations/video', { ...body, duration: duration && `${duration}s` }];
    },
    pathOf: (id) => `/generations/${id}`,
    hasCancel: true,
    idOf: ({ id }) => id,
    read: (body) => {
      return {
        state: body['state'],
        url: member(body, 'assets')['video'],
        error: body['failure_reason'],
      };
    },
  },
  runway: {
    baseURL: 'https://api.dev.runwayml.com',
    headers: { 'x-runway-version': '2024-11-06' },
    start: (model, options) => {
      const { first, last } = framesOf(options);
      const { prompt: promptText, aspectRatio = '16:9', duration, seed, generateAudio } = options;
      const ratio = RUNWAY_RATIOS[heightOf(options) ?? '720']?.[aspectRatio];
      if (ratio === undefined) {
        throw new ProviderFailure(400, 'The provider does not support this resolution and ratio');
      }
      const promptImage =
        last === undefined
          ? first && dataUrlOf(first)
          : [
              ...(first ? [{ uri: dataUrlOf(first), position: 'first' }] : []),
              { uri: dataUrlOf(last), position: 'last' },
            ];
      const path = promptImage === undefined ? '/v1/text_to_video' : '/v1/image_to_video';
      return [
        path,
        { model, promptText, ratio, duration, seed, audio: generateAudio, promptImage },
      ];
    },
    pathOf: (id) => `/v1/tasks/${id}`,
    hasCancel: true,
    idOf: ({ id }) => id,
    read: ({ status, output, failure }) => {
      return { state: status, url: Array.isArray(output) ? output[0] : undefined, error: failure };
    },
  },
};

export function isTaskApi(provider: string): boolean {
  return Object.hasOwn(APIS, provider);
}

/** The provider as a package exports it: video models that start, read and cancel jobs. */
export function createTaskProvider(provider: string, settings: TaskSettings) {
  const api = APIS[provider];
  if (api === undefined) throw new Error(`There is no provider ${provider}`);
  const baseURL = (settings.baseURL ?? api.baseURL).replace(/\/$/, '');

  async function send(method: string, path: string, body?: JsonObject, given?: AbortSignal) {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    const response = await fetch(baseURL + path, {
      method,
      redirect: 'error',
      signal: given === undefined ? timeout : AbortSignal.any([given, timeout]),
      headers: {
        ...api?.headers,
        ...settings.headers,
        authorization: `Bearer ${tokenOf(settings)}`,
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const responseBody = await textOf(response);
    if (response.ok) return responseBody;
    const responseHeaders = Object.fromEntries(response.headers);
    const facts = { statusCode: response.status, responseBody, responseHeaders };
    throw Object.assign(new Error(`The provider returned ${response.status}`), facts);
  }

  const videoModel = (modelId: string) => ({
    specificationVersion: 'v4' as const,
    provider,
    modelId,
    maxVideosPerCall: 1,
    async doStart(options: VideoOptions) {
      if ((options.inputReferences ?? []).length > 0) {
        throw new ProviderFailure(400, 'The provider does not support references; omit them');
      }
      const [path, body] = api.start(modelId, options);
      const {
        negativePrompt,
        resolution: _resolution,
        ...own
      } = options.providerOptions[provider] ?? {};
      const negative = provider === 'kling' ? { negative_prompt: negativePrompt } : {};
      const made = jsonOf(await send('POST', path, { ...body, ...negative, ...own }));
      const id = api.idOf(made);
      if (typeof id !== 'string' || !/^[\w.:-]{1,200}$/.test(id)) {
        throw new ProviderFailure(502, 'The provider returned no id of the job');
      }
      return { operation: { path: api.pathOf(id, path) }, warnings: [] };
    },
    async doStatus({ operation, abortSignal }: { operation: unknown; abortSignal?: AbortSignal }) {
      const read = api.read(jsonOf(await send('GET', pathIn(operation), undefined, abortSignal)));
      if (DONE.includes(read.state) && typeof read.url === 'string') {
        const video = { type: 'url', url: read.url, mediaType: 'video/mp4' } as const;
        return { status: 'completed', videos: [video], warnings: [] } as const;
      }
      if (!FAILED.includes(read.state) && !DONE.includes(read.state))
        return { status: 'pending' } as const;
      const error = typeof read.error === 'string' && read.error !== '' ? read.error : 'No video';
      return { status: 'error', error } as const;
    },
    ...(api.hasCancel && {
      async doCancel(operation: unknown): Promise<void> {
        await send('DELETE', pathIn(operation));
      },
    }),
  });
  return { videoModel };
}

function pathIn(operation: unknown): string {
  const path = isJsonObject(operation) ? operation['path'] : undefined;
  if (typeof path === 'string' && /^\/[\w./:-]+$/.test(path)) return path;
  throw new ProviderFailure(404, 'There is no such video');
}

/** Ends the connection after the maximum, so that a provider cannot fill the memory. */
async function textOf({ body }: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) {
      throw new ProviderFailure(502, `The provider returned more than ${MAX_BODY_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function jsonOf(text: string): JsonObject {
  const body: unknown = parsedJson(text);
  if (isJsonObject(body)) return body;
  throw new ProviderFailure(502, 'The provider returned no JSON object');
}

function member(body: JsonObject, name: string): JsonObject {
  const value = body[name];
  return isJsonObject(value) ? value : {};
}

/** An API key, or a token (HS256) of an access key and its secret. */
function tokenOf({ apiKey, accessKey, secretKey }: TaskSettings): string {
  if (accessKey === undefined || secretKey === undefined) return apiKey ?? '';
  const nowS = Math.floor(Date.now() / 1_000);
  const claims = { iss: accessKey, exp: nowS + TOKEN_SECONDS, nbf: nowS - 5 };
  const signed = [{ alg: 'HS256', typ: 'JWT' }, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  return `${signed}.${createHmac('sha256', secretKey).update(signed).digest('base64url')}`;
}

function framesOf({ image, frameImages = [] }: VideoOptions) {
  const frame = (type: string) => frameImages.find(({ frameType }) => frameType === type)?.image;
  return { first: image ?? frame('first_frame'), last: frame('last_frame') };
}

/** `1280x720` -> `720` */
function heightOf({ resolution }: VideoOptions): string | undefined {
  return resolution && String(Math.min(...resolution.split('x').map(Number)));
}

function base64Of(file: VideoFile): string {
  if (file.type !== 'file') throw new ProviderFailure(400, 'Send the image as a file');
  return typeof file.data === 'string' ? file.data : Buffer.from(file.data).toString('base64');
}

function dataUrlOf(file: VideoFile): string {
  const mediaType = file.type === 'file' ? file.mediaType : 'image/png';
  return `data:${mediaType};base64,${base64Of(file)}`;
}
