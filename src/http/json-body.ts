/** Reads a JSON body by a schema; what does not fit is a 400 with its tree of details. */
import type { z } from 'zod';
import { invalidRequest, parseJsonBody } from '../json/validation.ts';
import type { RequestContext } from './request-context.ts';

/** From here on a body is read on another thread; the way there and back takes milliseconds too. */
export const LARGE_BODY_BYTES = 1024 * 1024;

/** Parses a large body without holding up the event loop; refuses as `parseJsonBody` does. */
export type ReadLargeJson = (bytes: Buffer) => Promise<unknown>;

export async function readJson<T>(
  context: RequestContext,
  schema: z.ZodType<T>,
  readLarge: ReadLargeJson,
): Promise<T> {
  const { body } = context;
  const isLarge = body.length >= LARGE_BODY_BYTES;
  const parsed = schema.safeParse(isLarge ? await readLarge(body) : parseJsonBody(body));
  if (parsed.success) return parsed.data;
  throw invalidRequest(parsed.error);
}
