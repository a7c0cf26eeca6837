/**
 * Video processing without a GPU over the OpenAI video API: `POST /v1/videos`, `GET /v1/videos`,
 * `GET /v1/videos/{id}`, `GET /v1/videos/{id}/content`, `DELETE /v1/videos/{id}`. A repeated
 * request with the same `Idempotency-Key` returns the first job, and lists contain the key.
 *
 * There are two models: `upscale` enlarges a video 2 or 4 times, `still-to-video` moves a camera
 * over an image, with optional sound. Jobs exist as long as this process; clients that need them
 * longer must submit them again after a restart.
 */
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import * as z from 'zod';
import type { Clock } from '../../src/core/clock.ts';
import { Fault } from '../../src/core/faults.ts';
import type { Ids } from '../../src/core/ids.ts';
import { reasonOf } from '../../src/core/log.ts';
import { type EngineRequest, type EngineService, sendJson } from '../server/server.ts';
import { engineQueue } from '../server/engine-queue.ts';
import { type Upload, fieldsIn, filePathOf, readUpload } from '../server/request-body.ts';
import type { FocusPoint, StillMove } from '../../src/engines/media/media-task.ts';
import type { Media } from '../../src/engines/media/media.ts';

const MAX_UPLOAD_BYTES = 500_000_000;
/** Bytes on disk of all jobs together. */
const MAX_STORED_BYTES = 4_000_000_000;
const RETRY_AFTER_SECONDS = 10;
const MAX_JOBS = 256;
const FRAMES_PER_SECOND = 25;
const MAX_SECONDS = 30;

export const VIDEO_MODELS = ['upscale', 'still-to-video'] as const;

const CreateFields = z.object({
  model: z.enum(VIDEO_MODELS),
  prompt: z.string().default(''),
  seconds: z.coerce.number().min(1).max(MAX_SECONDS).default(5),
  size: z
    .string()
    .regex(/^\d{2,4}x\d{2,4}$/, 'Must be a size such as 1280x720')
    .default('1280x720'),
  upscale_factor: z.coerce
    .number()
    .pipe(z.literal([1, 2, 4]))
    .default(2),
});

/** Prompt words that select a camera move; the first match wins. */
const MOVES: readonly (readonly [RegExp, StillMove])[] = [
  [/\b(zoom|pull|dolly)(s|ing)?\s{1,4}(out|back)\b/i, 'out'],
  [/\b(pan|move|slide|track)(s|ning|ing)?\s{1,4}(to the\s{1,4})?left\b/i, 'left'],
  [/\b(pan|move|slide|track)(s|ning|ing)?\s{1,4}(to the\s{1,4})?right\b/i, 'right'],
  [/\b(tilt|pan|move)(s|ing|ning)?\s{1,4}up\b/i, 'up'],
  [/\b(tilt|pan|move)(s|ing|ning)?\s{1,4}down\b/i, 'down'],
];

/** The camera move that a prompt requests; zooms in by default. */
export function moveOf(prompt: string): StillMove {
  return MOVES.find(([words]) => words.test(prompt))?.[1] ?? 'in';
}

/** Prompt words for a part of the image, and what most images show there. */
const PLACES: readonly (readonly [RegExp, Partial<FocusPoint>])[] = [
  [/\b(top|upper|above|overhead)\b/i, { y: 0 }],
  [/\b(bottom|lower|below|beneath)\b/i, { y: 1 }],
  [/\bleft(most|-hand)?\b/i, { x: 0 }],
  [/\bright(most|-hand)?\b/i, { x: 1 }],
  [/\b(cent(er|re)|middle)\b/i, { x: 0.5, y: 0.5 }],
  [/\b(sky|clouds?|sun|moon|stars|ceiling|roof|spire|heads?|hats?|hair)\b/i, { y: 0 }],
  [/\b(faces?|eyes|portrait|person|man|woman|child|people)\b/i, { y: 0.25 }],
  [/\b(ground|floor|feet|foot|shoes?|foreground|road|street|water|sea|waves?)\b/i, { y: 1 }],
];

