/**
 * Traces to a collector: which requests get a span, what stands on it, and how engine calls find
 * theirs. Names follow the HTTP and GenAI semantic conventions of OpenTelemetry. Without a collector
 * nothing here exists.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { RequestObserver } from '../http/http.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Config } from '../config/config.ts';
import type { CallObserver, EngineCall, EngineOutcome } from '../engines/engines.ts';
import type { Outcome, Sale } from '../billing/sale.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { formatUsd } from '../core/money.ts';
import { NO_TOKENS, type Settlement } from '../billing/ledger/ledger.ts';
import { type Attributes, Exporter } from '../observability/exporter.ts';
import { RequestTrace, type TraceSource } from '../observability/tracing.ts';

export interface TracesParts {
  readonly config: Config;
  readonly version: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** The traces of a server; `undefined` when no collector is configured. */
export function openTraces(parts: TracesParts): Traces | undefined {
  const { endpoint, headers, sampleRatio } = parts.config.tracing;
  if (endpoint === undefined) return undefined;
  const { config, version, clock, ids, log } = parts;
  const resource = { serviceName: config.service.name, version, instanceId: ids.uuid() };
  const exporter = new Exporter({ endpoint, headers, resource, clock, log });
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
    // Health checks and scrapes would drown the rest.
    if (context.route?.operational === true) return;
    const trace = new RequestTrace(this.#source, (name) => context.header(name));
    this.#byRequest.set(context.requestId, trace);
  }

  /** Runs a handler so that its engine calls find the trace. */
  readonly within = (context: RequestContext, work: () => Promise<void>): Promise<void> => {
    const trace = this.#byRequest.get(context.requestId);
    return trace === undefined ? work() : this.#running.run(trace, work);
  };

  /** Asked by the engines about every call. */
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

  /** Spans that a collector took, and spans that were dropped. */
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
