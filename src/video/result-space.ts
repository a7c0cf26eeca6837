/**
 * Reserves disk space for results. Each job reserves `RESULT_BYTES` from its admission on. A larger
 * video uses free space while it is written, and is rejected if there is not enough.
 */
import { VIDEO_RESULT_MB } from '../config/config.ts';
import type { JobTable } from './job-table.ts';

const MB = 1_000_000;
export const RESULT_BYTES = VIDEO_RESULT_MB * MB;
/**
 * Share of the free space for all videos that are being written. The rest is for concurrent
 * requests, and for two uncounted kinds of videos: one between its last byte and its database row,
 * and those of other processes on the same folder. Two processes may each use their share; more can
 * exceed the limit until rows contain the sizes. Only engines can cause that, not callers.
 */
const SHARE = 0.5;

interface Written {
  readonly accountId: string;
  /** Bytes beyond the reserved ones. */
  beyondBytes: number;
}

export class ResultSpace {
  readonly #table: Pick<JobTable, 'storedBytes'>;
  readonly #maxStoredBytes: number;
  readonly #written = new Set<Written>();

  constructor(table: Pick<JobTable, 'storedBytes'>, maxStoredBytes: number) {
    this.#table = table;
    this.#maxStoredBytes = maxStoredBytes;
  }

  async storedBytes(accountId: string): Promise<{ callerBytes: number; allBytes: number }> {
    const stored = await this.#table.storedBytes(accountId, RESULT_BYTES);
    for (const written of this.#written) {
      stored.allBytes += written.beyondBytes;
      if (written.accountId === accountId) stored.callerBytes += written.beyondBytes;
    }
    return stored;
  }

  /** Runs `work`, which calls `fits` with the total size after each written piece. */
  async within<T>(
    accountId: string,
    work: (fits: (sizeBytes: number) => boolean) => Promise<T>,
  ): Promise<T> {
    const { allBytes } = await this.#table.storedBytes(accountId, RESULT_BYTES);
    const mostBytes = SHARE * (this.#maxStoredBytes - allBytes);
    const own: Written = { accountId, beyondBytes: 0 };
    this.#written.add(own);
    try {
      return await work((sizeBytes) => {
        if (sizeBytes <= RESULT_BYTES) return true;
        own.beyondBytes = sizeBytes - RESULT_BYTES;
        let beyondBytes = 0;
        for (const one of this.#written) beyondBytes += one.beyondBytes;
        return beyondBytes <= mostBytes;
      });
    } finally {
      this.#written.delete(own);
    }
  }
}
