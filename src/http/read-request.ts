/** Reads query and JSON body through zod schemas (400 with `details`), and pages of lists. */
import { pageLimit } from './cursor.ts';
import { parseJsonBody, parseJsonObject } from '../json/json-scan.ts';
import { z } from 'zod';
import { Fault } from '../core/faults.ts';
import { invalidRequest } from '../json/validation.ts';
import type { RequestContext } from './request-context.ts';

/** From here on a body is read on another thread; the way there and back takes milliseconds too. */
export const LARGE_BODY_BYTES = 1024 * 1024;

/** Parses a large body on another thread; throws as `parseJsonBody`. Accounts take turns. */
export type ReadLargeJson = (bytes: Buffer, caller: string) => Promise<unknown>;

/** The JSON body of a route that takes large ones. */
export async function readJson<T extends z.ZodType>(
  { body, callerIfKnown }: RequestContext,
  schema: T,
  readLarge: ReadLargeJson,
): Promise<z.infer<T>> {
  const isLarge = body.length >= LARGE_BODY_BYTES;
  if (!isLarge) return checked(schema, parseJsonBody(body));
  return checked(schema, await readLarge(body, callerIfKnown?.accountId ?? ''));
}

/**
 * What an engine answered; `undefined` when it is no JSON, so that another engine may do better.
 */
export async function readEngineJson(
  body: Buffer,
  caller: string,
  readLarge: ReadLargeJson,
): Promise<unknown> {
  try {
    return await (body.length >= LARGE_BODY_BYTES ? readLarge(body, caller) : parseJsonBody(body));
  } catch (error) {
    if (error instanceof Fault && error.code === 'INVALID_JSON') return undefined;
    throw error;
  }
}

/** The JSON body of a management route. */
export function readBody<T extends z.ZodType>(context: RequestContext, schema: T): z.infer<T> {
  return checked(schema, parseJsonObject(context.body).body);
}

/** The query as its schema says; of a repeated name the first value counts. */
export function readQuery<T extends z.ZodType>(context: RequestContext, schema: T): z.infer<T> {
  const given: Record<string, string> = {};
  for (const [name, value] of context.query) given[name] ??= value;
  return checked(schema, given);
}

/** What was sent as its schema says. Faults: 400 with `details`. */
export function checked<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const result = schema.safeParse(value);
  if (!result.success) throw invalidRequest(result.error);
  return result.data;
}

/** What a body names its model by: an id, a trait or a compatibility name. */
export const ModelName = z.string().min(1).max(256);

const MAX_PAGE = 1_000_000;

/** `limit` and `page` of a list, as query parameters. */
export function pageQuery(options: { readonly max: number; readonly usual: number }) {
  return {
    limit: pageLimit(options.max, options.usual),
    page: z.coerce.number().int().min(1).max(MAX_PAGE).default(1).describe('Page, from 1.'),
  };
}

export interface Page {
  readonly limit: number;
  readonly page: number;
}

/** The first item of a page, from 0. */
export function offsetOf({ limit, page }: Page): number {
  return (page - 1) * limit;
}

/** Common response headers, "paginated endpoints". */
export function pageHeaders({ limit, page }: Page, total: number): Record<string, string> {
  return {
    'x-pagination-limit': String(limit),
    'x-pagination-page': String(page),
    'x-pagination-total': String(total),
    'x-pagination-total-pages': String(Math.ceil(total / limit)),
  };
}
