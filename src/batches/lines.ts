/**
 * Reads the lines of an input file one by one, parses them, and validates all of them before any of
 * them runs. The memory contains one line and a digest of each `custom_id`, never the whole file.
 */
import { sha256Hex } from '../core/ids.ts';
import { Fault } from '../core/faults.ts';
import { parseJsonObject, isJsonObject, type JsonObject } from '../json/json-scan.ts';
import type { BatchProblem } from './batch.ts';

/** Limit of a line, because several are in memory at once. */
export const MAX_LINE_BYTES = 10_000_000;
const MAX_CUSTOM_ID_CHARS = 512;
const NEWLINE = 0x0a;
const BYTE_ORDER_MARK = '\ufeff';
/** Hex digits of a digest that distinguish a hundred thousand ids. */
const ID_DIGITS = 24;
/** OpenAI clients begin with the version, other clients with the base path. */
const PREFIX = /^(?:\/api)?\/v1(?=\/)/;

export interface Line {
  /** From 1. */
  readonly number: number;
  /** Without the line end; `undefined` if the line is too long. */
  readonly bytes: Buffer | undefined;
}

export interface LineRequest {
  readonly number: number;
  readonly customId: string;
  /** The exact bytes of the file. */
  readonly body: Buffer;
  /** Model of the body; empty without one. */
  readonly model: string;
}

export interface Endpoint {
  /** Below the base path: `/chat/completions`. */
  readonly path: string;
  /** Error text for the model of a request; `undefined` if it may be used. */
  readonly modelProblem: (model: string) => string | undefined;
}

export function pathOf(endpoint: string): string {
  return endpoint.replace(PREFIX, '');
}

/** Yields the lines of a file without empty ones. */
export async function* linesOf(content: AsyncIterable<Buffer>): AsyncGenerator<Line> {
  let number = 0;
  let parts: Buffer[] = [];
  let partBytes = 0;
  const take = (rest: Buffer): Line | undefined => {
    number += 1;
    const isLong = partBytes + rest.length > MAX_LINE_BYTES;
    const bytes = isLong ? undefined : trimmed(Buffer.concat([...parts, rest]), number);
    parts = [];
    partBytes = 0;
    return bytes?.length === 0 ? undefined : { number, bytes };
  };
  for await (const piece of content) {
    let start = 0;
    for (;;) {
      // A file of empty lines must not cost work for each.
      const from = partBytes === 0 ? afterBlanks(piece, start) : start;
      for (let at = start; at < from; at += 1) if (piece[at] === NEWLINE) number += 1;
      start = from;
      const end = piece.indexOf(NEWLINE, start);
      if (end < 0) break;
      const line = take(piece.subarray(start, end));
      if (line !== undefined) yield line;
      start = end + 1;
    }
    if (start === piece.length) continue;
    const rest = piece.subarray(start);
    partBytes += rest.length;
    // A line that is too long is not stored.
    if (partBytes <= MAX_LINE_BYTES) parts.push(rest);
    else parts = [];
  }
  const last = partBytes > 0 ? take(EMPTY) : undefined;
  if (last !== undefined) yield last;
}

const EMPTY = Buffer.alloc(0);

