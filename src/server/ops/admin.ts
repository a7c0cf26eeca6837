/** Read-only routes of the operator about the running service. Accounts are in `account/operator/`. */
import { hostname } from 'node:os';
import type { AuditReport } from '../../billing/ledger/ledger.ts';
import { ConfigEditor } from './config-editor.ts';
import {
  CHANGE_SECTION,
  CONFIG_SECTION,
  CONFIG_SECTIONS,
  type ChangedConfig,
  ChangeSectionRequest,
  RESTORE_VERSION,
  RestoreVersionRequest,
} from './config-editor-schema.ts';
import type { BackupRequest } from '../backup/backup-worker.ts';
import type { ScheduledBackups } from '../backup/scheduled-backups.ts';
import {
  type Config,
  type LoadedConfig,
  describeConfig,
  diffConfig,
  formatProblem,
} from '../../config/config.ts';
import { isoTime, isoTimeOrNull } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { decimalUsd } from '../../core/money.ts';
import { siblingUrl } from '../../core/sibling.ts';
import { workerResult } from '../../core/worker-result.ts';
import { timePage } from '../../http/cursor.ts';
import { readBody, readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type Route, get, post } from '../../http/route.ts';
import {
  type TopUpDetail,
  explorerUrl,
  isStuck,
  listTopUps,
  topUpById,
} from '../../payments/payments.ts';
import { listAllJobs } from '../../video/job-table.ts';
import type { VideoJob } from '../../video/job.ts';
import type { EngineProbe, LocalEngineSource } from '../../engines/embedded/embedded.ts';
import { type Identity, accountNames, walletAccountId } from '../../identity/identity.ts';
import type { FeatureParts } from '../feature-parts.ts';
import type { Siblings } from '../metrics.ts';
import {
  AUDIT,
  type AuditResponse,
  CHECK,
  CONFIG,
  type CheckResponse,
  type ConfigResponse,
  BACKUPS,
  type BackupsResponse,
  TOP_UPS,
  TOP_UP_DETAIL,
  type TopUpAdminItem,
  type TopUpDetailResponse,
  type TopUpsResponse,
  TopUpsQuery,
  VIDEOS,
  type VideosResponse,
  VideosQuery,
} from './admin-schema.ts';
import { engineSetupRoutes } from './engine-setup.ts';
import { ENGINES, type EnginesResponse, type EnginesView } from './engines-schema.ts';
import { sendPrices } from './prices.ts';
import { PRICES } from './prices-schema.ts';

/** Operations of the command line that routes offer. */
export interface Operations {
  /** Reads the configuration without applying it. */
  readonly load: () => Promise<LoadedConfig>;
  /** Runs `farebox check` with the running local engines. */
  readonly check: (
    config: Config,
    running: readonly EngineProbe[],
  ) => Promise<CheckResponse['findings']>;
  /** Environment and working directory, from which a backup and an edit load the configuration. */
  readonly inputs: BackupRequest;
}

/** Parts of the server with the state of RPC nodes. */
export interface RunningParts extends FeatureParts {
  readonly rpcStatus: () => EnginesView['networks'];
}

type EnginesParts = Pick<RunningParts, 'engines' | 'catalog' | 'config' | 'rpcStatus'>;

export interface AdminParts {
  /** Without them the routes `/admin/config` and `/admin/check` do not exist. */
  readonly operations?: Operations | undefined;
  /** Other processes on the same port. */
  readonly siblings?: Siblings | undefined;
  readonly localEngines: Pick<LocalEngineSource, 'engines' | 'probes'>;
  readonly backups: ScheduledBackups;
}

