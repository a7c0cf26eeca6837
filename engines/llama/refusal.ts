/**
 * Error responses of the llama engine in the format that OpenAI clients parse. The gateway converts
 * them into its own faults.
 */
import { FAULTS, Fault, type FaultCode } from '../../src/core/faults.ts';

/** Error codes of the protocol, and the faults whose status they use. */
const CODES = {
  invalid_request: 'INVALID_REQUEST',
  context_length_exceeded: 'CONTEXT_LENGTH_EXCEEDED',
  model_not_found: 'MODEL_NOT_FOUND',
  overloaded: 'MODEL_OVERLOADED',
  internal_error: 'INFERENCE_FAILED',
} as const satisfies Record<string, FaultCode>;

const RETRY_AFTER_SECONDS = 1;

/** An expected error; its body is also used for an error inside a stream. */
export function refusal(
  code: keyof typeof CODES,
  message: string,
  param: string | null = null,
): Fault {
  const type = FAULTS[CODES[code]].status < 500 ? 'invalid_request_error' : 'server_error';
  return new Fault(CODES[code], {
    message,
    body: { error: { message, type, code, param } },
    ...(code === 'overloaded' && { retryAfterSeconds: RETRY_AFTER_SECONDS }),
  });
}

export function overloaded(): Fault {
  return refusal('overloaded', 'Too many requests wait for this model: retry later');
}

export function notEnforceable(why: string): Fault {
  return refusal('invalid_request', `The JSON schema cannot be enforced: ${why}`, 'schema');
}
