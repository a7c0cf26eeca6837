/** Streams of several engines, cut anywhere, against the chunks that a caller must see. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../core/faults.ts';
import { ChatStream, type ChatStreamOptions } from './chat-stream.ts';
import { streamErrorEvents } from './stream-events.ts';
import { addLayout, ChunkLayouts } from './chunk-layout.ts';
import { Frame } from '../../http/stream-writer.ts';
import { SVC_PARAMETER_DEFAULTS } from './svc-parameters.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { anyCharacter } from '../../../test/support/any-character.ts';

const OPTIONS: ChatStreamOptions = {
  id: `chatcmpl-${'a'.repeat(32)}`,
  model: 'shown-model',
  createdS: 1_750_000_000,
  serviceName: 'svc',
  stripThinkTags: false,
  dropReasoning: false,
  choiceCount: 4,
  maxOutputTokens: 1_000,
  newCallId: () => 'call_new',
};
const USAGE = {
  promptTokens: 5,
  completionTokens: 3,
  cachedTokens: 2,
  cacheWriteTokens: 0,
  reasoningTokens: 1,
};
const CLOSING = {
  usage: USAGE,
  cost: { usd: 0.001, diem: 0 },
  parameters: SVC_PARAMETER_DEFAULTS,
  citations: [],
};

interface Chunk extends JsonObject {
  readonly choices: readonly {
    index: number;
    delta: Record<string, unknown>;
    finish_reason: string | null;
  }[];
}

/** vLLM's layout. */
function vllm(choices: unknown, more: object = {}): string {
  return `data: ${JSON.stringify({ id: 'chatcmpl-up', object: 'chat.completion.chunk', created: 1, model: 'up', choices, ...more })}\n\n`;
}

/** llama.cpp's layout: members in order of the alphabet, so id and model come after the text. */
function llama(choices: unknown, more: object = {}): string {
  return `data: ${JSON.stringify({ choices, created: 1, id: 'chatcmpl-up', model: 'up', object: 'chat.completion.chunk', ...more })}\n\n`;
}

function delta(content: object, finish: string | null = null, index = 0): object {
  return { index, delta: content, logprobs: null, finish_reason: finish };
}

interface Seen {
  readonly text: string;
  readonly chunks: readonly Chunk[];
  readonly stream: ChatStream;
}

function run(
  source: string,
  options: Partial<ChatStreamOptions> = {},
  cuts: readonly number[] = [],
): Seen {
  const stream = new ChatStream({ ...OPTIONS, ...options });
  const bytes = Buffer.from(source);
  const edges = [
    ...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length]),
  ].sort((a, b) => a - b);
  const shown: Buffer[] = [];
  for (const [at, edge] of edges.entries()) {
    if (at > 0) shown.push(pushed(stream, bytes.subarray(edges[at - 1], edge)));
  }
  shown.push(stream.flush());
  if (stream.isComplete) shown.push(stream.closing(CLOSING));
  const text = Buffer.concat(shown).toString();
  const events = text.split('\n\n').filter((event) => event !== '' && event !== 'data: [DONE]');
  return { text, chunks: events.map((event) => JSON.parse(event.slice(6))), stream };
}

function pushed(stream: ChatStream, bytes: Buffer): Buffer {
  const shown = new Frame();
  stream.push(bytes, shown);
  return shown.take();
}

function contentOf(seen: Seen, key = 'content', index = 0): string {
  return seen.chunks
    .flatMap((chunk) =>
      chunk.choices
        .filter((choice) => choice.index === index)
        .map((choice) => choice.delta[key])
        .map((text) => (typeof text === 'string' ? text : '')),
    )
    .join('');
}

const PLAIN = [
  vllm([delta({ role: 'assistant', content: '' })]),
  vllm([delta({ content: 'Hel' })]),
  vllm([delta({ content: 'lo "w\\orld" ü\n' })]),
  vllm([delta({ content: '!' })]),
  vllm([delta({}, 'stop')]),
  vllm([], { usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } }),
  'data: [DONE]\n\n',
].join('');

