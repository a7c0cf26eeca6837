/**
 * Parses a JSON-RPC body, and computes its maximum cost.
 *
 * Invariant: a parsed body is valid JSON with 1 to 100 requests whose methods are all allowed on
 * the network, written so that every JSON parser reads the same members. Any other body is rejected
 * with 400 before a node is called, and nothing is billed.
 */
import { createHash } from 'node:crypto';
import { Fault, invalidField } from '../core/faults.ts';
import {
  type RequestScan,
  type RequestSpan,
  type ScanFailure,
  scanRequest,
  spanString,
} from '../json/json-spans.ts';
import { updateInTurns } from '../core/event-loop.ts';
import type { AttemptFault } from './node-attempt.ts';
import type { ClassFigures } from './node-figures.ts';
import { MAX_BATCH_ITEMS } from './call-ids.ts';
import type { ItemResponse } from './classify.ts';
import type { Catalogue, Method, Network, RefusalKind } from './catalogue.ts';
import { isSpan } from './splice.ts';
import type { Upstream } from './upstream.ts';

/** A node sends the id before its result: a long id would move the result out of sight. */
const MAX_ID_BYTES = 1_024;
const MAX_NAME_SHOWN = 100;

/** First and last block that a call names; `undefined` for a hash or an unknown tag. */
export interface Blocks {
  readonly from: number | undefined;
  readonly to: number | undefined;
  /** The call names no block number, only the newest block by its tag or by default. */
  readonly isNewest?: boolean;
}

export interface Call {
  readonly span: RequestSpan;
  readonly method: Method;
  readonly credits: number;
  response: ItemResponse | undefined;
  /** A result of the server itself: from the cache, or a recognised broadcast. */
  result: Buffer | undefined;
  /** Fault of the last node that returned no response to the call. */
  fault: AttemptFault | undefined;
  hadSecondOpinion: boolean;
  /** The result is empty, and a node may have more. */
  isDoubtful: boolean;
  /** The node that a slow read was also sent to. */
  hedgedTo: Upstream | undefined;
  /** Blocks that the call names; read only if the network has several nodes. */
  blocks: Blocks | undefined;
  /** Params to send instead of the caller's. */
  params: Buffer | undefined;
  /** Metrics of the node that returned the response; `undefined` for the cache. */
  figures: ClassFigures | undefined;
}

/** A validated request; it runs once. */
export interface ParsedRequest {
  readonly network: Network;
  readonly body: Buffer;
  readonly isBatch: boolean;
  readonly calls: readonly Call[];
  readonly isWrite: boolean;
  /** Sum of the full tiers: the amount to reserve, and to check against the credit cap. */
  readonly creditsMax: number;
}

export type BodyScan = RequestScan | ScanFailure;

/** Parses a body that may already be scanned; throws a Fault with status 400. */
export function parseRequest(
  catalogue: Catalogue,
  slug: string,
  body: Buffer,
  scanned?: BodyScan,
): ParsedRequest {
  const network = catalogue.network(slug);
  if (network === undefined) {
    throw new Fault('UNSUPPORTED_RPC_NETWORK', {
      message: `Unsupported RPC network "${shown(slug)}": choose one from GET /crypto/rpc/networks`,
    });
  }
  const scan = scanned ?? scanRequest(body, MAX_BATCH_ITEMS);
  if (!scan.ok) throw scanFault(scan, body);
  if (scan.items.length === 0) throw refusal('The batch is empty: send 1 to 100 requests');
  for (const [index, span] of scan.items.entries())
    checkItem(network, body, span, scan.isBatch ? index : undefined);
  return resolveCalls(catalogue, network, body, scan);
}

/** Binds an idempotency key to the exact bytes and the network. */
export async function requestFingerprint(parsed: ParsedRequest): Promise<string> {
  const hash = createHash('sha256').update(parsed.network.slug).update('\n');
  await updateInTurns(hash, parsed.body);
  return hash.digest('hex');
}

/** The id bytes of a call as the caller sent them; `null` for a call without an id. */
export function callerId(body: Buffer, { idStart, idEnd }: RequestSpan): Buffer {
  return idStart < 0 ? NULL_ID : body.subarray(idStart, idEnd);
}

const VERSION = Buffer.from('"2.0"');
const NULL_ID = Buffer.from('null');
const LETTER_N = 0x6e;
const QUOTE = 0x22;
const MINUS = 0x2d;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const OPEN_ARRAY = 0x5b;
const OPEN_OBJECT = 0x7b;

function checkItem(
  network: Network,
  body: Buffer,
  span: RequestSpan,
  index: number | undefined,
): void {
  if (
    !isSpan(body, span.versionStart, span.versionEnd, VERSION) &&
    spanString(body, span.versionStart, span.versionEnd) !== '2.0'
  ) {
    throw itemFault(index, 'jsonrpc', 'must be "2.0"');
  }
  if (span.methodStart < 0 || body[span.methodStart] !== QUOTE) {
    throw itemFault(index, 'method', 'must be a string');
  }
  const id = span.idStart < 0 ? LETTER_N : (body[span.idStart] ?? 0);
  if (id === LETTER_N) {
    // Without an id, a batch item cannot be matched with its response.
    if (index !== undefined)
      throw itemFault(index, 'id', 'is required in a batch: a number or a string');
  } else if (id !== QUOTE && id !== MINUS && (id < DIGIT_0 || id > DIGIT_9)) {
    throw itemFault(index, 'id', 'must be a number or a string');
  }
  if (span.idEnd - span.idStart > MAX_ID_BYTES) {
    const size = span.idEnd - span.idStart;
    throw itemFault(index, 'id', `must be at most ${MAX_ID_BYTES} bytes long, not ${size}`);
  }
  const first = span.paramsStart < 0 ? LETTER_N : body[span.paramsStart];
  // Starknet also accepts params by name, and starknet.js only sends those.
  const isByName = first === OPEN_OBJECT && network.family === 'starknet';
  if (first !== LETTER_N && first !== OPEN_ARRAY && !isByName) {
    throw itemFault(index, 'params', 'must be an array');
  }
}

