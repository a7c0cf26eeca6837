/** The form of errors by client: which SDK reads which body, and that wallets read theirs everywhere. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { OPENAI_PATHS, wantsOpenAi } from './error-format.ts';

const FORMATS = { header: 'x-acme-error-format', serviceName: 'acme' };
const CHAT = { path: '/chat/completions' };

const AGENTS: readonly (readonly [agent: string | undefined, isOpenAi: boolean])[] = [
  ['OpenAI/Python 2.8.1', true],
  ['AsyncOpenAI/Python 2.8.1', true],
  ['OpenAI/JS 7.55.0', true],
  ['OpenAI/Go 3.8.1', true],
  ['OpenAI/Java 4.6.1', true],
  ['OpenAI::Client/Ruby 0.35.0', true],
  ['OpenAI/2.7.0 (.NET 10.0.0; Linux)', true],
  ['async-openai/0.30.1', true],
  ['go-openai/1.41.2', true],
  ['ai/7.0.173 ai-sdk/openai-compatible/3.0.92 ai-sdk/provider-utils/5 runtime/node.js/v26', true],
  ['Mozilla/5.0 (compatible; GPTBot/1.2; +https://openai.com/gptbot)', false],
  ['Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0', false],
  ['python-requests/2.32.5', false],
  ['Go-http-client/1.1', false],
  ['curl/8.15.0', false],
  [undefined, false],
];

describe('the error object of OpenAI', () => {
  for (const [agent, isOpenAi] of AGENTS) {
    test(`${isOpenAi ? 'is' : 'is not'} for ${agent ?? 'no agent'}`, () => {
      const asking = { headers: { 'user-agent': agent }, route: CHAT };
      assert.equal(wantsOpenAi(asking, FORMATS), isOpenAi);
      const elsewhere = { ...asking, route: { path: '/video/queue' } };
      assert.equal(wantsOpenAi(elsewhere, FORMATS), false);
      for (const [asked, expected] of [
        ['openai', true],
        ['svc', false],
        ['acme', false],
        ['xml', isOpenAi],
      ] as const) {
        const headers = { ...asking.headers, [FORMATS.header]: asked };
        assert.equal(wantsOpenAi({ ...asking, headers }, FORMATS), expected, asked);
      }
    });
  }

  test('is for an SDK in a browser, which sends a header of its own', () => {
    const headers = { 'user-agent': 'Mozilla/5.0', 'x-stainless-lang': 'js' };
    assert.equal(wantsOpenAi({ headers, route: CHAT }, FORMATS), true);
  });
});

describe('errors of a server', () => {
  let bench: Bench;
  let secret: string;
  before(async () => {
    bench = await startWithEngine({
      yaml: `payments: { base: { network: 'eip155:84532', rpcUrl: 'http://127.0.0.1:9', payTo: '0x1111111111111111111111111111111111111111' } }`,
    });
    ({ secret } = await bench.farebox.account('1'));
  });
  after(() => bench.stop());

  const python = { 'user-agent': 'OpenAI/Python 2.8.1', 'x-stainless-lang': 'python' };
  const chat = (headers: Record<string, string>, model = 'nothing') =>
    call(bench.farebox, '/chat/completions', { secret, body: chatBody({ model }), headers });

  test('every route of the list is served', () => {
    const served = new Set(bench.farebox.app.server.routes.map(({ path }) => path));
    assert.deepEqual(
      [...OPENAI_PATHS].filter((path) => !served.has(path)),
      [],
    );
  });

  test('have the format of the client, and Vary names the headers', async () => {
    const plain = await chat({});
    assert.equal(plain.body.code, 'MODEL_NOT_FOUND');
    assert.match(plain.body.error, /nothing/);
    const ofSdk = await chat(python);
    const { message, type, param, code } = ofSdk.body.error;
    assert.match(message, /nothing/);
    assert.deepEqual([type, param, code], ['invalid_request_error', null, 'model_not_found']);
    const decided = await chat({ ...python, 'x-svc-error-format': 'svc' });
    assert.equal(typeof decided.body.error, 'string');
    for (const answer of [plain, ofSdk, decided]) {
      assert.equal(answer.status, 404);
      assert.equal(
        answer.headers.get('vary'),
        'x-svc-error-format, User-Agent, x-stainless-lang, Accept-Encoding',
      );
    }
    const elsewhere = await call(bench.farebox, '/rerank', {
      secret,
      body: {},
      headers: python,
    });
    assert.equal(typeof elsewhere.body.error, 'string');
    assert.equal(elsewhere.headers.get('vary'), 'x-svc-error-format, Accept-Encoding');
    const unknown = await call(bench.farebox, '/nowhere', { secret, body: {}, headers: python });
    assert.match(unknown.body.error.message, /^Not found; \/docs lists the routes$/);
  });

  test('name the invalid field for the SDK', async () => {
    const paramOf = async (body: object) =>
      (await call(bench.farebox, '/chat/completions', { secret, body, headers: python })).body.error
        .param;
    assert.equal(await paramOf(chatBody({ temperature: 3 })), 'temperature');
    const messages = [{ role: 'user', content: [{ type: 'text', text: 1 }] }];
    assert.equal(await paramOf(chatBody({ messages })), 'messages.0.content.0.text');
    const long = [{ role: 'user', content: 'word '.repeat(400_000) }];
    assert.equal(await paramOf(chatBody({ messages: long })), 'messages');
  });

  test('have a message that the SDK shows', async () => {
    const client = new OpenAI({ baseURL: bench.farebox.url, apiKey: secret, maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'Hello' }];
    const asking = client.chat.completions.create({ model: 'nothing', messages });
    await assert.rejects(asking, (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.match(error.message, /nothing/);
      assert.equal(error.code, 'model_not_found');
      return true;
    });
  });

  test('that offer a payment have the body of x402 for every client on every route', async () => {
    for (const path of ['/chat/completions', '/embeddings', '/responses', '/messages']) {
      for (const headers of [{}, python, { 'x-svc-error-format': 'openai' }]) {
        const answer = await call(bench.farebox, path, { body: chatBody(), headers });
        assert.equal(answer.status, 402, path);
        assert.equal(answer.body.x402Version, 2, path);
        assert.equal(typeof answer.body.error, 'string', `${path}: ${answer.text}`);
        assert.ok(Array.isArray(answer.body.accepts));
      }
    }
  });

  test('of a key without credit are the error object of the client', async () => {
    const { secret: poor } = await bench.farebox.account('0.000001');
    const answer = await call(bench.farebox, '/chat/completions', {
      secret: poor,
      body: chatBody(),
      headers: python,
    });
    assert.equal(answer.status, 402);
    assert.equal(answer.body.error.type, 'insufficient_quota');
  });
});
