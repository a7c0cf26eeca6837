/** Reads a JSON body by a schema; what does not fit is a 400 with its tree of details. */
import type { z } from 'zod';
import { invalidRequest } from '../wire/validation.ts';
import { type Exchange, parseJsonBody } from './exchange.ts';

export function readJson<T>(exchange: Exchange, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(parseJsonBody(exchange.body));
  if (parsed.success) return parsed.data;
  throw invalidRequest(parsed.error);
}
