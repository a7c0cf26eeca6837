/** Idempotency keys on both databases: replay, conflict, waiting, takeover, restart, expiry. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, systemClock } from '../../core/clock.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { seededIds } from '../../../test/support/seeded-ids.ts';
import { silentLog } from '../../core/log.ts';
import { type LogLine, memoryLog } from '../../../test/support/memory-log.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { until } from '../../../test/support/until.ts';
import { type Store, StoreUnavailable } from '../../db/db.ts';
import { type Flush, SqliteStore, flushFile } from '../../db/sqlite/sqlite-store.ts';
import { type Nano, ZERO, nano, usdToNano } from '../../core/money.ts';
import {
  type FinishedResponse,
  Idempotency,
  type IdempotencyToken,
  IDEMPOTENCY_MIGRATIONS,
  MAX_STORED_BYTES,
  parseIdempotencyKey,
} from './idempotency.ts';

const ANSWER = {
  status: 200,
  headers: { 'x-svc-rpc-credits': '20' },
  body: Buffer.from('{"ok":1}'),
};

const CENT = usdToNano('0.01');
const KEPT_BYTES = 64 * 1_048_576;

function open(
  store: Store,
  clock: Clock,
  seed = 1,
  keptBytes = KEPT_BYTES,
  log = silentLog,
): Idempotency {
  const parts = { store, clock, log, processId: `process-${seed}`, ids: seededIds(seed) };
  return new Idempotency({ ...parts, keptBytes: () => keptBytes });
}

const isLost = (error: unknown): boolean =>
  error instanceof Fault && error.code === 'REQUEST_IN_PROGRESS';

/** Takes a key that must be free. */
async function take(idempotency: Idempotency, key = 'k'): Promise<IdempotencyToken> {
  const state = await idempotency.begin(wanted('alice', key, 'f'));
  assert.ok(state.state === 'new');
  return state.token;
}

function wanted(accountId: string, key: string, fingerprint: string) {
  return { caller: accountId, accountId, key, fingerprint };
}

describe('`parseIdempotencyKey`', () => {
  test('accepts a key that matches the pattern and rejects others with 400', () => {
    assert.equal(parseIdempotencyKey(undefined), undefined);
    assert.equal(parseIdempotencyKey('a_B-9'), 'a_B-9');
    for (const key of ['', 'a b', 'ü', 'x'.repeat(256)]) {
      assert.throws(
        () => parseIdempotencyKey(key),
        (error) => error instanceof Fault && error.status === 400,
      );
    }
  });
});

describe('a replay on SQLite', () => {
  /** Commits are visible to other requests before they are on disk. */
  async function committed() {
    const folder = mkdtempSync(join(tmpdir(), 'farebox-replay-'));
    const waiting: ((error: Error | null) => void)[] = [];
    let isHeld = false;
    const flush: Flush = (file, done) => {
      if (isHeld) waiting.push(done);
      else flushFile(file, done);
    };
    const path = join(folder, 'farebox.db');
    const store = new SqliteStore({ path, clock: systemClock(), log: silentLog, flush });
    await store.migrate(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, systemClock());
    const token = await take(idempotency);
    isHeld = true;
    const ended = store.transaction((tx) => idempotency.complete(token, ANSWER, tx));
    ended.catch(() => undefined); // a test that fails the flush
    const again = wanted('alice', 'k', 'f');
    await until(async () => (await idempotency.begin(again)).state === 'replay');
    return {
      replay: idempotency.acquire(again),
      endFlush: (error: Error | null) => {
        isHeld = false;
        for (const done of waiting.splice(0)) done(error);
      },
      close: async () => {
        await idempotency.close();
        await store.close().catch(() => undefined); // after a failed flush
        rmSync(folder, { recursive: true, force: true });
      },
    };
  }

  test('waits until its response and the charge of it are on disk', async () => {
    const { replay, endFlush, close } = await committed();
    let isReplayed = false;
    void replay.then(() => (isReplayed = true));
    await systemClock().sleep(50);
    assert.equal(isReplayed, false);
    endFlush(null);
    assert.deepEqual(await replay, { state: 'replay', response: ANSWER });
    await close();
  });

  test('fails if they were not flushed', async () => {
    const { replay, endFlush, close } = await committed();
    const failed = assert.rejects(replay, StoreUnavailable);
    endFlush(new Error('EIO'));
    await failed;
    await close();
  });
});

