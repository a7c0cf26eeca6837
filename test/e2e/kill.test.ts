/**
 * Repeated `kill -9` under load: after each restart the audit finds no difference, and every
 * complete response is settled exactly once, at the cost that it shows.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Pool } from 'undici';
import { TestUpstream } from '../support/test-upstream.ts';
import { openTestStore } from '../databases/stores.ts';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { until } from '../support/until.ts';
import { silentLog } from '../../src/core/log.ts';
import { startFarebox } from './farebox-process.ts';

const KILLS = 20;
const CLIENTS = 24;
const SEED = Number(process.env['SEED'] ?? String(Date.now() % 100_000));

/** A complete response: its request and the cost that it shows. */
interface SeenResponse {
  readonly requestId: string;
  readonly usd: number;
}

test('after 20 kills under load the audit succeeds and every complete response is settled once', async () => {
  const random = seededIds(SEED);
  const folder = mkdtempSync(join(tmpdir(), 'farebox-kill-'));
  const upstream = await TestUpstream.start();
  upstream.otherwise = { kind: 'json', usage: true };
  after(async () => {
    await upstream.kill();
    rmSync(folder, { recursive: true, force: true });
  });
  const seen: SeenResponse[] = [];
  let secret: string | undefined;
  for (let kill = 0; kill < KILLS; kill += 1) {
    const running = await startFarebox({ folder, yaml: yaml(upstream.url) });
    secret ??= running.secret;
    assert.ok(secret !== undefined);
    const before = seen.length;
    const load = runLoad(running.url, secret, seen);
    await until(() => seen.length > before, 'a first answer');
    await new Promise((resolve) => setTimeout(resolve, random.fraction() * 250));
    await running.stop('SIGKILL');
    await load;
    await assertSettled(folder, seen, `seed ${SEED}, kill ${kill}`);
  }
});

function yaml(engineUrl: string): string {
  return `listen: { host: 127.0.0.1, port: 0 }
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: silent }
engines: { fake: { url: ${engineUrl} } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
limits: { starterCreditUsd: 100000, plans: { staff: { text: { XS: &wide { requestsPerMinute: 10000000, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } } }
`;
}

/** Clients that send requests until the server is gone. */
async function runLoad(url: string, secret: string, seen: SeenResponse[]): Promise<void> {
  const pool = new Pool(new URL(url).origin, { connections: CLIENTS, pipelining: 1 });
  const client = async (): Promise<void> => {
    for (;;) {
      try {
        const answer = await pool.request({
          path: '/api/v1/chat/completions',
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: '{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
        });
        const body = (await answer.body.json()) as { cost: { usd: number } };
        if (answer.statusCode !== 200) throw new Error(`Status ${answer.statusCode}`);
        const requestId = String(answer.headers['x-request-id']);
        seen.push({ requestId, usd: body.cost.usd });
      } catch {
        // The server was killed: what was not seen in full is not counted.
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  await pool.destroy();
}

async function assertSettled(
  folder: string,
  seen: readonly SeenResponse[],
  when: string,
): Promise<void> {
  const store = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
  try {
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    const report = await ledger.audit();
    assert.deepEqual([report.differences, report.openHolds], [[], 0], when);
    const rows = await store.query<{ request_id: string; usd_nano: bigint }>(
      'SELECT request_id, usd_nano FROM ledger_usage',
    );
    const paid = new Map(rows.map((row) => [row.request_id, row.usd_nano]));
    for (const answer of seen) {
      const nano = paid.get(answer.requestId);
      assert.ok(nano !== undefined, `${when}: ${answer.requestId} was seen and is not settled`);
      assert.equal(Number(nano) / 1e9, answer.usd, when);
    }
  } finally {
    await store.close();
  }
}
