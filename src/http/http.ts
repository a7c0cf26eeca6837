/**
 * The HTTP server: one ordered list of stages for every route, as `docs/architecture.md` draws it.
 *
 *   request id and standard headers → method, path, Host [400, 404, 405] → not while it closes [503]
 *   → identify [400, 401, 402, 403, 429, 503] → abuse guard, instead of such an error too [429] →
 *   body [415, 413] → idempotency [400, 409, 410] → handler → error body → observers
 *
 * A request is open from its first byte until its response has left and its handler has ended, so that
 * a closing server knows when the last hold is settled. The context writes the responses.
 */
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type AddressInfo, isIP } from 'node:net';
import createRouter, { type HTTPMethod } from 'find-my-way';
import type { Caller } from '../identity/identity.ts';
import type { Config } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { Fault, type FaultCode } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { targetPath } from '../core/request-target.ts';
import { createServer } from '../core/node-http.ts';
import type { AbuseGuard } from './abuse-guard.ts';
import { BodyMemory } from './body-memory.ts';
import { countryBy, forwardedBy } from './caller-address.ts';
import { errorVary, wantsOpenAi } from './error-format.ts';
import { errorResponse, refuseConnection } from './error-response.ts';
import type { RunOnce } from './idempotent.ts';
import { readTags } from './tags.ts';
import { identifyAs, requireClearHead } from './identify.ts';
import { type InternalCall, InternalCalls } from './internal-call.ts';
import { type HeaderRecord, RequestContext } from './request-context.ts';
import { readBytes, readDecoded, requireMediaType } from './body-bytes.ts';
import { JSON_BODY, type Route } from './route.ts';
import { limitConnections } from './connection-limits.ts';
import type { StandardHeaders } from './response-headers.ts';
import { limitWrites } from './write-timeout.ts';

/** Told of every request; it cannot fail one. */
export interface RequestObserver {
  begun?(context: RequestContext): void;
  /** The answer has left, or the caller has, and the handler has ended. */
  ended(context: RequestContext, tookMs: number): void;
  /** Runs the handler, so that what it does can be found to belong to its request. */
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
  /** Stage "abuse guard": throws when the caller, or the credential that failed, is blocked. */
  readonly guard: AbuseGuard;
  /** Stage "idempotency" of a request with a key: runs the handler, or replays its answer. */
  readonly once: RunOnce;
  /** Balance headers of a known caller, for answers that no admission has given theirs. */
  readonly balanceHeaders: (caller: Caller) => Promise<HeaderRecord>;
  /** Counts a request that buys nothing; returns the headers of its limit. Throws 429. */
  readonly countUnsold: (caller: Caller, route: Route) => Promise<HeaderRecord>;
  /** What a refusal says of the model, and of the limits that its caller has left. */
  readonly refusalHeaders: (context: RequestContext, fault: Fault) => Promise<HeaderRecord>;
  readonly observers: readonly RequestObserver[];
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
const MAX_PARAMETER_CHARS = 200;
/**
 * Requests that arrive too slowly are looked for so often, in a share of the time that they have.
 */
const LOOKS_PER_REQUEST_TIMEOUT = 20;
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
/** How long cut answers may take to settle what they produced. */
const SETTLE_GRACE_MS = 5_000;
const DRAIN_POLL_MS = 20;
const BODY_LIMIT_BYTES = 1024 * 1024;
/** Another server behind the same address can answer at once. */
const RETRY_SECONDS = 1;
/** Refusals by what the operator has set or begun: anybody can have as many as it likes. */
const NO_FAILURES: ReadonlySet<FaultCode> = new Set(['X402_NOT_CONFIGURED', 'SHUTTING_DOWN']);
const NO_PARAMETERS = {};
const NO_HANDLER = (): void => undefined;

/** What the router finds. */
interface Found {
  /** `null` for a path that it cannot read: a wrong encoding, a parameter that is too long. */
  readonly store: Route | null;
  readonly params: Readonly<Record<string, string>>;
}

export class HttpServer {
  readonly #parts: ServerParts;
  readonly #router;
  /** Of all routes; each GET answers HEAD. */
  readonly #methods = new Set<Route['method']>(['HEAD']);
  readonly #forwarded: ReturnType<typeof forwardedBy>;
  readonly #country: ((request: IncomingMessage) => string) | undefined;
  readonly #within: RequestObserver['within'];
  readonly #servers: Server[] = [];
  readonly bodyMemory: BodyMemory;
  /** Runs its routes in this process. */
  readonly internal: InternalCalls;
  /** What it serves. */
  routes: readonly Route[] = [];
  /** Where it listens, `http://host:port`; empty before. */
  address = '';
  /** Requests that have not ended. */
  open = 0;
  /** From then on new work is refused. */
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
    // Nobody is slow at the other end of it, and it listens nowhere.
    const server = createServer({ maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: 0 });
    this.internal = new InternalCalls(server, parts.basePath, this.#receive);
  }

