/**
 * Cost of a hold and its settle in a SQLite ledger, alone and concurrent, for one account and for
 * 64: CPU and elapsed time, with and without the flush. Before that the cost of the disk and the
 * machine alone.
 */
import { closeSync, fdatasync, fstat, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { LEDGER_MIGRATIONS, Ledger } from '../src/billing/ledger/ledger.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { type Nano, nano } from '../src/core/money.ts';
import { type Flush, SqliteStore, flushFile } from '../src/db/sqlite/sqlite-store.ts';
import { median, stopAll, temporaryFolder } from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '9');
const WINDOW_MS = 200;
/** Number of concurrent settles, and of their accounts. */
const CASES = [
  [1, 1],
  [8, 1],
  [32, 1],
  [32, 64],
] as const;
const ACCOUNTS = 64;
const PAGE_BYTES = 2_048;
/** Pages that a single settle writes. */
const PAGES = 9;
const FLUSHES = 200;

const clock = systemClock();
const ids = systemIds();
const noFlush: Flush = (_file, done) => void setImmediate(done, null);

/** Measures the machine: median in µs, with a pause before each, as between requests. */
async function timed(name: string, run: (done: () => void) => void): Promise<void> {
  const took: number[] = [];
  for (let at = 0; at < FLUSHES; at += 1) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    const begun = performance.now();
    await new Promise<void>(run);
    took.push((performance.now() - begun) * 1_000);
  }
  console.log(`${name.padEnd(44)}${median(took).toFixed(0).padStart(6)} µs`);
}

async function showFloor(): Promise<void> {
  const page = Buffer.alloc(PAGE_BYTES, 1);
  const file = openSync(join(temporaryFolder(), 'flushed'), 'w+');
  const writeAt = (from: number): void => {
    for (let at = 0; at < PAGES; at += 1)
      writeSync(file, page, 0, PAGE_BYTES, from + at * PAGE_BYTES);
  };
  let end = 0;
  await timed('one turn of the event loop', (done) => void setImmediate(done));
  await timed('to the thread pool and back', (done) => fstat(file, () => done()));
  await timed(`flush of ${PAGES} pages, in a file that grows`, (done) => {
    writeAt(end);
    end += PAGES * PAGE_BYTES;
    fdatasync(file, () => done());
  });
  await timed(`flush of ${PAGES} pages, written over`, (done) => {
    writeAt(0);
    fdatasync(file, () => done());
  });
  closeSync(file);
}

async function ledgerWith(flush: Flush): Promise<{ ledger: Ledger; store: SqliteStore }> {
  const path = join(temporaryFolder(), 'ledger.db');
  const store = new SqliteStore({ path, clock, log: silentLog, flush });
  await store.migrate(LEDGER_MIGRATIONS);
  const ledger = new Ledger({ store, clock, ids, log: silentLog });
  const credit = {
    amountNano: nano(10n ** 15n),
    from: 'house:operator-credit',
    kind: 'CREDIT',
  } as const;
  for (let at = 0; at < ACCOUNTS; at += 1) {
    const accountId = `acct_${at}`;
    await store.transaction((tx) =>
      ledger.creditIn(tx, { ...credit, accountId, id: `first-${at}` }),
    );
  }
  return { ledger, store };
}

const AMOUNTS = { minNano: nano(1_000n), maxNano: nano(100_000n), floorNano: nano(0n) };
const COST: Nano = nano(37_000n);
const TOKENS = { prompt: 500, completion: 60, cached: 0, cacheWrite: 0, reasoning: 0 };

async function sellOnce(ledger: Ledger, account: number): Promise<void> {
  const createdMs = clock.nowMs();
  const requestId = ids.ordered(createdMs);
  const accountId = `acct_${account}`;
  const placed = await ledger.holds.place({ ...AMOUNTS, requestId, accountId });
  if (!placed.ok) throw new Error('The account has too little');
  const usage = {
    requestId,
    createdMs,
    accountId,
    keyId: `key_${account}`,
    kind: 'chat',
    modelId: 'bench-model',
    replica: 'bench',
    attempts: 1,
    tokens: TOKENS,
    countedBy: 'engine',
    priceVersion: '0123456789abcdef',
    latencyMs: 3,
    status: 'completed',
  } as const;
  await ledger.holds.settle({ costNano: COST, usage }, placed.hold);
}

/** µs of CPU per settle, and µs until all concurrent ones are done. */
async function runWindow(ledger: Ledger, together: number, accounts: number) {
  const took: number[] = [];
  const until = performance.now() + WINDOW_MS;
  const before = process.cpuUsage();
  let settles = 0;
  while (performance.now() < until) {
    const begun = performance.now();
    const from = settles;
    await Promise.all(
      Array.from({ length: together }, (_, at) => sellOnce(ledger, (from + at) % accounts)),
    );
    took.push((performance.now() - begun) * 1_000);
    settles += together;
  }
  const { user, system } = process.cpuUsage(before);
  return { cpu: (user + system) / settles, took: median(took) };
}

async function showLedger(title: string, flush: Flush): Promise<void> {
  const { ledger, store } = await ledgerWith(flush);
  const figures = CASES.map(() => ({ cpu: [] as number[], took: [] as number[] }));
  for (let round = -1; round < ROUNDS; round += 1) {
    for (const [at, [together, accounts]] of CASES.entries()) {
      const window = await runWindow(ledger, together, accounts);
      // The first run compiles the code.
      if (round >= 0) figures[at]?.cpu.push(window.cpu);
      if (round >= 0) figures[at]?.took.push(window.took);
    }
  }
  console.log(`\n${title}\ntogether  accounts  CPU µs each  µs for all`);
  for (const [at, [together, accounts]] of CASES.entries()) {
    const { cpu = [], took = [] } = figures[at] ?? {};
    const cells = [
      String(together),
      String(accounts),
      median(cpu).toFixed(1),
      median(took).toFixed(0),
    ];
    console.log(cells.map((cell, place) => cell.padStart([8, 10, 13, 12][place] ?? 0)).join(''));
  }
  await store.close();
}

try {
  await showFloor();
  await showLedger('hold and settle, without the flush', noFlush);
  await showLedger('hold and settle, with the flush', flushFile);
} finally {
  await stopAll();
}
