/**
 * Client of the OpenAI `/v1/videos` API of engines: create with multipart, list, poll, download,
 * delete. A job stays with the replica that accepted it. A finished job may have the URL of its
 * video instead of a route for its content; a job without DELETE is cancelled.
 *
 * Failures of an engine are results (`away`, `unclear`, `lost`, `refused`), never exceptions,
 * because the calling job will retry. The engine's message is in `detail`, for the record.
 */
import type { Clock } from '../../core/clock.ts';
import { parsedJson } from '../../json/json-text.ts';
import { createWriteStream } from 'node:fs';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import * as z from 'zod';
import { type FormPart, multipartBody } from '../../net/multipart-body.ts';
import { LearnedFields, OmittedFields, rejectsAsUnknown } from '../learned-fields.ts';
import type { EngineFailure, EngineRun, Engines, Replica } from '../engines.ts';
import { hasNoRoute, removeJob, stateOf } from './engine-job.ts';
import {
  type DownloadOptions,
  fetchVideo,
  MAX_VIDEO_BYTES,
  type UrlFetching,
  urlIn,
} from './video-url.ts';

export interface EnginePlace {
  readonly engine: string;
  readonly engineModel: string;
}

/** A job of an engine: enough to find it again after a restart. */
export interface EngineRef extends EnginePlace {
  readonly engineJobId: string;
}

/** A stored job. Its `engine` is empty unless a create request may have reached an engine. */
export interface OrderedJob extends EnginePlace {
  readonly id: string;
  /** An embedded engine shares its time between accounts. */
  readonly accountId: string;
  readonly modelId: string;
  readonly attempts: number;
  readonly request: Readonly<Record<string, unknown>>;
}

export interface EngineInput {
  readonly role: string;
  readonly path: string;
  readonly mimeType: string;
}

export interface EngineOrder {
  readonly job: OrderedJob;
  readonly inputs: readonly EngineInput[];
  /**
   * Called before a request is sent to an engine. If it resolves to `false`, another worker owns
   * the job and no request may be sent.
   */
  readonly beforeOrder: (place: EnginePlace) => Promise<boolean>;
}

/**
 * Reason of a rejection.
 * - `policy`: the engine rejects the content
 * - `request`: it rejects the prompt or the options
 * - `media`: it cannot read the input files
 * - `engine`: it cannot generate videos at all
 */
type Objection = 'policy' | 'request' | 'media' | 'engine';

/** A result whose `detail` contains the engine's message, only for the record of the job. */
type Detailed<Kind extends string, More = object> = {
  readonly kind: Kind;
  readonly detail: string;
} & Readonly<More>;

/** The engine has no capacity now. */
type Busy = Detailed<'busy', { retryAfterMs: number | undefined }>;
/** The engine does not respond, or not in its protocol. */
type Away = Detailed<'away'>;
export type EngineDelay = Busy | Away;

type Created = { readonly kind: 'created' } & EngineRef;
/** No video is being generated, and a retry does not help. */
type Refused = Detailed<'refused', { objection: Objection }>;

/**
 * Result of a create request.
 * - `unclear`: the engine may be generating the video, but the response was lost
 * - `not-ours`: `beforeOrder` returned `false`
 */
export type CreateResult =
  | Created
  | Refused
  | Detailed<'unclear'>
  | { readonly kind: 'not-ours' }
  | EngineDelay;

/** `unknown`: no engine lists the job; engines without a list also return this. */
export type FindResult = Created | { readonly kind: 'unknown' } | Away;

/** `lost`: the engine does not know the job (any more). */
export type PollResult =
  | { readonly kind: 'running'; readonly fraction: number }
  | { readonly kind: 'done' | 'lost' }
  | Detailed<'failed', { objection: Objection }>
  | EngineDelay;

export type DownloadResult =
  | { readonly kind: 'done' | 'lost' }
  | { readonly kind: 'too-large'; readonly detail: string }
  | EngineDelay;

/**
 * Engines that generate videos. The methods never throw for a failure of an engine; they throw for
 * a bug or an abort.
 */