  /** The one that listens. */
  get server(): Server {
    const [server] = this.#servers;
    if (server === undefined) throw new Error('The server does not listen yet');
    return server;
  }

  /** Serves the routes; resolves with its address. */
  async listen(routes: readonly Route[], at: { host: string; port: number }): Promise<string> {
    const { clock, log, settings, basePath } = this.#parts;
    this.routes = routes;
    for (const route of routes) {
      this.#methods.add(route.method);
      const path = route.root === true ? route.path : basePath + route.path;
      this.#router.on(route.method, path, NO_HANDLER, route);
    }
    // The name of this machine stands for an address of each family, and clients try either.
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
        // The further address of a name may be one that this machine does not have.
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
    // Connections that idle, or that send half a request, would hold the closing server open.
    for (const server of this.#servers) server.closeAllConnections();
    this.internal.close();
    if (!isDrained) await this.#drained(SETTLE_GRACE_MS);
    for (const server of this.#servers) {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    }
    this.#parts.guard.close();
  }

  /**
   * Ends the wait of `close`, begun or not: open answers are cut, and pay for what they produced.
   */
  hurry(): void {
    this.#isHurried = true;
  }

  /** Waits until nothing is open, at most `limitMs`; says whether that came true. */
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
      // Node looks only every 30 s by itself, and would give the head of a request a minute.
      headersTimeout: requestTimeoutMs,
      connectionsCheckingInterval: Math.ceil(requestTimeoutMs / LOOKS_PER_REQUEST_TIMEOUT),
      // A missing one is refused by us, with our body.
      requireHostHeader: false,
    });
    const { maxConnections, trustProxy } = settings;
    limitConnections(server, { clock, log, maxConnections, isShared: trustProxy === false });
    server.on('request', this.#receive);
    // Node would answer 417 by itself, without our headers: an expectation that we do not know is
    // one that we need not meet (RFC 9110 §10.1.1).
    server.on('checkExpectation', (...of) => server.emit('request', ...of));
    server.on('clientError', refuseConnection);
    return server;
  }

  /** Serves a request that came over the network, or an internal one. */
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
      address: call === undefined ? this.#addressOf(request) : call.address,
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
    // A client of a server that shuts down opens its next connection elsewhere.
    if (call === undefined && this.isClosing) context.set('connection', 'close');
    void this.#serve(context, found, call?.caller);
  };

