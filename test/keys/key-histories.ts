/**
 * Histories of idempotency keys: several processes sell requests with keys on one PostgreSQL, with
 * clocks of the test, while processes are suspended, disconnected and killed, and replies to
 * commits are lost. Clients retry failed requests. At the end each key has at most one charge and
 * one response.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { BudgetCaps } from '../../src/billing/budgets/budgets.ts';
import {
  IDEMPOTENCY_MIGRATIONS,
  Idempotency,
  type IdempotencyToken,
} from '../../src/billing/idempotency/idempotency.ts';
import { LEDGER_MIGRATIONS, Ledger } from '../../src/billing/ledger/ledger.ts';
import { LIMITS_MIGRATIONS, LimitLog, MemoryWindows } from '../../src/billing/limits/limits.ts';
import { type ResponseKeeper, type Sale, Sales, paidFor } from '../../src/billing/sale.ts';
import { Fault } from '../../src/core/faults.ts';
import type { Log } from '../../src/core/log.ts';
import { ZERO, usdToNano } from '../../src/core/money.ts';
import { STORE_MIGRATIONS, type SharedStore, isShared } from '../../src/db/db.ts';
import { walletCaller } from '../../src/identity/identity.ts';
import { openTestStore } from '../databases/stores.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { TestClock } from '../support/test-clock.ts';
import { FaultyWay } from './faulty-store.ts';

const PROCESSES = 3;
/** Number of concurrent clients, each with one key. */
const CLIENTS = 60;
const STEP_MS = 1_000;
const MIN_FAULT_S = 1;
const MAX_FAULT_S = 60;
/** Probability of a fault of a process per second. */
const FAULT_SHARE = 0.06;
/** Share of the faults in which the whole database is unreachable. */
const ALL_SHARE = 0.05;
const MAX_TRIES = 25;
const COST = usdToNano('0.00002');
const PARTIAL = usdToNano('0.00001');
const RATE = { requestsPerMinute: 1e9, tokensPerMinute: 1e9, type: 'user' } as const;
const ACCOUNTS = Array.from({ length: 5 }, (_, at) =>
  walletCaller(`0x${String(at).padStart(40, '0')}`),
);
/** Behaviour of a request: a response, a stream, or a truncated response that is charged. */
const KINDS = ['json', 'json', 'stream', 'stream', 'breaks'] as const;

type Kind = (typeof KINDS)[number];

export interface HistoryReport {
  readonly keys: number;
  readonly seconds: number;
  /** Runs of engines: more than keys, because requests of suspended processes ran again. */
  readonly runs: number;
  readonly responses: number;
  readonly replays: number;
  readonly charged: number;
  /** Requests that were not charged because another one had their key. */
  readonly lost: number;
  /** Settles from a journal that were not charged because another request had their key. */
  readonly lostInJournal: number;
  readonly fromJournal: number;
  readonly unavailable: number;
  readonly faults: Readonly<Record<string, number>>;
}

/** One process that sells requests under keys. */
class SellingProcess {
  readonly id: string;
  readonly way: FaultyWay;
  readonly clock: TestClock;
  readonly ledger: Ledger;
  readonly #sales: Sales;
  readonly #idempotency: Idempotency;
  readonly #world: World;
  /** End of the current fault. */
  untilMs = 0;
  missedMs = 0;

