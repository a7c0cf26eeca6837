/**
 * Settles that could not be written because the database was away: one JSON line each in a local
 * file, flushed before the caller hears of it, and written to the database when it is back.
 * Replaying twice is harmless, since a settle happens once. Bounded; a full journal refuses.
 *
 * Every process has a file of its own, which it holds by a lock; the file of an ended process is
 * read and emptied by any other process that shares the folder. The lock is the operating system's, so
 * whoever gets it knows for sure that the process which had it has ended, and beside the file stands
 * which one that was.
 */
import { type FileHandle, mkdir, open, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nano } from '../../../core/money.ts';
import { type ServerLock, lockFile } from '../../../db/db.ts';
import type { KeyFence } from '../../idempotency/idempotency.ts';
import type { SettleRequest } from '../records.ts';
import type { RowSettle } from '../settle.ts';

/** About an hour of a busy process. */
const MAX_ENTRIES = 1_000_000;
/** Processes on one data folder, at most. */
const MAX_FILES = 1_024;
const FILE_NAME = /^settles-(\d{1,4})\.journal$/;

/** A settle that waits for the database. */
export interface JournaledSettle extends RowSettle {
  /** The idempotency key that it spends: it is charged only if its request still has the key. */
  readonly key?: KeyFence | undefined;
}

type Settle = (entry: JournaledSettle) => Promise<unknown>;

/** What a replay did; `failed` holds the reasons of settles that stay in the journal. */
export interface Replayed {
  readonly done: number;
  readonly failed: readonly unknown[];
}

export class SettleJournal {
  readonly #folder: string;
  readonly #processId: string;
  /** Processes of this machine whose files it has found without a lock: they have ended for sure. */
  readonly ended: string[] = [];
  #number = 0;
  #lock: ServerLock | undefined;
  #file: FileHandle | undefined;
  readonly #waiting = new Map<string, JournaledSettle>();
  #changed: Promise<void> = Promise.resolve();
  #flush: Promise<void> | undefined;
  #dirty = false;

  constructor(folder: string, processId: string) {
    this.#folder = folder;
    this.#processId = processId;
  }

