/**
 * For any output of an engine, the events follow the grammar of Anthropic's streams, and fold to
 * the message of the non-streaming response.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../core/faults.ts';
import { ResponseBlocks } from '../agents/response-blocks.ts';
import { ChatStream } from '../wire/chat-stream.ts';
import { Frame } from '../../http/stream-writer.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';
import { SVC_PARAMETER_DEFAULTS } from '../wire/svc-parameters.ts';
import { MessageWriter } from './message-writer.ts';
import type { ThinkingShown } from './messages-request.ts';

const REQUEST_ID = '0'.repeat(32);

const FRAME = {
  requestId: REQUEST_ID,
  model: 'atlas',
  createdS: 1,
  serviceName: 'svc',
  maxOutputTokens: 1_000,
  promptTokens: 12,
};

const END: ResponseEnd = {
  usage: {
    promptTokens: 30,
    completionTokens: 5,
    cachedTokens: 10,
    cacheWriteTokens: 4,
    reasoningTokens: 2,
  },
  cost: { usd: 0.1, diem: 0 },
  parameters: SVC_PARAMETER_DEFAULTS,
  citations: [],
};

function blocksOf(thinking: ThinkingShown): ResponseBlocks {
  let ids = 0;
  const writer = new MessageWriter(FRAME, {
    thinking,
    stopSequences: ['END'],
    toolNames: new Map([['short', 'mcp__a_long_name']]),
    seal: (text) => `sealed:${text}`,
    contextTokens: 2_000,
  });
  const newCallId = () => `toolu_${(ids += 1)}`;
  return new ResponseBlocks({
    writer,
    sources: undefined,
    takenCallIds: new Set(['taken']),
    newCallId,
  });
}

type Delta = Readonly<Record<string, unknown>>;
interface Event extends Delta {
  readonly type: string;
}

const text = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 8 }),
  fc.constantFrom('', ' ', '\n', '"', '\\', '\u{1F600}', '\uD83D', '</think>', '[REF]0[/REF]'),
);
const argument = fc.constantFrom('', '{', '}', '{"a":', '1}', '{"a":1}', '"x', 'no json', '[1]');
const piece = fc.record(
  {
    index: fc.constantFrom(0, 1, 2),
    id: fc.constantFrom('c1', 'c2', '', 'taken', 'with space', 'x'.repeat(65)),
    function: fc.record(
      { name: fc.constantFrom('f', 'short'), arguments: argument },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: ['function'] },
);
const annotation = fc.oneof(
  fc.record({
    type: fc.constant('url_citation'),
    url_citation: fc.record(
      { url: text, title: text, content: text, start_index: fc.integer(), end_index: fc.nat(20) },
      { requiredKeys: ['url'] },
    ),
  }),
  fc.record({ type: fc.constant('char_location'), cited_text: text, document_index: fc.nat(9) }),
  fc.constantFrom(null, 7, {}, { type: 'file_citation', file_id: 'f' }),
);
const delta: fc.Arbitrary<Delta> = fc.oneof(
  fc.record({ content: text }),
  fc.record({ reasoning_content: text }),
  fc.record({ reasoning: text, content: text }),
  fc.record({ content: text, annotations: fc.array(annotation, { maxLength: 3 }) }),
  fc.record({ tool_calls: fc.array(piece, { minLength: 1, maxLength: 3 }) }),
  fc.constant({ role: 'assistant', content: '' }),
  fc.constant({}),
);
const script = fc.record({
  deltas: fc.array(delta, { maxLength: 12 }),
  finish: fc.constantFrom('stop', 'tool_calls', 'length', 'content_filter', 'odd', null),
  stopReason: fc.constantFrom(null, 'END', 'other', 7),
  cut: fc.integer({ min: 1, max: 60 }),
  thinking: fc.constantFrom<ThinkingShown>('whole', 'signed', 'hidden'),
});
type Script = typeof script extends fc.Arbitrary<infer T> ? T : never;

/** Output of an engine for a script, cut at any byte. */
function* enginePieces({ deltas, finish, stopReason, cut }: Script): Iterable<Buffer> {
  const head = { id: 'x', object: 'chat.completion.chunk', created: 1, model: 'x' };
  const chunk = (one: object) => `data: ${JSON.stringify({ ...head, choices: [one] })}\n\n`;
  const said = deltas.map((one) => chunk({ index: 0, delta: one, finish_reason: null }));
  const end = { index: 0, delta: {}, finish_reason: finish, stop_reason: stopReason };
  const sent = Buffer.from(`${said.join('')}${finish === null ? '' : chunk(end)}data: [DONE]\n\n`);
  for (let at = 0; at < sent.length; at += cut) yield sent.subarray(at, at + cut);
}

