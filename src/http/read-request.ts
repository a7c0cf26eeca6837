/**
 * Reads the query and the JSON body of management routes through their zod schemas, and says in
 * headers which page of a list an answer is. What does not fit is the 400 with `details`.
 */
import { z } from 'zod';
import { invalidRequest, parseJsonObject } from '../json/validation.ts';
import type { RequestContext } from './request-context.ts';

/** The JSON body as its schema says. */
export function readBody<T extends z.ZodType>(context: RequestContext, schema: T): z.infer<T> {
  return checked(schema, parseJsonObject(context.body).body);
}

/** The query as its schema says; of a repeated name the first value counts. */
export function readQuery<T extends z.ZodType>(context: RequestContext, schema: T): z.infer<T> {
  const given: Record<string, string> = {};
  for (const [name, value] of context.query) given[name] ??= value;
  return checked(schema, given);
}

function checked<T extends z.ZodType>(schema: T, value: unknown): z.infer<T> {
  const result = schema.safeParse(value);
  if (!result.success) throw invalidRequest(result.error);
  return result.data;
}

const MAX_PAGE = 1_000_000;

/** `limit` and `page` of a list, as query parameters. */
export function pageQuery(options: { readonly max: number; readonly usual: number }) {
  return {
    limit: z.coerce
      .number()
      .int()
      .min(1)
      .max(options.max)
      .default(options.usual)
      .describe(`Items a page, 1 to ${options.max}.`),
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
