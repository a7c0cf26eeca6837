/** Prompt caches of model servers tell no account what another one sent. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { openEngine, sendJson } from '../support/loopback-engine.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';

const PROMPT = 'The same words of two accounts';
const LIMITS = `limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } } }`;

function yamlFor(url: string, hosted: string, more = ''): string {
  const model = (id: string, engine: string) =>
    `  - { id: ${id}, type: text, context: 100000, price: { input: 1, output: 2 }, replicas: [{ engine: ${engine}, model: engine-${id} }] }`;
  return `
engines:
  vllm: { url: ${url} }
  hosted: { url: ${hosted}, dialect: openai }
  llama: { url: ${url}, quirks: { cacheSalt: false } }
models:
${model('own', 'vllm')}
${model('own-2', 'vllm')}
${model('far', 'hosted')}
${model('cpp', 'llama')}
${LIMITS}
${more}
`;
}

describe('the prompt caches of engines', () => {
  let engine: TestUpstream;
  let farebox: TestApp;
  const secrets: string[] = [];

  before(async () => {
    engine = await TestUpstream.start();
    farebox = await startTestApp({ yaml: yamlFor(engine.url, engine.url) });
    for (let at = 0; at < 2; at += 1) secrets.push((await farebox.account('1')).secret);
  });
  after(async () => {
    await farebox.stop();
    await engine.kill();
  });
  beforeEach(() => {
    engine.script.length = 0;
    engine.seen.length = 0;
  });

  interface Sent {
    readonly model: string;
    readonly prompt_cache_key?: string;
    readonly cache_salt?: string;
  }

  async function send(
    path: string,
    secret: string | undefined,
    body: Record<string, unknown>,
  ): Promise<Sent> {
    engine.script.push({ kind: 'answer', content: 'Yes' });
    const response = await fetch(`${farebox.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    await response.arrayBuffer();
    return JSON.parse(engine.seen.at(-1)?.body ?? '{}');
  }

  const messages = [{ role: 'user', content: PROMPT }];

  const REQUESTS: readonly (readonly [string, string, Record<string, unknown>])[] = [
    ['a plain chat', '/chat/completions', { messages }],
    ['a streamed chat', '/chat/completions', { messages, stream: true }],
    ['a chat with more', '/chat/completions', { messages, top_k: 5, prompt_cache_key: 'k' }],
    ['a chat with a salt of its own', '/chat/completions', { messages, cache_salt: 'guessed' }],
    ['a Responses request', '/responses', { input: PROMPT, prompt_cache_key: 'k' }],
    ['a Messages request', '/messages', { messages, max_tokens: 50 }],
    ['a completion', '/completions', { prompt: PROMPT, prompt_cache_key: 'k' }],
  ];

  for (const [name, path, body] of REQUESTS) {
    test(`${name} has a salt of its account, and a key of its account where it has one`, async () => {
      const [first, again, other] = [
        await send(path, secrets[0], { model: 'own', ...body }),
        await send(path, secrets[0], { model: 'own', ...body }),
        await send(path, secrets[1], { model: 'own', ...body }),
      ];
      assert.match(first.cache_salt ?? '', /^[\w-]{32}$/);
      assert.equal(first.cache_salt, again.cache_salt);
      assert.notEqual(first.cache_salt, other.cache_salt);
      assert.equal(first.prompt_cache_key, again.prompt_cache_key);
      if (body['prompt_cache_key'] === undefined) assert.equal(first.prompt_cache_key, undefined);
      else {
        assert.match(first.prompt_cache_key ?? '', /^[\w-]{32}$/);
        assert.notEqual(first.prompt_cache_key, other.prompt_cache_key);
      }
      const { cache_salt: _salt, prompt_cache_key: _key, ...rest } = first;
      const { cache_salt: _otherSalt, prompt_cache_key: _otherKey, ...otherRest } = other;
      assert.deepEqual(rest, otherRest, 'nothing else differs');
    });
  }

  test('hosted engines get no salt, but scoped cache keys', async () => {
    for (const model of ['far', 'cpp']) {
      const body = { model, messages, prompt_cache_key: 'thread' };
      const [first, other] = [
        await send('/chat/completions', secrets[0], body),
        await send('/chat/completions', secrets[1], body),
      ];
      assert.equal(first.cache_salt, undefined);
      assert.match(first.prompt_cache_key ?? '', /^[\w-]{32}$/);
      assert.notEqual(first.prompt_cache_key, other.prompt_cache_key);
      // A salt of the caller is replaced by a salt of its account.
      const salted = await send('/chat/completions', secrets[0], { ...body, cache_salt: 'mine' });
      assert.match(salted.cache_salt ?? '', /^[\w-]{32}$/);
    }
    const plain = await send('/chat/completions', secrets[0], { model: 'cpp', messages });
    assert.deepEqual(Object.keys(plain).toSorted(), [
      'max_completion_tokens',
      'max_tokens',
      'messages',
      'model',
    ]);
  });
});

test('an engine that rejects the salt is called without it from then on', async (t) => {
  const engine = await openEngine();
  t.after(() => engine.close());
  const farebox = await startTestApp({ yaml: yamlFor(engine.url, engine.url) });
  t.after(() => farebox.stop());
  const { secret } = await farebox.account('1');
  engine.answer = ({ path, body }, response) => {
    if (JSON.parse(body).cache_salt !== undefined) {
      const loc = ['body', 'cache_salt'];
      const detail = [{ type: 'extra_forbidden', loc, msg: 'Extra inputs are not permitted' }];
      return sendJson(response, 422, { detail });
    }
    const choice = path.endsWith('/chat/completions')
      ? { message: { role: 'assistant', content: 'Yes' } }
      : { text: 'Yes' };
    sendJson(response, 200, { choices: [{ index: 0, finish_reason: 'stop', ...choice }] });
  };
  const requests = [
    ['/chat/completions', { model: 'own', messages: [{ role: 'user', content: PROMPT }] }],
    ['/completions', { model: 'own-2', prompt: PROMPT }],
  ] as const;
  for (const [path, body] of requests) {
    engine.heard.length = 0;
    for (let at = 0; at < 2; at += 1) {
      const { status } = await fetch(`${farebox.url}${path}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
      assert.equal(status, 200, path);
    }
    const areSalted = engine.heard.map((heard) => JSON.parse(heard.body).cache_salt !== undefined);
    assert.deepEqual(areSalted, [true, false, false], path);
  }
});

test('`perAccount: false` shares caches, and salts stay the same after a restart', async (t) => {
  const engine = await TestUpstream.start();
  t.after(() => engine.kill());
  const dataFolder = mkdtempSync(join(tmpdir(), 'prompt-caches-'));
  t.after(() => rmSync(dataFolder, { recursive: true }));
  const seen: string[][] = [];
  let secret: string | undefined;
  for (const more of ['', '', 'promptCaches: { perAccount: false }']) {
    const farebox = await startTestApp({
      yaml: yamlFor(engine.url, engine.url, more),
      dataFolder,
    });
    secret ??= (await farebox.account('1')).secret;
    await fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'own',
        messages: [{ role: 'user', content: PROMPT }],
        prompt_cache_key: 'thread',
      }),
    });
    const { cache_salt: salt, prompt_cache_key: key } = JSON.parse(engine.seen.at(-1)!.body);
    seen.push([salt, key]);
    await farebox.stop();
  }
  assert.match(seen[0]![0]!, /^[\w-]{32}$/);
  assert.deepEqual(seen[1], seen[0]);
  assert.deepEqual(seen[2], [undefined, 'thread']);
});
