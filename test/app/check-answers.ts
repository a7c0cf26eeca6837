/**
 * Holds every answer that a test's server gives against the OpenAPI document of that very server:
 * status, headers, content type, and JSON bodies and stream events by their schemas. What does not
 * fit fails whatever stops the server; what nobody stopped fails the process when it ends.
 */
import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import type { JsonSchema } from '../../src/api/describe.ts';
import {
  type OpenApiDocument,
  type Operation,
  type OperationContent,
  type OperationResponse,
  PROTOCOL_HEADERS,
} from '../../src/api/openapi/openapi.ts';
import type { App } from '../../src/app.ts';

/** Larger bodies are checked by status and headers alone. */
const MAX_BODY_BYTES = 1024 * 1024;

/** Most misfits that a failure shows. */
const MAX_SHOWN = 20;

/** The answers of one server. */
export interface AnswerCheck {
  /** How many were checked so far. */
  readonly checked: number;
  /** Throws once for what did not fit since the last call. */
  assertFitting(): void;
}

/** Checks that began; each is asked again when the process ends. */
const begun: AnswerCheck[] = [];

/** Checks every answer of the app from here on. */
export function checkAnswers(app: App, basePath: string): AnswerCheck {
  const misfits = new Set<string>();
  let checker: AnswerChecker | undefined;
  let checked = 0;
  app.server.server.prependListener('request', (request: IncomingMessage, response) => {
    record(response, (body) => {
      checker ??= checkerFor(app.openApi());
      checked += 1;
      const path = (request.url ?? '').split('?')[0] ?? '';
      const found = checker.check({ method: request.method ?? '', path, basePath, response, body });
      for (const misfit of found) misfits.add(`${request.method} ${path}: ${misfit}`);
    });
  });
  const check = {
    get checked() {
      return checked;
    },
    assertFitting: () => assertNone(misfits),
  };
  askAtExit(check);
  return check;
}

function assertNone(misfits: Set<string>): void {
  const shown = [...misfits].slice(0, MAX_SHOWN).join('\n');
  const count = misfits.size;
  misfits.clear();
  assert.equal(count, 0, `${count} answers are not as the OpenAPI document says:\n${shown}`);
}

/** A server that no test stops, or that answers after, fails the process: hooks have run by then. */
function askAtExit(check: AnswerCheck): void {
  begun.push(check);
  if (begun.length > 1) return;
  process.once('exit', () => {
    for (const one of begun) {
      try {
        one.assertFitting();
      } catch (error) {
        // Thrown here it would hide the others.
        console.error(error);
        process.exitCode = 1;
      }
    }
  });
}

/** Copies what is written; `undefined` when it was too much or was cut. */
function record(response: ServerResponse, done: (body: Buffer | undefined) => void): void {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  const keep = (chunk: unknown): void => {
    if (typeof chunk !== 'string' && !Buffer.isBuffer(chunk)) return;
    sizeBytes += chunk.length;
    if (sizeBytes <= MAX_BODY_BYTES) chunks.push(Buffer.from(chunk as Buffer));
  };
  const { write, end } = response;
  response.write = function copied(this: ServerResponse, chunk: unknown, ...rest: unknown[]) {
    keep(chunk);
    return (write as (...all: unknown[]) => boolean).call(this, chunk, ...rest);
  } as typeof write;
  response.end = function copied(this: ServerResponse, chunk: unknown, ...rest: unknown[]) {
    keep(chunk);
    return (end as (...all: unknown[]) => ServerResponse).call(this, chunk, ...rest);
  } as typeof end;
  response.once('close', () => {
    const isWhole = response.writableFinished && sizeBytes <= MAX_BODY_BYTES;
    if (response.headersSent) done(isWhole ? Buffer.concat(chunks) : undefined);
  });
}

interface Answer {
  readonly method: string;
  readonly path: string;
  readonly basePath: string;
  readonly response: ServerResponse;
  readonly body: Buffer | undefined;
}

const checkers = new Map<string, AnswerChecker>();

/** Compiling schemas takes longer than most suites; servers with the same document share them. */
function checkerFor(document: OpenApiDocument): AnswerChecker {
  const key = JSON.stringify({ ...document, servers: [] }).replaceAll(/127\.0\.0\.1:\d+/g, '');
  let checker = checkers.get(key);
  if (checker === undefined) {
    checker = new AnswerChecker(document);
    checkers.set(key, checker);
  }
  return checker;
}

interface KnownPath {
  readonly path: string;
  readonly pattern: RegExp;
  readonly isRoot: boolean;
  readonly operations: Readonly<Record<string, Operation>>;
}

/** Of paths that no route has. */
const UNKNOWN_ERROR: JsonSchema = { $ref: '#/components/schemas/Error' };

/** One document's rules. */
export class AnswerChecker {
  readonly #compile: (schema: JsonSchema) => ValidateFunction;
  readonly #paths: readonly KnownPath[];
  readonly #document: OpenApiDocument;

