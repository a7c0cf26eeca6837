/** Spans in the JSON of OTLP/HTTP: ids in hex, 64-bit numbers as texts. */

export type AttributeValue = string | number | boolean;
export type Attributes = Readonly<Record<string, AttributeValue | undefined>>;

/** `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT` of the protocol. */
export const SPAN_KIND = { server: 2, client: 3 } as const;
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

export interface Resource {
  readonly serviceName: string;
  readonly version: string;
  /** Tells the processes of one service apart. */
  readonly instanceId: string;
}

/** The body of `POST /v1/traces`. */
export function otlpBody(spans: readonly Span[], resource: Resource): Buffer {
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
