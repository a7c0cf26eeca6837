/**
 * Requests to one operation of the document: path, query, headers and body. Each part is usually
 * valid, so that requests reach the others, and sometimes invalid.
 */
import fc from 'fast-check';
import type { OperationParameter } from '../../src/http/openapi/openapi.ts';
import { type WholeOperation } from '../app/whole-operation.ts';
import { type Body, brokenJsonBody, encoded, formBody, jsonBody, partsBodies } from './bodies.ts';
import { HOSTILE_TEXTS, hostileText, hostileValue } from './hostile.ts';
import { type ValueSource, fitting, nearly } from './values.ts';

export interface FuzzTarget {
  readonly path: string;
  readonly method: string;
  readonly operation: WholeOperation;
  /** Prefix of the path: the base path, or nothing. */
  readonly base: string;
}

/** Credentials of a caller. */
export interface Credentials {
  /** Valid values of `Authorization`, by the security scheme of the document. */
  readonly authorization: Readonly<Record<'apiKey' | 'adminKey' | 'wallet', readonly string[]>>;
  /** Known values that are rejected somewhere: revoked, without credit, of another account. */
  readonly others: readonly string[];
  /** Signed headers, some of them used. */
  readonly signIns: readonly string[];
  readonly payments: readonly string[];
}

export interface FuzzSource extends ValueSource {
  readonly credentials: Credentials;
  /** Valid bodies by path, because random ones rarely satisfy dependencies between members. */
  readonly bodies: Readonly<Record<string, readonly unknown[]>>;
  /** Files for forms. */
  readonly files: readonly Buffer[];
}

export class FuzzRequest {
  readonly method: string;
  /** Path and query on the wire. */
  readonly target: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer | undefined;

  constructor(parts: Pick<FuzzRequest, 'method' | 'target' | 'headers' | 'body'>) {
    this.method = parts.method;
    this.target = parts.target;
    this.headers = parts.headers;
    this.body = parts.body;
  }

  /** Formats the request as HTTP for a failure, shortened. */
  [fc.toStringMethod](): string {
    const head = [`${this.method} ${this.target}`, ...this.headers.map((pair) => pair.join(': '))];
    const body = JSON.stringify(this.body?.toString('utf8') ?? '');
    return `\n${head.map(short).join('\n')}\n\n${short(body)}\n`;
  }
}

const MAX_SHOWN_CHARS = 2_000;

function short(text: string): string {
  return text.length <= MAX_SHOWN_CHARS
    ? text
    : `${text.slice(0, MAX_SHOWN_CHARS)}… (${text.length})`;
}

/** Generates requests to an operation. */
export function requestsOf(target: FuzzTarget, source: FuzzSource): fc.Arbitrary<FuzzRequest> {
  return fc
    .record({
      method: methodsOf(target),
      path: pathsOf(target, source),
      query: queriesOf(target, source),
      credentials: credentialsOf(target, source.credentials),
      further: furtherHeaders,
      key: idempotencyKeys(target),
      body: bodiesOf(target, source),
    })
    .map(({ method, path, query, credentials, further, key, body }) => {
      const headers = Object.entries({ ...credentials, ...key, ...further, ...body?.headers });
      return new FuzzRequest({
        method,
        target: `${target.base}${path}${query === '' ? '' : `?${query}`}`,
        headers: headers.filter(([, value]) => isHeaderValue(value)),
        body: body?.bytes,
      });
    });
}

/** Headers that an HTTP client can send; `heads.ts` sends others by socket. */
function isHeaderValue(value: string): boolean {
  return /^[\t\u0020-\u007e\u0080-\u00ff]*$/.test(value);
}

function methodsOf({ method }: FuzzTarget): fc.Arbitrary<string> {
  const others = [
    'GET',
    'HEAD',
    'POST',
    'PUT',
    'PATCH',
    'DELETE',
    'OPTIONS',
    'TRACE',
    'PROPFIND',
    'QUERY',
  ];
  return fc.oneof(
    { weight: 40, arbitrary: fc.constant(method.toUpperCase()) },
    { weight: 1, arbitrary: fc.constantFrom(...others) },
  );
}

/** Invalid values of a path, already encoded. */
const PATH_PIECES = [
  '%',
  '%zz',
  '%00',
  '%2e%2e%2f',
  '..',
  '%2F',
  '%ff',
  '%c0%af',
  '%ED%A0%80',
  '*',
  ':id',
  'a;b=c',
  'a%20b',
  'a'.repeat(201),
  '%41'.repeat(300),
];

