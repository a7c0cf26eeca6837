/**
 * The facts about a failed request that its record may contain: parameters without the prompt, and
 * messages without secrets and without text of the request.
 */
import { withoutSecrets } from '../core/known-secrets.ts';
import { isJsonObject } from '../json/json-scan.ts';
import { parsedJson } from '../json/json-text.ts';

/** Larger bodies are described by their size only, because parsing them takes too long. */
const MAX_PARSED_BYTES = 128 * 1_024;
const MAX_PARAMETERS = 30;
const MAX_VALUE_CHARS = 80;
const MAX_MESSAGE_CHARS = 500;

/** Fields of requests whose text is a choice, and never content of the caller. */
const CHOICES = new Set([
  'model',
  'models',
  'method',
  'jsonrpc',
  'voice',
  'format',
  'response_format',
  'output_format',
  'encoding_format',
  'size',
  'quality',
  'style',
  'background',
  'language',
  'aspect_ratio',
  'resolution',
  'duration',
  'effort',
  'reasoning_effort',
  'verbosity',
  'service_tier',
  'tool_choice',
  'truncation',
  'type',
  'role',
  'completion_window',
  'endpoint',
  'enable_web_search',
  'enable_web_citations',
]);

/** The body of a request, read once for its record. */
export interface ReadBody {
  readonly bytes: number;
  /** `undefined` if the body is no JSON, or too large. */
  readonly json: unknown;
}

/** `bytes`: size of the body, of which `body` can be a part or nothing if the route streams it. */
export function readBody(body: Buffer, bytes: number): ReadBody {
  const isReadable = body.length === bytes && bytes <= MAX_PARSED_BYTES;
  return { bytes, json: isReadable ? parsedJson(body.toString('utf8')) : undefined };
}

/** Numbers, switches and choices of a request, and the number of items of its lists. */
export function parametersOf({ bytes, json }: ReadBody): Readonly<Record<string, string | number>> {
  const found: Record<string, string | number> = bytes === 0 ? {} : { body: `${bytes} bytes` };
  if (Array.isArray(json)) found['batch'] = `${json.length} calls`;
  const fields = Array.isArray(json) ? json[0] : json;
  if (isJsonObject(fields)) addParameters(found, fields, '', 0);
  return found;
}

function addParameters(
  found: Record<string, string | number>,
  fields: Readonly<Record<string, unknown>>,
  prefix: string,
  depth: number,
): void {
  for (const [name, value] of Object.entries(fields)) {
    if (Object.keys(found).length >= MAX_PARAMETERS) return;
    // A name can be content too, such as the key of a tag.
    if (!/^[\w.-]{1,40}$/.test(name)) continue;
    const label = prefix + name;
    if (typeof value === 'number') found[label] = value;
    else if (typeof value === 'boolean') found[label] = String(value);
    else if (typeof value === 'string' && CHOICES.has(name)) {
      found[label] = value.slice(0, MAX_VALUE_CHARS);
    } else if (Array.isArray(value)) found[label] = `${value.length} items`;
    else if (
      isJsonObject(value) &&
      depth === 0 &&
      /_(?:parameters|options|format)$|^reasoning$/.test(name)
    ) {
      addParameters(found, value, `${label}.`, 1);
    }
  }
}

/** Texts that look like credentials of any issuer. */
const CREDENTIALS = [
  /\b(?:sk|pk|rk|gsk|xai|key|whsec|ghp|hf|AKIA|AIza)[-_][\w-]{8,}/g,
  /\bSVC_[A-Z]+_KEY_\w+/g,
  /\b[A-Z]{2,}_(?:INFERENCE|ADMIN)_KEY_\w+/g,
  /\beyJ[\w-]{10,}\.[\w-]{5,}\.[\w-]*/g,
  /\b(bearer|basic)\s+[\w.~+/=-]{6,}/gi,
  /\b(api[-_ ]?key|token|secret|password|authorization)\b["']?\s*[:=]\s*["']?[^\s"',;&]{6,}/gi,
];
const URLS = /\b([a-z][a-z\d+.-]{1,20}):\/\/(?:[^\s/@"'<>]*@)?([^\s/?#"'<>]+)[^\s"'<>)]*/gi;

export class Scrubber {
  readonly #secrets: readonly string[];
  readonly #content: Content;
  readonly #isContentKnown: boolean;

  /** `secrets`: configured credentials. The texts of the body are removed from messages too. */
  constructor(secrets: readonly string[], { bytes, json }: ReadBody) {
    this.#secrets = secrets;
    this.#content = contentOf(json);
    this.#isContentKnown = json !== undefined || bytes === 0;
  }

