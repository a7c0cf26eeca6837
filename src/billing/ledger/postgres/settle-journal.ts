/**
 * Settles that could not be written because the database was unreachable: one JSON line each in a
 * local file, flushed before the response ends, and written to the database once it is reachable.
 * Replaying twice is harmless, since a settle takes effect once. A full journal rejects entries.
 *
 * Every process locks a file of its own. Any other process that shares the folder reads and empties
 * the file of an ended process. The operating system holds the lock, so a process that gets it
 * knows that the former owner has ended; a second file names that owner.
 */
import { type FileHandle, mkdir, open, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nano } from '../../../core/money.ts';
import { type ServerLock, lockFile } from '../../../db/db.ts';
import type { KeyFence } from '../../idempotency/idempotency.ts';
import type { SupplierCost, UsageRecord } from '../records.ts';
import type { RowSettle } from '../settle.ts';

/** About an hour of a busy process. */
const MAX_ENTRIES = 1_000_000;
const MAX_FILES = 1_024;
const FILE_NAME = /^settles-(\d{1,4})\.journal$/;

export interface JournaledSettle extends RowSettle {
  /** The idempotency key that it spends; charged only if its request still has the key. */
  readonly key?: KeyFence | undefined;
}

type Settle = (entry: JournaledSettle) => Promise<unknown>;

/** The result of a replay; `failed` holds the reasons for settles that stay in the journal. */
export interface Replayed {
  readonly done: number;
  readonly failed: readonly unknown[];
}

export class SettleJournal {
  readonly #folder: string;
  readonly #processId: string;
  /** Ids of processes on this machine that have certainly ended: their files were not locked. */
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

  get size(): number {
    return this.#waiting.size;
  }

  /** Takes the first unlocked file, and reads what an ended process left in it. */
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
    await this.#recordEnded(this.#number);
    const boot = await bootId();
    if (boot === undefined) return;
    await writeFile(this.#ownerPath(this.#number), `${boot} ${this.#processId}`);
  }

  /**
   * Resolves when the settle is on the local disk. Rejects if the journal or the disk is full; the
   * settle then takes no effect later.
   */
  async add(entry: JournaledSettle): Promise<void> {
    if (this.#file === undefined) throw new Error('The settle journal is not open');
    if (this.#waiting.size >= MAX_ENTRIES) throw new Error('The settle journal is full');
    const { requestId } = entry.request.usage;
    this.#waiting.set(requestId, entry);
    const file = this.#file;
    try {
      await this.#inTurn(() => append(file, `${lineOf(entry)}\n`));
      await this.#flushed();
    } catch (error) {
      this.#waiting.delete(requestId);
      await this.#inTurn(() => this.#emptyIfDone());
      throw error;
    }
  }

  async replay(settle: Settle): Promise<Replayed> {
    const entries = [...this.#waiting];
    const outcomes = await Promise.allSettled(entries.map(([, entry]) => settle(entry)));
    const failed: unknown[] = [];
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.status === 'rejected') failed.push(outcome.reason);
      else this.#waiting.delete(entries[index]?.[0] ?? '');
    }
    await this.#inTurn(() => this.#emptyIfDone());
    return { done: entries.length - failed.length, failed };
  }

  /** Entries added meanwhile stay in the file; the next replay empties it. */
  async #emptyIfDone(): Promise<void> {
    if (this.#waiting.size === 0) await this.#file?.truncate(0);
  }

  async adopt(settle: Settle): Promise<number> {
    let adopted = 0;
    for (const name of await readdir(this.#folder)) {
      const number = Number(FILE_NAME.exec(name)?.[1] ?? '0');
      if (number === 0 || number === this.#number) continue;
      const lock = lockFile(this.#lockPath(number));
      if (lock === undefined) continue;
      try {
        adopted += await settleFile(join(this.#folder, name), settle);
        await this.#recordEnded(number);
      } finally {
        lock.release();
      }
    }
    return adopted;
  }

  /** With `isReleased`, the process has released its leases itself, and is not recorded as ended. */
  async close(isReleased = true): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
    if (this.#lock !== undefined && isReleased)
      await rm(this.#ownerPath(this.#number), { force: true });
    this.#lock?.release();
    this.#lock = undefined;
  }

  /** Records the process that left this file; ignores one from before the last boot. */
  async #recordEnded(number: number): Promise<void> {
    const path = this.#ownerPath(number);
    const owner = await readFile(path, 'utf8').catch(() => ''); // none after an orderly stop
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

  /** Serializes changes of the file, so that truncation never removes a new line. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const turn = this.#changed.then(change);
    this.#changed = turn.catch(() => undefined); // reported to its own caller
    return turn;
  }

  /** Runs one flush at a time; a flush covers everything appended before it began. */
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

async function append(file: FileHandle, line: string): Promise<void> {
  const { size } = await file.stat();
  try {
    await file.appendFile(line);
  } catch (error) {
    // A part of a line would make the next one unreadable.
    await file.truncate(size);
    throw error;
  }
}

/** Returns the Linux boot id, since process ids of another machine mean nothing here. */
async function bootId(): Promise<string | undefined> {
  const id = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => undefined); // other systems
  return id?.trim();
}

/** Empties the file only after all of it is in the database. */
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

function lineOf({ request, capIds, lease, key }: JournaledSettle): string {
  const fence = key && { caller: key.caller, key: key.key, token: key.token };
  const from = lease && { ...lease, leaseId: lease.id };
  return JSON.stringify({ ...request, budgetIds: capIds, from, fence }, bigintsAsText);
}

interface Line {
  readonly costNano: string;
  readonly usage: Omit<UsageRecord, 'supplier'> & {
    readonly supplier?: Omit<SupplierCost, 'nano'> & { readonly nano: string };
  };
  /** Ids of all caps. */
  readonly budgetIds?: readonly string[];
  readonly fence?: KeyFence;
  /** The lease of the hold. */
  readonly from?: {
    readonly leaseId: string;
    /** Version 1.0.0 writes `true` with the id of a hold in a row of its own. */
    readonly isLast?: boolean;
    readonly usdNano: string;
    readonly dailyNano: string;
    readonly reservedNano: string;
  };
}

/** Returns `undefined` for a line that a crash cut short: its caller received no response. */
function parseLine(line: string): JournaledSettle | undefined {
  if (line === '') return undefined;
  try {
    const parsed = JSON.parse(line) as Line; // written by this file
    const { costNano, budgetIds: capIds, from, fence: key } = parsed;
    const { supplier, ...rest } = parsed.usage;
    const usage: UsageRecord =
      supplier === undefined
        ? rest
        : { ...rest, supplier: { ...supplier, nano: nano(BigInt(supplier.nano)) } };
    const request = { usage, costNano: nano(BigInt(costNano)) };
    const lease =
      from === undefined || from.isLast === true
        ? undefined
        : {
            id: from.leaseId,
            usdNano: BigInt(from.usdNano),
            dailyNano: BigInt(from.dailyNano),
            reservedNano: BigInt(from.reservedNano),
          };
    return { request, capIds, lease, key };
  } catch {
    // The incomplete last line of a killed process.
    return undefined;
  }
}