  constructor(world: World, at: number) {
    this.#world = world;
    this.id = world.ids.uuid();
    this.way = new FaultyWay(world.store);
    this.clock = new TestClock(world.clock.nowMs());
    const { ids, log } = world;
    const { clock } = this;
    const { store } = this.way;
    const journalFolder = join(world.folder, `process-${at}`);
    const parts = { store, clock, ids, log, processId: this.id };
    const ledger = new Ledger({ ...parts, journalFolder });
    this.ledger = ledger;
    this.#idempotency = new Idempotency({ ...parts, keptBytes: () => 1e9 });
    this.#sales = new Sales({
      ...parts,
      ledger,
      windows: new MemoryWindows(),
      limitLog: new LimitLog(parts),
      budgets: new BudgetCaps({
        ...parts,
        ledger,
        identity: { lockBudget: () => assert.fail('there are no budgets') },
      }),
      minimumCreditNano: () => ZERO,
      observers: [],
      walletRefusal: async () => new Fault('PAYMENT_REQUIRED'),
      requireModel: async () => undefined,
    });
  }

  /** Runs a request as the HTTP stage and the handlers do; resolves to the body of a 200. */
  async handle(key: Key, requestId: string, thinkMs: number): Promise<string> {
    const { accountId } = key.caller;
    let begun = false;
    let body: string | undefined;
    const wanted = {
      caller: `answers:${accountId}`,
      accountId,
      key: key.id,
      fingerprint: key.id,
      requestId,
      maxWaitMs: 120_000,
      hasBegun: () => begun,
    };
    const stored = await this.#idempotency.once(wanted, (token) =>
      this.#sell(key, requestId, token, async (sale) => {
        this.#world.runs += 1;
        await this.clock.sleep(thinkMs);
        await this.way.standing();
        begun = key.kind !== 'json';
        if (key.kind === 'breaks') {
          await sale.settle({ costNano: PARTIAL, status: 'failed' });
          throw new Incomplete();
        }
        try {
          ({ body } = await sale.answer({ costNano: COST, status: 'completed' }, () => {
            return { type: 'text/plain', body: requestId };
          }));
        } catch (error) {
          // A started stream is charged for its text.
          if (begun) await sale.settle({ costNano: PARTIAL, status: 'failed' });
          throw error;
        }
      }),
    );
    await this.way.standing();
    if (this.way.isKilled) throw new Incomplete();
    if (stored === undefined) return body ?? assert.fail('a request that ends well has a body');
    this.#world.replays += 1;
    return stored.body.toString();
  }

  async #sell(
    { caller }: Key,
    requestId: string,
    token: IdempotencyToken,
    work: (sale: Sale) => Promise<void>,
  ): Promise<void> {
    const idempotency = this.#idempotency;
    const keeper: ResponseKeeper = {
      keep: (tx, { body }, sold) => {
        assert.ok(sold !== undefined && typeof body === 'string');
        const answer = { status: 200, headers: {}, body: Buffer.from(body) };
        return idempotency.complete(token, answer, tx, paidFor(sold));
      },
      kept: () => {
        token.isSpent = true;
      },
      charged: { fence: token, spend: (tx, paidNano) => idempotency.spend(token, tx, paidNano) },
    };
    const price = { minNano: COST, maxNano: COST };
    const request = { requestId, caller, kind: 'chat', modelId: 'm', rate: RATE, keeper, price };
    await this.#sales.sell({ ...request, tokensEstimate: 0, priceVersion: 'v1' }, work);
  }

  async freed(processId: string): Promise<void> {
    await this.ledger.holds.processEnded(processId);
    await this.#idempotency.processEnded(processId);
  }
}

/** A response that its client did not receive completely. */
class Incomplete extends Error {}

interface Key {
  readonly id: string;
  readonly kind: Kind;
  readonly caller: (typeof ACCOUNTS)[number];
  readonly requestIds: Set<string>;
  readonly responses: Set<string>;
}

class World {
  readonly store: SharedStore;
  readonly clock = new TestClock();
  readonly ids: ReturnType<typeof seededIds>;
  readonly folder = mkdtempSync(join(tmpdir(), 'farebox-histories-'));
  /** Killed processes whose successors start or have started. */
  readonly #replaced = new Set<SellingProcess>();
  readonly log: Log;
  readonly processes: SellingProcess[] = [];
  readonly starting = new Set<SellingProcess>();
  readonly restarting = new Set<Promise<void>>();
  readonly faults = { paused: 0, cut: 0, killed: 0, lostReply: 0, away: 0 };
  readonly keys: Key[] = [];
  runs = 0;
  replays = 0;
  lost = 0;
  lostInJournal = 0;
  fromJournal = 0;
  unavailable = 0;
  #open = 0;

  constructor(store: SharedStore, seed: number) {
    this.ids = seededIds(seed);
    this.store = this.#counting(store);
    const note = (fields: Readonly<Record<string, unknown>>, message: string): void => {
      if (message.startsWith('Not charged: another request')) this.lostInJournal += 1;
      if (message.includes('journal were written')) this.fromJournal += Number(fields['replayed']);
      if (message.startsWith('Settled the journal')) this.fromJournal += Number(fields['adopted']);
    };
    this.log = { debug: () => undefined, info: note, warn: note, error: note };
  }

  random(below: number): number {
    return Math.floor(this.ids.fraction() * below);
  }