  /** One bounded line without credentials; a URL is shortened to its host. */
  scrub(text: string): string {
    let line = withoutSecrets(text.slice(0, 4 * MAX_MESSAGE_CHARS), this.#secrets);
    line = line.replaceAll(URLS, '$1://$2');
    for (const pattern of CREDENTIALS) line = line.replaceAll(pattern, '[secret]');
    line = line.replaceAll(/\s+/g, ' ').trim();
    return line.length > MAX_MESSAGE_CHARS ? `${line.slice(0, MAX_MESSAGE_CHARS)}…` : line;
  }

  /** As `scrub`, for a text that can repeat the prompt, such as the message of an engine. */
  scrubWords(words: string): string {
    if (words === '') return '';
    return this.#isContentKnown ? this.#withoutContent(this.scrub(words)) : UNKNOWN_WORDS;
  }

  /** As `scrubWords`, for a message of Farebox, which can end with the message of an engine. */
  scrubMessage(message: string): string {
    if (this.#isContentKnown) return this.scrubWords(message);
    return this.scrub(message).replace(/(?<=rejected the request: ).*/, UNKNOWN_WORDS);
  }

  /** Removes the runs of characters that the request contains too, and its quoted short texts. */
  #withoutContent(line: string): string {
    const isContent = Array.from<boolean>({ length: line.length });
    for (const at of commonRuns(line, this.#content.long)) {
      isContent.fill(true, at, at + RUN_CHARS);
    }
    let kept = '';
    for (let at = 0; at < line.length; at += 1) {
      if (isContent[at] !== true) kept += line[at] ?? '';
      else if (isContent[at - 1] !== true) kept += OMITTED;
    }
    for (const text of this.#content.short) {
      for (const quote of [`"`, `'`, '`']) {
        kept = kept.replaceAll(quote + text + quote, quote + OMITTED + quote);
      }
    }
    return kept;
  }
}

const UNKNOWN_WORDS = '[not stored: it can contain text of the request]';
const OMITTED = '[text of the request]';
/** Shorter runs, such as the name of a parameter, are in many messages by chance. */
const RUN_CHARS = 12;
const MAX_SHORT_TEXTS = 50;

interface Content {
  /** The texts of the request with single spaces. */
  readonly long: string;
  /** Texts that are too short for the comparison of runs. */
  readonly short: readonly string[];
}

/** The content texts of a body, without its choices, which explain a failure. */
function contentOf(json: unknown): Content {
  const long: string[] = [];
  const short: string[] = [];
  // Without recursion: a rejected body can have more levels than the stack.
  const values: (readonly [value: unknown, name: string])[] = [[json, '']];
  for (const [value, name] of values) {
    if (typeof value === 'string') {
      if (CHOICES.has(name)) continue;
      const text = value.replaceAll(/\s+/g, ' ').trim();
      if (text.length >= RUN_CHARS) long.push(text);
      else if (text !== '' && short.length < MAX_SHORT_TEXTS) short.push(text);
    } else if (Array.isArray(value)) for (const item of value) values.push([item, name]);
    else if (isJsonObject(value)) {
      for (const [key, item] of Object.entries(value)) values.push([item, key]);
    }
  }
  return { long: long.join('\n'), short };
}

const HASH_BASE = 257;
const HASH_OF_FIRST = Array.from({ length: RUN_CHARS - 1 }).reduce<number>(
  (power) => Math.imul(power, HASH_BASE),
  1,
);

/**
 * Positions in `line` from which `RUN_CHARS` characters are in `content` too: Rabin-Karp, because
 * one search of the content for each position would take a second for a long prompt.
 */
function commonRuns(line: string, content: string): number[] {
  const open = new Map<number, number[]>();
  eachRun(line, (hash, at) => {
    const others = open.get(hash);
    if (others === undefined) open.set(hash, [at]);
    else others.push(at);
  });
  const found: number[] = [];
  eachRun(content, (hash, from) => {
    const positions = open.get(hash);
    if (positions === undefined) return;
    const run = content.slice(from, from + RUN_CHARS);
    const left = positions.filter((at) => line.slice(at, at + RUN_CHARS) !== run);
    if (left.length === positions.length) return;
    found.push(...positions.filter((at) => !left.includes(at)));
    if (left.length === 0) open.delete(hash);
    else open.set(hash, left);
  });
  return found;
}

/** Calls `visit` with the hash of each run of `RUN_CHARS` characters. */
function eachRun(text: string, visit: (hash: number, at: number) => void): void {
  let hash = 0;
  for (let end = 0; end < text.length; end += 1) {
    const at = end - RUN_CHARS;
    if (at >= 0) hash = (hash - Math.imul(text.charCodeAt(at), HASH_OF_FIRST)) | 0;
    hash = (Math.imul(hash, HASH_BASE) + text.charCodeAt(end)) | 0;
    if (at >= -1) visit(hash, at + 1);
  }
}
