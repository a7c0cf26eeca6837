/**
 * Limits the disk space of request tags. Each value of a tag makes a row in the sums of its day, by
 * key and model, and all tags of a request are stored on its receipt. An account may add some rows
 * per day for free, and more in proportion to its charges; tags larger than a receipt count as
 * rows. Values above the limit are merged into one, in the sums and on the receipt; no total
 * changes.
 *
 * Counts are per process and start with it, so several processes have these limits each.
 */
import { dayOf } from '../core/clock.ts';
import { sha256Hex } from '../core/ids.ts';
import type { RequestMetadata, SettleRequest, UsageRecord } from './ledger/ledger.ts';
import { DailyRows } from '../core/daily-rows.ts';

/** The value that replaces merged ones; also replaces the tag name if there are too many names. */
export const OTHER_VALUES = '(other)';
/** Free rows per account and day: values of a tag, by key and model. */
export const MAX_ROWS = 1_000;
/** The same once half of the free rows of all accounts are used. */
export const FEW_ROWS = 16;
export const MAX_ALL_ROWS = 100_000;
/** Price of each further row in nano-USD: 0.97 GB per USD. */
export const ROW_NANO = 3_000;
/**
 * Bytes of the largest row on PostgreSQL with its index (2,130 measured), and of its copy in the sums of
 * reports (690).
 */
export const ROW_BYTES = 2_900;
/** Tags on a receipt up to this many bytes are free: the receipt and its posting are larger. */
const SMALL_TAGS_BYTES = 256;
/** Rows of merged values per account and day, and of all accounts, by name, key and model. */
export const MAX_OTHER_ROWS = 200;
const MAX_ALL_OTHER_ROWS = 20_000;
/** Maximum number of rows and accounts remembered; a dropped row counts again when it returns. */
const MAX_REMEMBERED = 200_000;
const MAX_ACCOUNTS = 50_000;
const ID_HEX = 16;

const NOT_TOLD_APART: RequestMetadata = { [OTHER_VALUES]: OTHER_VALUES };

interface Seen {
  readonly accountId: string;
  readonly rows: Set<string>;
  /** Charges in nano-USD that no row has used yet. */
  chargedNano: number;
}

export class TagBounds {
  #day = 0;
  #remembered = 0;
  readonly #accounts = new Map<string, Seen>();
  readonly #freeRows = new DailyRows({ ofAccount: MAX_ROWS, few: FEW_ROWS, ofAll: MAX_ALL_ROWS });
  readonly #otherRows = new DailyRows({
    ofAccount: MAX_OTHER_ROWS,
    few: FEW_ROWS,
    ofAll: MAX_ALL_OTHER_ROWS,
  });

  recorded(request: SettleRequest, nowMs: number): SettleRequest {
    const { costNano, usage } = request;
    if (usage.metadata === undefined) return request;
    const metadata = this.bounded(usage, usage.metadata, costNano, nowMs);
    return { ...request, usage: { ...usage, metadata } };
  }

  bounded(
    { accountId, keyId, modelId }: Pick<UsageRecord, 'accountId' | 'keyId' | 'modelId'>,
    tags: RequestMetadata,
    costNano: bigint,
    nowMs: number,
  ): RequestMetadata {
    const seen = this.#seen(accountId, dayOf(nowMs));
    seen.chargedNano += Number(costNano);
    const bytes = sizeOf(tags);
    const isLarge = bytes > SMALL_TAGS_BYTES;
    if (isLarge && !this.#take(seen, Math.ceil(bytes / ROW_BYTES))) return NOT_TOLD_APART;
    const rowOf = (name: string, value: string): string =>
      sha256Hex(JSON.stringify([keyId, modelId, name, value])).slice(0, ID_HEX);
    const takeOther = (): boolean => this.#otherRows.take(accountId, this.#day);
    return Object.fromEntries(
      Object.entries(tags).map(([name, value]) => {
        if (this.#admits(seen, rowOf(name, value), () => this.#take(seen, 1))) return [name, value];
        const isNamed = this.#admits(seen, rowOf(name, OTHER_VALUES), takeOther);
        return [isNamed ? name : OTHER_VALUES, OTHER_VALUES];
      }),
    );
  }

  #admits({ rows }: Seen, row: string, take: () => boolean): boolean {
    if (rows.has(row)) return true;
    if (!take()) return false;
    if (this.#remembered < MAX_REMEMBERED) {
      rows.add(row);
      this.#remembered += 1;
    }
    return true;
  }

  #take(seen: Seen, rows: number): boolean {
    if (seen.chargedNano >= rows * ROW_NANO) {
      seen.chargedNano -= rows * ROW_NANO;
      return true;
    }
    for (let taken = 0; taken < rows; taken += 1) {
      if (!this.#freeRows.take(seen.accountId, this.#day)) return false;
    }
    return true;
  }

  #seen(accountId: string, day: number): Seen {
    if (day > this.#day) {
      this.#day = day;
      this.#remembered = 0;
      this.#accounts.clear();
    }
    // After the clock was set back by days, the count of the later day continues today only.
    if (day < this.#day - 1) this.#day = day;
    const known = this.#accounts.get(accountId);
    if (known !== undefined) return known;
    const seen = { accountId, rows: new Set<string>(), chargedNano: 0 };
    if (this.#accounts.size < MAX_ACCOUNTS) this.#accounts.set(accountId, seen);
    return seen;
  }
}

function sizeOf(tags: RequestMetadata): number {
  let bytes = 0;
  for (const [name, value] of Object.entries(tags)) {
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
  }
  return bytes;
}
