/**
 * Charges of a chat with an unreliable engine: without usage, with impossible usage, with more
 * output than granted, or with an early end.
 */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, before, beforeEach, describe, test } from 'node:test';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';
import { pngHead } from '../media/png-head.ts';

/** 1 USD a million prompt tokens, 0.1 of it cached, 2 USD a million completion tokens. */
const INPUT_NANO = 1_000;
const CACHED_NANO = 100;
const OUTPUT_NANO = 2_000;

const PROMPT = 'Tell me something';
const PROMPT_TOKENS = Math.ceil(PROMPT.length / 4);

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  readonly completion_tokens_details: { readonly reasoning_tokens: number };
}

interface Choice {
  readonly index: number;
  readonly delta?: Record<string, unknown>;
  readonly message?: Record<string, unknown>;
  readonly finish_reason: string | null;
}

interface Body {
  /** Not in an error. */
  readonly choices?: readonly Choice[];
  readonly usage?: Usage;
  readonly cost?: { readonly usd: number };
  readonly error?: object;
}

function event(choices: readonly object[], more: object = {}): string {
  const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm' };
  return `data: ${JSON.stringify({ ...head, choices, ...more })}\n\n`;
}

function delta(value: object, finish_reason: string | null = null, index = 0): string {
  return event([{ index, delta: value, finish_reason }]);
}

const text = (content: string, index = 0): string => delta({ content }, null, index);

function head(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(delta({ role: 'assistant', content: '' }));
}

/** Writes until the connection closes; returns the number of bytes. */
function writeForEver(response: ServerResponse, piece: string): void {
  const go = (): void => {
    while (!response.destroyed && response.write(piece));
    if (!response.destroyed) response.once('drain', go);
  };
  go();
}

