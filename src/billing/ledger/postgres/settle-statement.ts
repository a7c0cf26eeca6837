/**
 * Settles of one tick in one statement: the receipt is written, and where it was not there before,
 * the cost goes from the hold's lease to revenue, the balance and the cap of the key follow, and the
 * day's sums are written, all or nothing. What finds no lease is settled under a lock
 * (`settle.ts`): its process was taken for dead, or it was settled before.
 *
 * Rows are locked in one order everywhere: accounts, caps, leases, each in order of id.
 */
import { dayOf } from '../../../core/clock.ts';
import { nano } from '../../../core/money.ts';
import type { Queryable } from '../../../db/db.ts';
import type { SettleRequest, Settlement } from '../records.ts';
import { isLateDay } from '../spent-ever.ts';

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

/** As `settle.ts` counts them. */
const ERRORS = "count(*) FILTER (WHERE status IN ('failed', 'expired'))";

/**
 * `item` are the settles, `lease` the rows that they come out of as they stand under their lock,
 * `done` the settles that are charged now, `change` what each lease loses by them.
 */
const settleSql = (capIds: string): string => `WITH item AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS i(seq bigint, lease_id text, allowance_id text,
    budget_ids text, is_last boolean, is_late boolean, usd bigint, diem bigint, request_id text, day bigint, created_ms bigint,
    account_id text, key_id text, kind text, model_id text, replica text, attempts bigint,
    prompt_tokens bigint, completion_tokens bigint, cached_tokens bigint, cache_write_tokens bigint,
    reasoning_tokens bigint, counted_by text, price_version text, latency_ms bigint,
    first_token_ms bigint, status text, extras text, metadata text, reserved bigint)
), account AS MATERIALIZED (
  SELECT a.id, a.balance_nano, a.daily_day,
    CASE WHEN coalesce(a.daily_allocation_day, $2) = $2 THEN a.daily_allocation_nano ELSE 0 END
      - CASE WHEN a.daily_day = $2 THEN a.daily_spent_nano ELSE 0 END AS daily_left
  FROM ledger_account a WHERE a.id IN (SELECT account_id FROM item) ORDER BY a.id FOR UPDATE
), cap AS MATERIALIZED (
  SELECT w.id, w.period_start_ms FROM ledger_allowance w
  WHERE w.id IN (${capIds})
    AND (SELECT count(*) FROM account) > 0
  ORDER BY w.id FOR UPDATE
), lease AS MATERIALIZED (
  SELECT h.request_id AS id, h.account_id, h.usd_nano, h.daily_nano, h.daily_day, h.allowance_id,
    h.allowance_start_ms, h.budget_ids, h.created_ms
  FROM ledger_hold h WHERE h.request_id IN (SELECT lease_id FROM item)
    AND (SELECT count(*) FROM cap) >= 0
  ORDER BY h.request_id FOR UPDATE
), usage AS (
  INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind, model_id, replica,
    attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens,
    counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms, status, extras, metadata,
    reserved_nano)
  SELECT i.request_id, i.day, i.created_ms, i.account_id, i.key_id, i.kind, i.model_id, i.replica,
    i.attempts, i.prompt_tokens, i.completion_tokens, i.cached_tokens, i.cache_write_tokens,
    i.reasoning_tokens, i.counted_by, i.price_version, i.usd, i.diem, i.latency_ms, i.first_token_ms,
    i.status, i.extras, i.metadata, i.reserved
  FROM item i JOIN lease l ON l.id = i.lease_id AND l.account_id = i.account_id
  ON CONFLICT (request_id, day) DO NOTHING RETURNING request_id
), done AS (
  SELECT i.*, l.daily_day AS credit_day,
    a.balance_nano - sum(i.usd) OVER (PARTITION BY i.account_id ORDER BY i.seq) AS balance_after,
    a.daily_left - sum(i.diem) OVER (PARTITION BY i.account_id ORDER BY i.seq) AS daily_after
  FROM item i JOIN usage u ON u.request_id = i.request_id
    JOIN account a ON a.id = i.account_id JOIN lease l ON l.id = i.lease_id
), change AS (
  SELECT l.id, l.account_id, l.allowance_id, l.allowance_start_ms, l.budget_ids,
    l.created_ms AS budgets_ms, l.daily_day, d.is_last, d.usd,
    d.diem, CASE WHEN d.is_last THEN l.usd_nano ELSE d.usd END AS less_usd,
    CASE WHEN d.is_last THEN l.daily_nano ELSE d.diem END AS less_diem
  FROM (SELECT lease_id, bool_or(is_last) AS is_last, sum(usd) AS usd, sum(diem) AS diem
    FROM done GROUP BY lease_id) d JOIN lease l ON l.id = d.lease_id
), gone AS (
  DELETE FROM ledger_hold h USING change c WHERE h.request_id = c.id AND c.is_last
), taken AS (
  UPDATE ledger_hold h SET usd_nano = h.usd_nano - c.usd, daily_nano = h.daily_nano - c.diem
  FROM change c WHERE h.request_id = c.id AND NOT c.is_last
), charged AS (
  UPDATE ledger_account a SET balance_nano = a.balance_nano - t.usd, held_nano = a.held_nano - t.less_usd,
    daily_spent_nano = a.daily_spent_nano + t.diem, daily_held_nano = a.daily_held_nano - t.less_diem
  FROM (SELECT c.account_id, sum(c.usd) AS usd, sum(c.less_usd) AS less_usd,
      sum(CASE WHEN c.daily_day = b.daily_day THEN c.diem ELSE 0 END) AS diem,
      sum(CASE WHEN c.daily_day = b.daily_day THEN c.less_diem ELSE 0 END) AS less_diem
    FROM change c JOIN account b ON b.id = c.account_id GROUP BY c.account_id) t
  WHERE a.id = t.account_id
), transfer AS (
  INSERT INTO ledger_transfer (id, part, day, account_id, debit_account, credit_account, amount_nano,
    balance_after_nano, kind, request_id, model_id, note, created_ms)
  SELECT request_id, 0, $2, account_id, account_id, 'house:revenue', usd, balance_after, 'CHARGE',
    request_id, model_id, NULL, $3 FROM done WHERE usd > 0
), days AS (
  INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, requests, errors, prompt_tokens,
    completion_tokens, usd_nano, diem_nano)
  SELECT account_id, day, key_id, model_id, count(*), ${ERRORS}, sum(prompt_tokens),
    sum(completion_tokens), sum(usd), sum(diem) FROM done GROUP BY account_id, day, key_id, model_id
    ORDER BY account_id, day, key_id, model_id
  ON CONFLICT (account_id, day, key_id, model_id) DO UPDATE SET
    requests = ledger_usage_day.requests + excluded.requests,
    errors = ledger_usage_day.errors + excluded.errors,
    prompt_tokens = ledger_usage_day.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = ledger_usage_day.completion_tokens + excluded.completion_tokens,
    usd_nano = ledger_usage_day.usd_nano + excluded.usd_nano,
    diem_nano = ledger_usage_day.diem_nano + excluded.diem_nano
)`;

