/**
 * Classifies the reply of a node: a result for the caller, or a fault of the node.
 *
 * The body takes precedence over the status. A result is a response under any status. So is an
 * error object, unless its HTTP status or code means quota, account or outage: these are faults of
 * the upstream, another upstream may succeed, and their text is never sent to a caller. Error
 * messages are only read together with the one code that a provider is known to use with them,
 * because a message alone may be a revert reason or an echo of the request, which the caller
 * controls.
 */
import type { ReplySpan } from '../json/json-spans.ts';
import type { Family } from './catalogue.ts';

/**
 * Faults of an upstream. `refused`: it rejected the request itself (a plain 4xx);
 * `request-too-large`: it rejects requests of this size; `unread`: it closed the connection before
 * reading a large request; `stray`: it sent the reply to another call.
 */
export type UpstreamFault =
  | 'transport'
  | 'timeout'
  | 'unread'
  | 'quota'
  | 'auth'
  | 'broken'
  | 'stray'
  | 'refused'
  | 'too-large'
  | 'request-too-large';

export interface ItemResponse {
  readonly kind: 'response';
  readonly outcome: 'success' | 'error' | 'unknown-id';
  readonly bytes: Buffer;
  readonly span: ReplySpan;
  readonly isNull: boolean;
  readonly error: NodeError | undefined;
}

export interface NodeError {
  readonly code: number;
  readonly message: string;
}

/** Larger error objects are passed on as a response without being read. */
const MAX_ERROR_READ_BYTES = 65_536;
const LETTER_N = 0x6e;

/** Codes that concern the call under any status: revert, unknown method, invalid params. */
const CALL_CODES = new Set([3, -32601, -32602]);
/** Codes that mean the quota of the operator's account. */
const QUOTA_CODES = new Set([429, -32029, -32090, -32097]);
/** EIP-1474 "limit exceeded": of the account, or of a single call. */
const LIMIT_CODE = -32005;
const ACCOUNT_LIMIT =
  /rate.?limit|request rate|request count|(requests?|rps) limit|too many (queued |concurrent )?requests|queued requests|capacity|compute unit|quota/i;

/** Messages of single providers with a code that other nodes use for errors of the call. */
const PROVIDER_FAULTS: ReadonlyMap<number, readonly [RegExp, UpstreamFault]> = new Map([
  // 1RPC.
  [-32001, [/^you've reached the usage limit for your current plan/i, 'quota']],
  // QuickNode; Besu: the sender is not authorized.
  [-32007, [/^\d{1,12}\/(second|minute) request limit reached/i, 'quota']],
  // QuickNode; Besu: the gas price is too low.
  [-32009, [/^trace requests limited to \d/i, 'quota']],
  // proxyd (Base, OP); Nethermind: the transaction is refused.
  [-32010, [/^backend offline$/i, 'broken']],
  [-32011, [/^no backends? (is currently healthy|available)/i, 'broken']],
  // QuickNode and proxyd.
  [-32012, [/^(credits limited to \d|backend is over capacity$)/i, 'quota']],
  [-32013, [/^backend returned an invalid response$/i, 'broken']],
  // proxyd; Nethermind: the call reverted.
  [-32015, [/^gateway timeout$/i, 'broken']],
  [-32016, [/^over rate limit$/i, 'quota']],
  // Ankr.
  [-32055, [/^no nodes available$/i, 'broken']],
  // dRPC.
  [15, [/^too many requests?\b/i, 'quota']],
  [19, [/^temporary internal error/i, 'broken']],
]);

/**
 * Classifies one item of a reply. `status` is the HTTP status of the reply; `hasId` is `false` for
 * an item without an id.
 */
export function judgeItem(
  bytes: Buffer,
  span: ReplySpan,
  status: number,
  family: Family,
  hasId: boolean,
): ItemResponse | UpstreamFault {
  if (span.errorStart < 0 || bytes[span.errorStart] === LETTER_N) {
    if (span.resultStart < 0) return 'broken';
    const isNull = bytes[span.resultStart] === LETTER_N;
    const outcome = hasId ? 'success' : 'unknown-id';
    return { kind: 'response', outcome, bytes, span, isNull, error: undefined };
  }
  const error = readError(bytes, span.errorStart, span.errorEnd);
  // The body is from a gateway instead of a node.
  if (error === undefined) return faultOfStatus(status);
  const fault = faultOfError(error, status, family);
  return fault ?? { kind: 'response', outcome: 'error', bytes, span, isNull: false, error };
}

export function faultOfStatus(status: number): UpstreamFault {
  if (status === 429) return 'quota';
  if (status === 401 || status === 402 || status === 403 || status === 407) return 'auth';
  return REJECTING_STATUSES.has(status) ? 'refused' : 'broken';
}

/** Statuses that reject the request itself; 404 and 405 mean a wrong URL. */
const REJECTING_STATUSES = new Set([400, 413, 414, 415, 422, 431]);

function faultOfError(error: NodeError, status: number, family: Family): UpstreamFault | undefined {
  if (status === 429) return 'quota';
  if (CALL_CODES.has(error.code)) return undefined;
  if (status === 401 || status === 402 || status === 403 || status === 407) return 'auth';
  // A gateway without a working node, or an unspecific server error.
  if (status > 500 || (status === 500 && error.code === -32603)) return 'broken';
  if (QUOTA_CODES.has(error.code)) return 'quota';
  // On Solana the code means that the node is behind or unhealthy.
  if (error.code === LIMIT_CODE)
    return family === 'solana' || ACCOUNT_LIMIT.test(error.message) ? 'quota' : undefined;
  const known = family === 'evm' ? PROVIDER_FAULTS.get(error.code) : undefined;
  return known !== undefined && known[0].test(error.message) ? known[1] : undefined;
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