function pathsOf({ path }: FuzzTarget, { known }: FuzzSource): fc.Arbitrary<string> {
  const pieces = path.split(/(\{[A-Za-z]+\})/).map((piece) => {
    const name = /^\{([A-Za-z]+)\}$/.exec(piece)?.[1];
    return name === undefined ? fc.constant(piece) : pathValues(known[`path:${name}`] ?? []);
  });
  const right = fc.tuple(...pieces).map((made) => made.join(''));
  const turned = fc
    .tuple(right, fc.constantFrom('/', '//', '/.', '%20', '/x', ';a', '#a', 'upper'))
    .map(([made, ending]) => (ending === 'upper' ? made.toUpperCase() : made + ending));
  return fc.oneof({ weight: 30, arbitrary: right }, { weight: 1, arbitrary: turned });
}

function pathValues(known: readonly unknown[]): fc.Arbitrary<string> {
  const wrong = fc.oneof(fc.constantFrom(...PATH_PIECES), hostileText.map(encodedPiece));
  if (known.length === 0) return wrong;
  return fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(...known).map((value) => encoded(String(value))) },
    { weight: 1, arbitrary: wrong },
  );
}

/** `heads.ts` tests heads above the limit of Node. */
function encodedPiece(text: string): string {
  return encoded(text).slice(0, 3_000);
}

function queriesOf({ operation }: FuzzTarget, source: FuzzSource): fc.Arbitrary<string> {
  const parameters = (operation.parameters ?? []).filter((one) => one.in === 'query');
  const pairs = parameters.map((one) => queryPairs(one, source));
  const extra = fc.oneof(
    { weight: 8, arbitrary: fc.constant('') },
    {
      weight: 1,
      arbitrary: fc
        .tuple(hostileText, hostileText)
        .map(([a, b]) => `${encodedPiece(a)}=${encodedPiece(b)}`),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom('%', '%zz=%zz', '=', '&&&', 'a[b]=1&a[c]=2', '__proto__=1', '?'),
    },
  );
  return fc.tuple(...pairs, extra).map((made) => made.filter((pair) => pair !== '').join('&'));
}

