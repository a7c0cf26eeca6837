/**
 * Sends traces to a collector: a server span for each request and a client span for each engine call, by the
 * HTTP and GenAI semantic conventions of OpenTelemetry.
 *
 * A request continues the trace of its `traceparent`. A caller can turn sampling off but not on. Spans
 * contain no prompts, completions or keys.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { RequestObserver } from '../http/http.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Config, proxyOf } from '../config/config.ts';
import type { CallObserver, EngineCall, EngineOutcome } from '../engines/engines.ts';
import type { Outcome, Sale } from '../billing/sale.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { formatUsd } from '../core/money.ts';
import { NO_TOKENS, type Settlement } from '../billing/ledger/ledger.ts';
import { type Attributes, Exporter, type Span } from '../observability/exporter.ts';

export interface TracesParts {
  readonly config: Config;
  readonly version: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** Returns `undefined` if no collector is configured. */
export function openTraces(parts: TracesParts): Traces | undefined {
  const { endpoint, headers, sampleRatio } = parts.config.tracing;
  if (endpoint === undefined) return undefined;
  const { config, version, clock, ids, log } = parts;
  const resource = { serviceName: config.service.name, version, instanceId: ids.uuid() };
  const proxy = proxyOf(config.proxies, endpoint);
  const exporter = new Exporter({ endpoint, proxy, headers, resource, clock, log });
  return new Traces({ clock, ids, sampleRatio, exporter });
}

export class Traces implements RequestObserver {
  readonly #source: TraceSource;
  readonly #running = new AsyncLocalStorage<RequestTrace>();
  readonly #byRequest = new Map<string, RequestTrace>();

  constructor(source: TraceSource) {
    this.#source = source;
  }

  begun(context: RequestContext): void {
    // Health checks and scrapes are not traced.
    if (context.route?.operational === true) return;
    const trace = new RequestTrace(this.#source, (name) => context.header(name));
    this.#byRequest.set(context.requestId, trace);
  }

  /** Runs a handler in the context of its trace, for engine calls. */
  readonly within: NonNullable<RequestObserver['within']> = (context, work) => {
    const trace = this.#byRequest.get(context.requestId);
    return trace === undefined ? work() : this.#running.run(trace, work);
  };

  /** Called for every engine call. */
  readonly observeCall: CallObserver = (call) => {
    const running = this.#running.getStore()?.call();
    if (running === undefined) return undefined;
    return {
      headers: running.headers,
      ended: (outcome) => {
        const name = `${call.work} ${call.replicas[0]?.model ?? ''}`.trim();
        running.end(name, callAttributes(call, outcome), outcome?.ok !== true);
      },
    };
  };

  settled({ request }: Sale, outcome: Outcome, settlement: Settlement): void {
    const tokens = outcome.tokens ?? NO_TOKENS;
    this.#byRequest.get(request.requestId)?.used({
      'gen_ai.request.model': request.modelId,
      'gen_ai.usage.input_tokens': tokens.prompt,
      'gen_ai.usage.output_tokens': tokens.completion,
      'gen_ai.usage.cache_read.input_tokens': tokens.cached,
      'gen_ai.usage.cache_write.input_tokens': tokens.cacheWrite,
      'gen_ai.usage.reasoning.output_tokens': tokens.reasoning,
      'farebox.cost.usd': formatUsd(settlement.usdNano),
      'farebox.cost.diem': formatUsd(settlement.diemNano),
      'farebox.counted_by': outcome.countedBy,
    });
  }

  ended(context: RequestContext): void {
    const { requestId, route, statusCode, callerIfKnown: caller, notes } = context;
    const trace = this.#byRequest.get(requestId);
    if (trace === undefined) return;
    this.#byRequest.delete(requestId);
    const isError = statusCode >= 500;
    const attributes: Attributes = {
      'http.request.method': route?.method ?? '_OTHER',
      'http.route': route?.path,
      'http.response.status_code': statusCode,
      'farebox.request.id': requestId,
      'farebox.account.id': caller?.accountId,
      'farebox.key.id': caller?.keyId === '' ? undefined : caller?.keyId,
      'farebox.model.id': notes.model,
      'error.type': isError ? (notes.code ?? String(statusCode)) : undefined,
    };
    trace.end(route === undefined ? 'HTTP' : `${route.method} ${route.path}`, attributes, isError);
  }

  /** Number of spans that were sent and that were dropped. */
  get counts(): { readonly sent: number; readonly dropped: number } {
    return this.#source.exporter;
  }

  close(): Promise<void> {
    return this.#source.exporter.close();
  }
}

