/**
 * Usage records, one a request, and their rollups by day, key and model, which every overview
 * reads instead of the raw rows.
 */
import { dayOf } from '../../core/clock.ts';
import type { Nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import type { SettleRequest, UsageRecord } from './records.ts';

interface Parts {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

const INSERT_USAGE = `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind,
  model_id, replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
  reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms,
  status, extras) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
  $17, $18, $19, $20, $21, $22)`;

export function insertUsage(tx: Queryable, usage: UsageRecord, parts: Parts): Promise<unknown> {
  return tx.query(INSERT_USAGE, [
    usage.requestId,
    dayOf(usage.createdMs),
    usage.createdMs,
    usage.accountId,
    usage.keyId,
    usage.kind,
    usage.modelId,
    usage.replica ?? null,
    usage.attempts,
    usage.tokens.prompt,
    usage.tokens.completion,
    usage.tokens.cached,
    usage.tokens.cacheWrite,
    usage.tokens.reasoning,
    usage.countedBy,
    usage.priceVersion,
    parts.usdNano,
    parts.diemNano,
    Math.round(usage.latencyMs),
    usage.firstTokenMs === undefined ? null : Math.round(usage.firstTokenMs),
    usage.status,
    usage.extras === undefined ? null : JSON.stringify(usage.extras),
  ]);
}

const ADD_TO_DAY = `INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, requests,
  prompt_tokens, completion_tokens, usd_nano, diem_nano) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
  ON CONFLICT (account_id, day, key_id, model_id) DO UPDATE SET
  requests = ledger_usage_day.requests + excluded.requests,
  prompt_tokens = ledger_usage_day.prompt_tokens + excluded.prompt_tokens,
  completion_tokens = ledger_usage_day.completion_tokens + excluded.completion_tokens,
  usd_nano = ledger_usage_day.usd_nano + excluded.usd_nano,
  diem_nano = ledger_usage_day.diem_nano + excluded.diem_nano`;

interface DaySum {
  requests: bigint;
  prompt: bigint;
  completion: bigint;
  usd: bigint;
  diem: bigint;
}

/** Adds a batch to its day rows, one write a row, in a fixed order. */
export async function addToDays(
  tx: Queryable,
  charged: readonly (Parts & { readonly request: SettleRequest })[],
): Promise<void> {
  const sums = new Map<string, { usage: UsageRecord; sum: DaySum }>();
  for (const { request, usdNano, diemNano } of charged) {
    const { usage } = request;
    const key = `${usage.accountId}\n${dayOf(usage.createdMs)}\n${usage.keyId}\n${usage.modelId}`;
    let entry = sums.get(key);
    if (entry === undefined) {
      entry = { usage, sum: { requests: 0n, prompt: 0n, completion: 0n, usd: 0n, diem: 0n } };
      sums.set(key, entry);
    }
    entry.sum.requests += 1n;
    entry.sum.prompt += BigInt(usage.tokens.prompt);
    entry.sum.completion += BigInt(usage.tokens.completion);
    entry.sum.usd += usdNano;
    entry.sum.diem += diemNano;
  }
  for (const key of [...sums.keys()].sort()) {
    const entry = sums.get(key);
    if (entry === undefined) continue;
    const { usage, sum } = entry;
    await tx.query(ADD_TO_DAY, [
      usage.accountId,
      dayOf(usage.createdMs),
      usage.keyId,
      usage.modelId,
      sum.requests,
      sum.prompt,
      sum.completion,
      sum.usd,
      sum.diem,
    ]);
  }
}
