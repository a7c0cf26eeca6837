/**
 * The only composition root: builds every part from the configuration and hands each what it
 * needs. Two apps in one process share nothing.
 */
import { hostname } from 'node:os';
import type { FastifyInstance } from 'fastify';
import { standingHeaders } from './api/answer-headers.ts';
import type { Exchange } from './api/exchange.ts';
import { idempotentStage } from './api/idempotent.ts';
import { identifyStage } from './api/identify.ts';
import type { Route } from './api/route.ts';
import { chatCompletionsRoute } from './api/routes/chat-completions/chat-completions.ts';
import { modelRoutes } from './api/routes/models/models.ts';
import { takePaymentTurn } from './api/routes/x402/x402.ts';
import { buildServer } from './api/server.ts';
import { standardHeaders } from './api/standard-headers.ts';
import { AbuseGuard } from './app/abuse-guard.ts';
import { accountSubject } from './app/account.ts';
import { configuredEngines, hostOf } from './app/engine-settings.ts';
import { type Extras, additionParts, extrasSubject, openExtras } from './app/extras.ts';
import type { DownloadView } from './app/download-view.ts';
import { type LocalEngineSource, LocalEngines } from './app/local-engines.ts';
import { mediaSubject } from './app/media.ts';
import { type Office, openOffice } from './app/office.ts';
import { rpcSubject } from './app/rpc.ts';
import { sharedLimits } from './app/shared-limits.ts';
import type { Shared, Subject } from './app/subject.ts';
import { Upkeep } from './app/upkeep.ts';
import { type Wallets, openWallets, walletsSubject } from './app/wallets.ts';
import { Catalog } from './catalog/catalog.ts';
import type { Config } from './config/config.ts';
import { Engines } from './engines/engines.ts';
import { callerRate } from './flows/caller-limits.ts';
import { Charge } from './flows/charge.ts';
import { type ChatParts, planAdditions } from './flows/chat/chat.ts';
import { Idempotency } from './idempotency/idempotency.ts';
import type { Caller } from './identity/identity.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from './kernel/clock.ts';
import { Fault } from './kernel/faults.ts';
import type { Ids } from './kernel/ids.ts';
import { type Log, reasonOf } from './kernel/log.ts';
import { usdToNano } from './kernel/money.ts';
import { Concurrency, LimitLog } from './limits/limits.ts';
import { type ServerLock, lockDataFolder } from './store/store.ts';
import { videoConstraints } from './video/video.ts';
import { type EngineDialect, engineDialect } from './wire/engine-request.ts';

export const BASE_PATH = '/api/v1';
/** How long a closing server waits for engines that still answer callers who left. */
const ENGINE_GRACE_MS = 1_000;
const DRAIN_POLL_MS = 20;

export interface AppParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  /** Engines that another process runs; default: this one runs its own. */
  readonly localEngines?: (onChange: () => void) => LocalEngineSource;
  /** Shows downloads to whoever sits at the terminal. */
  readonly downloadView?: (title: string) => DownloadView;
}

export interface App {
  readonly office: Office;
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly localEngines: LocalEngineSource;
  /** Resolves when the engines of this machine were looked for and the embedded one is up. */
  readonly localReady: Promise<void>;
  readonly server: FastifyInstance;
  /** Where it listens, `http://host:port`. */
  readonly address: string;
  /** Whether new work is taken, and what stands in its way. */
  readiness(): Readiness;
  /** Takes over what can change without a restart. */
  configure(config: Config): void;
  /** No new work, open answers finish (to the deadline), holds settle, then everything closes. */
  close(): Promise<void>;
}

export interface Readiness {
  readonly ok: boolean;
  /** `undefined`, or why the database does not answer. */
  readonly database: string | undefined;
  /** Settles that wait in the local journal for the database. */
  readonly journaled: number;
  /** Engines that are configured or found. */
  readonly engines: number;
  readonly isClosing: boolean;
}

