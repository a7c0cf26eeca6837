/**
 * The room for results on the disk. Each job has `RESULT_BYTES` set aside from when it is admitted; a film
 * that is larger takes more of what is free while it is written, and is not taken where there is none.
 */
import { VIDEO_RESULT_MB } from '../config/config.ts';
import type { JobTable } from './job-table.ts';

const MB = 1_000_000;
export const RESULT_BYTES = VIDEO_RESULT_MB * MB;
/**
 * Of what is free, for all films together that are written: the rest is for requests meanwhile, and for
 * what is not counted. That is a film between its last byte and its row, which counts as what is set
 * aside: less than this share, so that it and the next films fit. And films of other processes: of two
 * on one folder each may give its share; more of them can pass the bound by so many shares, until rows
 * say what the films hold, and that is what an engine writes, never what a caller asks for.
 */
const SHARE = 0.5;

interface Written {
  readonly accountId: string;
  /** What it has beyond what is set aside for it. */
  beyondBytes: number;
}

export class ResultRoom {
  readonly #table: Pick<JobTable, 'storedBytes'>;
  readonly #maxStoredBytes: number;
  readonly #written = new Set<Written>();

  constructor(table: Pick<JobTable, 'storedBytes'>, maxStoredBytes: number) {
    this.#table = table;
    this.#maxStoredBytes = maxStoredBytes;
  }

  async storedBytes(accountId: string): Promise<{ callerBytes: number; allBytes: number }> {
    const stored = await this.#table.storedBytes(accountId, RESULT_BYTES);
    for (const { accountId: holder, beyondBytes } of this.#written) {
      stored.allBytes += beyondBytes;
      if (holder === accountId) stored.callerBytes += beyondBytes;
    }
    return stored;
  }

  /** Runs `work`, which asks with each piece that it writes whether a result of that size has room. */
  async within<T>(
    accountId: string,
    work: (hasRoom: (sizeBytes: number) => boolean) => Promise<T>,
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
