/**
 * Writes requests for a node: the caller's own bytes with our id in place of the caller's. `params:
 * null` becomes an empty list, because some nodes reject null. A large request is not copied but
 * written in slices of the caller's bytes.
 */
import { OWN_ID_DIGITS, writeOwnId } from './call-ids.ts';
import { type Call, hasParams } from './parse-request.ts';
import { MAX_COPY_BYTES, sliced, slicedBatch, type Slices, spliceBatch } from './splice.ts';
import type { RequestBody } from './node-client.ts';

const NO_PARAMS = Buffer.from('[]');

export function callRequest(body: Buffer, call: Call, id: number): RequestBody {
  const ownId = Buffer.from(String(id), 'latin1');
  return bodyOf(sliced((slices) => addCall(slices, body, call, ownId)));
}

export function batchRequest(body: Buffer, calls: readonly Call[], firstId: number): RequestBody {
  return (
    splicedRequest(body, calls, firstId) ??
    bodyOf(
      slicedBatch(calls, (slices, call, index) =>
        addCall(slices, body, call, Buffer.from(String(firstId + index), 'latin1')),
      ),
    )
  );
}

function splicedRequest(body: Buffer, calls: readonly Call[], firstId: number): Buffer | undefined {
  const spans: Call['span'][] = [];
  for (const call of calls) {
    if (hasNullParams(body, call)) return undefined;
    spans.push(call.span);
  }
  const id = String(firstId);
  return spliceBatch(body, spans, calls.length * OWN_ID_DIGITS, (target, at, index) =>
    writeOwnId(target, at, id, index),
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
  const isNull = hasNullParams(body, call);
  const { bytes, span } = isNull ? withEmptyParams(body, call) : { bytes: body, span: call.span };
  slices.addWithId(bytes, span, id);
}

function hasNullParams(body: Buffer, { span }: Call): boolean {
  return span.paramsStart >= 0 && !hasParams(body, span);
}

function withEmptyParams(
  body: Buffer,
  { span }: Call,
): {
  readonly bytes: Buffer;
  readonly span: Pick<Call['span'], 'start' | 'end' | 'idStart' | 'idEnd'>;
} {
  const { start, end, idStart, idEnd, paramsStart, paramsEnd } = span;
  const bytes = sliced((slices) => {
    slices.add(body, start, paramsStart);
    slices.add(NO_PARAMS);
    slices.add(body, paramsEnd, end);
  }).join();
  const shorter = paramsEnd - paramsStart - NO_PARAMS.length;
  const moved = start + (idStart > paramsStart ? shorter : 0);
  const hasId = idStart >= 0;
  return {
    bytes,
    span: {
      start: 0,
      end: bytes.length,
      idStart: hasId ? idStart - moved : -1,
      idEnd: hasId ? idEnd - moved : -1,
    },
  };
}
