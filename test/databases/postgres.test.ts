import assert from 'node:assert/strict';
import { cpSync, chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import { installedPackage, preparePostgres, startPostgres } from './postgres.ts';

test('PostgreSQL runs from a package in a folder that only its owner can enter', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-closed-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o700);
  cpSync(installedPackage(), join(folder, 'package'), { recursive: true });
  const server = await startPostgres({ from: preparePostgres(join(folder, 'package')) });
  t.after(() => server.close());
  const client = new pg.Client({ connectionString: server.url('postgres') });
  await client.connect();
  const { rows } = await client.query('SELECT 1 + 1 AS sum');
  await client.end();
  assert.deepEqual(rows, [{ sum: 2 }]);
});
