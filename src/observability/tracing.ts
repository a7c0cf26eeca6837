/**
 * The public file of tracing: a server span for each request and a client span for each engine call, with
 * the attributes of the GenAI conventions, sent by OTLP/HTTP.
 *
 * A caller's `traceparent` is continued: its trace id always; its decision only when it says "not
 * sampled", since strangers must not be able to switch tracing on. Spans hold models, tokens, times
 * and ids, never prompts, answers or keys. Without tracing nothing here exists.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { formatTraceParent, parseTraceParent, passableTraceState } from './trace-context.ts';
import { Exporter } from './exporter.ts';
import type { Attributes } from './otlp.ts';

export type { Attributes } from './otlp.ts';

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

export interface TracingOptions {
  readonly endpoint: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Share of requests that are traced, 0 to 1. */
  readonly sampleRatio: number;
  readonly serviceName: string;
  readonly version: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** Headers by which a request joins a trace. */
export interface Incoming {
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
}

/** A call to an engine, while it runs. */
export interface CallTrace {
  /** Flat request headers for the engine. */
  readonly headers: readonly string[];
  end(name: string, attributes: Attributes, isError: boolean): void;
}

interface EndedCall {
  readonly spanId: string;
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Attributes;
  readonly isError: boolean;
}

/** One request on its way. Spans leave when it ends. */
export class RequestTrace {
  readonly traceId: string;
  readonly isSampled: boolean;
  readonly #spanId: string;
  readonly #parentSpanId: string | undefined;
  readonly #state: string | undefined;
  readonly #startMs: number;
  readonly #tracing: TraceSource;
  readonly #calls: EndedCall[] = [];
  #usage: Attributes = {};

  constructor(tracing: TraceSource, incoming: Incoming) {
    const parent = parseTraceParent(incoming.traceparent);
    this.#tracing = tracing;
    this.traceId = parent?.traceId ?? tracing.ids.hex(TRACE_ID_BYTES);
    this.isSampled = (parent?.isSampled ?? true) && tracing.samples(this.traceId);
    this.#parentSpanId = parent?.spanId;
    this.#state = parent === undefined ? undefined : passableTraceState(incoming.tracestate);
    this.#spanId = tracing.ids.hex(SPAN_ID_BYTES);
    this.#startMs = tracing.clock.nowMs();
  }

  /** Begins the span of an engine call. */
  call(): CallTrace {
    const { traceId, isSampled } = this;
    const spanId = this.#tracing.ids.hex(SPAN_ID_BYTES);
    const startMs = this.#tracing.clock.nowMs();
    const headers = ['traceparent', formatTraceParent({ traceId, spanId, isSampled })];
    if (this.#state !== undefined) headers.push('tracestate', this.#state);
    return {
      headers,
      end: (name, attributes, isError) => {
        const endMs = this.#tracing.clock.nowMs();
        this.#calls.push({ spanId, name, startMs, endMs, attributes, isError });
      },
    };
  }

  /** What the request used, known when it is settled: for the span of its last call. */
  used(attributes: Attributes): void {
    this.#usage = { ...this.#usage, ...attributes };
  }

  /** Ends the request; its spans are queued. */
  end(name: string, attributes: Attributes, isError: boolean): void {
    if (!this.isSampled) return;
    const { traceId } = this;
    const last = this.#calls.at(-1);
    for (const call of this.#calls) {
      const usage = call === last ? this.#usage : {};
      this.#tracing.add({
        traceId,
        parentSpanId: this.#spanId,
        kind: 'client',
        ...call,
        attributes: { ...call.attributes, ...usage },
      });
    }
    this.#tracing.add({
      traceId,
      spanId: this.#spanId,
      parentSpanId: this.#parentSpanId,
      name,
      kind: 'server',
      startMs: this.#startMs,
      endMs: this.#tracing.clock.nowMs(),
      attributes,
      isError,
    });
  }
}

interface TraceSource {
  readonly clock: Clock;
  readonly ids: Ids;
  samples(traceId: string): boolean;
  readonly add: Exporter['add'];
}

export class Tracing {
  readonly #source: TraceSource;
  readonly #exporter: Exporter;
  readonly #running = new AsyncLocalStorage<RequestTrace>();

  constructor(options: TracingOptions) {
    const { endpoint, headers, serviceName, version, clock, ids, log, sampleRatio } = options;
    const resource = { serviceName, version, instanceId: ids.uuid() };
    const exporter = new Exporter({ endpoint, headers, resource, clock, log });
    this.#exporter = exporter;
    this.#source = {
      clock,
      ids,
      samples: (traceId) => isBelow(traceId, sampleRatio),
      add: (span) => exporter.add(span),
    };
  }

  begin(incoming: Incoming): RequestTrace {
    return new RequestTrace(this.#source, incoming);
  }

  /** Runs the work of a request; `current` finds its trace from inside. */
  within<T>(trace: RequestTrace | undefined, work: () => T): T {
    return trace === undefined ? work() : this.#running.run(trace, work);
  }

  get current(): RequestTrace | undefined {
    return this.#running.getStore();
  }

  /** Spans that a collector took, and spans that were dropped. */
  get counts(): { readonly sent: number; readonly dropped: number } {
    const { sent, dropped } = this.#exporter;
    return { sent, dropped };
  }

  close(): Promise<void> {
    return this.#exporter.close();
  }
}

const RATIO_DIGITS = 13;

/** The same for every process that sees the trace: the id itself decides. */
function isBelow(traceId: string, ratio: number): boolean {
  const share = Number.parseInt(traceId.slice(-RATIO_DIGITS), 16) / 16 ** RATIO_DIGITS;
  return share < ratio;
}
