import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { appendMembers } from './json-scan.ts';
import { SseScan } from './sse-scan.ts';
import type { SseScanOptions, SseTail } from './sse-scan.ts';
import { SSE_DONE, SseCutter, encodeSseEvent, splitEvents, sseData } from './sse.ts';

interface Scanned {
  readonly scan: SseScan;
  readonly text: string;
  readonly tail: SseTail;
}

function scanPieces(pieces: readonly Buffer[], options?: SseScanOptions): Scanned {
  const scan = new SseScan(options);
  const out = pieces.flatMap((piece) => scan.push(piece) ?? []);
  const tail = scan.finish();
  if (tail.rest !== null) out.push(tail.rest);
  return { scan, text: Buffer.concat(out).toString('utf8'), tail };
}

/** The text cut at the given fractions of its bytes. */
function cutAt(text: string, fractions: readonly number[]): Buffer[] {
  const bytes = Buffer.from(text);
  const places = [...new Set(fractions.map((one) => Math.floor(one * bytes.length)))];
  const ends = [...places.toSorted((a, b) => a - b), bytes.length];
  return ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end));
}

function chunk(choices: unknown, more: object = {}): string {
  return JSON.stringify({
    id: 'c',
    object: 'chat.completion.chunk',
    model: 'up',
    choices,
    ...more,
  });
}

function delta(value: object, finish: string | null = null): string {
  return chunk([{ index: 0, delta: value, finish_reason: finish }]);
}

const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

const words = fc.oneof(
  fc.string({ unit: 'binary', minLength: 1, maxLength: 8 }),
  fc.constantFrom(
    'usage',
    '"usage":{"a":1}',
    '[DONE]',
    '\n\n',
    'data: [DONE]',
    '\\"',
    '{"error"',
    'ü€😀',
    'content"',
  ),
);
const deltas = fc.oneof(
  words.map((content) => delta({ content })),
  words.map((text) => delta({ reasoning_content: text, content: null })),
  words.map((text) => delta({ tool_calls: [{ index: 0, function: { arguments: text } }] })),
);
const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }), {
  maxLength: 12,
});
const breaks = fc.constantFrom('\n', '\r\n');

test('whatever the cuts, the events pass unchanged, the end is held and the output is counted', () => {
  fc.assert(
    fc.property(
      fc.array(deltas, { maxLength: 8 }),
      cuts,
      breaks,
      fc.boolean(),
      (list, at, nl, hasComment) => {
        const events = list.map((json) => `data: ${json}${nl}${nl}`);
        const comment = hasComment ? `: ping${nl}${nl}` : '';
        const finish = `data: ${delta({}, 'stop')}${nl}${nl}`;
        const passing = comment + events.join('') + finish;
        const usage = chunk([], { usage: USAGE });
        const text = `${passing}data: ${usage}${nl}${nl}data: [DONE]${nl}${nl}`;
        const { scan, text: passed, tail } = scanPieces(cutAt(text, at));
        assert.equal(passed, passing);
        assert.equal(tail.usageChunk?.toString('utf8'), usage);
        assert.equal(scan.isDone, true);
        assert.equal(scan.error, null);
        assert.deepEqual(scan.usage, USAGE);
        assert.equal(scan.deltas, list.length);
      },
    ),
    { numRuns: 1_500 },
  );
});

test('a rewritten model name reaches every chunk and nothing else', () => {
  fc.assert(
    fc.property(fc.array(deltas, { maxLength: 8 }), cuts, (list, at) => {
      const texts = [...list, delta({ content: '"model":"up"' }), chunk([], { usage: USAGE })];
      const text = texts.map((json) => encodeSseEvent(json)).join('') + SSE_DONE;
      const { text: passed, tail } = scanPieces(cutAt(text, at), {
        rewrite: { model: 'atlas "24b"', id: 'new' },
      });
      const seen = [...splitEvents(Buffer.from(passed))].map((event) => JSON.parse(sseData(event)));
      seen.push(JSON.parse(tail.usageChunk!.toString('utf8')));
      const expected = texts.map((json) => ({
        ...JSON.parse(json),
        model: 'atlas "24b"',
        id: 'new',
      }));
      assert.deepEqual(seen, expected);
    }),
    { numRuns: 500 },
  );
});

