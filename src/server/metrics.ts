/** Collects the metrics. It cannot fail a request, and works without the database. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { HttpServer, RequestObserver } from '../http/http.ts';
import type { RequestContext, RouteName } from '../http/request-context.ts';
import { type LineResult, openBatches } from '../batches/batches.ts';
import { type Catalog, isLoss, marginsOf } from '../catalog/catalog.ts';
import type { Engines } from '../engines/engines.ts';
import type { Outcome, Sale } from '../billing/sale.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import {
  type Buckets,
  type Figure,
  MAX_SERIES,
  type Metric,
  type MoneyFigure,
  figures,
  histogram,
  joinedPages,
  metricsText,
  moneyFigures,
} from '../observability/metrics.ts';
import type { Log } from '../core/log.ts';
import { nano, toUsdNumber } from '../core/money.ts';
import { NO_TOKENS, type Settlement } from '../billing/ledger/ledger.ts';
import type { Payments } from '../payments/payments.ts';
import { METRICS } from '../observability/metric-list.ts';
import { RpcFigures } from '../rpc/rpc.ts';
import type { CustomerLoss } from './customer-losses.ts';
import type { Stores } from './stores.ts';
import type { Traces } from './traces.ts';
import type { RejectionFigures } from './unhandled-rejections.ts';

type ServerState = Pick<HttpServer, 'open' | 'isClosing'>;
const REQUEST_BOUNDS_SECONDS = [
  0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
];
const FIRST_TOKEN_BOUNDS_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const NANOSECONDS = 1e9;
type LoopDelay = ReturnType<typeof monitorEventLoopDelay>;
/**
 * Measured by a timer. Samples per loop iteration (Node 26) exclude callbacks of sockets and files, so that
 * a callback that blocks for 40 ms shows as 4.
 */
const LOOP_RESOLUTION_MS = 10;
const BREAKER_STATES = ['closed', 'open', 'half-open'] as const;

export interface ServerMetricsParts {
  readonly stores: Stores;
  readonly clock: Clock;
  readonly version: string;
  readonly engines: Engines;
  readonly catalog: Catalog;
  /** `undefined` without payment rails. */
  readonly payments: Payments | undefined;
  readonly log: Log;
  readonly unhandledRejections: RejectionFigures;
  readonly traces: Traces | undefined;
  /** Set if several processes share the port. */
  readonly siblings: Siblings | undefined;
}

/** Data that processes exchange: `metrics` is a page of metrics, `engines` is JSON. */
export type OwnView = 'metrics' | 'engines';

/** The other processes on the same port. */
export interface Siblings {
  /** Number of this process, which is a label of its metrics. */
  readonly worker: number;
  /** Returns the data of the others; omits processes that do not respond in time. */
  ask(of: OwnView): Promise<readonly string[]>;
}

/** Metrics of a route; kept so that a request needs no lookup by labels. */
interface RouteFigures {
  readonly seconds: Buckets;
  readonly byStatus: Map<number, Figure>;
}

/** Metrics of a model and a kind of work; each is created with its first value. */
interface SoldFigures {
  readonly settled: Partial<Record<Outcome['status'], Figure>>;
  readonly tokens: Partial<Record<keyof typeof TOKEN_KINDS, Figure>>;
  usd?: MoneyFigure;
  diem?: MoneyFigure;
  firstToken?: Buckets;
}

/** Value of the label `kind` for each token count. */
const TOKEN_KINDS = {
  prompt: 'prompt',
  completion: 'completion',
  cached: 'cached',
  cacheWrite: 'cache_write',
  reasoning: 'reasoning',
} as const;
const TOKEN_NAMES = Object.keys(TOKEN_KINDS) as (keyof typeof TOKEN_KINDS)[]; // keys of the object

