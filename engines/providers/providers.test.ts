import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { awsAuthorization } from '../../test/support/aws-wire.ts';
import { startProxy } from '../../test/support/connect-proxy.ts';
import { type GoogleTokens, openGoogleTokens } from '../../test/support/google-token.ts';
import {
  EmulatedProvider,
  readChunks,
  type Reply,
  WIRES,
  type Wire,
  type WireCase,
} from '../../test/support/provider-wires.ts';
import { PROVIDERS, loadConfig } from '../../src/config/config.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import type { Log } from '../../src/core/log.ts';
import { EmbeddedEngine } from '../../src/engines/embedded/embedded-engine.ts';
import { packageSet, providerSet } from '../../src/engines/embedded/packages.ts';
import { providerOffer } from '../../src/engines/embedded/provider-engine.ts';
import { errorMeaning } from '../../src/engines/error-meanings.ts';

/** Everything that the processes of providers have printed or reported. */
const logged: unknown[] = [];
const log = Object.fromEntries(
  ['debug', 'info', 'warn', 'error'].map((level) => [
    level,
    (...entry: unknown[]) => void logged.push(entry),
  ]),
) as unknown as Log;

async function startEngine(
  wire: Wire,
  provider: EmulatedProvider,
  more: { readonly settings?: object; readonly engine?: object } = {},
): Promise<EmbeddedEngine> {
  const settings = {
    ...more.settings,
    baseURL: provider.url + wire.baseURL,
    ...(JSON.parse(
      JSON.stringify(wire.settings ?? {}).replaceAll('{origin}', provider.url),
    ) as object),
  };
  const { provider: name, apiKey } = wire;
  const tried = { provider: name, apiKey, settings, ...more.engine };
  const loaded = await loadConfig({
    env: {},
    cwd: '/',
    readFile: async () => JSON.stringify({ engines: { tried } }),
  });
  assert.ok(loaded.ok, JSON.stringify(loaded));
  const { config } = loaded;
  const onChange = (): void => undefined;
  const parts = { config, log, clock: systemClock(), ids: systemIds(), onChange };
  const engine = new EmbeddedEngine(
    { ...parts, dataFolder: config.dataFolder, requirePackages: () => Promise.resolve() },
    providerOffer(parts, {
      id: 'tried',
      settings: config.engines['tried']!,
      proxies: config.proxies,
    }),
  );
  await engine.start();
  assert.equal(engine.probe().problem, undefined);
  return engine;
}

function send(engine: EmbeddedEngine, one: WireCase, signal?: AbortSignal): Promise<Response> {
  const [settings] = engine.settings();
  assert.ok(settings);
  const body = one.form === undefined ? JSON.stringify(one.body) : formOf(one.form);
  return fetch(settings.url.replace(/\/v1$/, '') + one.path, {
    method: one.method ?? 'POST',
    headers: {
      authorization: `Bearer ${settings.apiKey}`,
      ...(typeof body === 'string' && { 'content-type': 'application/json' }),
    },
    body: one.method === 'GET' ? null : body,
    ...(signal && { signal }),
  });
}

function formOf(fields: Readonly<Record<string, string>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (['file', 'image', 'input_reference', 'end_image_url'].includes(name)) {
      form.append(name, new Blob([Buffer.from(value, 'base64')]), name);
    } else form.append(name, value);
  }
  return form;
}

function assertMembers(actual: unknown, expected: unknown, path = 'body'): void {
  if (typeof expected !== 'object' || expected === null) {
    assert.deepEqual(actual, expected, path);
    return;
  }
  assert.ok(typeof actual === 'object' && actual !== null, `${path} is ${JSON.stringify(actual)}`);
  if (Array.isArray(expected)) {
    assert.equal(
      (actual as unknown[]).length,
      expected.length,
      `${path}: ${JSON.stringify(actual)}`,
    );
  }
  for (const [name, value] of Object.entries(expected)) {
    assertMembers((actual as Record<string, unknown>)[name], value, `${path}.${name}`);
  }
}