export function adminRoutes(shared: RunningParts, parts: AdminParts): Route[] {
  const { operations, siblings, localEngines, backups } = parts;
  const audit = coalesced(() => auditOf(shared));
  const routes = [
    get('/admin/engines', 'operator', ENGINES, async (context) => {
      const others = (await siblings?.ask('engines')) ?? [];
      await context.json(200, {
        ...enginesView(shared),
        // Result of `enginesText` in another worker.
        others: others.map((text) => JSON.parse(text) as EnginesView),
      } satisfies EnginesResponse);
    }),
    get('/admin/prices', 'operator', PRICES, (context) => sendPrices(shared, context)),
    get('/admin/videos', 'operator', VIDEOS, (context) => sendVideos(shared, context)),
    get('/admin/top-ups', 'operator', TOP_UPS, (context) => sendTopUps(shared, context)),
    get('/admin/top-ups/:paymentId', 'operator', TOP_UP_DETAIL, (context) =>
      sendTopUp(shared, context),
    ),
    get('/admin/backups', 'operator', BACKUPS, async (context) =>
      context.json(200, await backupsBody(backups)),
    ),
    get('/admin/audit', 'operator', AUDIT, async (context) =>
      context.json(200, await auditBody(shared.stores.identity, await audit(), decimalUsd)),
    ),
  ];
  if (operations === undefined) return routes;
  const check = coalesced(() => operations.check(shared.config.current, localEngines.probes()));
  return [
    ...routes,
    get('/admin/config', 'operator', CONFIG, async (context) => {
      context.set('cache-control', 'no-store');
      await context.json(200, configBody(shared.config.current, await operations.load()));
    }),
    ...editorRoutes(shared, operations, localEngines),
    get('/admin/check', 'operator', CHECK, async (context) => {
      const findings = await check();
      const ok = findings.every(({ state }) => state !== 'wrong');
      await context.json(200, { ok, findings } satisfies CheckResponse);
    }),
  ];
}

/** A list of thousands of models. */
const SECTION_BODY = { types: ['application/json'], limitBytes: 8 * 1024 * 1024 };

function editorRoutes(
  shared: FeatureParts,
  { inputs }: Operations,
  localEngines: AdminParts['localEngines'],
): Route[] {
  const { config, ids, clock, log } = shared;
  const editor = new ConfigEditor({ config, ids, inputs, nowMs: () => clock.nowMs() });
  const send = async (context: RequestContext, body: unknown): Promise<void> => {
    context.set('cache-control', 'no-store');
    await context.json(200, body);
  };
  const sendChange = async (context: RequestContext, isTrial: boolean, result: ChangedConfig) => {
    const { accountId } = context.caller;
    if (result.ok && !isTrial) {
      log.info({ accountId, sections: result.changed }, 'The console changed the configuration');
    }
    await send(context, result);
  };
  return [
    get('/admin/config/sections', 'operator', CONFIG_SECTIONS, async (context) =>
      send(context, await editor.sections()),
    ),
    get('/admin/config/sections/:name', 'operator', CONFIG_SECTION, async (context) =>
      send(context, await editor.section(context.parameters['name'] ?? '')),
    ),
    {
      method: 'PUT',
      path: '/admin/config/sections/:name',
      auth: 'operator',
      body: SECTION_BODY,
      describe: CHANGE_SECTION,
      handle: async (context) => {
        const { value, ...options } = readBody(context, ChangeSectionRequest);
        const name = context.parameters['name'] ?? '';
        await sendChange(context, options.isTrial, await editor.change(name, value, options));
      },
    },
    post('/admin/config/versions/:id', 'operator', RESTORE_VERSION, async (context) => {
      const options = readBody(context, RestoreVersionRequest);
      const result = await editor.restore(context.parameters['id'] ?? '', options);
      await sendChange(context, options.isTrial, result);
    }),
    ...engineSetupRoutes(shared, { editor, localEngines, env: inputs.env, sendChange }),
  ];
}

/** Callers during a run share its result, because the work is expensive. */
function coalesced<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => {
    running ??= work().finally(() => {
      running = undefined;
    });
    return running;
  };
}

/** The view of this process, for the response of another worker. */
export function enginesText(parts: EnginesParts): string {
  return JSON.stringify(enginesView(parts));
}

/** State of the engines and RPC nodes in this process. */
function enginesView({ engines, catalog, config, rpcStatus }: EnginesParts): EnginesView {
  const configured = config.current.engines;
  return {
    process: `${hostname()}/${process.pid}`,
    engines: engines.status().map((engine) => ({
      id: engine.id,
      source: Object.hasOwn(configured, engine.id) ? 'configured' : 'local',
      inFlight: engine.inFlight,
      queued: engine.queued,
      connections: engine.connections,
      keepsAlive: engine.keepsAlive,
      replicas: engine.replicas.map((replica) => ({
        model: replica.model,
        isHealthy: replica.isHealthy,
        breaker: replica.breaker,
        inFlight: replica.inFlight,
        calls: replica.calls,
        failures: replica.failures,
        latencyMs: replica.firstByteMs === null ? null : Math.round(replica.firstByteMs),
      })),
    })),
    models: catalog.models().map(({ id, type, replicas }) => ({
      id,
      type,
      isReady: engines.isReady(replicas),
      replicas: replicas.map(({ engine, model }) => ({ engine, model })),
    })),
    networks: rpcStatus(),
  };
}

