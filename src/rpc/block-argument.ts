/**
 * The blocks that a call reads, from its block number, tag or range. In a call for a block, the tag
 * `latest` becomes the number of the head that callers see. The tags `finalized` and `safe` always
 * become a number. Other calls with `latest` are sent unchanged to a node that has this head.
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
import { HEAD_METHOD, hexNumber, isTag, type Network } from './catalogue.ts';

/** Longer arguments, such as filters with thousands of addresses, are not read. */
const MAX_ARGUMENT_BYTES = 65_536;
const MAX_DEPTH = 256;

/** The numbers of tags. */
interface Numbers {
  numberOf(tag: string): number | undefined;
}

/**
 * Returns the blocks, and sets `call.params` if the argument is changed; `undefined` if the call
 * names none, or if its argument is long.
 */
export function blocksOf(
  body: Buffer,
  call: Call,
  { family }: Network,
  numbers: Numbers,
): Blocks | undefined {
  const { method, span } = call;
  const { block } = method;
  if (block === undefined || !hasParams(body, span)) return undefined;
  const { paramsStart } = span;
  const isByName = body[paramsStart] === OPEN_OBJECT;
  const start = isByName ? paramsStart : elementStart(body, span, block === 'range' ? 0 : block);
  // Without a block, nodes use the newest one.
  if (start < 0) return family === 'evm' && block !== 0 ? newest(numbers) : undefined;
  const end = skipValue(body, start, MAX_DEPTH);
  if (end - start > MAX_ARGUMENT_BYTES) return undefined;
  const text = body.toString('utf8', start, end);
  if (family === 'evm' && body[start] === QUOTE && body[start + 1] !== DIGIT_0) {
    const tag = text.slice(1, -1);
    const number = numberOf(tag, numbers);
    if (tag === 'latest' && block !== 0) return newest(numbers);
    if (number === undefined || tag === 'earliest') return { from: number, to: number };
    if (tag === 'pending') return newest(numbers);
    call.params = changed(body, span, start, end, `"${hexNumber(number)}"`);
    return { from: number, to: number };
  }
  // The request was parsed as JSON before.
  const value: unknown = JSON.parse(text);
  if (block === 'range') {
    const filter = isByName ? member(value, 'filter') : value;
    if (member(filter, 'blockHash') !== undefined) return undefined;
    const from = member(filter, 'fromBlock') ?? member(filter, 'from_block') ?? 'latest';
    const to = member(filter, 'toBlock') ?? member(filter, 'to_block') ?? 'latest';
    const [first, last] = [numberOf(from, numbers), numberOf(to, numbers)];
    if (family === 'evm' && (isFixedTag(from, first) || isFixedTag(to, last))) {
      const fixed = {
        ...(isFixedTag(from, first) && { fromBlock: hexNumber(first) }),
        ...(isFixedTag(to, last) && { toBlock: hexNumber(last) }),
      };
      const text = JSON.stringify({ ...(filter as object), ...fixed });
      call.params = changed(body, span, start, end, text);
    }
    return { from: first, to: last };
  }
  const number = numberOf(isByName ? member(value, 'block_id') : value, numbers);
  return { from: number, to: number };
}

function newest(numbers: Numbers): Blocks {
  const head = numbers.numberOf('latest');
  return { from: head, to: head, isNewest: true };
}

/** Whether a block of a range is a tag whose number all nodes must use. */
function isFixedTag(block: unknown, number: number | undefined): number is number {
  return number !== undefined && isTag(block);
}

/** The params with another text from `start` to `end`. */
function changed(
  body: Buffer,
  { paramsStart, paramsEnd }: Call['span'],
  start: number,
  end: number,
  text: string,
): Buffer {
  return Buffer.concat([
    body.subarray(paramsStart, start),
    Buffer.from(text),
    body.subarray(end, paramsEnd),
  ]);
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

/** A block number as hexadecimal text, a tag, a number, or in an object (EIP-1898, Starknet). */
function numberOf(value: unknown, numbers: Numbers): number | undefined {
  if (typeof value === 'object')
    return numberOf(member(value, 'blockNumber') ?? member(value, 'block_number'), numbers);
  if (value === 'earliest') return 0;
  if (typeof value === 'string' && !value.startsWith('0x')) return numbers.numberOf(value);
  const number = Number(value);
  return value === undefined || Number.isNaN(number) || number < 0 ? undefined : number;
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}