test('the rewrite survives spaces, a late model and a stream without one', () => {
  const first = 'data: {"id": "", "model": "", "choices": []}\n\n';
  const second = 'data: {"id": "x", "model" : "up", "choices": [{"delta": {"content": "a"}}]}\n\n';
  const third = 'data: {"choices": []}\n\n';
  const text = first + second + second + third.repeat(8) + second;
  const { text: passed } = scanPieces(
    [Buffer.from(first), Buffer.from(second + second), Buffer.from(third.repeat(8) + second)],
    {
      rewrite: { model: 'm' },
    },
  );
  assert.equal(passed.match(/"model":"m"/g)?.length, 4);
  assert.equal(passed.length < text.length, true);
});

test('a chunk of whole events comes back as the same buffer', () => {
  const scan = new SseScan();
  const bytes = Buffer.from(encodeSseEvent(delta({ content: 'a' })));
  assert.equal(scan.push(bytes), bytes);
});

test('usage in every chunk delays nothing, and the last one counts', () => {
  const scan = new SseScan();
  for (let count = 1; count <= 3; count += 1) {
    const json = JSON.stringify({
      choices: [{ index: 0, delta: { content: 'a' }, finish_reason: null }],
      usage: { completion_tokens: count },
    });
    assert.equal(scan.push(Buffer.from(encodeSseEvent(json)))?.toString(), encodeSseEvent(json));
  }
  assert.deepEqual(scan.usage, { completion_tokens: 3 });
  assert.equal(scan.deltas, 3);
});

test('a null usage, a nested one and a word are no usage', () => {
  const scan = new SseScan();
  for (const json of [
    delta({ content: 'usage' }),
    '{"choices":[],"usage":null}',
    '{"choices":[],"x_groq":{"usage":{"a":1}}}',
  ]) {
    assert.notEqual(scan.push(Buffer.from(encodeSseEvent(json))), null);
  }
  assert.equal(scan.usage, null);
});

test('a finished chunk with usage is held, and let go when the stream goes on', () => {
  const both = JSON.stringify({
    choices: [{ index: 0, delta: {}, finish_reason: 'stop' }],
    usage: USAGE,
  });
  const last = chunk([], { usage: USAGE });
  const text = encodeSseEvent(both) + encodeSseEvent(last) + SSE_DONE;
  const { text: passed, tail } = scanPieces([Buffer.from(text)]);
  assert.equal(passed, encodeSseEvent(both));
  assert.equal(tail.usageChunk?.toString(), last);
});

test('errors are held back, in all three ways that engines send them', () => {
  const body = '{"message":"out of memory","code":500}';
  for (const event of [
    `data: {"error":${body}}\n\n`,
    `event: error\ndata: {"error":${body}}\n\n`,
    `error: ${body}\n\n`,
  ]) {
    const before = encodeSseEvent(delta({ content: 'a' }));
    const { scan, text } = scanPieces([Buffer.from(before + event)]);
    assert.equal(text, before);
    assert.deepEqual(scan.error, JSON.parse(body));
    assert.equal(scan.isDone, false);
  }
});

test('a stream that ends without its last empty line is taken as far as it is whole', () => {
  const { scan, text } = scanPieces([
    Buffer.from(`${encodeSseEvent(delta({ content: 'a' }))}data: [DONE]`),
  ]);
  assert.equal(scan.isDone, true);
  assert.equal(text, encodeSseEvent(delta({ content: 'a' })));
});

test('nothing after [DONE] passes', () => {
  const { text } = scanPieces([Buffer.from(`${SSE_DONE}data: {"x":1}\n\n`)]);
  assert.equal(text, '');
});

test('the cost goes into the usage chunk by bytes', () => {
  const { tail } = scanPieces([
    Buffer.from(encodeSseEvent(chunk([], { usage: USAGE })) + SSE_DONE),
  ]);
  const json = appendMembers(tail.usageChunk!, '"cost":{"usd":0.1,"diem":0}').toString('utf8');
  assert.deepEqual(JSON.parse(json).cost, { usd: 0.1, diem: 0 });
});

test('an event without end is refused, however small its pieces', () => {
  const cutter = new SseCutter();
  const piece = Buffer.alloc(1024 * 1024, 0x61);
  assert.throws(() => {
    for (let count = 0; count < 20; count += 1) cutter.push(piece);
  }, RangeError);
});
