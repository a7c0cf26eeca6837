/**
 * The listening HTTP server, wired: the stages of a request with the parts behind them, and the end
 * in which open answers finish before the door closes.
 */
import { hostname } from 'node:os';
import type { FastifyInstance } from 'fastify';
import { AnswerHeaders } from '../api/answer-headers.ts';
import type { Exchange } from '../api/exchange.ts';
import { idempotentStage } from '../api/idempotent.ts';
import { type IdentifyParts, identifyStage } from '../api/identify.ts';
import type { Route } from '../api/route.ts';
import { buildServer } from '../api/server.ts';
import { standardHeaders } from '../api/standard-headers.ts';
import type { Idempotency } from '../idempotency/idempotency.ts';
import type { Caller } from '../identity/identity.ts';
import { SECOND_MS } from '../kernel/clock.ts';
import type { Shared } from './subject.ts';
import type { Watch } from './watch.ts';

/** How long cut answers may take to settle what they produced. */
const SETTLE_GRACE_MS = 5_000;

export interface FrontDoorParts {
  readonly shared: Shared;
  readonly basePath: string;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly routes: readonly Route[];
  readonly callers: IdentifyParts;
  readonly idempotency: Idempotency;
  readonly watch: Watch;
}

export interface FrontDoor {
  readonly server: FastifyInstance;
  /** Where it listens, `http://host:port`. */
  readonly address: string;
  /** No new work; open answers finish, to the deadline. */
  close(): Promise<void>;
}

/** Builds the server; resolves when it listens. */
export async function openFrontDoor(parts: FrontDoorParts): Promise<FrontDoor> {
  const { shared, watch } = parts;
  const { listen, http } = shared.config();
  const server = await serverOf(parts);
  const address = await server.listen({ host: listen.host, port: listen.port });
  return {
    server,
    address,
    close: async () => {
      watch.traffic.close();
      await drain(server, parts, http.drainSeconds * SECOND_MS);
      await server.close();
    },
  };
}

function serverOf(parts: FrontDoorParts): Promise<FastifyInstance> {
  const { shared, basePath, version, routes, callers, idempotency, watch } = parts;
  const { clock, ids, log, office } = shared;
  const { service, http } = shared.config();
  const make = new AnswerHeaders({ serviceName: service.name, clock });
  const standing = async (_exchange: Exchange, caller: Caller) =>
    make.standing(await office.ledger.balances(caller.accountId), caller);
  const once = idempotentStage({ idempotency, log, standing });
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
    guard: (exchange, route) => watch.refuse(exchange, route),
    once: (exchange, route, run) => watch.within(exchange, () => once(exchange, route, run)),
    standing,
    identify: identifyStage(callers),
    refusal: () => watch.traffic.refusal(),
    started: (exchange, route) => watch.started(exchange, route),
    finished: (exchange, route, status) => watch.finished(exchange, route, status),
  });
}

/**
 * Open answers finish, to the deadline; those that are left are cut, and pay for what they produced.
 * The socket listens all the while, so that `/readyz` can say why new work is refused.
 */
async function drain(
  server: FastifyInstance,
  { shared: { clock }, watch: { traffic } }: FrontDoorParts,
  limitMs: number,
): Promise<void> {
  const isDrained = await traffic.drained(clock, limitMs);
  // Connections that idle, or that send half a request, would hold the closing server open.
  server.server.closeAllConnections();
  if (!isDrained) await traffic.drained(clock, SETTLE_GRACE_MS);
}