for (const [name, wire] of WIRES) {
  describe(`the provider ${name}`, () => {
    let provider: EmulatedProvider;
    let engine: EmbeddedEngine;
    let google: GoogleTokens | undefined;
    let lastId = '';
    before(async () => {
      provider = await EmulatedProvider.open();
      google = wire.usesGoogleToken === true ? await openGoogleTokens() : undefined;
      engine = await startEngine(wire, provider, google);
    });
    after(async () => {
      google?.close();
      await engine.close();
      await provider.close();
    });

    for (const one of wire.cases) {
      test(one.name, async () => {
        provider.requests.length = 0;
        provider.replies = [one.replies ?? []].flat();
        const path = one.path.replace('{id}', lastId);
        const response = await send(engine, { ...one, path });
        const bytes = Buffer.from(await response.arrayBuffer());
        const text = bytes.toString();
        const { returns, sends } = one;
        assert.equal(response.status, returns.status, text.slice(0, 1_000));
        lastId = /^\{"id":"([\w-]+)","object":"video"/.exec(text)?.[1] ?? lastId;
        for (const request of provider.requests.filter(({ path: at }) => !at.includes('/files/'))) {
          for (const [header, value] of Object.entries(one.authorization ?? wire.authorization)) {
            assert.equal(request.headers[header], value);
          }
          if (wire.signature !== undefined) {
            const expected = awsAuthorization(request, wire.signature);
            assert.equal(request.headers.authorization, expected);
          }
        }
        const [first] = provider.requests;
        if (sends !== undefined) assert.ok(first);
        if (sends?.path !== undefined) assert.equal(first?.path, sends.path);
        if (sends?.body !== undefined) {
          assertMembers(JSON.parse(String(first?.body)), sends.body, 'sent');
        }
        if (returns.body !== undefined) assertMembers(JSON.parse(text), returns.body);
        if (returns.base64 !== undefined) assert.equal(bytes.toString('base64'), returns.base64);
        if (returns.stream !== undefined) assertMembers(readChunks(text), returns.stream);
        if (returns.retryAfter !== undefined) {
          assert.equal(response.headers.get('retry-after'), returns.retryAfter);
        }
        if (returns.meaning !== undefined) {
          assert.equal(errorMeaning(returns.status, bytes), returns.meaning);
        }
      });
    }
  });
}

test('a token of Google is refreshed when it expires, and a rejected account is 401', async () => {
  const [, wire] = WIRES.find(([name]) => name === 'google-vertex')!;
  const provider = await EmulatedProvider.open();
  const google = await openGoogleTokens();
  // Less than the time before the end at which the library requests the next one.
  google.expiresInSeconds = 60;
  const engine = await startEngine(wire, provider, google);
  const [, , , , busy] = wire.cases;
  const statuses: number[] = [];
  for (const problem of ['', '', 'invalid_grant']) {
    google.problem = problem;
    provider.replies = [busy!.replies ?? []].flat();
    statuses.push((await send(engine, busy!)).status);
  }
  const tokens = provider.requests.map(({ headers }) => headers.authorization);
  assert.deepEqual(statuses, [busy!.returns.status, busy!.returns.status, 401]);
  assert.equal(new Set(tokens).size, 2);
  google.close();
  await engine.close();
  await provider.close();
});

const [, ANTHROPIC] = WIRES.find(([name]) => name === 'anthropic')!;
const CHAT: WireCase = {
  name: '',
  path: '/v1/chat/completions',
  body: { model: 'm', max_tokens: 5, messages: [{ role: 'user', content: 'the-prompt-text' }] },
  returns: { status: 200 },
};

test('a setting that a package ignores is rejected, from the second request on without a call', async () => {
  const provider = await EmulatedProvider.open();
  const [, wire] = WIRES.find(([name]) => name === 'openai')!;
  const engine = await startEngine(wire, provider);
  for (const [model, setting, stream] of [
    ['gpt-5', { stop: ['END'] }, false],
    ['gpt-5', { seed: 7 }, false],
    ['gpt-5-mini', { stop: ['END'] }, true],
  ] as const) {
    provider.requests.length = 0;
    for (const _ of [1, 2]) {
      provider.replies = [wire.cases[0]!.replies ?? []].flat();
      if (stream) provider.replies = [{ status: 200, type: 'text/event-stream', text: '' }];
      const body = { ...(CHAT.body as object), model, stream, ...setting };
      const response = await send(engine, { ...CHAT, body });
      const text = await response.text();
      assert.equal(response.status, 400, text);
      assert.match(text, /does not support \\"(?:stop|seed)\\" of this model/);
    }
    assert.equal(provider.requests.length, 1);
  }
  await engine.close();
  await provider.close();
});

test('a closed connection cancels the request at the provider', async () => {
  const provider = await EmulatedProvider.open();
  const engine = await startEngine(ANTHROPIC, provider);
  const received = Promise.withResolvers<ServerResponse>();
  provider.handle = (_request, response) => {
    received.resolve(response);
    return true;
  };
  const aborter = new AbortController();
  const sent = send(engine, CHAT, aborter.signal);
  const response = await received.promise;
  aborter.abort();
  await assert.rejects(sent);
  await once(response, 'close');
  await engine.close();
  await provider.close();
});

test('calls go through the proxy of the engine', async () => {
  // The emulation is the proxy: for a URL without TLS, a proxy receives the whole URL.
  const provider = await EmulatedProvider.open();
  const wire = { ...ANTHROPIC, settings: { baseURL: 'http://provider.example/v1' } };
  const engine = await startEngine(wire, provider, { engine: { proxy: provider.url } });
  const [first] = ANTHROPIC.cases;
  provider.replies = [first!.replies ?? []].flat();
  assert.equal((await send(engine, first!)).status, 200);
  assert.equal(provider.requests[0]?.path, 'http://provider.example/v1/messages');
  await engine.close();
  await provider.close();
});

test('a token for Kling is signed with the secret key and expires', async () => {
  const provider = await EmulatedProvider.open();
  const [, kling] = WIRES.find(([name]) => name === 'kling')!;
  const [start] = kling.cases;
  const keys = { accessKey: 'access-key-1', secretKey: 'secret-key-1' };
  const engine = await startEngine(kling, provider, { settings: keys });
  provider.replies = [start!.replies ?? []].flat();
  assert.equal((await send(engine, start!)).status, 200);
  const token = provider.requests[0]?.headers.authorization?.replace('Bearer ', '') ?? '';
  const [head = '', claims = '', signature] = token.split('.');
  const expected = createHmac('sha256', keys.secretKey).update(`${head}.${claims}`);
  assert.equal(signature, expected.digest('base64url'));
  const { iss, exp, nbf } = JSON.parse(Buffer.from(claims, 'base64url').toString());
  assert.equal(iss, keys.accessKey);
  assert.ok(nbf < Date.now() / 1_000 && exp > Date.now() / 1_000 && exp - nbf < 3_600);
  await engine.close();
  await provider.close();
});

test('a file that a provider returns is never requested from a private address or without TLS', async () => {
  const provider = await EmulatedProvider.open();
  const internal = await EmulatedProvider.open();
  const [, fal] = WIRES.find(([name]) => name === 'fal')!;
  const [, replicate] = WIRES.find(([name]) => name === 'replicate')!;
  const engines = [await startEngine(fal, provider), await startEngine(replicate, provider)];
  const start = fal.cases.find(({ path }) => path === '/v1/videos')!;
  provider.replies = [start.replies ?? []].flat();
  const { id } = (await (await send(engines[0]!, start)).json()) as { id: string };
  const content: WireCase = {
    name: '',
    method: 'GET',
    path: `/v1/videos/${id}/content`,
    returns: { status: 502 },
  };
  const drawing: WireCase = {
    name: '',
    path: '/v1/images/generations',
    body: { model: 'a/b', prompt: 'A boat' },
    returns: { status: 502 },
  };
  const secret = `${internal.url}/secret`;
  const redirect: Reply = { status: 302, headers: { location: secret } };
  const video = (url: string): Reply => ({ status: 200, body: { video: { url } } });
  const image = (url: string): Reply => ({ status: 200, body: { images: [{ url }] } });
  const prediction = (output: string): Reply => {
    return { status: 201, body: { id: 'p', status: 'succeeded', output, urls: { get: output } } };
  };
  const refused: readonly (readonly [EmbeddedEngine, WireCase, ...Reply[]])[] = [
    [engines[0]!, content, video(secret)],
    [engines[0]!, content, video(secret.replace('http:', 'https:'))],
    [engines[0]!, content, video(secret.replace('127.0.0.1', 'localhost'))],
    [engines[0]!, content, video('http://files.example.com/1.mp4')],
    [engines[0]!, content, video('gs://bucket/1.mp4')],
    [engines[0]!, content, video('{origin}/files/1.mp4'), redirect],
    [engines[0]!, drawing, image(secret)],
    [engines[0]!, drawing, image('{origin}/files/1.png'), redirect],
    [engines[1]!, drawing, prediction(secret)],
    [engines[1]!, drawing, prediction('{origin}/files/1.png'), redirect],
  ];
  for (const [engine, one, ...replies] of refused) {
    provider.replies = replies;
    const response = await send(engine, one);
    const text = await response.text();
    assert.equal(response.status, 502, `${JSON.stringify(replies)}: ${text}`);
    assert.ok(!text.includes('secret') || one !== content, text);
  }
  assert.deepEqual(internal.requests, []);
  provider.replies = [
    video('{origin}/files/1.mp4'),
    { status: 302, headers: { location: '/files/2.mp4' } },
    { status: 200, type: 'video/mp4', text: 'bytes' },
  ];
  assert.equal(await (await send(engines[0]!, content)).text(), 'bytes');
  for (const engine of engines) await engine.close();
  await internal.close();
  await provider.close();
});

test('a video whose download breaks off is not sent as a complete one', async () => {
  const provider = await EmulatedProvider.open();
  const [, fal] = WIRES.find(([name]) => name === 'fal')!;
  const engine = await startEngine(fal, provider);
  const start = fal.cases.find(({ path }) => path === '/v1/videos')!;
  provider.replies = [start.replies ?? []].flat();
  const { id } = (await (await send(engine, start)).json()) as { id: string };
  provider.replies = [{ status: 200, body: { video: { url: '{origin}/files/1.mp4' } } }];
  provider.handle = ({ path }, response) => {
    if (!path.startsWith('/files/')) return false;
    response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': 100_000 });
    response.write(Buffer.alloc(50_000), () => response.destroy());
    return true;
  };
  const path = `/v1/videos/${id}/content`;
  const content = await send(engine, { name: '', method: 'GET', path, returns: { status: 200 } });
  assert.equal(content.status, 200);
  await assert.rejects(content.arrayBuffer());
  await engine.close();
  await provider.close();
});

test('a file that a provider returns is downloaded through the proxy of the engine', async (t) => {
  const provider = await EmulatedProvider.open();
  const proxy = await startProxy(t);
  proxy.behaviour = 403;
  const [, fal] = WIRES.find(([name]) => name === 'fal')!;
  const engine = await startEngine(fal, provider, { engine: { proxy: `http://${proxy.host}` } });
  const start = fal.cases.find(({ path }) => path === '/v1/videos')!;
  provider.replies = [start.replies ?? []].flat();
  const { id } = (await (await send(engine, start)).json()) as { id: string };
  const body = { video: { url: 'https://files.example.com/1.mp4' } };
  provider.replies = [{ status: 200, body }];
  const path = `/v1/videos/${id}/content`;
  const one: WireCase = { name: '', method: 'GET', path, returns: { status: 502 } };
  assert.equal((await send(engine, one)).status, 502);
  assert.deepEqual(
    proxy.seen.map(({ target }) => target),
    ['files.example.com:443'],
  );
  await engine.close();
  await provider.close();
});

test('a provider that is not reachable is 502, and no key or prompt is logged', async () => {
  const provider = await EmulatedProvider.open();
  const engine = await startEngine(ANTHROPIC, provider);
  await provider.close();
  const response = await send(engine, CHAT);
  assert.equal(response.status, 502);
  await engine.close();
  const text = JSON.stringify(logged);
  for (const [, { apiKey = 'none' }] of WIRES) assert.ok(!text.includes(apiKey));
  assert.ok(!text.includes('the-prompt-text'));
});

test('each provider package has a version with a checksum, and its set contains what it needs', () => {
  const about = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8')) as {
    dependencies: Record<string, string>;
  };
  const names = new Set(PROVIDERS.map(providerSet));
  assert.deepEqual([...names].sort(), Object.keys(about.dependencies).sort());
  for (const name of names) {
    const { packages } = packageSet(name);
    assert.ok(packages.some((one) => one.name === name));
    for (const { integrity } of packages) assert.match(integrity, /^sha512-/);
    assert.ok(packages.length < 50, `${name} has ${packages.length} packages`);
  }
});
