/** Traces to a collector: attributes of spans, parents of traces, and data that they never contain. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { fastTimers } from '../support/fast-clock.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';

interface SentSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly {
    readonly key: string;
    readonly value: Readonly<Record<string, unknown>>;
  }[];
  readonly status: { readonly code?: number };
}

/** A collector that keeps what it gets. */
class Collector {
  readonly spans: SentSpan[] = [];
  readonly requests: IncomingMessage[] = [];
  status = 200;
  text = '';
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        this.requests.push(request);
        const text = Buffer.concat(chunks).toString();
        this.text += text;
        response.writeHead(this.status, { 'content-type': 'application/json' }).end('{}');
        if (this.status !== 200) return;
        const body = JSON.parse(text) as {
          resourceSpans: { scopeSpans: { spans: SentSpan[] }[] }[];
        };
        for (const resource of body.resourceSpans) {
          for (const scope of resource.scopeSpans) this.spans.push(...scope.spans);
        }
      });
    });
  }

  static async start(): Promise<Collector> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new Collector(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async until(count: number): Promise<SentSpan[]> {
    await until(
      () => this.spans.length >= count,
      () => `${this.spans.length} spans came, ${count}`,
    );
    return this.spans.splice(0);
  }
}

function read(span: SentSpan | undefined): Record<string, unknown> {
  return Object.fromEntries(
    (span?.attributes ?? []).map(({ key, value }) => [key, Object.values(value)[0]]),
  );
}

/** Spans are sent every few seconds. */
const clock = fastTimers(10);
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const PROMPT = 'the-secret-of-the-prompt';

