/**
 * The tags of requests that cost nothing: each value of a tag makes a row of the sums of its day, which
 * nobody pays for here, so an account has so many of them a day, and all of them together have. What comes
 * above that counts as one value, in the sums and on the receipt, and no sum changes by it.
 *
 * Accounts cost nothing either: when half of what all have is taken, an account gets few, so that the rest
 * is for many of them, and nothing that was counted is forgotten before the day ends.
 *
 * A process counts by itself and from its start: several have the bounds each.
 */
import { dayOf } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import type { RequestMetadata, SettleRequest, UsageRecord } from './ledger/ledger.ts';

/** The value of a tag that is not told from others; also the name, where that is one too many. */
export const OTHER_VALUES = '(other)';
/** Rows of an account and day: values of a tag, by key and model. */
export const MAX_ROWS = 1_000;
/** Of an account that comes when half of those of all are taken. */
export const FEW_ROWS = 16;
/** Names of tags of an account and day. */
const MAX_NAMES = 64;
/** Rows of all accounts on a day. */
export const MAX_ALL_ROWS = 100_000;
const ID_HEX = 16;

/** What was seen of an account. */
interface Seen {
  readonly names: Set<string>;
  /** Digests of key, model, name and value. */
  readonly rows: Set<string>;
}

export class FreeTags {
  #day = 0;
  #rows = 0;
  readonly #accounts = new Map<string, Seen>();

  /** A settle as it is recorded: one that costs something stays as it is. */
  recorded(request: SettleRequest, nowMs: number): SettleRequest {
    const { costNano, usage } = request;
    if (costNano > 0n || usage.metadata === undefined) return request;
    const metadata = this.bounded(usage, usage.metadata, nowMs);
    return { ...request, usage: { ...usage, metadata } };
  }

  /** The tags that a request which costs nothing is recorded with. */
  bounded(
    { accountId, keyId, modelId }: Pick<UsageRecord, 'accountId' | 'keyId' | 'modelId'>,
    tags: RequestMetadata,
    nowMs: number,
  ): RequestMetadata {
    const seen = this.#seen(accountId, dayOf(nowMs));
    return Object.fromEntries(
      Object.entries(tags).map(([name, value]) => {
        const row = sha256Hex(JSON.stringify([keyId, modelId, name, value])).slice(0, ID_HEX);
        if (this.#admits(seen, name, row)) return [name, value];
        return [seen.names.has(name) ? name : OTHER_VALUES, OTHER_VALUES];
      }),
    );
  }

  #admits({ names, rows }: Seen, name: string, row: string): boolean {
    if (rows.has(row)) return true;
    const most = this.#rows < MAX_ALL_ROWS / 2 ? MAX_ROWS : FEW_ROWS;
    if (rows.size >= most || this.#rows >= MAX_ALL_ROWS) return false;
    if (names.size >= MAX_NAMES && !names.has(name)) return false;
    names.add(name);
    rows.add(row);
    this.#rows += 1;
    return true;
  }

  #seen(accountId: string, day: number): Seen {
    if (day !== this.#day) {
      this.#day = day;
      this.#rows = 0;
      this.#accounts.clear();
    }
    const known = this.#accounts.get(accountId);
    if (known !== undefined) return known;
    const seen = { names: new Set<string>(), rows: new Set<string>() };
    // One that gets no row needs no place.
    if (this.#rows < MAX_ALL_ROWS) this.#accounts.set(accountId, seen);
    return seen;
  }
}
