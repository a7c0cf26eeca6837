/** The arithmetic of a chat's bill, in tables: what is counted by whom, and what it costs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compilePrice } from '../catalog/catalog.ts';
import { nano } from '../core/money.ts';
import type { TokenUsage } from '../engines/usage.ts';
import {
  billChat,
  type ExtraUse,
  receiptLines,
  type RoundEnd,
  type RoundUse,
  roundUse,
  surchargesOf,
} from './chat-bill.ts';
import { NO_FACTS } from './wire/prompt-facts.ts';

/** 1,000 nano-USD a token of the prompt, 2,000 of the output. */
const PRICE = compilePrice({ input: '1', output: '2' });
const NO_MEDIA = { ...NO_FACTS, messageCount: 1, textBytes: 100 };
/** A prompt of 100 bytes that can have 372 tokens, and a grant of 1,000. */
const ROUND = { promptBytes: 100, promptTokens: 372, outputTokens: 1_000 };

function used(promptTokens: number, completionTokens: number, more: Partial<TokenUsage> = {}) {
  const none = { cachedTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };
  return { promptTokens, completionTokens, ...none, ...more };
}

interface Said {
  readonly usage?: TokenUsage;
  readonly atBytes?: number;
  readonly content?: number;
  readonly reasoning?: number;
  readonly extent?: RoundEnd['extent'];
  readonly images?: number;
  readonly choices?: number;
}

function roundOf(said: Said): RoundUse {
  const { usage, content = 0, reasoning = 0, extent = 'whole' } = said;
  const { atBytes = extent === 'whole' ? content + reasoning : 0 } = said;
  const end = {
    reported: usage && { usage, atBytes },
    tally: { contentBytes: content, reasoningBytes: reasoning, toolBytes: 0 },
    extent,
  };
  const facts = { ...NO_MEDIA, imageCount: said.images ?? 0 };
  return roundUse(end, ROUND, { facts, choiceCount: said.choices ?? 1 });
}

test('`roundUse()` returns the usage of an engine call and its source', () => {
  const partial = 'partial' as const;
  const cached = used(10, 5, { cachedTokens: 4, cacheWriteTokens: 3, reasoningTokens: 2 });
  const rows: [what: string, Said, TokenUsage, 'engine' | 'bytes', exceedsBound?: true][] = [
    ['the engine, of a whole answer', { usage: cached, content: 99 }, cached, 'engine'],
    ['a zero is a zero', { usage: used(10, 0), content: 99 }, used(10, 0), 'engine'],
    ['nobody: by bytes', { content: 40 }, used(25, 10), 'bytes'],
    ['nobody, and no text', {}, used(25, 0), 'bytes'],
    [
      'thinking by its share',
      { content: 30, reasoning: 10 },
      used(25, 10, { reasoningTokens: 2 }),
      'bytes',
    ],
    ['an image by its number', { content: 4, images: 1 }, used(372, 1), 'bytes'],
    ['no more than was granted', { content: 9_000 }, used(25, 1_000), 'bytes'],
    ['to each of two choices', { content: 9_000, choices: 2 }, used(25, 2_000), 'bytes'],
    [
      'the engine, until the break',
      { usage: used(10, 5), atBytes: 40, content: 40, extent: partial },
      used(10, 5),
      'engine',
    ],
    [
      'and what came after',
      { usage: used(10, 5), atBytes: 20, content: 41, extent: partial },
      used(10, 11),
      'bytes',
    ],
    [
      'only a count before the text of a whole answer',
      { usage: used(10, 0), atBytes: 0, content: 40 },
      used(10, 10),
      'bytes',
    ],
    [
      'a running count without a last one',
      { usage: used(10, 5), atBytes: 20, content: 41 },
      used(10, 11),
      'bytes',
    ],
    [
      'up to the grant',
      { usage: used(10, 999), atBytes: 20, content: 99, extent: partial },
      used(10, 1_000),
      'bytes',
    ],
    [
      'too small a count is none',
      { usage: used(10, 1), atBytes: 40, content: 40, extent: partial },
      used(10, 10),
      'bytes',
    ],
    [
      'the smallest that can be',
      { usage: used(10, 2), atBytes: 40, content: 40, extent: partial },
      used(10, 2),
      'engine',
    ],
    ['the longest prompt', { usage: used(372, 1) }, used(372, 1), 'engine'],
    ['a longer one is the longest', { usage: used(373, 1) }, used(372, 1), 'engine', true],
    [
      'a longer one with an image is not believed',
      { usage: used(9_999, 1), images: 1 },
      used(372, 1),
      'engine',
      true,
    ],
    ['all that was granted', { usage: used(10, 1_000) }, used(10, 1_000), 'engine'],
    ['more than was granted', { usage: used(10, 1_001), content: 40 }, used(10, 10), 'bytes', true],
    ['unless two choices were', { usage: used(10, 2_000), choices: 2 }, used(10, 2_000), 'engine'],
    [
      'a cache is no larger than what is billed',
      { usage: used(500, 1, { cachedTokens: 400, cacheWriteTokens: 100 }) },
      used(372, 1, { cachedTokens: 372 }),
      'engine',
      true,
    ],
  ];
  for (const [what, said, usage, countedBy, exceedsBound = false] of rows) {
    const { countedBy: by, billsPrompt, exceedsBound: cannotBe, ...found } = roundOf(said);
    assert.deepEqual(found, usage, what);
    assert.deepEqual([by, billsPrompt, cannotBe], [countedBy, false, exceedsBound], what);
  }
});

