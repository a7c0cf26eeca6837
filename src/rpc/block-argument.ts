/**
 * The blocks that a call reads, from its block number, tag or range. A call with the tag `latest`
 * for a block, not for a state, is changed to the number of the head that callers see.
 */
import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COMMA,
  OPEN_OBJECT,
  QUOTE,
  skipSpace,
} from '../json/json-skip.ts';
import { skipValue } from '../json/json-checker.ts';
import { type Blocks, type Call, hasParams } from './parse-request.ts';
import { HEAD_METHOD, hexNumber, type Network } from './catalogue.ts';

/** Longer arguments, such as filters with thousands of addresses, are not read. */
const MAX_ARGUMENT_BYTES = 65_536;
const MAX_DEPTH = 256;
const LATEST = '"latest"';

/**
 * Returns the blocks, and sets `call.params` if the argument is changed; `undefined` if the call
 * names none, or if its argument is long.
 */
export function blocksOf(
  body: Buffer,
  call: Call,
  { family }: Network,
  head: number | undefined,
): Blocks | undefined {
  const { method, span } = call;
  const { block } = method;
  if (block === undefined || !hasParams(body, span)) return undefined;
  const { paramsStart, paramsEnd } = span;
  const isByName = body[paramsStart] === OPEN_OBJECT;
  const start = isByName ? paramsStart : elementStart(body, span, block === 'range' ? 0 : block);
  if (start < 0) return undefined;
  const end = skipValue(body, start, MAX_DEPTH);
  if (end - start > MAX_ARGUMENT_BYTES) return undefined;
  const text = body.toString('utf8', start, end);
  if (text === LATEST && block === 0 && family === 'evm' && head !== undefined) {
    const number = Buffer.from(`"${hexNumber(head)}"`);
    call.params = Buffer.concat([
      body.subarray(paramsStart, start),
      number,
      body.subarray(end, paramsEnd),
    ]);
    return { from: head, to: head };
  }
  if (body[start] === QUOTE && body[start + 1] !== DIGIT_0) return undefined;
  // The request was parsed as JSON before.
  const value: unknown = JSON.parse(text);
  if (block === 'range') {
    const filter = isByName ? member(value, 'filter') : value;
    const from = member(filter, 'fromBlock') ?? member(filter, 'from_block');
    const to = member(filter, 'toBlock') ?? member(filter, 'to_block');
    return { from: numberOf(from), to: numberOf(to) };
  }
  const number = numberOf(isByName ? member(value, 'block_id') : value);
  return { from: number, to: number };
}

/** Whether a call returns the newest block of the network, without an option such as a commitment. */
export function isHeadCall(body: Buffer, { method, span }: Call, { family }: Network): boolean {
  if (method.name !== HEAD_METHOD[family]) return false;
  if (!hasParams(body, span)) return true;
  const first = body[skipSpace(body, span.paramsStart + 1)];
  return first === CLOSE_ARRAY || first === CLOSE_OBJECT;
}

const DIGIT_0 = 0x30;

/** Start of an element of the params; -1 if there are fewer. */
function elementStart(body: Buffer, { paramsStart }: Call['span'], index: number): number {
  let at = skipSpace(body, paramsStart + 1);
  for (let position = 0; body[at] !== CLOSE_ARRAY; position += 1) {
    if (position === index) return at;
    at = skipSpace(body, skipValue(body, at, MAX_DEPTH));
    if (body[at] === COMMA) at = skipSpace(body, at + 1);
  }
  return -1;
}

/** A block number as hexadecimal text, as a number, or in an object (EIP-1898, Starknet). */
function numberOf(value: unknown): number | undefined {
  if (typeof value === 'object')
    return numberOf(member(value, 'blockNumber') ?? member(value, 'block_number'));
  if (value === 'earliest') return 0;
  const number = typeof value === 'string' && !value.startsWith('0x') ? Number.NaN : Number(value);
  return value === undefined || Number.isNaN(number) || number < 0 ? undefined : number;
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
