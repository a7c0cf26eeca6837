/** Composes the HTTP server: authentication, concurrency, limits, logs and observers of requests. */
import { hostname } from 'node:os';
import { AbuseGuard } from '../http/abuse-guard.ts';
import { ResponseHeaders, standardHeaders } from '../http/response-headers.ts';
import { HttpServer, type RequestObserver, type ServerParts } from '../http/http.ts';
import type { RequestContext } from '../http/request-context.ts';
import { limitRequests } from '../http/limit-requests.ts';
import { idempotentStage } from '../http/idempotent.ts';
import { type IdentifyParts, identifyStage } from '../http/identify.ts';
import type { Slots } from '../billing/limits/limits.ts';
import { type LimitOf, rateHeaders } from '../billing/sale.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';
import { nano } from '../core/money.ts';
import { Fault } from '../core/faults.ts';
import type { Log, LogFields } from '../core/log.ts';
import { type Caller, paymentOnlyBucket } from '../identity/identity.ts';
import type { Wallets } from '../wallet/wallet.ts';
import { limitPayments } from '../wallet/x402/x402.ts';
import { sessionCookie } from './console.ts';
import { unsoldLimit } from './endpoint-limits.ts';
import { FailedRequests } from './failed-requests.ts';
import type { FeatureParts } from './feature-parts.ts';

export interface HttpServerParts {
  readonly shared: FeatureParts;
  readonly basePath: string;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly wallets: Wallets;
  /** Concurrency limits of callers. */
  readonly slots: Slots;
  readonly idempotency: Idempotency;
  /** Notified of every request, after the guard and the log. */
  readonly observers: readonly RequestObserver[];
}

export function openHttpServer(parts: HttpServerParts): HttpServer {
  const { shared, basePath, version, wallets, slots, idempotency, observers } = parts;
  const { config, catalog, engines, clock, ids, log, limitLog, sales, stores, rateOf } = shared;
  const { service, http } = config.current;
  const guard = new AbuseGuard({
    config,
    limitLog,
    clock,
    basePath,
    store: stores.store,
    processId: stores.processId,
  });
  const make = new ResponseHeaders({ serviceName: service.name, clock });
  // The available balance excludes holds of jobs and running requests.
  const balanceHeaders: ServerParts['balanceHeaders'] = async (caller) => {
    const { usdNano, diemNano, heldUsdNano, heldDiemNano } = await stores.ledger.funds(
      caller.accountId,
    );
    const available = {
      usdNano: nano(usdNano - heldUsdNano),
      diemNano: nano(diemNano - heldDiemNano),
    };
    return make.balanceHeaders(available, caller);
  };
  // The limit of the model, or the one of unpriced routes.
  const modelLimit = (caller: Caller, model: CatalogModel | undefined): LimitOf =>
    model === undefined
      ? unsoldLimit(config.current, clock, caller)
      : { caller, modelId: model.id, rate: rateOf(caller, model) };
  return new HttpServer({
    settings: http,
    basePath,
    clock,
    ids,
    log,
    headers: standardHeaders(clock, {
      serviceName: service.name,
      version,
      hostName: hostname(),
      timestamps: service.timestampHeader,
      corsOrigins: http.corsOrigins,
    }),
    identify: identifyStage(callersOf(shared, wallets, slots)),
    guard,
    once: idempotentStage({ idempotency, balanceHeaders }),
    balanceHeaders,
    countUnsold: async (caller, route) => {
      const limit = unsoldLimit(
        config.current,
        clock,
        caller,
        `endpoint:${basePath.slice(1)}${route.path}`,
      );
      const { window } = await sales.count({ ...limit, tokensEstimate: 0 });
      return rateHeaders(window, limit.rate, clock.nowMs());
    },
    refusalHeaders: async ({ callerIfKnown: caller, known: facts, route }, { options }) => {
      const model = options.modelId === undefined ? undefined : catalog.get(options.modelId);
      const known = facts ?? (model && { model, deprecation: undefined });
      const headers = known === undefined ? {} : make.answered(known);
      if (caller === undefined || known?.sale !== undefined) return headers;
      const limit = route?.limitOf?.(caller) ?? modelLimit(caller, known?.model);
      return { ...headers, ...(await sales.limitHeaders(limit)) };
    },
    observers: [guard, new RequestLog(log, new FailedRequests(shared)), ...observers],
    cut: () => engines.abort(),
  });
}

