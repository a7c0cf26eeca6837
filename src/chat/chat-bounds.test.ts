/** The arithmetic of holds and rounds, in tables: what a chat may use and cost at most. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { boundFor } from '../catalog/catalog.ts';
import { compilePrice } from '../catalog/catalog.ts';
import { Fault } from '../core/faults.ts';
import { nano } from '../core/money.ts';
import type { ExtraUse } from './chat-bill.ts';
import {
  type AdditionBounds,
  chatBounds,
  type HoldInputs,
  holdBounds,
  minimalRound,
  leastCostOfRound,
  planRound,
  type RoundInputs,
  type SearchOffer,
  tokensEstimate,
} from './chat-bounds.ts';
import { type ChatRequest, parseChatRequest } from './wire/chat-request.ts';

/** 1,000 nano-USD a token of the prompt, 2,000 a token of the output. */
const PRICE = compilePrice({ input: '1', output: '2' });
const IMAGE = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } };
const AUDIO = { type: 'input_audio', input_audio: { data: 'AAAA' } };
const TOOL = { type: 'function', function: { name: 'f' } };
/** Bytes of a template and one message. */
const TEMPLATE = 272;

function chat(bytes: number, more: object = {}): ChatRequest {
  const messages = [{ role: 'user', content: 'x'.repeat(bytes) }];
  const body = { model: 'm', messages, ...more };
  return parseChatRequest(Buffer.from(JSON.stringify(body)), { serviceName: 'svc' });
}

function media(...parts: object[]): ChatRequest {
  return chat(0, { messages: [{ role: 'user', content: parts }] });
}

function room(context: number, maxCompletionTokens: number) {
  return { id: 'm', context, maxCompletionTokens };
}

function use(name: ExtraUse['name'], count: number): ExtraUse {
  return { name, count, eachNano: nano(10_000_000) };
}

function offer(searchesLeft: number): SearchOffer {
  return { searchesLeft, searchBytes: 1_000, cost: (count) => use('web_search', count) };
}

const NOTHING: AdditionBounds = {
  textBytesBound: 0,
  usesBound: [],
  autoSearch: undefined,
  socialSearch: undefined,
};

test('`chatBounds()` bounds prompt and completion', () => {
  const tools = { tools: [TOOL] };
  const toolBytes = Buffer.byteLength(JSON.stringify(tools.tools));
  const rows: [string, ChatRequest, [context: number, cap: number], added: number, number[]][] = [
    ['bytes and template; the cap of the model', chat(100), [0, 1_000], 0, [372, 1_000]],
    ['neither cap nor context', chat(100), [0, 0], 0, [372, 8_192]],
    ['no cap: the context, as far as there is room', chat(100), [4_000, 0], 0, [372, 3_628]],
    ['the cap fits into the context', chat(100), [4_000, 1_000], 0, [372, 1_000]],
    ['the cap does not', chat(100), [1_000, 900], 0, [372, 628]],
    // The whole context without the prompt is 264 by the usual count.
    ['by bytes little is left: half by the usual count', chat(100), [388, 900], 0, [372, 132]],
    ['a long prompt', chat(30_000), [32_768, 8_192], 0, [30_272, 8_192]],
    ['by bytes one less: the usual count', chat(100), [387, 900], 0, [372, 263]],
    ['a prompt of more bytes than the context', chat(100), [300, 900], 0, [300, 176]],
    ['no room by any count: the least', chat(600), [272, 900], 0, [272, 16]],
    ['the caller asks for less', chat(100, { max_tokens: 7 }), [0, 1_000], 0, [372, 7]],
    ['the caller asks for more', chat(100, { max_tokens: 2_000 }), [0, 1_000], 0, [372, 1_000]],
    [
      'a named size is not cut to the room',
      chat(100, { max_tokens: 900 }),
      [400, 1_000],
      0,
      [372, 900],
    ],
    ['text that is added', chat(100), [0, 1_000], 50, [422, 1_000]],
    [
      'multibyte text',
      chat(0, { messages: [{ role: 'user', content: '字' }] }),
      [0, 1_000],
      0,
      [275, 1_000],
    ],
    ['tools', chat(100, tools), [0, 1_000], 0, [372 + 512 + toolBytes, 1_000]],
    ['an image: the whole context', media(IMAGE), [5_000, 1_000], 0, [5_000, 1_000]],
    ['an image without a context', media(IMAGE), [0, 1_000], 0, [TEMPLATE + 16_384, 1_000]],
    ['an image and a sound', media(IMAGE, AUDIO), [0, 1_000], 0, [TEMPLATE + 2 * 16_384, 1_000]],
  ];
  for (const [what, request, [context, cap], added, [promptTokens, outputTokens]] of rows) {
    const bounds = chatBounds(request, room(context, cap), added);
    assert.deepEqual(bounds, { promptTokens, outputTokens }, what);
  }
});

