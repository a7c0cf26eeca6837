/**
 * Lists with cursors: an opaque text encodes where the next page begins. Every page costs the same,
 * and new items do not shift the pages.
 */
import { parsedJson } from '../json/json-text.ts';
import * as z from 'zod';
import { refuseIssues } from '../json/validation.ts';
import { listOf } from './describe.ts';

const MAX_CURSOR_CHARS = 1_000;

export function pageLimit(max: number, usual: number) {
  const wanted = z.coerce.number().int().min(1).max(max).default(usual);
  return wanted.describe(`Items a page, 1 to ${max}.`);
}

export function cursorQuery({ max = 100, usual = 50 } = {}) {
  return {
    limit: pageLimit(max, usual),
    cursor: z
      .string()
      .max(MAX_CURSOR_CHARS)
      .optional()
      .describe('`nextCursor` of the previous page, unchanged, with the same filters.'),
  };
}

export const NextCursor = z
  .string()
  .nullable()
  .describe('The `cursor` of the next page; null on the last.');

export function pageOf<T extends z.ZodType>(item: T, order = 'Newest first.') {
  return z.object({ ...listOf(item, order).shape, nextCursor: NextCursor });
}

type Place = readonly (string | number)[];

export function encodeCursor(place: Place): string {
  return Buffer.from(JSON.stringify(place)).toString('base64url');
}

/** Decodes a cursor of the shape `place`. Throws 400 for another one. */
export function decodeCursor<T extends z.ZodType<Place>>(
  cursor: string | undefined,
  place: T,
): z.infer<T> | undefined {
  if (cursor === undefined) return undefined;
  const read = place.safeParse(parsedJson(Buffer.from(cursor, 'base64url').toString()));
  if (read.success) return read.data;
  const message = 'Must be the unchanged "nextCursor" of the previous page';
  throw refuseIssues([{ code: 'custom', path: ['cursor'], message }]);
}

const TimeAndId = z.tuple([z.number().int(), z.string()]);

/** The position of a row in a list by time: its time and its unique name. */
type TimePlace<Name extends string> = { readonly createdMs: number } & Readonly<
  Record<Name, string>
>;

interface TimePart<Name extends string> {
  readonly limit: number;
  readonly after: TimePlace<Name> | undefined;
}

/** Returns the position after which a list by time continues. Throws 400 for another cursor. */
export function decodeTimeCursor<Name extends string>(
  cursor: string | undefined,
  name: Name,
): TimePlace<Name> | undefined {
  const [createdMs, id] = decodeCursor(cursor, TimeAndId) ?? [];
  // The two members of a position.
  return createdMs === undefined ? undefined : ({ createdMs, [name]: id } as TimePlace<Name>);
}

/** Returns a page of a list by time. `find` gets a limit of one more, to detect a next page. */
export async function timePage<Name extends string, Row extends TimePlace<Name>>(
  { limit, cursor }: { readonly limit: number; readonly cursor?: string | undefined },
  name: Name,
  find: (part: TimePart<Name>) => Promise<readonly Row[]>,
): Promise<{ readonly rows: readonly Row[]; readonly nextCursor: string | null }> {
  const found = await find({ limit: limit + 1, after: decodeTimeCursor(cursor, name) });
  const rows = found.slice(0, limit);
  const last = found.length > limit ? rows.at(-1) : undefined;
  return {
    rows,
    nextCursor: last === undefined ? null : encodeCursor([last.createdMs, last[name]]),
  };
}