describe('the bill of a chat', () => {
  let engine: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    engine = await TestUpstream.start();
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: ${engine.url}, idleTimeoutMs: 600 } }
models:
  - { id: m, type: text, context: 100000, maxCompletionTokens: 50000, capabilities: [vision, functionCalling, reasoning], price: { input: 1, output: 2, cacheInput: 0.1 }, replicas: [{ engine: one }] }
  - { id: long, type: text, context: 100000, maxCompletionTokens: 1000, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
  - { id: told, type: text, context: 100000, maxCompletionTokens: 1000, templateTokens: 1000, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
  - { id: liar, type: text, context: 100000, maxCompletionTokens: 1000, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
  - { id: finder, type: text, context: 100000, maxCompletionTokens: 1000, capabilities: [xSearch], price: { input: 1, output: 2 }, replicas: [{ engine: one }] }
socialSearch: { maxResults: 2, usdPerResult: 0.001, maxPromptTokens: 20000 }
limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000 }, S: *wide, M: *wide, L: *wide } } }, guard: { failures: 100000 } }
`,
    });
  });
  after(async () => {
    await farebox.audit();
    assert.equal((await farebox.app.stores.ledger.audit()).openHolds, 0);
    await farebox.stop();
    await engine.kill();
  });
  beforeEach(() => {
    engine.script.length = 0;
  });

  async function balance(): Promise<bigint> {
    return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
  }

  function post(body: Record<string, unknown>, signal?: AbortSignal): Promise<Response> {
    return fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: PROMPT }], ...body }),
      ...(signal === undefined ? {} : { signal }),
    });
  }

  interface Seen {
    readonly status: number;
    readonly bodies: readonly Body[];
    readonly usage: Usage;
    readonly paid: bigint;
    readonly requestId: string;
    readonly raw: string;
  }

  /** A chat to its end, with what it cost. */
  async function ask(
    answer: (response: ServerResponse) => void,
    body: Record<string, unknown> = {},
  ): Promise<Seen> {
    engine.script.push({ kind: 'own', answer });
    const before = await balance();
    const response = await post(body);
    const raw = await response.text();
    const bodies: Body[] = response.headers.get('content-type')?.startsWith('text/event-stream')
      ? raw
          .split('\n\n')
          .filter((one) => one.startsWith('data: {'))
          .map((one) => JSON.parse(one.slice(6)))
      : [JSON.parse(raw)];
    const usage = bodies.findLast((one) => one.usage !== undefined)?.usage;
    return {
      status: response.status,
      bodies,
      usage: usage!,
      paid: before - (await balance()),
      requestId: response.headers.get('x-request-id')!,
      raw,
    };
  }

  const stream = (events: readonly string[], body: Record<string, unknown> = {}): Promise<Seen> =>
    ask(
      (response) => {
        head(response);
        for (const one of events) response.write(one);
        response.end('data: [DONE]\n\n');
      },
      { stream: true, ...body },
    );

  const whole = (
    message: object,
    more: object = {},
    body: Record<string, unknown> = {},
  ): Promise<Seen> =>
    ask((response) => {
      response.setHeader('content-type', 'application/json');
      const choices = [
        { index: 0, message: { role: 'assistant', ...message }, finish_reason: 'stop' },
      ];
      response.end(
        JSON.stringify({ id: 'c', object: 'chat.completion', model: 'm', choices, ...more }),
      );
    }, body);

  async function countedBy(requestId: string): Promise<string | undefined> {
    const [row] = await farebox.app.stores.store.query<{ counted_by: string }>(
      'SELECT counted_by FROM ledger_usage WHERE request_id = $1',
      [requestId],
    );
    return row?.counted_by;
  }

  function price(promptTokens: number, completionTokens: number, cached = 0): bigint {
    return BigInt(
      (promptTokens - cached) * INPUT_NANO + cached * CACHED_NANO + completionTokens * OUTPUT_NANO,
    );
  }

  const shownText = (seen: Seen, index = 0, key = 'content'): string =>
    seen.bodies
      .flatMap((body) => body.choices?.filter((choice) => choice.index === index) ?? [])
      .map((choice) => (choice.delta ?? choice.message)?.[key])
      .filter((piece) => typeof piece === 'string')
      .join('');

  const finishOf = (seen: Seen, index = 0): string | null | undefined =>
    seen.bodies
      .flatMap((body) => body.choices?.filter((choice) => choice.index === index) ?? [])
      .findLast((choice) => choice.finish_reason !== null)?.finish_reason;

  const LONG = 'Twelve 🦊 jump over the läzy dog. '.repeat(180);

  test('without usage a text costs the same as JSON, as four deltas and as one a character', async () => {
    const tokens = Math.ceil(Buffer.byteLength(LONG) / 4);
    const seen = [await whole({ content: LONG })];
    const quarter = Math.ceil(LONG.length / 4);
    const quarters = [0, 1, 2, 3].map((at) => LONG.slice(at * quarter, (at + 1) * quarter));
    // By UTF-16 units, so that the fox is cut in half.
    for (const pieces of [[LONG], quarters, LONG.split('')]) {
      seen.push(await stream([...pieces.map((piece) => text(piece)), delta({}, 'stop')]));
    }
    for (const one of seen) {
      assert.equal(one.status, 200);
      assert.equal(one.usage.completion_tokens, tokens);
      assert.equal(one.usage.prompt_tokens, PROMPT_TOKENS);
      assert.equal(one.paid, price(PROMPT_TOKENS, tokens));
      assert.equal(await countedBy(one.requestId), 'bytes');
    }
  });

  test('without usage, reasoning and call arguments count as output', async () => {
    const reasoning = 'think '.repeat(40);
    const args = JSON.stringify({ q: 'x'.repeat(200) });
    const tokens = Math.ceil((reasoning.length + 'look'.length + args.length) / 4);
    const call = { id: 'a', type: 'function', function: { name: 'look', arguments: args } };
    const json = await whole({ content: null, reasoning_content: reasoning, tool_calls: [call] });
    const streamed = await stream([
      ...reasoning
        .split(' ')
        .flatMap((word) => (word === '' ? [] : [delta({ reasoning: `${word} ` })])),
      delta({ tool_calls: [{ ...call, index: 0, function: { name: 'look', arguments: '' } }] }),
      ...args
        .split('')
        .map((one) => delta({ tool_calls: [{ index: 0, function: { arguments: one } }] })),
      delta({}, 'tool_calls'),
    ]);
    for (const seen of [json, streamed]) {
      assert.equal(seen.usage.completion_tokens, tokens);
      assert.equal(seen.paid, price(PROMPT_TOKENS, tokens));
      const share = reasoning.length / (reasoning.length + 4 + args.length);
      assert.equal(
        seen.usage.completion_tokens_details.reasoning_tokens,
        Math.floor(tokens * share),
      );
    }
  });

  test('an image in the prompt counts 1,024 tokens if the engine reports no usage', async () => {
    const url = `data:image/png;base64,${pngHead(100, 80).toString('base64')}`;
    const content = [
      { type: 'text', text: PROMPT },
      { type: 'image_url', image_url: { url } },
    ];
    const seen = await whole({ content: 'Two' }, {}, { messages: [{ role: 'user', content }] });
    assert.equal(seen.status, 200, seen.raw);
    assert.equal(seen.usage.prompt_tokens, PROMPT_TOKENS + 1_024);
  });

  /** Leaves after so many pieces were read; gives what was paid when the hold is closed. */
  async function leave(
    answer: (response: ServerResponse) => void,
    when: (read: string) => boolean,
  ): Promise<bigint> {
    engine.script.push({ kind: 'own', answer });
    const before = await balance();
    const controller = new AbortController();
    const response = await post({ stream: true }, controller.signal);
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let read = '';
    while (!when(read)) {
      const { value, done } = await reader.read();
      assert.equal(done, false, read);
      read += value;
    }
    controller.abort();
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
    return before - (await balance());
  }

  test('a caller that leaves just before the usage chunk pays for the text', async () => {
    const quarter = 'word '.repeat(336); // 1,680 bytes, 4 times
    const paid = await leave(
      (response) => {
        head(response);
        for (let at = 0; at < 4; at += 1) response.write(text(quarter));
        response.write(delta({}, 'stop'));
      },
      (read) => read.includes('"finish_reason":"stop"'),
    );
    assert.equal(paid, price(PROMPT_TOKENS, 1_680));
  });

  test('cached tokens that were reported before a caller leaves stay cached', async () => {
    const early = {
      usage: {
        prompt_tokens: 100,
        completion_tokens: 0,
        prompt_tokens_details: { cached_tokens: 96 },
      },
    };
    const paid = await leave(
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(
          event([{ index: 0, delta: { role: 'assistant' }, finish_reason: null }], early),
        );
        response.write(text('four by four ok.'));
      },
      (read) => read.includes('ok.'),
    );
    assert.equal(paid, price(100, 4, 96));
  });

  test('a running usage is exact up to the place where the caller leaves', async () => {
    const paid = await leave(
      (response) => {
        head(response);
        for (let at = 1; at <= 7; at += 1) {
          const usage = { prompt_tokens: 12, completion_tokens: at };
          const choice = { index: 0, delta: { content: `token ${at} ` }, finish_reason: null };
          response.write(event([choice], { usage }));
        }
      },
      (read) => read.includes('token 7'),
    );
    assert.equal(paid, price(12, 7));
  });

  test('a caller that leaves before the first byte pays for the prompt', async () => {
    engine.script.push({ kind: 'hang' });
    const before = await balance();
    const controller = new AbortController();
    const asked = post({ stream: true }, controller.signal).catch(() => undefined);
    await until(() => engine.active > 0);
    controller.abort();
    await asked;
    await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
    assert.equal(before - (await balance()), price(PROMPT_TOKENS, 0));
  });

  const failures = (): number => {
    const replicas = farebox.app.engines.status().flatMap((one) => one.replicas);
    return replicas.reduce((sum, replica) => sum + replica.failures, 0);
  };

  for (const stream of [true, false]) {
    const kind = stream ? 'a stream' : 'a response';
    test(`a caller of ${kind} that leaves after the engine was overloaded pays nothing`, async () => {
      engine.script.push({ kind: 'status', status: 429, headers: { 'retry-after': '4' } });
      const failuresBefore = failures();
      const before = await balance();
      const controller = new AbortController();
      const asked = post({ stream }, controller.signal).catch(() => undefined);
      await until(() => failures() > failuresBefore);
      controller.abort();
      await asked;
      await until(async () => (await farebox.app.stores.ledger.audit()).openHolds === 0);
      assert.equal(before - (await balance()), 0n);
    });
  }

  for (const [name, answer] of [
    ['cut', (response: ServerResponse) => setTimeout(() => response.destroy(), 30)],
    ['silent', () => undefined],
    ['broken', (response: ServerResponse) => response.write('data: {"choices":[\n\n')],
    ['sending an error', (response: ServerResponse) => response.write('data: {"error":{}}\n\n')],
  ] as const) {
    test(`text that came before an engine is ${name} is paid for, and said to be`, async () => {
      const seen = await ask(
        (response) => {
          head(response);
          response.write(text('Some words that came'));
          answer(response);
        },
        { stream: true },
      );
      assert.equal(shownText(seen), 'Some words that came');
      assert.ok(seen.bodies.at(-1)?.error, seen.raw);
      const bill = seen.bodies.at(-2);
      assert.deepEqual(bill?.choices, []);
      assert.equal(bill?.usage?.completion_tokens, 5);
      assert.equal(seen.paid, price(PROMPT_TOKENS, 5));
      assert.equal(bill?.cost?.usd, Number(seen.paid) / 1e9);
    });
  }

  test('an engine that fails before any text costs nothing', async () => {
    const seen = await ask(
      (response) => {
        head(response);
        setTimeout(() => response.destroy(), 30);
      },
      { stream: true },
    );
    assert.ok(seen.bodies.at(-1)?.error);
    assert.equal(
      seen.bodies.some((body) => body.usage !== undefined),
      false,
    );
    assert.equal(seen.paid, 0n);
  });

  for (const [name, piece, key] of [
    ['content', text(' word'), 'content'],
    ['reasoning', delta({ reasoning_content: ' word' }), 'reasoning_content'],
    ['large pieces', text(' word'.repeat(400)), 'content'],
  ] as const) {
    test(`endless ${name} ends at the grant with "length", billed as the grant`, async () => {
      const abandoned = engine.abandoned;
      const seen = await ask(
        (response) => {
          head(response);
          writeForEver(response, piece);
        },
        { stream: true, max_tokens: 10 },
      );
      assert.equal(finishOf(seen), 'length');
      // Ten tokens of the longest kind, and one that is longer still; in small pieces, ten of them.
      const most = name === 'large pieces' ? 10 * 16 + 128 : 10 * ' word'.length;
      assert.ok(shownText(seen, 0, key).length <= most, `${shownText(seen, 0, key).length} bytes`);
      assert.ok(shownText(seen, 0, key).length >= 40);
      assert.equal(seen.usage.completion_tokens, 10);
      assert.equal(seen.paid, price(PROMPT_TOKENS, 10));
      assert.ok(seen.raw.endsWith('data: [DONE]\n\n'));
      await until(() => engine.abandoned > abandoned, 'the end of the work');
    });
  }

  test('endless call arguments end at the grant too', async () => {
    const start = { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '' } };
    const seen = await ask(
      (response) => {
        head(response);
        response.write(delta({ tool_calls: [start] }));
        writeForEver(
          response,
          delta({ tool_calls: [{ index: 0, function: { arguments: '"xxx' } }] }),
        );
      },
      { stream: true, max_tokens: 10 },
    );
    assert.equal(finishOf(seen), 'length');
    assert.equal(seen.usage.completion_tokens, 10);
    assert.equal(seen.paid, price(PROMPT_TOKENS, 10));
  });

  test('each of two choices has a grant of its own', async () => {
    const seen = await ask(
      (response) => {
        head(response);
        response.write(text('Short answer', 1));
        for (let at = 0; at < 60; at += 1) response.write(text(' word'));
        response.write(text(', still going', 1));
        response.write(delta({}, 'stop', 1));
        writeForEver(response, text(' word'));
      },
      { stream: true, max_tokens: 10, n: 2 },
    );
    assert.equal(finishOf(seen), 'length');
    assert.equal(finishOf(seen, 1), 'stop');
    assert.equal(shownText(seen, 1), 'Short answer, still going');
    assert.ok(shownText(seen).length <= 50);
  });

  test('endless unrequested choices, comments and empty chunks end the stream', async () => {
    for (const piece of [
      text(' word', 5),
      ': comment\n\n',
      event([]),
      delta({ role: 'assistant' }),
    ]) {
      const seen = await ask(
        (response) => {
          head(response);
          response.write(text('Hello you'));
          writeForEver(response, piece);
        },
        { stream: true, max_tokens: 10 },
      );
      assert.equal(shownText(seen, 5), '');
      assert.equal(seen.paid, price(PROMPT_TOKENS, 3));
    }
  });

  test('a non-streaming completion beyond the grant is truncated', async () => {
    const content = ' word'.repeat(20_000);
    for (const more of [{}, { usage: { prompt_tokens: 5, completion_tokens: 20_000 } }]) {
      const seen = await whole({ content }, more, { max_tokens: 10 });
      assert.equal(finishOf(seen), 'length');
      assert.ok(shownText(seen).length <= 10 * 16 + 128);
      assert.equal(seen.usage.completion_tokens, 10);
      assert.equal(seen.paid, price(PROMPT_TOKENS, 10));
    }
  });

  test('an engine within the grant is not truncated, however long its tokens are', async () => {
    const tokens = Array.from({ length: 10 }, () => ' Donaudampfschiffahrt');
    const usage = { prompt_tokens: 5, completion_tokens: 10 };
    const content = tokens.join('');
    const json = await whole({ content }, { usage }, { max_tokens: 10 });
    const streamed = await stream(
      [...tokens.map((one) => text(one)), delta({}, 'stop'), event([], { usage })],
      {
        max_tokens: 10,
      },
    );
    for (const seen of [json, streamed]) {
      assert.equal(shownText(seen), content);
      assert.equal(finishOf(seen), 'stop');
      assert.equal(seen.paid, price(5, 10));
      assert.equal(await countedBy(seen.requestId), 'engine');
    }
  });

  for (const usage of [
    { prompt_tokens: 5, completion_tokens: 9e15 },
    { prompt_tokens: 9e15, completion_tokens: 9e15, total_tokens: 1.8e16 },
    {
      prompt_tokens: 5,
      completion_tokens: 2,
      total_tokens: 9e15 + 7,
      completion_tokens_details: { reasoning_tokens: 9e15 },
    },
    { prompt_tokens: 5, total_tokens: 9e15 },
    { prompt_tokens: 5, completion_tokens: -3 },
    { prompt_tokens: 5.5, completion_tokens: 2.25 },
    { prompt_tokens: '5', completion_tokens: '9000000000000000' },
    { prompt_tokens: 5, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 9e15 } },
  ]) {
    test(`an impossible usage is not believed: ${JSON.stringify(usage)}`, async () => {
      const seen = [
        await whole({ content: 'Hello there' }, { usage }, { max_tokens: 1_000 }),
        await stream([text('Hello'), text(' there'), delta({}, 'stop'), event([], { usage })], {
          max_tokens: 1_000,
        }),
      ];
      for (const one of seen) {
        assert.equal(one.status, 200, one.raw);
        // Counted: 11 bytes. The prompt has 17 bytes, and a template around it.
        assert.ok(one.usage.completion_tokens <= 3, one.raw);
        assert.ok(one.usage.prompt_tokens <= PROMPT.length + 512, one.raw);
        const { cached_tokens: cached } = one.usage.prompt_tokens_details;
        assert.ok(cached <= one.usage.prompt_tokens);
        assert.equal(one.paid, price(one.usage.prompt_tokens, one.usage.completion_tokens, cached));
      }
    });
  }

  describe('a prompt count that is far above the text', () => {
    const usageOf = (prompt_tokens: number) => ({ usage: { prompt_tokens, completion_tokens: 1 } });
    /** Maximum charge of one request without learned values: bytes, template, one message. */
    const usualBound = PROMPT.length + 256 + 16;

    test('two short prompts teach the length of a template, which is charged from then on', async () => {
      const billed: number[] = [];
      for (let at = 0; at < 4; at += 1) {
        const { usage, paid } = await whole({ content: 'ok' }, usageOf(800), { model: 'long' });
        assert.equal(paid, BigInt(usage.prompt_tokens * INPUT_NANO + OUTPUT_NANO));
        billed.push(usage.prompt_tokens);
      }
      assert.deepEqual(billed, [usualBound, usualBound, 800, 800]);
      const streamed = await stream([text('ok'), event([], usageOf(800))], { model: 'long' });
      assert.equal(streamed.usage.prompt_tokens, 800);
    });

    test('`templateTokens` applies from the first request, and learning never exceeds it', async () => {
      const model = 'told';
      assert.equal(
        (await whole({ content: 'ok' }, usageOf(800), { model })).usage.prompt_tokens,
        800,
      );
      for (let at = 0; at < 3; at += 1) {
        const { usage } = await whole({ content: 'ok' }, usageOf(2_000), { model });
        assert.equal(usage.prompt_tokens, PROMPT.length + 1_000 + 16);
      }
    });

    test('an engine that reports any usage cannot raise the charge above a fixed bound', async () => {
      for (let at = 0; at < 6; at += 1) {
        const { usage, paid } = await whole({ content: 'ok' }, usageOf(90_000), { model: 'liar' });
        assert.ok(usage.prompt_tokens <= PROMPT.length + 4_096 + 16, `${usage.prompt_tokens}`);
        assert.equal(paid, BigInt(usage.prompt_tokens * INPUT_NANO + OUTPUT_NANO));
      }
    });

    test('prompt tokens of a search by the engine are charged, up to their bound', async () => {
      const asked = { model: 'finder', svc_parameters: { enable_x_search: true } };
      const found = { num_sources_used: 1 };
      const searched = async (prompt_tokens: number) =>
        whole({ content: 'ok' }, { usage: { ...usageOf(prompt_tokens).usage, ...found } }, asked);
      const one = await searched(9_000);
      assert.equal(one.usage.prompt_tokens, 9_000);
      assert.equal(one.paid, BigInt(9_000 * INPUT_NANO + OUTPUT_NANO) + 1_000_000n);
      const most = await searched(90_000);
      assert.equal(most.usage.prompt_tokens, usualBound + 20_000);
    });

    test('credit that does not cover the prompt tokens of a search is rejected before the engine is called', async () => {
      const { secret } = await farebox.account('0.01');
      const response = await fetch(`${farebox.url}/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
        body: JSON.stringify({
          model: 'finder',
          messages: [{ role: 'user', content: PROMPT }],
          svc_parameters: { enable_x_search: true },
        }),
      });
      assert.equal(response.status, 402);
    });
  });
});
