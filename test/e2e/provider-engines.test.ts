/**
 * A model behind a provider package, through the whole server: the charge, cache marks, errors, a
 * crash of the process and a changed configuration.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import OpenAI from 'openai';
import { formatProblem, loadConfig } from '../../src/config/config.ts';
import { marginsOf } from '../../src/catalog/catalog.ts';
import { usdToNano } from '../../src/core/money.ts';
import { findingsOf } from '../../src/cli/check.ts';
import { makeClip, toneWav } from '../media/clips.ts';
import { sharp } from '../support/sharp.ts';
import { call } from '../app/call.ts';
import { startTestApp } from '../app/test-app.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { EmulatedProvider } from '../support/provider-wires.ts';
import { until } from '../support/until.ts';

const USAGE = {
  input_tokens: 10,
  cache_read_input_tokens: 40,
  cache_creation_input_tokens: 20,
  output_tokens: 5,
};
/** 10 new tokens at 3, 40 cached at 0.3, 20 written at 3.75, and 5 of output at 15 USD per million. */
const COST = usdToNano('0.000192');

function reply(text: string): object {
  const content = [{ type: 'text', text }];
  const more = { stop_reason: 'end_turn', stop_sequence: null, usage: USAGE };
  return { id: 'm', type: 'message', role: 'assistant', model: 'claude', content, ...more };
}

const yamlOf = (url: string, key: string): string => `engines:
  claude:
    provider: '@ai-sdk/anthropic'
    apiKey: ${key}
    settings: { baseURL: '${url}/v1' }
    headers: { x-team: blue }
models:
  - id: opus
    type: text
    context: 8192
    maxCompletionTokens: 64
    price: { input: 3, output: 15, cacheInput: 0.3, cacheWrite: 3.75 }
    replicas: [{ engine: claude, model: claude-opus }]
`;

test('a model behind a provider package is sold, survives a crash, and follows the configuration', async () => {
  const provider = await EmulatedProvider.open();
  const lines: LogLine[] = [];
  const log = memoryLog(lines);
  const farebox = await startTestApp({ yaml: yamlOf(provider.url, 'key-number-one'), log });
  try {
    await farebox.app.localReady;
    const { secret, accountId } = await farebox.account('10');
    const client = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const chat = (content: unknown) =>
      client.chat.completions.create({
        model: 'opus',
        messages: [{ role: 'user', content: content as string }],
      });
    const marked = {
      type: 'text',
      text: 'A long document of more than seventy characters that the provider should keep.',
      cache_control: { type: 'ephemeral' },
    };

    provider.replies = [{ status: 200, body: reply('Hello') }];
    const first = await chat([marked]);
    assert.equal(first.choices[0]?.message.content, 'Hello');
    assert.ok('provider_metadata' in first);
    const { usdNano } = await farebox.app.stores.ledger.balances(accountId);
    assert.equal(usdToNano('10') - usdNano, COST);
    const [sent] = provider.requests;
    assert.equal(sent?.headers['x-api-key'], 'key-number-one');
    assert.equal(sent?.headers['x-team'], 'blue');
    const body = JSON.parse(String(sent?.body));
    assert.equal(body.model, 'claude-opus');
    assert.deepEqual(body.messages[0].content[0].cache_control, { type: 'ephemeral' });

    const busy = { type: 'error', error: { type: 'rate_limit_error', message: 'Too many' } };
    provider.replies = Array.from({ length: 9 }, () => {
      return { status: 429, headers: { 'retry-after': '7' }, body: busy };
    });
    await assert.rejects(chat('Hi'), (error: unknown) => {
      assert.ok(error instanceof OpenAI.APIError);
      assert.equal(error.status, 429);
      assert.equal(error.headers?.get('retry-after'), '7');
      return true;
    });

    provider.replies = [{ status: 200, body: { data: [{ id: 'claude-opus' }] } }];
    const findings = await findingsOf(farebox.config, farebox.app.localEngines.probes());
    const found = findings.find(({ what }) => what === 'engine claude');
    assert.equal(found?.state, 'ok');
    assert.match(found.says, /^responds in \d+ ms and lists 1 model/);

    const event = (data: Readonly<Record<string, unknown>>): string =>
      `event: ${String(data['type'])}\ndata: ${JSON.stringify(data)}\n\n`;
    const delta = (text: string): string => {
      const block = { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } };
      return event(block);
    };
    let finish = (): void => undefined;
    provider.handle = (_request, response) => {
      const message = { id: 'm', type: 'message', role: 'assistant', model: 'claude', content: [] };
      const block = { index: 0, content_block: { type: 'text', text: '' } };
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(event({ type: 'message_start', message: { ...message, usage: USAGE } }));
      response.write(event({ type: 'content_block_start', ...block }));
      response.write(delta('Before'));
      finish = () => {
        response.write(delta(' and after'));
        response.write(event({ type: 'content_block_stop', index: 0 }));
        const end = { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 5 } };
        response.write(event({ type: 'message_delta', ...end }));
        response.end(event({ type: 'message_stop' }));
      };
      return true;
    };
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    const stream = await client.chat.completions.create({ model: 'opus', messages, stream: true });
    provider.handle = () => false;

    const cwd = farebox.config.dataFolder;
    const loaded = await loadConfig({
      env: { FAREBOX_DATA: cwd, PORT: '0' },
      cwd,
      readFile: async () =>
        `discovery: { enabled: false }\nembedded: { enabled: false }\n${yamlOf(provider.url, 'key-number-two')}`,
    });
    assert.ok(loaded.ok, loaded.ok ? '' : loaded.problems.map(formatProblem).join('\n'));
    farebox.app.configure(loaded.config);
    provider.requests.length = 0;
    await until(async () => {
      provider.replies = [{ status: 200, body: reply('Again') }];
      await chat('Hi').catch(() => undefined);
      return provider.requests.at(-1)?.headers['x-api-key'] === 'key-number-two';
    }, 'that the new key is used');
    finish();
    let streamed = '';
    for await (const { choices } of stream) streamed += choices[0]?.delta.content ?? '';
    assert.equal(streamed, 'Before and after');
    await farebox.audit();
    assert.ok(!JSON.stringify(lines).includes('key-number'));
  } finally {
    await farebox.stop();
    await provider.close();
  }
});