export type VideoEngines = Pick<VideosClient, 'create' | 'find' | 'poll' | 'download' | 'remove'>;

const CreatedBody = z.object({ id: z.string().min(1).max(500) });
const ErrorFields = z.object({
  message: z.string().nullish().catch(null),
  code: z.coerce.string().nullish().catch(null),
  type: z.string().nullish().catch(null),
});
const Polled = z.object({
  status: z.string(),
  progress: z.number().nullish().catch(null),
  error: z
    .string()
    .transform((message) => ({ message, code: null, type: null }))
    .or(ErrorFields)
    .nullish()
    .catch(null),
});
/** Both formats of error bodies: `{error: {message}}` and `{error, code}`. */
const ErrorBody = z.object({
  error: z.union([z.string(), ErrorFields]),
  code: z.string().nullish(),
});
/** Engines return the idempotency key of a job in its metadata or beside its id. */
const Listed = z.object({
  data: z.array(
    z.looseObject({
      id: z.string().min(1).max(500),
      idempotency_key: z.string().nullish(),
      metadata: z.looseObject({ idempotency_key: z.string().nullish() }).nullish(),
    }),
  ),
  has_more: z.boolean().nullish(),
});

/** Members of a request that the result is checked against; an engine must support them. */
const REQUIRED = new Set(
  'prompt seconds size duration aspect_ratio resolution audio upscale_factor'.split(' '),
);
const MAX_RESPONSE_BYTES = 1_000_000;
const MAX_LIST_BYTES = 4_000_000;
/**
 * Limits of a short request: a hanging engine must not block the worker, which has few concurrent
 * steps for the jobs of all engines, or a caller who cancels.
 */
const SHORT_CALL_LIMITS = { firstByteMs: 30_000, idleMs: 30_000, totalMs: 60_000 };
const MAX_DETAIL_CHARACTERS = 500;
const POLICY = /policy|moderat|safety|content_filter|nsfw/i;
/** Codes of the embedded engine and of others. */
const MEDIA = /^(?:(?:INVALID|UNSUPPORTED)_(?:VIDEO|AUDIO|IMAGE|MEDIA)|CORRUPTED_|IMAGE_TOO_)/i;
const REQUEST = /invalid|bad_request|unsupported|unprocessable/i;
const FILE_FIELDS: Readonly<Record<string, string>> = {
  image_url: 'input_reference',
  video_url: 'input_video',
  audio_url: 'input_audio',
};
const LISTED = 100;
/** Bounds the calls to an engine with a long list; a lost job is minutes old and near its start. */
const MAX_PAGES = 10;

function away(detail: string): Away {
  return { kind: 'away', detail: detail.slice(0, MAX_DETAIL_CHARACTERS) };
}

function detailOf(failure: EngineFailure): string {
  const body = failure.body === null ? '' : ` ${failure.body.toString('utf8')}`;
  return `${failure.reason}: ${failure.message}${body}`.slice(0, MAX_DETAIL_CHARACTERS);
}

/** `busy` for a full queue or `Retry-After`; a 503 without it may come from a dead engine. */
function notNow(failure: EngineFailure): EngineDelay {
  const { reason, status, retryAfterSeconds: seconds } = failure;
  const isBusy = reason === 'overloaded' && (status !== 503 || seconds !== null);
  if (!isBusy) return away(detailOf(failure));
  const retryAfterMs = seconds === null ? undefined : seconds * 1_000;
  return { kind: 'busy', retryAfterMs, detail: detailOf(failure) };
}

function isLost(failure: EngineFailure): boolean {
  return failure.status === 404 || failure.status === 410;
}

function hasNoList(failure: EngineFailure): boolean {
  const { reason } = failure;
  const isRejection = reason === 'refused' || reason === 'misconfigured' || reason === 'too-large';
  return isRejection || hasNoRoute(failure);
}

