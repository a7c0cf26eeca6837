/**
 * Tracing, wired: which requests get a span, what stands on it, and how engine calls find theirs.
 * Names follow the HTTP and GenAI semantic conventions of OpenTelemetry.
 */
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import type { Config } from '../config/config.ts';
import type { CallObserver, EngineCall, EngineOutcome } from '../engines/engines.ts';
import type { Outcome, Sale } from '../billing/sale.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { formatUsd } from '../core/money.ts';
import { NO_TOKENS, type Settlement } from '../billing/ledger/ledger.ts';
import { type Attributes, type RequestTrace, Tracing } from '../observability/tracing.ts';

export interface TracesParts {
  readonly config: Config;
  readonly version: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** Does nothing at all when no collector is configured. */
export class Traces {
  readonly #tracing: Tracing | undefined;
  readonly #byRequest = new Map<string, RequestTrace>();

  constructor(parts: TracesParts) {
    const { endpoint, headers, sampleRatio } = parts.config.tracing;
    if (endpoint === undefined) return;
    const { version, clock, ids, log } = parts;
    const serviceName = parts.config.service.name;
    this.#tracing = new Tracing({
      endpoint,
      headers,
      sampleRatio,
      serviceName,
      version,
      clock,
      ids,
      log,
    });
  }

  begin(context: RequestContext, route: Route | undefined): void {
    // Health checks and scrapes would drown the rest.
    if (this.#tracing === undefined || route?.operational === true) return;
    const trace = this.#tracing.begin({
      traceparent: context.header('traceparent'),
      tracestate: context.header('tracestate'),
    });
    this.#byRequest.set(context.requestId, trace);
  }

  /** Runs a handler so that its engine calls find the trace. */
  within(context: RequestContext, work: () => Promise<void>): Promise<void> {
    if (this.#tracing === undefined) return work();
    return this.#tracing.within(this.#byRequest.get(context.requestId), work);
  }

  /** For the engines' door; `undefined` without tracing, which costs nothing. */
  get callObserver(): CallObserver | undefined {
    const tracing = this.#tracing;
    if (tracing === undefined) return undefined;
    return (call) => {
      const running = tracing.current?.call();
      if (running === undefined) return undefined;
      return {
        headers: running.headers,
        ended: (outcome) => {
          const name = `${call.work} ${call.replicas[0]?.model ?? ''}`.trim();
          running.end(name, callAttributes(call, outcome), outcome?.ok !== true);
        },
      };
    };
  }

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

  end(context: RequestContext, route: Route | undefined, status: number): void {
    const trace = this.#byRequest.get(context.requestId);
    if (trace === undefined) return;
    this.#byRequest.delete(context.requestId);
    const method = route?.method ?? 'HTTP';
    const name = route === undefined ? method : `${method} ${route.path}`;
    const caller = context.callerIfKnown;
    const isError = status >= 500;
    trace.end(
      name,
      {
        'http.request.method': route?.method ?? '_OTHER',
        'http.route': route?.path,
        'http.response.status_code': status,
        'farebox.request.id': context.requestId,
        'farebox.account.id': caller?.accountId,
        'farebox.key.id': caller?.keyId === '' ? undefined : caller?.keyId,
        'farebox.model.id': context.notes.model,
        'error.type': isError ? (context.notes.code ?? String(status)) : undefined,
      },
      isError,
    );
  }

  get counts(): { readonly sent: number; readonly dropped: number } {
    return this.#tracing?.counts ?? { sent: 0, dropped: 0 };
  }

  async close(): Promise<void> {
    await this.#tracing?.close();
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