/** Builds and starts everything; resolves when the server listens. */
export async function startApp(parts: AppParts): Promise<App> {
  const { config, clock, ids, log } = parts;
  const lock = lockFor(config);
  const office = await openOffice(parts);
  const isAlone = office.store.dialect === 'sqlite';
  await office.ledger.start({ alone: isAlone });
  const extras = await openExtras(config, clock, log);
  const wallets = await openWallets({ ...parts, office, basePath: BASE_PATH });
  const core = buildCore(parts, office, { extras, wallets });
  const subjects = subjectsOf(core);
  const upkeep = new Upkeep({
    config: core.shared.config,
    office,
    limitLog: core.limitLog,
    chores: subjects.flatMap((subject) => subject.everyMinute ?? []),
    sharedChores: [core.pruneWindows, ...subjects.flatMap((subject) => subject.onceAMinute ?? [])],
    clock,
    ids,
    log,
  });
  await upkeep.start();
  const traffic = new Traffic();
  const standing = async (_exchange: Exchange, caller: Caller) =>
    standingHeaders(await office.ledger.balances(caller.accountId), caller, config.service.name);
  const server = await buildServer({
    options: {
      basePath: BASE_PATH,
      trustProxy: config.http.trustProxy,
      maxConnections: config.http.maxConnections,
      requestTimeoutMs: config.http.requestTimeoutSeconds * SECOND_MS,
    },
    clock,
    ids,
    log,
    headers: standardHeaders(clock, {
      serviceName: config.service.name,
      version: parts.version,
      hostName: hostname(),
      timestamps: config.service.timestampHeader,
      corsOrigins: config.http.corsOrigins,
    }),
    routes: subjects.flatMap((subject) => subject.routes),
    guard: (exchange, route) => core.guard.refuse(exchange, route),
    once: idempotentStage({ idempotency: core.idempotency, log, standing }),
    standing,
    identify: identifyStage(core.identifyParts),
    refusal: () => traffic.refusal(),
    started: () => traffic.enter(),
    finished: (exchange, route, status) => {
      traffic.leave();
      core.finished(exchange, route, status);
    },
  });
  const address = await server.listen({ host: config.listen.host, port: config.listen.port });
  const stopPruning = clock.every(MINUTE_MS, () => core.prune());
  for (const subject of subjects) subject.start?.();
  const localReady = core.localEngines.start();
  return {
    office,
    catalog: core.catalog,
    engines: core.engines,
    localEngines: core.localEngines,
    localReady,
    server,
    address,
    readiness: () => {
      const database = office.store.unavailable();
      const { isClosing } = traffic;
      const { journaled } = office.ledger;
      const engines = core.engineCount();
      return { ok: database === undefined && !isClosing, database, journaled, engines, isClosing };
    },
    configure: (next) => core.configure(next),
    close: async () => {
      traffic.close();
      await traffic.drained(clock, config.http.drainSeconds * SECOND_MS);
      stopPruning();
      await server.close();
      await upkeep.stop();
      for (const subject of subjects.toReversed()) await subject.close?.();
      await core.engines.close(ENGINE_GRACE_MS);
      await core.localEngines.stop();
      await core.limitLog.flush().catch((error: unknown) => {
        // The database is away: log lines cost nobody money.
        log.warn({ reason: reasonOf(error) }, 'The limit log is not written');
      });
      await office.ledger.stop();
      await office.close();
      lock?.release();
    },
  };
}

/** Counts open requests, so that a closing server knows when the last answer has left. */
class Traffic {
  #open = 0;
  #closing = false;

  enter(): void {
    this.#open += 1;
  }

  leave(): void {
    this.#open -= 1;
  }

  close(): void {
    this.#closing = true;
  }

  get isClosing(): boolean {
    return this.#closing;
  }

  refusal(): Fault | undefined {
    return this.#closing ? new Fault('SHUTTING_DOWN', { retryAfterSeconds: 1 }) : undefined;
  }