async function sendVideos({ stores }: FeatureParts, context: RequestContext): Promise<void> {
  const { state, ...part } = readQuery(context, VideosQuery);
  const { rows, nextCursor } = await timePage(part, 'id', (wanted) =>
    listAllJobs(stores.store.readerFor(''), state, wanted),
  );
  const names = await accountNames(
    stores.identity,
    rows.map(({ accountId }) => accountId),
  );
  const body: VideosResponse = {
    object: 'list',
    data: rows.map((job) => videoItem(job, names)),
    nextCursor,
  };
  await context.json(200, body);
}

function videoItem(job: VideoJob, names: ReadonlyMap<string, string>): VideosResponse['data'][0] {
  return {
    id: job.id,
    accountId: job.accountId,
    accountName: names.get(job.accountId) ?? '',
    keyId: job.keyId === '' ? null : job.keyId,
    model: job.modelId,
    state: job.state,
    quoteUsd: decimalUsd(job.quoteNano),
    engine: job.engine === '' ? null : job.engine,
    attempts: job.attempts,
    progress: job.state === 'completed' ? 1 : job.fraction,
    createdAt: isoTime(job.createdMs),
    startedAt: timeOf(job.startedMs),
    finishedAt: timeOf(job.finishedMs),
    executionMs: job.executionMs,
    failure: job.failure === null ? null : { code: job.failure.code, message: job.failure.message },
    mediaBytes: job.mediaBytes,
  };
}

/** 0 means that there is no time. */
function timeOf(ms: number): string | null {
  return ms === 0 ? null : isoTime(ms);
}

async function sendTopUps(shared: FeatureParts, context: RequestContext): Promise<void> {
  const { stores, clock } = shared;
  const { state, wallet, stuck, ...part } = readQuery(context, TopUpsQuery);
  const nowMs = clock.nowMs();
  const filter = { state, wallet, stuckAtMs: stuck === 'true' ? nowMs : undefined };
  const { rows, nextCursor } = await timePage(part, 'paymentId', (wanted) =>
    listTopUps(stores.store.readerFor(''), filter, wanted),
  );
  const names = await accountNames(
    stores.identity,
    rows.map(({ wallet: one }) => walletAccountId(one)),
  );
  const data = rows.map((one) => topUpItem(one, nowMs, names));
  const body: TopUpsResponse = { object: 'list', data, nextCursor };
  await context.json(200, body);
}

function topUpItem(
  one: TopUpDetail,
  nowMs: number,
  names: ReadonlyMap<string, string>,
): TopUpAdminItem {
  const { network, transaction } = one;
  return {
    paymentId: one.paymentId,
    network,
    wallet: one.wallet,
    accountName: names.get(walletAccountId(one.wallet)) ?? '',
    amountUsd: decimalUsd(one.amountNano),
    state: one.state,
    transaction: transaction ?? null,
    explorerUrl: transaction === undefined ? null : explorerUrl(network, transaction),
    failure: one.failure ?? null,
    createdAt: isoTime(one.createdMs),
    updatedAt: isoTime(one.updatedMs),
    isWatched: one.isWatched,
    reversals: one.reversals,
    isStuck: isStuck(one, nowMs),
  };
}

