/**
 * The failure of a media engine as the caller hears it. Embedded engines name a code of the
 * catalogue and speak to callers, and are passed on; of others the status is mapped to the code
 * that the endpoint promises, and their words stay in the log.
 */
import { parsedJsonObject } from '../json/json-text.ts';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { engineFault } from './engine-refusal.ts';
import type { EngineFailure } from './engines.ts';

export interface RefusalCodes {
  readonly byStatus: Readonly<Record<number, FaultCode>>;
  /** For a 4xx without a code. */
  readonly refused: FaultCode;
  /** For a 5xx without a code. */
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

interface OwnWords {
  readonly code?: FaultCode | undefined;
  readonly message?: string | undefined;
}

/** What an engine of our own has said: a code counts only with the status that belongs to it. */
function ownWords({ isOwn, status, body }: EngineFailure): OwnWords {
  if (!isOwn) return {};
  // A child that dies says nothing more; only the status counts.
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
