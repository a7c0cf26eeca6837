/**
 * Reads a page of rows in descending order of a text id. A page reads a bounded number of rows: rows
 * that a filter excludes are skipped in slices, and the page ends early after some slices.
 */

type IdRange = readonly [from: string, below: string];

export interface ScanParts<Row> {
  readonly limit: number;
  /** The page begins below this id. */
  readonly below: string | undefined;
  /** Ranges that can have matching rows, from the highest to the lowest; they do not overlap. */
  readonly ranges: Iterable<IdRange> | AsyncIterable<IdRange>;
  /** Without a filter every row matches, so the limit of the page is enough. */
  readonly isFiltered: boolean;
  readonly sliceRows?: number | undefined;
  /** The id of the row that has `rows` rows of the range above it; `undefined` if there are fewer. */
  readonly startOf: (range: IdRange, rows: number) => Promise<string | undefined>;
  readonly find: (range: IdRange, limit: number) => Promise<readonly Row[]>;
  readonly idOf: (row: Row) => string;
}

export interface ScannedPage<Row> {
  readonly rows: readonly Row[];
  /** The next page begins below this id; `undefined` at the end. A page can be short or empty. */
  readonly next: string | undefined;
}

/** Some milliseconds, during which SQLite serves no one else. */
const SLICE_ROWS = 2_500;
const MAX_SLICES = 3;

export async function scanDown<Row>(parts: ScanParts<Row>): Promise<ScannedPage<Row>> {
  const { limit, ranges, isFiltered, sliceRows = SLICE_ROWS, startOf, find, idOf } = parts;
  const rows: Row[] = [];
  let slices = 0;
  for await (const [from, end] of ranges) {
    let below = parts.below !== undefined && parts.below < end ? parts.below : end;
    while (below > from) {
      if (slices === MAX_SLICES) return { rows, next: below };
      slices += 1;
      const start = isFiltered ? ((await startOf([from, below], sliceRows)) ?? from) : from;
      rows.push(...(await find([start, below], limit + 1 - rows.length)));
      const last = rows[limit - 1];
      if (rows.length > limit && last !== undefined) {
        return { rows: rows.slice(0, limit), next: idOf(last) };
      }
      below = start;
    }
  }
  return { rows, next: undefined };
}