test('`chatBounds()` lowers the limit of an agent to the rest of the context', () => {
  const extras = { templateTokens: 256, searchTokens: 0, isOutputFitted: true };
  const rows: [string, ChatRequest, context: number, outputTokens: number][] = [
    ['there is room', chat(3_000, { max_tokens: 9_000 }), 30_000, 9_000],
    // 10,000 tokens of text, 256 of the template and 16 of the message.
    ['there is less', chat(30_000, { max_tokens: 9_000 }), 16_000, 5_728],
    ['there is too little', chat(30_000, { max_tokens: 9_000 }), 10_500, 1_024],
    ['the limit is lower', chat(30_000, { max_tokens: 90 }), 10_500, 90],
    ['an unknown context', chat(30_000, { max_tokens: 9_000 }), 0, 9_000],
  ];
  for (const [what, request, context, outputTokens] of rows) {
    const bounds = chatBounds(request, room(context, 32_000), 0, extras);
    assert.equal(bounds.outputTokens, outputTokens, what);
  }
});

test("the bound of a prompt includes the chat template and the engine's search", () => {
  const rows: [number, number, number, number[]][] = [
    [0, 0, 0, [116, 1_000]],
    [800, 0, 0, [916, 1_000]],
    [800, 9_000, 0, [9_916, 1_000]],
    [800, 9_000, 5_000, [5_000, 1_000]],
    // The results of the search are the engine's to fit in.
    [256, 9_000, 1_000, [1_000, 628]],
  ];
  for (const [templateTokens, searchTokens, context, [promptTokens, outputTokens]] of rows) {
    const extras = { templateTokens, searchTokens };
    const bounds = chatBounds(chat(100), room(context, 1_000), 0, extras);
    assert.deepEqual(bounds, { promptTokens, outputTokens });
  }
});

test('`chatBounds()` rejects only prompts that cannot fit by any count', () => {
  assert.ok(chatBounds(chat(16 * 300 + 15), room(300, 100), 0));
  for (const [bytes, added] of [
    [16 * 301, 0],
    [16 * 300, 16],
  ] as const) {
    assert.throws(
      () => chatBounds(chat(bytes), room(300, 100), added),
      (error: unknown) => error instanceof Fault && error.code === 'CONTEXT_LENGTH_EXCEEDED',
    );
  }
  assert.ok(chatBounds(chat(1_000_000), room(0, 100), 0));
});

test('`tokensEstimate()` estimates tokens for the minute limit', () => {
  const rows: [ChatRequest, number, number, number][] = [
    [chat(100), 0, 1_000, 25 + 1_000],
    [chat(101), 0, 5_000, 26 + 1_024],
    [chat(100, { n: 3 }), 0, 10, 25 + 30],
    [chat(4_000), 500, 10, 500 + 10],
    [media(IMAGE, AUDIO), 0, 10, 2_048 + 10],
  ];
  for (const [request, context, output, expected] of rows) {
    assert.equal(tokensEstimate(request, room(context, 0), output), expected);
  }
});

function held(request: ChatRequest, more: Partial<HoldInputs> = {}, context = 0): bigint[] {
  const model = room(context, 1_000);
  const bounds = chatBounds(request, model, 0);
  const inputs = { request, model, price: PRICE, bounds, additions: NOTHING, ...more };
  const { minNano, usefulNano, maxNano } = holdBounds(inputs);
  return [minNano, usefulNano, maxNano];
}