test('a crash of the process of a provider ends its calls and starts it again', async () => {
  const provider = await EmulatedProvider.open();
  const farebox = await startTestApp({ yaml: yamlOf(provider.url, 'key-number-one') });
  try {
    await farebox.app.localReady;
    const { secret } = await farebox.account('10');
    const client = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const chat = () =>
      client.chat.completions.create({
        model: 'opus',
        messages: [{ role: 'user', content: 'Hi' }],
      });
    const [settings] = farebox.app.localEngines.engines();
    assert.equal(settings?.id, 'claude');
    // The process rejects calls without its own secret.
    const direct = await fetch(`${settings.url}/models`);
    assert.equal(direct.status, 401);
    provider.handle = () => {
      provider.handle = () => false;
      const [pid] = execFileSync('pgrep', ['-P', String(process.pid), '-f', 'providers/main'])
        .toString()
        .split('\n');
      process.kill(Number(pid), 'SIGKILL');
      return true;
    };
    await assert.rejects(chat());
    const isRunning = (): boolean => {
      const [probe] = farebox.app.localEngines.probes();
      return probe?.isStarting === undefined && probe?.problem === undefined;
    };
    await until(isRunning, 'that the process runs again');
    provider.replies = [];
    await until(
      async () => {
        provider.replies = [{ status: 200, body: reply('Back') }];
        const made = await chat().catch(() => undefined);
        return made?.choices[0]?.message.content === 'Back';
        // More failed calls would double the time for which the engine is not called.
      },
      'that the engine is called again',
      2_000,
    );
    await farebox.audit();
  } finally {
    await farebox.stop();
    await provider.close();
  }
});

const KINDS = (url: string): string => `engines:
  replicate: { provider: '@ai-sdk/replicate', apiKey: key-number-one, settings: { baseURL: '${url}/v1' } }
  cohere: { provider: '@ai-sdk/cohere', apiKey: key-number-one, settings: { baseURL: '${url}/v2' } }
  deepgram: { provider: '@ai-sdk/deepgram', apiKey: key-number-one, settings: { baseURL: '${url}' } }
models:
  - { id: flux, type: image, price: { perImage: 0.04 }, replicas: [{ engine: replicate, model: a/flux }] }
  - id: hailuo
    type: video
    replicas: [{ engine: replicate, model: a/hailuo, videoCost: { kind: second, perSecond: 0.05 } }]
    video: { task: text-to-video, durations: [5s], pricing: { kind: second, perSecond: 0.06 } }
  - { id: rank, type: rerank, price: { perSearch: 0.002 }, replicas: [{ engine: cohere, model: rerank-v3.5 }] }
  - { id: vectors, type: embedding, price: { input: 1 }, embedding: { dimensions: 2 }, replicas: [{ engine: cohere, model: embed-v4.0 }] }
  - { id: voice, type: tts, price: { perMillionCharacters: 10 }, replicas: [{ engine: deepgram, model: aura-2 }] }
  - { id: ears, type: asr, price: { perSecond: 0.001 }, replicas: [{ engine: deepgram, model: nova-3 }] }
`;

