/**
 * The failure of a media engine as the caller hears it. Embedded engines speak in codes of our own
 * and are passed on; of others the status is mapped to the code that the endpoint promises, and
 * their words stay in the log.
 */
import type { EngineFailure } from './engines.ts';
import { refusalFault } from './local/local.ts';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { engineFault } from './engine-refusal.ts';

export interface RefusalCodes {
  readonly byStatus: Readonly<Record<number, FaultCode>>;
  /** For a 4xx without a code. */
  readonly refused: FaultCode;
  /** For a 5xx without a code. */
  readonly failed: FaultCode;
}

export function mediaEngineFault(
  failure: EngineFailure,
  modelId: string,
  codes: RefusalCodes,
): Fault {
  if (failure.reason === 'refused') return refusalFault(failure, codes.byStatus, codes.refused);
  const own = refusalFault(failure, {}, 'UNKNOWN_ERROR');
  const isOwn = own.code !== 'UNKNOWN_ERROR' && FAULTS[own.code].status === failure.status;
  if (isOwn && failure.status !== 401) {
    const seconds = failure.retryAfterSeconds;
    return new Fault(own.code, {
      message: own.message,
      ...(seconds === null ? {} : { retryAfterSeconds: seconds }),
    });
  }
  if (['failed', 'broken', 'garbage'].includes(failure.reason)) {
    return new Fault(codes.failed, { cause: failure.message });
  }
  return engineFault(failure, modelId);
}
