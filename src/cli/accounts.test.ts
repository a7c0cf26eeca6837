/** Lists of any length: pages of them are in memory, and what is printed is one list. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { DatabaseSync } from 'node:sqlite';
import { runCommand } from './cli.ts';

const ACCOUNTS = 1_203;
const KEYS = 2_101;
/** Lines of one write, which are rows in memory at that time. */
const MOST_LINES = 1_001;

describe('long lists', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  async function farebox(...argv: string[]): Promise<readonly string[]> {
    const written: string[] = [];
    const code = await runCommand({
      argv,
      env: { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: '' },
      cwd: folder,
      stdout: { write: (text) => void written.push(text) },
      stderr: { write: (text) => assert.fail(text) },
      onSignal: () => undefined,
    });
    assert.equal(code, 0);
    const most = Math.max(...written.map((text) => text.split('\n').length));
    assert.ok(most <= MOST_LINES, `${most} lines were made at once`);
    return written;
  }

  const rowsOf = (text: string) => text.split('\n').slice(1, -1);

  before(async () => {
    writeFileSync(
      join(folder, 'farebox.yaml'),
      'embedded: { enabled: false }\ndiscovery: { enabled: false }\n',
    );
    await farebox('accounts', 'create', 'first');
    await farebox('credit', '2.50', '--account', 'first');
    const database = new DatabaseSync(join(folder, 'data', 'farebox.db'));
    // Several of one time, on either side of where a page ends.
    database.exec(`
      UPDATE identity_account SET created_ms = 999;
      WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ${ACCOUNTS - 1})
      INSERT INTO identity_account (id, name, plan, disabled, limits, created_ms)
        SELECT 'acct_' || printf('%05d', at), 'number ' || at, 'paid', 0, '{}', 1000 + at / 7 FROM n;
      WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ${KEYS})
      INSERT INTO identity_key (id, account_id, kind, secret_sha256, last6, description, created_ms,
          expires_ms, limit_period, model_privacy)
        SELECT 'key_' || printf('%05d', at), (SELECT id FROM identity_account WHERE name = 'first'),
          'INFERENCE', 'digest ' || at, 'abcdef', 'number ' || at, 1000 + at / 7, 2000, 'EPOCH', 'ALL'
        FROM n;`);
    database.close();
  });

  test('all accounts are listed, oldest first, in columns of one width', async () => {
    const text = (await farebox('accounts', 'list')).join('');
    const rows = rowsOf(text);
    assert.equal(rows.length, ACCOUNTS);
    assert.match(rows[0] ?? '', /^acct_\w+ +first +paid +2\.50 /);
    assert.deepEqual(
      rows.map((row) => /(?:first|number \d+)/.exec(row)?.[0]),
      ['first', ...Array.from({ length: ACCOUNTS - 1 }, (_, at) => `number ${at + 1}`)],
    );
    const at = text.indexOf('NAME');
    assert.ok(rows.every((row) => /^(?:first|number)/.test(row.slice(at))));
  });

  test('with --json they are one document', async () => {
    const text = (await farebox('accounts', 'list', '--json')).join('');
    const listed = JSON.parse(text) as { name: string; balanceUsd: string }[];
    assert.equal(listed.length, ACCOUNTS);
    assert.deepEqual([listed[0]?.name, listed[0]?.balanceUsd], ['first', '2.50']);
    assert.equal(text, `${JSON.stringify(listed, undefined, 2)}\n`);
    const none = await farebox('keys', 'list', '--account', 'number 1', '--json');
    assert.equal(none.join(''), '[]\n');
  });

  test('and so are all keys of an account', async () => {
    const rows = rowsOf((await farebox('keys', 'list', '--account', 'first')).join(''));
    assert.equal(new Set(rows.map((row) => row.slice(0, 'key_00000'.length))).size, KEYS);
    assert.equal(rows.length, KEYS);
    const none = await farebox('keys', 'list', '--account', 'number 1');
    assert.match(none.join(''), /has no keys/);
  });
});
