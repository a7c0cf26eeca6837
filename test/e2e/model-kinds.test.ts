/**
 * Every kind of model except chat, over a scripted engine: requests to the engine, responses to
 * callers and unmodified clients, and charges in nano-USD.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createCohere } from '@ai-sdk/cohere';
import { createOpenAI } from '@ai-sdk/openai';
import { createTogetherAI } from '@ai-sdk/togetherai';
import { OpenAI as LangChainOpenAI } from '@langchain/openai';
import { generateImage, generateSpeech, generateText, rerank } from 'ai';
import { CohereClient, CohereClientV2 } from 'cohere-ai';
import OpenAI, { toFile } from 'openai';
import { sharp } from '../support/sharp.ts';
import { sha256Hex } from '../../src/core/ids.ts';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { type CallOptions, type Called, call } from '../app/call.ts';
import { heapBytes } from '../support/heap-bytes.ts';
import { until } from '../support/until.ts';
import { makeSound, toneWav } from '../media/clips.ts';
import { type ModelFixture, sendEvents, sendJson, startModelFixture } from './model-fixture.ts';

const MODELS = `
  - id: writer
    type: text
    context: 4096
    maxCompletionTokens: 512
    capabilities: [logProbs]
    aliases: [gpt-3.5-turbo-instruct]
    price: { input: 1, output: 2 }
    replicas: [{ engine: studio, model: instruct }]
  - id: mute
    type: text
    context: 4096
    price: { input: 1, output: 2 }
    replicas: [{ engine: studio, model: mute }]
  # What an engine does wrong closes its replica to the caller: each has one of its own.
  - id: frail
    type: text
    context: 4096
    price: { input: 1, output: 2 }
    replicas: [{ engine: studio, model: frail }]
  - id: breaking
    type: text
    context: 4096
    price: { input: 1, output: 2 }
    replicas: [{ engine: studio, model: breaking }]
  - id: painter
    type: image
    price:
      perImage: 0.04
      imageRates:
        - { size: 1792x1024, quality: hd, perImage: 0.12 }
        - { size: 1792x1024, perImage: 0.08 }
        - { quality: hd, perImage: 0.06 }
    image: { sizes: [64x64, 1024x1024, 1792x1024], qualities: [standard, hd], maxImages: 3, promptCharacterLimit: 100, edits: true }
    replicas: [{ engine: studio, model: dall-e }]
  - id: sketcher
    type: image
    price: { perImage: 0.01 }
    replicas: [{ engine: studio, model: sd }]
  - id: speaker
    type: tts
    price: { perMillionCharacters: 15 }
    speech: { voices: [alloy, nova], formats: [mp3, wav, pcm], maxCharacters: 100 }
    replicas: [{ engine: studio, model: tts-1 }]
  - { id: any-voice, type: tts, price: { perMillionCharacters: 30 }, replicas: [{ engine: studio }] }
  - { id: guard, type: moderation, price: { input: 1 }, replicas: [{ engine: studio, model: omni }] }
  - { id: free-guard, type: moderation, price: { perRequest: 0 }, replicas: [{ engine: studio }] }
${[0, 1, 2, 3, 4].map((place) => `  - { id: guard-${place}, type: moderation, price: { input: 1 }, replicas: [{ engine: studio }] }`).join('\n')}
  - id: sorter
    type: rerank
    price: { perSearch: 0.002 }
    rerank: { maxDocuments: 300 }
    aliases: [rerank-v3.5]
    replicas: [{ engine: studio, model: cross-encoder }]
  - { id: token-sorter, type: rerank, price: { input: 0.02 }, replicas: [{ engine: studio, model: jina }] }
  - { id: tei, type: rerank, price: { input: 0 }, replicas: [{ engine: studio, model: tei }] }
${[0, 1, 2, 3, 4, 5].map((place) => `  - { id: sorter-${place}, type: rerank, price: { input: 1 }, replicas: [{ engine: studio }] }`).join('\n')}
  - { id: ears, type: asr, price: { perSecond: 0.001 }, replicas: [{ engine: studio, model: whisper-1 }] }
  - { id: deaf, type: asr, price: { perSecond: 0.001 }, replicas: [{ engine: studio, model: whisper-0 }] }
  - { id: slow-ears, type: asr, price: { perSecond: 0.001 }, replicas: [{ engine: studio, model: whisper-2 }] }
  - { id: cutter, type: inpaint, price: { perImage: 0.01 }, replicas: [{ engine: studio }] }
  - { id: plain, type: image, price: { perImage: 0 }, replicas: [{ engine: studio }] }
${[0, 1, 2, 3, 4, 5, 6, 7].map((place) => `  - { id: bad-${place}, type: image, price: { perImage: 0.01 }, replicas: [{ engine: studio }] }`).join('\n')}
`;

let fixture: ModelFixture;
let openai: OpenAI;

before(async () => {
  fixture = await startModelFixture(MODELS);
  const { url, owner } = fixture.farebox;
  openai = new OpenAI({ baseURL: url, apiKey: owner.secret, maxRetries: 0 });
});
after(() => fixture.stop());

function post(path: string, body: unknown, options: CallOptions = {}): Promise<Called> {
  return call(fixture.farebox, path, { secret: fixture.farebox.owner.secret, body, ...options });
}

const SPACES = 300_000;
const MAX_GROWN_BYTES = 20 * SPACES;

/** Sends a JSON text after many spaces, each in a chunk; returns the memory that they have taken. */
async function sendSpaces(response: ServerResponse, json: string): Promise<number> {
  response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
  const socket = response.socket!;
  const usedBytes = heapBytes();
  socket.write('1\r\n \r\n'.repeat(SPACES));
  await until(() => socket.writableLength === 0);
  for (let turn = 0; turn < 100; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  const grownBytes = heapBytes() - usedBytes;
  response.end(json);
  return grownBytes;
}

/** Nano-USD that the owner is charged for `work`. */
async function cost<T>(work: () => Promise<T>): Promise<readonly [T, bigint]> {
  const { ledger } = fixture.farebox.app.stores;
  const { accountId } = fixture.farebox.owner;
  const before = (await ledger.balances(accountId)).usdNano;
  const done = await work();
  return [done, before - (await ledger.balances(accountId)).usdNano];
}

async function receipt(answer: Called) {
  const { store } = fixture.farebox.app.stores;
  return receiptOf(
    store,
    fixture.farebox.owner.accountId,
    answer.headers.get('x-request-id') ?? '',
  );
}

async function refused(path: string, body: unknown, status: number, pattern: RegExp) {
  const [answer, nano] = await cost(() => post(path, body));
  assert.equal(answer.status, status, answer.text);
  assert.match(answer.text, pattern);
  assert.equal(nano, 0n);
}

describe('POST /completions', () => {
  const path = '/completions';
  const usage = { prompt_tokens: 4, completion_tokens: 3, total_tokens: 7 };
  const choice = { text: ' blue today', index: 0, logprobs: null, finish_reason: 'stop' };
  const answered = { id: 'x', object: 'text_completion', created: 1, choices: [choice], usage };

  test('a prompt is continued unchanged, and its tokens are charged', async () => {
    fixture.engine.onJson(path, answered);
    const [answer, nano] = await cost(() =>
      post(path, {
        model: 'gpt-3.5-turbo-instruct',
        prompt: 'The sky is',
        user: 'me',
        n_predict: 9,
      }),
    );
    assert.equal(answer.status, 200, answer.text);
    const { cache_salt, ...sent } = fixture.engine.last().json;
    assert.match(cache_salt, /^[\w-]{20,}$/);
    assert.deepEqual(sent, { model: 'instruct', prompt: 'The sky is', max_tokens: 16 });
    const { id, created, ...rest } = answer.body;
    assert.match(id, /^cmpl-[0-9a-f]{32}$/);
    assert.ok(created > 1_700_000_000);
    assert.deepEqual(rest, {
      object: 'text_completion',
      model: 'writer',
      choices: [choice],
      usage,
      cost: { usd: 0.00001, diem: 0 },
    });
    assert.equal(nano, 10_000n);
    assert.equal(answer.headers.get('x-svc-model-id'), 'writer');
    assert.equal(answer.headers.get('x-svc-model-router'), 'studio');
    assert.ok(answer.headers.has('x-ratelimit-remaining-tokens'));
    assert.ok(answer.headers.has('x-svc-balance-usd'));
    const kept = await receipt(answer);
    assert.equal(kept?.kind, 'completions');
    assert.equal(kept?.completion_tokens, 3n);
  });

  test('several prompts, choices, ids and likelihoods come back in order', async () => {
    const logprobs = { tokens: ['a'], token_logprobs: [-0.1], top_logprobs: [], text_offset: [0] };
    const choices = [3, 0, 2, 1].map((index) => ({
      text: `t${index}`,
      index,
      logprobs,
      finish_reason: 'length',
    }));
    fixture.engine.onJson(path, {
      choices,
      usage: { prompt_tokens: 3, completion_tokens: 8, total_tokens: 11 },
    });
    const [answer, nano] = await cost(() =>
      post(path, { model: 'writer', prompt: [[1, 2], [3]], n: 2, max_tokens: 2, logprobs: 1 }),
    );
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(
      answer.body.choices.map((one: { text: string }) => one.text),
      ['t0', 't1', 't2', 't3'],
    );
    assert.deepEqual(answer.body.choices[0].logprobs, logprobs);
    assert.deepEqual(fixture.engine.last().json.prompt, [[1, 2], [3]]);
    assert.equal(nano, 3_000n + 16_000n);
  });

  test('an interrupted or truncated text does not end with `stop`', async () => {
    for (const [given, shown] of [
      ['abort', 'length'],
      ['max_tokens', 'length'],
      ['SAFETY', 'content_filter'],
      ['eos_token', 'stop'],
      ['unheard_of', 'stop'],
    ] as const) {
      fixture.engine.onJson(path, { ...answered, choices: [{ ...choice, finish_reason: given }] });
      const { body } = await post(path, { model: 'writer', prompt: 'The sky is' });
      assert.equal(body.choices[0].finish_reason, shown, given);
    }
  });

  test('a prompt without output is charged, a response without text is not', async () => {
    const silent = { ...choice, text: '' };
    const none = { prompt_tokens: 4, completion_tokens: 0, total_tokens: 4 };
    fixture.engine.onJson(path, { choices: [silent], usage: none });
    const [, empty] = await cost(() => post(path, { model: 'writer', prompt: 'The sky is' }));
    assert.equal(empty, 0n);
    fixture.engine.onJson(path, { choices: [{ ...choice, text: 'The sky is' }], usage: none });
    const scoring = {
      model: 'writer',
      prompt: 'The sky is',
      max_tokens: 0,
      echo: true,
      logprobs: 0,
    };
    const [answer, read] = await cost(() => post(path, scoring));
    assert.equal(answer.body.choices[0].text, 'The sky is');
    assert.equal(read, 4_000n);
  });

  test('an engine that does not count is counted by bytes, without the echo', async () => {
    fixture.engine.onJson(path, { choices: [{ ...choice, text: 'The sky isabcdefgh' }] });
    const [answer, nano] = await cost(() =>
      post(path, { model: 'writer', prompt: 'The sky is', echo: true }),
    );
    assert.deepEqual(answer.body.usage, {
      prompt_tokens: 3,
      completion_tokens: 2,
      total_tokens: 5,
    });
    assert.equal(nano, 3_000n + 4_000n);
  });

  test('an invalid request gets 400 with the valid values', async () => {
    const bad: readonly (readonly [object, RegExp])[] = [
      [{}, /prompt.*Expected a string, a list/],
      [{ prompt: [] }, /prompt/],
      [{ prompt: ['a', [1]] }, /prompt/],
      [{ prompt: [-1] }, /prompt/],
      [{ prompt: 'a', best_of: 1, n: 2 }, /best_of.*at least n, which is 2/],
      [{ prompt: 'a', best_of: 2, stream: true }, /Must equal n with stream/],
      [{ prompt: Array.from({ length: 256 }, () => 'a'), n: 3 }, /at most 512 choices, not 768/],
      [{ prompt: 'a', max_tokens: 513 }, /513 is above the 512 output tokens of writer/],
      [{ prompt: 'a', logprobs: 21 }, /logprobs/],
      [{ prompt: 'a', temperature: 3 }, /temperature/],
      [{ prompt: 'a'.repeat(4097 * 16) }, /context of writer holds 4096 tokens/],
    ];
    for (const [more, pattern] of bad)
      await refused(path, { model: 'writer', ...more }, 400, pattern);
    await refused(
      path,
      { model: 'mute', prompt: 'a', logprobs: 1 },
      400,
      /does not support logprobs/,
    );
    await refused(path, { model: 'nobody', prompt: 'a' }, 404, /nobody/);
  });

  test('a missing path of an engine does not mark it as failed', async () => {
    fixture.engine.on(path, (_heard, response) => response.writeHead(404).end('{}'));
    for (let turn = 0; turn < 12; turn += 1) {
      const { secret } = await fixture.farebox.account('1');
      const answer = await post(path, { model: 'mute', prompt: 'a' }, { secret });
      assert.equal(answer.status, 400, answer.text);
      assert.match(answer.text, /No engine of the model mute supports this kind of work/);
    }
    fixture.engine.onJson('/chat/completions', {
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    });
    const messages = [{ role: 'user', content: 'Hi' }];
    assert.equal((await post('/chat/completions', { model: 'mute', messages })).status, 200);
  });

  test('an invalid response is not charged', async () => {
    const wrong = [
      { choices: [] },
      { choices: [{ ...choice, text: 5 }] },
      { choices: [{ ...choice, index: 7 }] },
      { choices: [{ ...choice, text: 'x'.repeat(10_000) }] },
      { error: { message: 'out of memory' } },
    ];
    for (const body of wrong) {
      fixture.engine.onJson(path, body);
      await refused(path, { model: 'frail', prompt: 'a' }, 500, /INFERENCE_FAILED/);
    }
  });

  test('a stream ends with usage and cost, and is replayed under its key', async () => {
    const part = (text: string, finish_reason: string | null) => ({
      choices: [{ text, index: 0, logprobs: null, finish_reason }],
    });
    fixture.engine.on(path, (_heard, response) =>
      sendEvents(response, [part(' blue', null), part(' today', 'stop'), { choices: [], usage }]),
    );
    const body = { model: 'writer', prompt: 'The sky is', stream: true };
    const headers = { 'idempotency-key': 'stream-of-text' };
    const [first, nano] = await cost(() => post(path, body, { headers }));
    assert.equal(first.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    const events = first.text
      .trim()
      .split('\n\n')
      .map((line) => line.replace(/^data: /, ''));
    assert.equal(events.at(-1), '[DONE]');
    const last = JSON.parse(events.at(-2) ?? '');
    assert.deepEqual(last.usage, usage);
    assert.deepEqual(last.cost, { usd: 0.00001, diem: 0 });
    assert.equal(nano, 10_000n);
    assert.deepEqual(fixture.engine.last().json.stream_options, { include_usage: true });
    const [again, nothing] = await cost(() => post(path, body, { headers }));
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(again.text, first.text);
    assert.equal(nothing, 0n);
  });

  test('text that was sent before an engine failed is charged and shown in the error', async () => {
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const event = JSON.stringify({
        choices: [{ ...choice, text: '12345678', finish_reason: null }],
      });
      response.write(`data: ${event}\n\n`);
      setTimeout(() => response.destroy(), 20);
    });
    const body = { model: 'breaking', prompt: '1234', stream: true };
    const [answer, nano] = await cost(() => post(path, body));
    assert.match(answer.text, /"cost":\{"usd":0\.000005,"diem":0\}/);
    assert.match(answer.text, /"error":\{"message":/);
    assert.equal(nano, 1_000n + 4_000n);
  });

  test('a stream beyond its grant is truncated', async () => {
    fixture.engine.on(path, (_heard, response) => {
      const piece = { choices: [{ ...choice, text: 'x'.repeat(100), finish_reason: null }] };
      sendEvents(
        response,
        Array.from({ length: 40 }, () => piece),
      );
    });
    const [answer, nano] = await cost(() =>
      post(path, { model: 'writer', prompt: '1234', stream: true, max_tokens: 4 }),
    );
    assert.match(answer.text, /"finish_reason":"length"/);
    assert.equal(nano, 1_000n + 8_000n);
  });

  test('after a disconnect the output is charged', async () => {
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(
        `data: ${JSON.stringify({ choices: [{ ...choice, text: '12345678', finish_reason: null }] })}\n\n`,
      );
    });
    const [, nano] = await cost(async () => {
      const leave = new AbortController();
      const response = await fetch(`${fixture.farebox.url}${path}`, {
        method: 'POST',
        signal: leave.signal,
        headers: {
          authorization: `Bearer ${fixture.farebox.owner.secret}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ model: 'writer', prompt: '1234', stream: true }),
      });
      await response.body?.getReader().read();
      leave.abort();
      await settled();
    });
    assert.equal(nano, 1_000n + 4_000n);
  });

  test('openai, the AI SDK and LangChain work unmodified', async () => {
    fixture.engine.on(path, (heard, response) => {
      if (heard.json.stream === true)
        sendEvents(response, [{ choices: [choice] }, { choices: [], usage }]);
      else sendJson(response, answered);
    });
    const whole = await openai.completions.create({ model: 'writer', prompt: 'The sky is' });
    assert.equal(whole.choices[0]?.text, ' blue today');
    assert.equal(whole.usage?.total_tokens, 7);
    let text = '';
    const stream = await openai.completions.create({
      model: 'writer',
      prompt: 'The sky is',
      stream: true,
    });
    for await (const event of stream) text += event.choices[0]?.text ?? '';
    assert.equal(text, ' blue today');
    const { url: baseURL, owner } = fixture.farebox;
    const provider = createOpenAI({ baseURL, apiKey: owner.secret });
    const made = await generateText({ model: provider.completion('writer'), prompt: 'The sky is' });
    assert.equal(made.text, ' blue today');
    assert.equal(made.usage.outputTokens, 3);
    const chain = new LangChainOpenAI({
      model: 'writer',
      apiKey: owner.secret,
      configuration: { baseURL },
    });
    assert.equal(await chain.invoke('The sky is'), ' blue today');
    let streamed = '';
    for await (const piece of await chain.stream('The sky is')) streamed += piece;
    assert.equal(streamed, ' blue today');
  });
});

describe('POST /images/generations', () => {
  const path = '/images/generations';
  const body = { model: 'painter', prompt: 'A lighthouse' };
  const data = async (...sizes: readonly (readonly [number, number])[]) => ({
    created: 1,
    data: await Promise.all(
      sizes.map(async (size) => ({ b64_json: (await png(...size)).toString('base64') })),
    ),
  });

  test('images are forwarded and charged by their number', async () => {
    const made = await data([64, 64]);
    fixture.engine.on(path, (_heard, response) => {
      response.setHeader('x-svc-is-blurred', 'true');
      sendJson(response, { ...made, data: [{ ...made.data[0], revised_prompt: 'A "tall" one' }] });
    });
    const [answer, nano] = await cost(() =>
      post(path, { ...body, size: '64x64', user: 'me', num_images: 9, fallbacks: ['x'] }),
    );
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(fixture.engine.last().json, {
      model: 'dall-e',
      prompt: 'A lighthouse',
      size: '64x64',
      response_format: 'b64_json',
    });
    const { created, ...rest } = answer.body;
    assert.ok(created > 1_700_000_000);
    assert.deepEqual(rest, {
      data: [{ ...made.data[0], revised_prompt: 'A "tall" one' }],
      output_format: 'png',
      size: '64x64',
      background: 'auto',
      cost: { usd: 0.04, diem: 0 },
    });
    assert.equal(nano, 40_000_000n);
    assert.equal(answer.headers.get('x-svc-is-blurred'), 'true');
    assert.equal(answer.headers.get('x-svc-model-id'), 'painter');
    const kept = await receipt(answer);
    assert.equal(kept?.kind, 'image');
  });

  test('size and quality have their own prices, and a smaller image is not charged as a larger one', async () => {
    const price = async (more: object, ...sizes: readonly (readonly [number, number])[]) => {
      fixture.engine.onJson(path, { ...(await data(...sizes)), quality: 'hd' });
      const [answer, nano] = await cost(() => post(path, { ...body, ...more }));
      assert.equal(answer.status, 200, answer.text);
      return nano;
    };
    assert.equal(await price({ size: '1792x1024', quality: 'hd' }, [1792, 1024]), 120_000_000n);
    assert.equal(
      await price({ size: '1792x1024', quality: 'standard' }, [1792, 1024]),
      80_000_000n,
    );
    assert.equal(await price({ size: '1792x1024', quality: 'standard' }, [64, 64]), 40_000_000n);
    assert.equal(await price({ size: '64x64', quality: 'standard' }, [1792, 1024]), 40_000_000n);
    assert.equal(await price({}, [1792, 1024]), 120_000_000n);
    assert.equal(await price({ quality: 'auto', n: 3 }, [64, 64], [64, 64]), 120_000_000n);
  });

  test('an image in another format than declared is not charged', async () => {
    const whole = await png(64, 64);
    const jpeg = await sharp(whole).jpeg().toBuffer();
    const webp = await sharp(whole).webp().toBuffer();
    const answerWith = (bytes: Buffer): void =>
      fixture.engine.onJson(path, { data: [{ b64_json: bytes.toString('base64') }] });
    for (const [output_format, bytes] of [
      ['jpeg', jpeg],
      ['webp', webp],
      ['png', whole],
    ] as const) {
      answerWith(bytes);
      const answer = await post(path, { model: 'sketcher', prompt: 'a', output_format });
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.body.data[0].b64_json, bytes.toString('base64'));
    }
    const wrong = [
      whole.subarray(0, -20),
      jpeg.subarray(0, -2),
      webp.subarray(0, -9),
      Buffer.concat([jpeg.subarray(0, jpeg.length / 2), jpeg.subarray(-2)]),
      Buffer.from(webp).fill(0xff, Math.floor(webp.length / 2)),
      Buffer.from('<svg/>'),
    ];
    for (const [place, bytes] of wrong.entries()) {
      answerWith(bytes);
      await refused(path, { model: `bad-${place}`, prompt: 'a' }, 500, /INFERENCE_FAILED/);
    }
    answerWith(whole);
    await refused(
      path,
      { model: 'bad-6', prompt: 'a', output_format: 'webp' },
      500,
      /INFERENCE_FAILED/,
    );
    fixture.engine.onJson(path, { data: [{ url: 'http://10.0.0.1/a.png' }] });
    await refused(path, { model: 'bad-7', prompt: 'a' }, 500, /INFERENCE_FAILED/);
  });

  test('an image that the engine names by a URL is fetched, and its hash is on the receipt', async () => {
    const image = await png(64, 64);
    fixture.engine.on('/made.png', (_heard, response) => response.end(image));
    for (const url of [
      `${fixture.engineUrl}/made.png`,
      `data:image/png;base64,${image.toString('base64')}`,
    ]) {
      fixture.engine.onJson(path, { data: [{ url }] });
      const answer = await post(path, { model: 'sketcher', prompt: 'a' });
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.body.data[0].b64_json, image.toString('base64'));
      const { sha256 } = JSON.parse((await receipt(answer))?.extras ?? '{}');
      assert.deepEqual(sha256, [sha256Hex(image)]);
    }
  });

  test('engines without `response_format` are called without it, after one attempt', async () => {
    const made = await data([64, 64]);
    fixture.engine.on(path, (heard, response) => {
      if (heard.json.response_format === undefined) return sendJson(response, made);
      sendJson(response, { error: { message: "Unknown parameter: 'response_format'." } }, 400);
    });
    const asked = fixture.engine.heard.length;
    for (let turn = 0; turn < 2; turn += 1) {
      assert.equal((await post(path, { model: 'plain', prompt: 'a' })).status, 200);
    }
    assert.equal(fixture.engine.heard.length - asked, 3);
  });

  test('an unsupported size or quality gets 400 with the supported ones', async () => {
    const bad: readonly (readonly [object, RegExp])[] = [
      [{ prompt: '' }, /prompt/],
      [{ prompt: 'a'.repeat(101) }, /at most 100 characters, got 101/],
      [{ n: 4 }, /at most 3 images at once, not 4/],
      [{ n: 0 }, /n: /],
      [{ size: '512x512' }, /makes 64x64, 1024x1024, 1792x1024, not 512x512/],
      [{ size: 'large' }, /auto, or a width and height/],
      [{ quality: 'low' }, /makes standard, hd, not low/],
      [{ response_format: 'link' }, /response_format/],
      [{ partial_images: 4 }, /partial_images/],
      [{ output_format: 'gif' }, /output_format/],
    ];
    for (const [more, pattern] of bad) await refused(path, { ...body, ...more }, 400, pattern);
    await refused(path, { ...body, model: 'writer' }, 400, /type text.*accepts image models/);
    fixture.engine.onJson(
      path,
      { error: { message: 'No', code: 'content_policy_violation' } },
      400,
    );
    await refused(path, body, 422, /CONTENT_POLICY_VIOLATION/);
  });

  test('a caller with too little credit, or above its limit, gets an error before an engine is called', async () => {
    const { secret } = await fixture.farebox.account('0.11');
    const asked = fixture.engine.heard.length;
    const poor = await post(path, { ...body, size: '1792x1024', quality: 'hd' }, { secret });
    assert.equal(poor.status, 402, poor.text);
    assert.equal(fixture.engine.heard.length, asked);
    fixture.engine.onJson(path, await data([64, 64]));
    const rich = await fixture.farebox.account('5');
    const answers = await Promise.all(
      Array.from({ length: 21 }, () =>
        post(path, { model: 'sketcher', prompt: 'a' }, { secret: rich.secret }),
      ),
    );
    assert.deepEqual(Map.groupBy(answers, ({ status }) => status).get(429)?.length, 1);
    assert.equal(answers[0]?.headers.get('x-ratelimit-limit-requests'), '20');
  });

  test('a caller that disconnects before the first image is not charged', async () => {
    fixture.engine.on(path, () => undefined);
    const [, nano] = await cost(async () => {
      const leave = new AbortController();
      const asked = fixture.engine.heard.length;
      const gone = post(path, body, { signal: leave.signal });
      await until(() => fixture.engine.heard.length > asked, 'the request at the engine');
      leave.abort();
      await assert.rejects(gone);
      await settled();
    });
    assert.equal(nano, 0n);
  });

  test('openai and the AI SDK work unmodified, with and without streams', async () => {
    const made = await data([64, 64]);
    fixture.engine.onJson(path, made);
    const whole = await openai.images.generate({ model: 'painter', prompt: 'A lighthouse', n: 1 });
    assert.equal(whole.data?.[0]?.b64_json, made.data[0]?.b64_json);
    const [events, nano] = await cost(async () => {
      const seen: string[] = [];
      const stream = await openai.images.generate({
        model: 'painter',
        prompt: 'A',
        stream: true,
        partial_images: 2,
      });
      for await (const event of stream) {
        seen.push(event.type);
        assert.equal(event.b64_json, made.data[0]?.b64_json);
        // The type of the event requires both, also if the engine reports none.
        assert.equal(event.quality, 'auto');
        assert.equal(event.type === 'image_generation.completed' && event.usage.total_tokens, 0);
      }
      return seen;
    });
    assert.deepEqual(events, ['image_generation.completed']);
    assert.equal(nano, 40_000_000n);
    const { url: baseURL, owner } = fixture.farebox;
    const provider = createOpenAI({ baseURL, apiKey: owner.secret });
    const { image } = await generateImage({
      model: provider.image('painter'),
      prompt: 'A',
      size: '64x64',
    });
    assert.equal(image.mediaType, 'image/png');
    assert.equal(image.base64, made.data[0]?.b64_json);
  });

  test('a data URL is returned if a URL is requested', async () => {
    const made = await data([64, 64]);
    fixture.engine.onJson(path, made);
    const { data: pictures } = await openai.images.generate({ ...body, response_format: 'url' });
    assert.deepEqual(Object.keys(pictures?.[0] ?? {}), ['url']);
    const shown = await fetch(pictures?.[0]?.url ?? '');
    assert.equal(shown.headers.get('content-type'), 'image/png');
    const bytes = Buffer.from(await shown.arrayBuffer());
    assert.equal(bytes.toString('base64'), made.data[0]?.b64_json);
    assert.equal(fixture.engine.last().json.response_format, 'b64_json');
  });

  test('no other member can request a larger image than the charged size', async () => {
    fixture.engine.onJson(path, await data([64, 64]));
    const large = { width: 4096, height: 4096, image_size: '4096x4096', resolution: '4K' };
    await post(path, { model: 'sketcher', prompt: 'a', size: '64x64', seed: 7, ...large });
    const {
      model: _one,
      prompt: _two,
      response_format: _three,
      ...more
    } = fixture.engine.last().json;
    assert.deepEqual(more, { size: '64x64', seed: 7 });
    await post(path, { model: 'sketcher', prompt: 'a', width: 640 });
    assert.equal(fixture.engine.last().json.width, 640);
  });

  describe('partial images', () => {
    const streamed = { ...body, stream: true, partial_images: 2 };
    const partial = (b64_json: string, partial_image_index: number) => {
      return { type: 'image_generation.partial_image', b64_json, partial_image_index };
    };
    /** Types of the events, and the last of them. */
    const eventsOf = (text: string) => {
      const events = text
        .split('\n\n')
        .flatMap((block) => (/^data: (.*)$/m.exec(block) ?? []).slice(1))
        .map((json) => JSON.parse(json));
      return { types: events.map(({ type }) => type), last: events.at(-1), first: events[0] };
    };

    test('are forwarded when they arrive, and the image is charged once', async () => {
      const [early, late] = (await data([32, 32], [64, 64])).data.map((one) => one.b64_json);
      fixture.engine.on(path, (_heard, response) =>
        sendEvents(response, [
          partial(early!, 0),
          partial('bm8=', 1),
          { type: 'image_generation.telemetry' },
          partial(early!, 1),
          partial(early!, 2),
          {
            type: 'image_generation.completed',
            b64_json: late,
            quality: 'hd',
            background: 'transparent',
            usage: { total_tokens: 3 },
          },
        ]),
      );
      const headers = { 'idempotency-key': 'seen-while-made' };
      const [answer, nano] = await cost(() => post(path, streamed, { headers }));
      assert.equal(answer.status, 200, answer.text);
      const { types, first, last } = eventsOf(answer.text);
      const shown = 'image_generation.partial_image';
      assert.deepEqual(types, [shown, shown, 'image_generation.completed']);
      assert.equal(first.b64_json, early);
      assert.deepEqual(
        [first.partial_image_index, first.size, first.output_format],
        [0, '32x32', 'png'],
      );
      assert.equal(last.b64_json, late);
      assert.deepEqual([last.usage, last.background], [{ total_tokens: 3 }, 'transparent']);
      assert.deepEqual(last.cost, { usd: 0.06, diem: 0 });
      assert.equal(nano, 60_000_000n);
      const { stream, partial_images } = fixture.engine.last().json;
      assert.deepEqual([stream, partial_images], [true, 2]);
      const [again, nothing] = await cost(() => post(path, streamed, { headers }));
      assert.equal(again.text, answer.text);
      assert.equal(nothing, 0n);
      const seen: string[] = [];
      const stock = await openai.images.generate({ ...body, stream: true, partial_images: 1 });
      for await (const event of stock) seen.push(event.type);
      assert.deepEqual(seen, [shown, 'image_generation.completed']);
    });

    test('an engine without streaming is called without it, after one attempt', async () => {
      const made = await data([64, 64]);
      fixture.engine.on(path, (heard, response) => {
        if (heard.json.stream === undefined) return sendJson(response, made);
        sendJson(response, { error: { message: "Unknown parameter: 'stream'." } }, 400);
      });
      const asked = fixture.engine.heard.length;
      for (let turn = 0; turn < 2; turn += 1) {
        const answer = await post(path, { ...streamed, model: 'sketcher' });
        assert.deepEqual(eventsOf(answer.text).types, ['image_generation.completed']);
      }
      assert.equal(fixture.engine.heard.length - asked, 3);
    });

    test('a response of single bytes takes little more memory than its bytes', async () => {
      const made = JSON.stringify(await data([64, 64]));
      let grownBytes = Infinity;
      fixture.engine.on(path, async (_heard, response) => {
        grownBytes = await sendSpaces(response, made);
      });
      const answer = await post(path, { ...streamed, model: 'painter' });
      assert.deepEqual(eventsOf(answer.text).types, ['image_generation.completed']);
      assert.ok(grownBytes < MAX_GROWN_BYTES, String(grownBytes));
    });

    test('a disconnect after a partial image is charged, a failed engine is not', async () => {
      const [small] = (await data([64, 64])).data;
      const begin = (then: (response: ServerResponse) => void): void =>
        fixture.engine.on(path, (_heard, response) => {
          response.writeHead(200, { 'content-type': 'text/event-stream' });
          response.write(`data: ${JSON.stringify(partial(small!.b64_json, 0))}\n\n`);
          setTimeout(then, 20, response);
        });
      begin(() => undefined);
      const [, left] = await cost(async () => {
        const leave = new AbortController();
        const response = await fetch(`${fixture.farebox.url}${path}`, {
          method: 'POST',
          signal: leave.signal,
          headers: {
            authorization: `Bearer ${fixture.farebox.owner.secret}`,
            'content-type': 'application/json',
          },
          body: JSON.stringify({ ...streamed, n: 2 }),
        });
        await response.body?.getReader().read();
        leave.abort();
        await settled();
      });
      assert.equal(left, 80_000_000n);
      const failing: readonly (readonly [string, (response: ServerResponse) => void])[] = [
        ['bad-0', (response) => response.destroy()],
        ['bad-1', (response) => response.end('data: {"error":{"message":"No memory"}}\n\n')],
        ['bad-2', (response) => response.end('data: [DONE]\n\n')],
        ['bad-3', (response) => response.end('data: {"b64_json":"bm8="}\n\n')],
        ['bad-4', (response) => response.end('data: no JSON\n\n')],
      ];
      for (const [model, then] of failing) {
        begin(then);
        const [answer, nano] = await cost(() => post(path, { ...streamed, model }));
        const { types, last } = eventsOf(answer.text);
        assert.deepEqual(types, ['image_generation.partial_image', 'error'], answer.text);
        assert.equal(last.error.code, 'INFERENCE_FAILED');
        assert.equal(nano, 0n);
      }
    });
  });

  test('a failed engine is not charged, also if its caller reads slowly', async () => {
    // The server checks only the first bytes of a partial image. The rest exceeds the buffer of a
    // connection, so that a slow reader delays the server.
    const large = Buffer.concat([(await png(64, 64)).subarray(0, 64), Buffer.alloc(12_000_000)]);
    const event = (bytes: Buffer) => {
      const b64_json = bytes.toString('base64');
      return `data: ${JSON.stringify({ type: 'image_generation.partial_image', b64_json })}\n\n`;
    };
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(event(large), () => setTimeout(() => response.write(event(large)), 300));
      setTimeout(() => response.destroy(), 1_200);
    });
    const [, nano] = await cost(async () => {
      const answer = await fetch(`${fixture.farebox.url}${path}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${fixture.farebox.owner.secret}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ ...body, model: 'bad-5', stream: true, partial_images: 2 }),
      });
      await settled();
      assert.match((await answer.text()).slice(-300), /INFERENCE_FAILED/);
    });
    assert.equal(nano, 0n);
  });

  test('`GET /models` shows the limits and prices of an image model', async () => {
    const { body: list } = await call(fixture.farebox, '/models?type=image');
    const painter = list.data.find(({ id }: { id: string }) => id === 'painter').model_spec;
    assert.deepEqual(painter.pricing.generation, { usd: 0.04, diem: 0.04 });
    assert.deepEqual(painter.pricing.resolutions, { '1792x1024': { usd: 0.08, diem: 0.08 } });
    assert.deepEqual(painter.pricing.quality, {
      '1792x1024': { hd: { usd: 0.12, diem: 0.12 } },
      any: { hd: { usd: 0.06, diem: 0.06 } },
    });
    assert.equal(painter.constraints.promptCharacterLimit, 100);
    assert.equal(painter.constraints.defaultResolution, '64x64');
  });
});