const MIXED = [
  ': comment\n\n',
  llama([delta({ role: 'assistant', content: null })]),
  llama([delta({ reasoning_content: 'think' })]),
  llama([delta({ reasoning_content: ' more' })]),
  llama([delta({ content: 'A' })]),
  llama([]),
  llama([delta({ content: 'B\\' })]),
  llama([
    delta({
      tool_calls: [
        { index: 0, id: 'c1', type: 'function', function: { name: 'f', arguments: '' } },
      ],
    }),
  ]),
  llama([delta({ tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] })]),
  llama([delta({ tool_calls: [{ index: 0, function: { arguments: '1}' } }] })]),
  llama([delta({}, 'stop')], { usage: { prompt_tokens: 5, completion_tokens: 9 } }),
  'data: [DONE]\n\n',
].join('');

test("a plain stream keeps its text and has the server's id, model, usage and cost", () => {
  const seen = run(PLAIN);
  assert.equal(contentOf(seen), 'Hello "w\\orld" ü\n!');
  for (const chunk of seen.chunks) {
    assert.equal(chunk['id'], OPTIONS.id);
    assert.equal(chunk['model'], 'shown-model');
    assert.equal(chunk['object'], 'chat.completion.chunk');
    assert.ok(Array.isArray(chunk.choices));
  }
  assert.deepEqual(seen.chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
  assert.equal(seen.chunks.at(-2)?.choices[0]?.finish_reason, 'stop');
  const last = seen.chunks.at(-1)!;
  assert.deepEqual(last.choices, []);
  assert.deepEqual(last['cost'], { usd: 0.001, diem: 0 });
  assert.equal((last['usage'] as JsonObject)['total_tokens'], 8);
  assert.equal((last['svc_parameters'] as JsonObject)['enable_web_search'], 'off');
  assert.ok(seen.text.endsWith('data: [DONE]\n\n'));
  assert.equal(seen.chunks.filter((chunk) => chunk['usage']).length, 1);
  assert.deepEqual(seen.stream.reported?.usage, {
    promptTokens: 5,
    completionTokens: 3,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: 0,
  });
  assert.deepEqual(seen.stream.tally, { contentBytes: 19, reasoningBytes: 0, toolBytes: 0 });
  assert.equal(seen.stream.reported?.atBytes, 19);
});

test('both member orders give equal chunks, and reasoning and tool pieces are complete', () => {
  for (const source of [MIXED, MIXED.replaceAll('reasoning_content', 'reasoning')]) {
    const seen = run(source);
    assert.equal(contentOf(seen, 'reasoning_content'), 'think more');
    assert.equal(contentOf(seen, 'reasoning'), '');
    assert.equal(contentOf(seen), 'AB\\');
    const calls = seen.chunks.flatMap((chunk) =>
      chunk.choices.flatMap((choice) => (choice.delta['tool_calls'] ?? []) as JsonObject[]),
    );
    assert.deepEqual(calls[0], {
      index: 0,
      id: 'c1',
      type: 'function',
      function: { name: 'f', arguments: '' },
    });
    assert.equal(
      calls.map((call) => (call['function'] as JsonObject)['arguments']).join(''),
      '{"a":1}',
    );
    assert.equal(seen.chunks.at(-2)?.choices[0]?.finish_reason, 'tool_calls');
    assert.equal(Object.hasOwn(seen.chunks.at(-2) ?? {}, 'usage'), false);
    assert.equal(seen.stream.reported?.usage.completionTokens, 9);
    assert.equal(seen.stream.tally.toolBytes, 'f{"a":1}'.length);
  }
});

test('a stream cut at every byte yields equal bytes, with LF, CRLF and CR', () => {
  assert.equal(run(MIXED.replaceAll('\n', '\r')).text, run(MIXED).text);
  for (const source of [
    PLAIN,
    MIXED,
    ...['\r\n', '\r'].map((end) => MIXED.replaceAll('\n', end)),
  ]) {
    for (const options of [{}, { stripThinkTags: true }]) {
      const whole = run(source, options).text;
      const length = Buffer.byteLength(source);
      for (let cut = 1; cut < length; cut += 1)
        assert.equal(run(source, options, [cut]).text, whole);
      assert.equal(
        run(
          source,
          options,
          Array.from({ length }, (_, at) => at),
        ).text,
        whole,
      );
    }
  }
});

test('any text cut anywhere is complete, on the fast and the slow path', () => {
  const texts = fc.array(fc.string({ unit: anyCharacter, maxLength: 12 }), { maxLength: 8 });
  fc.assert(
    fc.property(
      texts,
      fc.array(fc.nat(4000), { maxLength: 6 }),
      fc.constantFrom(vllm, llama),
      (pieces, cuts, layout) => {
        const source = [
          layout([delta({ role: 'assistant', content: '' })]),
          ...pieces.map((content) => layout([delta({ content })])),
          layout([delta({}, 'length')]),
          'data: [DONE]\n\n',
        ].join('');
        const seen = run(source, {}, cuts);
        assert.equal(contentOf(seen), pieces.join(''));
        assert.equal(seen.stream.tally.contentBytes, Buffer.byteLength(pieces.join('')));
        assert.equal(seen.chunks.at(-2)?.choices[0]?.finish_reason, 'length');
        for (const chunk of seen.chunks) assert.equal(chunk['id'], OPTIONS.id);
      },
    ),
  );
});

test('an event of a known layout yields the bytes that parsing yields', () => {
  const texts = fc.array(fc.string({ unit: anyCharacter, maxLength: 12 }), { maxLength: 8 });
  const framings = fc.constantFrom(
    (event: string) => event,
    (event: string) => event.replaceAll('\n', '\r\n'),
    (event: string) => event.replaceAll('\n', '\r'),
    (event: string) => event.replace('data: ', 'data:'),
    (event: string) => `event: chunk\n${event}`,
  );
  const sizes = fc.array(fc.nat(4000), { maxLength: 6 });
  fc.assert(
    fc.property(texts, texts, sizes, fc.constantFrom(vllm, llama), framings, (...given) => {
      const [thoughts, pieces, cuts, layout, framed] = given;
      const events = [
        layout([delta({ role: 'assistant', content: '' })]),
        ...thoughts.map((text) => layout([delta({ reasoning_content: text })])),
        ...pieces.map((content) => layout([delta({ content })])),
        layout([delta({}, 'stop')]),
      ].map(framed);
      // A comment of its own makes every event one of an unknown layout.
      const parsed = run(events.map((event, at) => `: ${at}\n${event}`).join(''));
      const copied = run(events.join(''), {}, cuts);
      assert.equal(copied.text, parsed.text);
      assert.deepEqual(copied.stream.tally, parsed.stream.tally);
    }),
  );
});

test('a stream has one creation time in seconds', () => {
  for (const layout of [vllm, llama]) {
    const pieces = ['a', 'b', 'c', 'd'].map((content, at) =>
      layout([delta({ content })]).replace('"created":1', `"created":${1_795_233_600_000 + at}`),
    );
    const seen = run([...pieces, layout([delta({}, 'stop')]), 'data: [DONE]\n\n'].join(''));
    assert.equal(contentOf(seen), 'abcd');
    const times = new Set(seen.chunks.map((chunk) => chunk['created']));
    assert.deepEqual([...times], [OPTIONS.createdS]);
  }
});

test('content parts become text, and thinking parts become reasoning', () => {
  const thinking = (text: string) => ({ type: 'thinking', thinking: [{ type: 'text', text }] });
  const seen = run(
    [
      vllm([delta({ role: 'assistant', content: '' })]),
      vllm([delta({ content: [thinking('Let')] })]),
      vllm([delta({ content: [thinking(' me')] })]),
      vllm([delta({ content: [thinking('.'), { type: 'text', text: 'Four' }] })]),
      vllm([delta({ content: ' is it' }, 'stop')]),
      'data: [DONE]\n\n',
    ].join(''),
  );
  assert.equal(contentOf(seen), 'Four is it');
  const thoughts = seen.chunks.flatMap(
    (chunk) => chunk.choices[0]?.delta['reasoning_content'] ?? [],
  );
  assert.deepEqual(thoughts, ['Let', ' me', '.']);
  const { contentBytes, reasoningBytes } = seen.stream.tally;
  assert.deepEqual([contentBytes, reasoningBytes], ['Four is it'.length, 'Let me.'.length]);
});

test('a thinking block opened by the prompt is never sent, however it is cut', () => {
  const stripped = { stripThinkTags: true, mayOpenThinking: true };
  const saying = (...texts: string[]) =>
    [
      ...texts.map((content) => vllm([delta({ content })])),
      vllm([delta({}, 'stop')]),
      'data: [DONE]\n\n',
    ].join('');
  for (const pieces of [
    ['Let me', ' see.</thi', 'nk>\n\nFo', 'ur'],
    ['Let me see.</think>Four'],
    ['<think>Let me', '</think>Four'],
    ['\n<thi', 'nk>Let me</think>', ' Four'],
    ['Fo', 'ur'],
  ]) {
    const source = saying(...pieces);
    const seen = run(source, stripped);
    assert.equal(contentOf(seen).trim(), 'Four', pieces.join('|'));
    const opens = pieces.join('').includes('</think>') && !pieces.join('').includes('<think>');
    assert.equal(seen.stream.opensThinking, opens);
    assert.equal(seen.stream.tally.contentBytes, Buffer.byteLength(pieces.join('')));
  }
  // Text after the block streams again.
  const stream = new ChatStream({ ...OPTIONS, ...stripped });
  const said = saying('Hm', '</think>', 'Four', ' five').split(/(?<=\n\n)/);
  const shown = said.map((event) => pushed(stream, Buffer.from(event)).toString());
  assert.deepEqual(
    shown.map((text) => /"content":"([^"]+)"/.exec(text)?.[1]),
    [undefined, undefined, 'Four', ' five', undefined, undefined],
  );
  // An engine with separate reasoning leaves no block open.
  const apart = new ChatStream({ ...OPTIONS, ...stripped });
  pushed(apart, Buffer.from(vllm([delta({ reasoning_content: 'Hm' })])));
  const four = pushed(apart, Buffer.from(vllm([delta({ content: 'Four' })])));
  assert.match(four.toString(), /Four/);
  // Held text is sent with a call, or at the end.
  const call = { index: 0, id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } };
  const calling = run(
    saying('I call').replace(
      'data: [DONE]',
      `${vllm([delta({ tool_calls: [call] })])}data: [DONE]`,
    ),
    stripped,
  );
  assert.equal(contentOf(calling), 'I call');
});