/** Removes white space, and a byte order mark from the first line. */
function trimmed(bytes: Buffer, number: number): Buffer {
  let start = 0;
  let end = bytes.length;
  if (number === 1 && bytes.subarray(0, 3).toString() === BYTE_ORDER_MARK) start = 3;
  while (start < end && isSpace(bytes[start])) start += 1;
  while (end > start && isSpace(bytes[end - 1])) end -= 1;
  return bytes.subarray(start, end);
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

function afterBlanks(bytes: Buffer, start: number): number {
  let at = start;
  while (bytes[at] === NEWLINE || isSpace(bytes[at])) at += 1;
  return at;
}

/** The request of a valid line; throws for an invalid one. */
export function requestOf(line: Line): LineRequest {
  const read = readLine(line);
  if ('problem' in read) throw new Error(`The line ${line.number} was validated, but is invalid`);
  return read.request;
}

type ReadLine =
  | { readonly request: LineRequest; readonly members: JsonObject; readonly body: JsonObject }
  | { readonly problem: Omit<BatchProblem, 'line'> };

function readLine({ number, bytes }: Line): ReadLine {
  if (bytes === undefined) {
    const message = `The line must have at most ${MAX_LINE_BYTES} bytes`;
    return { problem: { code: 'line_too_long', message, param: null } };
  }
  let parsed;
  try {
    parsed = parseJsonObject(bytes);
  } catch (error) {
    // Other errors are bugs.
    if (!(error instanceof Fault)) throw error;
    const message = `The line must be a JSON object: ${error.message}`;
    return { problem: { code: 'invalid_json_line', message, param: null } };
  }
  const members = parsed.body;
  const { custom_id: customId, body } = members;
  if (typeof customId !== 'string' || customId === '' || customId.length > MAX_CUSTOM_ID_CHARS) {
    const message = `Must be a string of 1 to ${MAX_CUSTOM_ID_CHARS} characters`;
    return { problem: { code: 'invalid_custom_id', message, param: 'custom_id' } };
  }
  // The last of several members with one name counts.
  const span = parsed.members.findLast(({ key }) => key === 'body');
  if (!isJsonObject(body) || span === undefined) {
    const message = 'Must be the JSON object that the endpoint accepts';
    return { problem: { code: 'invalid_body', message, param: 'body' } };
  }
  const model = typeof body['model'] === 'string' ? body['model'] : '';
  const request = { number, customId, body: bytes.subarray(span.valueStart, span.end), model };
  return { request, members, body };
}

export class LineChecks {
  readonly #endpoint: Endpoint;
  readonly #maxRequests: number;
  readonly #ids = new Set<string>();
  readonly #maxProblems: number;
  readonly problems: BatchProblem[] = [];
  total = 0;

  constructor(endpoint: Endpoint, bounds: { maxRequests: number; maxProblems: number }) {
    this.#endpoint = endpoint;
    this.#maxRequests = bounds.maxRequests;
    this.#maxProblems = bounds.maxProblems;
  }

  /** Validates a line; returns `false` if no further line needs to be validated. */
  add(line: Line): boolean {
    this.total += 1;
    if (this.total > this.#maxRequests) {
      const message = `A batch has at most ${this.#maxRequests} requests`;
      this.problems.push({ code: 'too_many_requests', message, param: null, line: line.number });
      return false;
    }
    const problem = this.#problemOf(line);
    if (problem !== undefined) this.problems.push({ ...problem, line: line.number });
    return this.problems.length < this.#maxProblems;
  }

  /** Call this at the end of the file. */
  end(): void {
    if (this.total > 0) return;
    const message = 'The file has no requests: write one JSON object per line';
    this.problems.push({ code: 'empty_file', message, param: null, line: null });
  }

  #problemOf(line: Line): Omit<BatchProblem, 'line'> | undefined {
    const read = readLine(line);
    if ('problem' in read) return read.problem;
    const { request, members, body } = read;
    const id = sha256Hex(request.customId).slice(0, ID_DIGITS);
    if (this.#ids.has(id)) {
      const message = 'Must be unique: another line has the same custom_id';
      return { code: 'duplicate_custom_id', message, param: 'custom_id' };
    }
    this.#ids.add(id);
    if (members['method'] !== 'POST') {
      return { code: 'invalid_method', message: 'Must be "POST"', param: 'method' };
    }
    const { path, modelProblem } = this.#endpoint;
    if (typeof members['url'] !== 'string' || pathOf(members['url']) !== path) {
      const message = `Must be the endpoint of the batch, "/v1${path}"`;
      return { code: 'invalid_url', message, param: 'url' };
    }
    if (body['stream'] === true) {
      const message = 'Must not be true: batches have no streaming responses';
      return { code: 'invalid_stream', message, param: 'body.stream' };
    }
    const problem = modelProblem(request.model);
    return problem === undefined
      ? undefined
      : { code: 'model_not_found', message: problem, param: 'body.model' };
  }
}
