/**
 * Converts the failure of a media engine into the Fault for the caller. Embedded engines return a
 * code of the error catalog and a message for callers, which are passed on. For other engines the
 * status is mapped to a code that the endpoint documents, and the message is only logged.
 */
import { parsedJsonObject } from '../json/json-text.ts';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { engineFault } from './engine-refusal.ts';
import type { EngineFailure } from './engines.ts';

export interface RefusalCodes {
  readonly byStatus: Readonly<Record<number, FaultCode>>;
  /** Code for a 4xx without its own code. */
  readonly refused: FaultCode;
  /** Code for a 5xx without its own code. */
  readonly failed: FaultCode;
}

const MAX_MESSAGE_CHARACTERS = 300;

export function mediaEngineFault(
  failure: EngineFailure,
  modelId: string,
  codes: RefusalCodes,
): Fault {
  const { reason, status, retryAfterSeconds } = failure;
  const { code, message } = ownWords(failure);
  const words = message === undefined ? {} : { message };
  if (reason === 'refused') {
    const mapped = code ?? codes.byStatus[status ?? 0] ?? codes.refused;
    return new Fault(mapped, { ...words, canRetry: false });
  }
  if (code !== undefined && code !== 'UNKNOWN_ERROR' && status !== 401) {
    return new Fault(code, { ...words, ...(retryAfterSeconds !== null && { retryAfterSeconds }) });
  }
  if (['failed', 'broken', 'garbage'].includes(reason)) {
    return new Fault(codes.failed, { cause: failure.message });
  }
  return engineFault(failure, modelId);
}

/** The embedded voice states the reason for callers, such as that it is being downloaded. */
export function speechEngineFault(failure: EngineFailure, modelId: string): Fault {
  const codes = { byStatus: {}, refused: 'INVALID_REQUEST', failed: 'INFERENCE_FAILED' } as const;
  return failure.isOwn ? mediaEngineFault(failure, modelId, codes) : engineFault(failure, modelId);
}

interface OwnWords {
  readonly code?: FaultCode | undefined;
  readonly message?: string | undefined;
}

/** Code and message of an embedded engine; a code counts only with its own status. */
function ownWords({ isOwn, status, body }: EngineFailure): OwnWords {
  if (!isOwn) return {};
  // A crashed child returns no code; only the status counts.
  const { code, error } = parsedJsonObject(String(body)) ?? {};
  const { message = error } = (error ?? {}) as { readonly message?: unknown };
  return {
    code: isFaultCode(code) && FAULTS[code].status === status ? code : undefined,
    message:
      typeof message === 'string' && message !== ''
        ? message.slice(0, MAX_MESSAGE_CHARACTERS)
        : undefined,
  };
}

function isFaultCode(code: unknown): code is FaultCode {
  return typeof code === 'string' && Object.hasOwn(FAULTS, code);
}
