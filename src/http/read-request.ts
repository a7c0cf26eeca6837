/** Validates queries and JSON bodies by zod schemas (400 with `details`); pages of lists. */
import { pageLimit } from './cursor.ts';
import { parseJsonBody, parseJsonObject } from '../json/json-scan.ts';
import * as z from 'zod';
import { Fault } from '../core/faults.ts';
import { invalidRequest } from '../json/validation.ts';
import type { RequestContext } from './request-context.ts';

/** Larger bodies are parsed on another thread; the transfer takes milliseconds. */
export const LARGE_BODY_BYTES = 1024 * 1024;

/** Parses a large body on another thread; throws as `parseJsonBody`. Accounts take turns. */
export type ReadLargeJson = (bytes: Buffer, caller: string) => Promise<unknown>;

/** Parses and validates a JSON body that may be large. */
export async function readJson<T extends z.ZodType>(
  { body, callerIfKnown }: RequestContext,
  schema: T,
  readLarge: ReadLargeJson,
): Promise<z.infer<T>> {
  const isLarge = body.length >= LARGE_BODY_BYTES;
  if (!isLarge) return checked(schema, parseJsonBody(body));
  return checked(schema, await readLarge(body, callerIfKnown?.accountId ?? ''));
}

/** Parses the response of an engine; `undefined` if it is no JSON. */
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

/** Parses and validates the JSON body of a management route; `null` means absent unless it is a value. */
export function readBody<T extends z.ZodType>(context: RequestContext, schema: T): z.infer<T> {
  const { body } = parseJsonObject(context.body);
  const shape: z.ZodRawShape = schema instanceof z.ZodObject ? schema.shape : {};
  const given = Object.entries(body).filter(
    ([name, value]) => value !== null || z.safeParse(shape[name] ?? z.any(), null).success,
  );
  return checked(schema, Object.fromEntries(given));
}

/** Validates the query; the first value of a repeated name counts. */
export function readQuery<T extends z.ZodType>(context: RequestContext, schema: T): z.infer<T> {
  const given: Record<string, string> = {};
  for (const [name, value] of context.query) given[name] ??= value;
  return checked(schema, given);
}

/** Validates a value. Throws 400 with `details`. */
export function checked<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const result = schema.safeParse(value);
  if (!result.success) throw invalidRequest(result.error);
  return result.data;
}

/** An id, a trait or a compatibility name of a model. */
export const ModelName = z.string().min(1).max(256);

const MAX_PAGE = 1_000_000;

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

export function offsetOf({ limit, page }: Page): number {
  return (page - 1) * limit;
}

export function pageHeaders({ limit, page }: Page, total: number): Record<string, string> {
  return {
    'x-pagination-limit': String(limit),
    'x-pagination-page': String(page),
    'x-pagination-total': String(total),
    'x-pagination-total-pages': String(Math.ceil(total / limit)),
  };
}