test("results of an engine's search are read in every format", () => {
  const options = { readsCitations: true };
  const source = [
    vllm([delta({ content: 'It is' })], { citations: ['https://a.example/1'] }),
    vllm([
      delta({
        content: ' so',
        annotations: [
          { type: 'url_citation', url_citation: { url: 'https://b.example/', title: 'B' } },
        ],
      }),
    ]),
    vllm([delta({}, 'stop')], {
      search_results: [{ url: 'https://c.example', title: 'C', date: '2026-11-20' }],
    }),
    'data: [DONE]\n\n',
  ].join('');
  assert.deepEqual(
    run(source, options).stream.cited.map(({ url }) => url),
    ['https://a.example/1', 'https://b.example/', 'https://c.example'],
  );
  assert.deepEqual(run(source).stream.cited, []);
});

test('a text with a line break does not match a layout', () => {
  const known = vllm([delta({ content: 'a' })]);
  for (const broken of ['b\n', 'b\n\n', 'b\\\n\n']) {
    const seen = run(known + known.replace('"a"', `"${broken}"`) + known);
    assert.equal(seen.stream.failure?.code, 'broken_stream');
    assert.equal(contentOf(seen), 'a');
  }
});

test('a chunk that only resembles a layout is parsed', () => {
  const hostile = [
    vllm([delta({ role: 'assistant', content: '' })]),
    vllm([delta({ content: 'a' })]),
    vllm([delta({ content: 'x","evil":"y' })]),
    // Same beginning and end as the template, but another structure between.
    vllm([delta({ content: 'b' })]).replace(
      '"content":"b"',
      '"content":"b","tool_calls":null,"reasoning_content":"r"',
    ),
    vllm([delta({ content: 'c' })], { id: 'chatcmpl-other' }),
    vllm([delta({ content: 'ends with backslash \\' })]),
    vllm([delta({}, 'stop')]),
    'data: [DONE]\n\n',
  ].join('');
  const seen = run(hostile);
  assert.equal(contentOf(seen), 'ax","evil":"ybcends with backslash \\');
  assert.equal(contentOf(seen, 'reasoning_content'), 'r');
  assert.equal(seen.text.includes('chatcmpl-other'), false);
});

