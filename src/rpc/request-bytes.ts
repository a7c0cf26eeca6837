/**
 * The requests as a node gets them: the caller's own bytes with an id of ours in place of the
 * caller's. `params: null` means no params, which not every node knows: an empty list stands there.
 */
import { idBytes, OWN_ID_DIGITS } from './call-ids.ts';
import { type Call, hasParams } from './parse-request.ts';
import { joinBatch, joined, type Slices } from './splice.ts';

const NO_PARAMS = Buffer.from('[]');

/** One call with `id` as its id. */
export function callRequest(body: Buffer, call: Call, id: number): Buffer {
  const ids = idBytes(id, 1);
  return joined((slices) => addCall(slices, body, call, ids));
}

/** A batch of calls with consecutive ids from `firstId` on. */
export function batchRequest(body: Buffer, calls: readonly Call[], firstId: number): Buffer {
  const ids = idBytes(firstId, calls.length);
  return joinBatch(calls, (slices, call, position) =>
    addCall(slices, body, call, ids, position * OWN_ID_DIGITS),
  );
}

function addCall(slices: Slices, body: Buffer, call: Call, ids: Buffer, idAt = 0): void {
  const isNull = call.span.paramsStart >= 0 && !hasParams(body, call.span);
  const { bytes, span } = isNull ? withEmptyParams(body, call) : { bytes: body, span: call.span };
  slices.addBeforeId(bytes, span);
  slices.add(ids, idAt, idAt + OWN_ID_DIGITS);
  slices.addAfterId(bytes, span);
}

/** The call by itself, with an empty list of params in place of `null`. */
function withEmptyParams(
  body: Buffer,
  { span }: Call,
): {
  readonly bytes: Buffer;
  readonly span: Pick<Call['span'], 'start' | 'end' | 'idStart' | 'idEnd'>;
} {
  const { start, end, idStart, idEnd, paramsStart, paramsEnd } = span;
  const bytes = joined((slices) => {
    slices.add(body, start, paramsStart);
    slices.add(NO_PARAMS);
    slices.add(body, paramsEnd, end);
  });
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
