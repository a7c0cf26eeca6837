/**
 * The audit: recomputes every balance from the postings and every held amount from the open holds,
 * and reports each difference, down to one nano-USD. The sums of postings of dropped days are in
 * `ledger_carry` (`retention.ts`).
 */
import { type Nano, nano } from '../../core/money.ts';
import type { Store } from '../../db/db.ts';
import { DURABLE_EPOCH, IS_LEASE } from './row-holds.ts';
import type { HoldFigures, Holds } from './records.ts';

export interface AuditDifference {
  readonly accountId: string;
  readonly what: string;
  readonly storedNano: Nano;
  readonly recomputedNano: Nano;
}

export interface AuditReport {
  readonly ok: boolean;
  readonly accounts: number;
  readonly transfers: number;
  readonly openHolds: number;
  /** Leased by processes; the part held by requests is known to each process only. */
  readonly leasedNano: Nano;
  readonly differences: readonly AuditDifference[];
  /** Top-ups and operator credits, minus charges and payouts: what is owed to callers. */
  readonly owedNano: Nano;
  /** Debts of callers after reversals that their balance did not cover. */
  readonly debtNano: Nano;
  /** Every charge ever made, in USD and in daily credit. */
  readonly revenueNano: Nano;
}

const AUDIT_TIMEOUT_MS = 600_000;

interface DifferenceRow {
  readonly id: string;
  readonly stored: bigint;
  readonly recomputed: bigint;
}

const USED = `SELECT account_id AS id, usd_nano + diem_nano AS amount FROM ledger_usage
  UNION ALL SELECT account_id, used_nano FROM ledger_carry`;
const CHARGED = `SELECT account_id AS id, amount_nano AS amount FROM ledger_transfer WHERE kind = 'CHARGE'
  UNION ALL SELECT account_id, charged_nano FROM ledger_carry`;
const ROLLED_UP = 'SELECT account_id AS id, usd_nano + diem_nano AS amount FROM ledger_usage_day';

/**
 * Selects the accounts with different sums. SQLite has no index for a `FULL JOIN` of two sums, and would
 * compare each account with each other one.
 */
function differing(stored: string, recomputed: string): string {
  return `SELECT id, sum(stored) AS stored, sum(recomputed) AS recomputed FROM (
      SELECT id, amount AS stored, 0 AS recomputed FROM (${stored}) one
      UNION ALL SELECT id, 0, amount FROM (${recomputed}) other) amounts
    GROUP BY id HAVING sum(stored) <> sum(recomputed)`;
}

