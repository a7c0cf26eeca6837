import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs, { chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { openTestStore } from '../../test/databases/stores.ts';
import { openProblem } from './open-problem.ts';

const OTHER_USER = 65_534;
const folder = mkdtempSync(join(tmpdir(), 'farebox-open-'));
after(() => rmSync(folder, { recursive: true, force: true }));

async function problemOf(url: string): Promise<string> {
  try {
    const store = await openTestStore(url);
    try {
      await store.migrate([{ id: 'test-0001', up: 'CREATE TABLE one (id TEXT PRIMARY KEY)' }]);
    } finally {
      await store.close();
    }
  } catch (error) {
    return openProblem(error, url) ?? `No message: ${String(error)}`;
  }
  return 'It was opened';
}

test('the message for a SQLite file contains its path and the next step', async () => {
  const text = join(folder, 'notes.txt');
  writeFileSync(text, 'These are notes and no database.\n'.repeat(100));
  assert.equal(
    await problemOf(`sqlite:${text}`),
    `The database file is not a SQLite database (${text}): set "database" to another file, or replace it by a backup`,
  );
  const taken = join(folder, 'taken');
  mkdirSync(taken);
  assert.match(
    await problemOf(`sqlite:${taken}`),
    /cannot be opened \(\S*taken\): set "database" to a file/,
  );
});

test('the message for a SQLite file of another user contains its owner', (t) => {
  // Root can write every file, so it tests with a file that it has given to another user.
  const isRoot = process.getuid?.() === 0;
  const path = isRoot ? join(folder, 'theirs.db') : '/etc/passwd';
  if (isRoot) {
    writeFileSync(path, '');
    chownSync(path, OTHER_USER, OTHER_USER);
    t.mock.method(fs, 'accessSync', () => {
      throw Object.assign(new Error('EACCES'), { code: 'EACCES' });
    });
    syncBuiltinESMExports();
  }
  try {
    const cannotOpen = Object.assign(new Error('unable to open database file'), { errcode: 14 });
    const [owner, own] = isRoot ? [OTHER_USER, 0] : [0, process.getuid?.()];
    assert.equal(
      openProblem(cannotOpen, `sqlite:${path}`),
      `A file of the database cannot be opened (${path}): ${path} belongs to user ${owner}, but this process runs as user ${own}: run the command as that user, or change the owner`,
    );
  } finally {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  }
});

test('the message for a proxy without its PostgreSQL contains the next step', async () => {
  for (const end of ['destroy', 'resetAndDestroy'] as const) {
    const proxy = createServer((socket) => socket.once('data', () => socket[end]()));
    proxy.listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const { port } = proxy.address() as AddressInfo; // it listens on a port
    assert.match(
      await problemOf(`postgres://u@127.0.0.1:${port}/x`),
      /^PostgreSQL at 127\.0\.0\.1:\d+ does not accept connections: start it/,
    );
    proxy.close();
  }
});

test('the message for a PostgreSQL contains the problem and no password', async () => {
  const url = await emptyPostgresDatabase();
  const cases: [string, RegExp][] = [
    [
      'postgres://u:hunter2@127.0.0.1:1/x',
      /^PostgreSQL at 127\.0\.0\.1:1 does not accept connections: /,
    ],
    // Two addresses, and an error for several.
    [
      'postgres://u:hunter2@localhost:1/x',
      /^PostgreSQL at localhost:1 does not accept connections: start/,
    ],
    [
      'postgres://u:hunter2@nowhere.invalid/x',
      /The host name of .* at nowhere\.invalid has no address/,
    ],
    ['postgres://u:hunter2@@@@:x/x', /^The database URL is invalid: set "database" to postgres:/],
    [url.replace(/@([^/]*)\/[^?]*/, '@$1/gone'), /has no database "gone": create it \("createdb/],
    [
      url.replace(/\/\/[^@]*@/, '//nobody-here@'),
      /rejects the user "nobody-here": correct the name or the password/,
    ],
    [
      `${url}&options=-c%20default_transaction_read_only%3Don`,
      /accepts no writes: set "database" to the primary, or turn/,
    ],
  ];
  for (const [address, expected] of cases) {
    const problem = await problemOf(address);
    assert.match(problem, expected);
    assert.doesNotMatch(problem, /hunter2/);
  }
});