onEachStore('idempotency', (fixture) => {
  test('`begin` replays a stored response to the same caller and fingerprint, also after a restart', async () => {
    const url = await fixture.freshUrl();
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS, url);
    const first = open(store, clock);
    const begun = await take(first);
    await first.complete(begun, ANSWER);
    const restarted = open(await fixture.open(IDEMPOTENCY_MIGRATIONS, url), clock, 2);
    assert.deepEqual(await restarted.begin(wanted('alice', 'k', 'f')), {
      state: 'replay',
      response: ANSWER,
    });
    assert.equal((await restarted.begin(wanted('alice', 'k', 'other'))).state, 'conflict');
    assert.equal((await restarted.begin(wanted('bob', 'k', 'other'))).state, 'new');
    await pass(store, clock, DAY_MS);
    assert.equal((await restarted.begin(wanted('alice', 'k', 'other'))).state, 'new');
    await first.close();
    await restarted.close();
  });

  test('one of 12 concurrent requests runs, and the others get its response', async () => {
    const idempotency = open(await fixture.open(IDEMPOTENCY_MIGRATIONS), systemClock());
    let runs = 0;
    const bodies = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const got = await idempotency.acquire(wanted('alice', 'k', 'f'));
        if (got.state === 'replay') return got.response.body.toString();
        runs += 1;
        await idempotency.complete(got.token, ANSWER);
        return ANSWER.body.toString();
      }),
    );
    assert.equal(runs, 1);
    assert.deepEqual(new Set(bodies), new Set([ANSWER.body.toString()]));
  });

  test('a waiting request takes over an abandoned key, also in another process', async () => {
    const url = await fixture.freshUrl();
    const here = open(await fixture.open(IDEMPOTENCY_MIGRATIONS, url), systemClock());
    const there = open(await fixture.open(IDEMPOTENCY_MIGRATIONS, url), systemClock(), 2);
    const begun = await take(here);
    const waiting = there.acquire(wanted('alice', 'k', 'f'));
    await here.abandon(begun);
    const got = await waiting;
    assert.ok(got.state === 'new');
    await there.complete(got.token, ANSWER);
    await assert.rejects(here.complete(begun, ANSWER), isLost);
  });

  test('a lease that is renewed is kept, and one that is not is taken over', async () => {
    const url = await fixture.freshUrl();
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS, url);
    const holder = open(store, clock);
    const other = open(await fixture.open(IDEMPOTENCY_MIGRATIONS, url), clock, 2);
    const begun = await take(holder);
    for (let round = 0; round < 6; round += 1) {
      await age(store, 5_000);
      const before = await expiryOf(store);
      clock.advance(5_000);
      await renewed(store, before);
    }
    assert.equal((await other.begin(wanted('alice', 'k', 'f'))).state, 'wait');
    await age(store, 21_000);
    const deadClock = new TestClock(clock.nowMs() + 21_000);
    const later = open(store, deadClock, 3);
    const taken = await take(later);
    await assert.rejects(holder.complete(begun, ANSWER), isLost);
    await later.complete(taken, ANSWER);
  });

  test('`releaseAll` releases running keys and keeps stored responses', async () => {
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const clock = new TestClock();
    const dead = open(store, clock);
    assert.equal((await dead.begin(wanted('alice', 'k', 'f'))).state, 'new');
    const done = await take(dead, 'kept');
    await dead.complete(done, ANSWER);
    const next = open(store, clock, 2);
    await next.releaseAll();
    assert.equal((await next.begin(wanted('alice', 'k', 'f'))).state, 'new');
    assert.equal((await next.begin(wanted('alice', 'kept', 'f'))).state, 'replay');
  });

  test('a key that could not be released is free after its lease has expired', async (t) => {
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, clock);
    const options = { ...wanted('alice', 'k', 'f'), requestId: 'r', hasBegun: () => false };
    await idempotency.once(options, async () => {
      t.mock.method(store, 'query', () => Promise.reject(new Error('away')));
    });
    t.mock.restoreAll();
    for (let round = 0; round < 5; round += 1) {
      await pass(store, clock, 15_000);
      await store.transaction(async (tx) => tx.query('SELECT 1 AS one'));
    }
    assert.equal((await idempotency.begin(wanted('alice', 'k', 'f'))).state, 'new');
    await idempotency.close();
  });

  test('keys of a process that stops without the database are free after their leases have expired', async (t) => {
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const lines: LogLine[] = [];
    const idempotency = open(store, clock, 1, KEPT_BYTES, memoryLog(lines));
    for (const key of ['k', 'other']) await take(idempotency, key);
    t.mock.method(store, 'query', () => Promise.reject(new Error('away')));
    await idempotency.close();
    t.mock.restoreAll();
    assert.deepEqual(
      lines.map(({ message }) => message),
      ['Idempotency keys could not be released'],
    );
    await pass(store, clock, 75_000);
    assert.equal((await open(store, clock, 2).begin(wanted('alice', 'k', 'f'))).state, 'new');
  });

  test('`processEnded` releases the running keys of that process only, and keeps its responses', async () => {
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const [one, two, eleven] = [
      open(store, clock, 1),
      open(store, clock, 2),
      open(store, clock, 11),
    ];
    assert.equal((await one.begin(wanted('alice', 'running', 'f'))).state, 'new');
    assert.equal((await eleven.begin(wanted('alice', 'of another', 'f'))).state, 'new');
    const done = await take(one, 'done');
    await one.complete(done, ANSWER);
    await two.processEnded('process-1');
    assert.equal((await two.begin(wanted('alice', 'running', 'f'))).state, 'new');
    assert.equal((await two.begin(wanted('alice', 'of another', 'f'))).state, 'wait');
    assert.equal((await two.begin(wanted('alice', 'done', 'f'))).state, 'replay');
    for (const each of [one, two, eleven]) await each.close();
  });

  if (fixture.dialect === 'postgres') {
    test('a wrong clock of another process does not expire the lease of a running key', async () => {
      const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
      const behind = open(store, new TestClock(Date.now() - 600_000), 1);
      const ahead = open(store, new TestClock(Date.now() + 600_000), 2);
      const begun = await take(behind);
      assert.equal(await ahead.prune(), 0);
      assert.equal((await ahead.begin(wanted('alice', 'k', 'f'))).state, 'wait');
      await behind.complete(begun, ANSWER);
      assert.equal((await ahead.begin(wanted('alice', 'k', 'f'))).state, 'replay');
      assert.equal((await ahead.begin(wanted('alice', 'other', 'f'))).state, 'new');
      await behind.processEnded('process-2');
      assert.equal((await behind.begin(wanted('alice', 'other', 'f'))).state, 'new');
      for (const each of [behind, ahead]) await each.close();
    });

    test('`processEnded` waits for a commit in progress and keeps its response', async () => {
      const clock = new TestClock();
      const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
      const [one, two] = [open(store, clock, 1), open(store, clock, 2)];
      const begun = await take(one);
      let freed: Promise<void> | undefined;
      let isFree = false;
      await store.transaction(async (tx) => {
        await one.complete(begun, ANSWER, tx);
        freed = two.processEnded('process-1').then(() => {
          isFree = true;
        });
        await systemClock().sleep(50);
        assert.equal(isFree, false);
      });
      await freed;
      assert.equal((await two.begin(wanted('alice', 'k', 'f'))).state, 'replay');
      for (const each of [one, two]) await each.close();
    });
  }

  test('`acquire` throws 409 at its time limit, and 400 for another fingerprint', async () => {
    const clock = new TestClock();
    const idempotency = open(await fixture.open(IDEMPOTENCY_MIGRATIONS), clock);
    await idempotency.begin(wanted('alice', 'k', 'f'));
    await assert.rejects(
      idempotency.acquire({ ...wanted('alice', 'k', 'f'), maxWaitMs: 0 }),
      isLost,
    );
    await assert.rejects(
      idempotency.acquire(wanted('alice', 'k', 'g')),
      (error) => error instanceof Fault && error.code === 'IDEMPOTENCY_KEY_REUSED',
    );
    await idempotency.close();
    assert.equal((await idempotency.begin(wanted('alice', 'k', 'g'))).state, 'new');
    await idempotency.close();
  });

  test('a response above the size limit spends its key, and `prune` removes expired keys', async () => {
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, clock);
    const bodies = { measured: Buffer.alloc(MAX_STORED_BYTES + 1), given_up: undefined };
    for (const [key, body] of Object.entries(bodies)) {
      const begun = await take(idempotency, key);
      await idempotency.complete(begun, { ...ANSWER, body });
      assert.deepEqual(await idempotency.begin(wanted('alice', key, 'f')), { state: 'too-large' });
      await assert.rejects(
        idempotency.acquire(wanted('alice', key, 'f')),
        (error) => error instanceof Fault && error.code === 'IDEMPOTENT_ANSWER_NOT_KEPT',
      );
    }
    const kept = await take(idempotency, 'kept');
    await idempotency.complete(kept, ANSWER);
    assert.equal(await idempotency.prune(), 0);
    await idempotency.close();
    await pass(store, clock, DAY_MS);
    assert.equal(await idempotency.prune(), 3);
  });

  test('`prune` removes all expired keys, however many there are', async () => {
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, new TestClock());
    const keys = JSON.stringify(Array.from({ length: 5_001 }, (_, at) => `k${at}`));
    await store.query(
      `INSERT INTO idempotency_entry (caller, entry_key, fingerprint, token, state, expires_ms)
       SELECT * FROM (SELECT 'alice' AS caller, json_array_elements_text($1::json) AS entry_key) AS keys
         CROSS JOIN (SELECT 'f' AS fingerprint, 't' AS token, 'done' AS state, 0 AS expires_ms) AS rest`,
      [keys],
    );
    assert.equal(await idempotency.prune(), 5_001);
    await idempotency.close();
  });

  test('`complete` has no effect the second time, and a key spent without a response stays spent', async () => {
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, new TestClock());
    const begun = await take(idempotency);
    await idempotency.complete(begun, ANSWER);
    await idempotency.complete(begun, { ...ANSWER, body: Buffer.from('another') });
    const again = await idempotency.begin(wanted('alice', 'k', 'f'));
    assert.deepEqual(again, { state: 'replay', response: ANSWER });
    const broken = await take(idempotency, 'broken');
    await idempotency.spend(broken, store, CENT);
    const retry = idempotency.acquire(wanted('alice', 'broken', 'f'));
    await assert.rejects(retry, /broke off/);
    await idempotency.close();
  });

  test('`once` returns the response of the request that took the key over, or throws 409', async () => {
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, new TestClock());
    const took = (key: string, state: string) =>
      store.query(
        `UPDATE idempotency_entry SET token = 'other:1', state = $2, status = 200, headers = $3,
         body = $4 WHERE entry_key = $1`,
        [key, state, JSON.stringify(ANSWER.headers), ANSWER.body],
      );
    const run = (key: string, state: string, hasBegun: boolean) =>
      idempotency.once(
        { ...wanted('alice', key, 'f'), requestId: 'r', hasBegun: () => hasBegun },
        async (token) => {
          await took(key, state);
          await idempotency.complete(token, { ...ANSWER, body: Buffer.from('mine') });
        },
      );
    assert.deepEqual(await run('done', 'done', false), ANSWER);
    await assert.rejects(run('begun', 'done', true), isLost);
    await assert.rejects(run('running', 'running', false), isLost);
    const other = await store.query("SELECT 1 FROM idempotency_entry WHERE token = 'other:1'");
    assert.equal(other.length, 3);
    await idempotency.close();
  });

  test('a process does not take over a key that it runs itself, even after the lease has expired', async () => {
    const clock = new TestClock();
    const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
    const idempotency = open(store, clock);
    const begun = await take(idempotency);
    await age(store, 3_600_000);
    assert.equal((await idempotency.begin(wanted('alice', 'k', 'f'))).state, 'wait');
    await idempotency.complete(begun, ANSWER);
    await idempotency.close();
  });

  describe('storage of an account', () => {
    const LIMIT = 100_000;
    /** A tenth of the limit. */
    const LARGE = { ...ANSWER, body: Buffer.alloc(9_000) };

    async function keep(
      idempotency: Idempotency,
      key: string,
      paidNano: Nano | undefined,
      answer: FinishedResponse = LARGE,
      account = 'alice',
    ): Promise<void> {
      const options = { ...wanted(account, key, 'f'), requestId: 'r', hasBegun: () => false };
      const replayed = await idempotency.once(options, async (token) => {
        await idempotency.complete(token, answer, undefined, paidNano);
        token.isSpent = true;
      });
      assert.equal(replayed, undefined);
    }
    const states = async (idempotency: Idempotency, keys: readonly string[]) => {
      const all: string[] = [];
      for (const key of keys) {
        all.push((await idempotency.begin(wanted('alice', key, 'f'))).state);
      }
      return all;
    };

    test('drops the oldest responses above the limit, and their keys stay spent', async () => {
      const clock = new TestClock();
      const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
      const idempotency = open(store, clock, 1, LIMIT);
      for (let at = 0; at < 14; at += 1) {
        await keep(idempotency, `k${at}`, nano(1n));
        await pass(store, clock, 60_000);
      }
      const { bytes, limitBytes } = await idempotency.storageOf('alice');
      // Plus one byte for each 5 nano-USD charged.
      assert.equal(limitBytes, LIMIT + 2);
      assert.ok(bytes <= limitBytes && bytes > LIMIT - 10_000, String(bytes));
      const found = await states(idempotency, ['k0', 'k3', 'k4', 'k5', 'k13']);
      assert.deepEqual(found, ['dropped', 'dropped', 'replay', 'replay', 'replay']);
      await assert.rejects(idempotency.acquire(wanted('alice', 'k0', 'f')), /dropped for newer/);
      const [row] = await store.query<{ bytes: bigint }>(
        'SELECT CAST(sum(coalesce(length(body), 0)) AS BIGINT) AS bytes FROM idempotency_entry',
      );
      assert.ok(Number(row?.bytes) < LIMIT);
      await keep(idempotency, 'k0', nano(1n), LARGE, 'bob');
      assert.ok((await idempotency.storageOf('bob')).bytes < 10_000);
      await idempotency.close();
    });

    test('has a limit that grows with charges and is small for an account without charges', async () => {
      const clock = new TestClock();
      const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
      const idempotency = open(store, clock, 1, LIMIT);
      assert.equal((await idempotency.storageOf('alice')).limitBytes, LIMIT / 16);
      const small = { ...ANSWER, body: Buffer.alloc(2_000) };
      for (const key of ['free1', 'free2', 'free3', 'free4']) {
        await keep(idempotency, key, ZERO, small);
        await pass(store, clock, 60_000);
      }
      assert.deepEqual(await states(idempotency, ['free1', 'free2', 'free4']), [
        'new',
        'new',
        'replay',
      ]);
      await keep(idempotency, 'paid', usdToNano('2'), LARGE, 'bob');
      const { limitBytes } = await idempotency.storageOf('bob');
      assert.equal(limitBytes, LIMIT + 400_000_000);
      await idempotency.close();
    });

    test('does not keep a response larger than the limit, and its key is spent', async () => {
      const idempotency = open(
        await fixture.open(IDEMPOTENCY_MIGRATIONS),
        new TestClock(),
        1,
        LIMIT,
      );
      await keep(idempotency, 'huge', nano(1n), { ...ANSWER, body: Buffer.alloc(2 * LIMIT) });
      assert.deepEqual(await states(idempotency, ['huge']), ['dropped']);
      assert.equal((await idempotency.storageOf('alice')).bytes, 512);
      await idempotency.close();
    });

    test('rejects further keys while spent keys use all of it', async () => {
      const clock = new TestClock();
      const store = await fixture.open(IDEMPOTENCY_MIGRATIONS);
      const idempotency = open(store, clock, 1, 5_000);
      for (let at = 0; at < 10; at += 1) await keep(idempotency, `k${at}`, nano(1n));
      const next = idempotency.begin(wanted('alice', 'next', 'f'));
      await assert.rejects(next, (error) => {
        return error instanceof Fault && error.code === 'IDEMPOTENCY_STORAGE_FULL';
      });
      assert.equal((await idempotency.begin(wanted('bob', 'next', 'f'))).state, 'new');
      await idempotency.close();
      await pass(store, clock, 26 * 3_600_000);
      if (store.dialect === 'postgres') {
        await store.query('UPDATE idempotency_hour SET hour = hour - 26');
      }
      await idempotency.prune();
      assert.deepEqual(await store.query('SELECT 1 FROM idempotency_hour'), []);
      assert.equal((await idempotency.begin(wanted('alice', 'next', 'f'))).state, 'new');
      await idempotency.close();
    });
  });
});

async function pass(store: Store, clock: TestClock, ms: number): Promise<void> {
  clock.advance(ms);
  await age(store, ms);
}

/** PostgreSQL uses its own clock, so make the rows older instead. */
async function age(store: Store, ms: number): Promise<void> {
  if (store.dialect === 'sqlite') return;
  await store.query('UPDATE idempotency_entry SET expires_ms = expires_ms - $1', [ms]);
}

async function expiryOf(store: Store): Promise<number> {
  const [row] = await store.query<{ expires_ms: bigint }>(
    'SELECT expires_ms FROM idempotency_entry',
  );
  return Number(row?.expires_ms ?? 0n);
}

/** Waits until the renewal that the clock has just triggered is in the database. */
async function renewed(store: Store, beforeMs: number): Promise<void> {
  // With SQLite the renewal was queued first, so it is done when this transaction is.
  await store.transaction(async (tx) => tx.query('SELECT 1 AS one'));
  const endMs = performance.now() + 60_000;
  while ((await expiryOf(store)) <= beforeMs) {
    assert.ok(performance.now() < endMs, 'the lease was not renewed');
  }
}
