/**
 * The tags of requests that cost nothing: each value of a tag makes a row of the sums of its day, which
 * nobody pays for here, so an account has so many of them a day. What comes above that counts as one
 * value, in the sums and on the receipt, and no sum changes by it.
 *
 * A process counts by itself and from its start: several have the bound each.
 */
import { dayOf } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import type { RequestMetadata, SettleRequest, UsageRecord } from './ledger/ledger.ts';

/** The value of a tag that is not told from others; also the name, where that is one too many. */
export const OTHER_VALUES = '(other)';
/** Rows of an account and day: values of a tag, by key and model. */
export const MAX_ROWS = 1_000;
/** Names of tags of an account and day. */
const MAX_NAMES = 64;
/** Rows that are known of all accounts; above it those that came first are forgotten. */
const MAX_KNOWN = 100_000;
const ID_HEX = 16;

/** What was seen of an account. */
interface Seen {
  readonly names: Set<string>;
  /** Digests of key, model, name and value. */
  readonly rows: Set<string>;
}

export class FreeTags {
  #day = 0;
  #known = 0;
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
    if (rows.size >= MAX_ROWS || (names.size >= MAX_NAMES && !names.has(name))) return false;
    names.add(name);
    rows.add(row);
    this.#known += 1;
    return true;
  }

  #seen(accountId: string, day: number): Seen {
    if (day !== this.#day) {
      this.#day = day;
      this.#known = 0;
      this.#accounts.clear();
    }
    for (const [id, { rows }] of this.#accounts) {
      if (this.#known < MAX_KNOWN) break;
      this.#accounts.delete(id);
      this.#known -= rows.size;
    }
    let seen = this.#accounts.get(accountId);
    if (seen === undefined) {
      seen = { names: new Set(), rows: new Set() };
      this.#accounts.set(accountId, seen);
    }
    return seen;
  }
}
