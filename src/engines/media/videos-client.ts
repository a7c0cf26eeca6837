/**
 * Speaks OpenAI's `/v1/videos` to engines: create with multipart, poll, fetch, delete. A job stays
 * with the replica that took it.
 *
 * What an engine does wrong is an answer (`later`, `lost`, `refused`), never a throw: the caller is
 * a job that will ask again.
 */
import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { once } from 'node:events';
import { z } from 'zod';
import type { EngineAnswer, EngineFailure, EngineRun, Engines, Replica } from '../engines.ts';

/** What is known of a job when an engine is asked to make its video. */
export interface VideoOrder {
  readonly job: {
    /** A UUID. */
    readonly id: string;
    readonly modelId: string;
    readonly attempts: number;
    readonly request: Readonly<Record<string, unknown>>;
  };
  readonly inputs: readonly {
    readonly role: string;
    readonly path: string;
    readonly mimeType: string;
  }[];
}

/** An engine's job, enough to find it again. */
export interface VideoRef {
  readonly engine: string;
  readonly engineModel: string;
  readonly engineJobId: string;
}

interface Later {
  readonly kind: 'later';
  readonly retryAfterMs: number | undefined;
  readonly reason: string;
}

interface Refused {
  readonly kind: 'refused' | 'failed';
  readonly message: string;
  readonly isPolicy: boolean;
}

const Created = z.object({ id: z.string().min(1).max(500) });
const Polled = z.object({
  status: z.string(),
  progress: z.number().nullish(),
  error: z
    .object({
      message: z.string().nullish(),
      code: z.string().nullish(),
      type: z.string().nullish(),
    })
    .nullish(),
});
/** Both shapes of error bodies: `{error: {message}}` and `{error, code}`. */
const ErrorBody = z.object({
  error: z.union([
    z.string(),
    z.object({ message: z.string(), code: z.string().nullish(), type: z.string().nullish() }),
  ]),
  code: z.string().nullish(),
});

const MAX_ANSWER_BYTES = 1_000_000;
const MAX_VIDEO_BYTES = 2_000_000_000;
const MAX_MESSAGE_CHARACTERS = 500;
const POLICY = /policy|moderat|safety|content_filter|nsfw/i;
/** The protocol's own names for the media that it knows. */
const FILE_FIELDS: Readonly<Record<string, string>> = {
  image_url: 'input_reference',
  video_url: 'input_video',
  audio_url: 'input_audio',
};
const DONE = new Set(['completed', 'succeeded']);
const ENDED = new Set(['failed', 'cancelled', 'canceled', 'expired']);

function later(failure: EngineFailure): Later {
  const seconds = failure.retryAfterSeconds;
  return {
    kind: 'later',
    retryAfterMs: seconds === null ? undefined : seconds * 1_000,
    reason: `${failure.reason}: ${failure.message}`,
  };
}

function isLost(failure: EngineFailure): boolean {
  return failure.status === 404 || failure.status === 410;
}

/** The engine's own words, cut to what a caller may be shown. */
function refusalOf(failure: EngineFailure): Refused {
  let message = 'The engine refused the request';
  let code = '';
  try {
    const { error, ...outer } = ErrorBody.parse(JSON.parse(String(failure.body)));
    message = typeof error === 'string' ? error : error.message;
    code =
      typeof error === 'string' ? (outer.code ?? '') : `${error.code ?? ''} ${error.type ?? ''}`;
  } catch {
    // The body is not an error that we know: the status says enough.
  }
  const isPolicy = POLICY.test(code);
  return { kind: 'refused', message: message.slice(0, MAX_MESSAGE_CHARACTERS), isPolicy };
}

function fieldText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

interface Part {
  readonly head: string;
  readonly data: Buffer;
}

