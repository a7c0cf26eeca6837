/**
 * Turns the refusal of an engine into a Fault of this service: our own engines name a code of the
 * catalogue and speak to callers, of others only the status counts.
 */
import { FAULTS, Fault, type FaultCode } from '../../core/faults.ts';

const MAX_MESSAGE_CHARACTERS = 300;

function isFaultCode(code: unknown): code is FaultCode {
  return typeof code === 'string' && Object.hasOwn(FAULTS, code);
}

interface Body {
  readonly error?: unknown;
  readonly code?: unknown;
}

function parse(body: Buffer | null): Body {
  try {
    const value: unknown = JSON.parse(String(body));
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    // An engine may refuse in any words; without JSON only the status counts.
    return {};
  }
}

function wordsOf({ error }: Body): string | undefined {
  const inner =
    typeof error === 'object' && error !== null && 'message' in error ? error.message : error;
  return typeof inner === 'string' && inner !== ''
    ? inner.slice(0, MAX_MESSAGE_CHARACTERS)
    : undefined;
}

/**
 * The Fault of an engine's 4xx answer. `byStatus` names the code for a status when the body names
 * none of ours; `fallback` is for the rest.
 */
export function refusalFault(
  refusal: {
    readonly status: number | null;
    readonly body: Buffer | null;
    readonly isOwn: boolean;
  },
  byStatus: Readonly<Record<number, FaultCode>>,
  fallback: FaultCode,
): Fault {
  const body = refusal.isOwn ? parse(refusal.body) : {};
  const own = isFaultCode(body.code) && FAULTS[body.code].status === refusal.status;
  const code =
    own && isFaultCode(body.code) ? body.code : (byStatus[refusal.status ?? 0] ?? fallback);
  const message = wordsOf(body);
  return new Fault(code, { ...(message !== undefined && { message }), canRetry: false });
}