function callAttributes(call: EngineCall, outcome: EngineOutcome | undefined): Attributes {
  const isStream = call.accept?.includes('text/event-stream') === true;
  const common: Attributes = {
    'gen_ai.operation.name': call.work,
    'gen_ai.provider.name': outcome?.replica?.engine ?? 'unknown',
    'gen_ai.response.model': outcome?.ok === true ? outcome.replica.model : undefined,
    'gen_ai.request.stream': isStream,
    'farebox.engine.attempts': outcome?.attempts,
  };
  if (outcome === undefined) return { ...common, 'error.type': 'internal' };
  if (!outcome.ok) return { ...common, 'error.type': outcome.reason };
  const firstChunk = outcome.firstByteMs / SECOND_MS;
  return isStream ? { ...common, 'gen_ai.response.time_to_first_chunk': firstChunk } : common;
}

const TRACE_ID_BYTES = 16;
const SPAN_ID_BYTES = 8;

interface TraceSource {
  readonly clock: Clock;
  readonly ids: Ids;
  /** Share of requests that are traced, 0 to 1. */
  readonly sampleRatio: number;
  readonly exporter: Exporter;
}

/** Trace of one running request. Its spans are exported when it ends. */
class RequestTrace {
  readonly #source: TraceSource;
  readonly #parent: TraceParent | undefined;
  readonly #state: string | undefined;
  readonly #own: TraceParent;
  readonly #startMs: number;
  /** On the monotonic clock. */
  readonly #startedMs: number;
  readonly #calls: Span[] = [];
  #usage: Attributes = {};

  /** `header` returns a request header. */
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
    this.#startedMs = clock.monotonicMs();
  }

  /** Starts the span of an engine call; returns request headers for the engine as a flat list. */
  call() {
    const { clock, ids } = this.#source;
    const own = { ...this.#own, spanId: ids.hex(SPAN_ID_BYTES) };
    const headers = ['traceparent', formatTraceParent(own)];
    if (this.#state !== undefined) headers.push('tracestate', this.#state);
    const startMs = clock.nowMs();
    const startedMs = clock.monotonicMs();
    const end = (name: string, attributes: Attributes, isError: boolean): void => {
      const times = { startMs, endMs: endOf(startMs, clock.monotonicMs() - startedMs) };
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

  /** Adds the usage, known at the settle, to the span of the last call. */
  used(attributes: Attributes): void {
    this.#usage = { ...this.#usage, ...attributes };
  }

  /** Ends the trace and queues its spans. */
  end(name: string, attributes: Attributes, isError: boolean): void {
    if (!this.#own.isSampled) return;
    const { clock, exporter } = this.#source;
    const last = this.#calls.at(-1);
    for (const call of this.#calls) {
      const usage = call === last ? this.#usage : {};
      exporter.add({ ...call, attributes: { ...call.attributes, ...usage } });
    }
    const tookMs = clock.monotonicMs() - this.#startedMs;
    const times = { startMs: this.#startMs, endMs: endOf(this.#startMs, tookMs) };
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

/** Returns the end of a span in Unix milliseconds, also if the clock was set back. */
function endOf(startMs: number, tookMs: number): number {
  return startMs + Math.round(tookMs);
}

const RATIO_DIGITS = 13;

/** Decides by the trace id, so that all processes of a trace decide the same. */
function isBelow(traceId: string, ratio: number): boolean {
  const share = Number.parseInt(traceId.slice(-RATIO_DIGITS), 16) / 16 ** RATIO_DIGITS;
  return share < ratio;
}

/** W3C trace context of a caller. */
interface TraceParent {
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
  // Only versions after 00 can have further fields.
  if (version === '00' && more !== undefined) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, isSampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED };
}

export function formatTraceParent({ traceId, spanId, isSampled }: TraceParent): string {
  return `00-${traceId}-${spanId}-0${isSampled ? '1' : '0'}`;
}

/** Returns the `tracestate` if it is valid and short enough to forward. */
export function passableTraceState(header: string | undefined): string | undefined {
  return header !== undefined && TRACESTATE.test(header) ? header : undefined;
}
