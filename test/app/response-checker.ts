/**
 * Validates a response against the OpenAPI document: status, headers, content type, and the schemas
 * of JSON bodies and stream events.
 */
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import * as z from 'zod';
import type { JsonSchema } from '../../src/http/describe.ts';
import {
  HEADER_GROUPS,
  type OpenApiDocument,
  type OperationContent,
  type OperationResponse,
  PROTOCOL_HEADERS,
} from '../../src/http/openapi/openapi.ts';
import { type WholeOperation, wholeOperation } from './whole-operation.ts';
import type { Route } from '../../src/http/route.ts';
import type { SentResponse } from './sent-responses.ts';

const checkers = new Map<string, ResponseChecker>();
const known = new WeakMap<OpenApiDocument, ResponseChecker>();

/** Compiling schemas takes longer than most suites; servers with the same document share them. */
export function checkerFor(document: OpenApiDocument): ResponseChecker {
  const same = known.get(document);
  if (same !== undefined) return same;
  const key = JSON.stringify({ ...document, servers: [] }).replaceAll(/127\.0\.0\.1:\d+/g, '');
  let checker = checkers.get(key);
  if (checker === undefined) {
    checker = new ResponseChecker(document);
    checkers.set(key, checker);
  }
  known.set(document, checker);
  return checker;
}

/** By what their documents are made of. */
const checkersOfRoutes = new Map<string, ResponseChecker>();
const schemaNumbers = new WeakMap<z.ZodType, number>();
let schemas = 0;

/**
 * Generating the document takes longer than most tests. Servers with the same routes, schemas and
 * settings share it.
 */
export function checkerOf(
  app: { readonly routes: readonly Route[]; openApi(): OpenApiDocument },
  settings: unknown,
): ResponseChecker {
  const key = JSON.stringify([settings, app.routes], (_name, value: unknown) => {
    if (!(value instanceof z.ZodType)) return value;
    const number = schemaNumbers.get(value) ?? (schemas += 1);
    schemaNumbers.set(value, number);
    return number;
  });
  let checker = checkersOfRoutes.get(key);
  if (checker === undefined) {
    checker = checkerFor(app.openApi());
    checkersOfRoutes.set(key, checker);
  }
  return checker;
}

interface KnownPath {
  readonly path: string;
  readonly pattern: RegExp;
  readonly isRoot: boolean;
  readonly operations: Readonly<Record<string, WholeOperation>>;
}

/** For paths without a route. */
const UNKNOWN_ERROR: JsonSchema = {
  // OpenAI's shape is given on request, here as everywhere.
  anyOf: [{ $ref: '#/components/schemas/Error' }, { $ref: '#/components/schemas/OpenAiError' }],
};

/** One document's rules. */
export class ResponseChecker {
  readonly #compile: (schema: JsonSchema) => ValidateFunction;
  readonly #paths: readonly KnownPath[];
  readonly #document: OpenApiDocument;
  /** Headers of responses on unknown paths, in lower case. */
  readonly #ofUnknown: ReadonlySet<string>;

