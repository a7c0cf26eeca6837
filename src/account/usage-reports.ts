/**
 * Reads of money and usage for their owner, in plain values: rollups, receipts, transactions. The
 * caller of these functions names the account; nothing here crosses from one to another.
 */
import type { Nano } from '../core/money.ts';
import { nano } from '../core/money.ts';
import {
  type TokenCounts,
  type TransactionRow,
  type UsageFilter,
  countTransactions,
  receiptOf,
  transactionsOf,
  usageDays,
  usageTotals,
} from '../billing/ledger/ledger.ts';
import type { Queryable } from '../db/db.ts';

export interface UsageSums {
  readonly requests: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

export interface UsageRow extends UsageSums {
  /** Days since 1970-01-01 UTC. */
  readonly day: number;
  readonly modelId: string;
  /** Empty for a wallet. */
  readonly keyId: string;
}

export interface Receipt {
  readonly requestId: string;
  readonly createdMs: number;
  readonly keyId: string;
  readonly kind: string;
  readonly modelId: string;
  readonly replica: string | null;
  readonly attempts: number;
  readonly tokens: TokenCounts;
  readonly countedBy: string;
  readonly priceVersion: string;
  readonly usdNano: Nano;
  readonly diemNano: Nano;
  readonly latencyMs: number;
  readonly firstTokenMs: number | null;
  readonly status: string;
  readonly extras: Readonly<Record<string, unknown>>;
}

/** One movement as its owner reads it. */
export interface Transaction {
  readonly id: string;
  /** Above zero came in, below zero went out. */
  readonly amountNano: bigint;
  /** Daily credit (DIEM) moves beside the USD balance. */
  readonly currency: 'USD' | 'DIEM';
  /** The USD balance after it. */
  readonly balanceAfterNano: bigint;
  readonly kind: string;
  readonly requestId: string | null;
  readonly modelId: string | null;
  readonly note: string | null;
  readonly createdMs: number;
}

interface Slice {
  readonly limit: number;
  readonly offset: number;
}

export class UsageReports {
  readonly #store: Queryable;

  constructor(store: Queryable) {
    this.#store = store;
  }

  async days(filter: UsageFilter, slice: Slice): Promise<UsageRow[]> {
    const rows = await usageDays(this.#store, filter, slice);
    return rows.map((row) => ({
      day: Number(row.day),
      modelId: row.model_id,
      keyId: row.key_id,
      ...sumsOf(row),
    }));
  }

  /** The sums of everything that matches, and how many rows that is. */
  async totals(filter: UsageFilter): Promise<UsageSums & { readonly rows: number }> {
    const totals = await usageTotals(this.#store, filter);
    return { rows: Number(totals.rows), ...sumsOf(totals) };
  }

  async receipt(accountId: string, requestId: string): Promise<Receipt | undefined> {
    const row = await receiptOf(this.#store, accountId, requestId);
    if (row === undefined) return undefined;
    return {
      requestId: row.request_id,
      createdMs: Number(row.created_ms),
      keyId: row.key_id,
      kind: row.kind,
      modelId: row.model_id,
      replica: row.replica,
      attempts: Number(row.attempts),
      tokens: {
        prompt: Number(row.prompt_tokens),
        completion: Number(row.completion_tokens),
        cached: Number(row.cached_tokens),
        cacheWrite: Number(row.cache_write_tokens),
        reasoning: Number(row.reasoning_tokens),
      },
      countedBy: row.counted_by,
      priceVersion: row.price_version,
      usdNano: nano(row.usd_nano),
      diemNano: nano(row.diem_nano),
      latencyMs: Number(row.latency_ms),
      firstTokenMs: row.first_token_ms === null ? null : Number(row.first_token_ms),
      status: row.status,
      extras: JSON.parse(row.extras ?? '{}') as Record<string, unknown>, // written by the ledger
    };
  }

  /** Newest first. */
  async transactions(accountId: string, slice: Slice): Promise<Transaction[]> {
    const rows = await transactionsOf(this.#store, accountId, slice);
    return rows.map((row) => transactionOf(row, accountId));
  }

  countTransactions(accountId: string): Promise<number> {
    return countTransactions(this.#store, accountId);
  }
}

function sumsOf(row: {
  readonly requests: bigint;
  readonly prompt_tokens: bigint;
  readonly completion_tokens: bigint;
  readonly usd_nano: bigint;
  readonly diem_nano: bigint;
}): UsageSums {
  return {
    requests: Number(row.requests),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    usdNano: nano(row.usd_nano),
    diemNano: nano(row.diem_nano),
  };
}

function transactionOf(row: TransactionRow, accountId: string): Transaction {
  const isDaily = row.debit_account === 'house:daily-credit';
  const comesIn = row.credit_account === accountId;
  return {
    // A request that spent both currencies has two rows of one id.
    id: row.part === 0n ? row.id : `${row.id}:${row.part}`,
    amountNano: comesIn ? row.amount_nano : -row.amount_nano,
    currency: isDaily ? 'DIEM' : 'USD',
    balanceAfterNano: row.balance_after_nano,
    kind: row.kind,
    requestId: row.request_id,
    modelId: row.model_id,
    note: row.note,
    createdMs: Number(row.created_ms),
  };
}