export function hasParams(body: Buffer, { paramsStart }: RequestSpan): boolean {
  return paramsStart >= 0 && body[paramsStart] !== LETTER_N;
}

function itemFault(index: number | undefined, field: string, rule: string): Fault {
  return index === undefined
    ? invalidField([field], `The member "${field}" ${rule}`)
    : invalidField([String(index), field], `The member "${field}" of item ${index} ${rule}`);
}

function resolveCalls(
  catalogue: Catalogue,
  network: Network,
  body: Buffer,
  { isBatch, items }: RequestScan,
): ParsedRequest {
  const calls: Call[] = [];
  let refused: Map<string, RefusalKind> | undefined;
  let creditsMax = 0;
  let isWrite = false;
  let before: Call | undefined;
  for (const span of items) {
    let method: Method;
    // Most batches repeat one method: comparing its bytes is cheaper than decoding it.
    if (before !== undefined && isSameMethod(body, span, before.span)) method = before.method;
    else {
      const name = spanString(body, span.methodStart, span.methodEnd) ?? '';
      const resolved = catalogue.resolve(network, name);
      if (typeof resolved === 'string') {
        refused ??= new Map();
        refused.set(name, resolved);
        continue;
      }
      method = resolved;
    }
    const credits = network.baseCredits * method.tier;
    before = {
      span,
      method,
      credits,
      response: undefined,
      result: undefined,
      fault: undefined,
      hadSecondOpinion: false,
      isDoubtful: false,
      hedgedTo: undefined,
      blocks: undefined,
      params: undefined,
      figures: undefined,
    };
    creditsMax += credits;
    isWrite ||= method.retry === 'write-dedupe' || method.retry === 'write-no-retry';
    calls.push(before);
  }
  if (refused !== undefined) throw methodFault(network, refused);
  return { network, body, isBatch, calls, isWrite, creditsMax };
}

function isSameMethod(body: Buffer, one: RequestSpan, other: RequestSpan): boolean {
  const size = one.methodEnd - one.methodStart;
  if (size !== other.methodEnd - other.methodStart) return false;
  for (let offset = 0; offset < size; offset += 1) {
    if (body[one.methodStart + offset] !== body[other.methodStart + offset]) return false;
  }
  return true;
}

/** The error message for each kind of rejected method, in order of precedence. */
const ADVICE: readonly (readonly [RefusalKind, string])[] = [
  [
    'websocket',
    'WebSocket-only, and this proxy is HTTP-only: poll instead, for example with eth_getLogs or getSignatureStatuses',
  ],
  ['filter', 'filters need a node that stores state of the caller: use eth_getLogs instead'],
  [
    'key',
    'this proxy holds no keys and does not mine: sign locally and use eth_sendRawTransaction',
  ],
  ['admin', 'administration of a node is not offered'],
  ['removed', 'this method was removed from Solana: use its successor in the Solana documentation'],
  ['family', 'this method belongs to another family of chains'],
  ['unlisted', 'see the list of methods in the documentation'],
];

function methodFault(network: Network, refused: ReadonlyMap<string, RefusalKind>): Fault {
  const parts = ADVICE.flatMap(([kind, advice]) => {
    const names = [...refused].filter(([, one]) => one === kind).map(([name]) => shown(name));
    return names.length === 0 ? [] : [`${names.join(', ')} (${advice})`];
  });
  return new Fault('UNSUPPORTED_METHOD', {
    message: `Unsupported method on ${network.slug}: ${parts.join('; ')}`,
  });
}

function scanFault(scan: ScanFailure, body: Buffer): Fault {
  if (isBlank(body))
    return refusal('The body is empty: send a JSON-RPC request or an array of them');
  switch (scan.reason) {
    case 'count':
      return refusal(`The batch is too long: max ${MAX_BATCH_ITEMS} requests`);
    case 'item':
      return refusal('Every request must be a JSON object with "jsonrpc", "method" and "id"');
    case 'member':
      return refusal(
        `The member "${scan.member ?? ''}" appears twice or in another case: write it once, in lower case`,
      );
    case 'depth':
      return refusal('The body is nested too deeply');
    case 'encoding':
      return new Fault('INVALID_JSON', { message: 'The body is not UTF-8' });
    case 'syntax':
      return new Fault('INVALID_JSON', {
        message: `The body is not valid JSON: unexpected byte at position ${scan.position}`,
      });
  }
}

function refusal(message: string): Fault {
  return new Fault('INVALID_REQUEST', { message, details: { _errors: [message] } });
}

function isBlank(body: Buffer): boolean {
  for (const byte of body)
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return false;
  return true;
}

function shown(name: string): string {
  const printable = name.replaceAll(/[^\x20-\x7e]/g, '?');
  return printable.length > MAX_NAME_SHOWN ? `${printable.slice(0, MAX_NAME_SHOWN)}…` : printable;
}
