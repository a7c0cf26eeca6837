/**
 * Rules for every response to any request: no unexpected 5xx, no internals, an error of the
 * catalogue, and a match with the OpenAPI document.
 */
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import type { OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import { targetPath } from '../../src/core/request-target.ts';
import { FAULTS, type FaultCode } from '../../src/core/faults.ts';
import { type ResponseChecker, checkerFor } from '../app/response-checker.ts';
import type { SentResponse } from '../app/sent-responses.ts';
import type { FuzzRequest } from './requests.ts';
import type { Answer } from './send.ts';

/** Errors that a request alone can cause although nothing is broken. */
export interface ExpectedFailure {
  readonly path: RegExp;
  readonly code: FaultCode;
  readonly why: string;
}

export interface VerdictOptions {
  readonly document: OpenApiDocument;
  readonly basePath: string;
  readonly expected: readonly ExpectedFailure[];
  /** Keys, which no response may contain. */
  readonly secrets: readonly string[];
  /** Texts that only the operator may see: addresses of engines, folders. */
  readonly addresses: readonly string[];
}

/** Traces of internals that no message for callers contains. */
const INSIDES: readonly RegExp[] = [
  /\bat (?:async )?[\w$.<>]+ \(/,
  /node:internal/,
  /node_modules/,
  /\bfile:\/\/\/(?!etc\/passwd)/,
  /\.ts:\d+/,
  /\/src\/[a-z-]+\//,
  /\b(?:SQLITE_|ERR_[A-Z]{3,}|ECONN[A-Z]+|ENOENT|EACCES|ENOTFOUND|UND_ERR)\w*/,
  /\b(?:Sqlite|Database|Type|Reference|Range|Zod|Assertion|Aggregate|Busboy|Socket)Error\b/,
  /\bselect .+ from \w+_\w+/i,
  /\b(?:insert into|delete from) \w+_\w+/i,
];

/** Traces of unvalidated values in our messages; messages of the validator contain the received value. */
const UNREAD = [/\[object \w+\]/, /(?<!received )\b(?:undefined|NaN)\b/];

/** Current settings, and the findings of the check. */
const SETTINGS = /\/admin\/(?:config|check)\/?$/;

/** Documents contain code samples. */
const DOCUMENTS = /\/(?:docs|openapi\.json)$/;

export class Verdict {
  readonly #options: VerdictOptions;
  readonly #checker: ResponseChecker;

  constructor(options: VerdictOptions) {
    this.#options = options;
    this.#checker = checkerFor(options.document);
  }

  /** Returns the violated rules. */
  problems(request: FuzzRequest, answer: Answer): string[] {
    const text = unpacked(answer).toString('utf8');
    return [
      ...this.#failure(request, answer, text),
      ...this.#leaks(request, answer, text),
      ...this.#errorProblems(request, answer, text),
      ...this.#misfits(request, answer),
    ];
  }

  #failure(request: FuzzRequest, { status }: Answer, text: string): string[] {
    if (status < 500) return [];
    const code = codeOf(text);
    const path = targetPath(request.target);
    const isExpected = this.#options.expected.some(
      (one) => one.path.test(path) && one.code === code,
    );
    return isExpected ? [] : [`a ${status}`];
  }

  #leaks(request: FuzzRequest, answer: Answer, text: string): string[] {
    const all = `${answer.headers.map((pair) => pair.join(': ')).join('\n')}\n${text}`;
    const sent = [request.target, ...request.headers.flat(), request.body ?? ''].join('\n');
    const path = targetPath(request.target);
    if (DOCUMENTS.test(path)) return this.#found(all, sent, []);
    if (SETTINGS.test(path) && answer.status === 200) {
      return this.#options.secrets.filter((secret) => all.includes(secret));
    }
    // Stored data of other requests can contain any words.
    return this.#found(all, sent, answer.status < 400 ? INSIDES : [...INSIDES, ...UNREAD]);
  }

  /** Secrets and patterns in the response that its caller has not sent. */
  #found(answered: string, sent: string, patterns: readonly RegExp[]): string[] {
    const { secrets, addresses } = this.#options;
    const found = [
      ...[...secrets, ...addresses].filter((text) => answered.includes(text)),
      ...patterns.flatMap((pattern) => pattern.exec(answered)?.[0] ?? []),
    ];
    return found.filter((text) => !isSent(sent, text)).map((text) => `it holds ${text}`);
  }

  /** Returns the violated rules for bytes that may not be HTTP. */
  problemsOfBytes(sent: Buffer, answered: Buffer): string[] {
    const text = answered.toString('latin1');
    if (text === '') return [];
    const statuses = [...text.matchAll(/^HTTP\/1\.1 (\d{3}) /gm)].map(([, status]) =>
      Number(status),
    );
    const code = /"code":"(\w+)"/.exec(text)?.[1];
    return [
      ...(text.startsWith('HTTP/1.1 ') ? [] : ['it is no answer']),
      ...statuses.filter((status) => status >= 500).map((status) => `a ${status}`),
      ...(code === undefined || code in FAULTS ? [] : [`the code ${code} is not in the catalogue`]),
      ...this.#found(text, sent.toString('latin1'), [...INSIDES, ...UNREAD]),
    ];
  }

  #misfits(request: FuzzRequest, answer: Answer): string[] {
    return this.#checker.check(sentAs(request, answer), this.#options.basePath);
  }

  /** Checks the shape of the error, and that the catalogue has its code with this status. */
  #errorProblems(request: FuzzRequest, answer: Answer, text: string): string[] {
    const { status } = answer;
    if (status < 400 || request.method === 'HEAD') return [];
    const body = parsed(text);
    if (body === undefined) return [`a ${status} is no JSON object`];
    if (status === 402 && 'accepts' in body) return [];
    const code = codeOf(text);
    if (code === undefined) return [`a ${status} has no code`];
    if (code in FAULTS && FAULTS[code as FaultCode].status === status) return [];
    // Other protocols have their own codes: those of the catalogue in lower case, or those in
    // examples of the document.
    const described = this.#checker.described(sentAs(request, answer), this.#options.basePath);
    const { examples = {} } = described?.content?.['application/json'] ?? {};
    const named = Object.values(examples).map((one) =>
      codeOf(JSON.stringify('value' in one ? one.value : one)),
    );
    // A 402 about credit has a text of the specification.
    const isListed = described?.description.includes(`\`${code.toUpperCase()}\``) === true;
    return isListed || named.includes(code)
      ? []
      : [`the code ${code} of a ${status} is not documented`];
  }
}