function callersOf(shared: FeatureParts, wallets: Wallets, slots: Slots): IdentifyParts {
  const { config, stores } = shared;
  const { withStake, tokenPrefix } = wallets;
  const cookie = sessionCookie(config);
  const callerOfSession = async (secret: string, context: RequestContext): Promise<Caller> => {
    const { session, caller } = await stores.identity.sessions.open(secret);
    cookie().requireOwnPage(context, session);
    if (caller !== undefined) return withStake === undefined ? caller : withStake(caller);
    return { ...(await wallets.callerOfWallet(session.wallet ?? '')), session };
  };
  return {
    callerOfBearer: (token) => {
      if (tokenPrefix !== undefined && token.startsWith(tokenPrefix)) {
        return wallets.callerOfToken(token);
      }
      const caller = stores.identity.keys.callerOf(token);
      if (withStake === undefined) return caller;
      return caller instanceof Promise ? caller.then(withStake) : withStake(caller);
    },
    callerOfSignIn: wallets.callerOfSignIn,
    callerOfCookie: (header, context) => {
      const secret = cookie().secretIn(header);
      return secret === undefined ? undefined : callerOfSession(secret, context);
    },
    callerOfPayment: async (header, context) => {
      // Each payment causes a call to a node, on every route.
      await limitPayments(shared, context, config.current.payments.routesPerMinute.topUp);
      return wallets.callerOfPayment(header, context);
    },
    callerOfQuote: async (context, route) => {
      const caller = wallets.callerOfQuote(context, route);
      if (caller === undefined) return undefined;
      // Above the limit the 402 contains the first payment instead of the price.
      const { topUp } = config.current.payments.routesPerMinute;
      return (await isWithinQuotes(shared, context, topUp)) ? caller : undefined;
    },
    discovery: wallets.discovery,
    enter: (context, caller, route) => {
      const isWallet = caller.kind === 'wallet';
      if (isWallet) wallets.entered(caller, context, route);
      const { walletConcurrency, keyConcurrency } = config.current.limits;
      const limit = isWallet ? walletConcurrency : keyConcurrency;
      // Requests with an `Idempotency-Key` continue after a disconnect, and still count.
      const entering = slots.enter(paymentOnlyBucket(caller) ?? caller.accountId, limit);
      if (entering instanceof Promise) {
        return entering.then((leave) => {
          context.leave = leave;
          if (leave === undefined) throw tooManyAtOnce(caller, limit);
        });
      }
      context.leave = entering;
      if (entering === undefined) throw tooManyAtOnce(caller, limit);
    },
  };
}

/** Counts a price quote for an anonymous caller; returns `false` above the limit. */
async function isWithinQuotes(
  parts: FeatureParts,
  context: RequestContext,
  perMinute: number,
): Promise<boolean> {
  try {
    await limitRequests(parts, `x402-quote|${context.countedAddress}`, perMinute);
    return true;
  } catch (error) {
    if (error instanceof Fault && error.status === 429) return false;
    throw error;
  }
}

function tooManyAtOnce({ kind }: Caller, limit: number): Fault {
  return new Fault(kind === 'wallet' ? 'X402_CONCURRENCY_LIMIT' : 'RATE_LIMIT_EXCEEDED', {
    message: `Too many concurrent requests: at most ${limit} can run at the same time`,
    retryAfterSeconds: 1,
  });
}

/**
 * Logs one line per request, without secrets. Warns once about a proxy that is not trusted, because all of
 * its callers count as one address.
 */
class RequestLog implements RequestObserver {
  readonly #log: Log;
  readonly #failed: FailedRequests;
  #hasNoticed = false;

  constructor(log: Log, failed: FailedRequests) {
    this.#log = log;
    this.#failed = failed;
  }

  ended(context: RequestContext, tookMs: number): void {
    const { route, callerIfKnown: caller, notes } = context;
    const { 'x-forwarded-for': forwardedFor, forwarded } = context.headers;
    if ((forwardedFor ?? forwarded) !== undefined) this.#noticeProxy(context);
    let fields: LogFields = {
      requestId: context.requestId,
      method: context.request.method,
      route: route?.path ?? 'unknown',
      status: context.statusCode,
      ms: Math.round(tookMs),
      account: caller?.accountId,
      key: caller?.keyId,
      model: notes.model,
      replica: notes.replica,
      costUsd: notes.costUsd,
      promptTokens: notes.promptTokens,
      completionTokens: notes.completionTokens,
      firstTokenMs: notes.firstTokenMs,
      code: notes.code,
    };
    // Health checks and scrapes would fill the log.
    if (route?.operational === true) return this.#log.debug(fields, 'Request');
    // The console cancels reads when its page changes.
    const isConsoleRead = caller?.session !== undefined && context.request.method === 'GET';
    // The reader of an endless stream of events always disconnects.
    const isUnanswered = !context.answered && !isConsoleRead;
    const hasLeft = context.isGone && (isUnanswered || context.known?.sale !== undefined);
    if (context.fault !== undefined || context.tries !== undefined || hasLeft) {
      fields = { ...fields, ...this.#failed.record(context, tookMs) };
    }
    this.#log.info(fields, 'Request');
  }

  #noticeProxy({ request, address }: RequestContext): void {
    if (this.#hasNoticed || address !== request.socket.remoteAddress) return;
    this.#hasNoticed = true;
    this.#log.warn(
      { peer: address },
      'A proxy sends X-Forwarded-For, but http.trustProxy is not set, so all its callers count as one address; if the peer is your proxy, set http.trustProxy to true or to its address',
    );
  }
}
