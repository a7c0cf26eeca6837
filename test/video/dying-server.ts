/**
 * A server in a process of its own that dies by its own SIGKILL, right after the n-th time that a
 * request asked its database since it was told so: a test walks n over every place where it can die.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { systemClock } from '../../src/kernel/clock.ts';
import type { Store } from '../../src/store/store.ts';
import { startTestApp } from '../app/test-app.ts';

/** How to start. */
export interface DyingServerOrder {
  readonly dataFolder: string;
  readonly yaml: string;
  /** How far its clock is ahead: leases of the dead have run out. */
  readonly aheadMs: number;
}

/** What it says once it listens. */
export interface DyingServerGreeting {
  readonly url: string;
  readonly secret: string;
}

process.once('disconnect', () => process.exit(0));
process.once('message', (message) => {
  void serve(message as DyingServerOrder); // sent by the test beside this file
});

async function serve({ dataFolder, yaml, aheadMs }: DyingServerOrder): Promise<void> {
  const clock = systemClock();
  const ahead = { ...clock, nowMs: () => clock.nowMs() + aheadMs };
  const { app, url, owner } = await startTestApp({ dataFolder, yaml, clock: ahead });
  const ofRequest = new AsyncLocalStorage<true>();
  // What follows from a request runs in its context; the chores of the server do not.
  app.server.server.prependListener('request', () => ofRequest.enterWith(true));
  const counter = countWork(app.office.store, () => ofRequest.getStore() === true);
  process.on('message', (message) => {
    counter.left = Number(message);
    process.send?.('armed');
  });
  process.send?.({ url, secret: owner.secret });
}

/** Counts what the database has done for requests, until nothing is left. */
function countWork(store: Store, isOfRequest: () => boolean): { left: number } {
  const counter = { left: Infinity };
  const query = store.query.bind(store);
  const transaction = store.transaction.bind(store);
  const counted = async <T>(work: Promise<T>): Promise<T> => {
    const counts = isOfRequest();
    const result = await work;
    if (!counts) return result;
    counter.left -= 1;
    if (counter.left === 0) process.kill(process.pid, 'SIGKILL');
    return result;
  };
  store.query = (...question) => counted(query(...question));
  store.transaction = (...body) => counted(transaction(...body));
  return counter;
}
