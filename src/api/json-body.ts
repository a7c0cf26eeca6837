/** Reads a JSON body by a schema; what does not fit is a 400 with its tree of details. */
import type { z } from 'zod';
import { parseJsonBody } from '../wire/json-value.ts';
import { invalidRequest } from '../wire/validation.ts';
import type { Exchange } from './exchange.ts';
import { LARGE_BODY_BYTES, type LargeBodies } from './large-bodies.ts';

export async function readJson<T>(
  exchange: Exchange,
  schema: z.ZodType<T>,
  largeBodies: LargeBodies,
): Promise<T> {
  const { body } = exchange;
  const isLarge = body.length >= LARGE_BODY_BYTES;
  const parsed = schema.safeParse(isLarge ? await largeBodies.json(body) : parseJsonBody(body));
  if (parsed.success) return parsed.data;
  throw invalidRequest(parsed.error);
}
