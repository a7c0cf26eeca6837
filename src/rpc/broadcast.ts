/**
 * Verifies the response to the broadcast of a signed EVM transaction, and recognises a transaction
 * that was already broadcast. If a node returns "already known", the first broadcast succeeded; if
 * it returns "nonce too low", the node is queried for the same transaction on the chain. The hash
 * is computed from the signed bytes, so no node response is trusted.
 */
import { keccak256 } from '../core/keccak.ts';
import { spanString } from '../json/json-spans.ts';
import type { ItemResponse } from './classify.ts';
import type { NodeAttempt, RunSettings } from './node-attempt.ts';
import { type Call, hasParams } from './parse-request.ts';
import { RAW_BROADCAST } from './catalogue.ts';
import type { NodeError } from './node-errors.ts';

const ALREADY_KNOWN =
  /already known|already imported|known transaction|already exists|alreadyknown|already in (the )?(mem)?pool/i;
const NONCE_USED = /nonce (is )?too low|old ?nonce|nonce has already been used|invalid nonce/i;
/** EIP-4844: blob transactions are sent with their blobs, which are not part of the hash. */
const BLOB_TYPE = 0x03;
/** Typed transactions up to EIP-7702 are hashed over their signed bytes. */
const LAST_PLAIN_TYPE = 0x04;
const RLP_LIST = 0xc0;
const RLP_LONG_LIST = 0xf7;

/** Sets the result of a raw transaction that the node rejected only because it already has it. */
export async function acceptKnown(
  attempt: NodeAttempt,
  { callIds }: RunSettings,
  body: Buffer,
  call: Call,
  error: NodeError,
): Promise<void> {
  if (call.method.name !== RAW_BROADCAST) return;
  const isKnown = ALREADY_KNOWN.test(error.message);
  if (!isKnown && !NONCE_USED.test(error.message)) return;
  const hash = transactionHash(body, call);
  if (hash === undefined) return;
  if (isKnown || (await hasTransaction(attempt, callIds, call, hash)))
    call.result = Buffer.from(`"${hash}"`);
}

async function hasTransaction(
  attempt: NodeAttempt,
  callIds: RunSettings['callIds'],
  call: Call,
  hash: string,
): Promise<boolean> {
  const id = callIds.take();
  const request = Buffer.from(
    `{"jsonrpc":"2.0","id":${id},"method":"eth_getTransactionByHash","params":["${hash}"]}`,
  );
  const reply = await attempt.callOne(request, id, {
    canStream: false,
    mayRepeat: true,
    timeoutMs: Infinity,
    mayWait: false,
    figures: attempt.upstream.figures.of(call.method.class),
  });
  return reply.kind === 'response' && reply.outcome === 'success' && !reply.isNull;
}

/** Whether a result is not the hash of the transaction that was sent, so that the node is broken. */
export function isWrongHash(
  body: Buffer,
  call: Call,
  { outcome, bytes, span }: ItemResponse,
): boolean {
  if (outcome === 'error' || call.method.name !== RAW_BROADCAST) return false;
  const hash = transactionHash(body, call);
  const result = spanString(bytes, span.resultStart, span.resultEnd);
  return hash !== undefined && result?.toLowerCase() !== hash;
}

/** Removes the responses of a batch with a wrong hash. */
export function dropWrongHashes(
  attempt: NodeAttempt,
  body: Buffer,
  calls: readonly Call[],
  responses: (ItemResponse | undefined)[],
): void {
  for (const [index, call] of calls.entries()) {
    const response = responses[index];
    if (response === undefined || !isWrongHash(body, call, response)) continue;
    attempt.fail('broken');
    responses[index] = undefined;
  }
}

/** The hash of the transaction in the params of a call, or `undefined` if its format is unknown. */
function transactionHash(body: Buffer, call: Call): string | undefined {
  const { paramsStart, paramsEnd } = call.span;
  if (!hasParams(body, call.span)) return undefined;
  // ParsedRequest has checked that the span is a JSON array.
  const [raw] = JSON.parse(body.toString('utf8', paramsStart, paramsEnd)) as readonly unknown[];
  if (typeof raw !== 'string' || !/^0x/i.test(raw)) return undefined;
  const bytes = Buffer.from(raw.slice(2), 'hex');
  // Decoding stops at the first invalid digit.
  const hashed = bytes.length * 2 === raw.length - 2 ? hashedBytes(bytes) : undefined;
  return hashed && `0x${keccak256(hashed).toString('hex')}`;
}

function hashedBytes(bytes: Buffer): Uint8Array | undefined {
  const [type = 0] = bytes;
  if (type >= RLP_LIST) return bytes;
  if (type === 0 || type > LAST_PLAIN_TYPE) return undefined;
  if (type !== BLOB_TYPE) return bytes;
  const outer = listHeader(bytes, 1);
  const inner = outer && listHeader(bytes, outer.contentStart);
  // Without blobs the list contains the fields themselves, and the first field is not a list.
  if (outer === undefined || inner === undefined) return bytes;
  return Buffer.concat([Buffer.of(BLOB_TYPE), bytes.subarray(outer.contentStart, inner.end)]);
}

function listHeader(bytes: Buffer, at: number): { contentStart: number; end: number } | undefined {
  const head = bytes[at];
  if (head === undefined || head < RLP_LIST) return undefined;
  if (head <= RLP_LONG_LIST) return { contentStart: at + 1, end: at + 1 + head - RLP_LIST };
  const lengthBytes = head - RLP_LONG_LIST;
  if (lengthBytes > 4 || at + 1 + lengthBytes > bytes.length) return undefined;
  const contentStart = at + 1 + lengthBytes;
  return { contentStart, end: contentStart + bytes.readUIntBE(at + 1, lengthBytes) };
}
