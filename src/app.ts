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
import { type OpenApiDocument, openApiDocument } from './api/openapi/openapi.ts';
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
import { Monitor } from './app/monitor.ts';
import { logRequest } from './app/log-request.ts';
import { type Office, openOffice } from './app/office.ts';
import { opsSubject } from './app/ops.ts';
import { rpcSubject } from './app/rpc.ts';
import { sharedLimits } from './app/shared-limits.ts';
import type { Shared, Subject } from './app/subject.ts';
import { Traces } from './app/traces.ts';
import { Traffic } from './app/traffic.ts';
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
/** How long cut answers may take to settle what they produced. */
const SETTLE_GRACE_MS = 5_000;

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
  /** What it serves, as an OpenAPI 3.1 document. */
  openApi(): OpenApiDocument;
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
  const { traffic, monitor, traces } = core;
  const subjects = subjectsOf(core);
  const routes = subjects.flatMap((subject) => subject.routes);
  core.offer(routes);
  const upkeep = new Upkeep({
    config: core.shared.config,
    office,
    limitLog: core.limitLog,
    chores: subjects.flatMap((subject) => subject.everyMinute ?? []),
    sharedChores: [core.pruneWindows, ...subjects.flatMap((subject) => subject.onceAMinute ?? [])],
    clock,
    ids,
    log,
    ran: (result) => monitor.choreRan(result),
  });
  await upkeep.start();
  const standing = async (_exchange: Exchange, caller: Caller) =>
    standingHeaders(await office.ledger.balances(caller.accountId), caller, config.service.name);
  const once = idempotentStage({ idempotency: core.idempotency, log, standing });
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
    routes,
    guard: (exchange, route) => core.guard.refuse(exchange, route),
    once: (exchange, route, run) => traces.within(exchange, () => once(exchange, route, run)),
    standing,
    identify: identifyStage(core.identifyParts),
    refusal: () => traffic.refusal(),
    started: (exchange, route) => {
      traffic.enter();
      traces.begin(exchange, route);
    },
    finished: (exchange, route, status) => {
      traffic.leave();
      core.finished(exchange, route, status);
      monitor.requestEnded(exchange, route, status);
      traces.end(exchange, route, status);
    },
  });
  const address = await server.listen({ host: config.listen.host, port: config.listen.port });
  core.listens(address);
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
    openApi: () => core.document(),
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
      await drain(server, traffic, clock, config.http.drainSeconds * SECOND_MS);
      stopPruning();
      await server.close();
      await upkeep.stop();
      for (const subject of subjects.toReversed()) await subject.close?.();
      await core.engines.close(ENGINE_GRACE_MS);
      await traces.close();
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

/**
 * Open answers finish, to the deadline; those that are left are cut, and pay for what they produced.
 * The socket listens all the while, so that `/readyz` can say why new work is refused.
 */
async function drain(
  server: FastifyInstance,
  traffic: Traffic,
  clock: Clock,
  limitMs: number,
): Promise<void> {
  const isDrained = await traffic.drained(clock, limitMs);
  // Connections that idle, or that send half a request, would hold the closing server open.
  server.server.closeAllConnections();
  if (!isDrained) await traffic.drained(clock, SETTLE_GRACE_MS);
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
  const traffic = new Traffic();
  const traces = new Traces({ ...parts, config });
  const engines = new Engines({ clock, ids, log, observe: traces.callObserver });
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
  const monitor = new Monitor({
    office,
    clock,
    version: parts.version,
    engines,
    catalog,
    traffic,
    // A process whose engines another one runs is a worker of several on one port.
    labels: parts.localEngines === undefined ? {} : { process: String(process.pid) },
    spans: () => traces.counts,
  });
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
    settled: (admission, outcome, settlement) => {
      monitor.settled(admission, outcome, settlement);
      traces.settled(admission, outcome, settlement);
    },
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
  let routes: readonly Route[] = [];
  let listensOn: string | undefined;
  /** With port 0 only the listening server knows its address. */
  const publicOrigin = (): string =>
    config.publicUrl.endsWith(':0') ? (listensOn ?? config.publicUrl) : config.publicUrl;
  const document = () =>
    openApiDocument(routes, {
      serviceName: config.service.name,
      title: config.service.title,
      version: parts.version,
      publicUrl: publicOrigin(),
      basePath: BASE_PATH,
    });
  return {
    shared,
    guard,
    extras,
    wallets,
    traffic,
    monitor,
    traces,
    ops: {
      monitor,
      traffic,
      document: () => document(),
    },
    document: () => document(),
    listens: (address: string): void => {
      listensOn = address;
    },
    /** Tells the documentation what there is. */
    offer: (all: readonly Route[]): void => {
      routes = all;
    },
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
      if (route?.operational !== true) guard.count(exchange, status);
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
    opsSubject(core.shared, core.ops),
  ];
  return subjects;
}

function tooManyAtOnce(kind: 'key' | 'wallet', limit: number): Fault {
  return new Fault(kind === 'wallet' ? 'X402_CONCURRENCY_LIMIT' : 'RATE_LIMIT_EXCEEDED', {
    message: `Too many concurrent requests: at most ${limit} run at once`,
    retryAfterSeconds: 1,
  });
}
