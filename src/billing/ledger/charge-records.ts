/**
 * Writes the records of charges: their postings, their receipts, and the sums by day, key, model
 * and tag, which overviews read instead of the receipts. Statements of one kind follow each other,
 * so that PostgreSQL can run them as one.
 */
import { DAY_MS, dayOf } from '../../core/clock.ts';
import type { Taken } from '../rules/take.ts';
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
  for (const charge of charges) insertUsage(writer, charge);
  addToDays(writer, charges, nowMs);
  addToTags(writer, charges);
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

function newSums(): Sums {
  return { requests: 0, errors: 0, prompt: 0, completion: 0, usdNano: 0n, diemNano: 0n };
}

function add(sums: Sums, { usage, usdNano, diemNano }: Charge): void {
  sums.requests += 1;
  sums.errors += IS_ERROR[usage.status];
  sums.prompt += usage.tokens.prompt;
  sums.completion += usage.tokens.completion;
  sums.usdNano += usdNano;
  sums.diemNano += diemNano;
}

function valuesOf({ requests, errors, prompt, completion, usdNano, diemNano }: Sums) {
  return [requests, errors, prompt, completion, usdNano, diemNano];
}

function addToDays(writer: Writer, charges: readonly Charge[], nowMs: number): void {
  const rows: (Sums & { readonly usage: UsageRecord; readonly day: number })[] = [];
  for (const charge of charges) {
    const { usage } = charge;
    const day = dayOf(usage.createdMs);
    let row = rows.find((one) => one.day === day && isSameRow(one.usage, usage));
    if (row === undefined) rows.push((row = { ...newSums(), usage, day }));
    add(row, charge);
  }
  for (const { usage, day, ...sums } of rows) {
    writer.execute(ADD_TO_DAY, [
      usage.accountId,
      day,
      usage.keyId,
      usage.modelId,
      ...valuesOf(sums),
    ]);
  }
  const late = rows.filter(({ day }) => nowMs - day * DAY_MS >= LATE_AFTER_MS);
  for (const accountId of new Set(late.map(({ usage }) => usage.accountId))) {
    writer.execute(FORGET_SUMS, [accountId]);
  }
}

function isSameRow(a: UsageRecord, b: UsageRecord): boolean {
  return a.accountId === b.accountId && a.keyId === b.keyId && a.modelId === b.modelId;
}

function addToTags(writer: Writer, charges: readonly Charge[]): void {
  const rows = new Map<string, { readonly key: (string | number)[]; readonly sums: Sums }>();
  for (const charge of charges) {
    const { accountId, keyId, modelId, createdMs, metadata } = charge.usage;
    if (metadata === undefined) continue;
    for (const [name, value] of Object.entries(metadata)) {
      const key = [accountId, name, dayOf(createdMs), value, keyId, modelId];
      const id = JSON.stringify(key);
      let row = rows.get(id);
      if (row === undefined) rows.set(id, (row = { key, sums: newSums() }));
      add(row.sums, charge);
    }
  }
  for (const { key, sums } of rows.values())
    writer.execute(ADD_TO_TAG, [...key, ...valuesOf(sums)]);
}
