/**
 * Money of video jobs. A hold for the quote is placed before a job is written, and charged with a
 * step of the job: for an API key in the transaction that queues it, for a wallet in the one that
 * records the engine's acceptance. Until the job ends, its receipt (with the job's id) has the
 * state `running`.
 *
 * A failed job is refunded by one `REFUND` row, in the transaction that makes the job final. If it
 * was not charged yet, its hold is released and the account statement has no row. A job that was
 * never admitted may have no hold; its hold is released if it exists, and its receipt mentions no
 * refund.
 */
import { type Nano, ZERO, formatUsd, usdToNano } from '../core/money.ts';
import { NO_TOKENS, type UsageRecord, type UsageStatus } from '../billing/ledger/ledger.ts';
import type { Queryable } from '../db/db.ts';
import type { VideoJob } from './job.ts';
import type { Sales } from '../billing/sale.ts';

/** Each runs inside the transaction of its step; exactly one final step of a job commits. */
export interface VideoMoney {
  /** `sha256` is the hash of the video. */
  settle(tx: Queryable, job: VideoJob, sha256: string): Promise<void>;
  /** Charges the quote of a running job; idempotent. */
  charge(tx: Queryable, job: VideoJob): Promise<void>;
  refund(tx: Queryable, job: VideoJob): Promise<void>;
  /** For a job that was never admitted. */
  release(tx: Queryable, job: VideoJob): Promise<void>;
}

export function videoMoney(sales: Sales): VideoMoney {
  return {
    settle: async (tx, job, sha256) => {
      const { extras, ...rest } = receipt(job, 'completed', ZERO);
      const supplier = supplierOf(job);
      const usage = { ...rest, supplier, extras: { ...extras, sha256: [sha256] } };
      if (await sales.closeJob(tx, usage)) return;
      await sales.settleJob(tx, { costNano: job.quoteNano, usage });
    },
    charge: async (tx, job) => {
      const usage = receipt(job, 'running', ZERO);
      await sales.settleJob(tx, { costNano: job.quoteNano, usage });
    },
    refund: async (tx, job) => {
      const usage = receipt(job, 'failed', job.quoteNano);
      if (await sales.refundJob(tx, usage)) return;
      await sales.settleJob(tx, { costNano: ZERO, usage });
    },
    release: async (tx, job) => {
      await sales.settleJob(tx, { costNano: ZERO, usage: receipt(job, 'failed', ZERO) });
    },
  };
}

/** The cost at the replica that made the video; a failed job has none, because it is not known. */
function supplierOf({ engine, engineModel, costs = [] }: VideoJob): UsageRecord['supplier'] {
  const cost = costs.find((one) => one.engine === engine && one.model === engineModel);
  return cost && { nano: usdToNano(cost.usd), lines: [['quote', 1, cost.usd]] };
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
    // The price of a job is its quote, even if the catalog has changed.
    priceVersion: `quote-${job.quoteNano}${job.listNano === undefined ? '' : `-${job.listNano}`}`,
    latencyMs: Math.max(0, job.finishedMs - job.createdMs),
    status,
    metadata: job.tags,
    ...(job.engine === '' ? {} : { replica: job.engine }),
    extras: {
      quoteUsd: formatUsd(job.quoteNano),
      ...(refundedNano > 0n ? { refundedUsd: formatUsd(refundedNano) } : {}),
      ...(job.failure === null ? {} : { reason: job.failure.code }),
    },
  };
}