  /** Counts running database calls, so that a step waits for them. */
  #counting(store: SharedStore): SharedStore {
    return new Proxy(store, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target);
        if (typeof value !== 'function') return value;
        if (name !== 'query' && name !== 'transaction') return value.bind(target);
        return async (...parameters: unknown[]) => {
          this.#open += 1;
          try {
            return await value.apply(target, parameters);
          } finally {
            this.#open -= 1;
          }
        };
      },
    });
  }

  async settled(): Promise<void> {
    for (let quiet = 0; quiet < 4;) {
      await setImmediate();
      quiet = this.#open === 0 ? quiet + 1 : 0;
    }
  }

  /** Starts a process, which needs its clock to advance; so nothing waits for it here. */
  async start(at: number): Promise<void> {
    const process = new SellingProcess(this, at);
    this.starting.add(process);
    await process.ledger.start();
    this.starting.delete(process);
    this.processes[at] = process;
  }

  /** Waits while the clock advances. */
  async startNow(at: number): Promise<void> {
    let isStarted = false;
    const starting = this.start(at).then(() => (isStarted = true));
    while (!isStarted) await this.step();
    await starting;
  }

  /** Releases what a killed process had, and starts the next process. */
  async restart(at: number, killed: SellingProcess): Promise<void> {
    await killed.ledger.stop();
    await this.start(at);
    const other = this.processes[(at + 1) % PROCESSES];
    if (this.random(2) === 0) await other?.freed(killed.id).catch(() => undefined); // the process is disconnected
  }

  /** Advances the clocks of the database and of all processes that are not suspended by a second. */
  async step(): Promise<void> {
    await this.store.query(
      `UPDATE idempotency_entry SET expires_ms = expires_ms - ${STEP_MS} WHERE state = 'running'`,
    );
    this.clock.advance(STEP_MS);
    for (const process of [...this.processes, ...this.starting]) {
      if (process.way.isPaused) process.missedMs += STEP_MS;
      else process.clock.advance(STEP_MS);
    }
    await this.settled();
  }

  /** Starts and ends faults of processes in this second. */
  befall(): void {
    const nowMs = this.clock.nowMs();
    for (const [at, process] of this.processes.entries()) {
      if (process.untilMs > nowMs) continue;
      if (process.untilMs > 0) this.mend(at);
      if (this.ids.fraction() >= FAULT_SHARE) continue;
      const seconds = MIN_FAULT_S + this.random(MAX_FAULT_S - MIN_FAULT_S + 1);
      const untilMs = nowMs + seconds * STEP_MS;
      if (this.ids.fraction() < ALL_SHARE) {
        this.faults.away += 1;
        for (const one of this.processes) {
          one.way.cut();
          one.untilMs = untilMs;
        }
        return;
      }
      process.untilMs = untilMs;
      const kind = this.random(4);
      if (kind === 0) {
        this.faults.paused += 1;
        process.way.pause();
      } else if (kind === 1) {
        this.faults.cut += 1;
        process.way.cut();
      } else if (kind === 2) {
        this.faults.killed += 1;
        process.way.kill();
        process.untilMs = nowMs + this.random(10) * STEP_MS;
      } else {
        this.faults.lostReply += 1;
        process.way.loseReply();
        process.untilMs = 0;
      }
    }
  }

  mend(at: number): void {
    const process = this.processes[at];
    if (process === undefined) return;
    process.untilMs = 0;
    process.way.mend();
    process.way.resume();
    process.clock.advance(process.missedMs);
    process.missedMs = 0;
    if (!process.way.isKilled || this.#replaced.has(process)) return;
    this.#replaced.add(process);
    process.untilMs = Infinity;
    this.restarting.add(this.restart(at, process));
  }

  newKey(): Key {
    const key = {
      id: `key-${this.keys.length}`,
      kind: KINDS[this.random(KINDS.length)] ?? 'json',
      caller: ACCOUNTS[this.random(ACCOUNTS.length)] ?? assert.fail(),
      requestIds: new Set<string>(),
      responses: new Set<string>(),
    };
    this.keys.push(key);
    return key;
  }

  /** One attempt; returns `true` if the key needs no more. */
  async request(key: Key, patienceMs: number): Promise<boolean> {
    const process = this.processes[this.random(PROCESSES)];
    if (process === undefined || process.way.isKilled) return false;
    const requestId = this.ids.hex(16);
    key.requestIds.add(requestId);
    const handled = process.handle(key, requestId, this.random(30) * STEP_MS).then(
      (body) => {
        // Includes data that arrives after the client has disconnected.
        key.responses.add(body);
        return true;
      },
      (error: unknown) => {
        if (!(error instanceof Fault)) {
          this.unavailable += 1;
          return false;
        }
        if (error.code === 'REQUEST_IN_PROGRESS' && /taken over/.test(error.message))
          this.lost += 1;
        return error.code === 'IDEMPOTENT_ANSWER_NOT_KEPT';
      },
    );
    return Promise.race([handled, this.clock.sleep(patienceMs).then(() => false)]);
  }

  async client(key: Key): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const isOver = await this.request(key, (5 + this.random(60)) * STEP_MS);
      // Some clients repeat a request that succeeded.
      if (isOver && this.random(3) > 0) return;
      await this.clock.sleep(this.random(15) * STEP_MS);
    }
  }
}

