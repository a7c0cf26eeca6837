/**
 * Settles of one tick in one statement: the receipts are written, the costs go from the leases of the
 * holds to revenue, balances and caps follow, and the day's sums are written, all or nothing. What
 * many settles of an account add up to is added up here, which costs a third less than in PostgreSQL;
 * so nothing at all happens where a lease is gone, and the others are sent again without its settles.
 * What finds no lease is settled under a lock (`settle.ts`): its process was taken for dead, or it was
 * settled before. A settle that comes alone, as that of one caller does, has a statement without joins.
 *
 * Rows are locked in one order everywhere: accounts, caps, leases, each in order of id.
 */
import { DAY_MS, dayOf } from '../../../core/clock.ts';
import { nano } from '../../../core/money.ts';
import type { Parameter, Queryable } from '../../../db/db.ts';
import { added } from '../charge-records.ts';
import type { SettleRequest, Settlement } from '../records.ts';
import { LATE_AFTER_MS } from '../spent-ever.ts';

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

const BIGINT = 'bigint';
/** What of an item its receipt has, with the types of the columns, in their order. */
const RECEIPT = {
  request_id: 'text',
  day: BIGINT,
  created_ms: BIGINT,
  account_id: 'text',
  key_id: 'text',
  kind: 'text',
  model_id: 'text',
  replica: 'text',
  attempts: BIGINT,
  prompt_tokens: BIGINT,
  completion_tokens: BIGINT,
  cached_tokens: BIGINT,
  cache_write_tokens: BIGINT,
  reasoning_tokens: BIGINT,
  counted_by: 'text',
  price_version: 'text',
  usd: BIGINT,
  diem: BIGINT,
  latency_ms: BIGINT,
  first_token_ms: BIGINT,
  status: 'text',
  extras: 'text',
  metadata: 'text',
  reserved: BIGINT,
} as const;
type ReceiptField = keyof typeof RECEIPT;
const FIELDS = Object.keys(RECEIPT) as ReceiptField[]; // its own
/**
 * An item by the attributes of the type `ledger_settle`, in their order; other ones are another type.
 * What earlier versions sent in the first one was a number too; what is null now came in others.
 */
const ITEM_FIELDS = [
  'usd_so_far',
  'lease_id',
  'allowance_id',
  'budget_ids',
  'is_last',
  'is_late',
  ...FIELDS,
] as const;

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

/**
 * `lease` are the rows that the settles come out of as they stand under their lock, `item` the settles
 * that are charged now, all of them or none, and `change` what each lease loses by them.
 */
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
const SETTLE_ONE = settleOneSql(false);
const SETTLE_LAST = settleOneSql(true);

interface SettledRow {
  readonly request_id: string;
  readonly usd: bigint;
  readonly diem: bigint;
  readonly balance_after: bigint;
  readonly daily_after: bigint;
}

interface LeaseRow {
  readonly id: string;
  readonly balance_nano: bigint;
  readonly daily_left: bigint;
  readonly is_settled: boolean;
}

/** Both in nano-USD. */
interface Spent {
  usd: bigint;
  diem: bigint;
}

/**
 * By request id; one that is missing has to be settled under a lock. Each id comes once. Where one of
 * several was settled before nothing is done, and the error says that a receipt is there already.
 */
export async function settleFromLeases(
  tx: Queryable,
  settles: readonly LeaseSettle[],
  nowMs: number,
): Promise<ReadonlyMap<string, Settlement>> {
  const settled = new Map<string, Settlement>();
  const [first] = settles;
  if (first === undefined) return settled;
  if (settles.length === 1 && isSimple(first, nowMs)) {
    const settlement = await settleSimple(tx, first, nowMs);
    if (settlement !== undefined) return settled.set(first.request.usage.requestId, settlement);
  }
  const together = addUp(settles, nowMs);
  const rows = await tx.query<LeaseRow>(together.sql, together.parameters);
  if (rows.length < together.leases.size) {
    const there = new Set(rows.map(({ id }) => id));
    const left = settles.filter(({ leaseId }) => there.has(leaseId));
    return settleFromLeases(tx, left, nowMs);
  }
  const before = new Map(rows.map((row) => [row.id, row]));
  for (const [index, { request, leaseId, usdNano, dailyNano }] of settles.entries()) {
    const row = before.get(leaseId);
    const soFar = together.soFar[index];
    if (row?.is_settled !== true || soFar === undefined) continue;
    const dailyLeftNano = row.daily_left - soFar.diem;
    settled.set(request.usage.requestId, {
      fresh: true,
      usdNano: nano(usdNano),
      diemNano: nano(dailyNano),
      after: {
        usdNano: nano(row.balance_nano - soFar.usd),
        diemNano: nano(dailyLeftNano > 0n ? dailyLeftNano : 0n),
      },
    });
  }
  return settled;
}

async function settleSimple(
  tx: Queryable,
  settle: LeaseSettle,
  nowMs: number,
): Promise<Settlement | undefined> {
  const item = itemOf(settle, 0n, nowMs);
  const values = [...FIELDS.map((field) => item[field]), settle.leaseId, dayOf(nowMs), nowMs];
  const sql = settle.isLast ? SETTLE_LAST : SETTLE_ONE;
  const [row] = await tx.query<SettledRow>(sql, values);
  if (row === undefined) return undefined;
  return {
    fresh: true,
    usdNano: nano(row.usd),
    diemNano: nano(row.diem),
    after: { usdNano: nano(row.balance_after), diemNano: nano(row.daily_after) },
  };
}

