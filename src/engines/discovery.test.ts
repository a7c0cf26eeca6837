/** Local HTTP servers that imitate engines, and some that only look similar. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import {
  type AddressInfo,
  createServer as createSocketServer,
  type Socket,
  type Server as SocketServer,
} from 'node:net';
import { afterEach, suite, test } from 'node:test';

import type { DiscoveredModel } from '../catalog/catalog.ts';
import { type Config, loadConfig } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { until } from '../../test/support/until.ts';
import { discoverEngines, type LocalEngine, USUAL_TARGETS } from './discovery.ts';
import { LocalEngines } from './embedded/embedded.ts';
import { EngineRegistry } from './registry.ts';
import { SharedEngines } from './shared-engines.ts';
import { startTestLlama } from '../../test/support/test-llama.ts';

const REGISTRY = {
  clock: systemClock(),
  ids: seededIds(1),
  log: silentLog,
  canSearch: false,
  videoConstraints: () => ({}),
  observe: undefined,
};

suite('engines on local ports', () => {
  const servers: (Server | SocketServer)[] = [];
  const sockets: Socket[] = [];

  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    for (const server of servers.splice(0)) {
      if ('closeAllConnections' in server) server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    }
  });

  async function listen(server: Server | SocketServer): Promise<string> {
    servers.push(server);
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  /** A server that returns JSON for the given paths and 404 for all others. */
  async function jsonServer(
    paths: Record<string, unknown>,
    onPost: (path: string, body: { model?: string }) => unknown = () => undefined,
  ): Promise<string> {
    async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
      let text = '';
      for await (const chunk of request) text += String(chunk);
      const path = request.url ?? '';
      const body =
        request.method === 'POST'
          ? onPost(path, JSON.parse(text) as { model?: string })
          : paths[path];
      response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body ?? {}));
    }
    return await listen(createServer((request, response) => void answer(request, response)));
  }

  function listOf(...models: object[]): object {
    return { object: 'list', data: models.map((model) => ({ object: 'model', ...model })) };
  }

  /** The default limit is generous, for busy machines. */
  async function discover(engine: LocalEngine, origin: string, limitMs = 60_000) {
    return await discoverEngines([{ engine, origin }], limitMs);
  }

  function text(engine: LocalEngine, id: string, known: Partial<DiscoveredModel> = {}) {
    const replicas = [{ engine, model: id }];
    const capabilities = ['functionCalling', 'responseSchema', 'logProbs'];
    return { id, origin: 'discovered', type: 'text', replicas, capabilities, ...known };
  }

  function embedding(engine: LocalEngine, id: string, { context }: { context: number }) {
    const replicas = [{ engine, model: id }];
    const bounds = { dimensions: 0, maxInputTokens: context, customDimensions: false };
    return { id, origin: 'discovered', type: 'embedding', replicas, context, embedding: bounds };
  }

  suite('`discoverEngines`', () => {
    test('it finds Ollama with context and capabilities of each model', async () => {
      const origin = await jsonServer(
        {
          '/v1/models': listOf({ id: 'qwen3:8b' }, { id: 'nomic:latest' }, { id: 'other' }),
          '/api/tags': { models: [{ name: 'qwen3:8b' }, { name: 'nomic:latest' }] },
        },
        (path, body) => {
          if (path !== '/api/show') return undefined;
          return body.model === 'qwen3:8b'
            ? {
                capabilities: ['completion', 'tools', 'thinking'],
                model_info: { 'qwen3.context_length': 40_960 },
                parameters: 'num_ctx                        16384\nstop  "<|im_end|>"',
              }
            : { capabilities: ['embedding'], model_info: { 'nomic-bert.context_length': 2_048 } };
        },
      );
      assert.deepEqual(await discover('ollama', origin), [
        {
          engine: 'ollama',
          url: `${origin}/v1`,
          models: [
            text('ollama', 'qwen3:8b', {
              context: 16_384,
              capabilities: ['functionCalling', 'reasoning', 'responseSchema'],
            }),
            embedding('ollama', 'nomic:latest', { context: 2_048 }),
            text('ollama', 'other'),
          ],
        },
      ]);
    });

    test('it finds llama.cpp with its configured context', async () => {
      const origin = await jsonServer({
        '/v1/models': listOf({ id: 'm.gguf', meta: { n_ctx_train: 131_072 } }),
        '/props': {
          default_generation_settings: { n_ctx: 8_192 },
          modalities: { vision: true, audio: false },
        },
      });
      const [found] = await discover('llama.cpp', origin);
      assert.deepEqual(found!.models, [
        text('llama.cpp', 'm.gguf', { context: 8_192, capabilities: ['vision', 'responseSchema'] }),
      ]);
    });

    test('it finds LM Studio with its model details', async () => {
      const origin = await jsonServer({
        '/v1/models': listOf({ id: 'gemma' }, { id: 'text-embedding-x' }),
        '/api/v0/models': {
          data: [
            { id: 'gemma', type: 'vlm', max_context_length: 8_192, capabilities: ['tool_use'] },
            { id: 'text-embedding-x', type: 'embeddings', max_context_length: 512 },
          ],
        },
      });
      const [found] = await discover('lm-studio', origin);
      assert.deepEqual(found!.models, [
        text('lm-studio', 'gemma', { context: 8_192, capabilities: ['responseSchema'] }),
        embedding('lm-studio', 'text-embedding-x', { context: 512 }),
      ]);
    });

    test('it finds a slow engine only with a longer limit', async () => {
      const answer = JSON.stringify(listOf({ id: 'm' }));
      let isSlow = true;
      const server = createServer((_request, response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        if (isSlow) response.flushHeaders();
        else setTimeout(() => response.end(answer), 700);
      });
      const target = { engine: 'vllm', origin: await listen(server) } as const;
      assert.deepEqual(await discoverEngines([target]), []);
      isSlow = false;
      assert.equal((await discover('vllm', target.origin)).length, 1);
    });

    test('an engine that is too busy to respond in time keeps its models', async () => {
      const busy = new Set<string>();
      const show = { capabilities: ['vision'], model_info: { 'a.context_length': 8_192 } };
      const bodies: Readonly<Record<string, unknown>> = {
        '/v1/models': listOf({ id: 'm' }),
        '/api/tags': { models: [{ name: 'm' }] },
        '/api/show': show,
      };
      const server = createServer(({ url = '' }, response) => {
        if (busy.has(url)) return;
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(JSON.stringify(bodies[url]));
      });
      const targets = [{ engine: 'ollama', origin: await listen(server) }] as const;
      const found = await discoverEngines(targets, 60_000);
      assert.deepEqual(found[0]!.models[0]!.capabilities, ['vision', 'responseSchema']);
      for (const path of Object.keys(bodies)) {
        busy.add(path);
        assert.deepEqual(await discoverEngines(targets, 300, found), found, path);
        busy.delete(path);
      }
      server.closeAllConnections();
      await new Promise((resolve) => {
        servers.pop()!.close(resolve);
      });
      assert.deepEqual(await discoverEngines(targets, 60_000, found), []);
    });

    test('it ignores an invalid context size', async () => {
      const wrong = [0, -1, 1.5, 1e300, '8192', null];
      const origin = await jsonServer({
        '/v1/models': listOf(
          ...wrong.map((window, at) => ({
            id: `m${at}`,
            max_model_len: window,
            meta: { n_ctx: window, n_ctx_train: 4_096 },
          })),
        ),
      });
      const [found] = await discover('vllm', origin);
      assert.deepEqual(
        found!.models.map(({ context }) => context),
        wrong.map(() => 4_096),
      );
    });

    test('it finds vLLM, and an engine without details', async () => {
      const vllm = await jsonServer({
        '/v1/models': listOf({ id: 'm', max_model_len: 32_768 }, { id: 'x'.repeat(10_000) }),
      });
      const bare = await jsonServer({ '/v1/models': listOf({ id: 'm' }) });
      const found = await discoverEngines([
        { engine: 'vllm', origin: vllm },
        { engine: 'ollama', origin: bare },
      ]);
      assert.deepEqual(
        found.map((engine) => engine.models),
        [[text('vllm', 'm', { context: 32_768 })], [text('ollama', 'm')]],
      );
    });

    test('it finds an engine without models', async () => {
      const origin = await jsonServer({ '/v1/models': listOf() });
      assert.deepEqual((await discover('ollama', origin))[0]!.models, []);
    });

    test('it finds the embedded llama engine with its models', async () => {
      const llama = await startTestLlama();
      try {
        const headers = { authorization: `Bearer ${llama.apiKey}` };
        const list: unknown = await (await fetch(`${llama.url}/models`, { headers })).json();
        const [found] = await discover('llama.cpp', await jsonServer({ '/v1/models': list }));
        assert.deepEqual(
          found!.models.map((model) => [model.id, model.type]),
          [
            ['farebox-demo', 'text'],
            ['farebox-demo-embedding', 'embedding'],
          ],
        );
      } finally {
        await llama.stop();
      }
    });
  });

  suite('servers that are not engines', () => {
    const lookalikes: [string, number, string, string][] = [
      ['a web page', 200, 'text/html', '<!doctype html><title>Hello</title>'],
      ['a catch-all with JSON', 200, 'application/json', '{"ok":true}'],
      [
        'a list of something else',
        200,
        'application/json',
        '{"object":"list","data":[{"id":"x"}]}',
      ],
      ['an array', 200, 'application/json', '[]'],
      ['incomplete JSON', 200, 'application/json', '{"object":"list","data":['],
      ['JSON served as a page', 200, 'text/html', '{"object":"list","data":[]}'],
      ['a server that requires a login', 401, 'application/json', '{"object":"list","data":[]}'],
      ['a redirect', 302, 'application/json', '{"object":"list","data":[]}'],
    ];
    for (const [name, status, type, body] of lookalikes) {
      test(name, async () => {
        const server = createServer((_request, response) => {
          response.writeHead(status, { 'content-type': type, location: '/login' });
          response.end(body);
        });
        const origin = await listen(server);
        for (const { engine } of USUAL_TARGETS)
          assert.deepEqual(await discover(engine, origin), []);
      });
    }

    test('a closed port', async () => {
      const server = createServer();
      const origin = await listen(server);
      await new Promise((resolve) => {
        servers.pop()!.close(resolve);
      });
      assert.deepEqual(await discover('vllm', origin), []);
    });

    test('a server that does not respond delays discovery only by the limit', async () => {
      let open = 0;
      let most = 0;
      const server = createSocketServer((socket) => {
        sockets.push(socket);
        most = Math.max(most, (open += 1));
        socket.on('close', () => (open -= 1));
      });
      const origin = await listen(server);
      const targets = USUAL_TARGETS.map(({ engine }) => ({ engine, origin }));
      assert.deepEqual(await discoverEngines(targets), []);
      // All targets are queried concurrently, so that the limit applies to all of them together.
      assert.ok(most >= targets.length, `${most} at once`);
    });

    test('a response without an end', async () => {
      const origin = await listen(
        createServer((_request, response) => {
          response.writeHead(200, { 'content-type': 'application/json' });
          response.write('{"object":"list","data":[');
        }),
      );
      assert.deepEqual(await discover('vllm', origin, 300), []);
    });
  });

  test('found and configured engines with the same name serve their own models', async (t) => {
    const urls: string[] = [];
    for (const id of ['first', 'second', 'own'])
      urls.push(`${await jsonServer({ '/v1/models': listOf({ id }) })}/v1`);
    const [own = '', ...found] = urls.toReversed();
    const config = { current: await configOf(found) };
    const registry = new EngineRegistry({ ...REGISTRY, config });
    t.after(() => registry.close());
    const { catalog, engines } = registry;
    await registry.localEngines.start();
    const served = (): Promise<(string | boolean)[]> =>
      Promise.all(
        catalog.models().map(async ({ id, replicas: [replica] }) => {
          const list = await engines.probe(replica!.engine);
          return list.ok && list.models.includes(id) && id;
        }),
      );
    assert.deepEqual(new Set(await served()), new Set(['first', 'second']));
    const model = 'id: own, context: 10, price: { input: 1, output: 1 }';
    config.current = await configOf(
      found,
      `engines: { vllm: { url: ${own} } }\nmodels: [{ ${model}, replicas: [{ engine: vllm }] }]\n`,
    );
    registry.configure();
    assert.deepEqual(new Set(await served()), new Set(['first', 'own', 'second']));
    const { discovery } = config.current;
    for (const [change, ids] of [
      [{ urls: discovery.urls.slice(1) }, ['first', 'own']],
      [{ enabled: false }, ['own']],
      [{}, ['first', 'own', 'second']],
    ] as const) {
      config.current = { ...config.current, discovery: { ...discovery, ...change } };
      registry.configure();
      const current = (): string[] => catalog.models().map(({ id }) => id);
      await until(() => current().sort().join() === ids.join(), ids.join(), 200);
    }
  });

  test('a found model is not called at a configured engine with the name of its own', async (t) => {
    const engine = 'engines: { vllm: { url: "http://127.0.0.1:1/v1" } }\n';
    const config = { current: await configOf([]) };
    const shared = new SharedEngines(() => undefined);
    const registry = new EngineRegistry({
      ...REGISTRY,
      config,
      localEngines: (onChange) => shared.onChange(onChange),
    });
    t.after(() => registry.close());
    const url = 'http://127.0.0.1:8000/v1';
    shared.take({
      engines: [{ id: 'vllm', protocol: 'openai', url }],
      models: [
        { id: 'm', type: 'text', origin: 'discovered', replicas: [{ engine: 'vllm', model: 'm' }] },
      ],
      probes: [],
      areStarting: false,
    });
    assert.ok(registry.catalog.get('m') !== undefined);
    // The process that runs the local engines has not renamed it yet.
    config.current = await configOf([], engine);
    registry.configure();
    assert.equal(registry.catalog.get('m'), undefined);
  });

  test('a change of the configuration that renames a found engine is reported at once', async (t) => {
    const found = [`${await jsonServer({ '/v1/models': listOf({ id: 'm' }) })}/v1`];
    let changes = 0;
    const local = new LocalEngines({
      config: await configOf(found),
      clock: systemClock(),
      ids: seededIds(1),
      log: silentLog,
      onChange: () => (changes += 1),
    });
    t.after(() => local.stop());
    await local.start();
    await until(() => !local.areStarting, 'the start', 200);
    changes = 0;
    const changed = await configOf(found, 'engines: { vllm: { url: "http://127.0.0.1:1/v1" } }\n');
    // Each worker reports the change.
    for (let worker = 0; worker < 2; worker += 1) local.configure(changed);
    assert.deepEqual([changes, local.engines().map(({ id }) => id)], [1, ['vllm-2']]);
  });
});

/** The configuration of a server that looks for engines at `urls`. */
async function configOf(urls: readonly string[], yaml = ''): Promise<Config> {
  const common = `embedded: { enabled: false }\ndiscovery: { urls: ${JSON.stringify(urls)} }\n`;
  const readFile = async (path: string) =>
    path === '/srv/farebox.yaml' ? common + yaml : undefined;
  const loaded = await loadConfig({ env: {}, cwd: '/srv', readFile });
  assert.ok(loaded.ok);
  return loaded.config;
}
