/**
 * Feeds the metrics: what ends, what is charged, and the state of the parts when a scrape asks.
 * Nothing here can fail a request, and a database that is away only leaves its own figures out.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Engines } from '../engines/engines.ts';
import type { Outcome, Sale } from '../billing/sale.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Counter, Gauge, Histogram, MoneyCounter, metricsText } from '../observability/metrics.ts';
import { toUsdNumber } from '../core/money.ts';
import { NO_TOKENS, type Settlement } from '../billing/ledger/ledger.ts';
import type { Payments } from '../payments/payments.ts';
import { METRICS } from '../observability/metric-list.ts';
import type { Stores } from './stores.ts';
import type { RejectionFigures } from './unhandled-rejections.ts';

const REQUEST_BOUNDS_SECONDS = [
  0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
];
const FIRST_TOKEN_BOUNDS_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const NANOSECONDS = 1e9;
type LoopDelay = ReturnType<typeof monitorEventLoopDelay>;
const LOOP_RESOLUTION_MS = 10;
/** A scrape does not wait for a database that is away. */
const DATABASE_PATIENCE_MS = 1_000;
const BREAKER_STATES = ['closed', 'open', 'half-open'] as const;

export interface MonitorParts {
  readonly stores: Stores;
  readonly clock: Clock;
  readonly version: string;
  readonly engines: Engines;
  readonly catalog: Catalog;
  /** Requests that have not ended, and whether the server drains. */
  readonly traffic: { readonly open: number; readonly isClosing: boolean };
  /** `undefined` without payment rails. */
  readonly payments: Payments | undefined;
  /** Labels on every value, where several processes share a port. */
  readonly labels: Readonly<Record<string, string>>;
  readonly unhandledRejections: RejectionFigures;
  readonly spans: () => { readonly sent: number; readonly dropped: number };
}

export class Monitor {
  readonly #parts: MonitorParts;
  readonly #requests = new Counter(METRICS.requests);
  readonly #requestSeconds = new Histogram(METRICS.requestSeconds, REQUEST_BOUNDS_SECONDS);
  readonly #refusals = new Counter(METRICS.refusals);
  readonly #firstToken = new Histogram(METRICS.firstToken, FIRST_TOKEN_BOUNDS_SECONDS);
  readonly #tokens = new Counter(METRICS.tokens);
  readonly #charged = new MoneyCounter(METRICS.charged);
  readonly #settled = new Counter(METRICS.settled);
  readonly #chores = new Counter(METRICS.chores);
  readonly #gauges = new Map<string, Gauge>();
  readonly #loop: LoopDelay;
  readonly #stopLoop: () => void;
  #loopFigures: readonly (readonly [quantile: string, seconds: number])[] = [];

  constructor(parts: MonitorParts) {
    this.#parts = parts;
    this.#loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
    this.#loop.enable();
    this.#stopLoop = parts.clock.every(MINUTE_MS, () => this.#turnLoopWindow());
  }

  requestEnded(context: RequestContext, route: Route | undefined, status: number): void {
    const path = routeLabel(route);
    // Only methods of the routes: a caller can send any word.
    this.#requests.add([route?.method ?? 'other', path, String(status)]);
    const tookMs = this.#parts.clock.monotonicMs() - context.startedMs;
    this.#requestSeconds.observe([path], tookMs / SECOND_MS);
    if (context.notes.code !== undefined) this.#refusals.add([context.notes.code]);
  }

  settled(sale: Sale, outcome: Outcome, settlement: Settlement): void {
    const { kind, modelId } = sale.request;
    this.#settled.add([kind, outcome.status]);
    if (settlement.usdNano > 0n) this.#charged.add([kind, modelId, 'usd'], settlement.usdNano);
    if (settlement.diemNano > 0n) this.#charged.add([kind, modelId, 'diem'], settlement.diemNano);
    const tokens = outcome.tokens ?? NO_TOKENS;
    this.#countTokens(modelId, 'prompt', tokens.prompt);
    this.#countTokens(modelId, 'completion', tokens.completion);
    this.#countTokens(modelId, 'cached', tokens.cached);
    this.#countTokens(modelId, 'cache_write', tokens.cacheWrite);
    this.#countTokens(modelId, 'reasoning', tokens.reasoning);
    if (outcome.firstTokenMs !== undefined) {
      this.#firstToken.observe([modelId], outcome.firstTokenMs / SECOND_MS);
    }
  }

  /** Promises of this process that failed with nobody there to hear it. */
  get unhandledRejections(): number {
    return this.#parts.unhandledRejections.count;
  }

  jobRan(result: 'done' | 'failed'): void {
    this.#chores.add([result]);
  }

  /** The page of a scrape. Never throws. */
  async page(): Promise<string> {
    this.#readProcess();
    this.#readEngines();
    await this.#readDatabase();
    const metrics = [
      this.#requests,
      this.#requestSeconds,
      this.#refusals,
      this.#firstToken,
      this.#tokens,
      this.#charged,
      this.#settled,
      this.#chores,
      ...this.#gauges.values(),
    ];
    return metricsText(metrics, this.#parts.labels);
  }

  close(): void {
    this.#stopLoop();
    this.#loop.disable();
  }

  #countTokens(model: string, kind: string, count: number): void {
    if (count > 0) this.#tokens.add([model, kind], count);
  }