test('images, video, vectors, ranks, speech and transcripts of provider packages are sold', async () => {
  const provider = await EmulatedProvider.open();
  const dataFolder = mkdtempSync(join(tmpdir(), 'provider-kinds-'));
  const lines: LogLine[] = [];
  const options = { yaml: KINDS(provider.url), dataFolder, log: memoryLog(lines) };
  let farebox = await startTestApp(options);
  try {
    await farebox.app.localReady;
    const { secret, accountId } = await farebox.account('10');
    const post = async (path: string, body: unknown) => {
      const called = await call(farebox, path, { secret, body });
      assert.equal(called.status, 200, called.text.slice(0, 1_000));
      return called;
    };
    const bill = async (): Promise<bigint> => {
      const { usdNano } = await farebox.app.stores.ledger.balances(accountId);
      return usdToNano('10') - usdNano;
    };

    const png = await sharp({ create: { width: 64, height: 64, channels: 3, background: 'red' } })
      .png()
      .toBuffer();
    const job = { id: 'p', urls: { get: `${provider.url}/v1/predictions/p` } };
    const made = { ...job, status: 'succeeded', output: [`${provider.url}/files/1.png`] };
    const file = { status: 200, type: 'image/png', base64: png.toString('base64') };
    provider.replies = [{ status: 201, body: made }, file];
    const { body: images } = await post('/images/generations', { model: 'flux', prompt: 'A boat' });
    assert.equal(images.data[0].b64_json, png.toString('base64'));
    assert.equal(await bill(), usdToNano('0.04'));

    const results = [
      { index: 1, relevance_score: 0.9 },
      { index: 0, relevance_score: 0.1 },
    ];
    provider.replies = [{ status: 200, body: { id: 'r', results, meta: {} } }];
    const ranked = await post('/rerank', { model: 'rank', query: 'q', documents: ['a', 'b'] });
    assert.equal(ranked.body.results[0].index, 1);
    assert.equal(await bill(), usdToNano('0.042'));

    const embeddings = { float: [[0.5, 0.25]] };
    const meta = { billed_units: { input_tokens: 3 } };
    provider.replies = [{ status: 200, body: { embeddings, meta } }];
    const embedded = await post('/embeddings', { model: 'vectors', input: 'Hello' });
    assert.deepEqual(embedded.body.data[0].embedding, [0.5, 0.25]);
    assert.equal(await bill(), usdToNano('0.042003'));

    const wav = toneWav('a').toString('base64');
    provider.replies = [{ status: 200, type: 'audio/wav', base64: wav }];
    const spoken = { model: 'voice', input: 'Hello', voice: 'thalia', response_format: 'wav' };
    const speech = await fetch(`${farebox.url}/audio/speech`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify(spoken),
    });
    const sound = Buffer.from(await speech.arrayBuffer());
    assert.ok(sound.toString('base64') === wav, JSON.stringify(lines.slice(-9)));
    assert.equal(await bill(), usdToNano('0.042053'));

    const words = [{ word: 'hello', start: 0, end: 0.1 }];
    const alternatives = [{ transcript: 'hello', words }];
    const channels = [{ detected_language: 'en', alternatives }];
    provider.replies = [
      { status: 200, body: { metadata: { duration: 1 }, results: { channels } } },
    ];
    const client = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const { text } = await client.audio.transcriptions.create({
      model: 'ears',
      file: new File([Buffer.from(wav, 'base64')], 'a.wav'),
    });
    assert.equal(text, 'hello');

    let state = 'processing';
    const clip = await makeClip(dataFolder, {
      width: 64,
      height: 64,
      seconds: 5,
      framesPerSecond: 10,
    });
    provider.handle = ({ method, path }, response) => {
      const isFile = path.startsWith('/files/');
      const output = state === 'succeeded' ? `${provider.url}/files/1.mp4` : null;
      const prediction = { ...job, status: method === 'POST' ? 'starting' : state, output };
      response.writeHead(200, { 'content-type': isFile ? 'video/mp4' : 'application/json' });
      response.end(isFile ? clip : JSON.stringify(prediction));
      return true;
    };
    const order = { model: 'hailuo', prompt: 'A boat', duration: '5s' };
    const earlier = provider.requests.length;
    const { body: queued } = await post('/video/queue', order);
    await until(
      () => provider.requests.slice(earlier).some(({ method }) => method === 'GET'),
      'a poll of the video',
    );
    await farebox.stop();
    farebox = await startTestApp(options);
    await farebox.app.localReady;
    state = 'succeeded';
    let film: Buffer | undefined;
    await until(
      async () => {
        const response = await fetch(`${farebox.url}/video/retrieve`, {
          method: 'POST',
          headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'hailuo', queue_id: queued.queue_id }),
        });
        assert.equal(response.status, 200);
        const isFilm = response.headers.get('content-type')?.startsWith('video/') === true;
        const bytes = Buffer.from(await response.arrayBuffer());
        if (isFilm) film = bytes;
        return isFilm;
      },
      'the video',
      1_000,
    );
    assert.ok(film !== undefined && clip.equals(film));
    assert.equal(provider.requests.filter(({ path }) => path.includes('hailuo')).length, 1);

    const operator = await farebox.key({ kind: 'ADMIN' });
    const read = (path: string) => call(farebox, path, { secret: operator });
    const { body: record } = await read(`/admin/requests/${queued.queue_id}`);
    assert.deepEqual(record.data.supplier, {
      usd: '0.250000000',
      lines: [{ kind: 'quote', quantity: 1, per: 1, price: '0.25', usd: '0.25' }],
    });
    const { body: usage } = await read('/admin/usage?by=engine');
    const sums = usage.data.find((one: { engine: string }) => one.engine === 'replicate');
    assert.deepEqual([sums.usd, sums.supplierUsd], ['0.3400', '0.2500']);
    const [margin] = marginsOf(farebox.app.catalog.require('hailuo', 'video').model);
    assert.deepEqual([margin?.kind, margin?.percent], ['perSecond', 16.6]);
    const own = await call(farebox, `/usage/${queued.queue_id}`, { secret });
    assert.doesNotMatch(own.text, /supplier|0\.25/);

    state = 'processing';
    const { body: second } = await post('/video/queue', order);
    const polls = () =>
      provider.requests.filter(({ method, path }) => method === 'GET' && path.endsWith('/p'));
    const before = polls().length;
    await until(() => polls().length > before, 'a poll of the second video', 250);
    await post('/video/cancel', { queue_id: second.queue_id });
    const isCancelled = () => provider.requests.some(({ path }) => path.endsWith('/p/cancel'));
    await until(isCancelled, 'that the provider cancels the video', 250);
    assert.equal(await bill(), usdToNano('0.342553'));
    await farebox.audit();
  } finally {
    await farebox.stop();
    await provider.close();
    rmSync(dataFolder, { recursive: true, force: true });
  }
});

