/**
 * The money of video jobs. The quote is held when a job is queued, for as long as the job lives;
 * the step that makes the job final takes it or gives it back, once, in the same transaction, and
 * writes the receipt under the job's id.
 *
 * A failed job was never charged, so its refund is the release of the hold: the receipt says
 * `failed` with the refunded amount, and the statement of the account has no row. A job that was
 * never admitted may have held nothing: what it holds goes back, and its receipt names no refund.
 */
import { type Nano, ZERO, formatUsd } from '../core/money.ts';
import { NO_TOKENS, type UsageRecord, type UsageStatus } from '../billing/ledger/ledger.ts';
import type { Queryable } from '../db/db.ts';
import type { VideoJob } from './job.ts';
import type { Sales } from '../billing/sale.ts';

/** Each runs inside the transaction that makes the job final: exactly one of them counts, once. */
export interface VideoMoney {
  settle(tx: Queryable, job: VideoJob): Promise<void>;
  refund(tx: Queryable, job: VideoJob): Promise<void>;
  /** For a job that was never admitted. */
  release(tx: Queryable, job: VideoJob): Promise<void>;
}

export function videoMoney(sales: Sales): VideoMoney {
  return {
    settle: async (tx, job) => {
      await sales.settleJob(tx, {
        costNano: job.quoteNano,
        usage: receipt(job, 'completed', ZERO),
      });
    },
    refund: async (tx, job) => {
      await sales.settleJob(tx, { costNano: ZERO, usage: receipt(job, 'failed', job.quoteNano) });
    },
    release: async (tx, job) => {
      await sales.settleJob(tx, { costNano: ZERO, usage: receipt(job, 'failed', ZERO) });
    },
  };
}

function receipt(job: VideoJob, status: UsageStatus, refundedNano: Nano): UsageRecord {
  return {
    requestId: job.id,
    createdMs: job.createdMs,
    accountId: job.accountId,
    keyId: job.keyId,
    kind: 'video',
    modelId: job.modelId,
    attempts: job.attempts,
    tokens: NO_TOKENS,
    countedBy: 'none',
    // The price of a job is its quote, whatever the catalogue says by now.
    priceVersion: `quote-${job.quoteNano}`,
    latencyMs: Math.max(0, job.finishedMs - job.createdMs),
    status,
    ...(job.engine === '' ? {} : { replica: job.engine }),
    extras: {
      quoteUsd: formatUsd(job.quoteNano),
      ...(refundedNano > 0n ? { refundedUsd: formatUsd(refundedNano) } : {}),
      ...(job.failure === null ? {} : { reason: job.failure.code }),
    },
  };
}
