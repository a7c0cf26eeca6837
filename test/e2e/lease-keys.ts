/**
 * Idempotency keys of processes that are suspended, disconnected or killed while they run them:
 * each key has one charge and one response, whichever process responds, and however late.
 */
import assert from 'node:assert/strict';
import { Pool } from 'undici';
import { systemClock } from '../../src/core/clock.ts';
import { until } from '../support/until.ts';
import { type CutProxy, startCutProxy } from '../databases/cut-proxy.ts';
import { openTestStore } from '../databases/stores.ts';
import type { FareboxProcess } from './farebox-process.ts';
import type { Fixture } from './lease-books.ts';
import { PATIENCE_MS, type Seen, ask, readBooks, soon } from './process-fixture.ts';

const clock = systemClock();
/** Longer than the lease of a key. The first pause lasts on until a key was taken over. */
const FIRST_PAUSE_MS = 23_000;
const MAX_FAULT_MS = 60_000;
/** After so long a client sends its request to the other process too. */
const PATIENT_MS = 1_500;
const CLIENTS = 16;
const MAX_TRIES = 40;
/** Timeout of requests whose process has no fault. */
const QUIET_MS = 1_000;
const FAULTS = ['pause', 'cut', 'kill'] as const;

interface Place {
  process: FareboxProcess | undefined;
  readonly proxy: CutProxy;
}

/** One key, with what was seen under it. */
interface Tried {
  readonly key: string;
  /** Which process has its first request. */
  readonly first: number;
  readonly seen: Seen[];
}

export async function underKeys(fixture: Fixture, rounds: number): Promise<string> {
  const { servers, postgres, ends } = fixture;
  servers.upstream.otherwise = { kind: 'answer', afterMs: 400, content: 'Hi', completionTokens: 5 };
  const places: Place[] = [];
  const start = (proxy: CutProxy, folder?: string) => {
    const settings = { database: proxy.url('postgres'), isNervous: true, isUnchecked: true };
    return servers.start(folder === undefined ? settings : { ...settings, folder });
  };
  for (let at = 0; at < 2; at += 1) {
    const proxy = await startCutProxy(postgres.socketPath);
    ends.push(() => proxy.close());
    places.push({ proxy, process: await start(proxy) });
  }
  const secret = places[0]?.process?.secret ?? '';
  const all: Tried[] = [];
  const asking = { isOver: false };
  const clients = Array.from({ length: CLIENTS }, async (_, client) => {
    while (!asking.isOver) {
      const tried = { key: `key-${client}-${all.length}`, first: client % 2, seen: [] };
      all.push(tried);
      await tryKey(places, secret, tried);
    }
  });
  const isServing = () => all.some(({ first, seen }) => first === 0 && seen.length > 0);
  await until(isServing, 'that the first process serves');
  const callsOf = ({ key }: Tried): number =>
    servers.upstream.seen.filter(({ body }) => body.includes(`"${key}"`)).length;
  for (let round = 0; round < rounds; round += 1) {
    await clock.sleep(QUIET_MS);
    const place = places[round % 2];
    const kind = FAULTS[round % FAULTS.length];
    assert.ok(place?.process !== undefined && kind !== undefined);
    const ms = round === 0 ? FIRST_PAUSE_MS : 1_000 + Math.random() * (MAX_FAULT_MS - 1_000);
    if (kind === 'pause') {
      const isRunning = () =>
        all.some((one) => one.first === round % 2 && one.seen.length === 0 && callsOf(one) > 0);
      await until(isRunning, 'that the engine runs a request of the process');
      place.process.child.kill('SIGSTOP');
      await clock.sleep(ms);
      const isTakenOver = () => all.some((one) => callsOf(one) > 1);
      if (round === 0) await until(isTakenOver, 'that another process takes a key over');
      place.process.child.kill('SIGCONT');
    } else if (kind === 'cut') {
      place.proxy.cut();
      await clock.sleep(ms);
      place.proxy.mend();
    } else {
      const { process: victim } = place;
      place.process = undefined;
      await victim.stop('SIGKILL');
      servers.running.delete(victim);
      place.process = await start(place.proxy, victim.folder);
    }
  }
  await clock.sleep(QUIET_MS);
  asking.isOver = true;
  await Promise.all(clients);
  // The other processes release the holds of the process that was killed in the last round.
  await soon('nothing is held', PATIENCE_MS, async () => {
    return (await readBooks(fixture.database)).openHolds === 0 ? true : undefined;
  });
  for (const { process: one } of places) if (one !== undefined) await servers.end(one);
  const calls = servers.upstream.seen.length;
  return checked(fixture.database, all, calls);
}

async function tryKey(places: readonly Place[], secret: string, tried: Tried): Promise<void> {
  const { seen } = tried;
  const open: Promise<unknown>[] = [];
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const place = places[(tried.first + tries) % 2];
    if (place?.process === undefined) {
      await clock.sleep(100);
      continue;
    }
    const pool = new Pool(new URL(place.process.url).origin, { connections: 1 });
    const sent = sendOnce(pool, secret, tried);
    open.push(sent);
    await Promise.race([sent, clock.sleep(PATIENT_MS)]);
    if (seen.some(({ status }) => status === 200)) break;
    await clock.sleep(100);
  }
  // Late responses count too.
  await Promise.all(open);
}

async function sendOnce(pool: Pool, secret: string, { key, seen }: Tried): Promise<void> {
  try {
    seen.push(await ask(pool, { secret, key, metadata: { key } }));
  } catch {
    // The process was killed.
  }
  await pool.destroy();
}

/** `calls`: requests that the engine received. */
async function checked(database: string, all: readonly Tried[], calls: number): Promise<string> {
  const books = await readBooks(database);
  assert.equal(books.openHolds, 0);
  const store = await openTestStore(database);
  const rows = await store.query<{ key: string; request_id: string }>(
    `SELECT request_id, metadata::json ->> 'key' AS key FROM ledger_usage WHERE usd_nano > 0`,
  );
  const [undone] = await store.query<{ count: bigint }>(
    `SELECT count(*) AS count FROM ledger_usage WHERE usd_nano = 0 AND status = 'failed'`,
  );
  await store.close();
  const charges = Map.groupBy(rows, ({ key }) => key);
  let answered = 0;
  for (const { key, seen } of all) {
    const served = seen.filter(({ status }) => status === 200);
    const responses = new Set(served.map(({ requestId }) => requestId));
    const charged = charges.get(key) ?? [];
    assert.ok(responses.size <= 1, `${key} has ${responses.size} responses`);
    assert.ok(charged.length <= 1, `${key} was charged ${charged.length} times`);
    for (const response of responses) assert.equal(charged[0]?.request_id, response, key);
    answered += responses.size;
  }
  // Two processes ran the same key.
  assert.ok(calls > rows.length, `${calls} calls for ${rows.length} charges`);
  return `${all.length} keys, ${answered} answered, ${rows.length} charged, ${undone?.count ?? 0n} requests not charged, audit clean`;
}
