import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open as openFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import { inTimeOfCaller, onEachStore } from '../../test/databases/stores.ts';
import { DAY_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { silentLog } from '../core/log.ts';
import { ZERO, nano } from '../core/money.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until as untilTrue } from '../../test/support/until.ts';
import type { Store } from '../db/db.ts';
import {
  TEST_MONEY_MIGRATIONS,
  TestEngines,
  TestMoney,
  anyVideo,
} from '../../test/support/test-video-engines.ts';
import type { VideoVerdict } from './check-video.ts';
import type { Sales } from '../billing/sale.ts';
import { JobTable } from './job-table.ts';
import { VIDEO_MIGRATIONS } from './migrations.ts';
import {
  type QueueJob,
  type QueueSteps,
  type QueuedJob,
  Video,
  type VideoOptions,
  percentile,
} from './video.ts';
import type { VideoJob, VideoMessage } from './job.ts';
import { RESULT_BYTES } from './result-space.ts';
import { videoMoney } from './video-money.ts';

const folders: string[] = [];
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** A `Video` that queues with the hold of its test. */
class TestVideo extends Video {
  readonly #hold: QueueSteps['hold'];

  constructor(parts: VideoOptions, money: TestMoney) {
    super(parts);
    this.#hold = (job) => money.hold(job);
  }

  override async queue(wanted: QueueJob, steps: Partial<QueueSteps> = {}): Promise<QueuedJob> {
    return await super.queue(wanted, { hold: this.#hold, ...steps });
  }
}

const jobRequest = (changed: Partial<QueueJob> = {}): QueueJob => ({
  accountId: 'alice',
  keyId: 'key-1',
  modelId: 'wave',
  quoteNano: nano(350_000_000n),
  request: { prompt: 'a harbour' },
  hasSound: false,
  inputs: [],
  withDownload: false,
  ...changed,
});

/** A job whose process dies between its hold and its admission. */
async function holdOfDeadProcess(video: TestVideo, money: TestMoney): Promise<string> {
  money.dies = true;
  const id = await new Promise<string>((resolve) => {
    const hold = async (job: VideoJob): Promise<void> => {
      resolve(job.id);
      await money.hold(job);
    };
    void video.queue(jobRequest({ keyId: '' }), { hold });
  });
  await untilTrue(async () => (await money.moves(id)).length > 0, 'the hold');
  return id;
}

interface Fixture {
  readonly store: Store;
  readonly clock: TestClock;
  readonly engines: TestEngines;
  readonly money: TestMoney;
  readonly video: TestVideo;
  readonly folder: string;
  /** Queued callbacks. */
  readonly messages: VideoMessage[];
  /** Advances at most `withinSeconds` of virtual time until `claim` holds; I/O may take longer. */
  readonly until: (
    claim: () => Promise<boolean> | boolean,
    withinSeconds?: number,
  ) => Promise<void>;
  /** Waits until the job is refunded, and asserts that its money moved once. */
  readonly refunded: (id: string) => Promise<void>;
  readonly another: (parts?: Partial<VideoOptions>) => TestVideo;
}

onEachStore('video jobs', (stores) => {
  async function open(changed: Partial<VideoOptions> = {}): Promise<Fixture> {
    const store = inTimeOfCaller(
      await stores.open([...VIDEO_MIGRATIONS, ...TEST_MONEY_MIGRATIONS]),
    );
    const folder = mkdtempSync(join(tmpdir(), 'video-jobs-'));
    folders.push(folder);
    const clock = new TestClock();
    const engines = new TestEngines();
    const money = new TestMoney(store);
    const messages: VideoMessage[] = [];
    const running: TestVideo[] = [];
    const another = (parts: Partial<VideoOptions> = {}): TestVideo => {
      const made = new TestVideo(
        {
          store,
          engines,
          checkVideo: anyVideo,
          money,
          folder,
          maxStoredBytes: 20_000_000_000,
          keepHours: 24,
          maxJobHours: 2,
          maxSilenceMinutes: 10,
          maxOpenJobs: 3,
          ended: () => undefined,
          callbacks: {
            secretOf: (accountId) => `secret of ${accountId}`,
            add: async (_tx, message) => void messages.push(message),
            nudge: () => undefined,
          },
          expectedSeconds: () => 90,
          clock,
          ids: systemIds(),
          log: silentLog,
          ...changed,
          ...parts,
        },
        money,
      );
      running.push(made);
      return made;
    };
    const until: Fixture['until'] = async (claim, withinSeconds = 1_000) => {
      const startedMs = clock.nowMs();
      const soonMs = startedMs + 60_000;
      const lastMs = startedMs + withinSeconds * 1_000;
      const isTrue = async (): Promise<boolean> => {
        if (await claim()) return true;
        // After the virtual time limit the clock stops and only real I/O continues. The steps
        // get longer, because waiting for an engine has growing intervals.
        if (clock.nowMs() < lastMs) clock.advance(clock.nowMs() < soonMs ? 500 : 5_000);
        // Time advances no faster than the database responds.
        await store.query('SELECT 1 AS one');
        return false;
      };
      await untilTrue(isTrue, 'the condition', 1);
    };
    after(async () => {
      for (const one of running) await one.stop();
    });
    const refunded = async (id: string): Promise<void> => {
      await until(async () => (await money.moves(id)).includes('refund'));
      assert.deepEqual(await money.moves(id), ['hold', 'refund']);
    };
    const video = another();
    return { store, clock, engines, money, folder, messages, until, refunded, another, video };
  }

  const lookup = (queueId: string, accountId = 'alice') => ({ accountId, queueId });

  function imageIn(folder: string): QueueJob['inputs'] {
    const path = join(folder, 'given.png');
    writeFileSync(path, 'an image');
    return [{ role: 'image_url', path, mimeType: 'image/png' }];
  }
  const isMade = async (video: Video, id: string): Promise<boolean> =>
    (await video.retrieve(lookup(id))).kind === 'media';

  test('a job reports its progress, is charged once, and its video can be retrieved and deleted', async () => {
    const { video, engines, money, until, clock, folder } = await open();
    video.start();
    const { id, downloadToken } = await video.queue(jobRequest({ inputs: imageIn(folder) }));
    assert.match(id, /^[0-9a-f-]{36}$/);
    assert.equal(downloadToken, undefined);

    await until(async () => {
      const now = await video.retrieve(lookup(id));
      return now.kind === 'processing' && now.fraction > 0;
    });
    const [order] = engines.orders;
    assert.ok(order !== undefined);
    assert.deepEqual(order.job.request, { prompt: 'a harbour' });
    assert.equal(readFileSync(order.inputs[0]!.path, 'utf8'), 'an image');
    clock.advance(10_000);
    const processing = await video.retrieve(lookup(id));
    assert.ok(processing.kind === 'processing');
    assert.equal(processing.averageMs, 90_000);
    assert.ok(processing.executionMs >= 10_000);
    assert.equal(processing.remainingMs, processing.executionMs * 3);
    assert.deepEqual(await money.moves(id), ['hold']);
    // A wallet is charged when the engine accepts its job, a key when the job is queued.
    assert.equal(await money.charges(id), 1);
    await assert.rejects(video.complete(lookup(id)), { code: 'INVALID_REQUEST' });

    engines.pollResult = { kind: 'done' };
    await until(() => isMade(video, id));
    const done = await video.retrieve(lookup(id));
    assert.ok(done.kind === 'media');
    assert.equal(readFileSync(done.media.path, 'utf8'), 'the video');
    assert.deepEqual([done.media.sizeBytes, done.media.mimeType], [9, 'video/mp4']);
    assert.deepEqual(await money.moves(id), ['hold', 'settle']);
    await until(() => engines.removed.includes('job-1'));
    assert.deepEqual(readdirSync(join(folder, 'inputs')), []);

    await video.complete(lookup(id));
    assert.equal(existsSync(done.media.path), false);
    assert.deepEqual((await video.list('alice', Number.MAX_SAFE_INTEGER, 1))[0]?.request, {});
    await video.complete(lookup(id));
    await assert.rejects(video.retrieve(lookup(id)), { code: 'MEDIA_NOT_FOUND' });
    assert.deepEqual(await money.moves(id), ['hold', 'settle']);
  });

  test('a video and its name are flushed to the disk before it is sold', async (context) => {
    const { video, engines, money, folder, until } = await open();
    const steps: string[] = [];
    const file = await openFile(folder);
    const handle: { sync: () => Promise<void> } = Object.getPrototypeOf(file);
    await file.close();
    context.mock.method(handle, 'sync', async () => void steps.push('flush'));
    context.mock.method(money, 'settle', async () => void steps.push('settle'));
    video.start();
    const { id } = await video.queue(jobRequest());
    engines.pollResult = { kind: 'done' };
    await until(() => isMade(video, id));
    assert.deepEqual(steps, ['flush', 'flush', 'settle']);
  });

  test('a key is charged in the transaction that queues its job, a wallet later', async () => {
    const { video, money } = await open();
    const byKey = await video.queue(jobRequest({ keyId: 'key' }));
    const byWallet = await video.queue(jobRequest({ keyId: '' }));
    assert.equal(await money.charges(byKey.id), 1);
    assert.equal(await money.charges(byWallet.id), 0);
    const together = async (): Promise<never> => Promise.reject(new Error('another has the key'));
    await assert.rejects(video.queue(jobRequest({ keyId: 'key', accountId: 'bob' }), { together }));
    const [failed] = await money.allCharges();
    assert.equal(failed, byKey.id);
    assert.equal((await money.allCharges()).length, 1);
  });

  test('a rejected hold leaves no job and no files', async () => {
    const { video, money, folder } = await open();
    money.refuse = new Fault('INSUFFICIENT_BALANCE');
    await assert.rejects(video.queue(jobRequest({ inputs: imageIn(folder) })), {
      code: 'INSUFFICIENT_BALANCE',
    });
    assert.deepEqual(await video.list('alice', Number.MAX_SAFE_INTEGER, 10), []);
    assert.deepEqual(readdirSync(join(folder, 'inputs')), []);
  });

  test('media that cannot be stored completely leaves no files', async () => {
    const { video, folder } = await open();
    const path = join(folder, 'clip');
    writeFileSync(path, 'a clip');
    const inputs = [path, join(folder, 'missing')].map((one, place) => {
      return { role: `reference_video_urls.${place}`, path: one, mimeType: 'video/mp4' };
    });
    await assert.rejects(video.queue(jobRequest({ inputs })), { code: 'ENOENT' });
    assert.deepEqual(readdirSync(join(folder, 'inputs')), []);
  });

  test('a failed hold is released, and its job stops counting as open, without a refund', async () => {
    const { video, money, until } = await open();
    video.start();
    money.refuse = new Fault('SERVICE_UNAVAILABLE');
    for (let i = 0; i < 3; i += 1) {
      await assert.rejects(video.queue(jobRequest()), { code: 'SERVICE_UNAVAILABLE' });
    }
    money.refuse = new Error('the database is unreachable');
    const lost: string[] = [];
    const hold = async (job: VideoJob): Promise<void> => {
      lost.push(job.id);
      await money.hold(job);
    };
    for (let i = 0; i < 3; i += 1) {
      await assert.rejects(video.queue(jobRequest(), { hold }), /is unreachable/);
    }
    money.refuse = undefined;
    await assert.rejects(video.queue(jobRequest()), { code: 'RATE_LIMIT_EXCEEDED' });
    // Within a minute, since another process might check whether one of them has a hold.
    for (const id of lost) await until(async () => (await money.moves(id)).length > 0, 60);
    for (const id of lost) assert.deepEqual(await money.moves(id), ['release']);
    for (let i = 0; i < 3; i += 1) await video.queue(jobRequest());
  });

  test('the hold of a job that cannot be admitted is released within a minute', async () => {
    const { video, money, until } = await open();
    video.start();
    let heldId = '';
    const hold = async (job: VideoJob): Promise<void> => {
      heldId = job.id;
      await money.hold(job);
    };
    const together = () => Promise.reject(new Fault('REQUEST_IN_PROGRESS'));
    await assert.rejects(video.queue(jobRequest(), { hold, together }), {
      code: 'REQUEST_IN_PROGRESS',
    });
    await until(async () => (await money.moves(heldId)).length > 1, 60);
    assert.deepEqual(await money.moves(heldId), ['hold', 'release']);
  });

  test('the hold of a job that a dead process left is released after ten minutes', async () => {
    const { video, another, money, clock, until } = await open();
    const id = await holdOfDeadProcess(video, money);
    clock.advance(11 * 60_000);
    another().start();
    await until(async () => (await money.moves(id)).length > 1);
    assert.deepEqual(await money.moves(id), ['hold', 'release']);
  });

  test('the only process releases the holds of its predecessor at once', async () => {
    const { video, another, money, clock, until } = await open();
    const id = await holdOfDeadProcess(video, money);
    clock.advance(1);
    const startedMs = clock.nowMs();
    another().start({ alone: true });
    await until(async () => (await money.moves(id)).length > 1);
    assert.ok(clock.nowMs() - startedMs < 60_000);
    assert.deepEqual(await money.moves(id), ['hold', 'release']);
  });

  test('a server whose clock was set back does not take its own new job for one of a dead process', async () => {
    const { video, clock, money, until } = await open();
    video.start({ alone: true });
    clock.setWallBack(3_600_000);
    const hold = async (job: VideoJob): Promise<void> => {
      // The server looks for jobs of dead processes every minute.
      const endMs = clock.monotonicMs() + 180_000;
      await until(() => clock.monotonicMs() > endMs);
      await money.hold(job);
    };
    const { id } = await video.queue(jobRequest(), { hold });
    assert.deepEqual(await money.moves(id), ['hold']);
  });

  test('a hold that is placed after another process has given up its job is released', async () => {
    const { video, another, money, until } = await open();
    video.start();
    another().start();
    let heldId = '';
    const hold = async (job: VideoJob): Promise<void> => {
      heldId = job.id;
      await until(async () => (await money.moves(heldId)).length > 0);
      await money.hold(job);
    };
    await assert.rejects(video.queue(jobRequest(), { hold }), { code: 'SERVICE_UNAVAILABLE' });
    await until(async () => (await money.moves(heldId)).length > 2, 60);
    assert.deepEqual(await money.moves(heldId), ['hold', 'release', 'release']);
  });

  test('a job that was admitted although the reply of the database was lost keeps its files', async () => {
    const { store, another, engines, folder, until } = await open();
    let isLost = false;
    const transaction: Store['transaction'] = async (work, options) => {
      const result = await store.transaction(work, options);
      if (isLost) throw new Error('the reply was lost');
      return result;
    };
    const lossy = new Proxy(store, {
      get: (target, name) => {
        if (name === 'transaction') return transaction;
        const member: unknown = Reflect.get(target, name, target);
        return typeof member === 'function' ? member.bind(target) : member;
      },
    });
    const video = another({ store: lossy });
    const together = async (): Promise<void> => void (isLost = true);
    const wanted = jobRequest({ inputs: imageIn(folder) });
    await assert.rejects(video.queue(wanted, { together }), /reply was lost/);
    isLost = false;
    engines.createResult = { kind: 'busy', retryAfterMs: undefined, detail: 'full' };
    video.start();
    await until(() => engines.orders.length > 5);
    for (const { path } of engines.orders.at(-1)!.inputs) assert.ok(existsSync(path));
  });

  test('a job that the engine rejects is refunded once and returns the reason', async () => {
    const { video, engines, refunded } = await open();
    video.start();
    engines.createResult = {
      kind: 'refused',
      objection: 'policy',
      detail: 'No harbours at 10.0.0.7',
    };
    const { id } = await video.queue(jobRequest());
    await refunded(id);
    await assert.rejects(video.retrieve(lookup(id)), (error: unknown) => {
      assert.ok(error instanceof Fault);
      assert.equal(error.status, 422);
      const body = {
        message: 'The engine rejected the content; it costs nothing',
        type: 'provider_content_policy',
        credits_refunded: true,
      };
      assert.deepEqual(error.options.body, { error: body });
      return true;
    });
    await video.complete(lookup(id));
  });

  test('a job that fails at the engine is refunded once and returns 500', async () => {
    const { video, engines, refunded } = await open();
    video.start();
    engines.pollResult = {
      kind: 'failed',
      objection: 'engine',
      detail: 'cuda out of memory at 0x7f',
    };
    const { id } = await video.queue(jobRequest());
    await refunded(id);
    await assert.rejects(video.retrieve(lookup(id)), {
      code: 'INFERENCE_FAILED',
      status: 500,
      message: 'The engine could not make the video; it costs nothing',
    });
  });

  test('a job is refunded once if its video fails the check or cannot be checked', async () => {
    const ends: [VideoVerdict['kind'] & ('unfit' | 'unchecked'), string][] = [
      ['unfit', 'INFERENCE_FAILED'],
      ['unchecked', 'SERVICE_UNAVAILABLE'],
    ];
    for (const [kind, code] of ends) {
      const checked: string[] = [];
      const { video, engines, until, folder, refunded } = await open({
        checkVideo: async ({ path, sourcePath }) => {
          checked.push(readFileSync(path, 'utf8'), readFileSync(String(sourcePath), 'utf8'));
          return { kind, reason: 'it is a web page of 10.0.0.7' };
        },
      });
      video.start();
      writeFileSync(join(folder, 'source.mp4'), 'the source');
      const path = join(folder, 'source.mp4');
      const inputs = [{ role: 'video_url', path, mimeType: 'video/mp4' }];
      engines.pollResult = { kind: 'done' };
      const { id } = await video.queue(jobRequest({ inputs }));
      await refunded(id);
      const failed = await video.retrieve(lookup(id)).catch((error: unknown) => error);
      assert.ok(failed instanceof Fault && failed.code === code);
      assert.doesNotMatch(failed.message, /10\.0\.0\.7/);
      assert.deepEqual(failed.options.fields, { credits_refunded: true });
      assert.deepEqual(checked, ['the video', 'the source']);
      await until(() => engines.removed.length === 1);
      assert.equal(engines.orders.length, 1);
      assert.deepEqual(readdirSync(join(folder, 'results')), []);
    }
  });

  test('a job stores whether its video must have sound', async () => {
    const checked: boolean[] = [];
    const checkVideo: VideoOptions['checkVideo'] = async ({ job }) => {
      checked.push(job.hasSound);
      return { kind: 'fit', mimeType: 'video/mp4', sha256: 'hash' };
    };
    const { video, engines, until } = await open({ checkVideo });
    video.start();
    engines.pollResult = { kind: 'done' };
    for (const hasSound of [true, false]) {
      await video.queue(jobRequest({ hasSound }));
      await until(() => checked.at(-1) === hasSound);
    }
    assert.deepEqual(checked, [true, false]);
  });

  test('a request that the engine does not support returns 422 without the message of the engine', async () => {
    for (const objection of ['request', 'media'] as const) {
      const { video, engines, refunded } = await open();
      video.start();
      engines.createResult = { kind: 'refused', objection, detail: 'tensor 3 of /srv/wan2' };
      const { id } = await video.queue(jobRequest());
      await refunded(id);
      await assert.rejects(video.retrieve(lookup(id)), (error: unknown) => {
        assert.ok(error instanceof Fault);
        assert.deepEqual([error.status, error.code], [422, 'VIDEO_REQUEST_REFUSED']);
        const { error: shown } = error.options.body as { error: Record<string, unknown> };
        assert.deepEqual(
          [shown['type'], shown['credits_refunded']],
          ['provider_request_refused', true],
        );
        assert.doesNotMatch(JSON.stringify(error.options.body), /tensor|srv/);
        return true;
      });
    }
  });

  test('a job waits for a busy engine until its time limit', async () => {
    const { video, engines, until, clock, refunded } = await open();
    video.start();
    engines.createResult = { kind: 'busy', retryAfterMs: 20_000, detail: 'busy' };
    const { id } = await video.queue(jobRequest());
    await until(() => engines.orders.length >= 2);
    // Longer than the limit for a silent engine; no lease expires on the way.
    const untilMs = clock.nowMs() + 700_000;
    await until(() => clock.nowMs() > untilMs);
    assert.equal((await video.retrieve(lookup(id))).kind, 'processing');
    assert.deepEqual(engines.sought, []);
    clock.advance(3 * 3_600_000);
    await refunded(id);
  });

  test('a job is refunded after ten minutes without a response of the engine, at every step', async () => {
    const away = { kind: 'away', detail: 'ECONNREFUSED' } as const;
    for (const step of ['createResult', 'pollResult', 'downloadResult'] as const) {
      const { video, engines, clock, refunded } = await open();
      if (step === 'downloadResult') engines.pollResult = { kind: 'done' };
      engines[step] = away;
      const startedMs = clock.nowMs();
      video.start();
      const { id } = await video.queue(jobRequest());
      await refunded(id);
      const tookMs = clock.nowMs() - startedMs;
      assert.ok(tookMs >= 600_000 && tookMs < 1_200_000, `${step}: ${tookMs} ms`);
      await assert.rejects(video.retrieve(lookup(id)), { code: 'MODEL_OFFLINE' });
    }
  });

  test('time without a running server does not count as silence of an engine', async () => {
    const { video, another, engines, until, clock, refunded } = await open();
    engines.pollResult = { kind: 'away', detail: 'reset' };
    video.start();
    const { id } = await video.queue(jobRequest());
    const untilMs = clock.nowMs() + 60_000;
    await until(() => clock.nowMs() > untilMs);
    await video.stop();
    clock.advance(1_800_000);
    const next = another();
    const startedMs = clock.nowMs();
    next.start();
    await refunded(id);
    assert.ok(clock.nowMs() - startedMs >= 600_000);
  });

  test('one response of the engine restarts the ten minutes', async () => {
    const { video, engines, until, clock } = await open();
    video.start();
    const { id } = await video.queue(jobRequest());
    for (let turn = 0; turn < 3; turn += 1) {
      engines.pollResult = { kind: 'away', detail: 'reset' };
      const untilMs = clock.nowMs() + 400_000;
      await until(() => clock.nowMs() > untilMs);
      engines.pollResult = { kind: 'running', fraction: 0.3 + turn / 10 };
      await until(async () => {
        const now = await video.retrieve(lookup(id));
        return now.kind === 'processing' && now.fraction === 0.3 + turn / 10;
      });
    }
  });

  test('a create request without a clear response is searched for, repeated once, and then fails', async () => {
    const { video, engines, clock, refunded, until } = await open();
    engines.createResult = { kind: 'unclear', detail: 'HTTP 500' };
    const startedMs = clock.nowMs();
    video.start();
    const { id } = await video.queue(jobRequest());
    await refunded(id);
    assert.ok(clock.nowMs() - startedMs < 60_000);
    // The last search is for a job to end at the engine.
    await until(() => engines.sought.length === 3);
    assert.deepEqual([engines.orders.length, engines.sought], [2, [id, id, id]]);
    // The retry goes to the engine that the first request may have reached.
    assert.deepEqual(
      engines.orders.map(({ job }) => [job.engine, job.engineModel, job.attempts]),
      [
        ['', '', 0],
        ['e', 'm', 0],
      ],
    );
    await assert.rejects(video.retrieve(lookup(id)), { code: 'INFERENCE_FAILED' });
  });

  test('a create request that is found at the engine is not repeated', async () => {
    const { video, engines, money, until } = await open();
    video.start();
    engines.createResult = { kind: 'unclear', detail: 'timeout' };
    engines.findResult = { kind: 'created', engine: 'e', engineModel: 'm', engineJobId: 'found' };
    engines.pollResult = { kind: 'done' };
    const { id } = await video.queue(jobRequest());
    await until(() => isMade(video, id));
    assert.equal(engines.orders.length, 1);
    assert.deepEqual(await money.moves(id), ['hold', 'settle']);
    await until(() => engines.removed.includes('found'));
  });

  test('a create request of a dead process counts as one without a response', async () => {
    const { video, another, engines, until, clock, refunded } = await open();
    const gate = Promise.withResolvers<void>();
    engines.createGate = gate.promise;
    const dead = another({ clock: new TestClock(clock.nowMs()) });
    dead.start();
    const { id } = await dead.queue(jobRequest());
    await until(() => engines.orders.length === 1);
    engines.createGate = Promise.resolve();
    engines.createResult = { kind: 'unclear', detail: 'HTTP 500' };
    video.start();
    await refunded(id);
    assert.equal(engines.orders.length, 2);
    // The late response to the dead worker changes nothing.
    engines.createResult = undefined;
    gate.resolve();
    await until(() => engines.removed.includes('job-1'));
    await dead.stop();
  });

  test('a cancelled job is refunded once in any state and removed from its engine', async () => {
    const { video, engines, money, until, folder } = await open();
    const { id: queued } = await video.queue(jobRequest({ inputs: imageIn(folder) }));
    assert.equal((await video.cancel(lookup(queued))).state, 'failed');
    assert.equal((await video.cancel(lookup(queued))).failure?.code, 'VIDEO_CANCELLED');
    assert.deepEqual(readdirSync(join(folder, 'inputs')), []);
    video.start();
    const { id: running } = await video.queue(jobRequest());
    await until(async () => {
      const now = await video.retrieve(lookup(running));
      return now.kind === 'processing' && now.fraction > 0;
    });
    await assert.rejects(video.cancel(lookup(running, 'mallory')), { code: 'MEDIA_NOT_FOUND' });
    await video.cancel(lookup(running));
    assert.deepEqual(engines.removed, ['job-1']);
    for (const id of [queued, running]) {
      await assert.rejects(video.retrieve(lookup(id)), { code: 'VIDEO_CANCELLED', status: 410 });
      assert.deepEqual(await money.moves(id), ['hold', 'refund']);
    }
    engines.pollResult = { kind: 'done' };
    const { id: done } = await video.queue(jobRequest());
    await until(() => isMade(video, done));
    await assert.rejects(video.cancel(lookup(done)), { code: 'INVALID_REQUEST' });
    assert.deepEqual(await money.moves(done), ['hold', 'settle']);
  });

  test('a job that is cancelled during its create request is removed from the engine', async () => {
    const { video, engines, money, until } = await open();
    video.start();
    const gate = Promise.withResolvers<void>();
    engines.createGate = gate.promise;
    const { id } = await video.queue(jobRequest());
    await until(() => engines.orders.length === 1);
    await video.cancel(lookup(id));
    gate.resolve();
    await until(() => engines.removed.includes('job-1'));
    assert.deepEqual(await money.moves(id), ['hold', 'refund']);
  });

  test('exactly one of a concurrent cancel and completion succeeds', async () => {
    const { video, engines, money, until, clock } = await open({ maxOpenJobs: 100 });
    video.start();
    const outcomes = new Set<string>();
    // The cancel comes first in even turns, and a little later in each odd turn.
    for (let turn = 0; turn < 40 || (outcomes.size < 2 && turn < 400); turn += 1) {
      engines.pollResult = { kind: 'running', fraction: 0.5 };
      const { id } = await video.queue(jobRequest());
      const states = async () => (await video.list('alice', Number.MAX_SAFE_INTEGER, 1))[0]?.state;
      await until(async () => (await states()) === 'running');
      engines.pollResult = { kind: 'done' };
      const cancel = () =>
        video.cancel(lookup(id)).then(
          () => true,
          () => false,
        );
      const early = turn % 2 === 0 ? cancel() : undefined;
      clock.advance(2_000);
      if (early === undefined) await new Promise((resolve) => setTimeout(resolve, turn / 2));
      const isCancelled = await (early ?? cancel());
      await until(async () => (await money.moves(id)).length === 2);
      const moves = await money.moves(id);
      assert.deepEqual(moves, ['hold', isCancelled ? 'refund' : 'settle']);
      outcomes.add(moves[1]!);
    }
    assert.deepEqual([...outcomes].toSorted(), ['refund', 'settle']);
  });

  test('a job that the engine loses is submitted at most three times', async () => {
    const { video, engines, refunded } = await open();
    video.start();
    engines.pollResult = { kind: 'lost' };
    const { id } = await video.queue(jobRequest());
    await refunded(id);
    assert.equal(engines.orders.length, 3);
  });

  test('another worker takes over the job of a dead one, which is charged once', async () => {
    const { video, another, engines, money, until, clock } = await open();
    const gate = Promise.withResolvers<void>();
    engines.gate = gate.promise;
    engines.pollResult = { kind: 'done' };
    // The first worker hangs in its download; its lease renewals fail because its clock has
    // stopped.
    const dead = another({ clock: new TestClock(clock.nowMs()) });
    dead.start();
    const { id } = await dead.queue(jobRequest());
    await until(async () => (await money.moves(id)).length === 1 && engines.orders.length === 1);
    video.start();
    engines.gate = Promise.resolve();
    await until(() => isMade(video, id));
    gate.resolve();
    await dead.stop();
    assert.deepEqual(await money.moves(id), ['hold', 'settle']);
    const media = await video.retrieve(lookup(id));
    assert.ok(media.kind === 'media' && readFileSync(media.media.path, 'utf8') === 'the video');
  });

  test('an engine that does not respond to one account delays no job of another', async () => {
    const gate = Promise.withResolvers<undefined>();
    // Registered before the stop of the fixture, which waits for the engine.
    after(() => gate.resolve(undefined));
    const { video, engines, until } = await open({ maxOpenJobs: 20 });
    engines.createGate = gate.promise;
    engines.pollResult = { kind: 'done' };
    for (let at = 0; at < 20; at += 1) await video.queue(jobRequest());
    video.start();
    await until(() => engines.orders.length >= 12);
    engines.createGate = Promise.resolve();
    const { id } = await video.queue(jobRequest({ accountId: 'bob' }));
    const lookedUp = { accountId: 'bob', queueId: id };
    await until(async () => (await video.retrieve(lookedUp)).kind === 'media', 100);
    assert.ok(engines.orders.filter(({ job }) => job.accountId === 'alice').length < 16);
  });

  test('a failed settle is repeated and charges once', async () => {
    const { video, engines, money, until } = await open();
    video.start();
    engines.pollResult = { kind: 'done' };
    const settle = money.settle.bind(money);
    let failures = 2;
    money.settle = async (tx, job) => {
      await settle(tx, job);
      failures -= 1;
      if (failures >= 0) throw new Error('the ledger is unreachable');
    };
    const { id } = await video.queue(jobRequest());
    await until(() => isMade(video, id));
    assert.deepEqual(await money.moves(id), ['hold', 'settle']);
    assert.equal(failures, -1);
  });

  test('a job of another account or model is not found', async () => {
    const { video } = await open();
    const { id } = await video.queue(jobRequest());
    const missing = { code: 'MEDIA_NOT_FOUND' };
    await assert.rejects(video.retrieve(lookup(id, 'mallory')), missing);
    await assert.rejects(video.complete(lookup(id, 'mallory')), missing);
    await assert.rejects(video.retrieve({ ...lookup(id), modelIds: ['other'] }), missing);
    await assert.rejects(video.retrieve(lookup('nothing')), missing);
    assert.deepEqual(await video.list('mallory', Number.MAX_SAFE_INTEGER, 10), []);
    const [mine] = await video.list('alice', Number.MAX_SAFE_INTEGER, 10);
    assert.deepEqual([mine?.id, mine?.state, mine?.quoteNano], [id, 'queued', 350_000_000n]);
  });

  test('pages of the list contain every job, also of one millisecond', async () => {
    const { video, clock } = await open({ maxOpenJobs: 9 });
    for (let at = 0; at < 9; at += 1) {
      await video.queue(jobRequest());
      if (at % 4 === 3) clock.advance(1);
    }
    const seen: string[] = [];
    let beforeMs: number | undefined = Number.MAX_SAFE_INTEGER;
    while (beforeMs !== undefined) {
      const page = await video.list('alice', beforeMs, 3);
      seen.push(...page.map(({ id }) => id));
      beforeMs = page.length < 3 ? undefined : page.at(-1)?.createdMs;
    }
    assert.equal(new Set(seen).size, 9);
    assert.equal(seen.length, 9);
  });

  test('the number of open jobs of one caller is limited', async () => {
    const { video } = await open();
    for (let i = 0; i < 3; i += 1) await video.queue(jobRequest());
    await assert.rejects(video.queue(jobRequest()), { code: 'RATE_LIMIT_EXCEEDED' });
    await video.queue(jobRequest({ accountId: 'bob' }));
  });

  test('the limit of open jobs holds for concurrent requests of several processes', async () => {
    const { video, another, folder } = await open();
    const both = [video, another()];
    const answers = await Promise.allSettled(
      Array.from({ length: 12 }, (_, index) => {
        const path = join(folder, `given-${index}.png`);
        writeFileSync(path, 'an image');
        const inputs = [{ role: 'image_url', path, mimeType: 'image/png' }];
        return both[index % 2]!.queue(jobRequest({ inputs }));
      }),
    );
    const codes = answers.map((one) => (one.status === 'fulfilled' ? 'queued' : one.reason.code));
    assert.equal(codes.filter((code) => code === 'queued').length, 3, codes.join());
    assert.equal(codes.filter((code) => code === 'RATE_LIMIT_EXCEEDED').length, 9, codes.join());
    assert.equal(readdirSync(join(folder, 'inputs')).length, 3);
  });

  test('a download token is valid for 24 hours or until it is revoked', async () => {
    const { video, engines, until, clock } = await open({ keepHours: 100 });
    video.start();
    engines.pollResult = { kind: 'done' };
    const first = await video.queue(jobRequest({ withDownload: true }));
    const token = first.downloadToken!;
    assert.match(token, /^[A-Za-z0-9_-]{43}$/);
    const second = await video.queue(jobRequest({ withDownload: true }));
    await until(async () => (await video.retrieve(lookup(first.id))).kind === 'download');
    await until(async () => (await video.retrieve(lookup(second.id))).kind === 'download');
    const media = await video.openDownload(token);
    assert.equal(readFileSync(media.path, 'utf8'), 'the video');
    await assert.rejects(video.openDownload(`${token}x`), { code: 'MEDIA_NOT_FOUND' });
    await video.revokeDownload(second.downloadToken!);
    await assert.rejects(video.openDownload(second.downloadToken!), { code: 'MEDIA_NOT_FOUND' });
    await assert.rejects(video.revokeDownload(second.downloadToken!), { code: 'MEDIA_NOT_FOUND' });
    clock.advance(24 * 3_600_000 + 120_000);
    await assert.rejects(video.openDownload(token), { code: 'MEDIA_NOT_FOUND' });
  });

  test('expired media and old files without a job are deleted', async () => {
    const { video, engines, until, clock, folder } = await open({ keepHours: 1 });
    video.start();
    engines.pollResult = { kind: 'done' };
    const { id } = await video.queue(jobRequest());
    await until(() => isMade(video, id));
    const orphan = join(folder, 'results', 'f00d');
    const fresh = join(folder, 'results', 'cafe');
    for (const path of [orphan, fresh]) writeFileSync(path, 'x');
    const hour = 3_600_000;
    const soonSeconds = (clock.nowMs() + 4 * hour) / 1_000;
    utimesSync(orphan, soonSeconds - 3 * 3_600, soonSeconds - 3 * 3_600);
    utimesSync(fresh, soonSeconds, soonSeconds);
    clock.advance(3 * hour);
    await until(() => readdirSync(join(folder, 'results')).length === 1);
    assert.deepEqual(readdirSync(join(folder, 'results')), ['cafe']);
    await assert.rejects(video.retrieve(lookup(id)), { code: 'MEDIA_NOT_FOUND' });
  });

  if (stores.dialect === 'postgres') {
    test('a process whose clock is a day ahead makes a new video', async () => {
      const store = await stores.open([...VIDEO_MIGRATIONS, ...TEST_MONEY_MIGRATIONS]);
      const { another, engines, until } = await open({ store });
      const clock = new TestClock(Date.now() + DAY_MS);
      const { id } = await another({ clock: new TestClock(Date.now()) }).queue(jobRequest());
      const ahead = another({ clock });
      ahead.start();
      const ended = async () =>
        (await ahead.list('alice', Number.MAX_SAFE_INTEGER, 1))[0]?.state === 'failed';
      await until(async () => {
        clock.advance(1_000);
        return engines.orders.length > 0 || (await ended());
      });
      assert.equal(engines.orders[0]?.job.id, id);
    });

    test('a process with a wrong clock completes no expired video and deletes no recent job', async () => {
      const store = await stores.open(VIDEO_MIGRATIONS);
      const tableOf = (clockMs: number): JobTable =>
        new JobTable({
          store,
          owner: 'process',
          leaseMs: 60_000,
          clock: new TestClock(clockMs),
          log: silentLog,
        });
      const behindMs = Date.now() - 2 * DAY_MS;
      const table = tableOf(behindMs);
      await table.insert(
        {
          ...jobRequest(),
          inputs: [],
          id: 'job',
          createdMs: behindMs,
          inputBytes: 0,
          downloadHash: null,
          webhookUrl: '',
        },
        1,
      );
      await store.transaction((tx) => table.admit(tx, 'job', behindMs));
      assert.equal((await table.claim(1)).length, 1);
      const at = { engine: 'e', engineModel: 'm', engineJobId: '1' };
      await store.transaction((tx) => table.submitted(tx, 'job', at, behindMs));
      await table.storing('job');
      const media = { sizeBytes: 1, mimeType: 'video/mp4', keepMs: DAY_MS };
      await store.transaction((tx) => table.completed(tx, 'job', media, behindMs));
      assert.deepEqual(await table.expireMedia(Date.now()), []);
      assert.equal(await table.mediaGone('job'), true);
      const aheadMs = Date.now() + 100 * DAY_MS;
      await tableOf(aheadMs).deleteOld(30 * DAY_MS, aheadMs);
      assert.equal((await table.find('id', 'job'))?.state, 'completed');
    });
  }

  test('files of ended jobs that a killed process left are deleted at the next start', async () => {
    const { video, another, engines, until, folder, clock } = await open();
    video.start();
    engines.pollResult = { kind: 'done' };
    const { id: done } = await video.queue(jobRequest());
    await until(() => isMade(video, done));
    const { id: ended } = await video.queue(jobRequest());
    await video.cancel(lookup(ended));
    await video.stop();
    engines.pollResult = { kind: 'running', fraction: 0.1 };
    const { id: waiting } = await video.queue(jobRequest());
    // As if the process had died between the end of a job and the removal of its files.
    for (const name of [ended, waiting])
      mkdirSync(join(folder, 'inputs', name), { recursive: true });
    writeFileSync(join(folder, 'results', ended), 'x');
    writeFileSync(join(folder, 'results', `${waiting}.dead.part`), 'x');
    // More than one batch of used files does not hide the others.
    const wanted = join(folder, 'results', done);
    for (let index = 0; index < 250; index += 1) {
      writeFileSync(join(folder, 'results', `0${index}`), 'x');
      utimesSync(join(folder, 'results', `0${index}`), 1, 1);
    }
    const beforeSeconds = clock.nowMs() / 1_000 - 1;
    utimesSync(join(folder, 'results', `${waiting}.dead.part`), beforeSeconds, beforeSeconds);
    another().start({ alone: true });
    await until(() => readdirSync(join(folder, 'results')).length === 1);
    assert.deepEqual(readdirSync(join(folder, 'inputs')), [waiting]);
    assert.ok(existsSync(wanted));
  });

  test('`storedBytes` counts the files of one caller and of all', async () => {
    const { video, engines, until, folder } = await open();
    const given = (bytes: number) => {
      const path = join(folder, 'given.png');
      writeFileSync(path, Buffer.alloc(bytes));
      return [{ role: 'image_url', path, mimeType: 'image/png' }];
    };
    assert.deepEqual(await video.storedBytes('alice'), { callerBytes: 0, allBytes: 0 });
    const { id } = await video.queue(jobRequest({ inputs: given(1_000) }));
    await video.queue(jobRequest({ accountId: 'bob', inputs: given(30) }));
    const each = RESULT_BYTES;
    assert.deepEqual(await video.storedBytes('alice'), {
      callerBytes: each + 1_000,
      allBytes: 2 * each + 1_030,
    });
    engines.pollResult = { kind: 'done' };
    video.start();
    await until(async () => (await video.storedBytes('bob')).allBytes === 18);
    assert.deepEqual(await video.storedBytes('alice'), { callerBytes: 9, allBytes: 18 });
    await video.complete(lookup(id));
    assert.deepEqual(await video.storedBytes('alice'), { callerBytes: 0, allBytes: 9 });
  });

  test('videos that are being written share the free space, and count as stored', async () => {
    const freeBytes = 400_000_000;
    const { video, engines, until } = await open({ maxStoredBytes: 2 * RESULT_BYTES + freeBytes });
    engines.pollResult = { kind: 'done' };
    const written = Promise.withResolvers<void>();
    engines.gate = written.promise;
    await video.queue(jobRequest());
    await video.queue(jobRequest({ accountId: 'bob' }));
    video.start();
    await until(() => engines.rooms.length === 2);
    const beyond = async () => (await video.storedBytes('alice')).allBytes - 2 * RESULT_BYTES;
    const ofCaller = async (id: string) => (await video.storedBytes(id)).callerBytes - RESULT_BYTES;
    const [first, second] = engines.rooms as [(size: number) => boolean, (size: number) => boolean];
    // The reserved space is available and needs no additional space.
    const seen: unknown[] = [first(RESULT_BYTES), second(RESULT_BYTES), await beyond()];
    seen.push(first(RESULT_BYTES + freeBytes / 4), await beyond());
    seen.push([await ofCaller('alice'), await ofCaller('bob')].toSorted((a, b) => a - b));
    seen.push(second(RESULT_BYTES + freeBytes / 4), second(RESULT_BYTES + freeBytes / 4 + 1));
    written.resolve();
    assert.deepEqual(seen, [true, true, 0, true, freeBytes / 4, [0, freeBytes / 4], true, false]);
    await until(async () => (await video.storedBytes('alice')).allBytes === 18);
  });

  test('a video that exceeds the free space is refunded and not downloaded again', async () => {
    const { video, engines, refunded } = await open();
    engines.pollResult = { kind: 'done' };
    engines.downloadResult = { kind: 'too-large', detail: 'too-large: More than 200000000 bytes' };
    const { id } = await video.queue(jobRequest());
    video.start();
    await refunded(id);
    await assert.rejects(video.retrieve(lookup(id)), { code: 'INFERENCE_FAILED' });
    assert.equal(engines.rooms.length, 1, 'it is downloaded once');
  });

  test('a callback is queued once when a job has ended, also after a crash', async () => {
    const { video, engines, until, messages, store } = await open();
    video.start();
    engines.pollResult = { kind: 'done' };
    const webhookUrl = 'https://caller.example/hook';
    const { id, webhookSecret } = await video.queue(jobRequest({ webhookUrl }));
    assert.equal(webhookSecret, 'secret of alice');
    assert.equal((await video.queue(jobRequest())).webhookSecret, undefined);
    await until(() => messages.length === 1);
    const { body, ...message } = messages[0]!;
    const expected = { accountId: 'alice', url: webhookUrl, event: 'video.completed', subject: id };
    assert.deepEqual(message, expected);
    const completed = JSON.parse(body);
    assert.deepEqual(
      [completed.event, completed.queue_id, completed.status],
      ['video.completed', id, 'COMPLETED'],
    );
    engines.pollResult = { kind: 'failed', objection: 'engine', detail: 'cuda out of memory' };
    await video.queue(jobRequest({ webhookUrl }));
    await until(() => messages.length === 2);
    const failed = JSON.parse(messages[1]!.body);
    assert.deepEqual(
      [failed.event, failed.status, failed.error],
      ['video.failed', 'FAILED', 'The engine could not make the video; it costs nothing'],
    );
    engines.pollResult = { kind: 'running', fraction: 0.1 };
    await video.cancel(lookup((await video.queue(jobRequest({ webhookUrl }))).id));
    await until(() => messages.length === 3);
    assert.equal(JSON.parse(messages[2]!.body).event, 'video.cancelled');

    await store.query('UPDATE video_job SET webhook_due_ms = 1 WHERE id = $1', [id]);
    await until(() => messages.length === 4);
    assert.equal(messages[3]!.body, body);
  });

  test('the average execution time is the P80 of the model', async () => {
    const { video, engines, until, store } = await open({ ids: seededIds(7) });
    video.start();
    engines.pollResult = { kind: 'done' };
    const { id } = await video.queue(jobRequest());
    await until(
      async () => (await video.list('alice', Number.MAX_SAFE_INTEGER, 1))[0]?.state === 'completed',
    );
    await store.query('UPDATE video_job SET execution_ms = 145000 WHERE id = $1', [id]);
    const done = await video.retrieve(lookup(id));
    assert.equal(done.averageMs, 145_000);
  });
});

test('the receipt of a failed job has a refund only if the job was admitted', async () => {
  const extras: unknown[] = [];
  const settleJob: Sales['settleJob'] = async (_tx, { usage }) => {
    extras.push(usage.extras);
    return { fresh: true, usdNano: ZERO, diemNano: ZERO, after: { usdNano: ZERO, diemNano: ZERO } };
  };
  // Neither was charged.
  const refundJob: Sales['refundJob'] = async () => false;
  const money = videoMoney({ settleJob, refundJob } as Sales); // the only methods that it calls
  const job = { id: 'job', quoteNano: nano(350_000_000n), failure: null } as VideoJob; // the only members that it reads
  const tx = { query: async () => [], run: async () => undefined };
  await money.refund(tx, job);
  await money.release(tx, job);
  const quote = { quoteUsd: '0.350000000' };
  assert.deepEqual(extras, [{ ...quote, refundedUsd: '0.350000000' }, quote]);
});

test('`percentile` returns the nearest rank', () => {
  assert.equal(percentile([], 0.8), undefined);
  assert.equal(percentile([5], 0.8), 5);
  assert.equal(percentile([9, 1, 8, 2, 7, 3, 6, 4, 5, 10], 0.8), 8);
});
