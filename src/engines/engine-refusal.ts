/**
 * Converts the failure of an engine into the Fault for the caller. The engine's message is shown
 * only if the engine rejects the request; it is shortened and stripped of addresses. All other
 * messages are only logged.
 */
import type { EngineFailure, FailureReason } from './engines.ts';
import { Fault } from '../core/faults.ts';
import { errorMeaning, errorWords, type ErrorWords, eventStatus } from './error-meanings.ts';
import { verdictOfError } from './verdict.ts';

/** `Retry-After` of 30 seconds, because an overloaded model recovers slowly. */
const OVERLOADED_RETRY_SECONDS = 30;
const OFFLINE_RETRY_SECONDS = 10;
const MAX_SHOWN_CHARACTERS = 500;

export type KnownFailure = Pick<
  EngineFailure,
  'reason' | 'message' | 'status' | 'body' | 'retryAfterSeconds'
>;

/** The Fault for a failed call; `aborted` has none, since the caller has disconnected. */
export function engineFault(failure: KnownFailure, modelId: string): Fault {
  const { message: cause, reason } = failure;
  if (reason === 'refused') return refusedFault(failure, modelId);
  if (reason === 'unsupported') {
    const message = `No engine of the model ${modelId} supports this kind of work: choose another model`;
    return new Fault('INVALID_MODEL', { message, cause });
  }
  if (reason === 'timeout') return new Fault('REQUEST_TIMEOUT', { cause });
  if (reason === 'overloaded') {
    return new Fault('MODEL_OVERLOADED', {
      message: `The model ${modelId} is overloaded`,
      retryAfterSeconds: failure.retryAfterSeconds ?? OVERLOADED_RETRY_SECONDS,
      cause,
    });
  }
  if (reason === 'unreachable') {
    return new Fault('MODEL_OFFLINE', {
      message: `The model ${modelId} is offline: none of its engines responds`,
      retryAfterSeconds: OFFLINE_RETRY_SECONDS,
      cause,
    });
  }
  return new Fault('INFERENCE_FAILED', { cause });
}

/** The Fault for a failed call, and whether a fallback of the model may run instead. */
export function failedCall(
  failure: KnownFailure,
  modelId: string,
): { readonly fault: Fault; readonly isUnavailable: boolean } {
  return { fault: engineFault(failure, modelId), isUnavailable: isUnavailable(failure.reason) };
}

interface ErrorEvent {
  readonly message: string;
  readonly type: string | undefined;
  readonly code: string | undefined;
}

/** An error within a stream as the failure that a response with this error would be. */
export function eventFailure({ message, type, code }: ErrorEvent): KnownFailure {
  const status = eventStatus([code, type]) ?? 500;
  const body = Buffer.from(JSON.stringify({ error: { message, code: code ?? type } }));
  const { reason } = verdictOfError(status, body);
  const failure = { message, status, body, retryAfterSeconds: null };
  // The engine responded, so at most a server behind it is unreachable.
  return { ...failure, reason: reason === 'unreachable' ? 'failed' : reason };
}

/** The Fault for an error within a stream. Too much load and a rate limit stay different errors. */
export function eventFault(failure: KnownFailure, modelId: string): Fault {
  const fault = engineFault(failure, modelId);
  if (fault.code !== 'MODEL_OVERLOADED' || failure.status === 429) return fault;
  return new Fault('MODEL_AT_CAPACITY', fault.options);
}

function refusedFault(failure: KnownFailure, modelId: string): Fault {
  const words = engineWords(failure.body);
  const meaning = errorMeaning(failure.status ?? 0, failure.body);
  if (meaning === 'moderation') {
    return new Fault('CONTENT_POLICY_VIOLATION', { message: words.message });
  }
  if (failure.status === 413 && meaning === undefined) return new Fault('PAYLOAD_TOO_LARGE');
  return new Fault('INVALID_REQUEST', {
    message: `The engine of ${modelId} rejected the request: ${words.message}`,
    cause: failure.message,
  });
}

export function saysContextOverflow({ reason, status, body }: KnownFailure): boolean {
  return reason === 'refused' && errorMeaning(status ?? 0, body) === 'overflow';
}

/** Code and message of an error body; the message is safe to show to the caller. */
export function engineWords(body: Buffer | null): ErrorWords {
  const { message, code } = errorWords(body);
  return { message: shown(message), code };
}

/** Matches messages about the machine or the program instead of the request. */
const INTERNAL =
  /\bcuda|out of memory|traceback|exception|errno|\bE(?:CONN|PIPE|IO)|0x[\da-f]{4}|\.(?:py|cpp|cu|so|rs)\b|(?:^|[\s"'(])\/(?:usr|home|root|srv|opt|var|tmp|etc|mnt|app|workspace)\//i;

/** One short line without addresses or internals of the engine. */
function shown(message: string): string {
  if (INTERNAL.test(message)) return 'it gave no reason';
  const flat = message
    .replaceAll(/https?:\/\/\S+/g, '[address]')
    .replaceAll(/\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{1,5})?\b/g, '[address]')
    .replaceAll(/\s+/g, ' ')
    .trim();
  if (flat === '') return 'it gave no reason';
  return flat.length > MAX_SHOWN_CHARACTERS ? `${flat.slice(0, MAX_SHOWN_CHARACTERS)}…` : flat;
}

/** The engines cannot respond, and none has rejected the request. */
const UNAVAILABLE: ReadonlySet<FailureReason> = new Set([
  'unreachable',
  'timeout',
  'overloaded',
  'misconfigured',
  'unsupported',
  'failed',
  'broken',
  'garbage',
]);

/** Whether a fallback of the model may run the request instead. */
export function isUnavailable(reason: FailureReason): boolean {
  return UNAVAILABLE.has(reason);
}
