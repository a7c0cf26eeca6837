/**
 * Counters, gauges and histograms in the Prometheus text format (0.0.4).
 *
 * Labels are bounded: past `MAX_SERIES` label sets of one metric, further ones are counted together
 * as `other`, so that nothing a caller sends can grow the memory or the page. Money is counted in
 * nano-USD and written as exact decimal USD.
 */
import { type Nano, formatUsd, nano } from '../core/money.ts';

/** Label sets of one metric. A catalogue of 500 models with two kinds each fits. */
const MAX_SERIES = 1_000;
const OTHER = 'other';
/** All digits of a nano-USD amount. */
const NANO_DECIMALS = 9;

export interface MetricInfo {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  /** One sentence for the page and for the scrape. */
  readonly help: string;
  readonly labels: readonly string[];
}

interface Series<T> {
  readonly labels: string;
  value: T;
}

/** Label sets that begin alike; behind the last label stands the series. */
interface Branch<T> {
  readonly next: Map<string, Branch<T>>;
  series: Series<T> | undefined;
}

function emptyBranch<T>(): Branch<T> {
  return { next: new Map(), series: undefined };
}

/** Values of one metric by label set. */
class SeriesMap<T> {
  readonly #info: MetricInfo;
  readonly #all: Series<T>[] = [];
  #root = emptyBranch<T>();

  constructor(info: MetricInfo) {
    this.#info = info;
  }

  at(values: readonly string[], initial: () => T): Series<T> {
    return this.#find(values)?.series ?? this.#make(values, initial);
  }

  clear(): void {
    this.#all.length = 0;
    this.#root = emptyBranch();
  }

  all(): readonly Series<T>[] {
    return this.#all;
  }

  #find(values: readonly string[]): Branch<T> | undefined {
    let branch: Branch<T> | undefined = this.#root;
    for (const value of values) {
      branch = branch.next.get(value);
      if (branch === undefined) return undefined;
    }
    return branch;
  }

  #make(values: readonly string[], initial: () => T): Series<T> {
    const isOther = values.every((value) => value === OTHER);
    if (this.#all.length >= MAX_SERIES && !isOther) {
      return this.at(
        values.map(() => OTHER),
        initial,
      );
    }
    const made = { labels: labelText(this.#info.labels, values), value: initial() };
    this.#all.push(made);
    this.#branch(values).series = made;
    return made;
  }

  #branch(values: readonly string[]): Branch<T> {
    let branch = this.#root;
    for (const value of values) {
      let next = branch.next.get(value);
      if (next === undefined) {
        next = emptyBranch();
        branch.next.set(value, next);
      }
      branch = next;
    }
    return branch;
  }
}

function labelText(names: readonly string[], values: readonly string[]): string {
  return names.map((name, at) => `${name}="${escapeLabel(values[at] ?? '')}"`).join(',');
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

function braces(labels: string): string {
  return labels === '' ? '' : `{${labels}}`;
}

interface Metric {
  readonly info: MetricInfo;
  lines(): string[];
}

/** Only goes up. */
export class Counter implements Metric {
  readonly info: MetricInfo;
  readonly #series: SeriesMap<number>;

  constructor(info: MetricInfo) {
    this.info = info;
    this.#series = new SeriesMap(info);
  }

  add(labels: readonly string[], amount = 1): void {
    this.#series.at(labels, () => 0).value += amount;
  }

  lines(): string[] {
    const { name } = this.info;
    return this.#series.all().map((one) => `${name}${braces(one.labels)} ${one.value}`);
  }
}

/** A counter of money: exact nano-USD inside, decimal USD outside. */
export class MoneyCounter implements Metric {
  readonly info: MetricInfo;
  readonly #series: SeriesMap<Nano>;

  constructor(info: MetricInfo) {
    this.info = info;
    this.#series = new SeriesMap(info);
  }

  add(labels: readonly string[], amount: Nano): void {
    const series = this.#series.at(labels, () => nano(0n));
    series.value = nano(series.value + amount);
  }

  lines(): string[] {
    const { name } = this.info;
    return this.#series
      .all()
      .map((one) => `${name}${braces(one.labels)} ${formatUsd(one.value, NANO_DECIMALS)}`);
  }
}

/** Goes up and down; set anew for each scrape. */
export class Gauge implements Metric {
  readonly info: MetricInfo;
  readonly #series: SeriesMap<number>;

  constructor(info: MetricInfo) {
    this.info = info;
    this.#series = new SeriesMap(info);
  }

  set(labels: readonly string[], value: number): void {
    this.#series.at(labels, () => 0).value = value;
  }

  /** Forgets all label sets: engines come and go. */
  clear(): void {
    this.#series.clear();
  }

  lines(): string[] {
    const { name } = this.info;
    return this.#series.all().map((one) => `${name}${braces(one.labels)} ${one.value}`);
  }
}

interface Buckets {
  readonly counts: number[];
  count: number;
  sum: number;
}

/** Counts values by fixed upper bounds. */
export class Histogram implements Metric {
  readonly info: MetricInfo;
  readonly #bounds: readonly number[];
  readonly #series: SeriesMap<Buckets>;

  /** `bounds` ascend; the last bucket, without a bound, is added. */
  constructor(info: MetricInfo, bounds: readonly number[]) {
    this.info = info;
    this.#bounds = bounds;
    this.#series = new SeriesMap(info);
  }

  observe(labels: readonly string[], value: number): void {
    const buckets = this.#series.at(labels, () => this.#empty()).value;
    buckets.count += 1;
    buckets.sum += value;
    const at = this.#bounds.findIndex((bound) => value <= bound);
    if (at >= 0) buckets.counts[at] = (buckets.counts[at] ?? 0) + 1;
  }

  lines(): string[] {
    return this.#series.all().flatMap((one) => this.#linesOf(one));
  }

  #empty(): Buckets {
    return { counts: this.#bounds.map(() => 0), count: 0, sum: 0 };
  }

  #linesOf({ labels, value }: Series<Buckets>): string[] {
    const { name } = this.info;
    const prefix = labels === '' ? '' : `${labels},`;
    let below = 0;
    const rows = this.#bounds.map((bound, at) => {
      below += value.counts[at] ?? 0;
      return `${name}_bucket{${prefix}le="${bound}"} ${below}`;
    });
    return [
      ...rows,
      `${name}_bucket{${prefix}le="+Inf"} ${value.count}`,
      `${name}_sum${braces(labels)} ${value.sum}`,
      `${name}_count${braces(labels)} ${value.count}`,
    ];
  }
}

/**
 * The page that Prometheus reads. A metric without values still says what it is; `everywhere` are
 * labels that every value gets.
 */
export function metricsText(
  metrics: readonly Metric[],
  everywhere: Readonly<Record<string, string>> = {},
): string {
  const more = labelText(Object.keys(everywhere), Object.values(everywhere));
  const parts = metrics.flatMap((metric) => {
    const { name, type, help } = metric.info;
    const lines = metric.lines().map((line) => (more === '' ? line : withLabels(line, more)));
    return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
  });
  return `${parts.join('\n')}\n`;
}

/** A name has no brace and no space, so the first of either ends it. */
function withLabels(line: string, more: string): string {
  return line.replace(/[{ ]/, (end) => (end === '{' ? `{${more},` : `{${more}} `));
}

export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';