test('chunks are ordered and complete if the engine omits role, index, id, usage and [DONE]', () => {
  const source = [
    llama([{ delta: { content: 'x' } }]),
    llama([{ delta: { tool_calls: [{ id: 'a', function: { name: 'f', arguments: { q: 1 } } }] } }]),
    llama([{ delta: { tool_calls: [{ function: { name: 'g', arguments: '{}' } }] } }]),
    llama([{ delta: {}, finish_reason: 'tool_use' }]),
  ].join('');
  const seen = run(source);
  assert.equal(seen.stream.isComplete, true);
  assert.equal(seen.stream.reported, undefined);
  assert.deepEqual(seen.stream.tally, { contentBytes: 1, reasoningBytes: 0, toolBytes: 11 });
  assert.deepEqual(
    seen.chunks.map((chunk) => chunk.choices[0]?.delta),
    [
      { role: 'assistant', content: '' },
      { content: 'x' },
      {
        tool_calls: [
          { index: 0, id: 'a', type: 'function', function: { name: 'f', arguments: '{"q":1}' } },
        ],
      },
      {
        tool_calls: [
          { index: 1, id: 'call_new', type: 'function', function: { name: 'g', arguments: '{}' } },
        ],
      },
      {},
      undefined,
    ],
  );
  assert.equal(seen.chunks[4]?.choices[0]?.finish_reason, 'tool_calls');
});