  #gauge(name: keyof typeof METRICS): Gauge {
    let gauge = this.#gauges.get(name);
    if (gauge === undefined) {
      gauge = new Gauge(METRICS[name]);
      this.#gauges.set(name, gauge);
    }
    return gauge;
  }

  #readProcess(): void {
    const { traffic, version, spans, unhandledRejections } = this.#parts;
    const memory = process.memoryUsage();
    const cpu = process.cpuUsage();
    this.#gauge('requestsOpen').set([], traffic.open);
    this.#gauge('draining').set([], Number(traffic.isClosing));
    this.#gauge('build').set([version, process.version], 1);
    this.#gauge('resident').set([], memory.rss);
    this.#gauge('heapUsed').set([], memory.heapUsed);
    this.#gauge('external').set([], memory.external);
    this.#gauge('cpu').set([], (cpu.user + cpu.system) / 1e6);
    this.#gauge('started').set([], Math.floor(performance.timeOrigin) / SECOND_MS);
    this.#gauge('unhandledRejections').set([], unhandledRejections.count);
    this.#gauge('spansSent').set([], spans().sent);
    this.#gauge('spansDropped').set([], spans().dropped);
    if (this.#loopFigures.length === 0) this.#loopFigures = loopFigures(this.#loop);
    for (const [quantile, seconds] of this.#loopFigures) {
      this.#gauge('loopDelay').set([quantile], seconds);
    }
  }

  #readEngines(): void {
    const { engines, catalog } = this.#parts;
    const models = catalog.models();
    this.#gauge('modelsOffered').set([], models.length);
    const ready = models.filter((model) => engines.isReady(model.replicas));
    this.#gauge('modelsReady').set([], ready.length);
    for (const name of ENGINE_GAUGES) this.#gauge(name).clear();
    for (const engine of engines.status()) {
      this.#gauge('engineInFlight').set([engine.id], engine.inFlight);
      this.#gauge('engineQueued').set([engine.id], engine.queued);
      this.#gauge('engineConnections').set([engine.id], engine.connections);
      for (const replica of engine.replicas) {
        const labels = [engine.id, replica.model];
        this.#gauge('replicaHealthy').set(labels, Number(replica.isHealthy));
        this.#gauge('replicaCalls').set(labels, replica.calls);
        this.#gauge('replicaFailures').set(labels, replica.failures);
        for (const state of BREAKER_STATES) {
          this.#gauge('replicaBreaker').set([...labels, state], Number(replica.breaker === state));
        }
      }
    }
  }

  async #readDatabase(): Promise<void> {
    const { stores, clock, payments } = this.#parts;
    this.#gauge('journal').set([], stores.ledger.journaled);
    const holds = await withPatience(clock, stores.ledger.openHolds());
    this.#gauge('databaseUp').set([], Number(holds !== undefined));
    this.#gauge('holdsOpen').clear();
    this.#gauge('holdsUsd').clear();
    this.#gauge('debtsUsd').clear();
    this.#gauge('topUps').clear();
    if (holds === undefined) return;
    this.#gauge('holdsOpen').set([], holds.count);
    this.#gauge('holdsUsd').set([], toUsdNumber(holds.amountNano));
    this.#gauge('debtsUsd').set([], toUsdNumber(holds.debtNano));
    const topUps =
      payments === undefined ? undefined : await withPatience(clock, payments.creditCounts());
    for (const [state, count] of Object.entries(topUps ?? {})) {
      this.#gauge('topUps').set([state], count);
    }
  }

  #turnLoopWindow(): void {
    this.#loopFigures = loopFigures(this.#loop);
    this.#loop.reset();
  }
}

const ENGINE_GAUGES = [
  'engineInFlight',
  'engineQueued',
  'engineConnections',
  'replicaHealthy',
  'replicaCalls',
  'replicaFailures',
  'replicaBreaker',
] as const;

/** The pattern of a route, which is bounded; paths are not. */
export function routeLabel(route: Route | undefined): string {
  return route?.path ?? 'unknown';
}

function loopFigures(loop: LoopDelay): readonly (readonly [string, number])[] {
  const seconds = (nanoseconds: number): number =>
    Number.isFinite(nanoseconds) ? nanoseconds / NANOSECONDS : 0;
  if (loop.count === 0) return [];
  return [
    ['0.5', seconds(loop.percentile(50))],
    ['0.99', seconds(loop.percentile(99))],
    ['1', seconds(loop.max)],
  ];
}

/** The value, or `undefined` when the database fails or takes too long. */
export async function withPatience<T>(clock: Clock, work: Promise<T>): Promise<T | undefined> {
  const patience = new AbortController();
  const tooLong = clock.sleep(DATABASE_PATIENCE_MS, patience.signal).then(
    () => undefined,
    () => undefined, // the work was faster
  );
  const answer = work.catch(() => undefined); // the figure is left out; the store has logged why
  const first = await Promise.race([answer, tooLong]);
  patience.abort();
  return first;
}