describe('POST /images/edits', () => {
  const path = '/images/edits';
  const send = async (
    fields: Readonly<Record<string, string>>,
    files: readonly (readonly [string, Buffer])[],
  ) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    for (const [name, bytes] of files)
      form.append(name, new Blob([new Uint8Array(bytes)]), 'picture');
    const { secret } = fixture.farebox.owner;
    const answer = await fetch(`${fixture.farebox.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}` },
      body: form,
    });
    return { status: answer.status, text: await answer.text() };
  };
  const fields = { model: 'painter', prompt: 'Add a lighthouse' };

  test('images, a mask and a prompt reach the engine, and the result is charged', async () => {
    const [first, second, mask, made] = await Promise.all([
      png(64, 64),
      png(32, 32),
      png(16, 16),
      png(64, 64),
    ]);
    fixture.engine.onJson(path, { data: [{ b64_json: made.toString('base64') }] });
    const files = [
      ['image[]', first],
      ['image[]', second],
      ['mask', mask],
    ] as const;
    const [answer, nano] = await cost(() =>
      send({ ...fields, n: '1', size: '64x64', num_images: '9', user: 'me' }, files),
    );
    assert.equal(answer.status, 200, answer.text);
    assert.equal(JSON.parse(answer.text).data[0].b64_json, made.toString('base64'));
    assert.equal(nano, 40_000_000n);
    const { bytes, headers } = fixture.engine.last();
    const heard = await new Response(new Uint8Array(bytes), {
      headers: { 'content-type': headers['content-type'] ?? '' },
    }).formData();
    const texts = [...heard].filter(([, value]) => typeof value === 'string');
    assert.deepEqual(texts, [
      ['model', 'dall-e'],
      ['prompt', 'Add a lighthouse'],
      ['n', '1'],
      ['size', '64x64'],
      ['response_format', 'b64_json'],
    ]);
    const pictures = heard.getAll('image[]') as File[];
    assert.deepEqual(Buffer.from(await pictures[1]!.arrayBuffer()), second);
    assert.equal(pictures[0]!.type, 'image/png');
    assert.equal(heard.getAll('mask').length, 1);
  });

  test('a markup reaches the engine beside the image', async () => {
    const [image, markup] = await Promise.all([png(64, 64), png(64, 32)]);
    fixture.engine.onJson(path, { data: [{ b64_json: image.toString('base64') }] });
    const files = [
      ['image', image],
      ['markup', markup],
    ] as const;
    const answer = await send(fields, files);
    assert.equal(answer.status, 200, answer.text);
    const { bytes, headers } = fixture.engine.last();
    const heard = await new Response(new Uint8Array(bytes), {
      headers: { 'content-type': headers['content-type'] ?? '' },
    }).formData();
    const names = [...heard].flatMap(([name, value]) => (typeof value === 'string' ? [] : [name]));
    assert.deepEqual(names, ['image', 'markup']);
    const sent = heard.get('markup') as File;
    assert.deepEqual(Buffer.from(await sent.arrayBuffer()), markup);
    const twice = await send(fields, [...files, ['markup', markup]]);
    assert.equal(twice.status, 400);
    assert.match(twice.text, /more than one file \\"markup\\"/);
  });

  test('images can be URLs in JSON', async () => {
    const [first, second, mask, made] = await Promise.all([
      png(64, 64),
      png(32, 32),
      png(16, 16),
      png(64, 64),
    ]);
    fixture.engine.on('/bay.png', (_heard, response) => response.end(second));
    const { bodyMemory } = fixture.farebox.app.server;
    let reservedBytes = 0;
    fixture.engine.on(path, (_heard, response) => {
      ({ reservedBytes } = bodyMemory);
      sendJson(response, { data: [{ b64_json: made.toString('base64') }] });
    });
    const inline = (bytes: Buffer) => {
      return { image_url: `data:image/png;base64,${bytes.toString('base64')}` };
    };
    const json = {
      ...fields,
      n: null,
      size: '64x64',
      images: [inline(first), { image_url: `${fixture.engineUrl}/bay.png` }],
      mask: inline(mask),
      response_format: 'url',
    };
    const [answer, nano] = await cost(() => post(path, json));
    assert.equal(answer.status, 200, answer.text);
    assert.match(answer.body.data[0].url, /^data:image\/png;base64,/);
    assert.equal(nano, 40_000_000n);
    assert.ok(reservedBytes >= second.length);
    await until(() => bodyMemory.reservedBytes === 0);
    const { bytes, headers } = fixture.engine.last();
    const heard = await new Response(new Uint8Array(bytes), {
      headers: { 'content-type': headers['content-type'] ?? '' },
    }).formData();
    const names = [...heard.keys()];
    assert.deepEqual(names, [
      'model',
      'prompt',
      'size',
      'response_format',
      'image[]',
      'image[]',
      'mask',
    ]);
    const pictures = heard.getAll('image[]') as File[];
    assert.deepEqual(Buffer.from(await pictures[1]!.arrayBuffer()), second);

    const asked = fixture.engine.heard.length;
    const bad: readonly (readonly [object, RegExp])[] = [
      [{ images: [] }, /images/],
      [{ images: [{ file_id: 'file-1' }] }, /uploaded files can only be used in batches/],
      [{ images: [{ image_url: 'ftp://a/b.png' }] }, /Must be an http/],
      [{ images: [{ image_url: 'data:image/png;base64,aGk=' }] }, /not a PNG, JPEG or WebP/],
      [{ images: [inline(first)], mask: inline(await sharp(mask).jpeg().toBuffer()) }, /not a PNG/],
    ];
    for (const [more, pattern] of bad) await refused(path, { ...fields, ...more }, 400, pattern);
    assert.equal(fixture.engine.heard.length, asked);
    await refused(
      path,
      { ...json, images: [{ image_url: `${fixture.engineUrl}/none` }] },
      400,
      /404/,
    );
  });

  test('an invalid edit is rejected before the engine is called', async () => {
    const picture = await png(64, 64);
    const jpeg = await sharp(picture).jpeg().toBuffer();
    const asked = fixture.engine.heard.length;
    const bad: readonly (readonly [
      object,
      readonly (readonly [string, Buffer])[],
      number,
      RegExp,
    ])[] = [
      [{}, [], 400, /no file field \\?"image\\?"/],
      [{}, [['image', Buffer.from('<svg/>')]], 400, /not a PNG, JPEG or WebP image/],
      [
        {},
        [
          ['image', picture],
          ['mask', jpeg],
        ],
        400,
        /mask: The file is not a PNG/,
      ],
      [
        {},
        [
          ['image', picture],
          ['mask', picture],
          ['mask', picture],
        ],
        400,
        /more than one file/,
      ],
      [
        {},
        Array.from({ length: 18 }, () => ['image[]', picture] as const),
        400,
        /more than 17 files/,
      ],
      [{ prompt: '' }, [['image', picture]], 400, /prompt/],
      [{ n: 'two' }, [['image', picture]], 400, /n: /],
      [{ model: 'sketcher' }, [['image', picture]], 400, /does not edit images/],
      [{ response_format: 'link' }, [['image', picture]], 400, /response_format/],
    ];
    for (const [more, files, status, pattern] of bad) {
      const [answer, nano] = await cost(() => send({ ...fields, ...more }, files));
      assert.equal(answer.status, status, answer.text);
      assert.match(answer.text, pattern);
      assert.equal(nano, 0n);
    }
    assert.equal(fixture.engine.heard.length, asked);
  });

  test('openai and the AI SDK work unmodified', async () => {
    const made = (await png(64, 64)).toString('base64');
    fixture.engine.onJson(path, { data: [{ b64_json: made }] });
    const image = await toFile(await png(32, 32), 'a.png', { type: 'image/png' });
    const whole = await openai.images.edit({ ...fields, image: [image, image] });
    assert.equal(whole.data?.[0]?.b64_json, made);
    const stream = await openai.images.edit({ ...fields, image, stream: true });
    for await (const event of stream) assert.equal(event.type, 'image_edit.completed');
    const { url: baseURL, owner } = fixture.farebox;
    const provider = createOpenAI({ baseURL, apiKey: owner.secret });
    const edited = await generateImage({
      model: provider.image('painter'),
      prompt: { text: 'Add a lighthouse', images: [await png(32, 32)] },
    });
    assert.equal(edited.image.base64, made);
  });
});

