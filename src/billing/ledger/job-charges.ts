/**
 * Jobs that are charged before they end. Their receipt has the status `running` until then. A job
 * that succeeds keeps its charge. A failed job is refunded by a posting of its own, once, because
 * only a running receipt can be closed.
 *
 * The receipt of a refunded job still shows the charge, as its posting does. The sums of its day
 * and tags store the charge and the refund separately and report the difference.
 */
import { assert } from '../../core/assert.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { type Nano, nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import type { Balances, RequestMetadata, UsageRecord } from './records.ts';
import { ADD_TO_DAY } from './charge-sums.ts';
import { MARK_LATE } from './report-sums.ts';
import { type Writer, insertTransfer } from './states.ts';

const RUNNING = `SELECT COALESCE(replica, '') AS engine FROM ledger_usage
  WHERE request_id = $1 AND day = $2 AND account_id = $3 AND status = 'running' FOR UPDATE`;
const CLOSE = `UPDATE ledger_usage SET status = $4, attempts = $5, latency_ms = $6, replica = $7,
  extras = $8, cost_nano = $9, cost_lines = $10 WHERE request_id = $1 AND day = $2 AND account_id = $3 AND status = 'running'
  RETURNING usd_nano, diem_nano, metadata`;

export interface ChargedJob extends Balances {
  readonly capIds: readonly string[];
  /** The charge counts in the periods of its caps that began by this time. */
  readonly capsMs: number;
  readonly tags: RequestMetadata;
}

export async function closeCharge(
  tx: Queryable,
  usage: UsageRecord,
  nowMs: number,
): Promise<ChargedJob | undefined> {
  const { requestId, createdMs, accountId, keyId, modelId, extras, replica = '', supplier } = usage;
  const day = dayOf(createdMs);
  const [charged] = await tx.query<{ engine: string }>(RUNNING, [requestId, day, accountId]);
  if (charged === undefined) return undefined;
  const [row] = await tx.query<{ usd_nano: bigint; diem_nano: bigint; metadata: string | null }>(
    CLOSE,
    [
      requestId,
      day,
      accountId,
      usage.status,
      usage.attempts,
      Math.round(usage.latencyMs),
      usage.replica ?? null,
      extras === undefined ? null : JSON.stringify(extras),
      supplier === undefined ? null : supplier.nano,
      supplier === undefined ? null : JSON.stringify(supplier.lines),
    ],
  );
  if (row === undefined) return undefined;
  // A job is closed once, after its settle.
  if (nowMs - day * DAY_MS >= DAY_MS) await tx.query(MARK_LATE, [day, `${requestId}:closed`]);
  const { usd_nano: usd, diem_nano: diem } = row;
  const key = [accountId, day, keyId, modelId];
  const costNano = supplier === undefined ? null : supplier.nano;
  // A job has no tokens.
  if (charged.engine !== replica) {
    // It is charged before its engine is known.
    await tx.query(ADD_TO_DAY, [...key, charged.engine, -1, 0, 0, 0, -usd, -diem, null]);
    await tx.query(ADD_TO_DAY, [...key, replica, 1, 0, 0, 0, usd, diem, costNano]);
  } else if (costNano !== null) {
    await tx.query(ADD_TO_DAY, [...key, replica, 0, 0, 0, 0, 0n, 0n, costNano]);
  }
  const [job] = await tx.query<{ cap_ids: string; created_ms: bigint }>(
    'DELETE FROM ledger_job WHERE request_id = $1 RETURNING cap_ids, created_ms',
    [requestId],
  );
  assert(job !== undefined, 'a running receipt has its job');
  const capIds = JSON.parse(job.cap_ids) as string[]; // own JSON
  const capsMs = Number(job.created_ms);
  const tags = JSON.parse(row.metadata ?? '{}') as RequestMetadata; // written by this folder
  return { usdNano: nano(usd), diemNano: nano(diem), capIds, capsMs, tags };
}

export function insertJob(
  writer: Writer,
  { requestId, accountId, keyId, metadata }: UsageRecord,
  { capIds, capsMs }: Pick<ChargedJob, 'capIds' | 'capsMs'>,
): void {
  writer.execute(INSERT_JOB, [
    requestId,
    accountId,
    keyId,
    capsMs,
    metadata === undefined ? null : JSON.stringify(metadata),
    JSON.stringify(capIds),
  ]);
}

const INSERT_JOB = `INSERT INTO ledger_job (request_id, account_id, key_id, created_ms, metadata, cap_ids)
  VALUES ($1, $2, $3, $4, $5, $6)`;

export async function uncountCharge(
  tx: Queryable,
  { usdNano, diemNano, capIds, capsMs }: ChargedJob,
): Promise<void> {
  for (const id of capIds) {
    await tx.query(
      `UPDATE ledger_allowance SET usd_spent_nano = usd_spent_nano - $2,
       diem_spent_nano = diem_spent_nano - $3
       WHERE id = $1 AND period_start_ms <= $4 AND usd_spent_nano >= $2 AND diem_spent_nano >= $3`,
      [id, usdNano, diemNano, capsMs],
    );
  }
}

/** Refunds daily credit if its day has not ended; returns whether it did. */
export async function refundDaily(
  tx: Queryable,
  { requestId, accountId, modelId }: UsageRecord,
  refund: { readonly id: string; readonly amountNano: Nano; readonly nowMs: number },
): Promise<boolean> {
  const [row] = await tx.query<{ balance_nano: bigint; daily_day: bigint }>(
    `UPDATE ledger_account SET daily_spent_nano = daily_spent_nano - $2
     WHERE id = $1 AND daily_spent_nano >= $2 AND daily_day IN (SELECT day FROM ledger_transfer
       WHERE id = $3 AND part = 1 AND kind = 'CHARGE')
     RETURNING balance_nano, daily_day`,
    [accountId, refund.amountNano, requestId],
  );
  if (row === undefined) return false;
  await insertTransfer(tx, {
    ...refund,
    part: 1,
    accountId,
    debitAccount: 'house:revenue',
    creditAccount: 'house:daily-credit',
    balanceAfterNano: nano(row.balance_nano),
    kind: 'REFUND',
    requestId,
    modelId,
    day: Number(row.daily_day),
  });
  return true;
}

const REFUNDED = `errors = errors + 1, refunded_usd_nano = refunded_usd_nano + $5,
  refunded_diem_nano = refunded_diem_nano + $6
  WHERE account_id = $1 AND day = $2 AND key_id = $3 AND model_id = $4`;

export async function countRefund(
  tx: Queryable,
  { accountId, keyId, modelId, createdMs, replica = '' }: UsageRecord,
  { usdNano, diemNano, tags }: Balances & Pick<ChargedJob, 'tags'>,
): Promise<void> {
  const sums = [accountId, dayOf(createdMs), keyId, modelId, usdNano, diemNano];
  await tx.query(`UPDATE ledger_usage_day SET ${REFUNDED} AND engine = $7`, [...sums, replica]);
  for (const [name, value] of Object.entries(tags)) {
    const sql = `UPDATE ledger_usage_tag SET ${REFUNDED} AND name = $7 AND value = $8`;
    await tx.query(sql, [...sums, name, value]);
  }
  await tx.query(
    `INSERT INTO ledger_refund (account_id, key_id, usd_nano, diem_nano) VALUES ($1, $2, $3, $4)
     ON CONFLICT (account_id, key_id) DO UPDATE SET
     usd_nano = ledger_refund.usd_nano + excluded.usd_nano,
     diem_nano = ledger_refund.diem_nano + excluded.diem_nano`,
    [accountId, keyId, usdNano, diemNano],
  );
}
