/**
 * Counters, gauges and histograms in the Prometheus text format (0.0.4).
 *
 * Label sets above `MAX_SERIES` of one metric are counted together as `other`, so that requests
 * cannot grow the memory or the page. Money is counted in nano-USD and written as exact decimal
 * USD.
 */
import { type Nano, formatUsd, nano } from '../core/money.ts';

/** Maximum label sets of one metric; enough for 500 models with two kinds each. */
export const MAX_SERIES = 1_000;
const OTHER = 'other';
const NANO_DECIMALS = 9;

export interface MetricInfo {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
  /** Read from the database, so every process reports the same value. */
  readonly isShared?: boolean;
}

/** The values of one metric by label set. Callers may keep a reference to a value. */
export class Metric<T> {
  readonly info: MetricInfo;
  readonly #make: () => T;
  readonly #linesOf: (name: string, labels: string, value: T) => readonly string[];
  readonly #values = new Map<string, T>();

  constructor(
    info: MetricInfo,
    make: () => T,
    linesOf: (name: string, labels: string, value: T) => readonly string[],
  ) {
    this.info = info;
    this.#make = make;
    this.#linesOf = linesOf;
  }

  at(...labels: readonly string[]): T {
    const key = labelText(this.info.labels, labels);
    const known = this.#values.get(key);
    if (known !== undefined) return known;
    const isOther = labels.every((label) => label === OTHER);
    if (this.#values.size >= MAX_SERIES && !isOther) return this.at(...labels.map(() => OTHER));
    const made = this.#make();
    this.#values.set(key, made);
    return made;
  }

  lines(): string[] {
    return [...this.#values].flatMap(([labels, value]) => [
      ...this.#linesOf(this.info.name, labels, value),
    ]);
  }
}

export interface Figure {
  value: number;
}

export function figures(info: MetricInfo): Metric<Figure> {
  return new Metric<Figure>(
    info,
    () => ({ value: 0 }),
    (name, labels, { value }) => [`${name}${braces(labels)} ${value}`],
  );
}

export interface MoneyFigure {
  value: Nano;
}

/** A counter of money: counts nano-USD, writes exact decimal USD. */
export function moneyFigures(info: MetricInfo): Metric<MoneyFigure> {
  return new Metric<MoneyFigure>(
    info,
    () => ({ value: nano(0n) }),
    (name, labels, { value }) => [`${name}${braces(labels)} ${formatUsd(value, NANO_DECIMALS)}`],
  );
}

export class Buckets {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #count = 0;
  #sum = 0;

  /** `bounds` must ascend; a last bucket without a bound is added. */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    this.#count += 1;
    this.#sum += value;
    let at = 0;
    while (value > (this.#bounds[at] ?? Infinity)) at += 1;
    // The last bucket has no bound: its count is the total.
    if (at < this.#counts.length) this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  lines(name: string, labels: string): string[] {
    const prefix = labels === '' ? '' : `${labels},`;
    let below = 0;
    const rows = this.#bounds.map((bound, at) => {
      below += this.#counts[at] ?? 0;
      return `${name}_bucket{${prefix}le="${bound}"} ${below}`;
    });
    return [
      ...rows,
      `${name}_bucket{${prefix}le="+Inf"} ${this.#count}`,
      `${name}_sum${braces(labels)} ${this.#sum}`,
      `${name}_count${braces(labels)} ${this.#count}`,
    ];
  }
}

export function histogram(info: MetricInfo, bounds: readonly number[]): Metric<Buckets> {
  return new Metric<Buckets>(
    info,
    () => new Buckets(bounds),
    (name, labels, buckets) => buckets.lines(name, labels),
  );
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

/**
 * Returns the page for Prometheus, including metrics without values; `ofProcess` are labels added
 * to every value that is not shared with other processes.
 */
export function metricsText(
  metrics: readonly Pick<Metric<unknown>, 'info' | 'lines'>[],
  ofProcess: Readonly<Record<string, string>> = {},
): string {
  const more = labelText(Object.keys(ofProcess), Object.values(ofProcess));
  const parts = metrics.flatMap((metric) => {
    const { name, type, help, isShared } = metric.info;
    const isAlike = more === '' || isShared === true;
    const lines = metric.lines().map((line) => (isAlike ? line : withLabels(line, more)));
    return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
  });
  return `${parts.join('\n')}\n`;
}

/** Inserts labels before the first brace or space, which ends the name. */
function withLabels(line: string, more: string): string {
  return line.replace(/[{ ]/, (end) => (end === '{' ? `{${more},` : `{${more}} `));
}

/** Values cannot contain it: they have no line break. */
const HELP = '\n# HELP ';

/**
 * Joins the pages of several processes: each metric once, with the values of all. Of values with
 * the same labels, which are shared ones, the first is used.
 */
export function joinedPages(pages: readonly string[]): string {
  const blocks = new Map<string, string[]>();
  const known = new Set<string>();
  for (const page of pages) {
    for (const block of `\n${page}`.split(HELP).slice(1)) {
      const [help = '', type = '', ...values] = block.split('\n');
      const [name = ''] = help.split(' ');
      let lines = blocks.get(name);
      if (lines === undefined) blocks.set(name, (lines = [`# HELP ${help}`, type]));
      for (const line of values) {
        const series = line.slice(0, line.lastIndexOf(' '));
        if (line !== '' && !known.has(series)) lines.push(line);
        known.add(series);
      }
    }
  }
  return `${[...blocks.values()].flat().join('\n')}\n`;
}

export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';
