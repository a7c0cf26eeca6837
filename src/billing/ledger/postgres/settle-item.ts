/**
 * A settle out of a lease, and what of it a statement is sent: its receipt, with the types of the
 * columns, as a record in the literal of an array.
 */
import { DAY_MS, dayOf } from '../../../core/clock.ts';
import type { SettleRequest } from '../records.ts';
import { LATE_AFTER_MS } from '../spent-ever.ts';

/** A settle out of a row of `ledger_hold`, with what of the cost is USD and what daily credit. */
export interface LeaseSettle {
  readonly request: SettleRequest;
  readonly leaseId: string;
  readonly allowanceId: string | undefined;
  readonly budgetIds: readonly string[] | undefined;
  /** The row is for this request alone: what the request leaves of it is given back. */
  readonly isLast: boolean;
  readonly usdNano: bigint;
  readonly dailyNano: bigint;
  /** What the hold set aside. */
  readonly reservedNano: bigint;
}

const BIGINT = 'bigint';
/** What of an item its receipt has, with the types of the columns, in their order. */
export const RECEIPT = {
  request_id: 'text',
  day: BIGINT,
  created_ms: BIGINT,
  account_id: 'text',
  key_id: 'text',
  kind: 'text',
  model_id: 'text',
  replica: 'text',
  attempts: BIGINT,
  prompt_tokens: BIGINT,
  completion_tokens: BIGINT,
  cached_tokens: BIGINT,
  cache_write_tokens: BIGINT,
  reasoning_tokens: BIGINT,
  counted_by: 'text',
  price_version: 'text',
  usd: BIGINT,
  diem: BIGINT,
  latency_ms: BIGINT,
  first_token_ms: BIGINT,
  status: 'text',
  extras: 'text',
  metadata: 'text',
  reserved: BIGINT,
} as const;
export type ReceiptField = keyof typeof RECEIPT;
export const FIELDS = Object.keys(RECEIPT) as ReceiptField[]; // its own
/**
 * An item by the attributes of the type `ledger_settle`, in their order; other ones are another type.
 * What earlier versions sent in the first one was a number too; what is null now came in others.
 */
export const ITEM_FIELDS = [
  'usd_so_far',
  'lease_id',
  'allowance_id',
  'budget_ids',
  'is_last',
  'is_late',
  ...FIELDS,
] as const;

export type Item = ReturnType<typeof itemOf>;

/**
 * The literal of an array of `ledger_settle`, which PostgreSQL reads in a quarter of the time that it
 * takes for objects of JSON. Null is nothing at all; quotes and backslashes of a text are escaped for
 * its record, and what escapes them for the array.
 */
export function itemsText(items: readonly Item[]): string {
  let text = '{';
  for (const item of items) {
    text += text === '{' ? '"(' : ',"(';
    let separator = '';
    for (const field of ITEM_FIELDS) {
      const value = item[field];
      text += separator;
      separator = ',';
      if (typeof value === 'string') text += `\\"${escaped(value)}\\"`;
      else if (value !== null) text += String(value);
    }
    text += ')"';
  }
  return `${text}}`;
}

/** The literal of an array of texts. */
export function textsText(texts: Iterable<string>): string {
  let text = '{';
  for (const one of texts) {
    text += `${text === '{' ? '' : ','}"${one.replaceAll(SPECIAL, String.raw`\$&`)}"`;
  }
  return `${text}}`;
}

const SPECIAL = /["\\]/g;
const ESCAPED = { '"': String.raw`\\\"`, '\\': String.raw`\\\\` } as const;

function escaped(text: string): string {
  // Nearly no text has one, and to look for a letter is quicker.
  if (!text.includes('"') && !text.includes('\\')) return text;
  return text.replaceAll(SPECIAL, (one) => ESCAPED[one as keyof typeof ESCAPED]); // matched above
}

export function itemOf(settle: LeaseSettle, usdSoFar: bigint, nowMs: number) {
  const { usage } = settle.request;
  const day = dayOf(usage.createdMs);
  return {
    usd_so_far: usdSoFar,
    lease_id: settle.leaseId,
    allowance_id: null,
    budget_ids: null,
    is_last: null,
    is_late: nowMs - day * DAY_MS >= LATE_AFTER_MS,
    usd: settle.usdNano,
    diem: settle.dailyNano,
    reserved: settle.reservedNano,
    request_id: usage.requestId,
    day,
    created_ms: usage.createdMs,
    account_id: usage.accountId,
    key_id: usage.keyId,
    kind: usage.kind,
    model_id: usage.modelId,
    replica: usage.replica ?? null,
    attempts: usage.attempts,
    prompt_tokens: usage.tokens.prompt,
    completion_tokens: usage.tokens.completion,
    cached_tokens: usage.tokens.cached,
    cache_write_tokens: usage.tokens.cacheWrite,
    reasoning_tokens: usage.tokens.reasoning,
    counted_by: usage.countedBy,
    price_version: usage.priceVersion,
    latency_ms: Math.round(usage.latencyMs),
    first_token_ms: usage.firstTokenMs === undefined ? null : Math.round(usage.firstTokenMs),
    status: usage.status,
    extras: usage.extras === undefined ? null : JSON.stringify(usage.extras),
    metadata: usage.metadata === undefined ? null : JSON.stringify(usage.metadata),
  };
}
