/**
 * Speed with large tables: a server with 10,000 models, 100,000 API keys and ten million receipts
 * and postings of the last 30 days, compared with a new one. Filling takes some minutes and 6 GB of
 * disk; `ROWS=1000000` makes a smaller run.
 *
 * Run: node bench/big-tables.ts
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import {
  chatBody,
  compare,
  report,
  startGateway,
  startProcess,
  stopAll,
  temporaryFolder,
} from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const ROWS = Number(process.env['ROWS'] ?? '10000000');
const STEP = 500_000;
const KEYS = 100_000;
const MODELS = 10_000;
const ACCOUNTS = 1_000;
const DAY_MS = 86_400_000;
const DAYS = 30;

const upstream = await startProcess('./upstream.ts');

/** Inserts rows as the product writes them, in the order of time, by SQL. */
function fill(folder: string): void {
  const database = new DatabaseSync(join(folder, 'farebox.db'));
  database.exec('PRAGMA synchronous = OFF; PRAGMA cache_size = -262144');
  const numbers = 'WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)';
  const key = `${numbers} INSERT INTO identity_key (id, account_id, kind, secret_sha256, last6,
    description, created_ms, limit_period, model_privacy)
    SELECT 'key_' || i, 'acct_' || (i % ${ACCOUNTS}), 'INFERENCE', hex(randomblob(32)), 'abcdef',
    'bench', i, 'EPOCH', 'ALL' FROM n`;
  database.prepare(key).run(1, KEYS);
  const sinceMs = Date.now() - DAYS * DAY_MS;
  const msOf = `(${sinceMs} + i * ${(DAYS * DAY_MS) / ROWS})`;
  const at = `CAST(${msOf} AS INTEGER)`;
  const id = `printf('%012x%s', ${at}, lower(hex(randomblob(10))))`;
  const usage = `${numbers} INSERT INTO ledger_usage SELECT ${id}, ${at} / ${DAY_MS}, ${at},
    'acct_' || (i % ${ACCOUNTS}), 'key_' || (i % ${KEYS}), 'chat', 'bench-model', 'bench', 1, 200,
    300, 0, 0, 0, 'engine', 'abcdefabcdef', 70000, 0, 900, 100, 'completed', NULL, NULL,
    NULL, NULL, NULL FROM n`;
  const transfer = `${numbers} INSERT INTO ledger_transfer SELECT ${id}, 0, ${at} / ${DAY_MS},
    'acct_' || (i % ${ACCOUNTS}), 'acct_' || (i % ${ACCOUNTS}), 'house:revenue', 70000, 1000000,
    'CHARGE', NULL, 'bench-model', NULL, ${at} FROM n`;
  for (let from = 1; from <= ROWS; from += STEP) {
    const to = Math.min(ROWS, from + STEP - 1);
    database.exec('BEGIN');
    database.prepare(usage).run(from, to);
    database.prepare(transfer).run(from, to);
    database.exec('COMMIT; PRAGMA wal_checkpoint(TRUNCATE)');
    process.stderr.write(`\r${Math.round((100 * to) / ROWS)} % of ${ROWS} rows`);
  }
  process.stderr.write('\n');
  database.close();
}

try {
  const grown = temporaryFolder();
  const made = await startGateway(upstream, { env: { FAREBOX_DATA: grown } });
  process.kill(made.pid, 'SIGUSR2');
  await waitForEnd(made.pid);
  fill(grown);
  const env = { FAREBOX_DATA: grown, BENCH_MODELS: String(MODELS) };
  const targets = [
    await startGateway(upstream, { name: 'just set up' }),
    { ...(await startGateway(upstream, { name: 'grown', env })), headers: made.headers ?? {} },
  ];
  const load = { path: '/chat/completions', connections: 64, windowMs: 1_000, body: chatBody() };
  report(`chat JSON, ${ROWS} receipts`, await compare(targets, load, ROUNDS));
} finally {
  await stopAll();
}

async function waitForEnd(pid: number): Promise<void> {
  for (;;) {
    try {
      process.kill(pid, 0);
    } catch {
      return; // the file does not exist
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
