/** Records failed and retried requests, without secrets and prompts, for the log and the database. */
import type { Config } from '../config/config.ts';
import { FAULTS, type Fault } from '../core/faults.ts';
import { type LogFields, reasonOf } from '../core/log.ts';
import type { RequestTry } from '../core/request-tries.ts';
import type { RequestContext } from '../http/request-context.ts';
import { isJsonObject } from '../json/json-scan.ts';
import type { FailureRecord } from '../observability/failure-log.ts';
import { Scrubber, parametersOf, readBody } from '../observability/request-facts.ts';
import type { EndedJob, VideoJob } from '../video/video.ts';
import type { FeatureParts } from './feature-parts.ts';

type FailedRequestParts = Pick<FeatureParts, 'config' | 'clock' | 'failureLog'>;

const MAX_PROMPT_BYTES = 8 * 1_024;
const OK = 200;
/** nginx's status for a caller that has closed the connection before its response. */
const CLIENT_CLOSED = 499;

export class FailedRequests {
  readonly #parts: FailedRequestParts;
  #secrets: { readonly of: Config; readonly all: readonly string[] } | undefined;

  constructor(parts: FailedRequestParts) {
    this.#parts = parts;
  }

  /** Stores the record of the request; returns its facts for the log line. */
  record(context: RequestContext, tookMs: number): LogFields {
    let facts: FailureRecord['facts'] | undefined;
    this.#parts.failureLog.add(context.callerIfKnown?.accountId ?? '', () => {
      const record = this.#recordOf(context, tookMs);
      ({ facts } = record);
      return record;
    });
    if (facts === undefined) return {};
    const { message, cause, tries } = facts;
    return {
      error: message === '' ? undefined : message,
      cause: cause === '' ? undefined : cause,
      tries: tries.length === 0 ? undefined : tries.map(tryText),
    };
  }

  /** Stores the record of an ended video job, by the id of the job. */
  recordVideo(job: VideoJob, { failure, detail, tries }: EndedJob): void {
    const { config, clock, failureLog } = this.#parts;
    const { id, accountId, keyId, modelId, createdMs, request } = job;
    failureLog.add(accountId, () => {
      const body = { bytes: JSON.stringify(request).length, json: request };
      const scrubber = new Scrubber(this.#secretsOf(config.current), body);
      return {
        requestId: id,
        createdMs,
        accountId,
        keyId,
        route: 'POST /video/queue',
        modelId,
        engine: tries.at(-1)?.engine ?? job.engine,
        status: failure === undefined ? OK : FAULTS[failure.code].status,
        code: failure?.code ?? '',
        tookMs: Math.round(clock.nowMs() - createdMs),
        facts: {
          message: failure?.message ?? '',
          cause: scrubber.scrubWords(detail),
          parameters: parametersOf(body),
          tries: tries.map((tried) => ({ ...tried, words: scrubber.scrubWords(tried.words) })),
        },
      };
    });
  }

  #recordOf(context: RequestContext, tookMs: number): FailureRecord {
    const { config, clock } = this.#parts;
    const { fault, notes, callerIfKnown: caller, route, request } = context;
    const bytes = Number(context.headers['content-length'] ?? context.body.length);
    const body = readBody(context.body, bytes);
    const scrubber = new Scrubber(this.#secretsOf(config.current), body);
    const tries = (context.tries ?? []).map((tried) => ({
      ...tried,
      detail: scrubber.scrub(tried.detail),
      words: scrubber.scrubWords(tried.words),
    }));
    const cause = fault?.options.cause;
    const message = fault === undefined ? '' : messageOf(fault);
    const isGone = fault === undefined && context.isGone;
    return {
      requestId: context.requestId,
      createdMs: Math.round(clock.nowMs() - tookMs),
      accountId: caller?.accountId ?? '',
      keyId: caller?.keyId ?? '',
      route: `${request.method ?? ''} ${route?.path ?? 'unknown path'}`,
      modelId: notes.model ?? fault?.options.modelId,
      engine: tries.at(-1)?.engine ?? notes.replica,
      status: context.answered ? context.statusCode : CLIENT_CLOSED,
      code: fault?.code ?? '',
      tookMs: Math.round(tookMs),
      facts: {
        message: isGone ? 'The caller disconnected' : scrubber.scrubMessage(message),
        cause: cause === undefined ? '' : scrubber.scrubMessage(reasonOf(cause)),
        parameters: parametersOf(body),
        tries,
      },
      prompt: config.current.log.failedPrompts
        ? context.body.toString('utf8', 0, MAX_PROMPT_BYTES)
        : undefined,
    };
  }

  /** Credentials of engines and nodes, which could be in their error messages. */
  #secretsOf(config: Config): readonly string[] {
    if (this.#secrets?.of === config) return this.#secrets.all;
    const nodes = Object.values(config.rpc.networks).flatMap(({ upstreams }) => upstreams);
    const headers = [...Object.values(config.engines), ...nodes].flatMap((one) =>
      Object.values(one.headers ?? {}),
    );
    const keys = Object.values(config.engines).flatMap(({ apiKey }) => apiKey ?? []);
    this.#secrets = { of: config, all: [...keys, ...headers] };
    return this.#secrets.all;
  }
}

/** The error message of the response: bodies of payment errors have their own. */
function messageOf({ message, options: { body } }: Fault): string {
  if (!isJsonObject(body)) return message;
  const own = body['message'] ?? body['error'];
  return typeof own === 'string' ? own : message;
}

/** `rack1/tiny timeout after 30000 ms: message of the engine` */
function tryText({ engine, target, result, status, tookMs, detail, words }: RequestTry): string {
  const shown = status === undefined ? result : `${result} (HTTP ${status})`;
  const reason = [detail, words].filter((text) => text !== '').join('; ');
  return `${engine}/${target} ${shown} after ${tookMs} ms${reason === '' ? '' : `: ${reason}`}`;
}
