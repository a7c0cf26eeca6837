/**
 * The HTTP server: one ordered list of stages for every route, as `docs/architecture.md` draws it.
 *
 *   request id and standard headers → method, path, Host [400, 404, 405] → not while it closes [503]
 *   → identify [400, 401, 402, 403, 429, 503] → abuse guard, instead of such an error too [429] →
 *   body [400, 413, 415, 429, 503] → idempotency [400, 409, 410, 429] → handler → error body → observers
 *
 * A request is open from its first byte until its response has left and its handler has ended, so that
 * a closing server knows when the last hold is settled. The context writes the responses.
 */
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type AddressInfo, type Socket, isIP } from 'node:net';
import createRouter, { type HTTPMethod } from 'find-my-way';
import type { Caller } from '../identity/identity.ts';
import type { Config } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { Fault, type FaultCode } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { CommitUncertain } from '../db/db.ts';
import { targetPath } from '../core/request-target.ts';
import { createServer } from '../core/node-http.ts';
import type { AbuseGuard } from './abuse-guard.ts';
import { BodyMemory } from './body-memory.ts';
import { countryBy, forwardedBy } from './caller-address.ts';
import { errorVary, wantsOpenAi } from './error-format.ts';
import { errorResponse } from './error-response.ts';
import type { RunOnce } from './idempotent.ts';
import { readTags } from './tags.ts';
import { identifyAs, requireClearHead } from './identify.ts';
import { type InternalCall, InternalCalls } from './internal-call.ts';
import { type HeaderRecord, RequestContext } from './request-context.ts';
import { readBytes, readDecoded, requireMediaType } from './body-bytes.ts';
import { JSON_BODY, type Route } from './route.ts';
import { limitConnections } from './connection-limits.ts';
import { refuseConnection } from './refuse-connection.ts';
import type { StandardHeaders } from './response-headers.ts';
import { keepForRest, limitUnreadBody } from './unread-body.ts';
import { limitWrites } from './write-timeout.ts';

/** Is notified of every request; must not throw. */
export interface RequestObserver {
  begun?(context: RequestContext): void;
  /** The response was sent or the caller disconnected, and the handler has ended. */
  ended(context: RequestContext, tookMs: number): void;
  /** Runs the handler, so that its work can be attributed to the request. */
  readonly within?: (
    context: RequestContext,
    work: () => void | Promise<void>,
  ) => void | Promise<void>;
}

export interface ServerParts {
  readonly settings: Config['http'];
  readonly basePath: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly headers: StandardHeaders;
  /** Stage "identify": throws 401, 402, 403. */
  readonly identify: (context: RequestContext, route: Route) => void | Promise<void>;
  /** Stage "abuse guard": throws if the caller or the failed credential is blocked. */
  readonly guard: AbuseGuard;
  /** Stage "idempotency" of a request with a key: runs the handler, or replays its response. */
  readonly once: RunOnce;
  /** Balance headers of a known caller, for responses without a sale. */
  readonly balanceHeaders: (caller: Caller) => Promise<HeaderRecord>;
  /** Counts a free request; returns the headers of its limit. Throws 429. */
  readonly countUnsold: (caller: Caller, route: Route) => Promise<HeaderRecord>;
  /** Headers of an error response: the model, and the remaining limits of the caller. */
  readonly refusalHeaders: (context: RequestContext, fault: Fault) => Promise<HeaderRecord>;
  readonly observers: readonly RequestObserver[];
  /** Aborts calls of requests that continue although their callers have left. */
  readonly cut: () => void;
}

/** For unknown paths: public, and a key is read if there is one. */
const ANY_PATH: Route = {
  method: 'GET',
  path: '',
  auth: 'public',
  handle: () => Promise.reject(new Error('An unknown path has no handler')),
};

/** Node's parser rejects larger request heads. */
const MAX_HEADER_BYTES = 65_536;
const MAX_PARAMETER_CHARS = 200;
/** Checks for slow requests within the time limit of a request. */
const LOOKS_PER_REQUEST_TIMEOUT = 20;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
/** Time for aborted responses to settle. */
const SETTLE_GRACE_MS = 5_000;
const DRAIN_POLL_MS = 20;
const BODY_LIMIT_BYTES = 1024 * 1024;
/** Another server at the same address can respond at once. */
const RETRY_SECONDS = 1;
/** Errors caused by the operator, which are not logged as failures. */
const NO_FAILURES: ReadonlySet<FaultCode> = new Set([
  'X402_NOT_CONFIGURED',
  'CHECKOUT_NOT_CONFIGURED',
  'SHUTTING_DOWN',
]);
const NO_PARAMETERS = {};
const NO_HANDLER = (): void => undefined;

