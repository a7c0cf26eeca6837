/**
 * A server in its own process that kills itself with SIGKILL right after the n-th database call of
 * the next request, so that a test can cover every crash point.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { flushCompileCache } from 'node:module';
import { systemClock } from '../../src/core/clock.ts';
import type { Store } from '../../src/db/db.ts';
import { startTestApp } from '../app/test-app.ts';

/** Start options. */
export interface DyingServerOrder {
  readonly dataFolder: string;
  readonly yaml: string;
  /** Offset of its clock, so that leases of dead processes have expired. */
  readonly aheadMs: number;
}

/** Output after it listens. */
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
  const fuse = new AsyncLocalStorage<Fuse>();
  let next: Fuse | undefined;
  // Work of a request runs in its async context; background jobs do not.
  app.server.server.prependListener('request', () => {
    if (next !== undefined) fuse.enterWith(next);
    next = undefined;
  });
  burnWithWork(app.stores.store, () => fuse.getStore());
  process.on('message', (message) => {
    next = { left: Number(message) };
    process.send?.('armed');
  });
  // A killed process writes nothing to the compile cache.
  flushCompileCache();
  process.send?.({ url, secret: owner.secret });
}

/** Remaining database calls of the request before the process dies. */
interface Fuse {
  left: number;
}

/** Counts database calls of the request that has the context. */
function burnWithWork(store: Store, currentFuse: () => Fuse | undefined): void {
  const query = store.query.bind(store);
  const transaction = store.transaction.bind(store);
  const counted = async <T>(work: Promise<T>): Promise<T> => {
    const fuse = currentFuse();
    const result = await work;
    if (fuse === undefined) return result;
    fuse.left -= 1;
    if (fuse.left === 0) process.kill(process.pid, 'SIGKILL');
    return result;
  };
  store.query = (...question) => counted(query(...question));
  store.transaction = (...body) => counted(transaction(...body));
}
