/**
 * Batches whose processes die: after kill upon kill every request has one line and one charge, and of
 * two processes that both think that they have a batch, one sells each line.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import OpenAI from 'openai';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Store } from '../../src/db/db.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { openTestStore } from '../databases/stores.ts';
import { batchEnd, chatLine, linesOfFile, startBatch } from '../support/batch-client.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { type FareboxProcess, startFarebox } from './farebox-process.ts';

const LINES = 300;
const KILLS = 4;
/** 12 prompt tokens and 5 completion tokens, at half of 1 and 2 USD per million. */
const COST_NANO = 11_000n;

let upstream: TestUpstream;
const folders: string[] = [];
const running = new Set<FareboxProcess>();
before(async () => {
  upstream = await TestUpstream.start();
  upstream.otherwise = {
    kind: 'answer',
    afterMs: 15,
    content: 'Hi',
    promptTokens: 12,
    completionTokens: 5,
  };
});
after(async () => {
  for (const one of running) await one.stop('SIGKILL');
  await upstream.kill();
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-batch-'));
  folders.push(folder);
  return folder;
}

async function start(folder: string, database?: string): Promise<FareboxProcess> {
  const farebox = await startFarebox({
    folder,
    yaml: `listen: { host: 127.0.0.1, port: 0 }
${database === undefined ? '' : `database: ${JSON.stringify(database)}`}
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: silent }
batches: { concurrency: 8 }
engines: { fake: { url: ${upstream.url} } }
models:
  - { id: atlas, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
`,
  });
  running.add(farebox);
  return farebox;
}

async function kill(farebox: FareboxProcess): Promise<void> {
  running.delete(farebox);
  await farebox.stop('SIGKILL');
}

function clientOf({ url }: FareboxProcess, secret: string): OpenAI {
  return new OpenAI({ baseURL: url, apiKey: secret, maxRetries: 0 });
}

/** Waits until so many lines of the batch have a result. */
async function linesDone(store: Store, count: number): Promise<void> {
  for (;;) {
    const rows = await store.query("SELECT seq FROM batches_piece WHERE content_id LIKE 'batch_%'");
    if (rows.length >= count) return;
    await delay(20);
  }
}

/** Every request has one line, in order, and each line is one charge at its price. */
async function assertSoldOnce(store: Store, client: OpenAI, batchId: string): Promise<void> {
  const batch = await client.batches.retrieve(batchId);
  assert.equal(batch.status, 'completed');
  assert.deepEqual(batch.request_counts, { total: LINES, completed: LINES, failed: 0 });
  const lines = await linesOfFile(client, batch.output_file_id);
  assert.deepEqual(
    lines.map((line) => line.custom_id),
    Array.from({ length: LINES }, (_, at) => `q-${at}`),
  );
  const rows = await store.query<{ request_id: string; usd_nano: bigint; diem_nano: bigint }>(
    'SELECT request_id, usd_nano, diem_nano FROM ledger_usage WHERE usd_nano + diem_nano > 0',
  );
  assert.deepEqual(
    rows.map((row) => row.request_id).toSorted(),
    lines.map((line) => line.response?.request_id ?? '').toSorted(),
  );
  for (const row of rows) assert.equal(row.usd_nano + row.diem_nano, COST_NANO);
  // The batch says what all of them cost.
  const { cost } = batch as unknown as { cost: { usd: number; diem: number } };
  assert.equal(Math.round((cost.usd + cost.diem) * 1e9), LINES * Number(COST_NANO));
  assert.equal(batch.usage?.output_tokens, LINES * 5);
}

async function assertAudit(store: Store): Promise<void> {
  const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
  const report = await ledger.audit();
  assert.deepEqual([report.differences, report.openHolds], [[], 0]);
}

test(`${KILLS} kills in the middle of a batch: every request has one line and one charge`, async () => {
  const folder = newFolder();
  const first = await start(folder);
  const secret = first.secret ?? '';
  const lines = Array.from({ length: LINES }, (_, at) => chatLine(`q-${at}`));
  const { id } = await startBatch(clientOf(first, secret), lines);
  let farebox = first;
  for (let killed = 0; killed < KILLS; killed += 1) {
    const store = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
    await linesDone(store, (killed + 1) * 50);
    await kill(farebox);
    await assertAudit(store);
    await store.close();
    farebox = await start(folder);
  }
  const client = clientOf(farebox, secret);
  await batchEnd(client, id);
  const store = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
  await assertSoldOnce(store, client, id);
  await kill(farebox);
  await assertAudit(store);
  await store.close();
});

/** Suspends a process within a transaction, so that it keeps its row locks. */
async function stopBetweenTransactions({ child }: FareboxProcess, store: Store): Promise<void> {
  for (;;) {
    child.kill('SIGSTOP');
    const [row] = await store.query<{ open: bigint }>(
      `SELECT count(*) AS open FROM pg_stat_activity WHERE datname = current_database()
       AND pid <> pg_backend_pid() AND state <> 'idle'`,
    );
    if (row?.open === 0n) return;
    child.kill('SIGCONT');
    await delay(3);
  }
}

test('a process that was suspended while another took over its batch charges no line again', async () => {
  const database = await emptyPostgresDatabase();
  const store = await openTestStore(database);
  const first = await start(newFolder(), database);
  const secret = first.secret ?? '';
  const lines = Array.from({ length: LINES }, (_, at) => chatLine(`q-${at}`));
  const { id } = await startBatch(clientOf(first, secret), lines);
  await linesDone(store, 60);
  await stopBetweenTransactions(first, store);
  const second = await start(newFolder(), database);
  // As if the time of its lease were over.
  await store.query('UPDATE batches_batch SET lease_until_ms = 0');
  await linesDone(store, 150);
  first.child.kill('SIGCONT');
  const client = clientOf(second, secret);
  await batchEnd(client, id);
  await assertSoldOnce(store, client, id);
  for (const one of [first, second]) {
    running.delete(one);
    assert.equal(await one.stop(), 0);
  }
  await assertAudit(store);
  await store.close();
});