interface Together {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
  readonly leases: ReadonlyMap<string, Spent>;
  /** Of each settle, what its account spends up to it. */
  readonly soFar: readonly Spent[];
}

/** The statement for all of them, with what each account and each lease spends. */
function addUp(settles: readonly LeaseSettle[], nowMs: number): Together {
  const items: Item[] = [];
  const accounts = new Map<string, Spent>();
  const leases = new Map<string, Spent>();
  const lasts: boolean[] = [];
  const soFar: Spent[] = [];
  const caps = new Set<string>();
  let hasDaily = false;
  let hasBudgets = false;
  let hasTags = false;
  let hasLate = false;
  for (const settle of settles) {
    const { leaseId, allowanceId, budgetIds, request } = settle;
    const ofAccount = add(accounts, request.usage.accountId, settle);
    soFar.push({ ...ofAccount });
    const item = itemOf(settle, ofAccount.usd, nowMs);
    items.push(item);
    add(leases, leaseId, settle);
    // What the row of one request has is for it alone.
    if (leases.size > lasts.length) lasts.push(settle.isLast);
    if (allowanceId !== undefined) caps.add(allowanceId);
    for (const id of budgetIds ?? []) caps.add(id);
    hasLate ||= item.is_late;
    hasDaily ||= settle.dailyNano > 0n;
    hasBudgets ||= budgetIds !== undefined;
    hasTags ||= request.usage.metadata !== undefined;
  }
  const hasCaps = caps.size > 0;
  const isAlone = settles.length === 1;
  const severals = hasCaps ? SETTLE_CAPPED : SETTLE;
  const sql =
    (isAlone ? (hasCaps ? SETTLE_CAPPED_ALONE : SETTLE_ALONE) : severals) +
    (lasts.includes(true) ? DELETE_LAST : '') +
    (hasDaily ? POST_DAILY : '') +
    (hasBudgets ? COUNT_BUDGETS : hasCaps ? COUNT_CAPS : '') +
    (hasTags ? ADD_TO_TAGS : '') +
    (hasLate ? FORGET_SUMS : '') +
    LEASE_ROWS;
  const ofLeases = [...leases.values()];
  const parameters = [
    itemsText(items),
    dayOf(nowMs),
    nowMs,
    textsText(accounts.keys()),
    textsText(leases.keys()),
    `{${ofLeases.map(({ usd }) => usd).join()}}`,
    `{${ofLeases.map(({ diem }) => diem).join()}}`,
    `{${lasts.join()}}`,
  ];
  if (hasCaps) parameters.push(textsText(caps));
  return { sql, parameters, leases, soFar };
}

function add(sums: Map<string, Spent>, id: string, { usdNano, dailyNano }: LeaseSettle): Spent {
  let sum = sums.get(id);
  if (sum === undefined) {
    sum = { usd: 0n, diem: 0n };
    sums.set(id, sum);
  }
  sum.usd += usdNano;
  sum.diem += dailyNano;
  return sum;
}

function isSimple(
  { dailyNano, allowanceId, budgetIds, request: { usage } }: LeaseSettle,
  nowMs: number,
): boolean {
  const isUncapped = allowanceId === undefined && budgetIds === undefined;
  const isToday = nowMs - dayOf(usage.createdMs) * DAY_MS < LATE_AFTER_MS;
  return isUncapped && isToday && dailyNano === 0n && usage.metadata === undefined;
}

type Item = ReturnType<typeof itemOf>;

/**
 * The literal of an array of `ledger_settle`, which PostgreSQL reads in a quarter of the time that it
 * takes for objects of JSON. Null is nothing at all; quotes and backslashes of a text are escaped for
 * its record, and what escapes them for the array.
 */
function itemsText(items: readonly Item[]): string {
  let text = '{';
  for (const item of items) {
    text += text === '{' ? '"(' : ',"(';
    let separator = '';
    for (const field of ITEM_FIELDS) {
      const value = item[field];
      text += separator;
      separator = ',';
      if (typeof value === 'string') text += `\\"${escaped(value)}\\"`;
      else if (value !== null) text += String(value);
    }
    text += ')"';
  }
  return `${text}}`;
}

/** The literal of an array of texts. */
function textsText(texts: Iterable<string>): string {
  let text = '{';
  for (const one of texts) {
    text += `${text === '{' ? '' : ','}"${one.replaceAll(SPECIAL, String.raw`\$&`)}"`;
  }
  return `${text}}`;
}

const SPECIAL = /["\\]/g;
const ESCAPED = { '"': String.raw`\\\"`, '\\': String.raw`\\\\` } as const;

function escaped(text: string): string {
  // Nearly no text has one, and to look for a letter is quicker.
  if (!text.includes('"') && !text.includes('\\')) return text;
  return text.replaceAll(SPECIAL, (one) => ESCAPED[one as keyof typeof ESCAPED]); // matched above
}

function itemOf(settle: LeaseSettle, usdSoFar: bigint, nowMs: number) {
  const { usage } = settle.request;
  const day = dayOf(usage.createdMs);
  return {
    usd_so_far: usdSoFar,
    lease_id: settle.leaseId,
    allowance_id: null,
    budget_ids: null,
    is_last: null,
    is_late: nowMs - day * DAY_MS >= LATE_AFTER_MS,
    usd: settle.usdNano,
    diem: settle.dailyNano,
    reserved: settle.reservedNano,
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