function streamed(given: Script, blocks: ResponseBlocks): ChatStream {
  return new ChatStream({
    ...FRAME,
    id: 'x',
    stripThinkTags: false,
    dropReasoning: given.thinking === 'hidden',
    choiceCount: 1,
    newCallId: () => 'call_new',
    events: blocks,
  });
}

/** The events of a script's stream. */
function eventsOf(given: Script): Event[] {
  const blocks = blocksOf(given.thinking);
  const stream = streamed(given, blocks);
  let out = blocks.writer.begin();
  for (const bytes of enginePieces(given)) {
    const shown = new Frame();
    stream.push(bytes, shown);
    out += shown.take().toString() + blocks.writer.keepAlive();
  }
  assert.equal(stream.failure, undefined);
  out += stream.closing(END).toString();
  return parsed(out);
}

function parsed(out: string): Event[] {
  const events = out.split('\n\n').slice(0, -1);
  return events.map((event) => {
    const [, name, data = ''] = /^event: (\w+)\ndata: (.*)$/s.exec(event) ?? [];
    const value = JSON.parse(data) as Event; // every event of ours has a type
    assert.equal(value.type, name);
    return value;
  });
}

/** The non-streaming message of the same script. */
function wholeOf(given: Script): Delta {
  const blocks = blocksOf(given.thinking);
  const stream = streamed(given, blocks);
  for (const bytes of enginePieces(given)) stream.push(bytes, new Frame());
  return JSON.parse(blocks.whole(END).toString());
}

const DELTA_OF: Readonly<Record<string, readonly string[]>> = {
  text: ['text_delta', 'citations_delta'],
  thinking: ['thinking_delta', 'signature_delta'],
  tool_use: ['input_json_delta'],
  server_tool_use: ['input_json_delta'],
};

/** The message that the events make, by the grammar that the clients hold them to. */
function folded(events: readonly Event[]): Delta {
  const [start, ...rest] = events.filter(({ type }) => type !== 'ping');
  assert.equal(start?.type, 'message_start');
  assert.equal(rest.pop()?.type, 'message_stop');
  const last = rest.pop();
  assert.equal(last?.type, 'message_delta');
  const content: Record<string, unknown>[] = [];
  let open: Record<string, unknown> | undefined;
  let json = '';
  for (const event of rest) {
    if (event.type === 'content_block_start') {
      assert.equal(open, undefined, 'one block is open at a time');
      assert.equal(event['index'], content.length);
      open = { ...(event['content_block'] as object) };
      content.push(open);
      json = '';
      continue;
    }
    assert.ok(open !== undefined, `${event.type} without an open block`);
    assert.equal(event['index'], content.length - 1);
    if (event.type === 'content_block_stop') {
      if (open['type'] === 'tool_use') open['input'] = objectOf(json);
      open = undefined;
      continue;
    }
    assert.equal(event.type, 'content_block_delta');
    const given = event['delta'] as Record<string, string>;
    assert.ok(DELTA_OF[String(open['type'])]?.includes(given['type'] ?? '') === true);
    if (given['type'] === 'input_json_delta') json += given['partial_json'];
    else if (given['type'] === 'signature_delta') open['signature'] = given['signature'];
    else if (given['type'] === 'citations_delta') {
      open['citations'] = [...((open['citations'] as unknown[]) ?? []), given['citation']];
    } else {
      const name = given['type'] === 'thinking_delta' ? 'thinking' : 'text';
      open[name] = String(open[name]) + given[name];
    }
  }
  assert.equal(open, undefined, 'every block is closed');
  const { message } = start as unknown as { message: Delta };
  const { type: _type, delta: end, ...more } = last as unknown as { type: string; delta: object };
  return { ...message, content, ...end, ...more };
}

