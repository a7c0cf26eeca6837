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
import type { Attributes, Exporter, Span } from './exporter.ts';

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

/** What the traces of a server are made by. */
export interface TraceSource {
  readonly clock: Clock;
  readonly ids: Ids;
  /** Share of requests that are traced, 0 to 1. */
  readonly sampleRatio: number;
  readonly exporter: Exporter;
}

/** One request on its way. Spans leave when it ends. */
export class RequestTrace {
  readonly #source: TraceSource;
  readonly #parent: TraceParent | undefined;
  readonly #state: string | undefined;
  readonly #own: TraceParent;
  readonly #startMs: number;
  readonly #calls: Span[] = [];
  #usage: Attributes = {};

  /** `header` reads a header by which the request joins a trace. */
  constructor(source: TraceSource, header: (name: string) => string | undefined) {
    const { ids, clock, sampleRatio } = source;
    const parent = parseTraceParent(header('traceparent'));
    const traceId = parent?.traceId ?? ids.hex(TRACE_ID_BYTES);
    const isSampled = (parent?.isSampled ?? true) && isBelow(traceId, sampleRatio);
    this.#source = source;
    this.#parent = parent;
    this.#state = parent && passableTraceState(header('tracestate'));
    this.#own = { traceId, spanId: ids.hex(SPAN_ID_BYTES), isSampled };
    this.#startMs = clock.nowMs();
  }

  /** Begins the span of an engine call, with flat request headers for the engine. */
  call() {
    const { clock, ids } = this.#source;
    const own = { ...this.#own, spanId: ids.hex(SPAN_ID_BYTES) };
    const headers = ['traceparent', formatTraceParent(own)];
    if (this.#state !== undefined) headers.push('tracestate', this.#state);
    const startMs = clock.nowMs();
    const end = (name: string, attributes: Attributes, isError: boolean): void => {
      const times = { startMs, endMs: clock.nowMs() };
      const parentSpanId = this.#own.spanId;
      this.#calls.push({
        ...own,
        parentSpanId,
        name,
        kind: 'client',
        ...times,
        attributes,
        isError,
      });
    };
    return { headers, end };
  }

  /** What the request used, known when it is settled: for the span of its last call. */
  used(attributes: Attributes): void {
    this.#usage = { ...this.#usage, ...attributes };
  }

  /** Ends the request; its spans are queued. */
  end(name: string, attributes: Attributes, isError: boolean): void {
    if (!this.#own.isSampled) return;
    const { clock, exporter } = this.#source;
    const last = this.#calls.at(-1);
    for (const call of this.#calls) {
      const usage = call === last ? this.#usage : {};
      exporter.add({ ...call, attributes: { ...call.attributes, ...usage } });
    }
    const times = { startMs: this.#startMs, endMs: clock.nowMs() };
    const parentSpanId = this.#parent?.spanId;
    exporter.add({
      ...this.#own,
      parentSpanId,
      name,
      kind: 'server',
      ...times,
      attributes,
      isError,
    });
  }
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