function sentAs(request: FuzzRequest, { status, headers, body }: Answer): SentResponse {
  return {
    method: request.method,
    path: targetPath(request.target),
    status,
    headers: Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value])),
    body,
    isWhole: true,
  };
}

/** Returns the code of the catalogue, from either error format. */
export function codeOf(text: string): string | undefined {
  const body = parsed(text);
  const { code, error } = body ?? {};
  if (typeof code === 'string') return code;
  // Rejected payments have the code in the member that x402 clients read.
  if (typeof error === 'string' && error in FAULTS) return error;
  if (typeof error !== 'object' || error === null) return undefined;
  const inner = 'code' in error ? error.code : undefined;
  // An error of JSON-RPC has a numeric code.
  if (typeof inner === 'number' && 'data' in error) return codeOf(JSON.stringify(error.data));
  return typeof inner === 'string' ? inner.toUpperCase() : undefined;
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    // The caller has checked the type.
    return undefined;
  }
}

/** Data of the caller may be in the response. */
function isSent(sent: string, text: string): boolean {
  const escaped = JSON.stringify(text).slice(1, -1);
  return [sent, decoded(sent)].some((one) => one.includes(text) || one.includes(escaped));
}

function decoded(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(parseInt(hex, 16)),
  );
}

function unpacked({ headers, body }: Answer): Buffer {
  const encoding = headers.find(([name]) => name.toLowerCase() === 'content-encoding')?.[1];
  if (body.length === 0) return body;
  if (encoding === 'br') return brotliDecompressSync(body);
  return encoding === 'gzip' ? gunzipSync(body) : body;
}