function resultOfFailure(failure: EngineFailure): CreateResult {
  const detail = detailOf(failure);
  if (!failure.wasSent || failure.reason === 'overloaded') return notNow(failure);
  // The engine did not wait for the whole request.
  if (failure.status === 408) return away(detail);
  if (failure.reason === 'misconfigured') return { kind: 'refused', objection: 'engine', detail };
  // 409: the engine is processing a request with this key.
  if (failure.reason === 'refused' && failure.status !== 409) {
    return { kind: 'refused', objection: objectionOf(codesOf(failure.body), 'request'), detail };
  }
  return { kind: 'unclear', detail };
}

/** Error codes in the body; empty if its format is unknown, because the status suffices. */
function codesOf(body: Buffer | null): string {
  const { error, code } = ErrorBody.safeParse(parsedJson(String(body))).data ?? {};
  if (error === undefined || typeof error === 'string') return code ?? '';
  return `${error.code ?? ''} ${error.type ?? ''}`;
}

function objectionOf(codes: string, otherwise: Objection): Objection {
  if (POLICY.test(codes)) return 'policy';
  if (codes.split(' ').some((code) => MEDIA.test(code))) return 'media';
  return REQUEST.test(codes) ? 'request' : otherwise;
}

/** Idempotency key: engines that support it return the first job for a repeated request. */
function keyOf(job: OrderedJob): string {
  return `${job.id}-${job.attempts}`;
}

function fieldText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}

async function formParts(model: string, { job, inputs }: EngineOrder): Promise<FormPart[]> {
  const files = inputs.map(async ({ role, path, mimeType }) => {
    const name = FILE_FIELDS[role] ?? role;
    const { size: sizeBytes } = await stat(path);
    return { name, file: { filename: name, contentType: mimeType }, data: { path, sizeBytes } };
  });
  return [
    { name: 'model', data: model },
    ...Object.entries(job.request).map(([name, value]) => ({ name, data: fieldText(value) })),
    ...(await Promise.all(files)),
  ];
}

interface VideosClientParts extends UrlFetching {
  readonly engines: Engines;
  readonly replicasOf: (modelId: string) => readonly Replica[];
  readonly clock: Clock;
}

export class VideosClient {
  readonly #parts: VideosClientParts;
  readonly #engines: Engines;
  readonly #learned: LearnedFields;

  constructor(parts: VideosClientParts) {
    this.#parts = parts;
    this.#engines = parts.engines;
    this.#learned = new LearnedFields(parts.clock);
  }

  /**
   * Creates a video at one of the model's replicas. The next replica is used only if the previous
   * one has certainly not created a job.
   */
  async create(order: EngineOrder, signal: AbortSignal): Promise<CreateResult> {
    let best: CreateResult | undefined;
    for (const replica of this.#replicasFor(order.job)) {
      const place = { engine: replica.engine, engineModel: replica.model };
      if (!(await order.beforeOrder(place))) return { kind: 'not-ours' };
      const result = await this.#order(order, replica, signal);
      if (result.kind === 'created' || result.kind === 'unclear') return result;
      if (result.kind === 'refused' && result.objection !== 'engine') return result;
      if (best === undefined || rankOf(result) >= rankOf(best)) best = result;
      if (signal.aborted) break;
    }
    return best ?? away('The model has no engine');
  }

