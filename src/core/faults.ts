/**
 * An expected error, thrown. Its message, fields and headers are public and reach a response only
 * through `http/error-response.ts`; its `cause` is internal.
 */
import { FAULTS } from './fault-table.ts';

export { FAULTS } from './fault-table.ts';

export type FaultCode = keyof typeof FAULTS;

export interface FaultOptions {
  /** The public message: what was wrong and what would be right. Capital letter, no full stop. */
  readonly message?: string;
  /** zod's formatted tree: `_errors` plus one key per invalid field. */
  readonly details?: unknown;
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Replaces the whole body, for shapes that a specification fixes (402 bodies). */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly modelId?: string;
  readonly retryAfterSeconds?: number;
  readonly canRetry?: boolean;
  readonly cause?: unknown;
}

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

/** Returns a validation fault for one field, in the shape that zod returns for many. */
export function invalidField(path: readonly string[], message: string): Fault {
  let details: Record<string, unknown> = { _errors: [message] };
  for (const key of path.toReversed()) details = { _errors: [], [key]: details };
  return new Fault('INVALID_REQUEST', { message, details });
}
