/** Runs of batches on both databases: failing engines, time limits, two workers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inTimeOfCaller, onEachStore } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { JobQueue } from '../core/job-queue.ts';
import { silentLog } from '../core/log.ts';
import { nano } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import { type Batch, batchBody } from './batch.ts';
import { deleteExpired } from './batches.ts';
import type { BatchUse } from './batch-use.ts';
import {
  type BatchHost,
  BatchRun,
  LEASE_MS,
  type LineResponse,
  type LineCall,
  type LineResult,
} from './batch-run.ts';
import { BatchTable, openBatches } from './batch-table.ts';
import { ERROR_PART, FileTable, OUTPUT_PART } from './file-table.ts';
import { BATCHES_MIGRATIONS } from './migrations.ts';
import { MAX_RESPONSE_BYTES } from './results.ts';
import { Worker } from './worker.ts';
import { until } from '../../test/support/until.ts';

const ACCOUNT = 'acct_1';
/** Far above the duration of a run on any machine. */
const MOST_REAL_MS = 60_000;
const LIMITS = { maxFiles: 100, maxCallerBytes: 1e9, maxBytes: 1e9 };
const NOTHING = { callerBytes: 0, allBytes: 0 };
const SETTINGS = {
  priceFactor: '0.5',
  concurrency: 4,
  maxRequests: 1_000,
  maxFileMb: 1,
  maxOpenBatches: 20,
  maxFiles: 100,
  maxStoredMbPerCaller: 100,
  maxStoredMb: 1_000,
  keepDays: 30,
};

/** Charge of each line. */
const SOLD = {
  settled: {
    fresh: true,
    usdNano: nano(7n),
    diemNano: nano(2n),
    after: { usdNano: nano(0n), diemNano: nano(0n) },
  },
  outcome: {
    costNano: nano(9n),
    status: 'completed',
    tokens: { prompt: 5, completion: 3, cached: 1, cacheWrite: 0, reasoning: 2 },
  },
} as const;

function useOfSold(lines: number): BatchUse {
  return {
    usdNano: 7n * BigInt(lines),
    diemNano: 2n * BigInt(lines),
    promptTokens: 5n * BigInt(lines),
    completionTokens: 3n * BigInt(lines),
    cachedTokens: BigInt(lines),
    reasoningTokens: 2n * BigInt(lines),
  };
}

/** Response of an engine to a line. */
type Respond = (model: string, attempt: number) => Partial<LineResponse> | Buffer;

/** One process. */
class Fixture {
  readonly store: Store;
  readonly clock: TestClock;
  readonly files: FileTable;
  readonly batches: BatchTable;
  /** Models of the charged lines. */
  readonly sold: string[] = [];
  readonly attempts = new Map<string, number>();
  /** Reported results of the lines. */
  readonly results: LineResult[] = [];
  settings = SETTINGS;
  hasCapacity = true;
  respond: Respond = () => Buffer.from('{"ok":true}');
  /** Awaited by each call before it settles. */
  gate: Promise<void> = Promise.resolve();
  readonly #seed: number;
  #queued = 0;

  constructor(store: Store, clock: TestClock, seed = 1) {
    this.store = store;
    this.clock = clock;
    this.#seed = seed;
    this.files = new FileTable(store);
    this.batches = new BatchTable({
      store,
      owner: `owner-${seed}`,
      leaseMs: LEASE_MS,
      clock,
      log: silentLog,
    });
  }