test('[DONE] ends every open choice, and a stream without a choice is incomplete', () => {
  const seen = run(vllm([delta({ content: 'x' })]) + 'data: [DONE]\n\n');
  assert.equal(seen.stream.isComplete, true);
  assert.equal(seen.chunks[0]?.choices[0]?.delta['role'], 'assistant');
  assert.equal(seen.chunks.at(-2)?.choices[0]?.finish_reason, 'stop');
  assert.equal(run('data: [DONE]').stream.isComplete, false);
});

test('a stream that ends early is incomplete and sends no partial event', () => {
  const seen = run(PLAIN.slice(0, PLAIN.indexOf('"lo ')));
  assert.equal(seen.stream.isComplete, false);
  assert.equal(seen.stream.failure, undefined);
  assert.equal(contentOf(seen), 'Hel');
});

test('an engine error or invalid data ends the stream and stays internal', () => {
  const failed = run(
    vllm([delta({ content: 'x' })]) +
      'data: {"error":{"message":"secret","type":"t","code":507}}\n\n' +
      vllm([delta({ content: 'y' })]),
  );
  assert.deepEqual(failed.stream.failure, { message: 'secret', type: 't', code: '507' });
  assert.equal(failed.text.includes('secret'), false);
  assert.equal(contentOf(failed), 'x');
  assert.equal(
    run(vllm([delta({ content: 'x' })]) + 'data: <html>\n\n').stream.failure?.code,
    'broken_stream',
  );
  assert.equal(run(`data: ${'x'.repeat(5000)}`).stream.failure, undefined);
});

