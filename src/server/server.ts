/** The composition root: builds every part and passes its dependencies. Apps share no state. */
import { join } from 'node:path';
import { LargeBodies } from './large-bodies.ts';
import type { OpenApiDocument } from '../http/openapi/openapi.ts';
import type { HttpServer } from '../http/http.ts';
import type { Feature, Route } from '../http/route.ts';
import { openCacheScope, openSealer } from '../chat/chat.ts';
import { accountFeature } from '../account/account.ts';
import { batches } from './batches.ts';
import { accountParts } from './endpoint-limits.ts';
import { assetsOnDemand } from '../console/assets.ts';
import { consolePages } from '../console/console.ts';
import { type Extras, chatFeature, openExtras } from './chat.ts';
import { cardsFeature } from './checkout.ts';
import { consoleFeature } from './console.ts';
import { type FeatureParts, walletCredit } from './feature-parts.ts';
import type { DownloadView } from '../engines/embedded/model-files.ts';
import { EngineRegistry } from '../engines/registry.ts';
import { openHttpServer } from './http-server.ts';
import type { LocalEngineSource } from '../engines/embedded/embedded.ts';
import { mcpEndpoint } from './mcp.ts';
import { mediaFeature } from './media.ts';
import { ScheduledBackups } from './backup/scheduled-backups.ts';
import { lossSearch } from './customer-losses.ts';
import { type Stores, openStores, plansOf } from './stores.ts';
import { ownDocument } from './ops/documentation.ts';
import type { Operations } from './ops/admin.ts';
import { opsFeature } from './ops/ops.ts';
import { openCredits, rpcFeature } from './rpc.ts';
import { closeSale, releaseProcess, openSale, startSale, type SaleParts } from './sale-parts.ts';
import { openTraces } from './traces.ts';
import type { RejectionFigures } from './unhandled-rejections.ts';
import { Maintenance } from './maintenance.ts';
import { Mailer, type WebhooksFeature, webhooksFeature } from '../webhooks/webhooks.ts';
import { type Wallets, openWallets, walletsFeature } from '../wallet/wallet.ts';
import { type OwnView, ServerMetrics, type Siblings } from './metrics.ts';
import type { Catalog } from '../catalog/catalog.ts';
import {
  type Config,
  type ConfigInForce,
  type ModelType,
  settingsInForce,
} from '../config/config.ts';
import { videoConstraints } from '../video/model-checks.ts';
import type { Engines } from '../engines/engines.ts';
import { type Clock, SECOND_MS, dayOf } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { atOnce } from '../core/event-loop.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { enginesText } from './ops/admin.ts';
import { LimitLog } from '../billing/limits/limits.ts';
import { FailureLog } from '../observability/failure-log.ts';
import { type ServerLock, lockData, makeFolder } from '../db/db.ts';

export type { OwnView, Siblings } from './metrics.ts';

export const BASE_PATH = '/api/v1';

export interface AppParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  /** Unique among all processes, including ended ones. Default: a new UUID. */
  readonly processId?: string;
  /** Local engines of another process. Default: this process runs its own. */
  readonly localEngines?: (onChange: () => void) => LocalEngineSource;
  /** Other processes on the same port. Default: none. */
  readonly siblings?: Siblings;
  /** Count of unhandled rejections in this process. Default: 0. */
  readonly unhandledRejections?: RejectionFigures;
  /** Shows downloads on the terminal. */
  readonly downloadView?: ((title: string) => DownloadView) | undefined;
  /** Operations of the command line. Without them their routes do not exist. */
  readonly operations?: Operations;
}

export interface App {
  readonly stores: Stores;
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly localEngines: LocalEngineSource;
  /** Resolves after the discovery of local engines and the start of the embedded one. */
  readonly localReady: Promise<void>;
  readonly server: HttpServer;
  /** Listen address, `http://host:port`. */
  readonly address: string;
  openApi(): OpenApiDocument;
  readonly routes: readonly Route[];
  /** Returns data for other processes on the same port. */
  ownView(of: OwnView): Promise<string>;
  /** Releases holds, slots and keys of another process that has ended. */
  processEnded(processId: string): Promise<void>;
  /** Applies the settings that can change without a restart. */
  configure(config: Config): void;
  /** Rejects new requests, waits for running ones until the deadline, settles holds, and closes everything. */
  close(): Promise<void>;
}

/** Time for one part to end, so that a peer that does not respond does not delay the others. */
const PART_CLOSE_MS = 5 * SECOND_MS;

const NO_REJECTIONS: RejectionFigures = { count: 0 };