  async queue(models: readonly string[], accountId = ACCOUNT): Promise<string> {
    const nowMs = this.clock.nowMs();
    this.#queued += 1;
    const ids = seededIds(this.#seed * 1_000 + this.#queued);
    const fileId = `file-${ids.hex(8)}`;
    const text = models
      .map((model, at) => {
        const body = { model };
        return JSON.stringify({ custom_id: `${at}`, method: 'POST', url: '/v1/chat', body });
      })
      .join('\n');
    const file = {
      id: fileId,
      accountId,
      contentId: fileId,
      part: 0,
      name: 'a',
      purpose: 'batch',
      sizeBytes: text.length,
      createdMs: nowMs,
      expiresMs: nowMs + HOUR_MS,
    };
    assert.equal(await this.files.begin(file, LIMITS, NOTHING), undefined);
    // Split at arbitrary positions.
    const bytes = Buffer.from(text);
    for (let at = 0; at * 37 < bytes.length; at += 1) {
      const body = bytes.subarray(at * 37, at * 37 + 37);
      await this.files.write({ contentId: fileId, seq: at, part: 0, body });
    }
    await this.files.finish(fileId, { ...file, expiresMs: nowMs + 30 * DAY_MS }, nowMs);
    const id = `batch_${ids.hex(8)}`;
    const isQueued = await this.batches.alone(accountId, (tx) =>
      this.batches.insert(
        tx,
        {
          id,
          accountId,
          keyId: 'key_1',
          capId: '',
          country: undefined,
          endpoint: '/v1/chat',
          inputFileId: fileId,
          metadata: null,
          keepMs: DAY_MS,
          createdMs: nowMs,
          expiresMs: nowMs + DAY_MS,
        },
        SETTINGS.maxOpenBatches,
      ),
    );
    assert.ok(isQueued);
    return id;
  }

  host(): BatchHost {
    return {
      endpoint: (path) => ({ path, modelProblem: () => undefined }),
      isStarting: () => false,
      hasCapacity: () => this.hasCapacity,
      call: (call) => this.#call(call),
      isClosing: () => false,
      ran: (result) => void this.results.push(result),
    };
  }

  async #call({ body, deliver }: LineCall): Promise<LineResponse> {
    const { model } = JSON.parse(body.toString()) as { model: string };
    const attempt = (this.attempts.get(model) ?? 0) + 1;
    this.attempts.set(model, attempt);
    await this.gate;
    const failed = {
      status: 200,
      requestId: 'r',
      canRetry: false,
      isUnavailable: false,
      body: Buffer.from('{}'),
    };
    const response = this.respond(model, attempt);
    if (!Buffer.isBuffer(response)) return { ...failed, ...response };
    try {
      await this.store.transaction(async (tx) => {
        const headers = { 'x-request-id': `r-${model}` };
        await deliver(tx, { status: 200, headers, body: response }, SOLD);
      });
    } catch (error) {
      // Like a sale: a response that cannot be delivered is not charged.
      if (!(error instanceof Fault)) throw error;
      return { ...failed, status: 409, canRetry: true };
    }
    this.sold.push(model);
    return failed;
  }

  async take(): Promise<Batch> {
    const [batch] = await this.batches.claim(1);
    assert.ok(batch !== undefined, 'no batch is due');
    return batch;
  }

  /** Runs the next batch to its end while time passes. */
  async work(stepMs: () => number = () => SECOND_MS): Promise<void> {
    await this.whileTimePasses(this.run(this.runOf(await this.take())), stepMs);
  }

