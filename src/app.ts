/**
 * The only composition root: builds every part from the configuration and hands each what it
 * needs. Two apps in one process share nothing.
 */
import type { FastifyInstance } from 'fastify';
import { LargeBodies } from './api/large-bodies.ts';
import type { OpenApiDocument } from './api/openapi/openapi.ts';
import type { Route } from './api/route.ts';
import { accountSubject } from './app/account.ts';
import { callersOf } from './app/callers.ts';
import { chatParts, chatSubject } from './app/chat.ts';
import type { DownloadView } from './app/download-view.ts';
import { EngineRoom } from './app/engine-room.ts';
import { type Extras, extrasSubject, openExtras } from './app/extras.ts';
import { openFrontDoor } from './app/front-door.ts';
import type { LocalEngineSource } from './app/local-engines.ts';
import { mediaSubject } from './app/media.ts';
import { type Office, openOffice } from './app/office.ts';
import { opsSubject } from './app/ops.ts';
import { OwnDocument } from './app/own-document.ts';
import { rpcSubject } from './app/rpc.ts';
import type { Shared, Subject } from './app/subject.ts';
import { openTill } from './app/till.ts';
import { Traces } from './app/traces.ts';
import type { RejectionFigures } from './app/unhandled-rejections.ts';
import { upkeepOf } from './app/upkeep.ts';
import { type Wallets, openWallets, walletsSubject } from './app/wallets.ts';
import { Watch } from './app/watch.ts';
import type { Catalog } from './catalog/catalog.ts';
import type { Config } from './config/config.ts';
import type { Engines } from './engines/engines.ts';
import { Idempotency } from './idempotency/idempotency.ts';
import type { Clock } from './kernel/clock.ts';
import type { Ids } from './kernel/ids.ts';
import type { Log } from './kernel/log.ts';
import { LimitLog } from './limits/limits.ts';
import { type ServerLock, lockDataFolder, makeFolder } from './store/store.ts';

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

const NO_REJECTIONS: RejectionFigures = { count: 0 };

/** Builds and starts everything; resolves when the server listens. */
export async function startApp(parts: AppParts): Promise<App> {
  const { clock, ids, log, version } = parts;
  let inForce = parts.config;
  const config = (): Config => inForce;

  makeFolder(inForce.dataFolder);
  const lock = lockFor(inForce);
  const office = await openOffice(parts);
  const { store, ledger } = office;
  await ledger.start({ alone: store.dialect === 'sqlite' });
  const extras = await openExtras(inForce, clock, log);
  const wallets = await openWallets({ ...parts, office, basePath: BASE_PATH });

  const traces = new Traces(parts);
  const { canSearch } = extras.web;
  const room = new EngineRoom({ ...parts, config, canSearch, observe: traces.callObserver });
  const { catalog, engines, localEngines } = room;
  const limitLog = new LimitLog({ store, clock, ids });
  const watch = new Watch({
    ...parts,
    config,
    office,
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
  const till = openTill({ ...parts, config, office, limitLog, wallets, watch });
  const { guard } = extras;
  const shared: Shared = { config, office, catalog, engines, ...till, guard, clock, ids, log };

  const idempotency = new Idempotency({ store, clock, ids, log });
  const document = new OwnDocument({ config, version, basePath: BASE_PATH, routes: () => routes });
  const subjects = subjectsOf({ shared, extras, wallets, idempotency, watch, document });
  const routes: readonly Route[] = subjects.flatMap((subject) => subject.routes);
  const upkeep = upkeepOf(shared, subjects, watch);
  await upkeep.start();
  const door = await openFrontDoor({
    shared,
    version,
    basePath: BASE_PATH,
    routes,
    callers: callersOf(shared, wallets),
    idempotency,
    watch,
  });
  document.listens(door.address);
  for (const subject of subjects) subject.start?.();

  return {
    office,
    catalog,
    engines,
    localEngines,
    localReady: localEngines.start(),
    server: door.server,
    address: door.address,
    openApi: () => document.openApi(),
    readiness: () => readinessOf(office, room, watch),
    configure: (next) => {
      inForce = next;
      room.configure();
      void extras.personas.reload();
    },
    close: async () => {
      await door.close();
      await upkeep.stop();
      for (const subject of subjects.toReversed()) await subject.close?.();
      await room.close();
      await watch.close();
      await ledger.stop();
      await office.close();
      lock?.release();
    },
  };
}

interface SubjectParts {
  readonly shared: Shared;
  readonly extras: Extras;
  readonly wallets: Wallets;
  readonly idempotency: Idempotency;
  readonly watch: Watch;
  readonly document: OwnDocument;
}

/** Every subject of the product; each brings its routes, its chores and its end. */
function subjectsOf(parts: SubjectParts): readonly Subject[] {
  const { shared, extras, wallets, idempotency, watch, document } = parts;
  const chat = chatParts(shared, extras);
  const largeBodies = new LargeBodies();
  return [
    chatSubject(chat, largeBodies),
    { routes: [], onceAMinute: () => idempotency.prune(), close: () => idempotency.close() },
    { routes: [], everyMinute: () => largeBodies.rest(), close: () => largeBodies.close() },
    extrasSubject(extras, chat, largeBodies),
    rpcSubject(shared, idempotency, largeBodies),
    accountSubject(shared, wallets.payments),
    mediaSubject({ shared, documents: extras.documents, basePath: BASE_PATH, largeBodies }),
    walletsSubject(shared, wallets, () => document.routes),
    opsSubject(shared, watch, document, wallets.payments),
  ];
}

function readinessOf({ store, ledger }: Office, room: EngineRoom, watch: Watch): Readiness {
  const database = store.unavailable();
  const { isClosing } = watch.traffic;
  const { journaled } = ledger;
  const ok = database === undefined && !isClosing;
  return { ok, database, journaled, engines: room.count, isClosing };
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
