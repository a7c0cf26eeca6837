/**
 * The room for results on the disk. Each job has `RESULT_BYTES` set aside from when it is admitted; a film
 * that is larger takes more of what is free while it is written, and is not taken where there is none.
 */
import type { JobTable } from './job-table.ts';

/** What is set aside for the result of a job; a film of half a minute is smaller. */
export const RESULT_BYTES = 200_000_000;
/** No film is larger, whatever room there is. */
const MAX_RESULT_BYTES = 2_000_000_000;
/** Of what is free, for one film: the rest is for the media of requests meanwhile. */
const SHARE = 0.5;

/** Room of one film that is written. */
interface Taken {
  readonly accountId: string;
  readonly beyondBytes: number;
}

export class ResultRoom {
  readonly #table: Pick<JobTable, 'storedBytes'>;
  readonly #maxStoredBytes: number;
  readonly #taken = new Set<Taken>();

  constructor(table: Pick<JobTable, 'storedBytes'>, maxStoredBytes: number) {
    this.#table = table;
    this.#maxStoredBytes = maxStoredBytes;
  }

  /** What jobs hold on disk, of one account and of all. */
  async storedBytes(accountId: string): Promise<{ callerBytes: number; allBytes: number }> {
    const stored = await this.#table.storedBytes(accountId, RESULT_BYTES);
    for (const { accountId: holder, beyondBytes } of this.#taken) {
      stored.allBytes += beyondBytes;
      if (holder === accountId) stored.callerBytes += beyondBytes;
    }
    return stored;
  }

  /** Runs `work` with the bytes that a result may have meanwhile. */
  async within<T>(accountId: string, work: (maxBytes: number) => Promise<T>): Promise<T> {
    const { allBytes } = await this.#table.storedBytes(accountId, RESULT_BYTES);
    // Nothing is waited for between what others have taken and what is taken now.
    let free = this.#maxStoredBytes - allBytes;
    for (const others of this.#taken) free -= others.beyondBytes;
    free = Math.floor(Math.max(0, free) * SHARE);
    const beyondBytes = Math.min(free, MAX_RESULT_BYTES - RESULT_BYTES);
    const taken = { accountId, beyondBytes };
    this.#taken.add(taken);
    try {
      return await work(RESULT_BYTES + beyondBytes);
    } finally {
      this.#taken.delete(taken);
    }
  }
}
