/**
 * The HTTP server: one ordered list of stages for every route, as `docs/architecture.md` draws it.
 *
 *   request id and standard headers → method and path [404, 405] → identify [401, 402, 403],
 *   with the abuse guard before its refusals and after it [429] → body [415, 413] →
 *   idempotency [400, 409] → handler → error body → log line
 *
 * Fastify routes and reads; answers are written by the request context.
 */
import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { targetPath } from '../core/request-target.ts';
import { errorAnswer } from './error-response.ts';
import { RequestContext } from './request-context.ts';
import { noteFailedCredential } from './identify.ts';
import { refuseConnection } from './malformed-request.ts';
import type { RunOnce } from './idempotent.ts';
import type { Route } from './route.ts';
import type { StandardHeaders } from './standard-headers.ts';
import { limitWrites } from './write-timeout.ts';

export interface ServerOptions {
  readonly basePath: string;
  readonly trustProxy: boolean | readonly string[];
  readonly maxConnections: number;
  readonly requestTimeoutMs: number;
  /** How long a caller may take no byte of its answer. */
  readonly writeTimeoutMs: number;
}

export interface ServerParts {
  readonly options: ServerOptions;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly headers: StandardHeaders;
  readonly routes: readonly Route[];
  /** Stage "abuse guard": throws when the caller, or the credential that failed, is blocked. */
  readonly guard: (context: RequestContext, route: Route) => void;
  /** Stage "idempotency": runs the handler, or replays what it answered before. */
  readonly once: RunOnce;
  /** Balance headers of a known caller, for answers that no admission has given theirs. */
  readonly balanceHeaders: (
    context: RequestContext,
    caller: Caller,
  ) => Promise<Record<string, string>>;
  /** Told of every request that begins. */
  readonly started: (context: RequestContext, route: Route | undefined) => void;
  /**
   * Told of every request whose answer has left and whose handler has ended: for the guard, the
   * metrics and the traces.
   */
  readonly finished: (context: RequestContext, route: Route | undefined, status: number) => void;
  /** Stage "identify": throws 401, 402, 403. */
  readonly identify: (context: RequestContext, route: Route) => Promise<Caller | undefined>;
  /** A reason to refuse new work, such as a shutdown. */
  readonly refusal: () => Fault | undefined;
}

/** Stands for a path that no route has: anybody may ask, and a key is read when there is one. */
const ANY_PATH: Route = {
  method: 'GET',
  path: '',
  auth: 'public',
  handle: () => Promise.reject(new Error('An unknown path has no handler')),
};

/** Larger request heads are refused by Node's parser. */
const MAX_HEADER_BYTES = 65_536;
/** Requests that arrive too slowly are looked for so often, in a share of the time that they have. */
const LOOKS_PER_REQUEST_TIMEOUT = 20;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;

/** No route gives Fastify a schema, so its two schema compilers are never loaded. */
const NO_SCHEMAS = { buildValidator: noSchema, buildSerializer: noSchema };

function noSchema(): never {
  throw new Error('Bodies are checked by the handlers, not by Fastify');
}

const CONTEXT = Symbol('context');
type WithContext = FastifyRequest & { [CONTEXT]?: RequestContext };

export async function buildServer(parts: ServerParts): Promise<FastifyInstance> {
  const server = Fastify({
    logger: false,
    trustProxy: trustedProxies(parts.options.trustProxy),
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 200 },
    bodyLimit: 1_048_576,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    requestTimeout: parts.options.requestTimeoutMs,
    http: {
      maxHeaderSize: MAX_HEADER_BYTES,
      // Node looks only every 30 s by itself, and would give the head of a request a minute.
      headersTimeout: parts.options.requestTimeoutMs,
      connectionsCheckingInterval: Math.ceil(
        parts.options.requestTimeoutMs / LOOKS_PER_REQUEST_TIMEOUT,
      ),
      // A missing one is refused by us, with our body.
      requireHostHeader: false,
    },
    schemaController: { compilersFactory: NO_SCHEMAS },
    exposeHeadRoutes: false,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    clientErrorHandler: refuseConnection,
    frameworkErrors: (error, request, reply) => {
      // A path that cannot be decoded never meets a route.
      void fail(parts, begin(parts, request, reply), fromFastify(error));
    },
  });
  server.server.maxConnections = parts.options.maxConnections;
  limitWrites(server.server, { ...parts, timeoutMs: parts.options.writeTimeoutMs });
  // Node would answer 417 by itself, without our headers: an expectation that we do not know is one
  // that we need not meet (RFC 9110 §10.1.1).
  server.server.on('checkExpectation', (request, response) => {
    server.server.emit('request', request, response);
  });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) =>
    done(null, body),
  );
  const refusalOfPath = pathRefusals(parts);
  server.setErrorHandler((error, request: WithContext, reply) => {
    const context = request[CONTEXT] ?? begin(parts, request, reply);
    // Fastify reads a body before it says that there is no route.
    const refused = request.is404 ? refusalOfPath(request).fault : fromFastify(error);
    return fail(parts, context, refused);
  });
  for (const route of parts.routes) register(server, parts, route);
  answerUnknownPaths(server, parts, refusalOfPath);
  return server;
}