const CAPS_OF_KEYS = 'SELECT allowance_id FROM item WHERE allowance_id IS NOT NULL';
const SETTLE = settleSql(CAPS_OF_KEYS);
const SETTLE_BUDGETS = settleSql(`${CAPS_OF_KEYS} UNION
    SELECT b.id FROM item CROSS JOIN LATERAL json_array_elements_text(budget_ids::json) AS b (id)
    WHERE budget_ids IS NOT NULL`);

/** Only for a tick that spends daily credit: the others are not planned with it. */
const POST_DAILY = `, daily AS (
  INSERT INTO ledger_transfer (id, part, day, account_id, debit_account, credit_account, amount_nano,
    balance_after_nano, kind, request_id, model_id, note, created_ms)
  SELECT request_id, 1, credit_day, account_id, 'house:daily-credit', 'house:revenue', diem,
    balance_after, 'CHARGE', request_id, model_id, NULL, $3 FROM done WHERE diem > 0
)`;

const CHANGES_OF_KEYS = `SELECT allowance_id AS id, allowance_start_ms AS since_ms, usd, less_usd, diem,
      less_diem FROM change`;
const CHANGES_OF_BUDGETS = `${CHANGES_OF_KEYS} UNION ALL
    SELECT b.id, budgets_ms, usd, less_usd, diem, less_diem
    FROM change CROSS JOIN LATERAL json_array_elements_text(budget_ids::json) AS b (id)
    WHERE budget_ids IS NOT NULL`;

/** Only for a tick of keys with a cap. A hold from before the running period counts in none. */
const countCaps = (changes: string): string => `, counted AS (
  UPDATE ledger_allowance w SET usd_spent_nano = w.usd_spent_nano + t.usd,
    usd_held_nano = w.usd_held_nano - t.less_usd, diem_spent_nano = w.diem_spent_nano + t.diem,
    diem_held_nano = w.diem_held_nano - t.less_diem
  FROM (SELECT c.id, sum(c.usd) AS usd, sum(c.less_usd) AS less_usd, sum(c.diem) AS diem,
      sum(c.less_diem) AS less_diem
    FROM (${changes}) c JOIN cap b ON b.id = c.id
    WHERE c.since_ms >= b.period_start_ms GROUP BY c.id) t
  WHERE w.id = t.id
)`;
const COUNT_CAPS = countCaps(CHANGES_OF_KEYS);
const COUNT_BUDGETS = countCaps(CHANGES_OF_BUDGETS);

