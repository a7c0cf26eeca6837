/** Replays the embeddings and the lists of models of each provider: one file of data per provider. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { loadConfig } from '../../src/config/config.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { Engines } from '../../src/engines/engines.ts';
import { configuredEngines } from '../../src/engines/registry.ts';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type Provider, PROVIDERS } from '../support/providers.ts';
import { type Behaviour, TestUpstream } from '../support/test-upstream.ts';

const MODEL =
  'type: embedding, price: { input: 1 }, embedding: { dimensions: 3, customDimensions: true }';
const LIMITS = 'limits: { unsoldPerMinute: 1000000, guard: { failures: 100000 } }';

function sends(value: unknown, status = 200): Behaviour {
  return { kind: 'status', status, body: value === '' ? '' : JSON.stringify(value) };
}

function floatsOf(text: string): number[] {
  const bytes = Uint8Array.from(Buffer.from(text, 'base64'));
  return [...new Float32Array(bytes.buffer)];
}

describe('embeddings and models of providers', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;
  let engines: Engines;
  let lists: Server;
  /** The responses of `lists`, and the paths that were requested. */
  const pages: { status: number; body: unknown }[] = [];
  const requested: string[] = [];
  let secret: string;

  before(async () => {
    upstream = await TestUpstream.start();
    lists = createServer((request, response) => {
      requested.push(request.url ?? '');
      const { status, body } = pages.shift() ?? { status: 500, body: '' };
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    }).listen(0, '127.0.0.1');
    await once(lists, 'listening');
    const { port } = lists.address() as AddressInfo;
    const engine = ([name, data]: (typeof PROVIDERS)[number], at: number): string => {
      const { dialect, url: path = '/v1', settings } = data;
      const url = `http://127.0.0.1:${at}${path}`;
      return `  ${name}: ${JSON.stringify({ url, dialect, ...settings })}`;
    };
    const model = (id: string, name: string): string => {
      const replica = `{ engine: ${name}, model: ${id === name ? 'tiny' : id} }`;
      return `  - { id: ${id}, ${MODEL}, replicas: [${replica}] }`;
    };
    const yaml = [
      'engines:',
      ...PROVIDERS.map((one) => engine(one, upstream.port)),
      'models:',
      ...PROVIDERS.flatMap(([name, { embeddings }]) => [
        model(name, name),
        ...(embeddings?.rejections ?? []).map((_, at) => model(`${name}-${at}`, name)),
      ]),
      LIMITS,
    ].join('\n');
    farebox = await startTestApp({ yaml });
    ({ secret } = farebox.owner);
    const listed = ['engines:', ...PROVIDERS.map((one) => engine(one, port))].join('\n');
    const loaded = await loadConfig({ env: {}, cwd: '/', readFile: async () => listed });
    assert.ok(loaded.ok);
    engines = new Engines({ clock: systemClock(), ids: systemIds(), log: silentLog });
    engines.update(configuredEngines(loaded.config));
  });
  after(async () => {
    await engines.close();
    lists.close();
    await farebox.audit();
    await farebox.stop();
    await upstream.kill();
  });

  const embed = (provider: string, body: object) =>
    call(farebox, '/embeddings', { secret, body: { model: provider, ...body } });
  const sent = () => {
    const last = upstream.seen.at(-1);
    return { path: last?.path, body: JSON.parse(last?.body ?? '') };
  };

  for (const [provider, data] of PROVIDERS) {
    const { embeddings, models } = data;
    if (embeddings !== undefined) embeddingsTests(provider, embeddings);
    if (models === undefined) continue;
    const { ids, status = 200, paths = ['/v1/models'] } = models;
    const outcome =
      ids === undefined
        ? 'a missing list of models is reported'
        : 'the models are listed once each';
    test(`${provider}: ${outcome}`, async () => {
      requested.length = 0;
      pages.push(...models.pages.map((body) => ({ status, body })));
      const result = await engines.probe(provider);
      if (result.ok) assert.deepEqual(result.models, ids);
      else assert.deepEqual([ids, result.status], [undefined, status], result.message);
      assert.deepEqual(requested, paths);
    });
  }

  function embeddingsTests(provider: string, rows: NonNullable<Provider['embeddings']>): void {
    const { missing, path = '/v1/embeddings', responses = [] } = rows;
    if (missing !== undefined) {
      test(`${provider}: embeddings, which it does not have, are rejected with the reason`, async () => {
        upstream.otherwise = sends(missing.body, missing.status);
        const called = await embed(provider, { input: 'sea' });
        assert.deepEqual([called.status, called.body.code], [400, 'INVALID_MODEL'], called.text);
        assert.match(called.text, /No engine of the model \S+ supports this kind of work/);
      });
    }
    const [usual] = responses;
    for (const { name, body, sends: members, omits = [] } of rows.requests ?? []) {
      test(`${provider}: ${name} of embeddings reaches the engine`, async () => {
        const count = Array.isArray(body['input']) ? body['input'].length : 1;
        const object = usual?.body as { readonly data: readonly object[] };
        // A vector for each input.
        const data = object.data.slice(0, count).map((one, index) => ({ ...one, index }));
        upstream.otherwise = sends({ ...object, data });
        const called = await embed(provider, body);
        assert.equal(called.status, 200, called.text);
        const request = sent();
        assert.equal(request.path, path);
        for (const [member, value] of Object.entries(members)) {
          assert.deepEqual(request.body[member], value, member);
        }
        for (const member of omits) assert.equal(request.body[member], undefined, member);
        if (body['dimensions'] === 2) {
          const [x, y, ...others] = called.body.data[0].embedding;
          assert.deepEqual(others, []);
          assert.ok(Math.abs(Math.hypot(x, y) - 1) < 1e-6);
        }
      });
    }
    for (const { name, body, vectors, promptTokens } of responses) {
      test(`${provider}: embeddings with ${name} are read and billed`, async () => {
        upstream.otherwise = sends(body);
        const input = vectors.map((_, at) => `text ${at}`);
        const plain = (await embed(provider, { input })).body;
        const given = ({ embedding }: { embedding: number[] }) => embedding;
        assert.deepEqual(plain.data.map(given), vectors);
        const coded = (await embed(provider, { input, encoding_format: 'base64' })).body;
        assert.deepEqual(
          coded.data.map(({ embedding }: { embedding: string }) => floatsOf(embedding)),
          vectors,
        );
        const { prompt_tokens: tokens, total_tokens: total } = plain.usage;
        if (promptTokens === null) assert.ok(tokens >= vectors.length);
        else assert.equal(tokens, promptTokens);
        assert.equal(total, tokens);
        assert.equal(plain.cost.usd, tokens / 1e6);
      });
    }
    for (const { name, body, message } of rows.refused ?? []) {
      test(`${provider}: ${name} is rejected with the reason, before the engine`, async () => {
        const seen = upstream.seen.length;
        const called = await embed(provider, body);
        assert.equal(called.status, 400, called.text);
        assert.match(called.text, new RegExp(message));
        assert.equal(upstream.seen.length, seen);
      });
    }
    for (const [at, row] of (rows.rejections ?? []).entries()) {
      const { name, body, status, rejection, response } = row;
      test(`${provider}: a rejected encoding (${name}) is omitted, also from the next request`, async () => {
        upstream.script.push(sends(rejection, status));
        upstream.otherwise = sends(response);
        for (const _ of [1, 2]) {
          const called = await embed(`${provider}-${at}`, body);
          assert.equal(called.status, 200, called.text);
          assert.equal(sent().body.encoding_format, undefined);
          const [{ embedding }] = called.body.data;
          assert.equal(typeof embedding === 'string', body['encoding_format'] === 'base64');
        }
        assert.equal(upstream.script.length, 0);
      });
    }
  }
});
