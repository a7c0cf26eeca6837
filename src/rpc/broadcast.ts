/**
 * Recognises a signed EVM transaction that was already broadcast. If a node returns "already
 * known", the first broadcast succeeded; if it returns "nonce too low", the node is queried for the
 * same transaction on the chain. The hash is computed from the signed bytes, so no node response is
 * trusted.
 */
import type { NodeAttempt, RunSettings } from './node-attempt.ts';
import { type Call, hasParams } from './parse-request.ts';
import { RAW_BROADCAST } from './catalogue.ts';
import type { NodeError } from './node-errors.ts';

const ALREADY_KNOWN =
  /already known|already imported|known transaction|already exists|alreadyknown|already in (the )?(mem)?pool/i;
const NONCE_USED = /nonce (is )?too low|old ?nonce|nonce has already been used|invalid nonce/i;
const RAW_TRANSACTION = /^0x(?:[0-9a-f]{2})+$/i;
/** EIP-4844: blob transactions are sent with their blobs, which are not part of the hash. */
const BLOB_TYPE = 0x03;
/** Typed transactions up to EIP-7702 are hashed over their signed bytes. */
const LAST_PLAIN_TYPE = 0x04;
const RLP_LIST = 0xc0;
const RLP_LONG_LIST = 0xf7;

function broadcastVerdict(call: Call, error: NodeError): 'known' | 'ask' | 'no' {
  if (call.method.name !== RAW_BROADCAST) return 'no';
  if (ALREADY_KNOWN.test(error.message)) return 'known';
  return NONCE_USED.test(error.message) ? 'ask' : 'no';
}

/** The hash of a raw transaction that the node rejected only because it already has it. */
export async function acceptedHash(
  attempt: NodeAttempt,
  { callIds }: RunSettings,
  body: Buffer,
  call: Call,
  error: NodeError,
): Promise<string | undefined> {
  const verdict = broadcastVerdict(call, error);
  if (verdict === 'no') return undefined;
  const hash = await transactionHash(body, call);
  if (hash === undefined || verdict === 'known') return hash;
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
  const isFound = reply.kind === 'response' && reply.outcome === 'success' && !reply.isNull;
  return isFound ? hash : undefined;
}

/** The hash of the transaction in the params of a call, or `undefined` if its format is unknown. */
async function transactionHash(body: Buffer, call: Call): Promise<string | undefined> {
  const { paramsStart, paramsEnd } = call.span;
  if (!hasParams(body, call.span)) return undefined;
  // ParsedRequest has checked that the span is a JSON array.
  const [raw] = JSON.parse(body.toString('utf8', paramsStart, paramsEnd)) as readonly unknown[];
  if (typeof raw !== 'string' || !RAW_TRANSACTION.test(raw)) return undefined;
  const hashed = hashedBytes(Buffer.from(raw.slice(2), 'hex'));
  if (hashed === undefined) return undefined;
  // Imported on first use, because viem loads four hundred files.
  const { keccak256 } = await import('viem');
  return keccak256(hashed);
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