/** A multipart body: fields in order, then files. */
async function multipart(order: VideoOrder): Promise<{ boundary: string; parts: Part[] }> {
  // Nobody who wrote a part knew the id of the job.
  const boundary = `farebox-${order.job.id}`;
  const quote = (name: string): string => name.replaceAll(/["\r\n]/g, '_');
  const parts: Part[] = Object.entries(order.job.request).map(([name, value]) => ({
    head: `Content-Disposition: form-data; name="${quote(name)}"`,
    data: Buffer.from(fieldText(value)),
  }));
  for (const { role, path, mimeType } of order.inputs) {
    const name = quote(FILE_FIELDS[role] ?? role);
    parts.push({
      head: `Content-Disposition: form-data; name="${name}"; filename="${name}"\r\nContent-Type: ${quote(mimeType)}`,
      data: await readFile(path),
    });
  }
  return { boundary, parts };
}

function bodyFor(model: string, boundary: string, parts: readonly Part[]): Buffer {
  const modelPart = {
    head: 'Content-Disposition: form-data; name="model"',
    data: Buffer.from(model),
  };
  const pieces = [modelPart, ...parts].flatMap(({ head, data }) => [
    Buffer.from(`--${boundary}\r\n${head}\r\n\r\n`),
    data,
    Buffer.from('\r\n'),
  ]);
  return Buffer.concat([...pieces, Buffer.from(`--${boundary}--\r\n`)]);
}

export class VideosClient {
  readonly #engines: Engines;
  readonly #replicasOf: (modelId: string) => readonly Replica[];

  constructor(engines: Engines, replicasOf: (modelId: string) => readonly Replica[]) {
    this.#engines = engines;
    this.#replicasOf = replicasOf;
  }

  /** Hands a job to one of the model's replicas. */
  async create(
    order: VideoOrder,
    signal: AbortSignal,
  ): Promise<({ kind: 'created' } & VideoRef) | (Refused & { kind: 'refused' }) | Later> {
    const { boundary, parts } = await multipart(order);
    const answer = await this.#engines.collect({
      work: 'video',
      replicas: this.#replicasOf(order.job.modelId),
      method: 'POST',
      path: '/videos',
      contentType: `multipart/form-data; boundary=${boundary}`,
      buildBody: (replica) => bodyFor(replica.model, boundary, parts),
      // Engines that know the header take a repeated create as the first one.
      headers: ['idempotency-key', `${order.job.id}-${order.job.attempts}`],
      maxResponseBytes: MAX_ANSWER_BYTES,
      // A second try could make a second video; the job itself asks again.
      maxAttempts: 1,
      signal,
    });
    if (!answer.ok) {
      return answer.reason === 'refused'
        ? { ...refusalOf(answer), kind: 'refused' }
        : later(answer);
    }
    const created = Created.safeParse(parseJson(answer));
    if (!created.success)
      return { kind: 'later', retryAfterMs: undefined, reason: 'no id in answer' };
    const { engine, model } = answer.replica;
    return { kind: 'created', engine, engineModel: model, engineJobId: created.data.id };
  }

  /** How far a job is. */
  async poll(
    ref: VideoRef,
    signal: AbortSignal,
  ): Promise<
    | { kind: 'running'; fraction: number }
    | { kind: 'done' }
    | { kind: 'lost' }
    | (Refused & { kind: 'failed' })
    | Later
  > {
    const answer = await this.#ask('GET', ref, '', signal);
    if (!answer.ok) return isLost(answer) ? { kind: 'lost' } : later(answer);
    const polled = Polled.safeParse(parseJson(answer));
    if (!polled.success)
      return { kind: 'later', retryAfterMs: undefined, reason: 'no status in answer' };
    const { status, progress, error } = polled.data;
    if (DONE.has(status)) return { kind: 'done' };
    if (ENDED.has(status)) {
      const message = (error?.message ?? 'The engine could not make the video').slice(
        0,
        MAX_MESSAGE_CHARACTERS,
      );
      return { kind: 'failed', message, isPolicy: POLICY.test(`${error?.code} ${error?.type}`) };
    }
    return { kind: 'running', fraction: Math.max(0, Math.min((progress ?? 0) / 100, 1)) };
  }

  /** Writes the video to `path`. */
  async download(
    ref: VideoRef,
    path: string,
    signal: AbortSignal,
  ): Promise<{ kind: 'done' } | { kind: 'lost' } | Later> {
    const file = createWriteStream(path);
    const opened = once(file, 'open');
    let run: EngineRun | undefined;
    file.on('drain', () => run?.resume());
    await opened;
    run = this.#engines.run(
      {
        ...this.#callOf('GET', ref, '/content', signal),
        maxResponseBytes: MAX_VIDEO_BYTES,
      },
      {
        // What the file is, its bytes say.
        onHead: () => undefined,
        onChunk: (chunk) => file.write(chunk),
      },
    );
    // A full disk ends the call; the error itself comes from `finished`.
    file.on('error', () => run?.abort());
    const outcome = await run.outcome;
    file.end();
    if (!file.closed) await once(file, 'close');
    if (file.errored !== null) throw file.errored;
    if (outcome.ok) return { kind: 'done' };
    return isLost(outcome) ? { kind: 'lost' } : later(outcome);
  }

  /** Lets the engine forget a job; that it does not answer is no matter. */
  async remove(ref: VideoRef): Promise<void> {
    await this.#ask('DELETE', ref, '', undefined);
  }

  async #ask(
    method: 'GET' | 'DELETE',
    ref: VideoRef,
    suffix: string,
    signal: AbortSignal | undefined,
  ): Promise<EngineAnswer | EngineFailure> {
    const call = this.#callOf(method, ref, suffix, signal);
    return await this.#engines.collect({ ...call, maxResponseBytes: MAX_ANSWER_BYTES });
  }

  #callOf(
    method: 'GET' | 'DELETE',
    ref: VideoRef,
    suffix: string,
    signal: AbortSignal | undefined,
  ) {
    return {
      work: 'video' as const,
      replicas: [{ engine: ref.engine, model: ref.engineModel }],
      method,
      path: `/videos/${encodeURIComponent(ref.engineJobId)}${suffix}`,
      signal,
    };
  }
}

function parseJson(answer: EngineAnswer): unknown {
  try {
    return JSON.parse(answer.body.toString());
  } catch {
    // Not JSON: the schema refuses `undefined`.
    return undefined;
  }
}