async function sendTopUp(shared: FeatureParts, context: RequestContext): Promise<void> {
  const { stores, clock } = shared;
  const one = await topUpById(stores.store, context.parameters['paymentId'] ?? '');
  if (one === undefined) throw new Fault('PAYMENT_NOT_FOUND');
  const nowMs = clock.nowMs();
  const names = await accountNames(stores.identity, [walletAccountId(one.wallet)]);
  const body: TopUpDetailResponse = {
    data: {
      ...topUpItem(one, nowMs, names),
      attempts: one.attempts,
      nextCheckAt: isoTime(one.nextCheckMs),
      leaseUntil: one.leaseUntilMs > nowMs ? isoTime(one.leaseUntilMs) : null,
      startHeight: String(one.startHeight),
      creditedHeight: one.creditedHeight === 0n ? null : String(one.creditedHeight),
      expiresAt: String(one.expiresAt),
      vanishedAt: isoTimeOrNull(one.vanishedMs),
      payTo: one.payTo ?? null,
      asset: one.asset ?? null,
      advice: adviceFor(one, isStuck(one, nowMs)),
    },
  };
  await context.json(200, body);
}

/** Explains the next automatic step, and what the operator can do. */
function adviceFor(
  { state, vanishedMs, isWatched, transaction }: TopUpDetail,
  stuck: boolean,
): string {
  if (vanishedMs !== undefined) {
    return 'The chain no longer contains the transaction; the server sends it again or reverses the credit. Look up the transaction in the explorer';
  }
  if (state === 'failed') {
    return isWatched
      ? 'The payment failed and was not credited; until the failure is final on the chain, it is credited if it arrives'
      : 'The payment failed and was not credited; the payer has to sign a new payment';
  }
  if (state === 'credited') {
    return isWatched
      ? 'The payment is credited; the server watches the transaction until it is final'
      : 'The payment is credited and final';
  }
  const next =
    transaction === undefined
      ? 'The transaction is not sent yet; the server retries'
      : 'The transaction is sent but has too few confirmations; the server checks it again';
  if (!stuck) return next;
  return `${next}. If this takes long, run "farebox check": the node must respond and the key needs funds for fees. Look up the transaction in the explorer`;
}

/** Audits SQLite in a worker thread, because it would block the event loop. */
async function auditOf({ config, stores }: FeatureParts): Promise<AuditReport> {
  if (stores.store.dialect !== 'sqlite') return stores.ledger.audit();
  const entry = siblingUrl(import.meta.url, './audit-worker');
  const report = await workerResult<AuditReport>(entry, { url: config.current.databaseUrl });
  const open = stores.ledger.holds.figures().count;
  return { ...report, openHolds: report.openHolds + open };
}

const SHOWN_BACKUPS = 50;

async function backupsBody(backups: ScheduledBackups): Promise<BackupsResponse> {
  await backups.refresh();
  const runs = await backups.runs(SHOWN_BACKUPS);
  return {
    isScheduled: backups.isScheduled,
    lastSuccessAt: timeOf(backups.lastSuccessMs ?? 0),
    data: runs.map(({ startedMs, endedMs, location, bytes, problem }) => ({
      startedAt: isoTime(startedMs),
      endedAt: timeOf(endedMs),
      location,
      bytes,
      problem: problem === '' ? null : problem,
    })),
  };
}

/** Returns the report as JSON; `usd` formats amounts. */
export async function auditBody(
  identity: Pick<Identity, 'findAccount'>,
  report: AuditReport,
  usd: (amount: bigint) => string,
): Promise<AuditResponse> {
  const names = await accountNames(
    identity,
    report.differences.map(({ accountId }) => accountId),
  );
  return {
    ok: report.ok,
    accounts: report.accounts,
    transfers: report.transfers,
    openHolds: report.openHolds,
    leasedUsd: usd(report.leasedNano),
    owedUsd: usd(report.owedNano),
    debtsUsd: usd(report.debtNano),
    revenueUsd: usd(report.revenueNano),
    differences: report.differences.map((one) => ({
      account: one.accountId,
      accountName: names.get(one.accountId) ?? '',
      what: one.what,
      storedUsd: usd(one.storedNano),
      recomputedUsd: usd(one.recomputedNano),
    })),
  };
}

function configBody(inForce: Config, loaded: LoadedConfig): ConfigResponse {
  const yaml = describeConfig(inForce);
  if (!loaded.ok) {
    const problems = loaded.problems.map(formatProblem);
    return { yaml, reload: { ok: false, changed: [], restart: [], problems } };
  }
  const { changed, restart } = diffConfig(inForce, loaded.config);
  return {
    yaml,
    reload: { ok: true, changed: [...changed], restart: [...restart], problems: [] },
  };
}