test('a stream is equal whatever layouts other streams have added', () => {
  const ids = fc.oneof(fc.constantFrom('x', 'chatcmpl-é', 'a"b', ''), fc.string({ maxLength: 9 }));
  const times = fc.constantFrom('1', '1750000001', '0', '1.5', '1e9', '-4', 'null');
  const text = (content: string) => vllm([delta({ content })]);
  const ends = [vllm([delta({}, 'stop')]), vllm([delta({ content: '' }, 'eos')]), ''];
  const firsts = [
    vllm([delta({ role: 'assistant', content: '' })]),
    vllm([delta({ role: 'assistant', content: null, tool_calls: [] })], { usage: null }),
    vllm([delta({ role: 'assistant', content: 'first' })]),
    vllm([delta({ role: 'assistant', content: '' }, null, 1)]),
    vllm([delta({ role: 'assistant', reasoning: null })]),
    vllm([delta({ tool_calls: [{ index: 0, id: 'c', function: { name: 'f' } }] })]),
    '',
  ];
  const made = firsts.flatMap((first) =>
    ends.map((end) => `${first}${text('a')}${text('')}${text('bc')}${end}data: [DONE]\n\n`),
  );
  const sources = fc.constantFrom(
    PLAIN,
    MIXED,
    llama([delta({ content: 'x' })]) + PLAIN,
    ...made.map((source) => source.replaceAll('"usage":null', '"more":null')),
  );
  const choiceCounts = fc.constantFrom(1, 4);
  const given = fc
    .record({ source: sources, id: ids, time: times })
    .map(({ source, id, time }) =>
      source
        .replaceAll('"chatcmpl-up"', () => JSON.stringify(id))
        .replaceAll('"created":1,', () => `"created":${time},`),
    );
  const cuts = fc.array(fc.nat(), { maxLength: 4 });
  const spend = fc.constantFrom(1_000, 3);
  fc.assert(
    fc.property(fc.array(fc.tuple(given, cuts, spend), { maxLength: 9 }), choiceCounts, (...of) => {
      const [streams, choiceCount] = of;
      const layouts = new ChunkLayouts();
      for (const [source, at, maxOutputTokens] of streams) {
        const alone = run(source, { maxOutputTokens, choiceCount }, at);
        const options = { maxOutputTokens, choiceCount, layouts, id: 'chatcmpl-other' };
        const among = run(source, options, at);
        assert.equal(among.text.replaceAll('chatcmpl-other', OPTIONS.id), alone.text);
        assert.deepEqual(among.stream.tally, alone.stream.tally);
        assert.equal(among.stream.isComplete, alone.stream.isComplete);
        assert.equal(among.stream.hasShownText, alone.stream.hasShownText);
      }
    }),
    { numRuns: 300 },
  );
  // A layout is shared by later streams without parsing; models and their layouts are bounded.
  const layouts = new ChunkLayouts();
  for (let at = 0; at < 20; at += 1) {
    run(PLAIN.replaceAll('chatcmpl-up', `up-${at}`), { layouts });
    // The first event, events with text, and the last event.
    assert.equal(layouts.of(OPTIONS.model).length, 3);
  }
  const known = layouts.of(OPTIONS.model);
  const [layout] = known;
  assert.ok(layout !== undefined);
  for (let at = 0; at < 20; at += 1) addLayout(known, layout);
  assert.equal(known.length, 16);
  for (let at = 0; at < 1_000; at += 1) layouts.of(`model-${at}`);
  assert.notEqual(layouts.of(OPTIONS.model), known);
});

test('an event without an end has a limit', () => {
  const stream = new ChatStream(OPTIONS);
  const piece = Buffer.alloc(1024 * 1024, 0x78);
  for (let at = 0; at < 12 && !stream.isOver; at += 1) pushed(stream, piece);
  assert.equal(stream.failure?.code, 'broken_stream');
});

test('a chunk that is nested too deeply to be written ends the stream, and is not counted', () => {
  const deep = '{"a":'.repeat(20_000) + '1' + '}'.repeat(20_000);
  const choice = JSON.stringify(delta({ content: 'Hello' })).replace('null', deep);
  const { stream, text } = run(`data: {"choices":[${choice}]}\n\n`);
  assert.equal(stream.failure?.code, 'broken_stream');
  assert.deepEqual([text, stream.hasShownText, stream.tally.contentBytes], ['', false, 0]);
});

test('think blocks are removed from every choice, however they are cut', () => {
  const words = ['<thi', 'nk>se', 'cret</th', 'ink>\n\nHello', ' <b', '>', ' end<'];
  const source = [
    vllm([
      delta({ role: 'assistant', content: '' }, null, 0),
      delta({ role: 'assistant', content: '' }, null, 1),
    ]),
    ...words.map((content) => vllm([delta({ content }, null, 0), delta({ content }, null, 1)])),
    vllm([delta({ reasoning_content: 'kept' })]),
    vllm([delta({}, 'stop', 0)]),
    vllm([delta({ content: '!' }, 'stop', 1)]),
    'data: [DONE]\n\n',
  ].join('');
  const seen = run(source, { stripThinkTags: true });
  assert.equal(contentOf(seen, 'content', 0), 'Hello <b> end<');
  assert.equal(contentOf(seen, 'content', 1), 'Hello <b> end<!');
  assert.equal(contentOf(seen, 'reasoning_content'), 'kept');
  assert.equal(
    contentOf(run(source, { stripThinkTags: true, dropReasoning: true }), 'reasoning_content'),
    '',
  );
});

