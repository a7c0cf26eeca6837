/**
 * Exports finished spans to a collector in batches, in the background.
 *
 * Invariants: the queue is bounded, and spans that do not fit are dropped and counted; one batch is
 * sent at a time; requests are never delayed or failed.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { UpstreamPool, fetchWhole } from '../net/upstream-pool.ts';

const MAX_QUEUED = 4_096;
const MAX_BATCH = 512;
const SEND_EVERY_MS = 2 * SECOND_MS;
const SEND_LIMIT_MS = 10 * SECOND_MS;
const SEND_LIMITS = {
  connectMs: SEND_LIMIT_MS,
  firstByteMs: SEND_LIMIT_MS,
  idleMs: SEND_LIMIT_MS,
  totalMs: SEND_LIMIT_MS,
};
/** How long a closing server tries to send its last spans. */
const CLOSE_LIMIT_MS = 2 * SECOND_MS;
const MAX_RESPONSE_BYTES = 64 * 1024;
const MAX_TRIES = 4;
const RETRYABLE: ReadonlySet<number> = new Set([429, 502, 503, 504]);
const TRACES_PATH = '/v1/traces';

export interface ExporterOptions {
  /** Base URL of the collector, or the URL of its traces endpoint. */
  readonly endpoint: string;
  readonly proxy: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly resource: Resource;
  readonly clock: Clock;
  readonly log: Log;
}

type Sent = 'accepted' | 'rejected' | 'retry';

export class Exporter {
  readonly #options: ExporterOptions;
  readonly #pool: UpstreamPool;
  readonly #headers: readonly string[];
  readonly #stop: () => void;
  #queue: Span[] = [];
  #sending: Promise<void> | undefined;
  #tries = 0;
  #restTicks = 0;
  #isBroken = false;
  sent = 0;
  dropped = 0;

  constructor(options: ExporterOptions) {
    this.#options = options;
    const url = options.endpoint.replace(/\/$/, '').replace(new RegExp(`${TRACES_PATH}$`), '');
    this.#pool = new UpstreamPool({
      url,
      proxy: options.proxy,
      maxConnections: 1,
      connectMs: SEND_LIMIT_MS,
      clock: options.clock,
    });
    this.#headers = ['content-type', 'application/json', ...Object.entries(options.headers).flat()];
    this.#stop = options.clock.every(SEND_EVERY_MS, () => {
      if (this.#restTicks > 0) this.#restTicks -= 1;
      else this.#send();
    });
  }

  add(span: Span): void {
    if (this.#queue.length >= MAX_QUEUED) {
      this.dropped += 1;
      return;
    }
    this.#queue.push(span);
    if (this.#queue.length >= MAX_BATCH && this.#tries === 0) this.#send();
  }

  /** Sends the queued spans, within a time limit, and stops. */
  async close(): Promise<void> {
    this.#stop();
    const { clock } = this.#options;
    const untilMs = clock.monotonicMs() + CLOSE_LIMIT_MS;
    const drained = new AbortController();
    const tooLong = clock.sleep(CLOSE_LIMIT_MS, drained.signal).catch(() => undefined); // sent in time
    await Promise.race([this.#drain(untilMs), tooLong]);
    drained.abort();
    this.dropped += this.#queue.length;
    await this.#pool.destroy();
  }

  async #drain(untilMs: number): Promise<void> {
    while (this.#queue.length > 0 && this.#options.clock.monotonicMs() < untilMs) {
      const before = this.#queue.length;
      this.#send();
      await this.#sending;
      // The collector accepts no spans now; stop trying.
      if (this.#queue.length === before) return;
    }
  }

  #send(): void {
    if (this.#sending !== undefined || this.#queue.length === 0) return;
    this.#sending = this.#sendBatch().finally(() => {
      this.#sending = undefined;
    });
  }

  async #sendBatch(): Promise<void> {
    const batch = this.#queue.slice(0, MAX_BATCH);
    const result = await this.#post(otlpBody(batch, this.#options.resource));
    this.#tries += 1;
    if (result === 'retry' && this.#tries < MAX_TRIES) {
      this.#restTicks = 2 ** (this.#tries - 1) - 1;
      return;
    }
    this.#tries = 0;
    this.#queue = this.#queue.slice(batch.length);
    if (result === 'accepted') this.sent += batch.length;
    else this.dropped += batch.length;
    this.#logChange(result === 'accepted');
  }

  /** Logs once when the collector becomes unreachable and once when it is back. */
  #logChange(isAccepted: boolean): void {
    if (isAccepted !== this.#isBroken) return;
    this.#isBroken = !isAccepted;
    const { log } = this.#options;
    if (isAccepted) log.info({}, 'The trace collector accepts spans again');
    else log.warn({}, 'The trace collector rejects spans or is unreachable; spans are dropped');
  }

  async #post(body: Buffer): Promise<Sent> {
    const answer = await fetchWhole(this.#pool, {
      method: 'POST',
      path: TRACES_PATH,
      headers: this.#headers,
      body,
      limits: SEND_LIMITS,
      maxResponseBytes: MAX_RESPONSE_BYTES,
    });
    if (!answer.ok || RETRYABLE.has(answer.status)) return 'retry';
    return answer.status >= 200 && answer.status < 300 ? 'accepted' : 'rejected';
  }
}

type AttributeValue = string | number | boolean;
export type Attributes = Readonly<Record<string, AttributeValue | undefined>>;

/** `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT` of the protocol. */
const SPAN_KIND = { server: 2, client: 3 } as const;
const STATUS_ERROR = 2;

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  readonly name: string;
  readonly kind: keyof typeof SPAN_KIND;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Attributes;
  readonly isError: boolean;
}

interface Resource {
  readonly serviceName: string;
  readonly version: string;
  readonly instanceId: string;
}

/** Returns the body of `POST /v1/traces` in OTLP JSON: ids in hex, 64-bit numbers as strings. */
function otlpBody(spans: readonly Span[], resource: Resource): Buffer {
  const { serviceName, version, instanceId } = resource;
  const body = {
    resourceSpans: [
      {
        resource: {
          attributes: attributesOf({
            'service.name': serviceName,
            'service.version': version,
            'service.instance.id': instanceId,
          }),
        },
        scopeSpans: [{ scope: { name: 'farebox', version }, spans: spans.map(spanOf) }],
      },
    ],
  };
  return Buffer.from(JSON.stringify(body));
}

function spanOf(span: Span): object {
  return {
    traceId: span.traceId,
    spanId: span.spanId,
    ...(span.parentSpanId === undefined ? {} : { parentSpanId: span.parentSpanId }),
    name: span.name,
    kind: SPAN_KIND[span.kind],
    startTimeUnixNano: unixNano(span.startMs),
    endTimeUnixNano: unixNano(span.endMs),
    attributes: attributesOf(span.attributes),
    status: span.isError ? { code: STATUS_ERROR } : {},
  };
}

const MICROSECONDS = 1_000;

function unixNano(ms: number): string {
  return String(BigInt(Math.round(ms * MICROSECONDS)) * 1_000n);
}

function attributesOf(attributes: Attributes): object[] {
  return Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: valueOf(value) }],
  );
}

function valueOf(value: AttributeValue): object {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}