  constructor(document: OpenApiDocument) {
    this.#document = document;
    this.#ofUnknown = headersOfUnknown(document);
    this.#compile = schemaCompiler(document);
    this.#paths = Object.entries(document.paths).map(([path, operations]) => {
      const pattern = new RegExp(
        `^${path.replaceAll(/[.*+?^$()|[\]\\]/g, String.raw`\$&`).replaceAll(/\{[A-Za-z]+\}/g, '[^/]*')}$`,
      );
      const whole = Object.entries(operations)
        .filter(([method]) => method !== 'servers')
        .map(([method, operation]) => [method, wholeOperation(operation, document)]);
      return {
        path,
        pattern,
        isRoot: 'servers' in operations,
        // These have the same methods.
        operations: Object.fromEntries(whole) as KnownPath['operations'],
      };
    });
  }

  /** Returns the description of a response; `undefined` for an unknown path, method or status. */
  described(answer: SentResponse, basePath: string): OperationResponse | undefined {
    const operation = this.#pathOf(answer, basePath)?.operations[answer.method.toLowerCase()];
    return operation && responseOf(operation, answer.status);
  }

  check(answer: SentResponse, basePath: string): string[] {
    const { method } = answer;
    const known = this.#pathOf(answer, basePath);
    // Paths and methods that do not exist are refused alike everywhere; CORS has no document.
    const operation = known?.operations[methodIn(known.operations, method)];
    if (known === undefined || operation === undefined) return this.#checkUnknown(answer);
    const described = responseOf(operation, answer.status);
    if (described === undefined)
      return [`status ${answer.status} is not documented${codeOf(answer)}`];
    return [...this.#checkHeaders(answer, described), ...this.#checkBody(answer, described)];
  }

  #pathOf({ method, path }: SentResponse, basePath: string): KnownPath | undefined {
    // The router ignores one slash at the end.
    const root = path === '/' ? path : path.replace(/\/$/, '');
    const below = root.startsWith(basePath) ? root.slice(basePath.length) : '';
    const found = this.#paths.filter((one) => one.pattern.test(one.isRoot ? root : below));
    // A fixed path wins over one with parameters where it has the method, as in the server.
    const fixed = found.find((one) => !one.path.includes('{'));
    const has = ({ operations }: KnownPath) => methodIn(operations, method) in operations;
    if (fixed !== undefined && has(fixed)) return fixed;
    return found.find(has) ?? fixed ?? found[0];
  }

  #checkUnknown(answer: SentResponse): string[] {
    const { method, status, body } = answer;
    if (method === 'OPTIONS') return [];
    if (![400, 404, 405, 414, 503].includes(status)) {
      return [`status ${status} on a path that is not documented`];
    }
    const sent = Object.keys(answer.headers);
    const unknown = sent.filter(
      (name) => !PROTOCOL_HEADERS.has(name) && !this.#ofUnknown.has(name),
    );
    return [
      ...unknown.map((name) => `the header ${name} of a ${status} is not documented`),
      ...(method === 'HEAD' || !answer.isWhole
        ? []
        : this.#validate(`the body of a ${status}`, UNKNOWN_ERROR, body)),
    ];
  }

  #checkHeaders(answer: SentResponse, described: OperationResponse): string[] {
    const { every, callers, refusals, pricedRefusals } = this.#document['x-common-headers'];
    // A response has one example, such as the 503 of a probe; error responses have one per code.
    const isRefusal = described.content?.['application/json']?.examples !== undefined;
    const references = Object.entries({
      ...every.headers,
      ...callers.headers,
      ...(isRefusal && answer.status >= 400 ? refusals.headers : {}),
      ...described.headers,
    });
    const known = new Set(references.map(([name]) => name.toLowerCase()));
    // A payment that is under way is refused with a 202, without having failed.
    if (answer.status === 202 || answer.status >= 400) {
      const others = { ...pricedRefusals.headers, ...refusals.headers };
      for (const name of Object.keys(others)) known.add(name.toLowerCase());
    }
    const sent = new Set(Object.keys(answer.headers));
    const missing = references.filter(
      ([name, { $ref }]) => this.#isRequired($ref) && !sent.has(name.toLowerCase()),
    );
    const { status } = answer;
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

  #checkBody(answer: SentResponse, described: OperationResponse): string[] {
    const { method, status, headers, body, isWhole } = answer;
    const { 'content-type': type = '', 'content-encoding': encoding } = headers;
    const media = type.split(';')[0] ?? '';
    if (type === '') return described.content === undefined ? [] : [`a ${status} has no body`];
    const content = described.content?.[media];
    if (content === undefined) {
      return [`the content type ${media} of a ${status} is not documented`];
    }
    if (method === 'HEAD') return [];
    if (media === 'text/event-stream') return this.#checkEvents(body, content);
    if (media !== 'application/json' || !isWhole) return [];
    return this.#validate(`the body of a ${status}`, content.schema, unpacked(body, encoding));
  }

  #checkEvents(body: Buffer, content: OperationContent[string]): string[] {
    const schema = content['x-event-schema'];
    if (schema === undefined) return ['events are not documented'];
    // The last event of a cut stream is incomplete.
    const text = body.toString();
    const events = text
      .slice(0, text.lastIndexOf('\n\n') + 1)
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

/** Every GET also supports HEAD, which the document states once. */
function methodIn(operations: KnownPath['operations'], method: string): string {
  return method === 'HEAD' && !('head' in operations) ? 'get' : method.toLowerCase();
}

function codeOf({ body }: SentResponse): string {
  return `: ${body.toString().slice(0, 200)}`;
}

function unpacked(body: Buffer, encoding: string | undefined): Buffer {
  if (encoding === 'br') return brotliDecompressSync(body);
  return encoding === 'gzip' ? gunzipSync(body) : body;
}

/** The document puts the service's own name in; a component is named like its header. */
function headersOfUnknown(document: OpenApiDocument): ReadonlySet<string> {
  const [service = 'svc'] = Object.keys(document.components.headers).flatMap((name) =>
    name.endsWith('-host-name') ? [name.slice('x-'.length, -'-host-name'.length)] : [],
  );
  // A caller is known by its key on a path that is not.
  const { standard, error, allow, balance, rate } = HEADER_GROUPS;
  const groups = [standard, error, allow, balance, rate].flat();
  return new Set(groups.map(({ name }) => name.replace('x-svc-', `x-${service}-`).toLowerCase()));
}

/** Compiles schemas of the document; what they refer to is compiled once for all of them. */
export function schemaCompiler(
  document: OpenApiDocument,
): (schema: JsonSchema) => ValidateFunction {
  // That the schemas are good ones is a test of the document, once.
  const ajv = new Ajv2020({ strict: false, validateFormats: false, validateSchema: false });
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

/** A pending payment is a 202, which is not a response of the operation. */
function responseOf(operation: WholeOperation, status: number): OperationResponse | undefined {
  if (status === 202 && operation['x-pending-payment']) return operation['x-pending-payment'];
  return operation.responses[String(status)];
}