test('the fetched image of a background removal counts against the memory for bodies', async () => {
  const photo = await png(320, 320);
  fixture.engine.on('/photo.png', (_heard, response) => response.end(photo));
  const { bodyMemory } = fixture.farebox.app.server;
  let reservedBytes = 0;
  fixture.engine.on('/api/remove', (_heard, response) => {
    ({ reservedBytes } = bodyMemory);
    response.writeHead(422).end();
  });
  const image_url = `${fixture.engineUrl}/photo.png`;
  await post('/image/background-remove', { model: 'cutter', image_url });
  assert.equal(reservedBytes, photo.length);
  await until(() => bodyMemory.reservedBytes === 0);
});

describe('POST /audio/speech', () => {
  const path = '/audio/speech';
  const body = { model: 'speaker', input: 'Good morning 👋', voice: 'nova' };
  const sounds = mkdtempSync(join(tmpdir(), 'farebox-speech-'));
  let mp3: Buffer;
  before(async () => {
    mp3 = await makeSound(sounds, 'ab ba', 'mp3');
  });
  after(() => rmSync(sounds, { recursive: true, force: true }));
  const speakWith = (bytes: Buffer, type = 'audio/mpeg', pieces = 3): void =>
    fixture.engine.on(path, async (_heard, response) => {
      response.writeHead(200, { 'content-type': type });
      const each = Math.ceil(bytes.length / pieces);
      for (let at = 0; at + each < bytes.length; at += each) {
        response.write(bytes.subarray(at, at + each));
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      response.end(bytes.subarray(each * (pieces - 1)));
    });
  const ask = (more: object, headers = {}, signal?: AbortSignal) =>
    fetch(`${fixture.farebox.url}${path}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${fixture.farebox.owner.secret}`,
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify({ ...body, ...more }),
      ...(signal === undefined ? {} : { signal }),
    });

  test('speech is charged by the characters of its text', async () => {
    speakWith(mp3);
    const [answer, nano] = await cost(async () => {
      const spoken = await ask({ user: 'me', fallbacks: ['x'] });
      assert.equal(spoken.status, 200);
      assert.deepEqual(Buffer.from(await spoken.arrayBuffer()), mp3);
      return spoken;
    });
    assert.deepEqual(fixture.engine.last().json, {
      model: 'tts-1',
      input: 'Good morning 👋',
      voice: 'nova',
      response_format: 'mp3',
    });
    assert.equal(answer.headers.get('content-type'), 'audio/mpeg');
    assert.equal(answer.headers.get('x-svc-model-router'), 'studio');
    // Fourteen characters at 15 USD a million.
    assert.equal(nano, 210_000n);
  });

  test('sound is sent while the engine computes the next one', async () => {
    const heard = Promise.withResolvers<void>();
    fixture.engine.on(path, async (_heard, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg' });
      response.write(mp3.subarray(0, 4_000));
      await heard.promise;
      response.end(mp3.subarray(4_000));
    });
    const chunks: Uint8Array[] = [];
    for await (const chunk of (await ask({})).body ?? []) {
      chunks.push(chunk);
      heard.resolve();
    }
    assert.deepEqual(Buffer.concat(chunks), mp3);
  });

  test('a result in another format than the requested one is not charged', async () => {
    const wav = toneWav('ab');
    // A WAV file that is streamed has no length in its head.
    for (const at of [4, 40]) wav.writeUInt32LE(0xffff_ffff, at);
    speakWith(wav, 'audio/wav', 1);
    const spoken = await ask({ response_format: 'wav' });
    assert.equal(spoken.headers.get('content-type'), 'audio/wav');
    assert.deepEqual(Buffer.from(await spoken.arrayBuffer()), wav);
    speakWith(Buffer.alloc(48_000, 1), 'audio/pcm', 7);
    assert.equal((await (await ask({ response_format: 'pcm' })).arrayBuffer()).byteLength, 48_000);
    const wrong: readonly (readonly [Buffer, object])[] = [
      [wav, {}],
      [mp3, { response_format: 'wav' }],
      [Buffer.alloc(0), {}],
      [wav.subarray(0, 44), { response_format: 'wav' }],
      [Buffer.alloc(48_001, 1), { response_format: 'pcm' }],
    ];
    for (const [bytes, more] of wrong) {
      speakWith(bytes, 'application/octet-stream', 1);
      await refused(path, { ...body, ...more }, 500, /INFERENCE_FAILED/);
    }
  });

  test('audio that is truncated, broken, silent, or too short or too long for its text is not charged', async () => {
    const head = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\0\0'), Buffer.alloc(9_000, 7)]);
    const long = { input: 'a'.repeat(100) };
    const wav = { response_format: 'wav' };
    const bad: readonly (readonly [Buffer, object])[] = [
      [mp3.subarray(0, 70), long],
      [mp3.subarray(0, mp3.length / 2), {}],
      [mp3.subarray(0, -5), {}],
      [head, {}],
      [toneWav('a'), { ...wav, ...long }],
      [toneWav('ab').subarray(0, 20_000), wav],
      [Buffer.alloc(40_000, 1), { response_format: 'pcm', ...long }],
      [Buffer.alloc(48_000), { response_format: 'pcm' }],
      [toneWav('  '), wav],
    ];
    for (const [bytes, more] of bad) {
      speakWith(bytes, 'application/octet-stream', 1);
      await refused(path, { ...body, ...more }, 500, /INFERENCE_FAILED/);
    }
    // The connection breaks after the first bytes, and an event reports it.
    speakWith(mp3.subarray(0, mp3.length / 2));
    const [, broken] = await cost(async () => {
      await assert.rejects(ask({}).then((spoken) => spoken.arrayBuffer()));
      const events = await (await ask({ stream_format: 'sse' })).text();
      assert.match(events, /"type":"error","error":\{[^}]*INFERENCE_FAILED/);
      // Half a minute for two words.
      speakWith(Buffer.alloc(48_000 * 30, 1), 'audio/pcm');
      await assert.rejects(ask({ response_format: 'pcm' }).then((spoken) => spoken.arrayBuffer()));
      await settled();
    });
    assert.equal(broken, 0n);
  });

  test('an error with the text of one caller omits no parameter of others', async () => {
    fixture.engine.on(path, ({ json }, response) => {
      if (!json.instructions?.startsWith('unsupported')) return response.end(mp3);
      sendJson(response, { error: { message: `Bad instructions: ${json.instructions}` } }, 400);
    });
    const { secret } = await fixture.farebox.account('1');
    const foreign = { ...body, instructions: 'unsupported instructions' };
    assert.equal((await post(path, foreign, { secret })).status, 200);
    assert.equal(fixture.engine.last().json.instructions, undefined);
    await ask({ instructions: 'calmly' });
    assert.equal(fixture.engine.last().json.instructions, 'calmly');
  });

  test('a parameter that the engine does not know is omitted, and stays omitted', async () => {
    fixture.engine.on(path, ({ json }, response) => {
      if (json.instructions === undefined) return response.end(mp3);
      sendJson(response, { error: { message: "Unknown parameter: 'instructions'." } }, 400);
    });
    const calls = fixture.engine.heard.length;
    for (let turn = 0; turn < 2; turn += 1) {
      const spoken = await ask({ instructions: 'Whisper' });
      assert.deepEqual(Buffer.from(await spoken.arrayBuffer()), mp3);
    }
    assert.equal(fixture.engine.heard.length - calls, 3);
    // An engine may list the parameters that it knows.
    fixture.engine.on(path, ({ json }, response) => {
      if (json.style === undefined) return response.end(mp3);
      const message = "Unknown parameter: 'style'. Known: input, emotion, voice";
      sendJson(response, { error: { message } }, 400);
    });
    for (let turn = 0; turn < 2; turn += 1) {
      assert.equal((await ask({ emotion: 'joy', style: 'loud' })).status, 200);
      assert.equal(fixture.engine.last().json.emotion, 'joy');
    }
    fixture.engine.onJson(path, { error: { message: "Unknown parameter: 'voice'." } }, 400);
    await refused(path, body, 400, /voice/);
  });

  test('an unsupported voice or format gets 400 with the supported ones', async () => {
    const bad: readonly (readonly [object, RegExp])[] = [
      [{ input: '' }, /input/],
      [{ input: 'a'.repeat(101) }, /at most 100 characters, got 101/],
      [{ voice: 'echo' }, /has the voices alloy, nova, not echo/],
      [{ response_format: 'flac' }, /writes mp3, wav, pcm, not flac/],
      [{ response_format: 'midi' }, /response_format/],
      [{ speed: 5 }, /speed/],
      [{ instructions: 'a'.repeat(4_097) }, /instructions/],
      [{ stream_format: 'ws' }, /stream_format/],
    ];
    for (const [more, pattern] of bad) await refused(path, { ...body, ...more }, 400, pattern);
  });

  test('events contain the audio, then the cost', async () => {
    speakWith(mp3);
    const [text, nano] = await cost(async () => (await ask({ stream_format: 'sse' })).text());
    const events = text
      .trim()
      .split('\n\n')
      .map((line) => JSON.parse(line.replace(/^data: /, '')));
    const sound = events.flatMap(({ audio }) =>
      audio === undefined ? [] : [Buffer.from(audio, 'base64')],
    );
    assert.deepEqual(Buffer.concat(sound), mp3);
    assert.equal(events.at(-1).type, 'speech.audio.done');
    assert.deepEqual(events.at(-1).cost, { usd: 0.00021, diem: 0 });
    assert.equal(nano, 210_000n);
  });

  test('a retry with a key gets the same audio for free', async () => {
    speakWith(mp3);
    const headers = { 'idempotency-key': 'said-once' };
    const first = Buffer.from(await (await ask({}, headers)).arrayBuffer());
    const [again, nano] = await cost(async () => {
      const replay = await ask({}, headers);
      assert.equal(replay.headers.get('idempotent-replayed'), 'true');
      assert.equal(replay.headers.get('content-type'), 'audio/mpeg');
      return Buffer.from(await replay.arrayBuffer());
    });
    assert.deepEqual(again, first);
    assert.equal(nano, 0n);
  });

  test('a disconnect is charged; a failed engine is not', async () => {
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg' });
      response.write(mp3.subarray(0, 1_000));
      setTimeout(() => response.write(mp3.subarray(1_000, 2_000)), 10);
    });
    const [, left] = await cost(async () => {
      const leave = new AbortController();
      const spoken = await ask({}, {}, leave.signal);
      await spoken.body?.getReader().read();
      leave.abort();
      await settled();
    });
    assert.equal(left, 210_000n);
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'audio/mpeg' });
      response.write(mp3.subarray(0, 1_000));
      setTimeout(() => response.write(mp3.subarray(1_000, 2_000)), 10);
      setTimeout(() => response.destroy(), 30);
    });
    const [, broken] = await cost(async () => {
      await assert.rejects(ask({ model: 'any-voice' }).then((spoken) => spoken.arrayBuffer()));
      await settled();
    });
    assert.equal(broken, 0n);
  });

  test('openai and the AI SDK work unmodified', async () => {
    speakWith(mp3);
    const spoken = await openai.audio.speech.create({
      model: 'speaker',
      voice: 'alloy',
      input: 'Hi',
    });
    assert.deepEqual(Buffer.from(await spoken.arrayBuffer()), mp3);
    const { url: baseURL, owner } = fixture.farebox;
    const provider = createOpenAI({ baseURL, apiKey: owner.secret });
    const { audio } = await generateSpeech({
      model: provider.speech('speaker'),
      text: 'Hi',
      voice: 'nova',
    });
    assert.equal(audio.mediaType, 'audio/mpeg');
    assert.equal(fixture.engine.last().json.voice, 'nova');
    const voice = { id: 'alloy' };
    const named = await openai.audio.speech.create({ model: 'speaker', voice, input: 'Hi' });
    // The charge comes before the last bytes.
    await named.arrayBuffer();
    assert.deepEqual(fixture.engine.last().json.voice, voice);
    const silent = await ask({ model: 'speaker', voice: undefined });
    await silent.arrayBuffer();
    assert.equal(fixture.engine.last().json.voice, 'alloy');
  });

  test('`GET /models` shows the voices and the price', async () => {
    const { body: list } = await call(fixture.farebox, '/models?type=tts');
    const [speaker] = list.data;
    assert.deepEqual(speaker.model_spec.pricing, { input: { usd: 15, diem: 15 } });
    assert.deepEqual(speaker.model_spec.voices, ['alloy', 'nova']);
    assert.equal(speaker.model_spec.default_voice, 'alloy');
    assert.equal(speaker.model_spec.default_format, 'mp3');
  });
});