interface Found {
  /** `null` for a malformed path: a wrong encoding, or a parameter that is too long. */
  readonly store: Route | null;
  readonly params: Readonly<Record<string, string>>;
}

export class HttpServer {
  readonly #parts: ServerParts;
  readonly #router;
  /** Methods of all routes; each GET also serves HEAD. */
  readonly #methods = new Set<Route['method']>(['HEAD']);
  readonly #forwarded: ReturnType<typeof forwardedBy>;
  readonly #country: ((request: IncomingMessage) => string) | undefined;
  readonly #within: RequestObserver['within'];
  readonly #servers: Server[] = [];
  /** Connections whose incomplete request has its response. */
  readonly #responded = new WeakSet<Socket>();
  readonly bodyMemory: BodyMemory;
  /** Runs routes in this process. */
  readonly internal: InternalCalls;
  routes: readonly Route[] = [];
  /** `http://host:port`; empty before `listen`. */
  address = '';
  /** Requests that have not ended. */
  open = 0;
  /** New requests are rejected. */
  isClosing = false;
  #isHurried = false;

  constructor(parts: ServerParts) {
    this.#parts = parts;
    this.bodyMemory = new BodyMemory(parts.settings.bodiesMb);
    this.#forwarded = forwardedBy(parts.settings.trustProxy);
    this.#country = countryBy(parts.settings);
    this.#within = parts.observers.find((observer) => observer.within !== undefined)?.within;
    this.#router = createRouter({
      ignoreTrailingSlash: true,
      maxParamLength: MAX_PARAMETER_CHARS,
      onBadUrl: NO_HANDLER,
      onMaxParamLength: NO_HANDLER,
    });
    // It listens nowhere, and its peer is this process.
    const server = createServer({ maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: 0 });
    this.internal = new InternalCalls(server, parts.basePath, this.#receive);
  }

  get server(): Server {
    const [server] = this.#servers;
    if (server === undefined) throw new Error('The server does not listen yet');
    return server;
  }

  /** Serves the routes; resolves to the address. */
  async listen(routes: readonly Route[], at: { host: string; port: number }): Promise<string> {
    const { clock, log, settings, basePath } = this.#parts;
    this.routes = routes;
    for (const route of routes) {
      this.#methods.add(route.method);
      const path = route.root === true ? route.path : basePath + route.path;
      this.#router.on(route.method, path, NO_HANDLER, route);
    }
    // `localhost` can be an IPv4 and an IPv6 address, and clients try either.
    const named = at.host === 'localhost' ? await lookup(at.host, { all: true }) : [];
    const hosts = named.length === 0 ? [at.host] : named.map(({ address }) => address);
    for (const host of new Set(hosts)) {
      const server = this.#createServer();
      const port = this.#servers.length === 0 ? at.port : addressOf(this.server).port;
      const listening = once(server, 'listening');
      server.listen({ host, port });
      try {
        await listening;
        limitWrites(server, { clock, log, timeoutMs: settings.writeTimeoutSeconds * SECOND_MS });
        this.#servers.push(server);
      } catch (error) {
        // This machine may lack the address of the second family.
        if (this.#servers.length === 0) throw error;
      }
    }
    const { address, port } = addressOf(this.server);
    const shown = address === '0.0.0.0' ? '127.0.0.1' : address;
    this.address = `http://${isIP(shown) === 6 ? `[${shown}]` : shown}:${port}`;
    return this.address;
  }

  /**
   * Rejects new work and waits for open responses until the deadline; then cuts them, and charges
   * what they produced. It listens meanwhile, so that `/readyz` reports that it drains.
   */
  async close(): Promise<void> {
    this.isClosing = true;
    const drainMs = this.#parts.settings.drainSeconds * SECOND_MS;
    const isDrained = await this.#drained(drainMs, () => this.#isHurried);
    // Idle connections and incomplete requests would keep the closing server open.
    for (const server of this.#servers) server.closeAllConnections();
    this.internal.close();
    if (!isDrained) {
      // Requests whose callers have just been disconnected end by themselves.
      await this.#drained(DRAIN_POLL_MS);
      this.#parts.cut();
      await this.#drained(SETTLE_GRACE_MS);
    }
    for (const server of this.#servers) {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    }
    this.#parts.guard.close();
  }

  /** Ends the wait of `close`, even before it: aborts open responses, which are charged. */
  hurry(): void {
    this.#isHurried = true;
  }

  /** Waits up to `limitMs` for all requests to end; resolves to whether they have. */
  async #drained(limitMs: number, isOver = () => false): Promise<boolean> {
    const { clock } = this.#parts;
    const untilMs = clock.monotonicMs() + limitMs;
    while (this.open > 0 && !isOver() && clock.monotonicMs() < untilMs) {
      await clock.sleep(DRAIN_POLL_MS);
    }
    return this.open === 0;
  }

  #createServer(): Server {
    const { clock, log, settings } = this.#parts;
    const requestTimeoutMs = settings.requestTimeoutSeconds * SECOND_MS;
    const server = createServer({
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      requestTimeout: requestTimeoutMs,
      // By default Node checks every 30 s, and allows a minute for a request head.
      headersTimeout: requestTimeoutMs,
      connectionsCheckingInterval: Math.ceil(requestTimeoutMs / LOOKS_PER_REQUEST_TIMEOUT),
      // `requireClearHead` rejects a missing one with our error body.
      requireHostHeader: false,
    });
    const { maxConnections, trustProxy } = settings;
    limitConnections(server, { clock, log, maxConnections, isShared: trustProxy === false });
    server.on('request', this.#receive);
    server.on('checkContinue', (request, response) => {
      // Node would write it behind the head of a response that waits for an earlier one.
      if (response.socket !== null) response.writeContinue();
      server.emit('request', request, response);
    });
    // Ignores unknown expectations (RFC 9110 §10.1.1); Node would respond 417 without our headers.
    server.on('checkExpectation', (...of) => server.emit('request', ...of));
    server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
      refuseConnection(error, socket, this.#responded.has(socket), clock);
    });
    return server;
  }

  /** Serves a request from the network, or an internal one. */
  readonly #receive = (
    request: IncomingMessage,
    response: ServerResponse,
    call?: InternalCall,
  ): void => {
    const { ids, clock, headers, observers, guard } = this.#parts;
    const found = this.#find(request.method, request.url);
    const requestId = ids.ordered(clock.nowMs());
    const isCounted = call === undefined || call.countsFailures;
    const notified = isCounted ? observers : observers.filter((observer) => observer !== guard);
    const context = new RequestContext({
      requestId,
      request,
      response,
      route: found?.store ?? undefined,
      parameters: found?.params ?? NO_PARAMETERS,
      address: call?.address ?? this.#forwarded?.(request) ?? request.socket.remoteAddress ?? '',
      startedMs: clock.monotonicMs(),
      answerHeaders: headers.of(request.headers, requestId),
      countryOf:
        call === undefined || this.#country === undefined
          ? this.#country
          : () => call.country ?? '',
      ended: isCounted ? this.#ended : (ended) => this.#ended(ended, notified),
    });
    if (call?.deliver !== undefined) context.deliverTo(call.deliver);
    this.open += 1;
    for (let at = 0; at < notified.length; at += 1) notified[at]?.begun?.(context);
    // The client opens its next connection to another server.
    if (call === undefined && this.isClosing) context.set('connection', 'close');
    void this.#serve(context, found, call);
  };

  /** Returns `null` for an unknown path, and a `store` of `null` for a malformed one. */
  #find(method = '', url = ''): Found | null {
    const found = this.#router.find(method as HTTPMethod, url) as Found | null; // as `listen` registered it
    // HEAD is GET without the body (RFC 9110 §9.3.2).
    return found === null && method === 'HEAD' ? this.#find('GET', url) : found;
  }

  async #serve(context: RequestContext, found: Found | null, call?: InternalCall): Promise<void> {
    const route = found?.store ?? undefined;
    let isAdmitted = route === undefined;
    try {
      if (route === undefined) this.#answerPath(context, found);
      else {
        const identifying = this.#identify(context, route, call?.caller);
        if (identifying !== undefined) await identifying;
        if (route.method !== 'GET') context.body = await this.#readBody(context, route);
        isAdmitted = true;
        if (route.sells === undefined) await this.#countUnsold(context, route);
        else if (this.#parts.headers.tagsHeader in context.headers) readTags(context, this.#parts);
        const handling = this.#handle(context, route);
        if (handling !== undefined) await handling;
      }
    } catch (error) {
      if (route === undefined && found === null) await this.#identifyStranger(context);
      // A caller that leaves before its request was read, or while it waits for a request with the same
      // key, gets no response, so that the guard does not count one.
      const hasLeft = context.isGone && (!isAdmitted || error === context.signal.reason);
      if (!hasLeft) await this.#fail(context, error, call);
    } finally {
      // Closes the connection if the response could not be written.
      if (!context.answered) context.destroy();
      context.finish();
    }
  }

  /** Runs the handler; for requests with the same idempotency key once. */
  #handle(context: RequestContext, route: Route): void | Promise<void> {
    const isOnce =
      context.headers['idempotency-key'] !== undefined && route.ownIdempotency !== true;
    const { once: runOnce } = this.#parts;
    if (this.#within === undefined) return isOnce ? runOnce(context, route) : route.handle(context);
    return this.#within(context, () => (isOnce ? runOnce(context, route) : route.handle(context)));
  }

  /** Identifies the caller. A blocked caller gets the error of the guard before any other. */
  #identify(
    context: RequestContext,
    route: Route,
    known: Caller | undefined,
  ): void | Promise<void> {
    const { identify, guard } = this.#parts;
    requireClearHead(context.request);
    if (route.operational === true) return;
    if (this.isClosing) throw new Fault('SHUTTING_DOWN', { retryAfterSeconds: RETRY_SECONDS });
    if (known !== undefined) return identifyAs(context, route, known);
    let identifying: void | Promise<void>;
    try {
      identifying = identify(context, route);
    } catch (error) {
      guard.refuse(context, route);
      throw error;
    }
    if (identifying === undefined) return guard.refuse(context, route);
    return identifying.finally(() => guard.refuse(context, route));
  }

  #readBody(context: RequestContext, route: Route): Promise<Buffer> {
    const type = context.headers['content-type'];
    if (type === undefined || route.body?.types.includes(type) !== true) {
      requireMediaType(context.request, route);
    }
    if (route.body?.isStreamed === true) return Promise.resolve(context.body);
    const isJson = route.body === JSON_BODY;
    const { jsonLimitBytes } = this.#parts.settings;
    const limitBytes = isJson ? jsonLimitBytes : this.#limitOf(context, route);
    const isCoded = context.headers['content-encoding'] !== undefined;
    return (isCoded ? readDecoded : readBytes)(context, limitBytes, this.bodyMemory);
  }

  #limitOf({ headers, callerIfKnown: caller }: RequestContext, { body }: Route): number {
    const { jsonLimitBytes, fileLimitBytes } = this.#parts.settings;
    if (caller === undefined && body?.strangerLimitBytes !== undefined) {
      return body.strangerLimitBytes;
    }
    if (body?.limitBytes !== undefined) return body.limitBytes;
    if (body === undefined) return BODY_LIMIT_BYTES;
    // Beside its file a form has fields and part heads.
    const isForm = headers['content-type']?.toLowerCase().startsWith('multipart/') === true;
    return isForm ? fileLimitBytes + BODY_LIMIT_BYTES : jsonLimitBytes;
  }

  /** Responds to a preflight; throws for an unknown path or method. */
  #answerPath(context: RequestContext, found: Found | null): void {
    const { url, method } = context.request;
    const others = [...this.#methods].map((one) => ({ one, found: this.#find(one, url) }));
    const isUnreadable = found !== null || others.every((other) => other.found?.store === null);
    if (isUnreadable) throw new Fault('INVALID_REQUEST', { message: 'The request is malformed' });
    requireClearHead(context.request);
    const methods = others.flatMap((other) => (other.found === null ? [] : [other.one])).sort();
    if (method === 'OPTIONS') {
      context.setAll(this.#parts.headers.preflight(context.request.headers, methods));
      return context.empty(204);
    }
    if (methods.length === 0) throw this.#unknownPath(url);
    const allow = methods.join(', ');
    const isWebSocket = context.headers['upgrade']?.toLowerCase() === 'websocket';
    const message = isWebSocket
      ? `WebSocket is not supported; send HTTP requests with ${allow}, and poll instead of subscribing`
      : `The method is not allowed on this path; use ${allow}`;
    throw new Fault('METHOD_NOT_ALLOWED', { message, headers: { allow } });
  }

  #unknownPath(url: string | undefined): Fault {
    const { basePath } = this.#parts;
    // Usually the base URL lacks the version.
    const isBelow = targetPath(url).startsWith(basePath);
    const hint = isBelow ? '/docs lists the routes' : `the base path is ${basePath}`;
    return new Fault('NOT_FOUND', { message: `Not found; ${hint}` });
  }

  /** Identifies the caller of an unknown path, for the guard and the log. Never throws. */
  async #identifyStranger(context: RequestContext): Promise<void> {
    const { authorization, 'x-api-key': key } = context.headers;
    if ((authorization ?? key) === undefined) return;
    try {
      await this.#parts.identify(context, ANY_PATH);
    } catch {
      // The credential is invalid or the database is unreachable: the response is 404 anyway.
    }
  }

  async #fail(context: RequestContext, error: unknown, call?: InternalCall): Promise<void> {
    const { headers, log } = this.#parts;
    const answer = errorResponse(error, wantsOpenAi(context, headers.errorFormats), context);
    context.failed(answer.fault);
    call?.failed?.(answer.fault);
    if (answer.status >= 500 && !NO_FAILURES.has(answer.fault.code)) {
      const { cause } = answer.fault.options;
      const stack =
        answer.fault.code === 'UNKNOWN_ERROR' && cause instanceof Error ? cause.stack : undefined;
      const reason = reasonOf(cause ?? answer.fault);
      log.error({ requestId: context.requestId, reason, stack }, 'Request failed');
    }
    // After an uncertain charge, an error response would promise that nothing was charged.
    const isUncertain = answer.fault.options.cause instanceof CommitUncertain;
    if (context.answered || isUncertain) return context.destroy();
    // The receipt confirms a served request; `PAYMENT-RESPONSE` has the settlement.
    context.drop('Payment-Receipt');
    // A pending payment (202) is no failure.
    if (answer.status >= 400) {
      context.setAll(headers.failed);
      context.addVary(errorVary(context, headers.errorFormats));
    }
    context.setAll(answer.headers);
    const isSent = (): boolean => context.isSent;
    if (keepForRest(context.request, isSent)) context.set('connection', 'close');
    try {
      context.setMissing(await this.#parts.refusalHeaders(context, answer.fault));
      await this.#addBalanceHeaders(context);
    } catch {
      // The database is unreachable: respond without balance and limits.
    }
    await context.json(answer.status, answer.body);
  }

  /**
   * Adds balance headers for a known caller that the response lacks. A caller with a payment gets
   * them from its sale only, since its payment is not proven before.
   */
  async #addBalanceHeaders(context: RequestContext): Promise<void> {
    const caller = context.callerIfKnown;
    if (caller === undefined || caller.payment !== undefined) return;
    context.setMissing(await this.#parts.balanceHeaders(caller));
  }

  /** Counts a request of a free route: all of them share one limit. */
  async #countUnsold(context: RequestContext, route: Route): Promise<void> {
    const { callerIfKnown: caller } = context;
    if (caller === undefined || route.operational === true) return;
    await this.#addBalanceHeaders(context);
    context.setAll(await this.#parts.countUnsold(caller, route));
  }

  readonly #ended = (context: RequestContext, observers = this.#parts.observers): void => {
    this.open -= 1;
    if (context.bodyBytes > 0) this.bodyMemory.release(context);
    const { request } = context;
    if (!request.complete) limitUnreadBody(request, this.#parts.clock, this.#responded);
    const tookMs = this.#parts.clock.monotonicMs() - context.startedMs;
    for (let at = 0; at < observers.length; at += 1) observers[at]?.ended(context, tookMs);
  };
}

function addressOf(server: Server): AddressInfo {
  return server.address() as AddressInfo; // it listens on a port
}
