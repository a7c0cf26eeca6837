import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import workerThreads from 'node:worker_threads';
import { TestClock } from '../../../test/support/test-clock.ts';
import { MINUTE_MS, systemClock } from '../../core/clock.ts';
import { silentLog } from '../../core/log.ts';
import { type LogLine, memoryLog } from '../../../test/support/memory-log.ts';
import type { FileWork, Queryable } from '../contract.ts';
import { until } from '../../../test/support/until.ts';
import { CommitUncertain, ReadTooLong, StoreUnavailable } from '../failures.ts';
import { MAX_READ_MS } from '../read-turns.ts';
import { lockData } from './server-lock.ts';
import { type Flush, type SqliteOptions, SqliteStore, flushFile } from './sqlite-store.ts';

async function withStore(
  options: Partial<SqliteOptions>,
  body: (store: SqliteStore, path: string) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-store-'));
  const path = join(folder, 'x.db');
  const store = new SqliteStore({ path, clock: new TestClock(), log: silentLog, ...options });
  try {
    await store.query('CREATE TABLE sample_row (id TEXT PRIMARY KEY, body TEXT)');
    await body(store, path);
  } finally {
    await store.close().catch(() => undefined);
    rmSync(folder, { recursive: true, force: true });
  }
}

const INSERT = 'INSERT INTO sample_row (id, body) VALUES ($1, $2)';