test('`holdBounds()` computes the least, a useful and the largest hold', () => {
  const price = (row: object) => ({ price: compilePrice({ input: '1', output: '2', ...row }) });
  const added = (more: Partial<AdditionBounds>) => ({ additions: { ...NOTHING, ...more } });
  const extended = { above: 371, input: '3', output: '5' };
  const social = { bound: use('x_search', 2) };
  const rows: [string, bigint[], bigint[]][] = [
    ['prompt and output', held(chat(100)), [404_000n, 884_000n, 2_372_000n]],
    ['three choices', held(chat(100, { n: 3 })), [468_000n, 1_908_000n, 6_372_000n]],
    [
      'a short answer is all useful',
      held(chat(100, { max_tokens: 256 })),
      [404_000n, 884_000n, 884_000n],
    ],
    ['one token more', held(chat(100, { max_tokens: 257 })), [404_000n, 884_000n, 886_000n]],
    ['less than the least', held(chat(100, { max_tokens: 10 })), [392_000n, 392_000n, 392_000n]],
    [
      'an image takes the context',
      held(media(IMAGE), {}, 5_000),
      [5_032_000n, 5_512_000n, 7_000_000n],
    ],
    [
      'the most expensive input',
      held(chat(100), price({ cacheWrite: '4' })),
      [1_520_000n, 2_000_000n, 3_488_000n],
    ],
    [
      'above the threshold',
      held(chat(100), price({ extended })),
      [1_196_000n, 2_396_000n, 6_116_000n],
    ],
    [
      'at the threshold',
      held(chat(100), price({ extended: { ...extended, above: 372 } })),
      [404_000n, 884_000n, 2_372_000n],
    ],
    [
      'a price of each request',
      held(chat(100), price({ perRequest: '0.001' })),
      [1_404_000n, 1_884_000n, 3_372_000n],
    ],
    ['a free model', held(chat(100), price({ input: '0', output: '0' })), [0n, 0n, 0n]],
    [
      'a search before the answer',
      held(chat(100), added({ usesBound: [use('web_search', 1)], textBytesBound: 1_000 })),
      [10_404_000n, 11_884_000n, 13_372_000n],
    ],
    [
      'an engine that searches',
      held(chat(100), added({ socialSearch: social })),
      [20_404_000n, 20_884_000n, 22_372_000n],
    ],
    [
      'searches of the model',
      held(chat(100), added({ autoSearch: offer(3) })),
      [404_000n, 14_336_000n, 50_264_000n],
    ],
    [
      'searches of the model in a context',
      held(chat(100), added({ autoSearch: offer(3) }), 4_000),
      [404_000n, 14_336_000n, 44_468_000n],
    ],
  ];
  for (const [what, found, expected] of rows) assert.deepEqual(found, expected, what);
  const bounds = chatBounds(chat(1), room(0, 10), 0);
  for (const request of [chat(1), chat(1, { max_tokens: 5 })]) {
    const inputs = { request, model: room(0, 10), price: PRICE, bounds, additions: NOTHING };
    assert.equal(holdBounds(inputs).maxIsNamed, request.maxOutputTokens !== undefined);
  }
});

function inputsOf(leftNano: number, more: Partial<RoundInputs> = {}): RoundInputs {
  const request = more.request ?? chat(100);
  const model = more.model ?? room(0, 1_000);
  return {
    request,
    model,
    price: PRICE,
    messages: undefined,
    bounds: chatBounds(request, model, 0),
    addedBytes: 0,
    leftNano: nano(leftNano),
    usedOutputTokens: 0,
    auto: undefined,
    ...more,
  };
}