  constructor(document: OpenApiDocument) {
    this.#document = document;
    this.#compile = schemaCompiler(document);
    this.#paths = Object.entries(document.paths).map(([path, operations]) => {
      const pattern = new RegExp(
        `^${path.replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`).replaceAll(/\{[A-Za-z]+\}/g, '[^/]+')}/?$`,
      );
      return { path, pattern, isRoot: 'servers' in operations, operations };
    });
  }

  check(answer: Answer): string[] {
    const { method, response } = answer;
    const known = this.#pathOf(answer);
    // Paths and methods that do not exist are refused alike everywhere; CORS has no document.
    const operation = known?.operations[method.toLowerCase()];
    if (known === undefined || operation === undefined) return this.#checkUnknown(answer);
    const status = String(response.statusCode);
    const described = operation.responses[status];
    if (described === undefined) return [`status ${status} is not documented${codeOf(answer)}`];
    return [...this.#checkHeaders(response, described), ...this.#checkBody(answer, described)];
  }

  #pathOf({ path, basePath }: Answer): KnownPath | undefined {
    const below = path.startsWith(basePath) ? path.slice(basePath.length) : undefined;
    // A fixed path wins over one with parameters, as in the server.
    const found = this.#paths.filter((one) => one.pattern.test(one.isRoot ? path : (below ?? '')));
    return found.find((one) => !one.path.includes('{')) ?? found[0];
  }

  #checkUnknown({ method, response, body }: Answer): string[] {
    if (method === 'OPTIONS' || method === 'HEAD' || body === undefined) return [];
    if (![400, 404, 405, 414, 431, 503].includes(response.statusCode)) {
      return [`status ${response.statusCode} on a path that is not documented`];
    }
    return this.#validate(`the body of a ${response.statusCode}`, UNKNOWN_ERROR, body);
  }

  #checkHeaders(response: ServerResponse, described: OperationResponse): string[] {
    const references = Object.entries(described.headers ?? {});
    const known = new Set(references.map(([name]) => name.toLowerCase()));
    const sent = new Set(Object.keys(headersOf(response)));
    const missing = references.filter(
      ([name, { $ref }]) => this.#isRequired($ref) && !sent.has(name.toLowerCase()),
    );
    const status = response.statusCode;
    return [
      ...[...sent]
        .filter((name) => !PROTOCOL_HEADERS.has(name) && !known.has(name))
        .map((name) => `the header ${name} of a ${status} is not documented`),
      ...missing.map(([name]) => `the header ${name} of a ${status} is missing`),
    ];
  }

  #isRequired(reference: string): boolean {
    const name = reference.replace('#/components/headers/', '');
    return this.#document.components.headers[name]?.required === true;
  }

  #checkBody({ response, body, method }: Answer, described: OperationResponse): string[] {
    const { 'content-type': type = '', 'content-encoding': encoding } = headersOf(response);
    const media = type.split(';')[0] ?? '';
    const content = described.content?.[media];
    const status = response.statusCode;
    if (type === '') return described.content === undefined ? [] : [`a ${status} has no body`];
    if (content === undefined)
      return [`the content type ${media} of a ${status} is not documented`];
    if (body === undefined || method === 'HEAD') return [];
    if (media === 'text/event-stream') return this.#checkEvents(body, content);
    if (media !== 'application/json') return [];
    const plain = encoding === 'br' ? brotliDecompressSync(body) : unpacked(body, encoding);
    return this.#validate(`the body of a ${status}`, content.schema, plain);
  }

  #checkEvents(body: Buffer, content: OperationContent[string]): string[] {
    const schema = content['x-event-schema'];
    if (schema === undefined) return ['events are not documented'];
    const events = body
      .toString()
      .split('\n')
      .filter((line) => line.startsWith('data: ') && line !== 'data: [DONE]');
    return events.flatMap((line) => this.#validate('an event', schema, Buffer.from(line.slice(6))));
  }

  #validate(what: string, schema: JsonSchema, body: Buffer): string[] {
    let value: unknown;
    try {
      value = JSON.parse(body.toString());
    } catch {
      // That is the finding.
      return [`${what} is not JSON: ${body.toString().slice(0, 200)}`];
    }
    const validate = this.#compile(schema);
    if (validate(value)) return [];
    const [first] = validate.errors ?? [];
    const reason = `${first?.instancePath} ${first?.message} ${JSON.stringify(first?.params)}`;
    return [`${what} does not fit: ${reason}: ${JSON.stringify(value).slice(0, 400)}`];
  }
}

function codeOf({ body }: Answer): string {
  return body === undefined ? '' : `: ${body.toString().slice(0, 200)}`;
}

function unpacked(body: Buffer, encoding: string | undefined): Buffer {
  return encoding === 'gzip' ? gunzipSync(body) : body;
}

/** Headers as they were written, by lower-case name. */
function headersOf(response: ServerResponse): Readonly<Record<string, string>> {
  // What `writeHead` got as a flat list is only in the text that was sent.
  const text = String((response as unknown as { _header: string | null })._header ?? '');
  const lines = text
    .split('\r\n')
    .slice(1)
    .filter((line) => line.includes(':'));
  return Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
}

/** Compiles schemas of the document; what they refer to is compiled once for all of them. */
export function schemaCompiler(
  document: OpenApiDocument,
): (schema: JsonSchema) => ValidateFunction {
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    ajv.addSchema(withNames(schema) as object, `component:${name}`); // a schema stays an object
  }
  const compiled = new Map<JsonSchema, ValidateFunction>();
  return (schema) => {
    const known = compiled.get(schema);
    if (known !== undefined) return known;
    const validate = ajv.compile(withNames(schema) as object); // as above
    compiled.set(schema, validate);
    return validate;
  };
}

/** The schema with its references to components by their names. */
function withNames(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(withNames);
  if (typeof node !== 'object' || node === null) return node;
  return Object.fromEntries(
    Object.entries(node).map(([key, value]) => [
      key,
      key === '$ref'
        ? String(value).replace('#/components/schemas/', 'component:')
        : withNames(value),
    ]),
  );
}
