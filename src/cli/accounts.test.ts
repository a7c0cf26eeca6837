/** Lists of any length: the commands hold one page in memory and print one list. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { DatabaseSync } from 'node:sqlite';
import { startTestApp } from '../../test/app/test-app.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { makeSqliteDatabase } from '../../test/databases/stores.ts';
import { untilBlocked } from '../../test/databases/waits.ts';
import { type CommandResult, runCli } from '../../test/support/run-cli.ts';
import { MIGRATIONS } from '../server/migrations.ts';

const ACCOUNTS = 1_203;
const KEYS = 2_101;
/** Rows that one write may have, which are the rows in memory. */
const MAX_LINES = 1_001;

describe('long lists', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  async function farebox(...argv: string[]): Promise<string> {
    const result = await runCli(folder, argv, { FAREBOX_DATA: join(folder, 'data') });
    assert.deepEqual([result.code, result.err], [0, '']);
    const lines = Math.max(...result.writes.map((text) => text.split('\n').length));
    assert.ok(lines <= MAX_LINES, `one write had ${lines} lines`);
    return result.out;
  }

  const rowsOf = (text: string) => text.split('\n').slice(1, -1);

  before(async () => {
    writeFileSync(
      join(folder, 'farebox.yaml'),
      'embedded: { enabled: false }\ndiscovery: { enabled: false }\n',
    );
    const file = join(folder, 'data', 'farebox.db');
    await makeSqliteDatabase(`sqlite:${file}`, MIGRATIONS);
    await farebox('accounts', 'create', 'first');
    await farebox('credit', '2.50', '--account', 'first');
    const database = new DatabaseSync(file);
    // Groups of seven rows with the same time cross the page boundaries.
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

  test('`accounts list` prints all accounts, oldest first, in aligned columns', async () => {
    const text = await farebox('accounts', 'list');
    const rows = rowsOf(text);
    assert.match(rows[0] ?? '', /^acct_\w+ +first +paid +2\.50 /);
    assert.deepEqual(
      rows.map((row) => /(?:first|number \d+)/.exec(row)?.[0]),
      ['first', ...Array.from({ length: ACCOUNTS - 1 }, (_, at) => `number ${at + 1}`)],
    );
    const at = text.indexOf('NAME');
    assert.ok(rows.every((row) => /^(?:first|number)/.test(row.slice(at))));
    assert.match(await farebox('accounts', 'list', '--search', 'none'), /No account matches/);
  });

  test('a list with --json is one JSON array', async () => {
    const text = await farebox('accounts', 'list', '--json');
    const listed = JSON.parse(text) as { name: string; balanceUsd: string }[];
    assert.equal(listed.length, ACCOUNTS);
    assert.deepEqual([listed[0]?.name, listed[0]?.balanceUsd], ['first', '2.50']);
    assert.equal(text, `${JSON.stringify(listed, undefined, 2)}\n`);
    assert.equal(await farebox('keys', 'list', '--account', 'number 1', '--json'), '[]\n');
  });

  test('`keys list` prints all keys of an account', async () => {
    const rows = rowsOf(await farebox('keys', 'list', '--account', 'first'));
    assert.equal(new Set(rows.map((row) => row.slice(0, 'key_00000'.length))).size, KEYS);
    assert.equal(rows.length, KEYS);
    assert.match(await farebox('keys', 'list', '--account', 'number 1'), /has no keys/);
  });
});

describe('accounts beside a running server', () => {
  test('`accounts update` keeps a change that the server makes at the same time', async () => {
    const databaseUrl = await emptyPostgresDatabase();
    const farebox = await startTestApp({ databaseUrl });
    const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
    try {
      const { accountId } = await farebox.account('1');
      const { store, identity } = farebox.app.stores;
      writeFileSync(join(folder, 'farebox.yaml'), `database: "${databaseUrl}"\n`);
      const updates: Promise<CommandResult>[] = [];
      await store.transaction(async (tx) => {
        await identity.lockAccount(accountId, tx);
        const argv = ['accounts', 'update', accountId, '--plan', 'pro'];
        updates.push(runCli(folder, argv, { FAREBOX_DATA: join(folder, 'data') }));
        await untilBlocked(store);
        const account = await identity.findAccount(accountId, tx);
        assert.ok(account !== undefined);
        await identity.updateAccount({ ...account, disabled: true }, tx);
      });
      const [result] = await Promise.all(updates);
      assert.deepEqual([result?.code, result?.err], [0, '']);
      const after = await identity.findAccount(accountId);
      assert.deepEqual([after?.plan, after?.disabled], ['pro', true]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
      await farebox.stop();
    }
  });
});
