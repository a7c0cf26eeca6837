/**
 * Every kind of model that is no chat, over an engine that a test scripts: what the engine is asked,
 * what a caller and an unmodified client get, and what is charged, to the nano-dollar.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { OpenAI as LangChainOpenAI } from '@langchain/openai';
import { generateText } from 'ai';
import OpenAI from 'openai';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { type CallOptions, type Called, call } from '../app/call.ts';
import { type ModelRig, sendEvents, sendJson, startModelRig } from './model-rig.ts';

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
`;

let rig: ModelRig;
let openai: OpenAI;

before(async () => {
  rig = await startModelRig(MODELS);
  const { url, owner } = rig.farebox;
  openai = new OpenAI({ baseURL: url, apiKey: owner.secret, maxRetries: 0 });
});
after(() => rig.stop());

function post(path: string, body: unknown, options: CallOptions = {}): Promise<Called> {
  return call(rig.farebox, path, { secret: rig.farebox.owner.secret, body, ...options });
}

/** What the owner has paid for what happens within, in nano-USD. */
async function cost<T>(work: () => Promise<T>): Promise<readonly [T, bigint]> {
  const { ledger } = rig.farebox.app.stores;
  const { accountId } = rig.farebox.owner;
  const before = (await ledger.balances(accountId)).usdNano;
  const done = await work();
  return [done, before - (await ledger.balances(accountId)).usdNano];
}

async function receipt(answer: Called) {
  const { store } = rig.farebox.app.stores;
  return receiptOf(store, rig.farebox.owner.accountId, answer.headers.get('x-request-id') ?? '');
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

  test('a prompt is continued as it stands, and its tokens are charged', async () => {
    rig.engine.onJson(path, answered);
    const [answer, nano] = await cost(() =>
      post(path, {
        model: 'gpt-3.5-turbo-instruct',
        prompt: 'The sky is',
        user: 'me',
        n_predict: 9,
      }),
    );
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(rig.engine.last().json, {
      model: 'instruct',
      prompt: 'The sky is',
      max_tokens: 16,
    });
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
    rig.engine.onJson(path, {
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
    assert.deepEqual(rig.engine.last().json.prompt, [[1, 2], [3]]);
    assert.equal(nano, 3_000n + 16_000n);
  });

  test('reading a prompt alone is work, an answer without text is none', async () => {
    const silent = { ...choice, text: '' };
    const none = { prompt_tokens: 4, completion_tokens: 0, total_tokens: 4 };
    rig.engine.onJson(path, { choices: [silent], usage: none });
    const [, empty] = await cost(() => post(path, { model: 'writer', prompt: 'The sky is' }));
    assert.equal(empty, 0n);
    rig.engine.onJson(path, { choices: [{ ...choice, text: 'The sky is' }], usage: none });
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
    rig.engine.onJson(path, { choices: [{ ...choice, text: 'The sky isabcdefgh' }] });
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

  test('what cannot be is a 400 that says what would be right', async () => {
    const bad: readonly (readonly [object, RegExp])[] = [
      [{}, /prompt.*Expected a string, a list/],
      [{ prompt: [] }, /prompt/],
      [{ prompt: ['a', [1]] }, /prompt/],
      [{ prompt: [-1] }, /prompt/],
      [{ prompt: 'a', best_of: 1, n: 2 }, /best_of.*at least n, which is 2/],
      [{ prompt: 'a', best_of: 2, stream: true }, /leave out stream/],
      [{ prompt: Array.from({ length: 256 }, () => 'a'), n: 3 }, /at most 512 choices, not 768/],
      [{ prompt: 'a', max_tokens: 513 }, /513 is above the 512 output tokens of writer/],
      [{ prompt: 'a', logprobs: 21 }, /logprobs/],
      [{ prompt: 'a', temperature: 3 }, /temperature/],
      [{ prompt: 'a'.repeat(4097 * 16) }, /context of writer holds 4096 tokens/],
    ];
    for (const [more, pattern] of bad)
      await refused(path, { model: 'writer', ...more }, 400, pattern);
    await refused(path, { model: 'mute', prompt: 'a', logprobs: 1 }, 400, /does not take logprobs/);
    await refused(path, { model: 'nobody', prompt: 'a' }, 404, /nobody/);
  });

  test('engines without the path are no reason to think them dead', async () => {
    rig.engine.on(path, (_heard, response) => response.writeHead(404).end('{}'));
    for (let turn = 0; turn < 12; turn += 1) {
      const { secret } = await rig.farebox.account('1');
      const answer = await post(path, { model: 'mute', prompt: 'a' }, { secret });
      assert.equal(answer.status, 400, answer.text);
      assert.match(answer.text, /No engine of the model mute does this kind of work/);
    }
    rig.engine.onJson('/chat/completions', {
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    });
    const messages = [{ role: 'user', content: 'Hi' }];
    assert.equal((await post('/chat/completions', { model: 'mute', messages })).status, 200);
  });

  test('an answer that is none is not sold', async () => {
    const wrong = [
      { choices: [] },
      { choices: [{ ...choice, text: 5 }] },
      { choices: [{ ...choice, index: 7 }] },
      { choices: [{ ...choice, text: 'x'.repeat(10_000) }] },
      { error: { message: 'out of memory' } },
    ];
    for (const body of wrong) {
      rig.engine.onJson(path, body);
      await refused(path, { model: 'frail', prompt: 'a' }, 500, /INFERENCE_FAILED/);
    }
  });

  test('a stream ends with usage and cost, and is replayed under its key', async () => {
    const part = (text: string, finish_reason: string | null) => ({
      choices: [{ text, index: 0, logprobs: null, finish_reason }],
    });
    rig.engine.on(path, (_heard, response) =>
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
    assert.deepEqual(rig.engine.last().json.stream_options, { include_usage: true });
    const [again, nothing] = await cost(() => post(path, body, { headers }));
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(again.text, first.text);
    assert.equal(nothing, 0n);
  });

  test('text that had left before an engine broke is paid for, and said to be', async () => {
    rig.engine.on(path, (_heard, response) => {
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

  test('a stream beyond its grant is cut there', async () => {
    rig.engine.on(path, (_heard, response) => {
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

  test('a caller who leaves pays for what was made', async () => {
    rig.engine.on(path, (_heard, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(
        `data: ${JSON.stringify({ choices: [{ ...choice, text: '12345678', finish_reason: null }] })}\n\n`,
      );
    });
    const [, nano] = await cost(async () => {
      const leave = new AbortController();
      const response = await fetch(`${rig.farebox.url}${path}`, {
        method: 'POST',
        signal: leave.signal,
        headers: {
          authorization: `Bearer ${rig.farebox.owner.secret}`,
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

  test('openai, the AI SDK and LangChain work as they are', async () => {
    rig.engine.on(path, (heard, response) => {
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
    const { url: baseURL, owner } = rig.farebox;
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

/** Until no hold of the owner is open. */
async function settled(): Promise<void> {
  const { ledger } = rig.farebox.app.stores;
  for (let turn = 0; turn < 200; turn += 1) {
    const { heldUsdNano } = await ledger.standing(rig.farebox.owner.accountId);
    if (heldUsdNano === 0n) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail('A hold stays open');
}
