import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { startTestApp } from '../../test/app/test-app.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { openTestStore } from '../../test/databases/stores.ts';
import { runCommand } from '../cli/cli.ts';
import { TestUpstream } from '../../test/support/test-upstream.ts';

describe('farebox move', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-move-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  async function farebox(...argv: string[]) {
    let [out, error] = ['', ''];
    const code = await runCommand({
      argv,
      env: { FAREBOX_DATA: folder },
      cwd: folder,
      stdout: { write: (text: string) => (out += text) },
      stderr: { write: (text: string) => (error += text) },
      onSignal: () => undefined,
    });
    return { code, out, error };
  }

  test('`farebox move` copies and verifies all tables, and the keys work on the new database', async () => {
    const upstream = await TestUpstream.start();
    upstream.otherwise = { kind: 'json', usage: true };
    after(() => upstream.kill());
    const yaml = `engines: { fake: { url: ${upstream.url} } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: fake }] }`;
    const before = await startTestApp({ yaml, dataFolder: folder });
    const { secret } = await before.account('3');
    const chat = async (base: string): Promise<number> => {
      const answer = await fetch(`${base}/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: '{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
      });
      await answer.text();
      return answer.status;
    };
    for (let at = 0; at < 5; at += 1) assert.equal(await chat(before.url), 200);
    const target = await emptyPostgresDatabase();
    const running = await farebox('move', '--to', target);
    assert.equal(running.code, 1);
    assert.match(running.error, /A server uses the data folder/);
    await before.stop();

    const moved = await farebox('move', '--to', target, '--json');
    assert.equal(moved.code, 0, moved.error);
    const report = JSON.parse(moved.out) as {
      ok: boolean;
      tables: { table: string; rows: number }[];
      audits: { source: unknown; target: unknown };
    };
    assert.equal(report.ok, true);
    assert.deepEqual(report.audits.source, report.audits.target);
    assert.equal(report.tables.find((one) => one.table === 'ledger_usage')?.rows, 5);

    const afterMove = await startTestApp({ yaml, databaseUrl: target });
    assert.equal(await chat(afterMove.url), 200);
    await afterMove.audit();
    await afterMove.stop();

    const again = await farebox('move', '--to', target);
    assert.equal(again.code, 1);
    assert.match(again.error, /The target database must be empty/);
  });

  test('`farebox move` copies a text with NUL, which PostgreSQL cannot store', async () => {
    const dataFolder = mkdtempSync(join(folder, 'nul-'));
    const app = await startTestApp({ dataFolder });
    const secret = await app.key({ kind: 'ADMIN' });
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const created = await fetch(`${app.url}/api_keys`, {
      method: 'POST',
      headers,
      body: JSON.stringify({ apiKeyType: 'INFERENCE', description: 'my\0key' }),
    });
    assert.equal(created.status, 200, await created.text());
    await app.stop();
    const databaseUrl = await emptyPostgresDatabase();
    const moved = await farebox('move', '--data', dataFolder, '--to', databaseUrl);
    assert.equal(moved.code, 0, moved.error);
    const target = await openTestStore(databaseUrl);
    const rows = await target.query(
      "SELECT id FROM identity_key WHERE description = 'my\uFFFDkey'",
    );
    assert.equal(rows.length, 1);
    await target.close();
  });

  test('`farebox move` needs the URL of a PostgreSQL database', async () => {
    const { code, error } = await farebox('move', '--to', 'sqlite:./other.db');
    assert.equal(code, 2);
    assert.match(error, /--to must be the URL of a PostgreSQL database/);
  });
});