describe('POST /audio/transcriptions as a stream', () => {
  const path = '/audio/transcriptions';
  const wav = toneWav('ab');
  const delta = (text: string) => ({ type: 'transcript.text.delta', delta: text });
  const done = (text: string) => ({ type: 'transcript.text.done', text });
  const chunk = (content: string) => ({ choices: [{ index: 0, delta: { content } }] });
  /** Events of the unmodified client; an exception is the last one. */
  const heard = async (fields: object = {}) => {
    const events: OpenAI.Audio.TranscriptionStreamEvent[] = [];
    const asked = { file: await toFile(wav, 'a.wav'), model: 'ears', stream: true, ...fields };
    const stream = await openai.audio.transcriptions.create({ ...asked, stream: true });
    let failure: unknown;
    try {
      for await (const event of stream) events.push(event);
    } catch (error) {
      failure = error;
    }
    const deltas = events.flatMap((one) => ('delta' in one ? [one.delta] : []));
    return { deltas, last: events.at(-1), failure };
  };
  const refuse = (response: ServerResponse) =>
    sendJson(response, { error: { message: 'Unknown field: stream' } }, 400);
  const isAskedToStream = (bytes: Buffer) => bytes.includes('name="stream"\r\n\r\ntrue');

  test('chunks of an engine are forwarded immediately, and charged once', async () => {
    for (const events of [
      [delta(' Good'), delta(' morning'), delta('. '), done(' Good morning. ')],
      [chunk(' Good'), chunk(' morning'), chunk('. '), { choices: [] }],
    ]) {
      fixture.engine.on(path, (_heard, response) => sendEvents(response, events));
      const [{ deltas, last, failure }, nano] = await cost(() => heard());
      assert.equal(failure, undefined);
      assert.deepEqual(deltas, ['Good', ' morning', '.']);
      assert.deepEqual(last, {
        ...done('Good morning.'),
        usage: { type: 'duration', seconds: 1 },
        cost: { usd: 0.001, diem: 0 },
      });
      assert.equal(nano, 1_000_000n);
      assert.ok(isAskedToStream(fixture.engine.last().bytes));
    }
  });

  test('a connection that breaks after the end does not affect the transcript', async () => {
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const events = [delta('Good'), done('Good')].map((one) => `data: ${JSON.stringify(one)}\n\n`);
      response.write(events.join(''), () => response.destroy());
    });
    const [{ deltas, last, failure }, nano] = await cost(() => heard());
    assert.equal(failure, undefined);
    assert.deepEqual(deltas, ['Good']);
    assert.equal(last?.type, 'transcript.text.done');
    assert.equal(nano, 1_000_000n);
  });

  test('an engine without streaming returns its text as one chunk', async () => {
    const whole = { text: ' Good morning. ', language: 'english' };
    fixture.engine.onJson(path, whole);
    assert.deepEqual((await heard()).deltas, ['Good morning.']);
    fixture.engine.on(path, ({ bytes }, response) =>
      isAskedToStream(bytes) ? refuse(response) : sendJson(response, whole),
    );
    const asked = { model: 'slow-ears', response_format: 'text' };
    const [{ deltas, last }, nano] = await cost(() => heard(asked));
    assert.deepEqual(deltas, ['Good morning.']);
    assert.equal(last?.type, 'transcript.text.done');
    assert.equal(nano, 1_000_000n);
    fixture.engine.on(path, (_heard, response) => sendEvents(response, [done('All at once')]));
    assert.deepEqual((await heard()).deltas, ['All at once']);
  });

  test('a transcript of single bytes takes little more memory than its bytes', async () => {
    let grownBytes = Infinity;
    fixture.engine.on(path, async (_heard, response) => {
      grownBytes = await sendSpaces(response, JSON.stringify({ text: 'Good morning.' }));
    });
    assert.deepEqual((await heard()).deltas, ['Good morning.']);
    assert.ok(grownBytes < MAX_GROWN_BYTES, String(grownBytes));
  });

  test('an invalid transcript is not charged', async () => {
    const long = 'la '.repeat(2_000);
    const broken: [string, readonly unknown[]][] = [
      ['an end that does not come', [delta('Good')]],
      ['an error of the engine', [delta('Good'), { error: { message: 'out of memory' } }]],
      ['a model without end', [delta('Good'), delta(long), done('')]],
    ];
    for (const [name, events] of broken) {
      fixture.engine.on(path, (_heard, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        for (const event of events) response.write(`data: ${JSON.stringify(event)}\n\n`);
        response.end();
      });
      const [{ deltas, failure }, nano] = await cost(() => heard({ model: 'deaf' }));
      assert.deepEqual(deltas, ['Good'], name);
      assert.ok(failure instanceof OpenAI.APIError, name);
      assert.equal(failure.code, 'ASR_UPSTREAM_FAILED', name);
      assert.equal(nano, 0n, name);
    }
    fixture.engine.onJson(path, { error: { message: 'broken' } }, 500);
    const [status, nano] = await cost(async () => {
      const refused = await heard({ model: 'deaf' }).catch((error: unknown) => error);
      return refused instanceof OpenAI.APIError ? refused.status : refused;
    });
    assert.deepEqual([status, nano], [502, 0n]);
  });

  test('a disconnect after the first text is charged, and a retry with its key is free', async () => {
    fixture.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`data: ${JSON.stringify(delta('Good'))}\n\n`);
    });
    const [, left] = await cost(async () => {
      const file = await toFile(wav, 'a.wav');
      const stream = await openai.audio.transcriptions.create({
        file,
        model: 'ears',
        stream: true,
      });
      for await (const event of stream) {
        assert.equal(event.type, 'transcript.text.delta');
        break;
      }
      await settled();
    });
    assert.equal(left, 1_000_000n);
    const events = [delta('Good morning.'), done('Good morning.')];
    fixture.engine.on(path, (_heard, response) => sendEvents(response, events));
    const [[first, again], nano] = await cost(async () => {
      const form = new FormData();
      form.set('file', new Blob([new Uint8Array(wav)]), 'a.wav');
      form.set('model', 'ears');
      form.set('stream', 'true');
      const url = `${fixture.farebox.url}${path}`;
      const headers = {
        authorization: `Bearer ${fixture.farebox.owner.secret}`,
        'idempotency-key': 'heard-once',
      };
      const send = async () => {
        const answer = await fetch(url, { method: 'POST', headers, body: form });
        assert.match(answer.headers.get('content-type') ?? '', /^text\/event-stream/);
        assert.equal(answer.headers.get('x-svc-model-router'), 'studio');
        return answer.text();
      };
      return [await send(), await send()] as const;
    });
    assert.equal(again, first);
    assert.equal(nano, 1_000_000n);
  });

  test('formats with timestamps cannot be streamed', async () => {
    await assert.rejects(heard({ response_format: 'srt' }), /response_format=json/);
  });
});