/** Each check selects the rows where the stored and the recomputed amount differ. */
const CHECKS: readonly { readonly what: string; readonly sql: string }[] = [
  {
    what: 'balance',
    sql: `SELECT a.id AS id, a.balance_nano AS stored,
      COALESCE(k.credited_nano - k.debited_nano, 0) + COALESCE(c.total, 0) - COALESCE(d.total, 0) AS recomputed
      FROM ledger_account a
      LEFT JOIN ledger_carry k ON k.account_id = a.id
      LEFT JOIN (SELECT credit_account AS id, sum(amount_nano) AS total FROM ledger_transfer GROUP BY credit_account) c ON c.id = a.id
      LEFT JOIN (SELECT debit_account AS id, sum(amount_nano) AS total FROM ledger_transfer GROUP BY debit_account) d ON d.id = a.id
      WHERE a.balance_nano <> COALESCE(k.credited_nano - k.debited_nano, 0) + COALESCE(c.total, 0) - COALESCE(d.total, 0)`,
  },
  {
    what: 'held',
    sql: `SELECT a.id AS id, a.held_nano AS stored, COALESCE(h.total, 0) AS recomputed
      FROM ledger_account a
      LEFT JOIN (SELECT account_id AS id, sum(usd_nano) AS total FROM ledger_hold GROUP BY account_id) h ON h.id = a.id
      WHERE a.held_nano <> COALESCE(h.total, 0)`,
  },
  {
    what: 'daily credit held',
    sql: `SELECT a.id AS id, a.daily_held_nano AS stored, COALESCE(h.total, 0) AS recomputed
      FROM ledger_account a
      LEFT JOIN (SELECT account_id AS id, daily_day AS day, sum(daily_nano) AS total FROM ledger_hold GROUP BY account_id, daily_day) h
        ON h.id = a.id AND h.day = a.daily_day
      WHERE a.daily_held_nano <> COALESCE(h.total, 0)`,
  },
  {
    what: 'daily credit spent',
    sql: `SELECT a.id AS id, a.daily_spent_nano AS stored, COALESCE(t.total, 0) AS recomputed
      FROM ledger_account a
      LEFT JOIN (SELECT account_id AS id, day,
          sum(CASE WHEN debit_account = 'house:daily-credit' THEN amount_nano ELSE -amount_nano END) AS total
        FROM ledger_transfer
        WHERE debit_account = 'house:daily-credit' OR credit_account = 'house:daily-credit' GROUP BY account_id, day) t ON t.id = a.id AND t.day = a.daily_day
      WHERE a.daily_spent_nano <> COALESCE(t.total, 0)
        AND a.daily_day > COALESCE((SELECT day FROM ledger_kept_from WHERE rows_of = 'postings'), 0)`,
  },
  {
    what: 'transfers of an account that does not exist',
    sql: `SELECT t.account_id AS id, 0 AS stored, sum(t.amount_nano) AS recomputed FROM ledger_transfer t
      WHERE t.kind <> 'FEE' AND t.account_id IN (SELECT account_id FROM ledger_transfer
        EXCEPT SELECT id FROM ledger_account) GROUP BY t.account_id`,
  },
  {
    what: 'held against caps',
    sql: `SELECT w.id AS id, w.usd_held_nano + w.diem_held_nano AS stored, COALESCE(c.total, 0) AS recomputed
      FROM ledger_allowance w
      LEFT JOIN (SELECT b.id AS id, sum(h.usd_nano + h.daily_nano) AS total
        FROM ledger_hold h JOIN ledger_allowance b ON b.account_id = h.account_id
          AND h.created_ms >= b.period_start_ms
          AND (h.allowance_id = b.id OR replace(h.budget_ids, '"' || b.id || '"', '') <> h.budget_ids)
        GROUP BY b.id) c ON c.id = w.id
      WHERE w.usd_held_nano + w.diem_held_nano <> COALESCE(c.total, 0)`,
  },
  {
    what: 'debts of accounts against the postings of bad debt',
    sql: `SELECT 'house:bad-debt' AS id, s.stored AS stored, s.recomputed AS recomputed FROM (SELECT
        (SELECT COALESCE(sum(debt_nano), 0) FROM ledger_account) AS stored,
        (SELECT COALESCE(sum(CASE WHEN debit_account = 'house:bad-debt' THEN amount_nano ELSE -amount_nano END), 0)
          FROM ledger_transfer WHERE kind IN ('REVERSAL', 'DEBT')
            AND (debit_account = 'house:bad-debt' OR credit_account = 'house:bad-debt'))
        + (SELECT COALESCE(sum(debited_nano - credited_nano), 0) FROM ledger_carry
          WHERE account_id = 'house:bad-debt') AS recomputed) s
      WHERE s.stored <> s.recomputed`,
  },
  { what: 'usage records against charges (by account)', sql: differing(USED, CHARGED) },
  { what: 'day rollups against usage records (by account)', sql: differing(ROLLED_UP, USED) },
];

const FIGURES = `SELECT
  (SELECT count(*) FROM ledger_account) AS accounts,
  (SELECT count(*) FROM ledger_transfer) + (SELECT COALESCE(sum(transfers), 0) FROM ledger_carry) AS transfers,
  (SELECT count(*) FROM ledger_hold WHERE NOT (${IS_LEASE})) AS holds,
  (SELECT COALESCE(sum(usd_nano + daily_nano), 0) FROM ledger_hold WHERE ${IS_LEASE}) AS leased,
  (SELECT COALESCE(sum(balance_nano), 0) FROM ledger_account) AS owed,
  (SELECT COALESCE(sum(debt_nano), 0) FROM ledger_account) AS debt,
  (SELECT COALESCE(sum(CASE WHEN kind = 'CHARGE' THEN amount_nano ELSE -amount_nano END), 0)
    FROM ledger_transfer
    WHERE kind = 'CHARGE' OR (kind = 'REFUND' AND debit_account = 'house:revenue'))
    + (SELECT COALESCE(sum(charged_nano), 0) FROM ledger_carry) AS revenue`;

