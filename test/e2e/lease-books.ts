/** Shared parts of the lease scenarios: their options, and the checks of the books after a run. */
import assert from 'node:assert/strict';
import { systemClock } from '../../src/core/clock.ts';
import type { TestPostgres } from '../databases/postgres.ts';
import { openTestStore } from '../databases/stores.ts';
import { PATIENCE_MS, type ProcessFixture, type Seen, readBooks, soon } from './process-fixture.ts';

const clock = systemClock();
/** `isNervous` settings: a process is dead after three seconds. */
export const DEAD_AFTER_MS = 3_000;

export interface Fixture {
  readonly servers: ProcessFixture;
  readonly postgres: TestPostgres;
  readonly database: string;
  /** Ended after the scenario, last first. */
  readonly ends: (() => Promise<unknown>)[];
  /** Pause of each caller between two requests. */
  readonly pauseMs: number;
}

/** Every complete response is in the books once, there are no holds, and no amount differs. */
export async function proven(database: string, seen: readonly Seen[]): Promise<string> {
  await deadHaveNothing(database);
  const served = seen.filter(({ status }) => status === 200);
  const { paid, openHolds } = await booksOf(database, served);
  assert.equal(openHolds, 0);
  for (const { requestId, usd } of served) assert.equal(paid.get(requestId), usd, requestId);
  assert.equal(new Set(served.map(({ requestId }) => requestId)).size, served.length);
  return `${served.length} answers seen, ${paid.size} charged, audit clean`;
}

/**
 * A settle in a journal reaches the books in the next round of its process. The row of a rejected
 * request is removed after its response was sent, or some rounds later if the response was lost.
 */
async function booksOf(database: string, served: readonly Seen[]) {
  const untilMs = clock.monotonicMs() + PATIENCE_MS;
  for (;;) {
    const books = await readBooks(database);
    const isWhole = served.every(({ requestId }) => books.paid.has(requestId));
    const isOver = isWhole && books.openHolds === 0;
    if (isOver || clock.monotonicMs() > untilMs) return books;
    await clock.sleep(200);
  }
}

export async function deadHaveNothing(database: string): Promise<void> {
  const unclaimed = `SELECT request_id FROM ledger_hold h
    WHERE NOT EXISTS (SELECT 1 FROM ledger_epoch e WHERE e.id = h.epoch_id)`;
  await soon('money of dead processes is back', PATIENCE_MS, async () => {
    const store = await openTestStore(database);
    const rows = await store.query(unclaimed);
    await store.close();
    return rows.length === 0 ? true : undefined;
  });
}

export function statuses(seen: readonly Seen[]): string {
  const groups = Map.groupBy(seen, ({ status }) => status);
  return [...groups].map(([status, some]) => `${some.length} × ${status}`).join(', ');
}
