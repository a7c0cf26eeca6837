/**
 * Settles that could not be written because the database was away: one JSON line each in a local
 * file, flushed before the caller hears of it, and written to the database when it is back.
 * Replaying twice is harmless, since a settle happens once. Bounded; a full journal refuses.
 */
import { type FileHandle, mkdir, open, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Nano, nano } from '../kernel/money.ts';
import type { SettleRequest } from './records.ts';

/** About an hour of a busy process. */
const MAX_ENTRIES = 1_000_000;

export class SettleJournal {
  readonly #path: string;
  #file: FileHandle | undefined;
  #waiting: SettleRequest[] = [];
  #flush: Promise<void> | undefined;
  #dirty = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** Settles that are not in the database yet. */
  get size(): number {
    return this.#waiting.length;
  }

  /** Reads what an ended process left. */
  async open(): Promise<void> {
    await mkdir(dirname(this.#path), { recursive: true });
    this.#file = await open(this.#path, 'a+');
    const text = await readFile(this.#path, 'utf8');
    for (const line of text.split('\n')) {
      const request = parseLine(line);
      if (request !== undefined) this.#waiting.push(request);
    }
  }

  /** Resolves when the settle is on the local disk. Rejects when the journal is full. */
  async add(request: SettleRequest): Promise<void> {
    if (this.#file === undefined) throw new Error('The settle journal is not open');
    if (this.#waiting.length >= MAX_ENTRIES) throw new Error('The settle journal is full');
    this.#waiting.push(request);
    await this.#file.appendFile(`${JSON.stringify(request, bigintsAsText)}\n`);
    await this.#flushed();
  }

  /** Hands the waiting settles to `settle`, oldest first, and forgets what was written. */
  async replay(settle: (request: SettleRequest) => Promise<unknown>): Promise<number> {
    const replayed = [...this.#waiting];
    await Promise.all(replayed.map((request) => settle(request)));
    const done = new Set(replayed);
    this.#waiting = this.#waiting.filter((request) => !done.has(request));
    // What came meanwhile stays in the file; the next replay empties it.
    if (this.#waiting.length === 0) await this.#file?.truncate(0);
    return replayed.length;
  }

  async close(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
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

function bigintsAsText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}

/** A line that a crash cut short is not a settle: its caller heard nothing. */
function parseLine(line: string): SettleRequest | undefined {
  if (line === '') return undefined;
  try {
    const { costNano, usage } = JSON.parse(line) as { costNano: string } & Omit<
      SettleRequest,
      'costNano'
    >; // ours
    const cost: Nano = nano(BigInt(costNano));
    return { costNano: cost, usage };
  } catch {
    // The torn last line of a killed process.
    return undefined;
  }
}