test('`planRound()` grants the output that the money covers', () => {
  const free = { price: compilePrice({ input: '1', output: '0' }) };
  const added = [...chat(1).messages, ...chat(1).messages, ...chat(1).messages];
  const rows: [string, RoundInputs, number | undefined][] = [
    ['all of it', inputsOf(2_372_000), 1_000],
    ['a nano less', inputsOf(2_371_999), 999],
    ['the least', inputsOf(404_000), 16],
    ['a nano below the least', inputsOf(403_999), undefined],
    ['nothing', inputsOf(0), undefined],
    ['less than nothing', inputsOf(-1), undefined],
    ['three choices share', inputsOf(2_372_000, { request: chat(100, { n: 3 }) }), 333],
    [
      'less than the least was asked for',
      inputsOf(392_000, { request: chat(100, { max_tokens: 10 }) }),
      10,
    ],
    ['what earlier rounds used is taken off', inputsOf(9_999_999, { usedOutputTokens: 900 }), 100],
    ['but not below the least', inputsOf(9_999_999, { usedOutputTokens: 1_000 }), 16],
    ['output costs nothing', inputsOf(372_000, free), 1_000],
    ['not even the prompt', inputsOf(371_999, free), undefined],
    ['two messages were added', inputsOf(2_372_000, { messages: added }), 744],
  ];
  for (const [what, inputs, expected] of rows) {
    const round = planRound(inputs);
    assert.equal(round?.outputTokens, expected, what);
    assert.equal(round?.searches ?? 0, 0, what);
  }
  assert.equal(leastCostOfRound(inputsOf(0)), 404_000n);
  assert.equal(minimalRound(inputsOf(0)).outputTokens, 16);
});

test('`planRound()` offers the searches that the money covers', () => {
  // Three searches and their completion: 1,396 + 1,000 + 3 * 1,256 + 256 tokens, 16 of output.
  const three = 1_396_000 + 2_000_000 + 6_420_000 + 32_000 + 30_000_000;
  // One search with the shortest call: 1,396 + 128 + 1,256 + 256 tokens.
  const one = 1_396_000 + 256_000 + 3_036_000 + 32_000 + 10_000_000;
  const rows: [left: number, auto: number, searches: number, output: number][] = [
    [three, 3, 3, 1_000],
    [three - 1, 3, 1, 1_000],
    [one, 3, 1, 128],
    [one - 1, 3, 0, 1_000],
    [one, 1, 1, 128],
    [three, 0, 0, 1_000],
    [404_000, 3, 0, 16],
  ];
  for (const [left, auto, searches, outputTokens] of rows) {
    const round = planRound(inputsOf(left, { auto: offer(auto) }));
    assert.deepEqual([round?.searches, round?.outputTokens], [searches, outputTokens], `${left}`);
  }
  assert.equal(planRound(inputsOf(403_999, { auto: offer(3) })), undefined);
});

test('the largest hold covers the whole request', () => {
  const bytes = fc.nat(5_000);
  const context = fc.constantFrom(0, 300, 2_000, 100_000);
  const price = fc.record({
    input: fc.constantFrom('0', '0.01', '1', '3'),
    output: fc.constantFrom('0', '0.02', '2', '15'),
    cacheWrite: fc.constantFrom('0.5', '4'),
  });
  const asked = fc.record({ max_tokens: fc.nat(3_000), n: fc.integer({ min: 1, max: 4 }) });
  const beside = fc.record({
    templateTokens: fc.constantFrom(0, 256, 4_096),
    searchTokens: fc.constantFrom(0, 32_768),
  });
  fc.assert(
    fc.property(bytes, context, price, asked, beside, (textBytes, size, row, more, extras) => {
      const request = chat(textBytes, more);
      const model = room(size, 2_000);
      fc.pre(size === 0 || textBytes <= 16 * size);
      const bounds = chatBounds(request, model, 0, extras);
      const compiled = compilePrice(row);
      const inputs = { request, model, price: compiled, bounds, additions: NOTHING };
      const { minNano, usefulNano, maxNano } = holdBounds(inputs);
      assert.ok(minNano <= usefulNano && usefulNano <= maxNano);
      for (const leftNano of [minNano, usefulNano, maxNano]) {
        const round = planRound({ ...inputsOf(0, inputs), leftNano });
        assert.ok(round !== undefined);
        const { promptTokens, outputTokens: maxOutputTokens } = round;
        const used = { promptTokens, maxOutputTokens, choices: request.choiceCount };
        assert.ok(boundFor(used, compiled) <= leftNano);
        if (leftNano === maxNano) assert.equal(maxOutputTokens, bounds.outputTokens);
      }
    }),
  );
});