export class ServerMetrics implements RequestObserver {
  #backupMs: number | undefined;
  #customerLosses: readonly CustomerLoss[] = [];
  readonly #parts: ServerMetricsParts;
  readonly #requests = figures(METRICS.requests);
  readonly #requestSeconds = histogram(METRICS.requestSeconds, REQUEST_BOUNDS_SECONDS);
  readonly #refusals = figures(METRICS.refusals);
  readonly #firstToken = histogram(METRICS.firstToken, FIRST_TOKEN_BOUNDS_SECONDS);
  readonly #tokens = figures(METRICS.tokens);
  readonly #charged = moneyFigures(METRICS.charged);
  readonly #settled = figures(METRICS.settled);
  readonly #chores = figures(METRICS.chores);
  readonly #batchRequests = figures(METRICS.batchRequests);
  readonly rpc = new RpcFigures();
  readonly #routes = new Map<RouteName | undefined, RouteFigures>();
  /** Keys: kind of work, then model. */
  readonly #sold = new Map<string, Map<string, SoldFigures>>();
  readonly #loop: LoopDelay;
  readonly #stopLoop: () => void;
  #loopFigures: readonly (readonly [percentile: string, seconds: number])[] = [];

  constructor(parts: ServerMetricsParts) {
    this.#parts = parts;
    this.#loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
    this.#loop.enable();
    this.#stopLoop = parts.clock.every(MINUTE_MS, () => {
      this.#loopFigures = loopFigures(this.#loop);
      this.#loop.reset();
    });
  }

  ended({ route, statusCode, notes }: RequestContext, tookMs: number): void {
    // Labels use the route, because a caller can send any path and method.
    const path = route?.path ?? 'unknown';
    let known = this.#routes.get(route);
    if (known === undefined) {
      known = { seconds: this.#requestSeconds.at(path), byStatus: new Map() };
      this.#routes.set(route, known);
    }
    let count = known.byStatus.get(statusCode);
    if (count === undefined) {
      count = this.#requests.at(route?.method ?? 'other', path, String(statusCode));
      known.byStatus.set(statusCode, count);
    }
    count.value += 1;
    known.seconds.observe(tookMs / SECOND_MS);
    if (notes.code !== undefined) this.#refusals.at(notes.code).value += 1;
  }

  settled({ request }: Sale, outcome: Outcome, { usdNano, diemNano }: Settlement): void {
    const { kind, modelId } = request;
    const { status, tokens = NO_TOKENS, firstTokenMs } = outcome;
    const sold = this.#sold.get(kind)?.get(modelId) ?? this.#newlySold(kind, modelId);
    (sold.settled[status] ??= this.#settled.at(kind, status)).value += 1;
    if (usdNano > 0n) {
      sold.usd ??= this.#charged.at(kind, modelId, 'usd');
      sold.usd.value = nano(sold.usd.value + usdNano);
    }
    if (diemNano > 0n) {
      sold.diem ??= this.#charged.at(kind, modelId, 'diem');
      sold.diem.value = nano(sold.diem.value + diemNano);
    }
    for (let at = 0; at < TOKEN_NAMES.length; at += 1) {
      const name = TOKEN_NAMES[at];
      if (name === undefined || tokens[name] <= 0) continue;
      (sold.tokens[name] ??= this.#tokens.at(modelId, TOKEN_KINDS[name])).value += tokens[name];
    }
    if (firstTokenMs === undefined) return;
    (sold.firstToken ??= this.#firstToken.at(modelId)).observe(firstTokenMs / SECOND_MS);
  }

  #newlySold(kind: string, modelId: string): SoldFigures {
    const sold: SoldFigures = { settled: {}, tokens: {} };
    const models = this.#sold.get(kind) ?? new Map<string, SoldFigures>();
    this.#sold.set(kind, models);
    // Bounds the memory; the metrics have the same limit.
    if (models.size < MAX_SERIES) models.set(modelId, sold);
    return sold;
  }

  /** Number of unhandled promise rejections in this process. */
  get unhandledRejections(): number {
    return this.#parts.unhandledRejections.count;
  }

  jobRan(result: 'done' | 'failed'): void {
    this.#chores.at(result).value += 1;
  }

  batchRequestRan(result: LineResult): void {
    this.#batchRequests.at(result).value += 1;
  }

  /** Returns the metrics of all processes on the port. Never throws. */
  async page(server: ServerState): Promise<string> {
    const { siblings } = this.#parts;
    if (siblings === undefined) return await this.ownPage(server);
    const [own, others] = await Promise.all([this.ownPage(server), siblings.ask('metrics')]);
    return joinedPages([own, ...others]);
  }

  async ownPage(server: ServerState): Promise<string> {
    const gauges = new Gauges();
    this.#readProcess(gauges, server);
    this.#readEngines(gauges);
    await this.#readDatabase(gauges);
    const metrics = [
      this.#requests,
      this.#requestSeconds,
      this.#refusals,
      this.#firstToken,
      this.#tokens,
      this.#charged,
      this.#settled,
      this.#chores,
      this.#batchRequests,
      ...this.rpc.all,
      ...gauges.all.values(),
    ];
    const { siblings } = this.#parts;
    return metricsText(metrics, siblings === undefined ? {} : { worker: String(siblings.worker) });
  }

  close(): void {
    this.#stopLoop();
    this.#loop.disable();
  }

  #readProcess(gauges: Gauges, server: ServerState): void {
    const { version, traces, payments } = this.#parts;
    const memory = process.memoryUsage();
    const cpu = process.cpuUsage();
    gauges.set('requestsOpen', server.open);
    gauges.set('draining', Number(server.isClosing));
    gauges.set('build', 1, version, process.version);
    gauges.set('resident', memory.rss);
    gauges.set('heapUsed', memory.heapUsed);
    gauges.set('external', memory.external);
    gauges.set('cpu', (cpu.user + cpu.system) / 1e6);
    gauges.set('started', Math.floor(performance.timeOrigin) / SECOND_MS);
    gauges.set('unhandledRejections', this.unhandledRejections);
    gauges.set('spansSent', traces?.counts.sent ?? 0);
    gauges.set('spansDropped', traces?.counts.dropped ?? 0);
    if (this.#backupMs === undefined) gauges.show('backupSuccess');
    else gauges.set('backupSuccess', Math.floor(this.#backupMs / SECOND_MS));
    gauges.show('networkReady', 'nodeContradictions');
    for (const [network, isReady] of payments?.railMonitor.states() ?? []) {
      gauges.set('networkReady', Number(isReady), network);
    }
    for (const [network, count] of payments?.contradictions ?? []) {
      gauges.set('nodeContradictions', count, network);
    }
    if (this.#loopFigures.length === 0) this.#loopFigures = loopFigures(this.#loop);
    for (const [percentile, seconds] of this.#loopFigures) {
      gauges.set('loopDelay', seconds, percentile);
    }
  }

  /** `ms`: Unix time of the last successful backup; 0 if all scheduled ones have failed. */
  readBackup(ms: number | undefined): void {
    this.#backupMs = ms;
  }

  /** Takes the result of the last search, and warns of a new loss. */
  readLosses(losses: readonly CustomerLoss[]): void {
    for (const { customer, model, count } of losses) {
      const isKnown = this.#customerLosses.some(
        (one) => one.customer === customer && one.model === model,
      );
      if (isKnown) continue;
      const fields = { customer, model, count };
      this.#parts.log.warn(fields, 'A customer buys a model below its cost');
    }
    this.#customerLosses = losses;
  }

  #readEngines(gauges: Gauges): void {
    const { engines, catalog } = this.#parts;
    const models = catalog.models();
    gauges.set('modelsOffered', models.length);
    gauges.set('modelsReady', models.filter(({ replicas }) => engines.isReady(replicas)).length);
    gauges.show(...ENGINE_GAUGES, 'modelLosses', 'customerLosses');
    for (const { customer, model, count } of this.#customerLosses) {
      gauges.set('customerLosses', count, customer, model);
    }
    for (const model of models) {
      const losses = model.replicas.some(({ cost }) => cost) ? marginsOf(model).filter(isLoss) : [];
      for (const { engine } of losses) {
        const count = losses.filter((one) => one.engine === engine).length;
        gauges.set('modelLosses', count, model.id, engine);
      }
    }
    for (const engine of engines.status()) {
      gauges.set('engineInFlight', engine.inFlight, engine.id);
      gauges.set('engineQueued', engine.queued, engine.id);
      gauges.set('engineConnections', engine.connections, engine.id);
      gauges.set('engineKeepAlive', Number(engine.keepsAlive), engine.id);
      for (const { model, isHealthy, calls, failures, breaker } of engine.replicas) {
        gauges.set('replicaHealthy', Number(isHealthy), engine.id, model);
        gauges.set('replicaCalls', calls, engine.id, model);
        gauges.set('replicaFailures', failures, engine.id, model);
        for (const state of BREAKER_STATES) {
          gauges.set('replicaBreaker', Number(breaker === state), engine.id, model, state);
        }
      }
    }
  }

  async #readDatabase(gauges: Gauges): Promise<void> {
    const { stores, clock, payments } = this.#parts;
    gauges.set('journal', stores.ledger.holds.journaled);
    const holds = await withinASecond(clock, stores.ledger.openHolds());
    // On a full disk reads still succeed.
    const takesWrites = stores.store.unavailable() === undefined;
    gauges.set('databaseUp', Number(holds !== undefined && takesWrites));
    gauges.show(...DATABASE_GAUGES);
    if (holds === undefined) return;
    gauges.set('holdsOpen', holds.count);
    gauges.set('holdsUsd', toUsdNumber(holds.amountNano));
    gauges.set('jobHoldsOpen', holds.jobs.count);
    gauges.set('jobHoldsUsd', toUsdNumber(holds.jobs.amountNano));
    gauges.set('leasedUsd', toUsdNumber(holds.leasedNano));
    gauges.set('debtsUsd', toUsdNumber(holds.debtNano));
    const topUps = payments && (await withinASecond(clock, payments.table.counts()));
    for (const [state, count] of Object.entries(topUps ?? {})) gauges.set('topUps', count, state);
    const open = await withinASecond(clock, openBatches(stores.store));
    for (const [state, count] of Object.entries(open ?? {})) gauges.set('batches', count, state);
  }
}

type GaugeName = keyof typeof METRICS;

/** Gauges of one scrape, which contain only current parts. */
class Gauges {
  readonly all = new Map<GaugeName, Metric<Figure>>();

  /** Includes metrics in the scrape even if no value is set for them. */
  show(...names: readonly GaugeName[]): void {
    for (const name of names) this.all.set(name, figures(METRICS[name]));
  }

  set(name: GaugeName, value: number, ...labels: readonly string[]): void {
    if (!this.all.has(name)) this.show(name);
    const figure = this.all.get(name)?.at(...labels);
    if (figure !== undefined) figure.value = value;
  }
}

const DATABASE_GAUGES = [
  'holdsOpen',
  'holdsUsd',
  'jobHoldsOpen',
  'jobHoldsUsd',
  'leasedUsd',
  'debtsUsd',
  'topUps',
  'batches',
] as const;

const ENGINE_GAUGES = [
  'engineInFlight',
  'engineQueued',
  'engineConnections',
  'engineKeepAlive',
  'replicaHealthy',
  'replicaCalls',
  'replicaFailures',
  'replicaBreaker',
] as const;

function loopFigures(loop: LoopDelay): readonly (readonly [string, number])[] {
  const seconds = (nanoseconds: number): number =>
    Number.isFinite(nanoseconds) ? nanoseconds / NANOSECONDS : 0;
  if (loop.count === 0) return [];
  return [
    ['50', seconds(loop.percentile(50))],
    ['99', seconds(loop.percentile(99))],
    ['100', seconds(loop.max)],
  ];
}

/** Resolves to `undefined` if the work fails or takes more than a second. */
export async function withinASecond<T>(clock: Clock, work: Promise<T>): Promise<T | undefined> {
  const settled = new AbortController();
  const tooLate = clock.sleep(SECOND_MS, settled.signal).then(
    () => undefined,
    () => undefined, // the work was faster
  );
  const result = work.catch(() => undefined); // the store has logged the error
  const first = await Promise.race([result, tooLate]);
  settled.abort();
  return first;
}