/** A disk whose flushes wait for the test. */
function heldDisk() {
  const waiting: (() => void)[] = [];
  let isHeld = false;
  let flushes = 0;
  const flush: Flush = (file, done) => {
    flushes += 1;
    if (isHeld) waiting.push(() => flushFile(file, done));
    else flushFile(file, done);
  };
  return {
    flush,
    flushes: () => flushes,
    hold: () => {
      isHeld = true;
      flushes = 0;
    },
    letGo: () => {
      isHeld = false;
      for (const go of waiting.splice(0)) go();
    },
  };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('a durable write waits for the flush, and a slow flush does not block the event loop', async () => {
  const disk = heldDisk();
  await withStore({ flush: disk.flush }, async (store) => {
    disk.hold();
    let resolved = 0;
    const writes = Array.from({ length: 40 }, (_, index) =>
      store.query(INSERT, [`a${index}`, '']).then(() => (resolved += 1)),
    );
    await until(() => disk.flushes() === 1, 'a flush');
    // The event loop runs while the flush is pending.
    for (let turns = 0; turns < 20; turns += 1) await turn();
    assert.equal(resolved, 0, 'resolved before the flush');
    await store.transaction((tx) => tx.query(INSERT, ['not-durable', '']), { durable: false });
    assert.equal(resolved, 0, 'a write that need not be durable waited');
    disk.letGo();
    await Promise.all(writes);
    assert.ok(disk.flushes() <= 2, `${disk.flushes()} flushes for 40 writes`);
  });
});

test('durable writes that arrive during a flush share the next transaction; others do not wait', async () => {
  const disk = heldDisk();
  await withStore({ flush: disk.flush }, async (store) => {
    disk.hold();
    const writes = [store.query(INSERT, ['first', ''])];
    await until(() => disk.flushes() === 1, 'a flush');
    const begun = store.commits;
    for (let at = 0; at < 10; at += 1) {
      writes.push(store.query(INSERT, [`a${at}`, '']));
      await turn();
    }
    assert.equal(store.commits, begun);
    disk.letGo();
    await Promise.all(writes);
    assert.equal(store.commits, begun + 1);
    disk.hold();
    const durable = store.query(INSERT, ['second', '']);
    await until(() => disk.flushes() === 1, 'a flush');
    const waiting = store.query(INSERT, ['third', '']);
    await store.transaction((tx) => tx.query(INSERT, ['soon', '']), { durable: false });
    assert.equal((await store.query('SELECT id FROM sample_row')).length, 14);
    disk.letGo();
    await Promise.all([durable, waiting]);
  });
});

test('work is notified of its commit while the flush runs', async () => {
  const disk = heldDisk();
  await withStore({ flush: disk.flush }, async (store) => {
    disk.hold();
    const events: string[] = [];
    for (const name of ['a', 'b']) {
      store.write({
        durable: true,
        run: (tx) => tx.execute(INSERT, [name, '']),
        committed: () => events.push(`${name} committed at flush ${disk.flushes()}`),
        done: () => events.push(`${name} done`),
        failed: assert.ifError,
      });
    }
    await until(() => events.length > 0, 'the commit');
    const committed = ['a committed at flush 1', 'b committed at flush 1'];
    assert.deepEqual(events, committed);
    disk.letGo();
    await until(() => events.length > 2, 'the flush');
    assert.deepEqual(events, [...committed, 'a done', 'b done']);
  });
});

test('many concurrent transactions do not block the event loop', async () => {
  await withStore({}, async (store) => {
    const begun = store.commits;
    const writes = Array.from({ length: 1_000 }, (_, at) => store.query(INSERT, [`a${at}`, '']));
    const commits = new Set<number>();
    while (store.commits < begun + 4) {
      await new Promise((resolve) => setImmediate(resolve));
      commits.add(store.commits - begun);
    }
    assert.deepEqual([...commits], [1, 2, 3, 4]);
    await Promise.all(writes);
    assert.equal(store.commits, begun + 4);
  });
});

test('`done` or `failed` of a work is called once, also if the shared commit fails', async () => {
  await withStore({}, async (store) => {
    await store.query(`CREATE TABLE sample_orphan (id TEXT REFERENCES sample_row (id)
      DEFERRABLE INITIALLY DEFERRED)`);
    const outcomes: string[] = [];
    const work = (name: string, text: string): FileWork => ({
      durable: true,
      run: (tx) => tx.execute(text, []),
      done: () => void outcomes.push(`${name}: done`),
      failed: (error) => void outcomes.push(`${name}: ${String(error)}`),
    });
    const broken = work('broken', 'INSERT INTO sample_nothing VALUES (1)');
    store.write(broken);
    store.write(work('sound', "INSERT INTO sample_row (id, body) VALUES ('a', '')"));
    await store.query(INSERT, ['b', '']);
    assert.deepEqual(outcomes, ['broken: Error: no such table: sample_nothing', 'sound: done']);
    outcomes.length = 0;
    const counted = store.changes;
    store.write(broken);
    store.write(work('orphan', "INSERT INTO sample_orphan VALUES ('nobody')"));
    await assert.rejects(store.query(INSERT, ['c', '']), /FOREIGN KEY/);
    const reason = 'Error: FOREIGN KEY constraint failed';
    assert.deepEqual(outcomes, [`broken: ${reason}`, `orphan: ${reason}`]);
    assert.equal(store.changes, counted + 5, 'three that ran, the first undone, and all');
    assert.equal((await store.query('SELECT id FROM sample_row')).length, 2);
  });
});

test('a failed flush fails every waiting write and makes the store unavailable', async () => {
  let fails = false;
  const flush: Flush = (file, done) => {
    if (fails) done(new Error('EIO'));
    else flushFile(file, done);
  };
  await withStore({ flush }, async (store) => {
    fails = true;
    await assert.rejects(store.query(INSERT, ['a', '']), CommitUncertain);
    assert.match(store.unavailable() ?? '', /could not be flushed/);
    const { commits } = store;
    await assert.rejects(store.query(INSERT, ['b', '']), StoreUnavailable);
    assert.equal(store.commits, commits, 'what is refused is not there after a restart');
  });
});

test('a write that waits for a flush has no effect if the flush fails', async () => {
  const flushing = Promise.withResolvers<(error: Error) => void>();
  let fails = false;
  const flush: Flush = (file, done) => {
    if (fails) flushing.resolve(done);
    else flushFile(file, done);
  };
  await withStore({ flush }, async (store) => {
    fails = true;
    const [first, second] = [store.query(INSERT, ['a', '']), store.query(INSERT, ['b', ''])];
    const fail = await flushing.promise;
    const waiting = store.query(INSERT, ['c', '']);
    const { commits } = store;
    fail(new Error('EIO'));
    for (const committed of [first, second]) await assert.rejects(committed, CommitUncertain);
    await assert.rejects(waiting, (error) => !(error instanceof CommitUncertain));
    assert.equal(store.commits, commits);
  });
});

test('the log is overwritten from its start under load, and no resolved write is lost', async () => {
  await withStore({ logLimits: { commits: 32 } }, async (store, path) => {
    const text = 'x'.repeat(2_000);
    let written = 0;
    let logBytes = 0;
    // The worker that copies may start slowly on a busy machine.
    for (let round = 0; written * text.length < 4 * logBytes || round < 60; round += 1) {
      assert.ok(round < 2_000, `the log grew to ${logBytes} bytes`);
      const ids = Array.from({ length: 20 }, (_, index) => `r${round}-${index}`);
      await Promise.all(ids.map((id) => store.query(INSERT, [id, text])));
      for (const id of ids.slice(0, 5)) await store.query(INSERT, [`${id}-single`, text]);
      written += 25;
      logBytes = statSync(`${path}-wal`).size;
    }
    const [row] = await store.query<{ total: bigint }>('SELECT count(*) AS total FROM sample_row');
    assert.equal(row?.total, BigInt(written));
  });
});

test('a huge log is truncated', async () => {
  const logLimits = { growthBytes: 4 * 1024 * 1024, cutAboveBytes: 8 * 1024 * 1024 };
  await withStore({ logLimits }, async (store, path) => {
    const text = 'x'.repeat(200_000);
    let sizeBefore = 0;
    let isCut = false;
    for (let at = 0; !isCut; at += 1) {
      assert.ok(at < 5_000, `the log grew to ${sizeBefore} bytes`);
      await store.query(INSERT, [`large-${at}`, text]);
      const { size } = statSync(`${path}-wal`);
      isCut = size < sizeBefore;
      sizeBefore = size;
    }
  });
});

test('a slow reader in another process does not delay commits', async () => {
  const logLimits = { growthBytes: 512 * 1024, cutAboveBytes: 1024 * 1024 };
  await withStore({ logLimits }, async (store, path) => {
    const reader = new DatabaseSync(path);
    reader.exec('BEGIN; SELECT * FROM sample_row');
    const text = 'x'.repeat(100_000);
    // Waiting for the reader would delay every commit by seconds; a busy machine delays only a few.
    let slow = 0;
    for (let at = 0; at < 600; at += 1) {
      const begun = performance.now();
      await store.query(INSERT, [`r${at}`, text]);
      if (performance.now() - begun > 1_500) slow += 1;
    }
    reader.close();
    assert.ok(slow < 10, `${slow} writes were held up`);
  });
});

test('a log that cannot be copied delays no write', async () => {
  await withStore({ logLimits: { commits: 4 } }, async (store, path) => {
    const folder = dirname(path);
    // Simulates that no file can be opened any more; open files stay usable.
    renameSync(folder, `${folder}-away`);
    try {
      for (let at = 0; at < 40; at += 1) {
        await store.query(INSERT, [`r${at}`, '']);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    } finally {
      renameSync(`${folder}-away`, folder);
    }
    await store.close();
  });
});

test('a thread that cannot be created delays no write', async (t) => {
  const RealWorker = workerThreads.Worker;
  let starts = 0;
  // The first thread ends with an error, and the next one cannot be created.
  t.mock.method(workerThreads, 'Worker', function (url: URL) {
    starts += 1;
    if (starts % 2 === 1) return new RealWorker(url, { workerData: '/nowhere/farebox.db' });
    throw Object.assign(new Error('EAGAIN'), { code: 'ERR_WORKER_INIT_FAILED' });
  });
  syncBuiltinESMExports();
  try {
    await withStore({ logLimits: { commits: 4 } }, async (store) => {
      for (let at = 0; starts < 4; at += 1) {
        await store.query(INSERT, [`r${at}`, '']);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      await store.close();
    });
  } finally {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  }
});

test('a database file has one lock, also if a symbolic link names it', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-lock-'));
  const [file, link] = [join(folder, 'x.db'), join(folder, 'link.db')];
  writeFileSync(file, '');
  symlinkSync(file, link);
  const lock = lockData(join(folder, 'one'), `sqlite:${file}`);
  assert.notEqual(lock, undefined);
  assert.equal(lockData(join(folder, 'two'), `sqlite:${link}`), undefined);
  lock?.release();
  rmSync(folder, { recursive: true });
});

test('a snapshot sees no later commit, and no write waits for its end', async () => {
  await withStore({ clock: systemClock() }, async (store) => {
    await store.query(INSERT, ['before', '']);
    const count = async (tx: Queryable) => (await tx.query('SELECT id FROM sample_row')).length;
    const counts = await store.transaction(
      async (tx) => {
        const first = await count(tx);
        // Without a connection of its own, this write would wait for the snapshot, and so forever.
        await store.query(INSERT, ['during', '']);
        await assert.rejects(tx.query(INSERT, ['in', '']), /readonly/);
        return [first, await count(tx), await count(store)];
      },
      { isSnapshot: true },
    );
    assert.deepEqual(counts, [1, 1, 2]);
  });
});

test('waiting for the lock of another process does not block the event loop', async () => {
  await withStore({ clock: systemClock() }, async (store, path) => {
    const other = new DatabaseSync(path);
    other.exec('BEGIN IMMEDIATE');
    // The lock is released after turns of the event loop, so blocking it would hang.
    let turns = 0;
    const ticking = setInterval(() => {
      turns += 1;
      if (turns < 20) return;
      clearInterval(ticking);
      other.exec('COMMIT');
      other.close();
    }, 5);
    await Promise.all(['a', 'b'].map((id) => store.query(INSERT, [id, ''])));
    assert.equal(turns, 20);
  });
});

test('a lock that is not released makes the store unavailable until its release', async () => {
  const clock = new TestClock();
  await withStore({ clock }, async (store, path) => {
    const other = new DatabaseSync(path);
    other.exec('BEGIN IMMEDIATE');
    let isOver = false;
    const passing = (async () => {
      while (!isOver) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        clock.advance(1_000);
      }
    })();
    await assert.rejects(store.query(INSERT, ['a', '']), StoreUnavailable);
    assert.match(store.unavailable() ?? '', /Another process/);
    assert.deepEqual(await store.query('SELECT id FROM sample_row'), []);
    other.exec('ROLLBACK');
    other.close();
    await until(() => store.unavailable() === undefined, 'that the store recovers');
    isOver = true;
    await passing;
    await store.query(INSERT, ['a', '']);
  });
});

test('a full disk makes the store unavailable until writes succeed', async () => {
  const clock = new TestClock();
  const lines: LogLine[] = [];
  await withStore({ clock, log: memoryLog(lines) }, async (store) => {
    const [size] = await store.query<{ page_count: bigint }>('PRAGMA page_count');
    // A page limit produces the same SQLite error as a full disk.
    await store.query(`PRAGMA max_page_count = ${(size?.page_count ?? 0n) + 4n}`);
    const text = 'x'.repeat(100_000);
    const alone = store.query(INSERT, ['large', text]);
    await assert.rejects(alone, (error) => {
      return error instanceof StoreUnavailable && error.message.includes('full');
    });
    assert.match(store.unavailable() ?? '', /disk of the database is full/);
    // Other work in a shared transaction is rejected or succeeds, and never hangs.
    const together = await Promise.allSettled([
      store.query(INSERT, ['first', '']),
      store.query(INSERT, ['large', text]),
      store.query(INSERT, ['last', '']),
    ]);
    assert.equal(together[1]?.status, 'rejected');
    for (const [index, id] of [[0, 'first'] as const, [2, 'last'] as const]) {
      const rows = await store.query('SELECT id FROM sample_row WHERE id = $1', [id]);
      assert.equal(rows.length === 1, together[index]?.status === 'fulfilled', id);
    }
    clock.advance(10_000);
    await store.query('SELECT 1');
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.notEqual(store.unavailable(), undefined, 'one that is still full is not usable');

    await store.query('PRAGMA max_page_count = 100000');
    clock.advance(10_000);
    await until(() => store.unavailable() === undefined, 'that the store recovers');
    await store.query(INSERT, ['large', text]);
    assert.deepEqual(
      lines.map(({ level, message }) => `${level} ${message}`),
      ['error The database rejects writes', 'info The database accepts writes again'],
    );
    const left = await store.query("SELECT name FROM sqlite_master WHERE name = 'store_retry'");
    assert.equal(left.length, 0);
  });
});

test('a new file has pages of 2 KiB, and an existing file keeps its size', async () => {
  await withStore({}, async (store, path) => {
    const pageSize = async (one: SqliteStore): Promise<unknown> =>
      one.query('SELECT page_size FROM pragma_page_size');
    assert.deepEqual(await pageSize(store), [{ page_size: 2_048n }]);
    const older = `${path}-older`;
    const database = new DatabaseSync(older);
    database.exec('PRAGMA page_size = 4096; CREATE TABLE sample_row (id TEXT, body TEXT)');
    database.close();
    const opened = new SqliteStore({ path: older, clock: new TestClock(), log: silentLog });
    await opened.query(INSERT, ['a', '']);
    assert.deepEqual(await pageSize(opened), [{ page_size: 4_096n }]);
    await opened.close();
  });
});

test('a folder that cannot be created is an error with its path', () => {
  const path = '/proc/farebox/x.db';
  const open = () => new SqliteStore({ path, clock: new TestClock(), log: silentLog });
  assert.throws(open, /The folder \/proc\S* cannot be created/);
});

test('long reads do not block the event loop and return committed rows', async () => {
  const clock = new TestClock();
  await withStore({ clock }, async (store) => {
    await store.query(INSERT, ['a', 'one']);
    const read = () => store.readerFor('').query<{ id: string }>('SELECT id FROM sample_row');
    assert.deepEqual(await read(), [{ id: 'a' }]);
    const long = `WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 1000000)
      SELECT sum(at) AS total, $1 AS bytes FROM n`;
    let turns = 0;
    let isOver = false;
    const reading = store
      .readerFor('')
      .query(long, [Buffer.from('x')])
      .then((rows) => {
        isOver = true;
        return rows;
      });
    while (!isOver) {
      turns += 1;
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.ok(turns > 10, `${turns} turns`);
    assert.deepEqual(await reading, [{ total: 500_000_500_000n, bytes: Buffer.from('x') }]);
    await store.query(INSERT, ['b', 'two']);
    assert.equal((await read()).length, 2);
    await assert.rejects(
      store.readerFor('').query('SELECT none FROM sample_row'),
      /no such column/,
    );
    // The process exits after a minute without a read, and the next read starts it again.
    clock.advance(2 * MINUTE_MS);
    assert.equal((await read()).length, 2);
  });
});

test('long reads take turns by caller, and the queue of a caller is bounded', async () => {
  await withStore({}, async (store) => {
    const long = `WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 100000)
      SELECT sum(at) AS total FROM n`;
    const ended: string[] = [];
    const read = async (caller: string) => {
      await store.readerFor(caller).query(long);
      ended.push(caller);
    };
    const heavy = Array.from({ length: 17 }, () => read('heavy'));
    const light = read('light');
    await assert.rejects(read('heavy'), StoreUnavailable);
    await Promise.all([...heavy, light]);
    assert.equal(ended.indexOf('light'), 2, 'after the one that ran and one of the other');
  });
});

test('a read above its time limit fails, and the reads behind it run', async () => {
  const clock = new TestClock();
  await withStore({ clock }, async (store) => {
    const endless = `WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n)
      SELECT sum(at) AS total FROM n`;
    const long = store.readerFor('heavy').query(endless);
    const next = store.readerFor('light').query<{ one: bigint }>('SELECT 1 AS one');
    clock.advance(MAX_READ_MS);
    await assert.rejects(long, ReadTooLong);
    assert.deepEqual(await next, [{ one: 1n }]);
    // A running read does not delay closing the store.
    const last = store.readerFor('heavy').query(endless);
    const behind = store.readerFor('heavy').query(endless);
    await Promise.all([store.close(), assert.rejects(last), assert.rejects(behind)]);
  });
});

test('a crash of the read process fails one read, which is not repeated in the main process', async () => {
  await withStore({}, async (store, path) => {
    const pid = () =>
      Number(
        execFileSync('ps', ['-o', 'pid=,args=', '--ppid', String(process.pid)])
          .toString()
          .split('\n')
          .find((line) => line.includes('overview-process') && line.includes(path))
          ?.trim()
          .split(' ')[0],
      );
    const read = () => store.readerFor('').query<{ one: bigint }>('SELECT 1 AS one');
    await read();
    const long = store
      .readerFor('')
      .query(
        `WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n) SELECT sum(at) FROM n`,
      );
    process.kill(pid(), 'SIGKILL');
    await assert.rejects(long, StoreUnavailable);
    assert.deepEqual(await read(), [{ one: 1n }]);
  });
});

test('a running read ends with a server that is killed', async () => {
  await withStore({}, async (_store, path) => {
    const entry = new URL('../../../test/databases/endless-read-process.ts', import.meta.url);
    const server = spawn(process.execPath, [fileURLToPath(entry), path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(server.stdout, 'data');
    const isReading = (): boolean =>
      execFileSync('ps', ['-A', '-o', 'args='])
        .toString()
        .split('\n')
        .some((line) => line.includes('overview-process') && line.includes(path));
    assert.ok(isReading());
    server.kill('SIGKILL');
    await until(() => !isReading(), 'that the read ends', 50);
  });
});
