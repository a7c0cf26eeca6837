/**
 * What a charge leaves behind: its postings and its receipt, and the sums by day, key, model and tag,
 * which every overview reads instead of the receipts.
 */
import { DAY_MS, dayOf } from '../../core/clock.ts';
import type { Nano } from '../../core/money.ts';
import type { Parameter } from '../../db/db.ts';
import type { RequestMetadata, UsageRecord } from './records.ts';
import { FORGET_SUMS, LATE_AFTER_MS } from './spent-ever.ts';
import { type Writer, writeTransfer } from './states.ts';

/** What a charge took. */
export interface Taken {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

/** One request that is charged now, as the records need it. */
export interface Charge extends Taken {
  readonly usage: UsageRecord;
  readonly creditDay: number;
  readonly balanceAfterNano: Nano;
  /** What its hold set aside; `null` when that was gone. */
  readonly reservedNano: bigint | null;
}

const INSERT_USAGE = `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind,
  model_id, replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
  reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms,
  status, extras, metadata, reserved_nano) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
  $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)`;

/** What is the same of every charge is not bound. */
const INSERT_CHARGE = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
  credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)
  VALUES ($1, 0, $2, $3, $3, 'house:revenue', $4, $5, 'CHARGE', $1, $6, NULL, $7)`;

/** The postings of a charge and its receipt. */
export function record(writer: Writer, charge: Charge, nowMs: number): void {
  const { usage, usdNano, diemNano, balanceAfterNano } = charge;
  const { requestId, accountId, modelId } = usage;
  if (usdNano > 0n) {
    writer.execute(INSERT_CHARGE, [
      requestId,
      dayOf(nowMs),
      accountId,
      usdNano,
      balanceAfterNano,
      modelId,
      nowMs,
    ]);
  }
  if (diemNano > 0n) {
    writeTransfer(writer, {
      id: requestId,
      part: 1,
      day: charge.creditDay,
      accountId,
      debitAccount: 'house:daily-credit',
      creditAccount: 'house:revenue',
      amountNano: diemNano,
      balanceAfterNano,
      kind: 'CHARGE',
      requestId,
      modelId,
      nowMs,
    });
  }
  const { tokens, firstTokenMs, extras, metadata } = usage;
  writer.execute(INSERT_USAGE, [
    usage.requestId,
    dayOf(usage.createdMs),
    usage.createdMs,
    usage.accountId,
    usage.keyId,
    usage.kind,
    usage.modelId,
    usage.replica ?? null,
    usage.attempts,
    tokens.prompt,
    tokens.completion,
    tokens.cached,
    tokens.cacheWrite,
    tokens.reasoning,
    usage.countedBy,
    usage.priceVersion,
    usdNano,
    diemNano,
    Math.round(usage.latencyMs),
    firstTokenMs === undefined ? null : Math.round(firstTokenMs),
    usage.status,
    extras === undefined ? null : JSON.stringify(extras),
    metadata === undefined ? null : JSON.stringify(metadata),
    charge.reservedNano,
  ]);
  if (metadata !== undefined) addToTags(writer, charge, metadata);
}

/** What the row of a sum becomes when more is added to it. */
export function added(table: 'ledger_usage_day' | 'ledger_usage_tag'): string {
  const columns = [
    'requests',
    'errors',
    'prompt_tokens',
    'completion_tokens',
    'usd_nano',
    'diem_nano',
  ];
  return columns.map((name) => `${name} = ${table}.${name} + excluded.${name}`).join(', ');
}

const ADD_TO_TAG = `INSERT INTO ledger_usage_tag (account_id, name, day, value, key_id, model_id,
  requests, errors, prompt_tokens, completion_tokens, usd_nano, diem_nano)
  VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $8, $9, $10, $11)
  ON CONFLICT (account_id, name, day, value, key_id, model_id) DO UPDATE SET
  ${added('ledger_usage_tag')}`;

/** Adds a charge to the sums of each of its tags. */
function addToTags(
  writer: Writer,
  { usage, usdNano, diemNano }: Charge,
  metadata: RequestMetadata,
): void {
  const { accountId, keyId, modelId, tokens } = usage;
  const day = dayOf(usage.createdMs);
  for (const [name, value] of Object.entries(metadata)) {
    const row: Parameter[] = [accountId, name, day, value, keyId, modelId];
    const sums = [IS_ERROR[usage.status], tokens.prompt, tokens.completion, usdNano, diemNano];
    writer.execute(ADD_TO_TAG, [...row, ...sums]);
  }
}

/** What a sum counts as an error: no answer came of it. */
const IS_ERROR: Readonly<Record<UsageRecord['status'], 0 | 1>> = {
  completed: 0,
  aborted: 0,
  failed: 1,
  expired: 1,
  running: 0,
};

const ADD_TO_DAY = `INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, requests, errors,
  prompt_tokens, completion_tokens, usd_nano, diem_nano)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
  ON CONFLICT (account_id, day, key_id, model_id) DO UPDATE SET
  ${added('ledger_usage_day')}`;

interface DaySum {
  readonly usage: UsageRecord;
  readonly day: number;
  requests: number;
  errors: number;
  prompt: number;
  completion: number;
  usdNano: bigint;
  diemNano: bigint;
}

/** Adds charges to the rows of their days, one write a row: a tick has a few accounts and models. */
export function addToDays(writer: Writer, charges: readonly Charge[], nowMs: number): void {
  const sums: DaySum[] = [];
  for (const { usage, usdNano, diemNano } of charges) {
    const day = dayOf(usage.createdMs);
    let sum = sums.find((one) => one.day === day && isSameRow(one.usage, usage));
    if (sum === undefined) {
      sum = {
        usage,
        day,
        requests: 0,
        errors: 0,
        prompt: 0,
        completion: 0,
        usdNano: 0n,
        diemNano: 0n,
      };
      sums.push(sum);
    }
    sum.requests += 1;
    sum.errors += IS_ERROR[usage.status];
    sum.prompt += usage.tokens.prompt;
    sum.completion += usage.tokens.completion;
    sum.usdNano += usdNano;
    sum.diemNano += diemNano;
  }
  for (const { usage, day, requests, errors, prompt, completion, usdNano, diemNano } of sums) {
    const { accountId, keyId, modelId } = usage;
    writer.execute(ADD_TO_DAY, [
      accountId,
      day,
      keyId,
      modelId,
      requests,
      errors,
      prompt,
      completion,
      usdNano,
      diemNano,
    ]);
    if (nowMs - day * DAY_MS >= LATE_AFTER_MS) writer.execute(FORGET_SUMS, [accountId]);
  }
}

function isSameRow(a: UsageRecord, b: UsageRecord): boolean {
  return a.accountId === b.accountId && a.keyId === b.keyId && a.modelId === b.modelId;
}
