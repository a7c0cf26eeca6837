/**
 * How much disk foreign media may take: what is being fetched, what jobs were given and what came
 * out of them, of one caller and of all. Bytes are counted before they are written, so that a full
 * disk is a refusal and not an accident.
 *
 * Each process counts what it fetches; what jobs hold is asked of the database, for all of them.
 */
import { Fault } from '../core/faults.ts';

export interface MediaBudgetParts {
  readonly maxBytes: number;
  readonly maxCallerBytes: number;
  /** What jobs hold. */
  readonly stored: (holder: string) => Promise<{ callerBytes: number; allBytes: number }>;
}

const RETRY_AFTER_SECONDS = 60;

export class MediaBudget {
  readonly #parts: MediaBudgetParts;
  readonly #fetching = new Map<string, number>();
  #allFetching = 0;

  constructor(parts: MediaBudgetParts) {
    this.#parts = parts;
  }

  /** Counts `bytes` of an account or address; give them back with `free`. Faults: 429, 503. */
  async take(holder: string, bytes: number): Promise<void> {
    this.#count(holder, bytes);
    try {
      const { maxBytes, maxCallerBytes, stored } = this.#parts;
      const { callerBytes, allBytes } = await stored(holder);
      // Others may have taken theirs meanwhile: all that was counted is looked at.
      if (callerBytes + (this.#fetching.get(holder) ?? 0) > maxCallerBytes)
        throw tooMuch(maxCallerBytes);
      if (allBytes + this.#allFetching > maxBytes) throw full();
    } catch (error) {
      this.free(holder, bytes);
      throw error;
    }
  }

  free(holder: string, bytes: number): void {
    this.#count(holder, -bytes);
  }

  #count(holder: string, bytes: number): void {
    this.#allFetching += bytes;
    const held = (this.#fetching.get(holder) ?? 0) + bytes;
    if (held === 0) this.#fetching.delete(holder);
    else this.#fetching.set(holder, held);
  }
}

function tooMuch(maxBytes: number): Fault {
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: `Your media takes more than ${Math.floor(maxBytes / 1_000_000)} MB on this server: wait for running requests, and complete videos that you have`,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

function full(): Fault {
  return new Fault('SERVICE_UNAVAILABLE', {
    message: 'The server has no room for more media now',
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