/** Resolves when the server listens. */
export async function startApp(parts: AppParts): Promise<App> {
  const config = { current: parts.config };
  makeFolder(config.current.dataFolder);
  const lock = lockFor(config.current);
  const stores = await openStores({ ...parts, planOf: plansOf(config) });
  const ends = [() => stores.ledger.stop(), () => stores.close(), () => lock?.release()];
  try {
    return await startOn(parts, config, stores, ends);
  } catch (error) {
    // An open database would keep the process alive, which could then not be started again.
    await endEach(parts.log, ends);
    throw error;
  }
}

async function startOn(
  parts: AppParts,
  config: { current: Config },
  stores: Stores,
  ends: readonly (() => unknown)[],
): Promise<App> {
  const { clock, ids, log, version } = parts;
  const { store, ledger } = stores;
  await ledger.start();
  const sealer = await openSealer(store, ids);
  const cacheScope = await openCacheScope(store, ids, config);
  const extras = await openExtras(config.current, clock, log);
  const modelOf = (type: ModelType): string | undefined => catalog.holderOf('default', type)?.id;
  const wallets = await openWallets({ ...parts, stores, basePath: BASE_PATH, modelOf }, config);
  const opened = { config, stores, extras, wallets };
  const { shared, registry, metrics, observers, observerEnds } = openShared(parts, opened);
  const { catalog, engines, localEngines } = registry;
  const largeBodies = new LargeBodies();
  const { idempotency, slots } = shared;
  const [credits, webhooks] = [openCredits(shared), openWebhooks(shared)];
  await startSale(shared);
  const serving = { shared, basePath: BASE_PATH, version, wallets, slots, idempotency, observers };
  const server = openHttpServer(serving);
  const backups = openBackups(parts, shared, webhooks, metrics);
  const account = accountParts({ ...shared, mail: webhooks.mail }, server, credits);
  const assets = assetsOnDemand(join(config.current.dataFolder, 'console'), shared.clock);
  const documented = { config, version, basePath: BASE_PATH, assets, server };

  const mcp = mcpEndpoint(serving, server.internal.run, largeBodies);
  const rpc = rpcFeature(shared, credits, idempotency, largeBodies, metrics.rpc);
  const running = { ...shared, rpcStatus: rpc.status };
  // All features with their routes and jobs. `chatFeature` includes models, embeddings and characters;
  // `mediaFeature` includes images, audio and video.
  const features: readonly Feature[] = [
    ...sharedJobs(shared, largeBodies, metrics),
    chatFeature(shared, { ...extras, sealer, cacheScope, server }, largeBodies),
    rpc,
    accountFeature(account, wallets.payments, wallets.signing),
    consoleFeature(shared, wallets),
    consolePages({ config, basePath: BASE_PATH, assets }),
    mediaFeature(shared, { ...extras, ...webhooks, basePath: BASE_PATH, largeBodies, server }),
    batches(shared, { server, wallets, metrics }),
    webhooks,
    await cardsFeature(shared, webhooks.notify),
    walletsFeature(shared, wallets, { routes: () => routes, paidTools: mcp.paidTools }),
    mcp,
    opsFeature(running, { ...parts, ...documented, ...wallets, metrics, localEngines, backups }),
    backups,
  ];
  const routes: readonly Route[] = features.flatMap((feature) => feature.routes);
  const maintenance = new Maintenance({ ...shared, features, ran: (how) => metrics.jobRan(how) });
  await maintenance.start();
  const address = await server.listen(routes, config.current.listen);
  for (const feature of features) feature.start?.();

  return {
    stores,
    catalog,
    engines,
    localEngines,
    localReady: localEngines.start(),
    server,
    address,
    openApi: () => atOnce(ownDocument(documented)),
    routes,
    ownView: async (of) => (of === 'metrics' ? metrics.ownPage(server) : enginesText(running)),
    processEnded: (processId) => releaseProcess(shared, processId),
    configure: (next) => {
      config.current = settingsInForce(config.current, next);
      registry.configure();
      void extras.personas.reload();
    },
    close: () =>
      endEach(log, [
        () => server.close(),
        () => endSoon(parts, maintenance.stop()),
        ...features.toReversed().map((feature) => () => endSoon(parts, feature.close?.())),
        () => registry.close(),
        ...observerEnds,
        ...ends,
      ]),
  };
}

/** The jobs of parts that several features use. */
function sharedJobs(
  shared: FeatureParts & SaleParts,
  largeBodies: LargeBodies,
  metrics: ServerMetrics,
): Feature[] {
  const { idempotency } = shared;
  const losses = lossSearch(shared);
  return [
    { routes: [], leaderJob: () => idempotency.prune(), close: () => closeSale(shared) },
    { routes: [], perProcessJob: () => largeBodies.rest(), close: () => largeBodies.close() },
    { routes: [], perProcessJob: async () => metrics.readLosses(await losses()) },
  ];
}

