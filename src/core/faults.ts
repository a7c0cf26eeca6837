/**
 * An expected refusal, thrown. It carries a public part (message, fields, headers) and an internal
 * `cause`; only the public part reaches a body, and only through `http/error-response.ts`.
 */
import { FAULTS } from './fault-table.ts';

export { FAULTS } from './fault-table.ts';

export type FaultCode = keyof typeof FAULTS;

export interface FaultOptions {
  /** The public sentence: what was wrong and what would be right. Capital letter, no full stop. */
  readonly message?: string;
  /** zod's formatted tree: `_errors` plus one key per invalid field. */
  readonly details?: unknown;
  /** Further public fields of the body. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Replaces the whole body, for the shapes that the specification fixes (402 bodies). */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** The model that could not be had, for the headers of an answer that knows no more of it. */
  readonly modelId?: string;
  /** Sets `Retry-After`. */
  readonly retryAfterSeconds?: number;
  /** Where this one differs from its kind. */
  readonly canRetry?: boolean;
  /** For the log only. */
  readonly cause?: unknown;
}

/** An expected refusal. Throw it; `http/error-response.ts` makes it an answer. */
export class Fault extends Error {
  override readonly name = 'Fault';
  readonly code: FaultCode;
  readonly status: number;
  readonly options: FaultOptions;

  constructor(code: FaultCode, options: FaultOptions = {}) {
    super(options.message ?? FAULTS[code].message, { cause: options.cause });
    this.code = code;
    this.status = FAULTS[code].status;
    this.options = options;
  }
}

/** A validation fault for one field, in the shape that zod gives for many. */
export function invalidField(path: readonly string[], message: string): Fault {
  let details: Record<string, unknown> = { _errors: [message] };
  for (const key of path.toReversed()) details = { _errors: [], [key]: details };
  return new Fault('INVALID_REQUEST', { message, details });
}