/**
 * The part of an image that a prompt names, from its words alone; cropping to the frame then
 * removes other parts. The first word for each direction counts.
 */
export function focusOf(prompt: string): FocusPoint {
  // `pan left` describes the camera, not the image.
  const words = MOVES.reduce((text, [move]) => text.replace(move, ' '), prompt);
  const found = PLACES.filter(([place]) => place.test(words)).map(([, point]) => point);
  const x = found.find((point) => point.x !== undefined)?.x ?? 0.5;
  return { x, y: found.find((point) => point.y !== undefined)?.y ?? 0.5 };
}

interface Job {
  readonly id: string;
  readonly key: string;
  readonly caller: string;
  readonly fields: z.infer<typeof CreateFields>;
  readonly createdSeconds: number;
  readonly directory: string;
  readonly uploadBytes: number;
  readonly aborter: AbortController;
  status: 'queued' | 'in_progress' | 'completed' | 'failed';
  fraction: number;
  error: { code: string; message: string } | null;
}

type Work = (onProgress: (fraction: number) => void) => Promise<void>;

export interface VideoServiceParts {
  readonly media: Media;
  readonly directory: string;
  readonly clock: Clock;
  readonly ids: Ids;
}

export class VideoService implements EngineService {
  readonly models = VIDEO_MODELS;
  readonly routes: EngineService['routes'] = {
    'GET /v1/videos': (_request, response) => {
      const data = [...this.#jobs.values()].toReversed().map(describe);
      sendJson(response, 200, { object: 'list', data });
    },
    'POST /v1/videos': async (request, response) => {
      sendJson(response, 200, describe(await this.#create(request)));
    },
    'GET /v1/videos/{id}': ({ id }, response) => {
      sendJson(response, 200, describe(this.#jobOf(id)));
    },
    'GET /v1/videos/{id}/content': async ({ id }, response) => {
      await sendVideo(this.#jobOf(id), response);
    },
    'DELETE /v1/videos/{id}': async ({ id }, response) => {
      await this.#remove(this.#jobOf(id));
      sendJson(response, 200, { id, object: 'video.deleted', deleted: true });
    },
  };
  readonly #parts: VideoServiceParts;
  readonly #jobs = new Map<string, Job>();
  /** Idempotency keys of uploads in progress. */
  readonly #uploading = new Set<string>();
  #storedBytes = 0;
  readonly #turns = engineQueue({
    // The system shares the processors between the encoders of these callers.
    running: 4,
    runningOfCaller: 1,
    waiting: 32,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });

  constructor(parts: VideoServiceParts) {
    this.#parts = parts;
  }

  #jobOf(id: string): Job {
    const job = this.#jobs.get(id);
    if (job === undefined) throw new Fault('MEDIA_NOT_FOUND', { message: `No video ${id}` });
    return job;
  }

  async #create(request: EngineRequest): Promise<Job> {
    const key = request.raw.headers['idempotency-key']?.toString() ?? '';
    if (key === '') return await this.#upload(request, key);
    const known = [...this.#jobs.values()].find((job) => job.key === key);
    if (known !== undefined) {
      request.raw.resume();
      return known;
    }
    if (this.#uploading.has(key)) {
      throw new Fault('REQUEST_IN_PROGRESS', { retryAfterSeconds: RETRY_AFTER_SECONDS });
    }
    this.#uploading.add(key);
    try {
      return await this.#upload(request, key);
    } finally {
      this.#uploading.delete(key);
    }
  }

  async #upload(request: EngineRequest, key: string): Promise<Job> {
    const declared = request.raw.headers['content-length'];
    const uploadBytes = declared === undefined ? MAX_UPLOAD_BYTES : Number(declared);
    if (this.#jobs.size >= MAX_JOBS || this.#storedBytes + uploadBytes > MAX_STORED_BYTES) {
      throw new Fault('MODEL_AT_CAPACITY', { retryAfterSeconds: RETRY_AFTER_SECONDS });
    }
    const { directory: root, ids, clock } = this.#parts;
    await mkdir(root, { recursive: true });
    const directory = await mkdtemp(join(root, 'job-'));
    this.#storedBytes += uploadBytes;
    try {
      const upload = await readUpload(request.raw, { maxFileBytes: MAX_UPLOAD_BYTES, directory });
      const fields = fieldsIn(upload, CreateFields);
      const id = `video_${ids.hex(16)}`;
      const createdSeconds = Math.floor(clock.nowMs() / 1000);
      const aborter = new AbortController();
      const { caller } = request;
      const made = { id, key, caller, fields, createdSeconds, directory, uploadBytes, aborter };
      const job: Job = { ...made, status: 'queued', fraction: 0, error: null };
      // Validated here, so that invalid input is rejected at once instead of by a failed job.
      this.#start(job, this.#workOf(job, upload));
      return job;
    } catch (error) {
      // Release everything that belongs to the rejected job.
      this.#storedBytes -= uploadBytes;
      await rm(directory, { recursive: true, force: true });
      throw error;
    }
  }

  #start(job: Job, work: Work): void {
    this.#jobs.set(job.id, job);
    const run = async (): Promise<void> => {
      job.status = 'in_progress';
      await work((fraction) => {
        job.fraction = fraction;
      });
      job.fraction = 1;
      job.status = 'completed';
    };
    this.#turns.run(run, job.aborter.signal, job.caller).catch((error: unknown) => {
      job.status = 'failed';
      job.error =
        error instanceof Fault
          ? { code: error.code, message: error.message }
          : { code: 'INFERENCE_FAILED', message: 'The video could not be made' };
      if (!(error instanceof Fault)) process.stderr.write(`${reasonOf(error)}\n`);
    });
  }

  #workOf(job: Job, upload: Upload): Work {
    const { media } = this.#parts;
    const { fields, aborter, caller } = job;
    const outputPath = outputOf(job);
    const call = { signal: aborter.signal, caller };
    if (fields.model === 'upscale') {
      const source = filePathOf(upload, 'input_video');
      const factor = fields.upscale_factor;
      return async (onProgress) => {
        const facts = await media.probe(source, call);
        await media.upscale({ path: source, outputPath, factor, facts }, { ...call, onProgress });
      };
    }
    const imagePath = filePathOf(upload, 'input_reference');
    const [width = 1280, height = 720] = fields.size.split('x').map(Number);
    const still = {
      imagePath,
      audioPath: upload.files.get('input_audio')?.path,
      outputPath,
      width: width - (width % 2),
      height: height - (height % 2),
      seconds: fields.seconds,
      framesPerSecond: FRAMES_PER_SECOND,
      move: moveOf(fields.prompt),
      focus: focusOf(fields.prompt),
    };
    return async (onProgress) => await media.stillToVideo(still, { ...call, onProgress });
  }

  async #remove(job: Job): Promise<void> {
    if (this.#jobs.delete(job.id)) this.#storedBytes -= job.uploadBytes;
    job.aborter.abort();
    await rm(job.directory, { recursive: true, force: true });
  }
}

async function sendVideo(job: Job, response: ServerResponse): Promise<void> {
  if (job.status !== 'completed') {
    throw new Fault('MEDIA_NOT_FOUND', { message: `The video ${job.id} is not ready` });
  }
  const path = outputOf(job);
  const { size } = await stat(path);
  response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': size });
  await pipeline(createReadStream(path), response);
}

function outputOf({ directory }: Pick<Job, 'directory'>): string {
  return join(directory, 'output.mp4');
}

/** A job in the response format; `progress` is from 0 to 100. */
function describe(job: Job): object {
  return {
    id: job.id,
    object: 'video',
    model: job.fields.model,
    status: job.status,
    progress: Math.round(job.fraction * 100),
    created_at: job.createdSeconds,
    seconds: String(job.fields.seconds),
    size: job.fields.size,
    error: job.error,
    metadata: job.key === '' ? {} : { idempotency_key: job.key },
  };
}
