/**
 * Settles of one tick in one statement, for holds of USD alone without a cap: the hold's row goes,
 * the balance falls, the transfer, the receipt and the day's sum are written, all or nothing.
 * What finds no such hold is settled under a lock (`settle.ts`).
 */
import { dayOf } from '../../../core/clock.ts';
import { nano } from '../../../core/money.ts';
import type { Queryable } from '../../../db/db.ts';
import type { SettleRequest, Settlement, UsageRecord } from '../records.ts';

/** As `settle.ts` counts them. */
const ERRORS = "count(*) FILTER (WHERE status IN ('failed', 'expired'))";

const SETTLE = `WITH item AS (
  SELECT * FROM json_to_recordset($1::json) AS i(seq bigint, cost bigint, request_id text, day bigint,
    created_ms bigint, account_id text, key_id text, kind text, model_id text, replica text,
    attempts bigint, prompt_tokens bigint, completion_tokens bigint, cached_tokens bigint,
    cache_write_tokens bigint, reasoning_tokens bigint, counted_by text, price_version text,
    latency_ms bigint, first_token_ms bigint, status text, extras text, metadata text)
), hold AS (
  DELETE FROM ledger_hold h USING item i
  WHERE h.request_id = i.request_id AND h.account_id = i.account_id
    AND h.allowance_id IS NULL AND h.daily_nano = 0
  RETURNING h.request_id, h.usd_nano
), part AS (
  SELECT i.*, h.usd_nano AS held, least(i.cost, h.usd_nano) AS usd
  FROM item i JOIN hold h ON h.request_id = i.request_id
), total AS (
  SELECT account_id, sum(usd) AS usd, sum(held) AS held FROM part GROUP BY account_id
), locked AS (
  SELECT a.id FROM ledger_account a WHERE a.id IN (SELECT account_id FROM total) ORDER BY a.id FOR UPDATE
), account AS (
  UPDATE ledger_account a SET balance_nano = a.balance_nano - t.usd, held_nano = a.held_nano - t.held
  FROM total t JOIN locked l ON l.id = t.account_id WHERE a.id = t.account_id
  RETURNING a.id, a.balance_nano,
    greatest(0, CASE WHEN coalesce(a.daily_allocation_day, $2) = $2 THEN a.daily_allocation_nano ELSE 0 END
      - CASE WHEN a.daily_day = $2 THEN a.daily_spent_nano ELSE 0 END) AS daily_left
), done AS (
  SELECT p.*, a.balance_nano + t.usd - sum(p.usd) OVER (PARTITION BY p.account_id ORDER BY p.seq) AS balance_after,
    a.daily_left
  FROM part p JOIN account a ON a.id = p.account_id JOIN total t ON t.account_id = p.account_id
), transfer AS (
  INSERT INTO ledger_transfer (id, part, day, account_id, debit_account, credit_account, amount_nano,
    balance_after_nano, kind, request_id, model_id, note, created_ms)
  SELECT request_id, 0, $2, account_id, account_id, 'house:revenue', usd, balance_after, 'CHARGE',
    request_id, model_id, NULL, $3 FROM done WHERE usd > 0
), usage AS (
  INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind, model_id, replica,
    attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens,
    counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms, status, extras, metadata,
    reserved_nano)
  SELECT request_id, day, created_ms, account_id, key_id, kind, model_id, replica, attempts,
    prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, counted_by,
    price_version, usd, 0, latency_ms, first_token_ms, status, extras, metadata, held FROM done
), days AS (
  INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, requests, errors, prompt_tokens,
    completion_tokens, usd_nano, diem_nano)
  SELECT account_id, day, key_id, model_id, count(*), ${ERRORS}, sum(prompt_tokens),
    sum(completion_tokens), sum(usd), 0 FROM done GROUP BY account_id, day, key_id, model_id
    ORDER BY account_id, day, key_id, model_id
  ON CONFLICT (account_id, day, key_id, model_id) DO UPDATE SET
    requests = ledger_usage_day.requests + excluded.requests,
    errors = ledger_usage_day.errors + excluded.errors,
    prompt_tokens = ledger_usage_day.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = ledger_usage_day.completion_tokens + excluded.completion_tokens,
    usd_nano = ledger_usage_day.usd_nano + excluded.usd_nano
)`;
/** Only for a tick that has tags: the others are not planned with it. */
const ADD_TO_TAGS = `, tags AS (
  INSERT INTO ledger_usage_tag (account_id, name, day, value, key_id, model_id, requests,
    errors, prompt_tokens, completion_tokens, usd_nano, diem_nano)
  SELECT account_id, tag.key, day, tag.value, key_id, model_id, count(*), ${ERRORS}, sum(prompt_tokens),
    sum(completion_tokens), sum(usd), 0
    FROM done CROSS JOIN LATERAL json_each_text(done.metadata::json) AS tag
    WHERE metadata IS NOT NULL
    GROUP BY account_id, tag.key, day, tag.value, key_id, model_id
    ORDER BY account_id, tag.key, day, tag.value, key_id, model_id
  ON CONFLICT (account_id, name, day, value, key_id, model_id) DO UPDATE SET
    requests = ledger_usage_tag.requests + excluded.requests,
    errors = ledger_usage_tag.errors + excluded.errors,
    prompt_tokens = ledger_usage_tag.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = ledger_usage_tag.completion_tokens + excluded.completion_tokens,
    usd_nano = ledger_usage_tag.usd_nano + excluded.usd_nano
)`;
const SETTLED_ROWS = `
SELECT request_id, cost, held, usd, balance_after, daily_left FROM done`;

interface SettledRow {
  readonly request_id: string;
  readonly cost: bigint;
  readonly held: bigint;
  readonly usd: bigint;
  readonly balance_after: bigint;
  readonly daily_left: bigint;
}

export interface FastSettle {
  readonly settlement: Settlement;
  /** What was held, to notice a cost above it. */
  readonly heldNano: bigint;
}

/** By request id; a request that is missing has to be settled under a lock. */
export async function settleFast(
  store: Queryable,
  requests: readonly SettleRequest[],
  nowMs: number,
): Promise<ReadonlyMap<string, FastSettle>> {
  const items = requests.map((request, seq) => itemOf(request, seq));
  const hasTags = items.some((item) => item.metadata !== null);
  const sql = SETTLE + (hasTags ? ADD_TO_TAGS : '') + SETTLED_ROWS;
  const rows = await store.query<SettledRow>(sql, [JSON.stringify(items), dayOf(nowMs), nowMs]);
  return new Map(
    rows.map((row) => [
      row.request_id,
      {
        heldNano: row.held,
        settlement: {
          fresh: true,
          usdNano: nano(row.usd),
          diemNano: nano(0n),
          after: { usdNano: nano(row.balance_after), diemNano: nano(row.daily_left) },
        },
      },
    ]),
  );
}

function itemOf(request: SettleRequest, seq: number) {
  const usage: UsageRecord = request.usage;
  return {
    seq,
    cost: String(request.costNano),
    request_id: usage.requestId,
    day: dayOf(usage.createdMs),
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