  /** Settles that are not in the database yet. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Takes the first file that no living process has, and reads what an ended one left in it. */
  async open(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    for (let number = 1; number <= MAX_FILES && this.#lock === undefined; number += 1) {
      this.#lock = lockFile(this.#lockPath(number));
      this.#number = number;
    }
    if (this.#lock === undefined) throw new Error(`All journals in ${this.#folder} are in use`);
    const path = join(this.#folder, `settles-${this.#number}.journal`);
    this.#file = await open(path, 'a+');
    for (const entry of await readEntries(path)) {
      this.#waiting.set(entry.request.usage.requestId, entry);
    }
    await this.#noteEnded(this.#number);
    const boot = await bootId();
    if (boot === undefined) return;
    await writeFile(this.#ownerPath(this.#number), `${boot} ${this.#processId}`);
  }

  /** Resolves when the settle is on the local disk. Rejects when the journal is full. */
  async add(entry: JournaledSettle): Promise<void> {
    if (this.#file === undefined) throw new Error('The settle journal is not open');
    if (this.#waiting.size >= MAX_ENTRIES) throw new Error('The settle journal is full');
    this.#waiting.set(entry.request.usage.requestId, entry);
    const file = this.#file;
    await this.#inTurn(() => file.appendFile(`${lineOf(entry)}\n`));
    await this.#flushed();
  }

  /** Hands the waiting settles to `settle` and forgets what was written. */
  async replay(settle: Settle): Promise<Replayed> {
    const entries = [...this.#waiting];
    const outcomes = await Promise.allSettled(entries.map(([, entry]) => settle(entry)));
    const failed: unknown[] = [];
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.status === 'rejected') failed.push(outcome.reason);
      else this.#waiting.delete(entries[index]?.[0] ?? '');
    }
    await this.#inTurn(async () => {
      // What came meanwhile stays in the file; the next replay empties it.
      if (this.#waiting.size === 0) await this.#file?.truncate(0);
    });
    return { done: entries.length - failed.length, failed };
  }

  /** Settles what ended processes left in their files; returns how many settles there were. */
  async adopt(settle: Settle): Promise<number> {
    let adopted = 0;
    for (const name of await readdir(this.#folder)) {
      const number = Number(FILE_NAME.exec(name)?.[1] ?? '0');
      if (number === 0 || number === this.#number) continue;
      const lock = lockFile(this.#lockPath(number));
      if (lock === undefined) continue;
      try {
        adopted += await settleFile(join(this.#folder, name), settle);
        await this.#noteEnded(number);
      } finally {
        lock.release();
      }
    }
    return adopted;
  }

  async close(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
    // Who ends in order gives back what it has by itself.
    if (this.#lock !== undefined) await rm(this.#ownerPath(this.#number), { force: true });
    this.#lock?.release();
    this.#lock = undefined;
  }

  /** The process that left this file, under its lock. One of before a start of the machine is not told. */
  async #noteEnded(number: number): Promise<void> {
    const path = this.#ownerPath(number);
    const owner = await readFile(path, 'utf8').catch(() => ''); // there was none, or it ended in order
    const [boot, processId = ''] = owner.split(' ');
    if (processId !== '' && boot === (await bootId())) this.ended.push(processId);
    await rm(path, { force: true });
  }

  #ownerPath(number: number): string {
    return join(this.#folder, `settles-${number}.process`);
  }

  #lockPath(number: number): string {
    return join(this.#folder, `settles-${number}.lock`);
  }

  /** One change of the file after the other: what is emptied holds no line that has just come. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const turn = this.#changed.then(change);
    this.#changed = turn.catch(() => undefined); // its own caller hears of it
    return turn;
  }

  /** One flush at a time; what was appended before it began is covered by it. */
  async #flushed(): Promise<void> {
    this.#dirty = true;
    while (this.#dirty) {
      this.#flush ??= this.#runFlush();
      await this.#flush;
    }
  }

  async #runFlush(): Promise<void> {
    this.#dirty = false;
    try {
      await this.#file?.datasync();
    } finally {
      this.#flush = undefined;
    }
  }
}

/**
 * Of this start of this machine, on Linux: a folder that was copied to another machine says nothing of
 * processes there.
 */
async function bootId(): Promise<string | undefined> {
  const id = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => undefined); // elsewhere
  return id?.trim();
}

/** Empties the file only when all of it is in the database. */
async function settleFile(path: string, settle: Settle): Promise<number> {
  const entries = await readEntries(path);
  if (entries.length === 0) return 0;
  await Promise.all(entries.map((entry) => settle(entry)));
  const file = await open(path, 'r+');
  try {
    await file.truncate(0);
    await file.datasync();
  } finally {
    await file.close();
  }
  return entries.length;
}

async function readEntries(path: string): Promise<JournaledSettle[]> {
  const text = await readFile(path, 'utf8');
  return text.split('\n').flatMap((line) => parseLine(line) ?? []);
}

function bigintsAsText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}

/** Earlier versions read these lines too: to them, all caps are budgets. */
function lineOf({ request: { capIds, ...request }, lease, key }: JournaledSettle): string {
  const fence = key && { caller: key.caller, key: key.key, token: key.token };
  const from = {
    leaseId: lease?.id ?? request.usage.requestId,
    isLast: lease === undefined,
    usdNano: lease?.usdNano ?? request.costNano,
    dailyNano: lease?.dailyNano ?? 0n,
    reservedNano: lease?.reservedNano ?? request.costNano,
    budgetIds: capIds,
  };
  return JSON.stringify({ ...request, budgetIds: capIds, from, fence }, bigintsAsText);
}

interface Line extends Omit<SettleRequest, 'costNano' | 'capIds'> {
  readonly costNano: string;
  /** Of earlier versions. */
  readonly allowanceId?: string;
  readonly budgetIds?: readonly string[];
  readonly fence?: KeyFence;
  /** Missing in lines of earlier versions. */
  readonly from?: {
    readonly leaseId: string;
    readonly isLast: boolean;
    readonly usdNano: string;
    readonly dailyNano: string;
    readonly reservedNano: string;
  };
}

/** A line that a crash cut short is not a settle: its caller received nothing. */
function parseLine(line: string): JournaledSettle | undefined {
  if (line === '') return undefined;
  try {
    const parsed = JSON.parse(line) as Line; // ours
    const { costNano, usage, allowanceId = usage.keyId, budgetIds, from, fence: key } = parsed;
    const capIds = [...new Set([allowanceId, ...(budgetIds ?? [])])];
    const request = { usage, costNano: nano(BigInt(costNano)), capIds };
    const lease =
      from === undefined || from.isLast
        ? undefined
        : {
            id: from.leaseId,
            usdNano: BigInt(from.usdNano),
            dailyNano: BigInt(from.dailyNano),
            reservedNano: BigInt(from.reservedNano),
          };
    return { request, lease, key };
  } catch {
    // The torn last line of a killed process.
    return undefined;
  }
}
