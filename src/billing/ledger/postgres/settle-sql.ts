/**
 * The SQL of settles out of leases: of several, put together from what they need, and of one alone.
 * `lease` are the rows that settles come out of as they stand under their lock, `item` the settles
 * that are charged now, all of them or none, `change` what each lease loses by them.
 *
 * Rows are locked in one order everywhere: accounts, caps, leases, each in order of id.
 */
import { added } from '../charge-records.ts';
import { FIELDS, ITEM_FIELDS, RECEIPT, type ReceiptField } from './settle-item.ts';

/** As `settle.ts` counts them. */
const ERRORS = "count(*) FILTER (WHERE status IN ('failed', 'expired'))";

const INSERT_USAGE = `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind,
    model_id, replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
    reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms, status,
    extras, metadata, reserved_nano)`;
const INSERT_TRANSFER = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
    credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)`;
const INSERT_DAY = `INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, requests, errors,
    prompt_tokens, completion_tokens, usd_nano, diem_nano)`;
const ADD_TO_DAY = `ON CONFLICT (account_id, day, key_id, model_id) DO UPDATE SET
    ${added('ledger_usage_day')}`;
/** Of an account on the day $`day`, or on a later one that has begun for it. */
const dailyLeft = (
  day: string,
): string => `CASE WHEN coalesce(a.daily_allocation_day = greatest(a.daily_day, ${day}), true)
      THEN a.daily_allocation_nano ELSE 0 END - CASE WHEN a.daily_day >= ${day} THEN a.daily_spent_nano ELSE 0 END`;

const LOCK_CAPS = `, cap AS MATERIALIZED (
  SELECT w.id, w.period_start_ms FROM ledger_allowance w
  WHERE w.id = ANY ($9::text[]) AND (SELECT count(*) FROM account) > 0
  ORDER BY w.id FOR UPDATE
)`;

const ITEMS_OF_LEASES = `SELECT i.* FROM unnest($1::ledger_settle[]) AS i (${ITEM_FIELDS.join(', ')})
  WHERE (SELECT count(*) FROM lease) = cardinality($5::text[])`;
const RECEIPTS = FIELDS.join(', ');

/** One that was settled before fails the statement. */
const WRITE_SEVERAL = `, item AS MATERIALIZED (
  ${ITEMS_OF_LEASES}
), usage AS (
  ${INSERT_USAGE} SELECT ${RECEIPTS} FROM item
)`;

/** One that was settled before is not settled, and the transaction around it goes on. */
const WRITE_ALONE = `, asked AS MATERIALIZED (
  ${ITEMS_OF_LEASES}
), usage AS (
  ${INSERT_USAGE} SELECT ${RECEIPTS} FROM asked
  ON CONFLICT (request_id, day) DO NOTHING RETURNING request_id
), item AS MATERIALIZED (
  SELECT a.* FROM asked a JOIN usage u ON u.request_id = a.request_id
)`;

const settleSql = (isAlone: boolean, hasCaps: boolean): string => `WITH account AS MATERIALIZED (
  SELECT a.id, a.balance_nano, a.daily_day, ${dailyLeft('$2')} AS daily_left
  FROM ledger_account a WHERE a.id = ANY ($4::text[]) ORDER BY a.id FOR UPDATE
)${hasCaps ? LOCK_CAPS : ''}, lease AS MATERIALIZED (
  SELECT h.request_id AS id, h.account_id, h.usd_nano, h.daily_nano, h.daily_day, h.allowance_id,
    h.allowance_start_ms, h.budget_ids, h.created_ms
  FROM ledger_hold h WHERE h.request_id = ANY ($5::text[]) AND h.account_id = ANY ($4::text[])
    AND (SELECT count(*) FROM ${hasCaps ? 'cap' : 'account'}) >= 0
  ORDER BY h.request_id FOR UPDATE
)${isAlone ? WRITE_ALONE : WRITE_SEVERAL}, change AS MATERIALIZED (
  SELECT l.id, l.account_id, l.allowance_id, l.allowance_start_ms, l.budget_ids,
    l.created_ms AS budgets_ms, l.daily_day, c.is_last, c.usd, c.diem,
    CASE WHEN c.is_last THEN l.usd_nano ELSE c.usd END AS less_usd,
    CASE WHEN c.is_last THEN l.daily_nano ELSE c.diem END AS less_diem
  FROM unnest($5::text[], $6::bigint[], $7::bigint[], $8::boolean[]) AS c (id, usd, diem, is_last)
    JOIN lease l ON l.id = c.id
  WHERE EXISTS (SELECT FROM item)
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
  ${INSERT_TRANSFER}
  SELECT request_id, 0, $2, account_id, account_id, 'house:revenue', usd, a.balance_nano - usd_so_far,
    'CHARGE', request_id, model_id, NULL, $3
  FROM item JOIN account a ON a.id = account_id WHERE usd > 0
), days AS (
  ${INSERT_DAY}
  SELECT account_id, day, key_id, model_id, count(*), ${ERRORS}, sum(prompt_tokens),
    sum(completion_tokens), sum(usd), sum(diem) FROM item GROUP BY account_id, day, key_id, model_id
    ORDER BY account_id, day, key_id, model_id
  ${ADD_TO_DAY}
)`;

const SETTLE_CAPPED = settleSql(false, true);
const SETTLE_CAPPED_ALONE = settleSql(true, true);
const SETTLE = settleSql(false, false);
const SETTLE_ALONE = settleSql(true, false);

/** Only for a tick with a row for one request alone. */
const DELETE_LAST = `, gone AS (
  DELETE FROM ledger_hold h USING change c WHERE h.request_id = c.id AND c.is_last
)`;

/** Only for a tick that spends daily credit: the others are not planned with it. */
const POST_DAILY = `, daily AS (
  ${INSERT_TRANSFER}
  SELECT i.request_id, 1, l.daily_day, i.account_id, 'house:daily-credit', 'house:revenue', i.diem,
    a.balance_nano - i.usd_so_far, 'CHARGE', i.request_id, i.model_id, NULL, $3
  FROM item i JOIN account a ON a.id = i.account_id JOIN lease l ON l.id = i.lease_id WHERE i.diem > 0
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
    FROM item CROSS JOIN LATERAL json_each_text(item.metadata::json) AS tag
    WHERE metadata IS NOT NULL
    GROUP BY account_id, tag.key, day, tag.value, key_id, model_id
    ORDER BY account_id, tag.key, day, tag.value, key_id, model_id
  ON CONFLICT (account_id, name, day, value, key_id, model_id) DO UPDATE SET
    ${added('ledger_usage_tag')}
)`;
/** Only for a tick with a charge of a day that may be added up already (`spent-ever.ts`). */
const FORGET_SUMS = `, late AS (
  INSERT INTO ledger_spent (account_id, day, usd_nano, diem_nano)
  SELECT DISTINCT account_id, 0, 0, 0 FROM item WHERE is_late ORDER BY account_id
  ON CONFLICT (account_id) DO UPDATE SET day = 0
)`;
/** What was there before, for each lease that is there. */
const LEASE_ROWS = `
SELECT l.id, a.balance_nano, a.daily_left, EXISTS (SELECT FROM item) AS is_settled
FROM lease l JOIN account a ON a.id = l.account_id`;

/** Where a field of the one item stands among the parameters, and what comes after these. */
const at = (field: ReceiptField): string => `$${FIELDS.indexOf(field) + 1}::${RECEIPT[field]}`;
const [LEASE_ID, TODAY, NOW_MS] = [1, 2, 3].map((after) => `$${FIELDS.length + after}`) as [
  string,
  string,
  string,
];

/**
 * The same for one settle of USD alone, of a day that goes on, that counts against no cap and has no
 * tags: `isLast` out of a row of its own. A row with more than that is left to the statement for many.
 */
const settleOneSql = (isLast: boolean): string => `WITH account AS MATERIALIZED (
  SELECT a.balance_nano, ${dailyLeft(`${TODAY}::bigint`)} AS daily_left
  FROM ledger_account a WHERE a.id = ${at('account_id')} FOR UPDATE
), lease AS MATERIALIZED (
  SELECT h.usd_nano FROM ledger_hold h
  WHERE h.request_id = ${LEASE_ID} AND h.account_id = ${at('account_id')} AND h.daily_nano = 0
    AND h.allowance_id IS NULL AND h.budget_ids IS NULL AND (SELECT count(*) FROM account) > 0
  FOR UPDATE
), usage AS (
  ${INSERT_USAGE}
  SELECT ${FIELDS.map(at).join(', ')} FROM lease
  ON CONFLICT (request_id, day) DO NOTHING RETURNING request_id
), less AS (
  ${
    isLast
      ? `DELETE FROM ledger_hold h USING usage WHERE h.request_id = ${LEASE_ID}`
      : `UPDATE ledger_hold h SET usd_nano = h.usd_nano - ${at('usd')} FROM usage WHERE h.request_id = ${LEASE_ID}`
  }
), charged AS (
  UPDATE ledger_account a SET balance_nano = a.balance_nano - ${at('usd')},
    held_nano = a.held_nano - ${isLast ? 'l.usd_nano' : at('usd')}
  FROM usage, lease l WHERE a.id = ${at('account_id')}
), transfer AS (
  ${INSERT_TRANSFER}
  SELECT ${at('request_id')}, 0, ${TODAY}::bigint, ${at('account_id')}, ${at('account_id')}, 'house:revenue',
    ${at('usd')}, a.balance_nano - ${at('usd')}, 'CHARGE', ${at('request_id')}, ${at('model_id')}, NULL,
    ${NOW_MS}::bigint
  FROM usage, account a WHERE ${at('usd')} > 0
), days AS (
  ${INSERT_DAY}
  SELECT ${at('account_id')}, ${at('day')}, ${at('key_id')}, ${at('model_id')}, 1,
    CASE WHEN ${at('status')} IN ('failed', 'expired') THEN 1 ELSE 0 END, ${at('prompt_tokens')},
    ${at('completion_tokens')}, ${at('usd')}, 0 FROM usage
  ${ADD_TO_DAY}
)
SELECT u.request_id, ${at('usd')} AS usd, ${at('diem')} AS diem, a.balance_nano - ${at('usd')} AS balance_after,
  greatest(0, a.daily_left) AS daily_after FROM usage u, account a`;
export const SETTLE_ONE = settleOneSql(false);
export const SETTLE_LAST = settleOneSql(true);

/** What there is of it in a tick; without it the statement has no part for it. */
export interface SettleNeeds {
  /** One settle. */
  readonly isAlone: boolean;
  /** A row that is for one request alone. */
  readonly hasLast: boolean;
  readonly hasDaily: boolean;
  /** Caps of keys, or budgets; their ids are the ninth parameter. */
  readonly hasCaps: boolean;
  readonly hasBudgets: boolean;
  readonly hasTags: boolean;
  readonly hasLate: boolean;
}

/**
 * The statement for settles with these needs. Its parameters are the items, the day and the time; the
 * ids of the accounts; of the leases the ids, their USD, their daily credit, and whether each is for
 * one request alone; and the ids of the caps, where there are any.
 */
export function settleSqlFor(needs: SettleNeeds): string {
  const { isAlone, hasCaps, hasBudgets } = needs;
  const alone = hasCaps ? SETTLE_CAPPED_ALONE : SETTLE_ALONE;
  const several = hasCaps ? SETTLE_CAPPED : SETTLE;
  return (
    (isAlone ? alone : several) +
    (needs.hasLast ? DELETE_LAST : '') +
    (needs.hasDaily ? POST_DAILY : '') +
    (hasBudgets ? COUNT_BUDGETS : hasCaps ? COUNT_CAPS : '') +
    (needs.hasTags ? ADD_TO_TAGS : '') +
    (needs.hasLate ? FORGET_SUMS : '') +
    LEASE_ROWS
  );
}