function queryPairs(one: OperationParameter, source: FuzzSource): fc.Arbitrary<string> {
  const right = fitting(one.schema, source, `query:${one.name}`).map(textOf);
  const value = fc.oneof(
    { weight: 5, arbitrary: right },
    { weight: 2, arbitrary: hostileText },
    { weight: 1, arbitrary: hostileValue.map(textOf) },
  );
  const pair = value.map((made) => `${one.name}=${encodedPiece(made)}`);
  return fc.oneof(
    { weight: one.required ? 1 : 4, arbitrary: fc.constant('') },
    { weight: one.required ? 10 : 3, arbitrary: pair },
    { weight: 1, arbitrary: fc.tuple(pair, pair).map((both) => both.join('&')) },
  );
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

type Headers = Readonly<Record<string, string>>;

function credentialsOf({ operation }: FuzzTarget, known: Credentials): fc.Arbitrary<Headers> {
  const schemes = (operation.security ?? []).flatMap((scheme) => Object.keys(scheme));
  const { authorization, others, signIns, payments } = known;
  const right = schemes.flatMap((scheme) => authorization[scheme as keyof typeof authorization]);
  const all = [...Object.values(authorization).flat(), ...others];
  const bearer = (values: readonly string[]) =>
    fc.constantFrom(...values).map((value): Headers => ({ authorization: value }));
  return fc.oneof(
    { weight: 20, arbitrary: bearer(right.length === 0 ? all : right) },
    { weight: 3, arbitrary: bearer(all) },
    { weight: 1, arbitrary: fc.constant({}) },
    { weight: 1, arbitrary: malformedAuthorization(all) },
    { weight: 2, arbitrary: signedHeaders(['sign-in-with-x', 'x-sign-in-with-x'], signIns) },
    {
      weight: 2,
      arbitrary: signedHeaders(['payment-signature', 'x-payment', 'x-402-payment'], payments),
    },
  );
}

function malformedAuthorization(known: readonly string[]): fc.Arbitrary<Headers> {
  const near = fc
    .tuple(fc.constantFrom(...known), fc.constantFrom('cut', 'more', 'lower', 'twice', 'basic'))
    .map(([value, kind]) => {
      if (kind === 'cut') return value.slice(0, -1);
      if (kind === 'more') return `${value}x`;
      if (kind === 'lower') return value.toLowerCase();
      return kind === 'twice' ? `${value}, ${value}` : value.replace('Bearer', 'Basic');
    });
  const odd = fc.constantFrom(
    'Bearer',
    'Bearer ',
    'Bearer  ',
    '',
    'Basic YTpi',
    'Digest a="b"',
    `Bearer ${'k'.repeat(9_000)}`,
    'Bearer \u00e9\u00ff',
    'Bearer null',
    'Bearer undefined',
  );
  return fc.oneof(near, odd).map((authorization) => ({ authorization }));
}

/** Headers with base64 of JSON: as signed, with changed members, and without JSON. */
function signedHeaders(names: readonly string[], known: readonly string[]): fc.Arbitrary<Headers> {
  const asSigned = fc.constantFrom(...known);
  const inside = asSigned.map((value): unknown =>
    JSON.parse(Buffer.from(value, 'base64').toString()),
  );
  const value = fc.oneof(
    { weight: 2, arbitrary: asSigned },
    { weight: 6, arbitrary: nearly(inside).map(base64) },
    { weight: 1, arbitrary: hostileValue.map(base64) },
    { weight: 1, arbitrary: fc.constantFrom(...HOSTILE_TEXTS, 'e30', 'bnVsbA==', '====', 'W10=') },
  );
  return fc
    .tuple(fc.constantFrom(...names), value)
    .map(([name, made]): Headers => ({ [name]: made.slice(0, 30_000) }));
}

function base64(value: unknown): string {
  return Buffer.from(JSON.stringify(value) ?? '').toString('base64');
}

/** Optional headers of any request, a few at a time. */
const FURTHER: readonly Headers[] = [
  { 'x-svc-error-format': 'openai' },
  { 'x-svc-error-format': 'xml' },
  { 'accept-encoding': 'gzip' },
  { 'accept-encoding': 'br, gzip;q=0' },
  { 'accept-encoding': 'gzip;q=x, *;q=0, \u00ff' },
  { accept: 'text/html' },
  { accept: 'text/event-stream' },
  { accept: 'nonsense' },
  { origin: 'https://evil.example' },
  { origin: 'null' },
  { 'x-forwarded-for': "1.2.3.4, ::ffff:1.1.1.1, '" },
  { 'x-forwarded-host': 'evil.example' },
  { 'cf-ray': '<script>' },
  { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
  { traceparent: '00-00000000000000000000000000000000-0000000000000000-zz' },
  { tracestate: 'a=b,,=,c' },
  { range: 'bytes=0-0' },
  { range: 'bytes=-1,5-2' },
  { 'if-none-match': '*' },
  { 'if-modified-since': 'yesterday' },
  { cookie: 'a=b; __proto__=c' },
  { expect: '100-continue' },
  { expect: 'a miracle' },
  { upgrade: 'websocket', connection: 'upgrade' },
  { 'x-http-method-override': 'DELETE' },
  { 'access-control-request-method': 'POST', 'access-control-request-headers': 'x-a, x-b' },
  { 'x-svc-request-timestamp-ms': '1795233600000' },
  { 'x-svc-mobile-version': '1.0.0 \u00ff' },
  { 'x-long': 'z'.repeat(8_000) },
  { 'content-language': 'de' },
];

const furtherHeaders: fc.Arbitrary<Headers> = fc.oneof(
  { weight: 6, arbitrary: fc.constant({}) },
  { weight: 2, arbitrary: fc.constantFrom(...FURTHER) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom(...FURTHER), fc.constantFrom(...FURTHER))
      .map(([a, b]) => ({ ...a, ...b })),
  },
);

function idempotencyKeys({ operation }: FuzzTarget): fc.Arbitrary<Headers> {
  const takes = operation.parameters?.some((one) => one.name === 'Idempotency-Key') === true;
  const key = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('fuzz-a', 'fuzz-b', 'fuzz-c') },
    { weight: 2, arbitrary: fc.stringMatching(/^[A-Za-z0-9_-]{1,20}$/) },
    { weight: 1, arbitrary: hostileText },
    { weight: 1, arbitrary: fc.constantFrom('k'.repeat(255), 'k'.repeat(256)) },
  );
  return fc.oneof(
    { weight: takes ? 4 : 20, arbitrary: fc.constant({}) },
    { weight: 1, arbitrary: key.map((value) => ({ 'idempotency-key': value })) },
  );
}

function bodiesOf(
  { operation, path }: FuzzTarget,
  source: FuzzSource,
): fc.Arbitrary<Body | undefined> {
  const content = operation.requestBody?.content;
  if (content === undefined) {
    return fc.oneof(
      { weight: 20, arbitrary: fc.constant(undefined) },
      { weight: 1, arbitrary: fc.oneof(hostileValue.map(jsonBody), hostileValue.map(formBody)) },
    );
  }
  const json = content['application/json'];
  const made = json === undefined ? hostileValue : fitting(json.schema, source);
  const served = source.bodies[path];
  const value = served === undefined ? made : fc.oneof(fc.constantFrom(...served), made);
  const usual = [
    { weight: 8, arbitrary: value.map(jsonBody) },
    { weight: 8, arbitrary: nearly(value).map(jsonBody) },
    { weight: 3, arbitrary: brokenJsonBody(value) },
    { weight: 1, arbitrary: hostileValue.map(jsonBody) },
    { weight: 1, arbitrary: value.map(formBody) },
    { weight: 1, arbitrary: fc.constant(undefined) },
  ];
  const parts = {
    weight: 'multipart/form-data' in content ? 12 : 1,
    arbitrary: partsBodies(path.startsWith('/audio/') ? 'file' : 'image', source.files),
  };
  return fc.oneof(...usual, parts);
}
