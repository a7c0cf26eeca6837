/**
 * Commands beside a server under load: `farebox debit` and `farebox credit` change the balance of
 * running requests. No balance becomes negative, and every complete response is settled once, at
 * the cost that it shows.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { PROGRAM } from '../app/program.ts';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { openTestStore } from '../databases/stores.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { startFarebox } from './farebox-process.ts';
import { endWithUs } from '../support/end-with-us.ts';

const CLIENTS = 16;
const ROUNDS = 3;

test('`farebox debit` and `farebox credit` beside a busy server keep balances non-negative and charge each response once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-beside-'));
  const upstream = await TestUpstream.start();
  // It thinks, so that all of them are under way nearly all the time.
  upstream.otherwise = {
    kind: 'answer',
    afterMs: 30,
    content: 'Hi',
    promptTokens: 12,
    completionTokens: 5,
  };
  after(async () => {
    await upstream.kill();
    rmSync(folder, { recursive: true, force: true });
  });
  const running = await startFarebox({ folder, yaml: yaml(upstream.url) });
  const command = (...words: string[]): Promise<string> =>
    new Promise((resolve) => {
      endWithUs(
        execFile(
          process.execPath,
          [PROGRAM, ...words],
          { cwd: folder, env: childEnvironment({}) },
          (_error, stdout, stderr) => resolve(stdout + stderr),
        ),
      );
    });
  const { secret } = running;
  assert.ok(secret !== undefined);
  const seen = new Map<string, number>();
  const load = { isOver: false };
  const clients = Array.from({ length: CLIENTS }, async () => {
    while (!load.isOver) {
      const answer = await fetch(`${running.url}/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: '{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":60000}',
      });
      const body = (await answer.json()) as { cost?: { usd: number } }; // documented
      // 402: taken away; 429: held by the others.
      assert.ok([200, 402, 429].includes(answer.status), String(answer.status));
      if (body.cost !== undefined)
        seen.set(String(answer.headers.get('x-request-id')), body.cost.usd);
    }
  });
  let taken = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    // Sixteen requests hold 0.12 each of 2: a debit of 1.9 is more than is free.
    if (/taken from/.test(await command('debit', '1.9'))) taken += 1;
    await command('credit', '1.9');
  }
  load.isOver = true;
  await Promise.all(clients);
  await running.stop();
  assert.ok(taken > 0 && seen.size > CLIENTS, `${taken} debits, ${seen.size} answers`);
  const store = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
  try {
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    const report = await ledger.audit();
    assert.deepEqual([report.differences, report.openHolds], [[], 0]);
    const rows = await store.query<{ request_id: string; usd_nano: bigint }>(
      'SELECT request_id, usd_nano FROM ledger_usage',
    );
    const paid = new Map(rows.map((row) => [row.request_id, Number(row.usd_nano) / 1e9]));
    for (const [id, usd] of seen) assert.equal(paid.get(id), usd, id);
  } finally {
    await store.close();
  }
});

function yaml(engineUrl: string): string {
  return `listen: { host: 127.0.0.1, port: 0 }
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: silent }
engines: { fake: { url: ${engineUrl} } }
models:
  - { id: m, type: text, context: 131072, maxCompletionTokens: 65536, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }
limits: { starterCreditUsd: 2, plans: { staff: { text: { XS: &wide { requestsPerMinute: 10000000, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } } }
`;
}