interface FiguresRow {
  readonly accounts: bigint;
  readonly transfers: bigint;
  readonly holds: bigint;
  readonly leased: bigint;
  readonly owed: bigint;
  readonly debt: bigint;
  readonly revenue: bigint;
}

/** Runs all checks in one transaction, so that concurrent requests cause no differences. */
export async function runAudit(store: Store, inMemory: HoldFigures): Promise<AuditReport> {
  return store.transaction(
    async (tx) => {
      const differences: AuditDifference[] = [];
      for (const check of CHECKS) {
        for (const row of await tx.query<DifferenceRow>(check.sql)) {
          differences.push({
            accountId: row.id,
            what: check.what,
            storedNano: nano(row.stored),
            recomputedNano: nano(row.recomputed),
          });
        }
      }
      const [figures] = await tx.query<FiguresRow>(FIGURES);
      return {
        ok: differences.length === 0,
        accounts: Number(figures?.accounts ?? 0n),
        transfers: Number(figures?.transfers ?? 0n),
        openHolds: Number(figures?.holds ?? 0n) + inMemory.count,
        leasedNano: nano(figures?.leased ?? 0n),
        differences,
        owedNano: nano(figures?.owed ?? 0n),
        debtNano: nano(figures?.debt ?? 0n),
        revenueNano: nano(figures?.revenue ?? 0n),
      };
    },
    { timeoutMs: AUDIT_TIMEOUT_MS, isSnapshot: true },
  );
}

export async function leasedOf(
  store: Store,
  accountId: string,
  day: number,
): Promise<{ readonly usdNano: bigint; readonly diemNano: bigint }> {
  const [row] = await store.query<{ usd: bigint; diem: bigint }>(
    `SELECT COALESCE(sum(usd_nano), 0) AS usd,
      COALESCE(sum(CASE WHEN daily_day = $2 THEN daily_nano ELSE 0 END), 0) AS diem
     FROM ledger_hold WHERE account_id = $1 AND ${IS_LEASE}`,
    [accountId, day],
  );
  return { usdNano: row?.usd ?? 0n, diemNano: row?.diem ?? 0n };
}

/** Own holds, plus `jobs` and leases, which are the same for every process. */
export interface OpenHoldFigures extends HoldFigures {
  readonly jobs: HoldFigures;
  readonly leasedNano: Nano;
  readonly debtNano: Nano;
}

export async function openHoldFigures(
  store: Store,
  holds: Pick<Holds, 'figures' | 'rowFigures'>,
): Promise<OpenHoldFigures> {
  const [row] = await store.query<{ count: bigint; amount: bigint; leased: bigint; debt: bigint }>(
    `SELECT count(*) FILTER (WHERE is_job) AS count,
      COALESCE(sum(amount) FILTER (WHERE is_job), 0) AS amount,
      COALESCE(sum(amount) FILTER (WHERE is_lease), 0) AS leased,
      (SELECT COALESCE(sum(debt_nano), 0) FROM ledger_account WHERE debt_nano > 0) AS debt
     FROM (SELECT ${IS_LEASE} AS is_lease, epoch_id = '${DURABLE_EPOCH}' AS is_job,
       usd_nano + daily_nano AS amount FROM ledger_hold) h`,
  );
  const [inMemory, inRows] = [holds.figures(), holds.rowFigures()];
  return {
    count: inMemory.count + inRows.count,
    amountNano: nano(inMemory.amountNano + inRows.amountNano),
    jobs: { count: Number(row?.count ?? 0n), amountNano: nano(row?.amount ?? 0n) },
    leasedNano: nano(row?.leased ?? 0n),
    debtNano: nano(row?.debt ?? 0n),
  };
}