  #addressOf(request: IncomingMessage): string {
    const isForwarded = request.headers['x-forwarded-for'] !== undefined;
    const forwarded = isForwarded ? this.#forwarded?.(request) : undefined;
    return forwarded ?? request.socket.remoteAddress ?? '';
  }

  /**
   * What the router says: a route, `null` for none, and no store for a path that it cannot read.
   */
  #find(method = '', url = ''): Found | null {
    const found = this.#router.find(method as HTTPMethod, url) as Found | null; // what `listen` gave it
    // The answer to GET without its body (RFC 9110 §9.3.2), for every path that has one.
    return found === null && method === 'HEAD' ? this.#find('GET', url) : found;
  }

  /** `known` is who calls, where that needs no stage. */
  async #serve(context: RequestContext, found: Found | null, known?: Caller): Promise<void> {
    const route = found?.store ?? undefined;
    let isAdmitted = route === undefined;
    try {
      if (route === undefined) this.#answerPath(context, found);
      else {
        const identifying = this.#identify(context, route, known);
        if (identifying !== undefined) await identifying;
        if (route.method !== 'GET') context.body = await this.#readBody(context, route);
        isAdmitted = true;
        if (route.sells === undefined) await this.#countUnsold(context, route);
        else if (this.#parts.headers.tagsHeader in context.headers) readTags(context, this.#parts);
        const handling = this.#handle(context, route);
        if (handling !== undefined) await handling;
      }
    } catch (error) {
      // Whatever a stage or a handler throws becomes the answer here, once. Who leaves before its
      // request is read has done nothing that a guard could count.
      if (route === undefined && found === null) await this.#identifyStranger(context);
      if (isAdmitted || !context.isGone) await this.#fail(context, error);
    } finally {
      // An answer that could not be written leaves nobody waiting.
      if (!context.answered) context.destroy();
      context.finish();
    }
  }

  /** Runs the handler: once for all requests with its idempotency key, where it has one. */
  #handle(context: RequestContext, route: Route): void | Promise<void> {
    const isOnce =
      context.headers['idempotency-key'] !== undefined && route.ownIdempotency !== true;
    const { once: runOnce } = this.#parts;
    if (this.#within === undefined) return isOnce ? runOnce(context, route) : route.handle(context);
    return this.#within(context, () => (isOnce ? runOnce(context, route) : route.handle(context)));
  }

  /**
   * Identifies the caller and asks the guard about it: by key or wallet, else by the failed
   * credential and its address. A blocked caller gets the guard's response before any other.
   */
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
      // A blocked caller gets the guard's answer instead of the refusal.
      guard.refuse(context, route);
      throw error;
    }
    if (identifying === undefined) return guard.refuse(context, route);
    return identifying.finally(() => guard.refuse(context, route));
  }

  #readBody(context: RequestContext, route: Route): Promise<Buffer> {
    requireMediaType(context.request, route);
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
    // A file of a form has the fields and the frame of the form around it.
    const isForm = headers['content-type']?.toLowerCase().startsWith('multipart/') === true;
    return isForm ? fileLimitBytes + BODY_LIMIT_BYTES : jsonLimitBytes;
  }

  /** Answers a preflight; throws for a path that is not there, or not with this method. */
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
      ? `This server speaks HTTP and no WebSocket: send each request with ${allow}, and ask again for what a subscription would tell`
      : `The method is not allowed on this path; use ${allow}`;
    throw new Fault('METHOD_NOT_ALLOWED', { message, headers: { allow } });
  }

  #unknownPath(url: string | undefined): Fault {
    const { basePath } = this.#parts;
    // The usual mistake is a base URL without the version.
    const hint = targetPath(url).startsWith(basePath) ? '' : `; the base path is ${basePath}`;
    return new Fault('NOT_FOUND', { message: `Not found${hint}` });
  }

  /** Who asked for a path that is not there, for the guard and the log; never throws. */
  async #identifyStranger(context: RequestContext): Promise<void> {
    const { authorization, 'x-api-key': key } = context.headers;
    if ((authorization ?? key) === undefined) return;
    try {
      await this.#parts.identify(context, ANY_PATH);
    } catch {
      // The database is away: the path is unknown whoever asks.
    }
  }

  async #fail(context: RequestContext, error: unknown): Promise<void> {
    const { headers, log } = this.#parts;
    const answer = errorResponse(error, wantsOpenAi(context, headers.errorFormats), context);
    context.notes.code = answer.fault.code;
    if (answer.status >= 500 && !NO_FAILURES.has(answer.fault.code)) {
      const { cause } = answer.fault.options;
      const stack =
        answer.fault.code === 'UNKNOWN_ERROR' && cause instanceof Error ? cause.stack : undefined;
      const reason = reasonOf(cause ?? answer.fault);
      log.error({ requestId: context.requestId, reason, stack }, 'Request failed');
    }
    if (context.answered) return context.destroy();
    // It says that what was paid for is served; the settlement stands in `PAYMENT-RESPONSE`.
    context.drop('Payment-Receipt');
    // A payment that is still under way (202) is no failure.
    if (answer.status >= 400) {
      context.setAll(headers.failed);
      context.addVary(errorVary(context, headers.errorFormats));
    }
    context.setAll(answer.headers);
    try {
      context.setMissing(await this.#parts.refusalHeaders(context, answer.fault));
      await this.#addBalanceHeaders(context);
    } catch {
      // The database is away: the refusal goes out without the balance and the limits.
    }
    await context.json(answer.status, answer.body);
  }

  /**
   * Adds balance headers for a known caller. A sale has them from its admission, and so has a
   * caller that pays instead of signing in: its payment is not proven before.
   */
  async #addBalanceHeaders(context: RequestContext): Promise<void> {
    const caller = context.callerIfKnown;
    if (caller === undefined || caller.payment !== undefined) return;
    context.setMissing(await this.#parts.balanceHeaders(caller));
  }

  /** What sells nothing has one limit for all of it, and its headers; what sells counts itself. */
  async #countUnsold(context: RequestContext, route: Route): Promise<void> {
    const { callerIfKnown: caller } = context;
    if (caller === undefined || route.operational === true) return;
    await this.#addBalanceHeaders(context);
    context.setAll(await this.#parts.countUnsold(caller, route));
  }

  readonly #ended = (context: RequestContext, observers = this.#parts.observers): void => {
    this.open -= 1;
    if (context.bodyBytes > 0) this.bodyMemory.release(context);
    const tookMs = this.#parts.clock.monotonicMs() - context.startedMs;
    for (let at = 0; at < observers.length; at += 1) observers[at]?.ended(context, tookMs);
  };
}

function addressOf(server: Server): AddressInfo {
  return server.address() as AddressInfo; // of a server that listens on a port
}