describe('POST /audio/translations', () => {
  const path = '/audio/translations';
  const wav = toneWav('ab');
  const segments = [{ id: 0, start: 0, end: 1, text: ' Good morning.' }];

  test('speech is translated to English, and charged by its seconds', async () => {
    fixture.engine.onJson(path, { text: ' Good morning. ', language: 'german', segments });
    const file = await toFile(wav, 'guten-morgen.wav');
    const [answer, nano] = await cost(() =>
      openai.audio.translations.create({ file, model: 'ears', prompt: 'Greetings' }),
    );
    assert.equal(answer.text, 'Good morning.');
    assert.equal(nano, 1_000_000n);
    const heard = fixture.engine.last();
    assert.equal(heard.path, '/v1/audio/translations');
    assert.match(heard.bytes.toString('latin1'), /name="prompt"\r\n\r\nGreetings/);
    assert.doesNotMatch(heard.bytes.toString('latin1'), /name="language"/);
    const written = { file, model: 'ears', response_format: 'verbose_json' } as const;
    // The client gives every format the type of the short one.
    const verbose: Partial<OpenAI.Audio.TranslationVerbose> =
      await openai.audio.translations.create(written);
    assert.equal(verbose.language, 'en');
    assert.equal(verbose.duration, 1);
    assert.equal(verbose.segments?.[0]?.text, ' Good morning.');
    const srt: unknown = await openai.audio.translations.create({
      file,
      model: 'ears',
      response_format: 'srt',
    });
    assert.ok(typeof srt === 'string');
    assert.match(srt, /^1\n00:00:00,000 --> 00:00:01,000\nGood morning\.\n/);
  });

  test('an engine without translation causes a 400, and keeps transcribing', async () => {
    fixture.engine.on(path, (_heard, response) => response.writeHead(404).end('{}'));
    const file = await toFile(wav, 'a.wav');
    const refused = openai.audio.translations.create({ file, model: 'ears' });
    await assert.rejects(refused, (error: { status?: number; message: string }) => {
      return error.status === 400 && /supports this kind of work/.test(error.message);
    });
    fixture.engine.onJson('/audio/transcriptions', { text: 'Guten Morgen.' });
    const { text } = await openai.audio.transcriptions.create({ file, model: 'ears' });
    assert.equal(text, 'Guten Morgen.');
  });
});

