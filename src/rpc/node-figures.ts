/**
 * The metrics of nodes, by network, node and class of the method. Labels are configured names and
 * the four classes, never text of a request or a response.
 */
import { METRICS } from '../observability/metric-list.ts';
import {
  type Buckets,
  type Figure,
  figures,
  histogram,
  type Metric,
} from '../observability/metrics.ts';
import type { MethodClass } from './catalogue.ts';

const BOUNDS_SECONDS = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
/** Label of results from the cache, or from a pending call of another caller. */
const CACHE_NODE = 'cache';

/** The metrics of one node and class. */
export interface ClassFigures {
  readonly class: MethodClass;
  readonly success: Figure;
  /** Errors of the call itself. */
  readonly error: Figure;
  /** Errors that say what the node lacks. */
  readonly lacking: Figure;
  readonly fault: Figure;
  readonly credits: Figure;
  readonly failovers: Figure;
  readonly hedges: Figure;
  readonly seconds: Buckets;
}

interface NodeTotals {
  readonly calls: number;
  readonly failures: number;
  readonly hedges: number;
}

export class RpcFigures {
  readonly calls = figures(METRICS.rpcCalls);
  readonly seconds = histogram(METRICS.rpcCallSeconds, BOUNDS_SECONDS);
  readonly credits = figures(METRICS.rpcCredits);
  readonly failovers = figures(METRICS.rpcFailovers);
  readonly hedges = figures(METRICS.rpcHedges);
  readonly lag = figures(METRICS.rpcLag);

  get all(): readonly Pick<Metric<unknown>, 'info' | 'lines'>[] {
    return [this.calls, this.seconds, this.credits, this.failovers, this.hedges, this.lag];
  }

  of(network: string, node = CACHE_NODE): NodeFigures {
    return new NodeFigures(this, network, node);
  }
}

export class NodeFigures {
  /** The classes with a call so far. */
  readonly #byClass: Partial<Record<MethodClass, ClassFigures>> = {};
  readonly #figures: RpcFigures;
  readonly #network: string;
  readonly #node: string;

  constructor(all: RpcFigures, network: string, node: string) {
    this.#figures = all;
    this.#network = network;
    this.#node = node;
  }

  /** Blocks by which the node is behind the head of its network. */
  get lag(): Figure {
    return this.#figures.lag.at(this.#network, this.#node);
  }

  of(methodClass: MethodClass): ClassFigures {
    return (this.#byClass[methodClass] ??= this.#create(methodClass));
  }

  /** Calls so far, those without a usable response, and second calls. */
  get totals(): NodeTotals {
    const all = Object.values(this.#byClass);
    const sum = (valueOf: (one: ClassFigures) => number): number =>
      all.reduce((total, one) => total + valueOf(one), 0);
    const failed = sum(({ fault, lacking }) => fault.value + lacking.value);
    return {
      calls: failed + sum(({ error, success }) => error.value + success.value),
      failures: failed,
      hedges: sum(({ hedges }) => hedges.value),
    };
  }

  #create(methodClass: MethodClass): ClassFigures {
    const { calls, credits, failovers, hedges, seconds } = this.#figures;
    const labels = [this.#network, this.#node, methodClass];
    return {
      class: methodClass,
      success: calls.at(...labels, 'success'),
      error: calls.at(...labels, 'error'),
      lacking: calls.at(...labels, 'lacking'),
      fault: calls.at(...labels, 'fault'),
      credits: credits.at(...labels),
      failovers: failovers.at(...labels),
      hedges: hedges.at(...labels),
      seconds: seconds.at(...labels),
    };
  }
}