describe('traces', () => {
  let collector: Collector;
  let upstream: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    collector = await Collector.start();
    upstream = await TestUpstream.start();
    farebox = await startTestApp({
      clock,
      yaml: yaml(`sampleRatio: 1, headers: { x-tenant: t1 }`),
    });
  });
  after(async () => {
    await farebox.stop();
    await upstream.kill();
    await collector.stop();
  });
  beforeEach(() => {
    collector.spans.length = 0;
    collector.text = '';
    upstream.seen.length = 0;
    upstream.otherwise = { kind: 'json', usage: true };
  });

  function yaml(tracing: string): string {
    return `
tracing: { endpoint: ${collector.url}, ${tracing} }
engines: { one: { url: ${upstream.url} } }
models: [{ id: m, type: text, context: 4096, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: one, model: inner }] }]
limits: { guard: { failures: 100000 } }
`;
  }

  const chat = async (
    app: TestApp,
    headers: Record<string, string> = {},
    body: object = {},
  ): Promise<string> => {
    const answer = await fetch(`${app.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${app.owner.secret}`,
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: PROMPT }], ...body }),
    });
    await answer.text();
    return answer.headers.get('x-request-id') ?? '';
  };

  test('a chat is a server span with a child span of the engine call, with GenAI attributes', async () => {
    const requestId = await chat(farebox, {
      traceparent: `00-${TRACE}-${PARENT}-01`,
      tracestate: 'vendor=1',
    });
    const spans = await collector.until(2);
    const server = spans.find((span) => span.kind === 2);
    const client = spans.find((span) => span.kind === 3);
    assert.deepEqual([server?.traceId, server?.parentSpanId], [TRACE, PARENT]);
    assert.deepEqual([client?.traceId, client?.parentSpanId], [TRACE, server?.spanId]);
    assert.equal(server?.name, 'POST /chat/completions');
    assert.equal(client?.name, 'chat inner');
    const onServer = read(server);
    assert.equal(onServer['http.response.status_code'], '200');
    assert.equal(onServer['http.route'], '/chat/completions');
    assert.equal(onServer['farebox.request.id'], requestId);
    const onClient = read(client);
    assert.equal(onClient['gen_ai.operation.name'], 'chat');
    assert.equal(onClient['gen_ai.provider.name'], 'one');
    assert.equal(onClient['gen_ai.request.model'], 'm');
    assert.equal(onClient['gen_ai.response.model'], 'inner');
    assert.equal(onClient['gen_ai.usage.input_tokens'], '12');
    assert.equal(onClient['gen_ai.usage.output_tokens'], '5');
    assert.equal(onClient['farebox.cost.usd'], '0.000022000');
    assert.ok(BigInt(client?.endTimeUnixNano ?? 0) >= BigInt(client?.startTimeUnixNano ?? 1));
    // The engine joins the trace below the call.
    const seen = upstream.seen.at(-1)?.headers;
    assert.equal(seen?.['traceparent'], `00-${TRACE}-${client?.spanId}-01`);
    assert.equal(seen?.['tracestate'], 'vendor=1');
    assert.equal(collector.requests.at(-1)?.url, '/v1/traces');
    assert.equal(collector.requests.at(-1)?.headers['x-tenant'], 't1');
  });

  test('the span of a stream has the time of its first chunk', async () => {
    upstream.otherwise = { kind: 'stream', chunks: 3, usage: true };
    await chat(farebox, {}, { stream: true });
    const spans = await collector.until(2);
    const client = read(spans.find((span) => span.kind === 3));
    assert.equal(client['gen_ai.request.stream'], true);
    assert.ok(Number(client['gen_ai.response.time_to_first_chunk']) > 0);
    assert.equal(client['gen_ai.usage.output_tokens'], '3');
  });

  test('an engine that fails is an error on both spans', async () => {
    upstream.otherwise = { kind: 'status', status: 500 };
    await chat(farebox);
    const spans = await collector.until(2);
    for (const span of spans) assert.equal(span.status.code, 2);
    assert.equal(read(spans.find((span) => span.kind === 3))['error.type'], 'failed');
    assert.equal(read(spans.find((span) => span.kind === 2))['error.type'], 'INFERENCE_FAILED');
  });

  test('spans contain no prompts, completions or keys', async () => {
    await chat(farebox);
    await collector.until(2);
    for (const secret of [PROMPT, 'Hello', farebox.owner.secret]) {
      assert.ok(!collector.text.includes(secret), secret);
    }
  });

  test('health checks are not traced', async () => {
    const { origin } = new URL(farebox.url);
    await (await fetch(`${origin}/livez`)).text();
    await chat(farebox);
    const spans = await collector.until(2);
    assert.ok(spans.every((span) => !span.name.includes('livez')));
  });

  test('a "not sampled" flag of the caller is respected and forwarded to the engine', async () => {
    await chat(farebox, { traceparent: `00-${TRACE}-${PARENT}-00` });
    await chat(farebox);
    const spans = await collector.until(2);
    assert.ok(spans.every((span) => span.traceId !== TRACE));
    assert.match(
      String(upstream.seen[0]?.headers['traceparent']),
      new RegExp(`^00-${TRACE}-.*-00$`),
    );
  });

  test('callers cannot change the share of traces', async () => {
    const sparing = await startTestApp({ clock, yaml: yaml('sampleRatio: 0') });
    await chat(sparing, { traceparent: `00-${TRACE}-${PARENT}-01` });
    await sparing.stop();
    assert.equal(collector.spans.length, 0);
    assert.match(String(upstream.seen[0]?.headers['traceparent']), /-00$/);
  });

  test('a server sends its spans at the shutdown', async () => {
    const short = await startTestApp({ clock, yaml: yaml('sampleRatio: 1') });
    await chat(short);
    await short.stop();
    assert.equal(collector.spans.length, 2);
  });

  test('an unavailable collector does not affect requests', async () => {
    const lonely = await startTestApp({
      clock,
      yaml: yaml('sampleRatio: 1').replace(collector.url, 'http://127.0.0.1:1'),
    });
    for (let count = 0; count < 5; count += 1) assert.notEqual(await chat(lonely), '');
    const startedMs = performance.now();
    await lonely.stop();
    assert.ok(performance.now() - startedMs < 4_000);
    collector.status = 400;
    const refused = await startTestApp({ clock, yaml: yaml('sampleRatio: 1') });
    assert.notEqual(await chat(refused), '');
    await refused.stop();
    collector.status = 200;
  });
});
