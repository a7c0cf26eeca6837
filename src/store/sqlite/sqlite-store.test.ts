import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { LogLimits } from './checkpointer.ts';
import { flushFile } from './flusher.ts';
import { SqliteStore } from './sqlite-store.ts';

async function withStore(
  options: { flush?: (file: number) => Promise<void>; logLimits?: Partial<LogLimits> },
  body: (store: SqliteStore, path: string) => Promise<void>,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-store-'));
  const path = join(folder, 'x.db');
  const store = new SqliteStore({ path, ...options });
  try {
    await store.query('CREATE TABLE sample_row (id TEXT PRIMARY KEY, body TEXT)');
    await body(store, path);
  } finally {
    await store.close().catch(() => undefined);
    rmSync(folder, { recursive: true, force: true });
  }
}

const INSERT = 'INSERT INTO sample_row (id, body) VALUES ($1, $2)';

test('a durable write waits for the flush, and a slow flush leaves the loop free', async () => {
  let flushes = 0;
  const slow = async (file: number): Promise<void> => {
    flushes += 1;
    await new Promise((resolve) => setTimeout(resolve, 50));
    await flushFile(file);
  };
  await withStore({ flush: slow }, async (store) => {
    flushes = 0;
    const begun = performance.now();
    let turns = 0;
    const ticking = setInterval(() => (turns += 1), 1);
    await Promise.all(
      Array.from({ length: 40 }, (_, index) => store.query(INSERT, [`a${index}`, ''])),
    );
    clearInterval(ticking);
    assert.ok(performance.now() - begun >= 45, 'resolved before the flush');
    assert.ok(flushes <= 2, `${flushes} flushes for 40 writes`);
    assert.ok(turns > 10, 'the loop was blocked');
    const quick = performance.now();
    await store.transaction((tx) => tx.query(INSERT, ['not-durable', '']), { durable: false });
    assert.ok(performance.now() - quick < 40, 'a write that need not be durable waited');
  });
});

test('a failed flush fails every waiter and marks the store as lost', async () => {
  let fails = false;
  const flush = async (file: number): Promise<void> => {
    if (fails) throw new Error('EIO');
    await flushFile(file);
  };
  await withStore({ flush }, async (store) => {
    fails = true;
    await assert.rejects(store.query(INSERT, ['a', '']), /could not be flushed/);
    assert.match(store.unavailable() ?? '', /could not be flushed/);
    await assert.rejects(store.query(INSERT, ['b', '']), /could not be flushed/);
  });
});

test('the log begins anew under load, and nothing that resolved is lost', async () => {
  await withStore({ logLimits: { commits: 32 } }, async (store, path) => {
    const text = 'x'.repeat(2_000);
    let written = 0;
    let logBytes = 0;
    // The worker that copies may take long to start on a busy machine.
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

test('a log that few large writes have made huge is cut', async () => {
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