function objectOf(json: string): unknown {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

test('any engine output yields a valid event sequence that folds to the JSON message', () => {
  fc.assert(
    fc.property(script, (given) => {
      const message = folded(eventsOf(given));
      // A stream without an end has no non-streaming message.
      if (given.finish !== null) assert.deepEqual(message, wholeOf(given));
      const content = message['content'] as Record<string, unknown>[];
      const ids = content.flatMap((block) => (block['type'] === 'tool_use' ? [block['id']] : []));
      assert.equal(new Set(ids).size, ids.length);
      for (const id of ids) assert.match(String(id), /^[A-Za-z0-9_-]{1,64}$/);
      assert.ok(!ids.includes('taken'));
      const hasThought = content.some((block) => block['type'] === 'thinking');
      if (given.thinking === 'hidden') assert.ok(!hasThought);
      assert.deepEqual((message['usage'] as Delta)['input_tokens'], 16);
    }),
    { numRuns: 400 },
  );
});

test('a signature contains hidden reasoning, and long tool names are restored', () => {
  const given: Script = {
    deltas: [
      { reasoning_content: 'Plan "A"\n' },
      { tool_calls: [{ index: 0, id: 'c1', function: { name: 'short', arguments: '{"a":1}' } }] },
    ],
    finish: 'tool_calls',
    stopReason: null,
    cut: 1_000,
    thinking: 'signed',
  };
  assert.deepEqual(folded(eventsOf(given))['content'], [
    { type: 'thinking', thinking: '', signature: 'sealed:Plan "A"\n' },
    {
      type: 'tool_use',
      id: 'c1',
      name: 'mcp__a_long_name',
      caller: { type: 'direct' },
      input: { a: 1 },
    },
  ]);
});

test('a search is two blocks, and a failed search has an error code', () => {
  const blocks = blocksOf('whole');
  const out =
    blocks.writer.begin() +
    blocks.searching('high "tide"') +
    blocks.searched('high "tide"', undefined) +
    blocks.end(END);
  const { content, usage } = folded(parsed(out));
  const [use, found] = content as Delta[];
  assert.equal(use?.['type'], 'server_tool_use');
  assert.deepEqual(found?.['content'], {
    type: 'web_search_tool_result_error',
    error_code: 'unavailable',
  });
  assert.deepEqual((usage as Delta)['server_tool_use'], { web_search_requests: 1 });
});

test('a failure after the first byte is one event with the charge', () => {
  const blocks = blocksOf('whole');
  const [, event] = parsed(
    blocks.writer.begin() + blocks.writer.failed(new Fault('INFERENCE_FAILED'), END),
  );
  assert.equal(event?.type, 'error');
  assert.deepEqual(event?.['error'], { type: 'api_error', message: 'The inference failed' });
  assert.deepEqual(event?.['cost'], END.cost);
  const [free] = parsed(blocks.writer.failed(new Fault('CONTEXT_LENGTH_EXCEEDED'), undefined));
  assert.equal(free?.['cost'], undefined);
  assert.deepEqual(free?.['error'], {
    type: 'invalid_request_error',
    message: 'prompt is too long: 2001 tokens > 2000 maximum',
  });
});