  async #order(order: EngineOrder, replica: Replica, signal: AbortSignal): Promise<CreateResult> {
    // Multipart content cannot contain the boundary, because its authors did not know the job id.
    const boundary = `farebox-${order.job.id}`;
    const fields = await formParts(replica.model, order);
    const optional = Object.keys(order.job.request).filter((name) => !REQUIRED.has(name));
    const omitted = new OmittedFields(
      this.#learned,
      order.job.accountId,
      optional.map((name) => [name, rejectsAsUnknown(name)]),
    );
    const response = await this.#engines.collect({
      ...callOf('POST', replica, '/videos', signal),
      contentType: `multipart/form-data; boundary=${boundary}`,
      buildBody: (_replica, refusal) => {
        if (refusal !== undefined && !omitted.add(replica, refusal)) return undefined;
        return multipartBody(
          boundary,
          fields.filter(({ name }) => !omitted.has(replica, name)),
        );
      },
      canAmend: true,
      caller: order.job.accountId,
      headers: ['idempotency-key', keyOf(order.job)],
      // A retry could create a second video; the job retries by itself.
      maxAttempts: 1,
    });
    if (!response.ok) return resultOfFailure(response);
    omitted.learn(replica);
    const body = parsedJson(String(response.body));
    const created = CreatedBody.safeParse(body);
    if (created.success) return createdAt(response.replica, created.data.id);
    if (typeof body === 'object' && body !== null) {
      return { kind: 'unclear', detail: 'The response has no id' };
    }
    return {
      kind: 'refused',
      objection: 'engine',
      detail: 'The response is not JSON of the protocol',
    };
  }

  /** Searches for a job whose create response was lost, at its engine or at every replica. */
  async find(job: OrderedJob, signal: AbortSignal): Promise<FindResult> {
    let silent: Away | undefined;
    for (const replica of this.#replicasFor(job)) {
      const result = await this.#findAt(replica, keyOf(job), signal);
      if (result.kind === 'created') return result;
      if (result.kind === 'away') silent = result;
    }
    return silent ?? { kind: 'unknown' };
  }

  async #findAt(replica: Replica, key: string, signal: AbortSignal): Promise<FindResult> {
    let after: string | undefined;
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const rest = after === undefined ? '' : `&after=${encodeURIComponent(after)}`;
      const call = shortCallOf('GET', replica, `/videos?limit=${LISTED}&order=desc${rest}`, signal);
      const response = await this.#engines.collect({ ...call, maxResponseBytes: MAX_LIST_BYTES });
      // A rejection: the engine keeps no list, or does not expose it.
      if (!response.ok && hasNoList(response)) break;
      if (!response.ok) return away(detailOf(response));
      const { data: listed = [], has_more: hasMore } =
        Listed.safeParse(parsedJson(String(response.body))).data ?? {};
      const found = listed.find(
        (one) => one.idempotency_key === key || one.metadata?.idempotency_key === key,
      );
      if (found !== undefined) return createdAt(replica, found.id);
      const last = listed.at(-1)?.id;
      // An engine that ignores `after` repeats the page.
      if (hasMore !== true || last === undefined || last === after) break;
      after = last;
    }
    return { kind: 'unknown' };
  }

  /** The engine that a create request may have reached, else all replicas in order of load. */
  #replicasFor({ modelId, engine, engineModel }: OrderedJob): readonly Replica[] {
    if (engine !== '') return [{ engine, model: engineModel }];
    const replicas = this.#parts.replicasOf(modelId);
    const states = this.#engines.replicaStatus(replicas);
    const ranked = replicas.map((replica) => {
      const { engine: id, model, weight = 1 } = replica;
      const state = states.find((one) => one.engine === id && one.model === model);
      return {
        replica,
        load: state?.isHealthy === true ? (state.inFlight + 1) / weight : Infinity,
      };
    });
    return ranked
      .toSorted((a, b) => (a.replica.order ?? 0) - (b.replica.order ?? 0) || byLoad(a.load, b.load))
      .map(({ replica }) => replica);
  }

  async poll(ref: EngineRef, signal: AbortSignal): Promise<PollResult> {
    const response = await this.#engines.collect(shortCallOf('GET', ...jobCallOf(ref), signal));
    if (!response.ok) return isLost(response) ? { kind: 'lost' } : notNow(response);
    const polled = Polled.safeParse(parsedJson(String(response.body)));
    if (!polled.success) return away('The response has no status');
    const { status, progress, error } = polled.data;
    const state = stateOf(status);
    if (state === 'done') return { kind: 'done' };
    // An unknown status counts as no response, unless the engine reports an error beside it.
    const isUnknown = state === undefined;
    const hasError = Boolean(error?.message ?? error?.code);
    if (isUnknown && !hasError) return away(`The status "${status}" is unknown`);
    if (state === 'ended' || isUnknown) {
      const objection = objectionOf(`${error?.code ?? ''} ${error?.type ?? ''}`, 'engine');
      const detail = `${status}: ${error?.code ?? ''} ${error?.message ?? ''}`;
      return { kind: 'failed', objection, detail: detail.slice(0, MAX_DETAIL_CHARACTERS) };
    }
    return { kind: 'running', fraction: Math.max(0, Math.min((progress ?? 0) / 100, 1)) };
  }

  /** Writes the video to `path`, as long as `canStore` accepts its size. */
  async download(ref: EngineRef, path: string, options: DownloadOptions): Promise<DownloadResult> {
    const { canStore, signal } = options;
    let sizeBytes = 0;
    let isTooLarge = false;
    const file = createWriteStream(path);
    const opened = once(file, 'open');
    let run: EngineRun | undefined;
    file.on('drain', () => run?.resume());
    await opened;
    run = this.#engines.run(
      {
        ...callOf('GET', ...jobCallOf(ref, '/content'), signal),
        maxResponseBytes: MAX_VIDEO_BYTES,
      },
      {
        // The type of the file is detected from its content.
        onHead: () => undefined,
        onChunk: (chunk) => {
          sizeBytes += chunk.length;
          isTooLarge ||= !canStore(sizeBytes);
          if (isTooLarge) run?.abort();
          return !isTooLarge && file.write(chunk);
        },
      },
    );
    // A full disk ends the call; `finished` reports the error.
    file.on('error', () => run?.abort());
    const outcome = await run.outcome;
    file.end();
    if (!file.closed) await once(file, 'close');
    if (file.errored !== null) throw file.errored;
    if (!outcome.ok && hasNoRoute(outcome)) {
      const url = await this.#urlOf(ref, signal);
      if (url !== undefined) return await fetchVideo(this.#parts, url, path, options);
    }
    if (isTooLarge)
      return {
        kind: 'too-large',
        detail: `The video exceeds the available storage at ${sizeBytes} bytes`,
      };
    if (outcome.ok) return { kind: 'done' };
    if (outcome.reason === 'too-large') return { kind: 'too-large', detail: detailOf(outcome) };
    return isLost(outcome) ? { kind: 'lost' } : notNow(outcome);
  }

  /** The URL of a finished video, for engines without a route for its content. */
  async #urlOf(ref: EngineRef, signal: AbortSignal): Promise<string | undefined> {
    const response = await this.#engines.collect(shortCallOf('GET', ...jobCallOf(ref), signal));
    return response.ok ? urlIn(parsedJson(String(response.body))) : undefined;
  }

  /** Deletes a job of an engine, or cancels it there; failures are ignored. */
  async remove(ref: EngineRef): Promise<void> {
    await removeJob(this.#engines, shortCallOf('DELETE', ...jobCallOf(ref), undefined));
  }
}

