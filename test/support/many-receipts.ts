/**
 * Fills a database directly with receipts, as the server writes them: charges of 90 days with their
 * postings, day and tag sums, accounts and the credit that they have spent. The audit of the result is
 * clean.
 */
import type { Store } from '../../src/db/db.ts';

const STEP = 100_000;
const DAY_MS = 86_400_000;
export const DAYS = 90;
/** Each with two keys; the first ones send most of the requests. */
const ACCOUNTS = 1_000;
const MODELS = 12;

/** A number below `below` that depends on the row, without a pattern in the order of rows. */
const spread = (prime: number, below: number) => `((i * ${prime}) % 1000003 % ${below})`;

/** Rows `i`, each with the columns of its receipt that several tables need. */
function rowsSql(sinceMs: number, rows: number, isPostgres: boolean): string {
  const numbers = isPostgres
    ? 'SELECT generate_series($1::bigint, $2::bigint) AS i'
    : 'WITH RECURSIVE n(i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n WHERE i < $2) SELECT i FROM n';
  const id = isPostgres
    ? `lpad(to_hex(at), 12, '0') || lpad(to_hex(i), 20, '0')`
    : `printf('%012x%020x', at, i)`;
  const stepMs = (DAYS * DAY_MS) / rows;
  const at = `CAST(${sinceMs} + i * ${stepMs} AS BIGINT)`;
  return `SELECT i, at, ${id} AS id, at / ${DAY_MS} AS day, 'acct_' || who AS account_id,
    'key_' || who || '_' || (i % 2) AS key_id, 'model-' || model AS model_id,
    'engine-' || ((model + i % 2) % 4) AS engine,
    CASE ${spread(611_953, 200)} WHEN 0 THEN 'failed' WHEN 1 THEN 'aborted' ELSE 'completed' END AS status,
    CASE ${spread(15_485_863, 20)} WHEN 0 THEN 'embeddings' ELSE 'chat' END AS kind,
    1000 + ${spread(32_452_843, 100_000)} * ${spread(49_979_687, 1_000)} AS usd,
    CASE WHEN ${spread(86_028_121, 5)} = 0
      THEN '{"team":"team-' || ${spread(67_867_967, 50)} || '"}' END AS metadata
    FROM (SELECT i, ${at} AS at, ${spread(104_395_301, MODELS)} AS model,
      ${spread(122_949_823, ACCOUNTS)} * ${spread(141_650_939, ACCOUNTS)} / ${ACCOUNTS} AS who
      FROM (${numbers}) numbers) facts`;
}

export async function fillReceipts(store: Store, count: number): Promise<void> {
  const isPostgres = store.dialect === 'postgres';
  const rows = rowsSql(Date.now() - DAYS * DAY_MS, count, isPostgres);
  for (let from = 1; from <= count; from += STEP) {
    const end = Math.min(count, from + STEP - 1);
    const range = [BigInt(from), BigInt(end)];
    await store.transaction(
      async (tx) => {
        await tx.query(
          `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind, model_id,
           replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
           reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms,
           first_token_ms, status, metadata, cost_nano) SELECT id, day, at, account_id, key_id, kind,
           model_id, engine, 1, 200, 300, 0, 0, 0, 'engine', 'abcdefabcdef', usd, 0, 900, 100, status,
           metadata, usd / 2 FROM (${rows}) r`,
          range,
        );
        await tx.query(
          `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account, credit_account,
           amount_nano, balance_after_nano, kind, request_id, model_id, created_ms)
           SELECT id, 0, day, account_id, account_id, 'house:revenue', usd, 1000000, 'CHARGE', id,
           model_id, at FROM (${rows}) r`,
          range,
        );
      },
      { timeoutMs: 600_000, durable: false },
    );
    if (process.stderr.isTTY) {
      process.stderr.write(`\r${Math.round((100 * end) / count)} % of ${count} receipts`);
    }
  }
  if (process.stderr.isTTY) process.stderr.write('\n');
  const sums = `count(*), sum(CASE WHEN status = 'failed' THEN 1 ELSE 0 END), sum(prompt_tokens),
    sum(completion_tokens), sum(usd_nano), sum(diem_nano)`;
  const columns = 'requests, errors, prompt_tokens, completion_tokens, usd_nano, diem_nano';
  const tagKey = 'account_id, name, day, value, key_id, model_id';
  const value = isPostgres ? `metadata::json ->> 'team'` : `metadata ->> 'team'`;
  await store.transaction(
    async (tx) => {
      await tx.query(`INSERT INTO ledger_usage_day (day, model_id, engine, account_id, key_id,
        ${columns}, cost_nano) SELECT day, model_id, replica, account_id, key_id, ${sums},
        sum(cost_nano) FROM ledger_usage GROUP BY 1, 2, 3, 4, 5`);
      await tx.query(`INSERT INTO ledger_usage_tag (${tagKey}, ${columns}) SELECT account_id, 'team',
        day, ${value}, key_id, model_id, ${sums} FROM ledger_usage WHERE metadata IS NOT NULL
        GROUP BY 1, 2, 3, 4, 5, 6`);
      await tx.query(`INSERT INTO identity_account (id, name, plan, disabled, created_ms)
        SELECT account_id, 'customer ' || account_id, 'paid', 0, min(created_ms) FROM ledger_usage
        GROUP BY account_id`);
      await tx.query(`INSERT INTO ledger_account (id, balance_nano, held_nano, daily_allocation_nano,
        daily_day, daily_spent_nano, daily_held_nano, created_ms)
        SELECT account_id, 1000000, 0, 0, 0, 0, 0, min(created_ms) FROM ledger_usage
        GROUP BY account_id`);
      await tx.query(`INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
        credit_account, amount_nano, balance_after_nano, kind, created_ms)
        SELECT 'fill-' || account_id, 0, min(day), account_id, 'house:operator-credit', account_id,
        sum(usd_nano) + 1000000, 1000000, 'CREDIT', min(created_ms) FROM ledger_usage
        GROUP BY account_id`);
      if (isPostgres) await tx.query('ANALYZE');
    },
    { timeoutMs: 600_000, durable: false },
  );
}