/**
 * Whose `X-Forwarded-For` is believed. Proxies append to what the caller sent, so `true` is the one
 * hop that connects to us: believing the whole list would let every caller choose its address.
 */
function trustedProxies(setting: boolean | readonly string[]): TrustedProxies {
  if (typeof setting === 'boolean') return setting && ((_address, hop) => hop === 0);
  return [...setting];
}

type TrustedProxies = false | string[] | ((address: string, hop: number) => boolean);

/** A proxy that passes on what is no address is worth no more than its own address. */
function addressOf(request: FastifyRequest): string {
  return isIP(request.ip) === 0 ? (request.raw.socket.remoteAddress ?? '') : request.ip;
}

function register(server: FastifyInstance, parts: ServerParts, route: Route): void {
  server.route({
    method: route.method,
    url: fullPath(parts, route),
    bodyLimit: route.body?.limitBytes ?? 1_024 * 1_024,
    onRequest: async (request: WithContext, reply) => {
      const context = begin(parts, request, reply, route);
      request[CONTEXT] = context;
      const refusedHost = refusalOfHost(request.raw);
      if (refusedHost !== undefined) throw refusedHost;
      if (route.operational === true) return;
      const refusal = parts.refusal();
      if (refusal !== undefined) throw refusal;
      await admitCaller(parts, context, route);
      checkContentType(context, route);
    },
    handler: async (request: WithContext, reply) => {
      const context = request[CONTEXT];
      if (context === undefined) throw new Error('A handler ran without its context');
      reply.hijack();
      if (Buffer.isBuffer(request.body)) context.body = request.body;
      const worked = context.working();
      try {
        if (route.sells === undefined) await addBalanceHeaders(parts, context);
        await parts.once(context, route, () => route.handle(context));
      } catch (error) {
        // Whatever a handler throws becomes the answer here, once.
        await fail(parts, context, error);
      } finally {
        worked();
      }
    },
  });
}

/**
 * Identifies the caller and asks the guard about it: by key or wallet when it has one, else by the
 * credential that failed and its address. So neighbours of a blocked stranger are served, and a
 * blocked caller hears of its block before anything else.
 */
async function admitCaller(
  parts: ServerParts,
  context: RequestContext,
  route: Route,
): Promise<void> {
  try {
    const caller = await parts.identify(context, route);
    if (caller !== undefined) context.identify(caller);
  } catch (error) {
    noteFailedCredential(context, error);
    // A blocked caller gets the guard's answer instead of the refusal.
    parts.guard(context, route);
    throw error;
  }
  parts.guard(context, route);
}

/** Who asked for a path that is not there, for the guard and the log; never throws. */
async function identifyStranger(parts: ServerParts, context: RequestContext): Promise<void> {
  if (context.header('authorization') === undefined) return;
  try {
    const caller = await parts.identify(context, ANY_PATH);
    if (caller !== undefined) context.identify(caller);
  } catch {
    // The database is away: the path is unknown whoever asks.
  }
}

/**
 * Balance headers belong on every answer to a known caller; a sale has them from its admission. One
 * that pays instead of signing in has them from there only: its payment proves it when it is taken.
 */
async function addBalanceHeaders(parts: ServerParts, context: RequestContext): Promise<void> {
  const caller = context.callerIfKnown;
  if (caller === undefined || caller.payment !== undefined) return;
  const headers = await parts.balanceHeaders(context, caller);
  for (const [name, value] of Object.entries(headers)) {
    if (!context.has(name)) context.set(name, value);
  }
}

function fullPath(parts: ServerParts, route: Route): string {
  return route.root === true ? route.path : parts.options.basePath + route.path;
}

function begin(
  parts: ServerParts,
  request: FastifyRequest,
  reply: FastifyReply,
  route?: Route,
): RequestContext {
  const context = new RequestContext({
    requestId: parts.ids.ordered(parts.clock.nowMs()),
    request: request.raw,
    response: reply.raw,
    parameters: (request.params ?? {}) as Record<string, string>, // Fastify's path parameters
    address: addressOf(request),
    startedMs: parts.clock.monotonicMs(),
  });
  parts.started(context, route);
  parts.headers.begin(context);
  // A client of a server that shuts down opens its next connection elsewhere.
  if (parts.refusal() !== undefined) context.set('connection', 'close');
  context.onEnd(() => parts.finished(context, route, context.statusCode));
  return context;
}

/**
 * RFC 9112 §3.2: a request without a Host, or with several, is refused. Two of them are how one
 * server in a row is made to see another address than the next.
 */
function refusalOfHost({ rawHeaders, httpVersionMinor }: IncomingMessage): Fault | undefined {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === HOST.length && name.toLowerCase() === HOST) hosts += 1;
  }
  if (hosts === 1 || (hosts === 0 && httpVersionMinor === 0)) return undefined;
  return new Fault('INVALID_REQUEST', {
    message: `The request has ${hosts === 0 ? 'no' : 'more than one'} Host header; send exactly one`,
  });
}