  runOf(batch: Batch): BatchRun {
    const lines = new JobQueue({ running: 4, waiting: 1_000, retryAfterSeconds: 1 });
    const { store, files, batches, settings, clock } = this;
    const ids = seededIds(this.#seed + this.sold.length);
    const host = this.host();
    const parts = { store, files, batches, settings, host, lines, clock, ids, log: silentLog };
    return new BatchRun(parts, batch);
  }

  /** Runs a batch and renews its lease, as the worker does. */
  async run(run: BatchRun): Promise<void> {
    const stop = this.clock.every(2 * SECOND_MS, () => void run.checkLease());
    await run.run().finally(stop);
  }

  async whileTimePasses(work: Promise<void>, stepMs = () => SECOND_MS): Promise<void> {
    let isDone = false;
    const done = work.finally(() => {
      isDone = true;
    });
    const endMs = performance.now() + MOST_REAL_MS;
    for (let turn = 0; !isDone; turn += 1) {
      assert.ok(performance.now() < endMs, 'the run does not end');
      // The database needs real time.
      await this.store.query('SELECT 1 AS one');
      await new Promise((resolve) => setImmediate(resolve));
      if (turn % 10 === 9) this.clock.advance(stepMs());
    }
    await done;
  }

  async find(id: string): Promise<Batch> {
    const batch = await this.batches.find(ACCOUNT, id);
    assert.ok(batch !== undefined);
    return batch;
  }

  async linesOf(id: string, part: number): Promise<{ custom_id: string; error: unknown }[]> {
    const pieces: Buffer[] = [];
    for await (const piece of this.files.read(id, part)) pieces.push(piece);
    const text = Buffer.concat(pieces).toString();
    return text.split('\n').flatMap((line) => (line === '' ? [] : JSON.parse(line)));
  }

  async idsOf(id: string, part: number): Promise<string[]> {
    return (await this.linesOf(id, part)).map((line) => line.custom_id);
  }
}

onEachStore('batch runs', (fixture) => {
  const open = async (): Promise<Fixture> =>
    new Fixture(inTimeOfCaller(await fixture.open(BATCHES_MIGRATIONS)), new TestClock());

  test('a failing line is attempted three times, and a line without an engine is retried without limit', async () => {
    const setup = await open();
    const id = await setup.queue(['fine', 'broken', 'away', 'refused', 'pretty']);
    setup.respond = (model, attempt) => {
      if (model === 'broken') return { status: 500, canRetry: true };
      if (model === 'refused') return { status: 400 };
      if (model === 'away' && attempt <= 8)
        return { status: 503, canRetry: true, isUnavailable: true };
      return Buffer.from(model === 'pretty' ? '{\n  "ok": "a\\nb"\r\n}' : '{"ok":true}');
    };
    await setup.work();
    const batch = await setup.find(id);
    assert.deepEqual(
      [batch.state, batch.counts],
      ['completed', { total: 5, completed: 3, failed: 2 }],
    );
    assert.deepEqual(setup.sold.toSorted(), ['away', 'fine', 'pretty']);
    assert.deepEqual(batch.use, useOfSold(3));
    const results = Map.groupBy(setup.results, (result) => result);
    assert.deepEqual([results.get('completed')?.length, results.get('failed')?.length], [3, 2]);
    assert.deepEqual(
      [setup.attempts.get('broken'), setup.attempts.get('away'), setup.attempts.get('refused')],
      [3, 9, 1],
    );
    assert.deepEqual(await setup.idsOf(id, OUTPUT_PART), ['0', '2', '4']);
    assert.deepEqual(await setup.idsOf(id, ERROR_PART), ['1', '3']);
    const files = await setup.files.list(
      ACCOUNT,
      { limit: 10, order: 'asc', after: undefined, purpose: 'batch_output' },
      setup.clock.nowMs(),
    );
    assert.deepEqual(
      new Set(files.map((file) => file.id)),
      new Set([batch.outputFileId, batch.errorFileId]),
    );
  });

  test('a batch waits for spare capacity, and expires with the results up to then', async () => {
    const setup = await open();
    const id = await setup.queue(['a', 'b', 'c', 'd']);
    let isStopped = false;
    setup.respond = (model) => {
      if (model === 'b') isStopped = true;
      setup.hasCapacity = !isStopped;
      return Buffer.from('{}');
    };
    await setup.work(() => (setup.sold.length < 2 ? SECOND_MS : HOUR_MS));
    const batch = await setup.find(id);
    assert.equal(batch.state, 'expired');
    assert.ok(batch.endedMs >= batch.expiresMs);
    const sold = setup.sold.length;
    assert.ok(sold >= 2 && sold <= 4, `${sold} were sold`);
    assert.deepEqual(batch.counts, { total: 4, completed: sold, failed: 4 - sold });
    const errors = await setup.linesOf(id, ERROR_PART);
    for (const { error } of errors) assert.equal((error as { code: string }).code, 'batch_expired');
  });

  if (fixture.dialect === 'postgres') {
    test('a process whose clock is days ahead runs the lines of a batch', async () => {
      const store = await fixture.open(BATCHES_MIGRATIONS);
      const right = new Fixture(store, new TestClock(Date.now()));
      const id = await right.queue(['a', 'b']);
      const ahead = new Fixture(store, new TestClock(Date.now() + 2 * DAY_MS), 2);
      await ahead.work();
      const { state, counts } = await right.find(id);
      assert.deepEqual([state, counts], ['completed', { total: 2, completed: 2, failed: 0 }]);
    });

    test('a process whose clock is months ahead deletes no batch', async () => {
      const store = await fixture.open(BATCHES_MIGRATIONS);
      const right = new Fixture(store, new TestClock(Date.now()));
      const id = await right.queue(['a']);
      await right.work();
      await deleteExpired(right, { keepDays: 30 }, Date.now() + 60 * DAY_MS);
      assert.equal((await right.find(id)).state, 'completed');
    });

    test('a process whose clock is days behind queues a batch that can run', async () => {
      const store = await fixture.open(BATCHES_MIGRATIONS);
      const behind = new Fixture(store, new TestClock(Date.now() - 2 * DAY_MS));
      const id = await behind.queue(['a']);
      const right = new Fixture(store, new TestClock(Date.now()), 2);
      await right.work();
      assert.equal((await right.find(id)).state, 'completed');
    });
  }

  test('a line fails if its response is too large or the storage of the account is full', async () => {
    const setup = await open();
    setup.settings = { ...SETTINGS, maxStoredMbPerCaller: 20 };
    const id = await setup.queue(['large', 'a', 'b']);
    setup.respond = (model) => {
      if (model === 'large') return Buffer.alloc(MAX_RESPONSE_BYTES + 1, 32);
      return Buffer.from(`{"a":"${'x'.repeat(15_000_000)}"}`);
    };
    const lines = new JobQueue({ running: 1, waiting: 100, retryAfterSeconds: 1 });
    const { store, files, batches, settings, clock } = setup;
    const host = setup.host();
    const ids = seededIds(7);
    const parts = { store, files, batches, settings, host, lines, clock, ids, log: silentLog };
    const run = new BatchRun(parts, await setup.take());
    // The database is slow with this much data, and the lease must not expire meanwhile.
    const stepMs = (): number => SECOND_MS / 10;
    await setup.whileTimePasses(setup.run(run), stepMs);
    const errors = await setup.linesOf(id, ERROR_PART);
    assert.deepEqual(
      errors.map(({ custom_id: line, error }) => [line, (error as { code: string }).code]),
      [['0', 'answer_too_large']],
    );
    // The too large response was charged.
    assert.deepEqual((await setup.find(id)).use, useOfSold(setup.sold.length));
    const again = await setup.queue(['c']);
    await setup.work(stepMs);
    const [failed] = await setup.linesOf(again, ERROR_PART);
    assert.equal((failed!.error as { code: string }).code, 'storage_full');
    assert.equal(setup.attempts.get('c'), undefined);
  });

  test('two workers on one batch charge each line once', async () => {
    const url = await fixture.freshUrl();
    const clock = new TestClock();
    const one = new Fixture(inTimeOfCaller(await fixture.open(BATCHES_MIGRATIONS, url)), clock, 1);
    const two = new Fixture(inTimeOfCaller(await fixture.open(BATCHES_MIGRATIONS, url)), clock, 2);
    const models = Array.from({ length: 40 }, (_, at) => `m-${at}`);
    const id = await one.queue(models);
    // The first worker hangs with running lines.
    const gate = Promise.withResolvers<void>();
    one.gate = gate.promise;
    const first = one.run(one.runOf(await one.take()));
    await until(() => one.attempts.size >= 4, 'the attempts');
    await one.store.query('UPDATE batches_batch SET lease_until_ms = 0');
    await two.work();
    gate.resolve();
    await one.whileTimePasses(first);
    assert.deepEqual([...one.sold, ...two.sold].toSorted(), models.toSorted());
    const batch = await one.find(id);
    assert.deepEqual([batch.state, batch.use], ['completed', useOfSold(40)]);
    assert.deepEqual(
      await one.idsOf(id, OUTPUT_PART),
      models.map((_, at) => `${at}`),
    );
  });

  test('lines that never end delay no batch of another account', async () => {
    const one = await open();
    const gate = Promise.withResolvers<undefined>();
    one.gate = gate.promise;
    const { store, files, batches, settings, clock } = one;
    const parts = { store, files, batches, settings, clock, ids: seededIds(1), log: silentLog };
    const worker = new Worker({ ...parts, host: one.host() });
    // As many batches as run at once.
    for (let at = 0; at < 16; at += 1) await one.queue([`${at}-a`, `${at}-b`, `${at}-c`]);
    worker.start(true);
    const slots = [`all slots of the account`, 100] as const;
    await until(() => one.attempts.size === SETTINGS.concurrency, ...slots);
    one.gate = Promise.resolve();
    const other = await one.queue(['quick'], 'acct_2');
    worker.nudge(other);
    const isDone = async () => {
      if ((await batches.find('acct_2', other))?.state === 'completed') return true;
      clock.advance(SECOND_MS);
      return false;
    };
    await until(isDone, 'the batch of the other account', 20);
    assert.deepEqual(one.sold, ['quick']);
    gate.resolve(undefined);
    await worker.stop();
  });

  test('a batch from before usage was counted has no usage, and running batches are counted', async () => {
    const setup = await open();
    const old = await setup.queue(['a']);
    await setup.store.query('UPDATE batches_batch SET usd_nano = NULL');
    await setup.work();
    assert.equal((await setup.find(old)).use, undefined);
    assert.equal('usage' in batchBody(await setup.find(old)), false);
    setup.clock.advance(SECOND_MS);
    await setup.queue(['b']);
    assert.deepEqual(await openBatches(setup.store), { validating: 1 });
    await setup.work();
    assert.deepEqual(await openBatches(setup.store), {});
  });

  test('expired files and old batches are deleted', async () => {
    const setup = await open();
    const id = await setup.queue(['a', 'b']);
    await setup.work();
    const { files, batches, clock } = setup;
    const round = () => deleteExpired({ files, batches }, { keepDays: 30 }, clock.nowMs());
    await round();
    assert.equal((await setup.idsOf(id, OUTPUT_PART)).length, 2);
    setup.clock.advance(DAY_MS + MINUTE_MS);
    await round();
    assert.deepEqual(await setup.idsOf(id, OUTPUT_PART), []);
    assert.equal((await setup.find(id)).state, 'completed');
    setup.clock.advance(30 * DAY_MS);
    await round();
    for (const table of ['batches_batch', 'batches_file', 'batches_piece']) {
      assert.deepEqual(await setup.store.query(`SELECT * FROM ${table}`), [], table);
    }
  });

  test('all old batches are deleted, however many there are', async () => {
    const { store, files, batches, clock } = await open();
    const batch = {
      accountId: ACCOUNT,
      keyId: 'key_1',
      capId: '',
      country: undefined,
      endpoint: '/v1/chat',
      inputFileId: 'file-a',
      metadata: null,
      keepMs: DAY_MS,
      createdMs: clock.nowMs(),
      expiresMs: clock.nowMs() + DAY_MS,
    };
    await store.transaction(async (tx) => {
      for (let at = 0; at < 101; at += 1) await batches.insert(tx, { ...batch, id: `b${at}` }, 101);
      await tx.query(`UPDATE batches_batch SET state = 'completed', ended_ms = 1`);
    });
    await deleteExpired({ files, batches }, { keepDays: 30 }, clock.nowMs());
    assert.deepEqual(await store.query('SELECT id FROM batches_batch'), []);
  });

  test('all expired files are deleted, however many there are', async () => {
    const { store, files, batches, clock } = await open();
    const createdMs = clock.nowMs();
    for (let at = 0; at < 101; at += 1) {
      const id = `file-${at}`;
      const content = { id, contentId: id, part: 0, name: 'a', purpose: 'batch', sizeBytes: 1 };
      const file = { ...content, accountId: `a${at % 2}`, createdMs, expiresMs: createdMs + 1 };
      assert.equal(await files.begin(file, LIMITS, NOTHING), undefined);
    }
    clock.advance(MINUTE_MS);
    await deleteExpired({ files, batches }, { keepDays: 30 }, clock.nowMs());
    assert.deepEqual(await store.query('SELECT id FROM batches_file'), []);
  });
});
