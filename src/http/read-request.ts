/**
 * Reads the body of a request, up to its limit; query and JSON bodies through zod schemas, where
 * what does not fit is the 400 with `details`; and says in headers which page of a list an answer is.
 */
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import { Fault } from '../core/faults.ts';
import { invalidRequest, parseJsonBody, parseJsonObject } from '../json/validation.ts';
import type { RequestContext } from './request-context.ts';
import type { Route } from './route.ts';

/** RFC 9110 §8.3.1: a type, a subtype, and what follows a semicolon. */
const MEDIA_TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+\s*(?:;|$)/;

/** Throws `INVALID_CONTENT_TYPE` (415) for a body that the route does not read. */
export function requireMediaType({ headers }: IncomingMessage, { body }: Route): void {
  const given = headers['content-type'];
  const type = given?.toLowerCase() ?? '';
  if (body !== undefined && !body.types.some((known) => type.startsWith(known))) {
    const wanted = body.types.join(' or ');
    throw new Fault('INVALID_CONTENT_TYPE', {
      message:
        type === ''
          ? `The request has no Content-Type; send ${wanted}`
          : `The Content-Type ${type.slice(0, 100)} is not supported here; send ${wanted}`,
    });
  }
  if (given !== undefined && !MEDIA_TYPE.test(given)) throw new Fault('INVALID_CONTENT_TYPE');
}

/** The body of a request. Throws `PAYLOAD_TOO_LARGE` (413), and anything when the caller leaves. */
export function readBytes(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  if (Number(request.headers['content-length']) > limitBytes) throw new Fault('PAYLOAD_TOO_LARGE');
  return new Promise((resolve, reject) => {
    let pieces: Buffer[] = [];
    let sizeBytes = 0;
    const take = (piece: Buffer): void => {
      pieces.push(piece);
      sizeBytes += piece.length;
      if (sizeBytes <= limitBytes) return;
      // The rest is read and forgotten, so that the answer is not lost with the connection.
      request.off('data', take);
      pieces = [];
      reject(new Fault('PAYLOAD_TOO_LARGE'));
    };
    // Of a caller that left while it was identified no event comes any more.
    if (request.destroyed) return reject(new Error('The caller left'));
    request.on('data', take);
    request.on('end', () => {
      const [only] = pieces;
      resolve(only !== undefined && pieces.length === 1 ? only : Buffer.concat(pieces, sizeBytes));
      // The request outlives its body, which is let go once an engine has it.
      pieces = [];
    });
    request.on('error', reject);
  });
}

/** From here on a body is read on another thread; the way there and back takes milliseconds too. */
export const LARGE_BODY_BYTES = 1024 * 1024;

/** Parses a large body without holding up the event loop; refuses as `parseJsonBody` does. */
export type ReadLargeJson = (bytes: Buffer) => Promise<unknown>;

/** The JSON body of a route that takes large ones. */
export async function readJson<T extends z.ZodType>(
  { body }: RequestContext,
  schema: T,
  readLarge: ReadLargeJson,
): Promise<z.infer<T>> {
  const isLarge = body.length >= LARGE_BODY_BYTES;
  return checked(schema, isLarge ? await readLarge(body) : parseJsonBody(body));
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
