/**
 * Whose answer is it: what a node said to the caller, or the node's own trouble?
 *
 * The body decides before the status does. A result is an answer under any status; an error object
 * of a healthy node is final; quota, billing, auth and broken bodies are faults of the upstream,
 * which another upstream may heal and whose text never reaches a caller.
 */
import type { ReplySpan } from '../kernel/json-span.ts';
import type { Family } from './catalogue.ts';

/** What is wrong with an upstream. `refused`: it refused the request as such (a plain 4xx). */
export type UpstreamFault = 'transport' | 'quota' | 'auth' | 'broken' | 'refused' | 'too-large';

export type ItemVerdict =
  | { readonly kind: 'result'; readonly isNull: boolean }
  | { readonly kind: 'error'; readonly error: NodeError }
  | { readonly kind: 'fault'; readonly fault: UpstreamFault };

/** The parts of an error object that classification reads; never logged, never shown. */
export interface NodeError {
  readonly code: number;
  readonly message: string;
}

/** Error objects up to this size are read; a larger one is an answer by itself. */
const MAX_ERROR_READ_BYTES = 65_536;
const LETTER_N = 0x6e;

/** Codes that always speak about the call, never about the node's account or load. */
const FINAL_CODES = new Set([3, -32700, -32601, -32602]);
/** Solana: preflight failure, signature verification, skipped slots, unsupported version. */
const SOLANA_FINAL_CODES = new Set([
  -32002, -32003, -32004, -32007, -32009, -32013, -32015, -32016,
]);
const QUOTA_CODES = new Set([429, -32029, -32097]);
/** EIP-1474 "limit exceeded"; on Solana "node is unhealthy". */
const LIMIT_CODE = -32005;
/** QuickNode's "request limit reached"; on Solana a skipped slot. */
const REQUEST_LIMIT_CODE = -32007;

/** Limits on what a call asks for, not on how often: the caller can narrow the call. */
const NARROW_THE_CALL =
  /more than|block range|range (is )?too|response size|too many results|log response|max results/i;
const QUOTA_TEXT =
  /rate.?limit|too many requests|request limit|over capacity|capacity (limit|exceeded)|exceeded .{0,20}(quota|capacity|compute units|plan)|quota (exceeded|reached)|daily (request|limit)|compute units|credits? (exhausted|limit)|usage limit|throttl/i;
const AUTH_TEXT =
  /api.?key|unauthori[sz]ed|not authori[sz]ed|forbidden|authenticat|billing|payment required|subscription|project id|access denied|insufficient credits|out of credits/i;

const RESULT = { kind: 'result', isNull: false } as const;
const NULL_RESULT = { kind: 'result', isNull: true } as const;

/** Judges one item; `status` is that of the HTTP reply that carried it. */
export function judgeItem(
  bytes: Buffer,
  item: ReplySpan,
  status: number,
  family: Family,
): ItemVerdict {
  const hasError = item.errorStart >= 0 && bytes[item.errorStart] !== LETTER_N;
  if (!hasError) {
    if (item.resultStart < 0) return { kind: 'fault', fault: 'broken' };
    return bytes[item.resultStart] === LETTER_N ? NULL_RESULT : RESULT;
  }
  const error = readError(bytes, item.errorStart, item.errorEnd);
  const fault = faultOfError(error, status, family);
  return fault === undefined ? { kind: 'error', error } : { kind: 'fault', fault };
}

/** Judges a reply whose body is no JSON-RPC reply at all. */
export function faultOfStatus(status: number): UpstreamFault {
  if (status === 429) return 'quota';
  if (status === 401 || status === 402 || status === 403 || status === 407) return 'auth';
  return REFUSING_STATUSES.has(status) ? 'refused' : 'broken';
}

/** Statuses by which a node refuses the request itself; 404 and 405 speak of a wrong address. */
const REFUSING_STATUSES = new Set([400, 413, 414, 415, 422, 431]);

function faultOfError(error: NodeError, status: number, family: Family): UpstreamFault | undefined {
  if (status === 401 || status === 402 || status === 403) return 'auth';
  if (status === 429) return 'quota';
  if (FINAL_CODES.has(error.code) || /revert/i.test(error.message)) return undefined;
  if (family === 'solana' && SOLANA_FINAL_CODES.has(error.code)) return undefined;
  if (NARROW_THE_CALL.test(error.message)) return undefined;
  if (QUOTA_CODES.has(error.code) || error.code === LIMIT_CODE) return 'quota';
  if (error.code === REQUEST_LIMIT_CODE && family === 'evm') return 'quota';
  if (QUOTA_TEXT.test(error.message)) return 'quota';
  if (AUTH_TEXT.test(error.message)) return 'auth';
  // A server error with an unspecific object: another node may well answer.
  return status >= 500 && error.code === -32603 ? 'broken' : undefined;
}

function readError(bytes: Buffer, start: number, end: number): NodeError {
  if (end - start > MAX_ERROR_READ_BYTES) return { code: 0, message: '' };
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8', start, end));
    if (typeof value === 'string') return { code: 0, message: value };
    if (typeof value !== 'object' || value === null) return { code: 0, message: '' };
    const code: unknown = Reflect.get(value, 'code');
    const message: unknown = Reflect.get(value, 'message');
    return {
      code: typeof code === 'number' ? code : Number(code) || 0,
      message: typeof message === 'string' ? message.slice(0, 500) : '',
    };
  } catch {
    // The inside of a reply is not checked by the scanner; an unreadable error stays an error.
    return { code: 0, message: '' };
  }
}
