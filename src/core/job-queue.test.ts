import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { nextTurn } from './event-loop.ts';
import { JobQueue } from './job-queue.ts';

describe('JobQueue', () => {
  const limits = { running: 1, waiting: 1, retryAfterSeconds: 3 };
  const calm = new AbortController().signal;

  test('jobs run in turn, and a full queue rejects them', async () => {
    const queue = new JobQueue(limits);
    const gate = Promise.withResolvers<string>();
    const first = queue.run(() => gate.promise, calm);
    const second = queue.run(async () => 'second', calm);
    await assert.rejects(
      queue.run(async () => 'third', calm),
      { code: 'MODEL_AT_CAPACITY' },
    );
    gate.resolve('first');
    assert.deepEqual(await Promise.all([first, second]), ['first', 'second']);
    assert.equal(await queue.run(async () => 'later', calm), 'later');
  });

  test('a caller at its own limit waits while another caller starts at once', async () => {
    const queue = new JobQueue({ running: 4, runningOfCaller: 1, waiting: 4, waitingOfCaller: 1 });
    const started: string[] = [];
    const gates = new Map<string, PromiseWithResolvers<void>>();
    const run = (caller: string, name: string): Promise<void> => {
      const gate = Promise.withResolvers<void>();
      gates.set(name, gate);
      const work = async (): Promise<void> => {
        started.push(name);
        await gate.promise;
      };
      return queue.run(work, calm, caller);
    };
    const all = [run('long', 'two hours'), run('long', 'two more hours')];
    await assert.rejects(run('long', 'too many'), { code: 'MODEL_AT_CAPACITY' });
    all.push(run('short', 'a second'));
    assert.deepEqual(started, ['two hours', 'a second']);
    gates.get('two hours')?.resolve();
    await all[0];
    await nextTurn();
    assert.deepEqual(started, ['two hours', 'a second', 'two more hours']);
    for (const gate of gates.values()) gate.resolve();
    await Promise.all(all);
  });

  test('the pieces of a request take turns with other jobs, even if the queue is full', async () => {
    const queue = new JobQueue(limits);
    const order: string[] = [];
    const turn = (name: string, isLetIn: boolean) =>
      queue.run(async () => void order.push(name), calm, name, isLetIn);
    const long = async (): Promise<void> => {
      const next = queue.turnsOf('long', calm);
      for (let piece = 0; piece < 3; piece += 1) await next(async () => void order.push('long'));
    };
    const gate = Promise.withResolvers<void>();
    const first = queue.run(() => gate.promise, calm, 'first');
    const waits = long();
    await assert.rejects(turn('short', false), { code: 'MODEL_AT_CAPACITY' });
    const goesOn = turn('short', true);
    gate.resolve();
    await Promise.all([first, waits, goesOn]);
    assert.deepEqual(order, ['long', 'short', 'long', 'long']);
  });

  test('an aborted job leaves the queue', async () => {
    const queue = new JobQueue(limits);
    const gate = Promise.withResolvers<void>();
    const first = queue.run(() => gate.promise, calm);
    const aborter = new AbortController();
    const left = queue.run(async () => 'never', aborter.signal);
    aborter.abort();
    await assert.rejects(left, { name: 'AbortError' });
    const next = queue.run(async () => 'next', calm);
    gate.resolve();
    await first;
    assert.equal(await next, 'next');
  });

  test('a long line of one caller does not delay others, and has a limit of its own', async () => {
    const queue = new JobQueue({
      running: 2,
      waiting: 10,
      waitingOfCaller: 4,
      retryAfterSeconds: 3,
    });
    const order: string[] = [];
    const gate = Promise.withResolvers<void>();
    const work = (name: string, caller: string): Promise<void> =>
      queue.run(
        async () => {
          order.push(name);
          await gate.promise;
        },
        calm,
        caller,
      );
    const all = [1, 2, 3, 4, 5, 6].map((index) => work(`greedy ${index}`, 'greedy'));
    await assert.rejects(work('greedy 7', 'greedy'), { code: 'MODEL_AT_CAPACITY' });
    all.push(work('other 1', 'other'), work('other 2', 'other'));
    gate.resolve();
    await Promise.all(all);
    assert.deepEqual(order.slice(0, 4), ['greedy 1', 'greedy 2', 'other 1', 'greedy 3']);
    assert.equal(order.length, 8);
  });

  test('callers take turns at the only slot', async () => {
    const queue = new JobQueue({ running: 1, waiting: 10, retryAfterSeconds: 3 });
    const order: string[] = [];
    const work = (caller: string): Promise<unknown> =>
      queue.run(async () => order.push(caller), calm, caller);
    const many = Array.from({ length: 5 }, () => work('many'));
    await Promise.all([...many, work('few'), work(''), work(''), work('few')]);
    assert.deepEqual(order, ['many', 'many', 'few', '', '', 'many', 'few', 'many', 'many']);
  });

  test('a failed job lets the next one run', async () => {
    const queue = new JobQueue(limits);
    await assert.rejects(
      queue.run(() => Promise.reject(new Error('no')), calm),
      /no/,
    );
    assert.equal(await queue.run(async () => 1, calm), 1);
  });

  test('`hasRoom` counts running jobs, waiting jobs, and waiting jobs of one caller', async () => {
    const queue = new JobQueue({
      running: 1,
      waiting: 3,
      waitingOfCaller: 2,
      retryAfterSeconds: 3,
    });
    const gate = Promise.withResolvers<void>();
    assert.ok(queue.hasRoom('', 3) && !queue.hasRoom('', 5));
    const all = ['a', 'a', 'a'].map((caller) => queue.run(() => gate.promise, calm, caller));
    assert.ok(!queue.hasRoom('a') && queue.hasRoom('b') && !queue.hasRoom('b', 2));
    gate.resolve();
    await Promise.all(all);
  });
});
