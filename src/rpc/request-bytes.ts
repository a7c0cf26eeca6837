/**
 * Writes requests for a node: the caller's bytes with an id of Farebox in place of the caller's.
 * `params: null` becomes an empty list, because some nodes reject null, and the tag of a block may be
 * replaced by its number. A large request is not
 * copied but written in slices of the caller's bytes.
 */
import { OWN_ID_DIGITS, writeOwnId } from './call-ids.ts';
import { type Call, hasParams } from './parse-request.ts';
import {
  copyWithId,
  MAX_COPY_BYTES,
  sliced,
  slicedBatch,
  type Slices,
  spliceBatch,
} from './splice.ts';
import type { RequestBody } from './node-client.ts';
import type { Upstream } from './upstream.ts';

/** Bytes that the id of Farebox may add to a call. */
export const ADDED_ID_BYTES = 20;
const NO_PARAMS = Buffer.from('[]');

export function callRequest(body: Buffer, call: Call, id: number): RequestBody {
  const { start, end, idStart } = call.span;
  if (idStart >= 0 && end - start <= MAX_COPY_BYTES && newParams(body, call) === undefined)
    return copyWithId(body, start, end, call.span, String(id));
  const ownId = Buffer.from(String(id), 'latin1');
  return bodyOf(sliced((slices) => addCall(slices, body, call, ownId)));
}

export function batchRequest(body: Buffer, calls: readonly Call[], firstId: number): RequestBody {
  const id = String(firstId);
  const spans = calls.map(({ span }) => span);
  const spliced = calls.some((call) => newParams(body, call) !== undefined)
    ? undefined
    : spliceBatch(body, spans, calls.length * OWN_ID_DIGITS, (target, at, index) =>
        writeOwnId(target, at, id, index),
      );
  if (spliced !== undefined) return spliced;
  return bodyOf(
    slicedBatch(calls, (slices, call, index) =>
      addCall(slices, body, call, Buffer.from(String(firstId + index), 'latin1')),
    ),
  );
}

function bodyOf(slices: Slices): RequestBody {
  const { sizeBytes } = slices;
  if (sizeBytes <= MAX_COPY_BYTES) return slices.join();
  return {
    sizeBytes,
    open: async function* () {
      yield* slices.pieces();
    },
  };
}

function addCall(slices: Slices, body: Buffer, call: Call, id: Buffer): void {
  const params = newParams(body, call);
  if (params === undefined) slices.addWithId(body, call.span, id);
  else addWithParams(slices, body, call, params, id);
}

/** Params that replace the caller's; `undefined` if they are sent unchanged. */
function newParams(body: Buffer, { span, params }: Call): Buffer | undefined {
  if (params !== undefined) return params;
  return span.paramsStart >= 0 && !hasParams(body, span) ? NO_PARAMS : undefined;
}

function addWithParams(
  slices: Slices,
  body: Buffer,
  { span }: Call,
  params: Buffer,
  id: Buffer,
): void {
  const { start, end, idStart, idEnd, paramsStart, paramsEnd } = span;
  const bytes = Buffer.concat([
    body.subarray(start, paramsStart),
    params,
    body.subarray(paramsEnd, end),
  ]);
  const shorter = paramsEnd - paramsStart - params.length;
  const moved = idStart < 0 ? 0 : start + (idStart > paramsStart ? shorter : 0);
  const newSpan = { start: 0, end: bytes.length, idStart: idStart - moved, idEnd: idEnd - moved };
  slices.addWithId(bytes, newSpan, id);
}

/** Splits calls into requests by number and by bytes, within the limits of the node. */
export function chunks(calls: readonly Call[], upstream: Upstream): (readonly Call[])[] {
  const maxBatch = Math.max(1, upstream.settings.maxBatch);
  const parts: Call[][] = [];
  let part: Call[] = [];
  let partBytes = 0;
  for (const call of calls) {
    const { start, end } = call.span;
    // Includes the comma and the new id.
    const bytes = end - start + ADDED_ID_BYTES;
    if (
      part.length === maxBatch ||
      (part.length > 0 && !upstream.acceptsBytes(partBytes + bytes))
    ) {
      parts.push(part);
      part = [];
      partBytes = 0;
    }
    part.push(call);
    partBytes += bytes;
  }
  return [...parts, part];
}