/** Runs the given number of keys and checks their results. */
export async function runHistories(
  url: string,
  wanted: { readonly keys: number; readonly seed: number },
): Promise<HistoryReport> {
  const store = await openTestStore(url);
  assert.ok(isShared(store));
  await store.migrate([
    ...STORE_MIGRATIONS,
    ...LEDGER_MIGRATIONS,
    ...LIMITS_MIGRATIONS,
    ...IDEMPOTENCY_MIGRATIONS,
  ]);
  const world = new World(store, wanted.seed);
  const startedMs = world.clock.nowMs();
  try {
    await credit(world);
    for (let at = 0; at < PROCESSES; at += 1) await world.startNow(at);
    const open = new Set<Promise<void>>();
    while (world.keys.length < wanted.keys || open.size > 0) {
      while (open.size < CLIENTS && world.keys.length < wanted.keys) {
        const client = world.client(world.newKey()).finally(() => open.delete(client));
        open.add(client);
      }
      world.befall();
      await world.step();
    }
    for (let at = 0; at < PROCESSES; at += 1) world.mend(at);
    // Completes everything that is open: leases expire, journals are written.
    for (let second = 0; second < 200; second += 1) await world.step();
    await Promise.all(world.restarting);
    const charged = await checkKeys(world);
    await checkRetries(world);
    assert.deepEqual((await world.processes[0]?.ledger.audit())?.differences, []);
    const { faults, runs, replays, lost, lostInJournal, fromJournal, unavailable, keys } = world;
    return {
      keys: keys.length,
      seconds: (world.clock.nowMs() - startedMs) / 1_000,
      runs,
      responses: keys.filter(({ responses }) => responses.size > 0).length,
      replays,
      charged,
      lost,
      lostInJournal,
      fromJournal,
      unavailable,
      faults,
    };
  } finally {
    for (const { ledger, way } of world.processes) {
      way.kill();
      await ledger.stop();
    }
    await store.close();
    rmSync(world.folder, { recursive: true, force: true });
  }
}

async function credit({ store, clock, ids, log }: World): Promise<void> {
  const ledger = new Ledger({ store, clock, ids, log });
  const amountNano = usdToNano('1000');
  const from = 'house:operator-credit';
  for (const { accountId } of ACCOUNTS) {
    await store.transaction(async (tx) => {
      await ledger.creditIn(tx, { accountId, amountNano, from, kind: 'CREDIT', id: accountId });
    });
  }
}

interface Charge {
  readonly request_id: string;
  readonly usd_nano: bigint;
}

/** Checks one charge and one response per key; returns the number of charged keys. */
async function checkKeys({ store, keys }: World): Promise<number> {
  const charges = await store.query<Charge>(
    'SELECT request_id, usd_nano FROM ledger_usage WHERE usd_nano > 0',
  );
  const paid = new Map(charges.map((row) => [row.request_id, row.usd_nano]));
  let charged = 0;
  for (const { id, requestIds, responses } of keys) {
    const own = [...requestIds].filter((one) => paid.has(one));
    assert.ok(own.length <= 1, `${id} was charged ${own.length} times`);
    assert.ok(responses.size <= 1, `${id} has ${responses.size} responses`);
    charged += own.length;
    // A complete response has the charged amount.
    for (const response of responses) {
      assert.deepEqual([own[0], paid.get(response)], [response, BigInt(COST)], id);
    }
  }
  assert.equal(charged, charges.length);
  return charged;
}

/** A retry of each key on processes without faults gets the same response and no charge. */
async function checkRetries(world: World): Promise<void> {
  const before = new Map(world.keys.map(({ id, responses }) => [id, responses.size]));
  const spent = new Set(
    (
      await world.store.query<{ entry_key: string }>(
        "SELECT entry_key FROM idempotency_entry WHERE state <> 'running'",
      )
    ).map((row) => row.entry_key),
  );
  const runs = world.runs;
  const old = world.keys.filter(({ id }) => spent.has(id));
  for (let from = 0; from < old.length; from += CLIENTS) {
    const some = old.slice(from, from + CLIENTS).map((key) => world.request(key, 600_000));
    const all = Promise.all(some);
    let isOver = false;
    void all.finally(() => (isOver = true));
    while (!isOver) await world.settled();
    assert.ok((await all).every(Boolean), 'each spent key has its response, or says why not');
  }
  assert.equal(world.runs, runs, 'no retry of a spent key runs');
  for (const { id, responses } of world.keys) {
    if ((before.get(id) ?? 0) > 0) assert.ok(spent.has(id), `${id} was answered and is not spent`);
    assert.ok(responses.size <= 1, `${id} has ${responses.size} responses`);
  }
  await checkKeys(world);
}
