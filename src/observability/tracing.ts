/**
 * One request as a trace: a server span for it and a client span for each engine call, with the
 * attributes of the GenAI conventions.
 *
 * A caller's `traceparent` is continued: its trace id always; its decision only when it says "not
 * sampled", since strangers must not be able to switch tracing on. Spans hold models, tokens, times
 * and ids, never prompts, answers or keys. Without tracing nothing here exists.
 */
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Attributes, Exporter } from './exporter.ts';

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

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
    this.isSampled = (parent?.isSampled ?? true) && isBelow(this.traceId, tracing.sampleRatio);
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
      this.#tracing.exporter.add({
        traceId,
        parentSpanId: this.#spanId,
        kind: 'client',
        ...call,
        attributes: { ...call.attributes, ...usage },
      });
    }
    this.#tracing.exporter.add({
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

/** What the traces of a server are made by. */
export interface TraceSource {
  readonly clock: Clock;
  readonly ids: Ids;
  /** Share of requests that are traced, 0 to 1. */
  readonly sampleRatio: number;
  readonly exporter: Pick<Exporter, 'add'>;
}

const RATIO_DIGITS = 13;

/** The same for every process that sees the trace: the id itself decides. */
function isBelow(traceId: string, ratio: number): boolean {
  const share = Number.parseInt(traceId.slice(-RATIO_DIGITS), 16) / 16 ** RATIO_DIGITS;
  return share < ratio;
}

/** The W3C trace context of a caller; what is not well formed is as good as absent. */
export interface TraceParent {
  /** 32 hex digits, not all zero. */
  readonly traceId: string;
  /** 16 hex digits, not all zero. */
  readonly spanId: string;
  readonly isSampled: boolean;
}

const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const TRACESTATE = /^[\x20-\x7e]{1,512}$/;
const SAMPLED = 1;

export function parseTraceParent(header: string | undefined): TraceParent | undefined {
  const [, version, traceId = '', spanId = '', flags = '0', more] =
    TRACEPARENT.exec(header?.trim() ?? '') ?? [];
  if (version === undefined || version === 'ff') return undefined;
  // Version 00 has nothing after its flags; later ones may.
  if (version === '00' && more !== undefined) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED };
}

export function formatTraceParent({ traceId, spanId, isSampled }: TraceParent): string {
  return `00-${traceId}-${spanId}-0${isSampled ? '1' : '0'}`;
}

/** A `tracestate` that can be passed on as it stands. */
export function passableTraceState(header: string | undefined): string | undefined {
  return header !== undefined && TRACESTATE.test(header) ? header : undefined;
}