test("search documents are the first tool call, before the engine's calls", () => {
  const documents = [
    { id: '1', title: 'T', url: 'https://e.com', snippet: 's', published_at: null },
  ];
  const seen = run(MIXED, { documents });
  const calls = seen.chunks.flatMap((chunk) =>
    chunk.choices.flatMap((choice) => (choice.delta['tool_calls'] ?? []) as JsonObject[]),
  );
  assert.deepEqual(calls[0], {
    index: 0,
    id: 'web_search_call',
    type: 'function',
    function: { name: 'svc_web_search_documents', arguments: JSON.stringify({ documents }) },
  });
  assert.deepEqual(new Set(calls.slice(1).map((call) => call['index'])), new Set([1]));
  assert.equal(run(PLAIN, { documents }).chunks.at(-2)?.choices[0]?.finish_reason, 'tool_calls');
});

test('citations can be the first chunk', () => {
  const citations = [{ title: 'T', url: 'https://e.com', content: 'C' }];
  const chunk = JSON.parse(new ChatStream(OPTIONS).citationsChunk(citations).toString().slice(6));
  assert.deepEqual(chunk.choices, []);
  assert.deepEqual(chunk.svc_parameters, { web_search_citations: citations });
});

test('an error event contains an object and is followed by [DONE]', () => {
  const text = streamErrorEvents(
    new Fault('MODEL_OVERLOADED', { retryAfterSeconds: 30 }),
  ).toString();
  const [event, done] = text.split('\n\n');
  assert.deepEqual(JSON.parse(event?.slice(6) ?? ''), {
    error: {
      message: 'The model is overloaded',
      type: 'server_error',
      code: 'model_overloaded',
      param: null,
      retry_after: 30,
    },
  });
  assert.equal(done, 'data: [DONE]');
});

test('several choices and logprobs are passed on', () => {
  const logprobs = { content: [{ token: 'a', logprob: -0.1, bytes: [97], top_logprobs: [] }] };
  const source = [
    vllm([{ index: 1, delta: { role: 'assistant', content: 'a' }, logprobs, finish_reason: null }]),
    vllm([delta({ role: 'assistant', content: 'z' })]),
    vllm([{ index: 1, delta: { content: 'b' }, logprobs, finish_reason: null }]),
    vllm([delta({}, 'stop', 1)]),
    vllm([delta({}, 'stop', 0)]),
    'data: [DONE]\n\n',
  ].join('');
  const seen = run(source);
  assert.equal(contentOf(seen, 'content', 1), 'ab');
  assert.equal(contentOf(seen, 'content', 0), 'z');
  assert.equal(seen.text.split('"logprob":-0.1').length, 3);
});

test('log probabilities have all members that the SDKs require', () => {
  const logprobs = { content: [{ token: 'a', logprob: -0.1 }] };
  const piece = { index: 0, delta: { role: 'assistant', content: 'a' }, logprobs };
  for (const searchTool of [undefined, 'search']) {
    const { chunks } = run(vllm([{ ...piece, finish_reason: null }]), { searchTool });
    assert.deepEqual((chunks[0]?.choices[0] as JsonObject | undefined)?.['logprobs'], {
      content: [{ token: 'a', logprob: -0.1, bytes: null, top_logprobs: [] }],
      refusal: null,
    });
  }
});

test('a message in place of a delta is sent as one and counted, unless its text was sent before', () => {
  const message = { role: 'assistant', content: 'Hello' };
  const whole = run(vllm([{ index: 0, message, finish_reason: 'stop' }]));
  assert.equal(contentOf(whole), 'Hello');
  assert.equal(whole.stream.tally.contentBytes, 5);
  assert.ok(whole.stream.hasShownText);
  const again = run(PLAIN.replaceAll(/"delta":{},/g, `"message":${JSON.stringify(message)},`));
  assert.deepEqual(again.chunks, run(PLAIN).chunks);
});