  async drained(clock: Clock, limitMs: number): Promise<void> {
    const untilMs = clock.monotonicMs() + limitMs;
    while (this.#open > 0 && clock.monotonicMs() < untilMs) await clock.sleep(DRAIN_POLL_MS);
  }
}

/** One server a data folder, when the database is a file in it. */
function lockFor(config: Config): ServerLock | undefined {
  if (!config.databaseUrl.startsWith('sqlite:')) return undefined;
  const lock = lockDataFolder(config.dataFolder);
  if (lock !== undefined) return lock;
  throw new Error(
    `Another server runs on the data folder ${config.dataFolder}. Stop it, or set FAREBOX_DATA to another folder`,
  );
}

/** The parts behind the routes. */
type Core = ReturnType<typeof buildCore>;

function buildCore(
  parts: AppParts,
  office: Office,
  { extras, wallets }: { readonly extras: Extras; readonly wallets: Wallets },
) {
  const { clock, ids, log } = parts;
  let config = parts.config;
  const engines = new Engines({ clock, ids, log });
  const webSearch = extras.web.canSearch;
  const catalog = new Catalog({ settings: config, clock, webSearch, videoConstraints });
  const localEngines =
    parts.localEngines?.(() => refresh()) ??
    new LocalEngines({
      config,
      clock,
      ids,
      log,
      onChange: () => refresh(),
      ...(parts.downloadView === undefined ? {} : { viewOf: parts.downloadView }),
    });
  let minimumCredit = usdToNano(config.limits.minimumCreditUsd);
  let dialects = new Map<string, EngineDialect>();
  const refresh = (): void => {
    const configured = configuredEngines(config);
    engines.update([...configured, ...localEngines.engines()]);
    dialects = new Map(configured.map((one) => [one.id, engineDialect(hostOf(one))]));
    minimumCredit = usdToNano(config.limits.minimumCreditUsd);
    catalog.setDiscovered(localEngines.models());
  };
  refresh();
  const limitLog = new LimitLog({ store: office.store, clock, ids });
  const { windows, admissions } = sharedLimits(office, clock);
  const guard = new AbuseGuard({ config: () => config, limitLog, clock, basePath: BASE_PATH });
  const charge = new Charge({
    ledger: office.ledger,
    windows,
    admissions,
    limitLog,
    clock,
    log,
    minimumCreditNano: () => minimumCredit,
    walletRefusal: (caller, credit) => wallets.refusal(caller, credit),
  });
  const additions = additionParts(extras, clock, () => config);
  const chat: ChatParts = {
    catalog,
    engines,
    charge,
    clock,
    ids,
    log,
    serviceName: config.service.name,
    systemPrompt: () => config.service.systemPrompt ?? '',
    rateOf: (caller, model) => callerRate(config.limits, caller, model),
    dialectOf: (id) => dialects.get(id) ?? engineDialect(''),
    canSearch: extras.web.canSearch,
    planAdditions: (call, model) => planAdditions(additions, call, model),
  };
  const concurrency = new Concurrency();
  const shared: Shared = {
    config: () => config,
    office,
    catalog,
    engines,
    charge,
    windows,
    limitLog,
    guard: extras.guard,
    clock,
    ids,
    log,
  };
  const idempotency = new Idempotency({ store: office.store, clock, ids, log });
  return {
    shared,
    guard,
    extras,
    wallets,
    idempotency,
    catalog,
    engines,
    localEngines,
    limitLog,
    chat,
    identifyParts: {
      callerOfBearer: (token: string) =>
        wallets.isToken(token) ? wallets.callerOfToken(token) : office.identity.callerOf(token),
      callerOfSignIn: wallets.callerOfSignIn,
      callerOfPayment: async (header: string, exchange: Exchange) => {
        // Each payment is a question to the chain, wherever it is sent.
        await takePaymentTurn({ windows, clock }, exchange, config.payments.routesPerMinute.topUp);
        return wallets.callerOfPayment(header, exchange);
      },
      discovery: wallets.discovery,
      enter: (exchange: Exchange, caller: Caller, route: Route) => {
        wallets.entered(caller, exchange, route);
        const limit =
          caller.kind === 'wallet' ? config.limits.walletConcurrency : config.limits.keyConcurrency;
        const leave = concurrency.enter(caller.accountId, limit);
        if (leave === undefined) throw tooManyAtOnce(caller.kind, limit);
        exchange.onClose(leave);
      },
    },
    finished: (exchange: Exchange, route: Route | undefined, status: number): void => {
      guard.count(exchange, status);
      logRequest(log, clock, exchange, route, status);
    },
    engineCount: (): number => Object.keys(config.engines).length + localEngines.engines().length,
    prune: (): void => guard.prune(),
    pruneWindows: (): Promise<void> => windows.prune(clock.nowMs()),
    configure: (next: Config): void => {
      config = next;
      catalog.configure(next);
      refresh();
      void extras.personas.reload();
    },
  };
}

/** Every subject of the product; each brings its routes, its chores and its end. */
function subjectsOf(core: Core): Subject[] {
  const subjects: Subject[] = [
    { routes: [chatCompletionsRoute(core.chat), ...modelRoutes(core.catalog)] },
    {
      routes: [],
      onceAMinute: () => core.idempotency.prune(),
      close: () => core.idempotency.close(),
    },
    extrasSubject(core.extras, core.chat),
    rpcSubject(core.shared, core.idempotency),
    accountSubject(core.shared, core.wallets.payments),
    mediaSubject(core.shared),
    walletsSubject(core.shared, core.wallets, () => subjects.flatMap(({ routes }) => routes)),
  ];
  return subjects;
}

function tooManyAtOnce(kind: 'key' | 'wallet', limit: number): Fault {
  return new Fault(kind === 'wallet' ? 'X402_CONCURRENCY_LIMIT' : 'RATE_LIMIT_EXCEEDED', {
    message: `Too many concurrent requests: at most ${limit} run at once`,
    retryAfterSeconds: 1,
  });
}

function logRequest(
  log: Log,
  clock: Clock,
  exchange: Exchange,
  route: Route | undefined,
  status: number,
): void {
  const caller = exchange.callerIfKnown;
  log.info(
    {
      requestId: exchange.requestId,
      method: exchange.request.method,
      route: route?.path ?? 'unknown',
      status,
      ms: Math.round(clock.monotonicMs() - exchange.startedMs),
      ...(caller === undefined ? {} : { account: caller.accountId, key: caller.keyId }),
      ...exchange.notes,
    },
    'Request',
  );
}
