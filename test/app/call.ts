/** HTTP calls of tests, and a server with one fake engine and one model. */
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, type TestAppOptions, startTestApp } from './test-app.ts';

export interface Called {
  readonly status: number;
  readonly reason: string;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON; reading another body fails. */
  readonly body: Json;
}

/** Parsed JSON whose members tests read without checks. */
type Json = ReturnType<typeof JSON.parse>;

export interface CallOptions {
  readonly method?: string;
  readonly secret?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** `path` is relative to the base path. A body that is not a string is sent as JSON. */
export async function call(
  farebox: TestApp,
  path: string,
  options: CallOptions = {},
): Promise<Called> {
  const { body, secret } = options;
  const response = await fetch(farebox.url + path, {
    method: options.method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...(secret === undefined ? {} : { authorization: `Bearer ${secret}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...options.headers,
    },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  const text = await response.text();
  return {
    status: response.status,
    reason: response.statusText,
    headers: response.headers,
    text,
    get body(): Json {
      return JSON.parse(text);
    },
  };
}

/** A chat request for the model of `startWithEngine`. */
export function chatBody(extra: Readonly<Record<string, unknown>> = {}) {
  return {
    model: 'atlas',
    messages: [{ role: 'user', content: 'Hello' }],
    max_completion_tokens: 50,
    ...extra,
  };
}

export interface Bench {
  readonly farebox: TestApp;
  readonly upstream: TestUpstream;
  stop(): Promise<void>;
}

/** A server that sells the model `atlas` (1 USD in, 2 USD out per million tokens) of a fake engine. */
export async function startWithEngine(
  options: TestAppOptions & { readonly model?: string } = {},
): Promise<Bench> {
  const upstream = await TestUpstream.start();
  const yaml = [
    `engines: { rack1: { protocol: openai, url: "${upstream.url}" } }`,
    'models:',
    '  - id: atlas',
    '    type: text',
    '    name: Atlas',
    '    context: 65536',
    '    maxCompletionTokens: 8192',
    '    aliases: [gpt-4o]',
    '    price: { input: 1, output: 2 }',
    '    replicas: [{ engine: rack1, model: tiny }]',
    ...(options.model === undefined ? [] : [options.model]),
    options.yaml ?? '',
  ].join('\n');
  let farebox: TestApp;
  try {
    farebox = await startTestApp({ ...options, yaml });
  } catch (error) {
    // Closes the server, which would keep the test process alive.
    await upstream.kill();
    throw error;
  }
  return {
    farebox,
    upstream,
    stop: async () => {
      await farebox.stop();
      await upstream.kill();
    },
  };
}