function callOf(
  method: 'POST' | 'GET' | 'DELETE',
  replica: Replica,
  path: string,
  signal: AbortSignal | undefined,
) {
  const maxResponseBytes = MAX_RESPONSE_BYTES;
  return { work: 'video' as const, replicas: [replica], method, path, maxResponseBytes, signal };
}

function shortCallOf(...call: Parameters<typeof callOf>) {
  return { ...callOf(...call), timeLimits: SHORT_CALL_LIMITS };
}

function jobCallOf(
  { engine, engineModel: model, engineJobId }: EngineRef,
  suffix = '',
): readonly [Replica, string] {
  return [{ engine, model }, `/videos/${encodeURIComponent(engineJobId)}${suffix}`];
}

function createdAt({ engine, model }: Replica, engineJobId: string): CreateResult & FindResult {
  return { kind: 'created', engine, engineModel: model, engineJobId };
}

/** A replica that may accept the job later is a better result than one that never will. */
const RANKS: Readonly<Record<string, number>> = { refused: 0, away: 1, busy: 2 };

function rankOf(result: CreateResult): number {
  return RANKS[result.kind] ?? 0;
}

/** `Infinity - Infinity` is NaN. */
function byLoad(a: number, b: number): number {
  return a === b ? 0 : a - b;
}
