/**
 * Lists that are read on from where they ended: the place travels as an opaque text. A page costs the
 * same wherever it lies, and what is added meanwhile moves nothing.
 */
import { z } from 'zod';
import { refuseIssues } from '../json/validation.ts';

const MAX_CURSOR_CHARS = 1_000;

/** `limit` and `cursor` of such a list, as query parameters. */
export function cursorQuery({ max = 100, usual = 50 } = {}) {
  return {
    limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(max)
      .default(usual)
      .describe(`Items a page, 1 to ${max}.`),
    cursor: z
      .string()
      .max(MAX_CURSOR_CHARS)
      .optional()
      .describe('`nextCursor` of the page before, as it stands, with the same filters.'),
  };
}

export const NextCursor = z
  .string()
  .nullable()
  .describe('The `cursor` of the next page; null on the last.');

type Place = readonly (string | number)[];

export function encodeCursor(place: Place): string {
  return Buffer.from(JSON.stringify(place)).toString('base64url');
}

/** The place of a cursor, by what its list writes. Throws 400 for another one. */
export function decodeCursor<T extends z.ZodType<Place>>(
  cursor: string | undefined,
  place: T,
): z.infer<T> | undefined {
  if (cursor === undefined) return undefined;
  const read = place.safeParse(parsed(cursor));
  if (read.success) return read.data;
  const message = 'Must be the "nextCursor" of the page before, as it stands';
  throw refuseIssues([{ code: 'custom', path: ['cursor'], message }]);
}

function parsed(cursor: string): unknown {
  try {
    return JSON.parse(Buffer.from(cursor, 'base64url').toString());
  } catch {
    // Not one of ours: the schema says so.
    return undefined;
  }
}

const TimeAndId = z.tuple([z.number().int(), z.string()]);

/** A row of a list by time, with what tells it apart from others of the same time. */
type TimePlace<Name extends string> = { readonly createdMs: number } & Readonly<
  Record<Name, string>
>;

/** Where a list by time goes on; `undefined` at its beginning. Throws 400 for another cursor. */
export function decodeTimeCursor<Name extends string>(
  cursor: string | undefined,
  name: Name,
): TimePlace<Name> | undefined {
  const [createdMs, id] = decodeCursor(cursor, TimeAndId) ?? [];
  // The two members of a place.
  return createdMs === undefined ? undefined : ({ createdMs, [name]: id } as TimePlace<Name>);
}

/** The rows of a page by time, of which `found` has one more than `limit` where others follow. */
export function timePage<Name extends string, Row extends TimePlace<Name>>(
  found: readonly Row[],
  limit: number,
  name: Name,
): { readonly rows: readonly Row[]; readonly nextCursor: string | null } {
  const rows = found.slice(0, limit);
  const last = found.length > limit ? rows.at(-1) : undefined;
  return {
    rows,
    nextCursor: last === undefined ? null : encodeCursor([last.createdMs, last[name]]),
  };
}
