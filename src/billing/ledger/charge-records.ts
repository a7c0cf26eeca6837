/**
 * Writes the records of charges: their postings, their receipts, and the sums by day, key, model
 * and tag, which overviews read instead of the receipts. Statements of one kind follow each other,
 * so that PostgreSQL can run them as one.
 */
import { DAY_MS, dayOf } from '../../core/clock.ts';
import type { Taken } from '../rules.ts';
import type { Parameter } from '../../db/db.ts';
import type { UsageRecord } from './records.ts';
import { FORGET_SUMS, LATE_AFTER_MS } from './spent-ever.ts';
import { type Writer, writeTransfer } from './states.ts';

export interface Charge extends Taken {
  readonly usage: UsageRecord;
  readonly creditDay: number;
  readonly balanceAfterNano: bigint;
  /** What its hold set aside; `null` if the hold was gone. */
  readonly reservedNano: bigint | null;
}

const INSERT_USAGE = `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind,
  model_id, replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
  reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms,
  status, extras, metadata, reserved_nano) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
  $13, $14, $15, $16, $17, $18, $19, CAST($20 AS BIGINT), $21, $22, $23, CAST($24 AS BIGINT))`;

/** Columns with the same value for every charge are literals. */
const INSERT_CHARGE = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
  credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)
  VALUES ($1, 0, $2, $3, $3, 'house:revenue', $4, $5, 'CHARGE', $1, $6, NULL, $7)`;

export function recordCharges(writer: Writer, charges: readonly Charge[], nowMs: number): void {
  const today = dayOf(nowMs);
  for (const { usage, usdNano, balanceAfterNano } of charges) {
    if (usdNano === 0n) continue;
    const { requestId, accountId, modelId } = usage;
    const row = [requestId, today, accountId, usdNano, balanceAfterNano, modelId, nowMs];
    writer.execute(INSERT_CHARGE, row);
  }
  for (const charge of charges) if (charge.diemNano > 0n) postDaily(writer, charge, nowMs);
  let hasTags = false;
  for (const charge of charges) {
    insertUsage(writer, charge);
    if (charge.usage.metadata !== undefined) hasTags = true;
  }
  addToDays(writer, charges, nowMs);
  if (hasTags) addToTags(writer, charges);
}

function postDaily(writer: Writer, charge: Charge, nowMs: number): void {
  const { requestId, accountId, modelId } = charge.usage;
  writeTransfer(writer, {
    id: requestId,
    part: 1,
    day: charge.creditDay,
    accountId,
    debitAccount: 'house:daily-credit',
    creditAccount: 'house:revenue',
    amountNano: charge.diemNano,
    balanceAfterNano: charge.balanceAfterNano,
    kind: 'CHARGE',
    requestId,
    modelId,
    nowMs,
  });
}

function insertUsage(writer: Writer, { usage, usdNano, diemNano, reservedNano }: Charge): void {
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
    reservedNano,
  ]);
}

interface Sums {
  readonly day: number;
  readonly usage: UsageRecord;
  requests: number;
  errors: number;
  prompt: number;
  completion: number;
  usdNano: bigint;
  diemNano: bigint;
}

const ADDED = ['requests', 'errors', 'prompt_tokens', 'completion_tokens', 'usd_nano', 'diem_nano'];

function addingTo(table: 'ledger_usage_day' | 'ledger_usage_tag', key: readonly string[]): string {
  const columns = [...key, ...ADDED];
  const places = columns.map((_, at) => `$${at + 1}`).join(', ');
  const sums = ADDED.map((name) => `${name} = ${table}.${name} + excluded.${name}`).join(', ');
  return `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${places})
    ON CONFLICT (${key.join(', ')}) DO UPDATE SET ${sums}`;
}

const ADD_TO_DAY = addingTo('ledger_usage_day', ['account_id', 'day', 'key_id', 'model_id']);
const TAG_KEY = ['account_id', 'name', 'day', 'value', 'key_id', 'model_id'];
const ADD_TO_TAG = addingTo('ledger_usage_tag', TAG_KEY);

/** Statuses that count as errors in the sums: no response was produced. */
const IS_ERROR: Readonly<Record<UsageRecord['status'], 0 | 1>> = {
  completed: 0,
  aborted: 0,
  failed: 1,
  expired: 1,
  running: 0,
};

function sumsOf({ usage, usdNano, diemNano }: Charge): Sums {
  const { createdMs, status, tokens } = usage;
  const { prompt, completion } = tokens;
  const errors = IS_ERROR[status];
  return {
    day: dayOf(createdMs),
    usage,
    requests: 1,
    errors,
    prompt,
    completion,
    usdNano,
    diemNano,
  };
}

function add(sums: Sums, other: Sums): void {
  sums.requests += other.requests;
  sums.errors += other.errors;
  sums.prompt += other.prompt;
  sums.completion += other.completion;
  sums.usdNano += other.usdNano;
  sums.diemNano += other.diemNano;
}

function addToDays(writer: Writer, charges: readonly Charge[], nowMs: number): void {
  const rows: Sums[] = [];
  for (const charge of charges) {
    const sums = sumsOf(charge);
    const row = rows.length === 0 ? undefined : rows.find((one) => isSameRow(one, sums));
    if (row === undefined) rows.push(sums);
    else add(row, sums);
  }
  let late: Set<string> | undefined;
  for (const sums of rows) {
    const { day, usage } = sums;
    const { accountId, keyId, modelId } = usage;
    const key: Parameter[] = [accountId, day, keyId, modelId];
    writer.execute(ADD_TO_DAY, withSums(key, sums));
    if (nowMs - day * DAY_MS >= LATE_AFTER_MS) (late ??= new Set()).add(accountId);
  }
  late?.forEach((accountId) => writer.execute(FORGET_SUMS, [accountId]));
}

function isSameRow(a: Sums, b: Sums): boolean {
  return (
    a.usage.accountId === b.usage.accountId &&
    a.usage.keyId === b.usage.keyId &&
    a.usage.modelId === b.usage.modelId &&
    a.day === b.day
  );
}

function addToTags(writer: Writer, charges: readonly Charge[]): void {
  const rows = new Map<string, { readonly key: Parameter[]; readonly sums: Sums }>();
  for (const charge of charges) {
    const { accountId, keyId, modelId, metadata = {} } = charge.usage;
    for (const [name, value] of Object.entries(metadata)) {
      const sums = sumsOf(charge);
      const key = [accountId, name, sums.day, value, keyId, modelId];
      const id = JSON.stringify(key);
      const row = rows.get(id);
      if (row === undefined) rows.set(id, { key, sums });
      else add(row.sums, sums);
    }
  }
  for (const { key, sums } of rows.values()) writer.execute(ADD_TO_TAG, withSums(key, sums));
}

/** Adds the sums to the parameters of a row, in the order of `ADDED`. */
function withSums(key: Parameter[], sums: Sums): readonly Parameter[] {
  key.push(sums.requests, sums.errors, sums.prompt, sums.completion, sums.usdNano, sums.diemNano);
  return key;
}
