/**
 * Classifies the reply of a node: a result for the caller, or a fault of the node.
 *
 * The body takes precedence over the status. A result is a response under any status. So is an
 * error object, unless its HTTP status or code means quota, account or outage: these are faults of
 * the upstream, another upstream may succeed, and their text is never sent to a caller. The codes
 * and messages of nodes and providers are in `node-errors.ts`.
 */
import type { ReplySpan } from '../json/json-spans.ts';
import type { Family } from './catalogue.ts';
import {
  CALL_CODES,
  isAccountLimit,
  lackOf,
  LIMIT_CODE,
  type NodeError,
  providerFault,
  QUOTA_CODES,
  type UpstreamFault,
} from './node-errors.ts';

export interface ItemResponse {
  readonly kind: 'response';
  readonly outcome: 'success' | 'error' | 'unknown-id';
  readonly bytes: Buffer;
  readonly span: ReplySpan;
  readonly isNull: boolean;
  readonly error: NodeError | undefined;
}

/** The node that sent a reply. */
export interface ReplySource {
  readonly family: Family;
  /** An error that repeats one of them concerns the account of the operator. */
  readonly secrets: readonly string[];
}

/** Larger error objects are passed on as a response without being read. */
const MAX_ERROR_READ_BYTES = 65_536;
const LETTER_N = 0x6e;

/**
 * Classifies one item of a reply. `status` is the HTTP status of the reply; `hasId` is `false` for
 * an item without an id.
 */
export function judgeItem(
  bytes: Buffer,
  span: ReplySpan,
  status: number,
  { family, secrets }: ReplySource,
  hasId: boolean,
): ItemResponse | UpstreamFault {
  if (span.errorStart < 0 || bytes[span.errorStart] === LETTER_N) {
    if (span.resultStart < 0) return 'broken';
    const isNull = bytes[span.resultStart] === LETTER_N;
    const outcome = hasId ? 'success' : 'unknown-id';
    return { kind: 'response', outcome, bytes, span, isNull, error: undefined };
  }
  const text = bytes.subarray(span.errorStart, span.errorEnd);
  if (secrets.some((secret) => text.includes(secret))) return 'auth';
  const error = readError(bytes, span.errorStart, span.errorEnd);
  // The body is from a gateway instead of a node.
  if (error === undefined) return faultOfStatus(status);
  const fault = faultOfError(error, status, family);
  if (fault !== undefined) return fault;
  const known = { ...error, lack: lackOf(error, family) };
  return { kind: 'response', outcome: 'error', bytes, span, isNull: false, error: known };
}

const AUTH_STATUSES = new Set([401, 402, 403, 407]);

export function faultOfStatus(status: number): UpstreamFault {
  if (status === 429) return 'quota';
  if (AUTH_STATUSES.has(status)) return 'auth';
  return REJECTING_STATUSES.has(status) ? 'refused' : 'broken';
}

/** Statuses that reject the request itself; 404 and 405 mean a wrong URL. */
const REJECTING_STATUSES = new Set([400, 413, 414, 415, 422, 431]);

function faultOfError(error: NodeError, status: number, family: Family): UpstreamFault | undefined {
  if (status === 429) return 'quota';
  if (CALL_CODES.has(error.code)) return undefined;
  if (AUTH_STATUSES.has(status)) return 'auth';
  // A gateway without a working node, or an unspecific server error.
  if (status > 500 || (status === 500 && error.code === -32603)) return 'broken';
  if (QUOTA_CODES.has(error.code)) return 'quota';
  // On Solana the code means that the node is behind or unhealthy.
  if (error.code === LIMIT_CODE)
    return family === 'solana' || isAccountLimit(error) ? 'quota' : undefined;
  return family === 'evm' ? providerFault(error) : undefined;
}

function readError(bytes: Buffer, start: number, end: number): NodeError | undefined {
  if (end - start > MAX_ERROR_READ_BYTES) return { code: 0, message: '' };
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8', start, end));
    if (typeof value !== 'object' || value === null) return undefined;
    const code: unknown = Reflect.get(value, 'code');
    const message: unknown = Reflect.get(value, 'message');
    return {
      code: typeof code === 'number' ? code : Number(code) || 0,
      message: typeof message === 'string' ? message.slice(0, 500) : '',
    };
  } catch {
    // The scanner does not validate the inside of a reply; unreadable JSON stays an error.
    return { code: 0, message: '' };
  }
}
