/**
 * The only composition root: builds every part from the configuration and hands each what it
 * needs. Two apps in one process share nothing.
 */
import type { FastifyInstance } from 'fastify';
import { LargeBodies } from './large-bodies.ts';
import type { OpenApiDocument } from '../http/openapi/openapi.ts';
import type { Route } from '../http/route.ts';
import { accountFeature } from '../account/account.ts';
import { callersOf } from './callers.ts';
import { chatParts, chatFeature } from './chat.ts';
import type { DownloadView } from '../engines/local/model-files.ts';
import { EngineRegistry } from '../engines/registry.ts';
import { type Extras, extrasFeature, openExtras } from './extras.ts';
import { listen } from './listen.ts';
import type { LocalEngineSource } from '../engines/local-engines.ts';
import { mediaFeature } from './media.ts';
import { type Stores, openStores } from './stores.ts';
import { OwnDocument } from './ops/documentation.ts';
import { opsFeature } from './ops/ops.ts';
import { rpcFeature } from './rpc.ts';
import type { Feature } from '../http/feature.ts';
import type { FeatureParts } from './feature-parts.ts';
import { openSale } from './sale-parts.ts';
import { Traces } from './traces.ts';
import type { RejectionFigures } from './unhandled-rejections.ts';
import { maintenanceOf } from './maintenance.ts';
import { type Wallets, openWallets, walletsFeature } from '../wallet/wallet.ts';
import { Observers } from './observers.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Config } from '../config/config.ts';
import { videoConstraints } from '../video/model-checks.ts';
import type { Engines } from '../engines/engines.ts';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { LimitLog } from '../billing/limits/limits.ts';
import { type ServerLock, lockDataFolder, makeFolder } from '../db/db.ts';

export const BASE_PATH = '/api/v1';

export interface AppParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  /** Engines that another process runs; default: this one runs its own. */
  readonly localEngines?: (onChange: () => void) => LocalEngineSource;
  /** What the process has heard of promises that nobody waited for; default: nothing. */
  readonly unhandledRejections?: RejectionFigures;
  /** Shows downloads to whoever sits at the terminal. */
  readonly downloadView?: (title: string) => DownloadView;
}

export interface App {
  readonly stores: Stores;
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

const NO_REJECTIONS: RejectionFigures = { count: 0 };

/** Builds and starts everything; resolves when the server listens. */
export async function startApp(parts: AppParts): Promise<App> {
  const { clock, ids, log, version } = parts;
  let inForce = parts.config;
  const config = (): Config => inForce;

  makeFolder(inForce.dataFolder);
  const lock = lockFor(inForce);
  const stores = await openStores(parts);
  const { store, ledger } = stores;
  await ledger.start({ alone: store.dialect === 'sqlite' });
  const extras = await openExtras(inForce, clock, log);
  const wallets = await openWallets({ ...parts, stores, basePath: BASE_PATH });

  const traces = new Traces(parts);
  const { canSearch } = extras.web;
  const observe = traces.callObserver;
  const registry = new EngineRegistry({ ...parts, config, canSearch, videoConstraints, observe });
  const { catalog, engines, localEngines } = registry;
  const limitLog = new LimitLog({ store, clock, ids });
  const observers = new Observers({
    ...parts,
    config,
    stores,
    catalog,
    engines,
    limitLog,
    traces,
    basePath: BASE_PATH,
    unhandledRejections: parts.unhandledRejections ?? NO_REJECTIONS,
    // A process whose engines another one runs is a worker of several on one port.
    isOneOfSeveral: parts.localEngines !== undefined,
    payments: wallets.payments,
  });
  const sale = openSale({ ...parts, config, stores, limitLog, wallets, observers });
  const { guard } = extras;
  const shared = { config, stores, catalog, engines, ...sale, guard, clock, ids, log };

  const { idempotency } = sale;
  const document = new OwnDocument({ config, version, basePath: BASE_PATH, routes: () => routes });
  const features = featuresOf({ shared, extras, wallets, idempotency, observers, document });
  const routes: readonly Route[] = features.flatMap((feature) => feature.routes);
  const maintenance = maintenanceOf(shared, features, observers);
  await maintenance.start();
  const listener = await listen({
    shared,
    version,
    basePath: BASE_PATH,
    routes,
    callers: callersOf(shared, wallets),
    idempotency,
    observers,
  });
  document.listens(listener.address);
  for (const feature of features) feature.start?.();

  return {
    stores,
    catalog,
    engines,
    localEngines,
    localReady: localEngines.start(),
    server: listener.server,
    address: listener.address,
    openApi: () => document.openApi(),
    readiness: () => readinessOf(stores, registry, observers),
    configure: (next) => {
      inForce = next;
      registry.configure();
      void extras.personas.reload();
    },
    close: async () => {
      await listener.close();
      await maintenance.stop();
      for (const feature of features.toReversed()) await feature.close?.();
      await registry.close();
      await observers.close();
      await ledger.stop();
      await stores.close();
      lock?.release();
    },
  };
}

interface ProgramParts {
  readonly shared: FeatureParts;
  readonly extras: Extras;
  readonly wallets: Wallets;
  readonly idempotency: Idempotency;
  readonly observers: Observers;
  readonly document: OwnDocument;
}

/** Every feature of the product; each brings its routes, its jobs and its end. */
function featuresOf(parts: ProgramParts): readonly Feature[] {
  const { shared, extras, wallets, idempotency, observers, document } = parts;
  const chat = chatParts(shared, extras);
  const largeBodies = new LargeBodies();
  return [
    chatFeature(chat, largeBodies),
    { routes: [], onceAMinute: () => idempotency.prune(), close: () => idempotency.close() },
    { routes: [], everyMinute: () => largeBodies.rest(), close: () => largeBodies.close() },
    extrasFeature(extras, chat, largeBodies),
    rpcFeature(shared, idempotency, largeBodies),
    accountFeature(shared, wallets.payments),
    mediaFeature({ shared, documents: extras.documents, basePath: BASE_PATH, largeBodies }),
    walletsFeature(shared, wallets, () => document.routes),
    opsFeature(shared, observers, document, wallets.payments),
  ];
}

function readinessOf(
  { store, ledger }: Stores,
  registry: EngineRegistry,
  observers: Observers,
): Readiness {
  const database = store.unavailable();
  const { isClosing } = observers.traffic;
  const { journaled } = ledger;
  const ok = database === undefined && !isClosing;
  return { ok, database, journaled, engines: registry.count, isClosing };
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