test('the settings of a provider are checked', async () => {
  const problems = async (engine: string): Promise<string[]> => {
    const loaded = await loadConfig({
      env: {},
      cwd: '/',
      readFile: async () => `engines: { a: ${engine} }`,
    });
    return loaded.ok ? [] : loaded.problems.map(({ path, message }) => `${path}: ${message}`);
  };
  assert.deepEqual(await problems("{ provider: '@ai-sdk/fal' }"), []);
  assert.deepEqual(await problems('{ concurrency: 3 }'), ['engines.a: Needs "url" or "provider"']);
  assert.deepEqual(
    await problems("{ provider: '@ai-sdk/fal', url: http://127.0.0.1/v1, cert: x.pem }"),
    [
      'engines.a.url: Has no effect with "provider"; write it as settings.baseURL',
      'engines.a.cert: Has no effect with "provider"; remove this setting',
    ],
  );
  assert.deepEqual(await problems('{ url: http://127.0.0.1/v1, settings: { region: x } }'), [
    'engines.a.settings: Needs "provider"; remove this setting',
  ]);
  assert.deepEqual(await problems('{ url: http://127.0.0.1/v1, cachePrompts: true }'), [
    'engines.a.cachePrompts: Needs "protocol: anthropic"; remove this setting',
  ]);
  const [unknown = ''] = await problems("{ provider: '@ai-sdk/nobody' }");
  assert.match(unknown, /^engines\.a\.provider: /);
});