describe('POST /moderations', () => {
  const path = '/moderations';
  const result = (flagged: boolean) => ({
    flagged,
    categories: { violence: flagged, 'self-harm': false },
    category_scores: { violence: flagged ? 0.91 : 0.01, 'self-harm': 1e-9 },
  });
  const answered = (...flags: readonly boolean[]) => ({
    id: 'modr-1',
    model: 'omni',
    results: flags.map(result),
  });

  test('each text has a result, in order, and its tokens are charged', async () => {
    fixture.engine.onJson(path, answered(false, true));
    const [answer, nano] = await cost(() =>
      post(path, { model: 'guard', input: ['Good morning', 'I will hit you'] }),
    );
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(fixture.engine.last().json, {
      model: 'omni',
      input: ['Good morning', 'I will hit you'],
    });
    assert.match(answer.body.id, /^modr-[0-9a-f]{32}$/);
    assert.equal(answer.body.model, 'guard');
    assert.deepEqual(answer.body.results, [result(false), result(true)]);
    // 26 bytes are about seven tokens.
    assert.equal(nano, 7_000n);
    assert.equal((await receipt(answer))?.kind, 'moderation');
  });

  test('the usage of the engine is charged up to a bound; a free model is free', async () => {
    const counted = { ...answered(false), usage: { prompt_tokens: 40, total_tokens: 40 } };
    fixture.engine.onJson(path, counted);
    const [, nano] = await cost(() => post(path, { model: 'guard', input: 'Hi' }));
    assert.equal(nano, 40_000n);
    for (const tokens of [1e9, 0]) {
      const usage = { prompt_tokens: tokens, total_tokens: tokens };
      fixture.engine.onJson(path, { ...counted, usage });
      const [, fair] = await cost(() => post(path, { model: 'guard', input: 'Hi' }));
      assert.equal(fair, 1_000n);
    }
    const broke = await fixture.farebox.account('0.000001');
    const free = await post(path, { model: 'free-guard', input: 'Hi' }, { secret: broke.secret });
    assert.equal(free.status, 200, free.text);
    assert.deepEqual(free.body.cost, { usd: 0, diem: 0 });
  });

  test('the parts of a message have one result; an image can be a data URL', async () => {
    fixture.engine.onJson(path, answered(false));
    const url = `data:image/png;base64,${(await png(8, 8)).toString('base64')}`;
    const input = [
      { type: 'text', text: 'What is this?' },
      { type: 'image_url', image_url: { url } },
    ];
    const answer = await post(path, { model: 'guard', input });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.body.results.length, 1);
    const linked = [{ type: 'image_url', image_url: { url: 'http://127.0.0.1/a.png' } }];
    await refused(path, { model: 'guard', input: linked }, 400, /Must be a data URL/);
    const bomb = await png(8, 8);
    bomb.writeUInt32BE(60_000, 16);
    bomb.writeUInt32BE(60_000, 20);
    const huge = { url: `data:image/png;base64,${bomb.toString('base64')}` };
    const bombs = [{ type: 'image_url', image_url: huge }];
    await refused(path, { model: 'guard', input: bombs }, 422, /60000 x 60000 pixels/);
  });

  test('invalid input gets 400, and an invalid result is not charged', async () => {
    for (const input of [
      undefined,
      [],
      5,
      [1],
      [{ type: 'audio' }],
      ['a', { type: 'text', text: 'b' }],
    ]) {
      await refused(path, { model: 'guard', input }, 400, /input/);
    }
    const wrong = [
      answered(),
      answered(false, false),
      { results: [{ ...result(false), flagged: 'no' }] },
      { results: [{ ...result(false), category_scores: { violence: 7 } }] },
      { results: [{ flagged: false }] },
    ];
    for (const [place, body] of wrong.entries()) {
      fixture.engine.onJson(path, body);
      await refused(path, { model: `guard-${place}`, input: 'Hi' }, 500, /INFERENCE_FAILED/);
    }
  });

  test('openai works unmodified', async () => {
    fixture.engine.onJson(path, answered(true));
    const { results } = await openai.moderations.create({
      model: 'guard',
      input: 'I will hit you',
    });
    assert.equal(results[0]?.flagged, true);
    assert.equal(results[0]?.category_scores.violence, 0.91);
  });
});