const HOST = 'host';

function checkContentType(context: RequestContext, route: Route): void {
  const { body } = route;
  if (body === undefined || context.request.method === 'GET') return;
  const type = context.header('content-type')?.toLowerCase() ?? '';
  if (body.types.some((known) => type.startsWith(known))) return;
  const wanted = body.types.join(' or ');
  throw new Fault('INVALID_CONTENT_TYPE', {
    message:
      type === ''
        ? `The request has no Content-Type; send ${wanted}`
        : `The Content-Type ${type.slice(0, 100)} is not supported here; send ${wanted}`,
  });
}

async function fail(parts: ServerParts, context: RequestContext, error: unknown): Promise<void> {
  const wantsOpenAi = context.header(parts.headers.errorFormatHeader) === 'openai';
  const answer = errorAnswer(error, wantsOpenAi);
  context.notes.code = answer.fault.code;
  if (answer.status >= 500) {
    const reason = reasonOf(answer.fault.options.cause ?? answer.fault);
    const stack = answer.fault.code === 'UNKNOWN_ERROR' ? stackOf(answer.fault.options.cause) : {};
    parts.log.error({ requestId: context.requestId, reason, ...stack }, 'Request failed');
  }
  if (context.answered) {
    context.destroy();
    return;
  }
  // A payment that is still under way (202) is no failure.
  if (answer.status >= 400) context.setAll(parts.headers.failed());
  context.setAll(answer.headers);
  try {
    await addBalanceHeaders(parts, context);
  } catch {
    // The database is away: the refusal goes out without the balance.
  }
  await context.json(answer.status, answer.body);
}

function stackOf(error: unknown): { stack?: string } {
  return error instanceof Error && error.stack !== undefined ? { stack: error.stack } : {};
}

/** Fastify's own refusals in our words. */
function fromFastify(error: unknown): unknown {
  if (error instanceof Fault) return error;
  const { code, statusCode } = error as { code?: string; statusCode?: number }; // Fastify's shape
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new Fault('PAYLOAD_TOO_LARGE');
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new Fault('INVALID_CONTENT_TYPE');
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
      return new Fault('INVALID_REQUEST', { message: 'The body is not what Content-Length says' });
    default:
      if (statusCode !== undefined && statusCode < 500) {
        return new Fault('INVALID_REQUEST', { message: 'The request is malformed', cause: error });
      }
      return error;
  }
}

interface PathRefusal {
  readonly fault: Fault;
  /** Of the path, for what is no method of it; none when there is no such path. */
  readonly methods: readonly string[];
}

/** Why a request meets no route: 405 where the path has other methods, else 404. */
function pathRefusals(parts: ServerParts): (request: FastifyRequest) => PathRefusal {
  const methodsByPath = new Map<string, Set<string>>();
  for (const route of parts.routes) {
    const pattern = pathPattern(fullPath(parts, route));
    const methods = methodsByPath.get(pattern) ?? new Set();
    methods.add(route.method);
    methodsByPath.set(pattern, methods);
  }
  const matchers = [...methodsByPath].map(([pattern, methods]) => ({
    expression: new RegExp(pattern),
    methods: [...methods],
  }));
  return (request) => {
    const path = targetPath(request.raw.url);
    // `/rpc/networks` is a path of its own and one of `/rpc/:network`.
    const known = matchers.filter((matcher) => matcher.expression.test(path));
    const methods = [...new Set(known.flatMap((matcher) => matcher.methods))].sort();
    return { fault: known.length === 0 ? unknownPath(parts, path) : wrongMethod(methods), methods };
  };
}

function answerUnknownPaths(
  server: FastifyInstance,
  parts: ServerParts,
  refusalOfPath: (request: FastifyRequest) => PathRefusal,
): void {
  server.setNotFoundHandler(async (request: WithContext, reply) => {
    const context = begin(parts, request, reply);
    reply.hijack();
    const { fault, methods } = refusalOfPath(request);
    const refused = refusalOfHost(request.raw);
    if (refused === undefined && request.method === 'OPTIONS') {
      context.setAll(parts.headers.preflight(context, methods));
      context.empty(204);
      return;
    }
    const worked = context.working();
    await fail(parts, context, refused ?? fault);
    await identifyStranger(parts, context);
    worked();
  });
}

function pathPattern(path: string): string {
  const escaped = path.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
  return `^${escaped.replaceAll(/:[A-Za-z]+/g, '[^/]+')}/?$`;
}

function unknownPath(parts: ServerParts, path: string): Fault {
  // The usual mistake is a base URL without the version.
  const hint = path.startsWith(parts.options.basePath)
    ? ''
    : `; the base path is ${parts.options.basePath}`;
  return new Fault('NOT_FOUND', { message: `Not found${hint}` });
}

function wrongMethod(methods: readonly string[]): Fault {
  const allow = methods.join(', ');
  return new Fault('METHOD_NOT_ALLOWED', {
    message: `The method is not allowed on this path; use ${allow}`,
    headers: { allow },
  });
}
