/**
 * The listening HTTP server, wired: the stages of a request with the parts behind them, and the end
 * in which open answers finish before the door closes.
 */
import { hostname } from 'node:os';
import type { FastifyInstance } from 'fastify';
import { AnswerHeaders } from '../http/answer-headers.ts';
import type { RequestContext } from '../http/request-context.ts';
import { idempotentStage } from '../http/idempotent.ts';
import { type IdentifyParts, identifyStage } from '../http/identify.ts';
import type { Route } from '../http/route.ts';
import { buildServer } from '../http/http.ts';
import { standardHeaders } from '../http/standard-headers.ts';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';
import type { Caller } from '../identity/identity.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { Observers } from './observers.ts';

/** How long cut answers may take to settle what they produced. */
const SETTLE_GRACE_MS = 5_000;

export interface ListenParts {
  readonly shared: FeatureParts;
  readonly basePath: string;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly routes: readonly Route[];
  readonly callers: IdentifyParts;
  readonly idempotency: Idempotency;
  readonly observers: Observers;
}

export interface Listener {
  readonly server: FastifyInstance;
  /** Where it listens, `http://host:port`. */
  readonly address: string;
  /** No new work; open answers finish, to the deadline. */
  close(): Promise<void>;
}

/** Builds the server; resolves when it listens. */
export async function listen(parts: ListenParts): Promise<Listener> {
  const { shared, observers } = parts;
  const { listen, http } = shared.config();
  const server = await serverOf(parts);
  const address = await server.listen({ host: listen.host, port: listen.port });
  return {
    server,
    address,
    close: async () => {
      observers.traffic.close();
      await drain(server, parts, http.drainSeconds * SECOND_MS);
      await server.close();
    },
  };
}

function serverOf(parts: ListenParts): Promise<FastifyInstance> {
  const { shared, basePath, version, routes, callers, idempotency, observers } = parts;
  const { clock, ids, log, stores } = shared;
  const { service, http } = shared.config();
  const make = new AnswerHeaders({ serviceName: service.name, clock });
  const balanceHeaders = async (_context: RequestContext, caller: Caller) =>
    make.balanceHeaders(await stores.ledger.balances(caller.accountId), caller);
  const once = idempotentStage({ idempotency, balanceHeaders });
  return buildServer({
    options: {
      basePath,
      trustProxy: http.trustProxy,
      maxConnections: http.maxConnections,
      requestTimeoutMs: http.requestTimeoutSeconds * SECOND_MS,
      writeTimeoutMs: http.writeTimeoutSeconds * SECOND_MS,
    },
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
    routes,
    guard: (context, route) => observers.refuse(context, route),
    once: (context, route, run) => observers.within(context, () => once(context, route, run)),
    balanceHeaders,
    identify: identifyStage(callers),
    refusal: () => observers.traffic.refusal(),
    started: (context, route) => observers.started(context, route),
    finished: (context, route, status) => observers.finished(context, route, status),
  });
}

/**
 * Open answers finish, to the deadline; those that are left are cut, and pay for what they produced.
 * The socket listens all the while, so that `/readyz` can say why new work is refused.
 */
async function drain(
  server: FastifyInstance,
  { shared: { clock }, observers: { traffic } }: ListenParts,
  limitMs: number,
): Promise<void> {
  const isDrained = await traffic.drained(clock, limitMs);
  // Connections that idle, or that send half a request, would hold the closing server open.
  server.server.closeAllConnections();
  if (!isDrained) await traffic.drained(clock, SETTLE_GRACE_MS);
}