function openWebhooks(shared: FeatureParts): WebhooksFeature {
  const { service, video } = shared.config.current;
  const callbackSecret = video.webhooks ? video.webhookSecret : undefined;
  const { email: settings, publicUrl } = shared.config.current;
  const about = { title: service.title, publicUrl, basePath: BASE_PATH, clock: shared.clock };
  const mailer = settings === undefined ? undefined : new Mailer({ settings, ...about });
  // Without this rule one caller with many wallets could have any number of messages sent to any URL.
  const requireCredit = walletCredit(shared);
  const parts = { callbackSecret, mailer, requireCredit, serviceName: service.name };
  return webhooksFeature({ ...shared, ...parts });
}

function openBackups(
  { operations }: AppParts,
  shared: FeatureParts,
  webhooks: WebhooksFeature,
  metrics: ServerMetrics,
): ScheduledBackups {
  return new ScheduledBackups(shared, {
    request: operations?.inputs,
    onRead: (ms) => metrics.readBackup(ms),
    onFailed: (reason) => alertOperators(shared, webhooks, reason),
  });
}

/** Sends one e-mail a day about failed backups to each operator. */
async function alertOperators(
  { config, clock }: FeatureParts,
  { mail }: WebhooksFeature,
  reason: string,
): Promise<void> {
  const period = dayOf(clock.nowMs());
  for (const address of config.current.email?.operators ?? []) {
    const message = { address, accountId: 'operators', subject: 'backup', period } as const;
    await mail?.({ ...message, event: 'backup.failed', data: { reason } });
  }
}

/** Runs all parts in order; a failure does not stop the next ones. */
async function endEach(log: Log, ends: readonly (() => unknown)[]): Promise<void> {
  for (const end of ends) {
    try {
      await end();
    } catch (error) {
      // The other parts, such as engines and the lock of the data folder, must end too.
      log.error({ reason: reasonOf(error) }, 'Closing a part of the server failed');
    }
  }
}

/** Waits at most `PART_CLOSE_MS`. The next start continues the work, as after a crash. */
async function endSoon({ clock, log }: AppParts, end: void | Promise<void>): Promise<void> {
  const timer = new AbortController();
  const tooLate = async (): Promise<void> => {
    await clock.sleep(PART_CLOSE_MS, timer.signal);
    log.warn({}, 'A part of the server did not end in time and is cut off');
  };
  try {
    await Promise.race([end, tooLate()]);
  } finally {
    timer.abort();
  }
}

interface OpenParts {
  readonly config: ConfigInForce;
  readonly stores: Stores;
  readonly extras: Extras;
  readonly wallets: Wallets;
}

/** Builds the shared parts of features: models, engines, the sale, and observers. */
function openShared(parts: AppParts, { config, stores, extras, wallets }: OpenParts) {
  const { clock, ids, log } = parts;
  const traces = openTraces(parts);
  const { canSearch } = extras.web;
  const observe = traces?.observeCall;
  const registry = new EngineRegistry({ ...parts, config, canSearch, videoConstraints, observe });
  const { catalog, engines } = registry;
  const metrics = new ServerMetrics({
    ...parts,
    stores,
    catalog,
    engines,
    traces,
    payments: wallets.payments,
    unhandledRejections: parts.unhandledRejections ?? NO_REJECTIONS,
    siblings: parts.siblings,
  });
  const limitLog = new LimitLog({ store: stores.store, clock });
  const failureLog = new FailureLog({ store: stores.store, clock });
  const observers = traces === undefined ? [metrics] : [metrics, traces];
  const served = { config, stores, catalog, engines };
  const sale = openSale({ ...served, limitLog, clock, ids, log, wallets, observers });
  const { guard } = extras;
  const shared = { ...served, ...sale, guard, failureLog, clock, ids, log };
  const observerEnds = [
    () => metrics.close(),
    () => traces?.close(),
    () =>
      limitLog.flush().catch((error: unknown) => {
        // The database is unreachable; these rows are not worth a retry.
        log.warn({ reason: reasonOf(error) }, 'The limit log could not be written');
      }),
    () => failureLog.flush(),
  ];
  return { shared, registry, metrics, observers, observerEnds };
}

/** Allows one server per data folder and database if the database is a file. */
function lockFor({ dataFolder, databaseUrl }: Config): ServerLock | undefined {
  if (!databaseUrl.startsWith('sqlite:')) return undefined;
  const lock = lockData(dataFolder, databaseUrl);
  if (lock !== undefined) return lock;
  throw new Error(
    `Another server runs on the data folder ${dataFolder} or the database ${databaseUrl}. Stop it, or set FAREBOX_DATA and "database" to other places`,
  );
}