test('a caller who left before any text pays for the prompt', () => {
  const unseen = roundOf({ extent: 'unseen' });
  assert.ok(unseen.billsPrompt);
  assert.equal(billChat([unseen], PRICE, []).costNano, 25_000n);
  const counted = roundOf({ extent: 'unseen', usage: used(12, 0) });
  assert.equal(billChat([counted], PRICE, []).costNano, 12_000n);
  assert.equal(billChat([roundOf({ extent: 'partial' })], PRICE, []).costNano, 0n);
});

const SEARCH: ExtraUse = { name: 'web_search', count: 2, eachNano: nano(10_000_000) };

test('`billChat()` charges all engine calls and surcharges', () => {
  const call = (prompt: number, output: number, more: Partial<TokenUsage> = {}) =>
    roundOf({ usage: used(prompt, output, more) });
  const cached = { cachedTokens: 6, cacheWriteTokens: 3 };
  const row = { input: '1', output: '2' };
  const cache = { ...row, cacheInput: '0.1', cacheWrite: '1.5' };
  const extended = { ...row, extended: { above: 100, input: '3', output: '5' } };
  const tiny = { input: '0.0005', output: '0' };
  const rows: [string, RoundUse[], object, readonly ExtraUse[], bigint][] = [
    ['one', [call(10, 5)], row, [], 20_000n],
    ['no output, nothing to pay', [call(10, 0)], row, [], 0n],
    ['but for what was searched', [call(10, 0)], row, [SEARCH], 20_000_000n],
    ['two calls are one sum', [call(10, 5), call(20, 5)], row, [], 50_000n],
    ['one with output makes the others due', [call(10, 0), call(20, 5)], row, [], 40_000n],
    ['searches on top', [call(10, 5)], row, [SEARCH], 20_020_000n],
    ['a cache has prices of its own', [call(10, 5, cached)], cache, [], 16_100n],
    ['or that of the prompt', [call(10, 5, cached)], row, [], 20_000n],
    ['at the threshold', [call(100, 5)], extended, [], 110_000n],
    ['above it', [call(101, 5)], extended, [], 328_000n],
    ['each call has the rates of its length', [call(100, 5), call(101, 5)], extended, [], 438_000n],
    [
      'a price of each request is paid once',
      [call(10, 5), call(10, 5)],
      { ...row, perRequest: '0.001' },
      [],
      1_040_000n,
    ],
    ['half a nano is one', [call(1, 1)], tiny, [], 1n],
    ['rounded once, over all calls', [call(1, 1), call(1, 1), call(1, 1)], tiny, [], 2n],
    ['nothing at all', [], row, [], 0n],
  ];
  for (const [what, rounds, price, uses, expected] of rows) {
    assert.equal(billChat(rounds, compilePrice(price), uses).costNano, expected, what);
  }
});

test('a bill of several calls is their sum, counted by bytes if any call was', () => {
  const first = roundOf({ usage: used(10, 5, { cachedTokens: 4, reasoningTokens: 1 }) });
  const { usage, tokens, countedBy } = billChat([first, roundOf({ content: 40 })], PRICE, []);
  assert.deepEqual(usage, used(35, 15, { cachedTokens: 4, reasoningTokens: 1 }));
  assert.deepEqual(tokens, { prompt: 35, completion: 15, cached: 4, cacheWrite: 0, reasoning: 1 });
  assert.equal(countedBy, 'bytes');
  assert.equal(billChat([first], PRICE, []).countedBy, 'engine');
});

test('surcharges are summed and listed on the receipt', () => {
  const page: ExtraUse = { name: 'web_scraping', count: 0, eachNano: nano(5) };
  const social: ExtraUse = { name: 'x_search', count: 3, eachNano: nano(1_500_000) };
  assert.equal(surchargesOf([]), 0n);
  assert.equal(surchargesOf([SEARCH, page, social]), 24_500_000n);
  assert.deepEqual(receiptLines([SEARCH, page, social]), {
    web_search: { count: 2, usd: '0.020000000' },
    x_search: { count: 3, usd: '0.004500000' },
  });
});