/** Only for a tick that has tags. */
const ADD_TO_TAGS = `, tags AS (
  INSERT INTO ledger_usage_tag (account_id, name, day, value, key_id, model_id, requests,
    errors, prompt_tokens, completion_tokens, usd_nano, diem_nano)
  SELECT account_id, tag.key, day, tag.value, key_id, model_id, count(*), ${ERRORS}, sum(prompt_tokens),
    sum(completion_tokens), sum(usd), sum(diem)
    FROM done CROSS JOIN LATERAL json_each_text(done.metadata::json) AS tag
    WHERE metadata IS NOT NULL
    GROUP BY account_id, tag.key, day, tag.value, key_id, model_id
    ORDER BY account_id, tag.key, day, tag.value, key_id, model_id
  ON CONFLICT (account_id, name, day, value, key_id, model_id) DO UPDATE SET
    requests = ledger_usage_tag.requests + excluded.requests,
    errors = ledger_usage_tag.errors + excluded.errors,
    prompt_tokens = ledger_usage_tag.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = ledger_usage_tag.completion_tokens + excluded.completion_tokens,
    usd_nano = ledger_usage_tag.usd_nano + excluded.usd_nano,
    diem_nano = ledger_usage_tag.diem_nano + excluded.diem_nano
)`;
/** Only for a tick with a charge of a day that may be added up already (`spent-ever.ts`). */
const FORGET_SUMS = `, late AS (
  INSERT INTO ledger_spent (account_id, day, usd_nano, diem_nano)
  SELECT DISTINCT account_id, 0, 0, 0 FROM done WHERE is_late ORDER BY account_id
  ON CONFLICT (account_id) DO UPDATE SET day = 0
)`;
const SETTLED_ROWS = `
SELECT request_id, usd, diem, balance_after, greatest(0, daily_after) AS daily_after FROM done`;

interface SettledRow {
  readonly request_id: string;
  readonly usd: bigint;
  readonly diem: bigint;
  readonly balance_after: bigint;
  readonly daily_after: bigint;
}

/** By request id; one that is missing has to be settled under a lock. Each id comes once. */
export async function settleFromLeases(
  tx: Queryable,
  settles: readonly LeaseSettle[],
  nowMs: number,
): Promise<ReadonlyMap<string, Settlement>> {
  const items: Item[] = [];
  let hasDaily = false;
  let hasCaps = false;
  let hasBudgets = false;
  let hasTags = false;
  let hasLate = false;
  for (let seq = 0; seq < settles.length; seq += 1) {
    const settle = settles[seq];
    if (settle === undefined) continue;
    const item = itemOf(settle, seq, nowMs);
    items.push(item);
    hasLate ||= item.is_late;
    hasDaily ||= settle.dailyNano > 0n;
    hasCaps ||= settle.allowanceId !== undefined;
    hasBudgets ||= settle.budgetIds !== undefined;
    hasTags ||= settle.request.usage.metadata !== undefined;
  }
  const sql =
    (hasBudgets ? SETTLE_BUDGETS : SETTLE) +
    (hasDaily ? POST_DAILY : '') +
    (hasBudgets ? COUNT_BUDGETS : hasCaps ? COUNT_CAPS : '') +
    (hasTags ? ADD_TO_TAGS : '') +
    (hasLate ? FORGET_SUMS : '') +
    SETTLED_ROWS;
  const rows = await tx.query<SettledRow>(sql, [JSON.stringify(items), dayOf(nowMs), nowMs]);
  const settled = new Map<string, Settlement>();
  for (const row of rows) {
    settled.set(row.request_id, {
      fresh: true,
      usdNano: nano(row.usd),
      diemNano: nano(row.diem),
      after: { usdNano: nano(row.balance_after), diemNano: nano(row.daily_after) },
    });
  }
  return settled;
}

type Item = ReturnType<typeof itemOf>;

function itemOf(settle: LeaseSettle, seq: number, nowMs: number) {
  const { usage } = settle.request;
  const day = dayOf(usage.createdMs);
  return {
    seq,
    lease_id: settle.leaseId,
    allowance_id: settle.allowanceId ?? null,
    budget_ids: settle.budgetIds === undefined ? null : JSON.stringify(settle.budgetIds),
    is_last: settle.isLast,
    is_late: isLateDay(day, nowMs),
    usd: String(settle.usdNano),
    diem: String(settle.dailyNano),
    reserved: String(settle.reservedNano),
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