describe('POST /rerank', () => {
  const path = '/rerank';
  const documents = ['Neap tides are weak.', 'Spring tides come with the new moon.', 'Cats purr.'];
  const body = { model: 'sorter', query: 'When are spring tides?', documents };
  const results = [
    { index: 2, relevance_score: -4.5 },
    { index: 1, relevance_score: 0.98, document: { text: 'not this' } },
    { index: 0, relevance_score: 0.3 },
  ];

  test('documents are ranked, in the format of Cohere and of Jina', async () => {
    fixture.engine.onJson(path, { results });
    const [answer, nano] = await cost(() =>
      post(path, { ...body, top_n: 2, return_documents: true, fallbacks: ['x'] }),
    );
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(fixture.engine.last().json, {
      model: 'cross-encoder',
      query: body.query,
      documents,
      top_n: 2,
      return_documents: false,
    });
    const { id, ...rest } = answer.body;
    assert.match(id, /^[0-9a-f]{32}$/);
    assert.deepEqual(rest, {
      object: 'list',
      model: 'sorter',
      results: [
        { index: 1, relevance_score: 0.98, document: { text: documents[1] } },
        { index: 0, relevance_score: 0.3, document: { text: documents[0] } },
      ],
      usage: { prompt_tokens: 33, completion_tokens: 0, total_tokens: 33 },
      meta: {
        api_version: { version: '2' },
        billed_units: { search_units: 1 },
        tokens: { input_tokens: 33, output_tokens: 0 },
      },
      cost: { usd: 0.002, diem: 0 },
    });
    assert.equal(nano, 2_000_000n);
  });

  test('a search is up to a hundred documents; tokens are what the engine counts', async () => {
    const many = Array.from({ length: 101 }, (_, place) => `Document ${place}`);
    fixture.engine.onJson(path, {
      results: many.map((_, index) => ({ index, relevance_score: index })),
    });
    const [answer, nano] = await cost(() => post(path, { ...body, documents: many }));
    assert.equal(answer.body.results[0].index, 100);
    assert.equal(nano, 4_000_000n);
    fixture.engine.onJson(path, { results, usage: { total_tokens: 50 } });
    const [, tokens] = await cost(() => post(path, { ...body, model: 'token-sorter' }));
    assert.equal(tokens, 1_000n);
    fixture.engine.onJson(path, { results, usage: { total_tokens: 0 } });
    const [, counted] = await cost(() => post(path, { ...body, model: 'token-sorter' }));
    assert.equal(counted, 660n);
  });

  test('objects are ranked by their text, or by the given fields', async () => {
    fixture.engine.onJson(path, { results: results.slice(1) });
    const objects = [{ text: 'a', id: 7 }, { text: 'b' }];
    const answer = await post(path, { ...body, documents: objects, return_documents: true });
    assert.deepEqual(fixture.engine.last().json.documents, ['a', 'b']);
    assert.deepEqual(answer.body.results[1].document, { text: 'a', id: 7 });
    const fields = {
      documents: [{ title: 'T', n: 1 }, { title: 'U' }],
      rank_fields: ['title', 'n'],
    };
    await post(path, { ...body, ...fields });
    assert.deepEqual(fixture.engine.last().json.documents, ['title: T\nn: 1', 'title: U']);
  });

  test('`texts` of the caller are not ranked in place of the documents', async () => {
    fixture.engine.onJson(path, { results });
    await post(path, { ...body, texts: ['a much longer text'] });
    assert.equal(fixture.engine.last().json.texts, undefined);
  });

  test('an engine that accepts `texts` is called with it until it rejects that', async () => {
    fixture.engine.on(path, (heard, response) => {
      if (heard.json.texts === undefined) {
        return sendJson(response, { error: 'missing field `texts` at line 1' }, 422);
      }
      sendJson(response, [
        { index: 0, score: 0.1 },
        { index: 1, score: 0.9 },
        { index: 2, score: 0.2 },
      ]);
    });
    const asked = fixture.engine.heard.length;
    for (let turn = 0; turn < 2; turn += 1) {
      const answer = await post(path, { ...body, model: 'tei', top_n: 1 });
      assert.deepEqual(answer.body.results, [{ index: 1, relevance_score: 0.9 }]);
    }
    assert.equal(fixture.engine.heard.length - asked, 3);
    // Another server has replaced the engine.
    fixture.engine.on(path, (heard, response) => {
      if (heard.json.documents === undefined) {
        return sendJson(
          response,
          { detail: [{ loc: ['body', 'documents'], type: 'missing' }] },
          422,
        );
      }
      sendJson(response, { results: [{ index: 2, relevance_score: 0.8 }] });
    });
    for (let turn = 0; turn < 2; turn += 1) {
      const answer = await post(path, { ...body, model: 'tei', top_n: 1 });
      assert.deepEqual(answer.body.results, [{ index: 2, relevance_score: 0.8 }]);
    }
    assert.equal(fixture.engine.heard.length - asked, 6);
  });

  test('invalid input gets 400, and an invalid result is not charged', async () => {
    const bad: readonly (readonly [object, RegExp])[] = [
      [{ query: '' }, /query/],
      [{ documents: [] }, /documents/],
      [{ documents: ['a', 5] }, /documents/],
      [
        { documents: [{ title: 'a' }] },
        /documents\.0: Must be a string, or an object with a string/,
      ],
      [{ documents: [{ a: 1 }], rank_fields: ['b'] }, /Has none of the fields b/],
      [{ documents: Array.from({ length: 301 }, () => 'a') }, /at most 300 documents, got 301/],
      [{ top_n: 0 }, /top_n/],
    ];
    for (const [more, pattern] of bad) await refused(path, { ...body, ...more }, 400, pattern);
    const wrong = [
      { results: results.slice(0, 2) },
      { results: [...results.slice(0, 2), { index: 3, relevance_score: 1 }] },
      { results: [...results.slice(0, 2), { index: 1, relevance_score: 1 }] },
      { results: [...results.slice(0, 2), { index: 0, relevance_score: null }] },
      { results: [...results.slice(0, 2), { index: 0.5, relevance_score: 1 }] },
      { data: 'none' },
    ];
    for (const [place, answer] of wrong.entries()) {
      fixture.engine.onJson(path, answer);
      await refused(path, { ...body, model: `sorter-${place}` }, 500, /INFERENCE_FAILED/);
    }
  });

  test("both versions of Cohere's client and the AI SDK work unmodified", async () => {
    fixture.engine.onJson(path, { results });
    const { url, owner } = fixture.farebox;
    const first = new CohereClient({
      token: owner.secret,
      environment: url.replace(/\/v1$/, ''),
    });
    const whole = await first.rerank({ ...body, model: 'rerank-v3.5', returnDocuments: true });
    assert.deepEqual(whole.results[0]?.document, { text: documents[1] });
    assert.equal(whole.meta?.billedUnits?.searchUnits, 1);
    const second = new CohereClientV2({ token: owner.secret, environment: url });
    const { results: best } = await second.rerank({ ...body, topN: 1 });
    assert.deepEqual(best, [{ index: 1, relevanceScore: 0.98 }]);
    const cohere = createCohere({ baseURL: url, apiKey: owner.secret });
    // Together's form is that of Jina.
    const together = createTogetherAI({ baseURL: url, apiKey: owner.secret });
    for (const model of [cohere.reranking('sorter'), together.reranking('sorter')]) {
      const { ranking } = await rerank({ model, query: body.query, documents, topN: 2 });
      assert.deepEqual(
        ranking.map(({ originalIndex }) => originalIndex),
        [1, 0],
        model.provider,
      );
    }
    const versioned = await post('/v1/rerank', body);
    assert.equal(versioned.body.results[0].index, 1);
  });
});

function png(width: number, height: number): Promise<Buffer> {
  const background = { r: 20, g: 60, b: 200 };
  return sharp({ create: { width, height, channels: 3, background } })
    .png()
    .toBuffer();
}

/** Until no hold of the owner is open. */
async function settled(): Promise<void> {
  const { ledger } = fixture.farebox.app.stores;
  await until(
    async () => (await ledger.funds(fixture.farebox.owner.accountId)).heldUsdNano === 0n,
    'the end of all holds',
  );
}