test('a text on the fast path after an empty one counts as sent', () => {
  const start = vllm([delta({ role: 'assistant', content: '' })]);
  const empty = vllm([delta({ reasoning_content: '' })]);
  assert.equal(run(start + empty).stream.hasShownText, false);
  assert.equal(
    run(start + empty + vllm([delta({ reasoning_content: 'x' })])).stream.hasShownText,
    true,
  );
});

const ROLE = vllm([delta({ role: 'assistant', content: '' })]);
const TEXT = vllm([delta({ content: 'Hello' })]);

interface Piece {
  readonly content: string;
  /** Layouts of the chunk, and of its choice. */
  readonly usage: object | null | undefined;
  readonly ofChoice: object | null | undefined;
  readonly twice: boolean;
}

/** Whether an object has a usage of an engine: one that is not null and has no cost beside it. */
function hasUsageAlone(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const object = value as Record<string, unknown>;
  const usage = object['usage'];
  if (usage !== undefined && usage !== null && object['cost'] === undefined) return true;
  return Object.values(object).some(hasUsageAlone);
}

test("the engine's usage is never sent, wherever the engine puts it", () => {
  const usage = { prompt_tokens: 9, completion_tokens: 4, total_tokens: 13 };
  const usages = fc.constantFrom(undefined, null, usage, { ...usage, prompt_tokens: 10 });
  const texts = fc.constantFrom('', 'a', 'word', '"usage":{}');
  const piece = fc.record({ content: texts, usage: usages, ofChoice: usages, twice: fc.boolean() });
  const written = ({ content, usage: said, ofChoice, twice }: Piece) => {
    const choice = {
      ...delta(content === '' ? {} : { content }),
      ...(ofChoice !== undefined && { usage: ofChoice }),
    };
    const event = vllm([choice], said === undefined ? {} : { usage: said });
    // A key that is there twice: parsers take the last.
    return twice ? event.replace('"id":', `"usage":${JSON.stringify(usage)},"id":`) : event;
  };
  const ends = fc.constantFrom(
    [vllm([delta({}, 'stop')]), vllm([], { usage }), 'data: [DONE]\n\n'],
    [vllm([delta({}, 'stop')], { usage }), 'data: [DONE]\n\n'],
    [vllm([{ ...delta({}, 'stop'), usage }])],
    [vllm([delta({ content: 'end' }, 'stop')], { usage }), vllm([], { usage })],
    [vllm([], { usage })],
    [vllm([delta({}, null, 9)], { usage }), 'data: [DONE]\n\n'],
    [vllm([], { usage, error: { message: 'no' } })],
    ['data: {"usage":'],
    [],
  );
  const stream = fc.tuple(
    fc.array(piece, { maxLength: 6 }),
    ends,
    fc.array(fc.nat(), { maxLength: 4 }),
  );
  fc.assert(
    fc.property(fc.array(stream, { minLength: 1, maxLength: 4 }), (streams) => {
      // They learn from each other.
      const layouts = new ChunkLayouts();
      for (const [pieces, end, cuts] of streams) {
        const source = [ROLE, ...pieces.map(written), ...end].join('');
        const { chunks, stream: read, text } = run(source, { layouts }, cuts);
        for (const chunk of chunks) assert.ok(!hasUsageAlone(chunk), text);
        const failed = JSON.parse(read.usageChunk(CLOSING).toString().slice(6));
        assert.ok(!hasUsageAlone(failed) && failed.usage !== undefined);
      }
    }),
    { numRuns: 500 },
  );
});

test('usage in the choice is read, and usage in the chunk has priority', () => {
  const usage = { prompt_tokens: 9, completion_tokens: 4 };
  const inChoice = vllm([{ ...delta({}, 'stop'), usage }]);
  const { stream } = run(ROLE + TEXT + inChoice);
  assert.equal(stream.reported?.usage.promptTokens, 9);
  const both = vllm([{ ...delta({}, 'stop'), usage }], { usage: { ...usage, prompt_tokens: 5 } });
  assert.equal(run(ROLE + TEXT + both).stream.reported?.usage.promptTokens, 5);
});
