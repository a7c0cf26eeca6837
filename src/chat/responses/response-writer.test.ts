/**
 * The grammar of the stream for any output of an engine, cut at any byte: every event follows Open
 * Responses, one item at a time, and the events fold to the non-streaming response.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../core/faults.ts';
import { eventProblems, responseProblems } from '../../../test/support/open-responses.ts';
import { ResponseBlocks } from '../agents/response-blocks.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import { chatRequestOf } from '../wire/chat-request.ts';
import type { ResponseEnd } from '../wire/chat-response.ts';
import { ChatStream } from '../wire/chat-stream.ts';
import { Frame } from '../../http/stream-writer.ts';
import { SVC_PARAMETER_DEFAULTS } from '../wire/svc-parameters.ts';
import { ResponsesBody } from './request-schema.ts';
import { ResponseWriter } from './response-writer.ts';
import { planTools } from './tools.ts';
import type { Turn } from './turn.ts';

const END: ResponseEnd = {
  usage: {
    promptTokens: 9,
    completionTokens: 4,
    cachedTokens: 3,
    cacheWriteTokens: 0,
    reasoningTokens: 1,
  },
  cost: { usd: 0.0001, diem: 0 },
  parameters: SVC_PARAMETER_DEFAULTS,
  citations: [],
};
const REQUEST_ID = '0'.repeat(32);
const TOOLS = [
  { type: 'function', name: 'read', parameters: { type: 'object' } },
  { type: 'custom', name: 'patch' },
  { type: 'namespace', name: 'mcp', tools: [{ type: 'function', name: 'open' }] },
  { type: 'web_search' },
];
const NAMES = ['read', 'patch', 'mcp__open', 'nobody'];

function turnOf(): Omit<Turn, 'passed'> {
  const body = ResponsesBody.parse({ model: 'm', input: 'Hi', tools: TOOLS });
  const messages = [{ role: 'user', content: 'Hi' }];
  return {
    body,
    request: chatRequestOf({ model: 'm', messages }, { serviceName: 'svc' }),
    tools: planTools(body),
    items: [],
    callIds: new Set(['call_0']),
  };
}

function writing() {
  const writer = new ResponseWriter({
    turn: turnOf(),
    frame: {
      requestId: REQUEST_ID,
      model: 'm',
      createdS: 1,
      serviceName: 'svc',
      maxOutputTokens: 1_000,
      promptTokens: 9,
    },
    keeper: undefined,
    isSealed: true,
    seal: (text) => `sealed ${text.length}`,
    nowS: () => 2,
  });
  let calls = 0;
  const blocks = new ResponseBlocks({
    writer,
    sources: undefined,
    takenCallIds: new Set(['call_0']),
    newCallId: () => `call_new${(calls += 1)}`,
  });
  return { writer, blocks };
}

type Delta =
  | { readonly content: string }
  | { readonly reasoning_content: string }
  | {
      readonly tool_calls: readonly {
        readonly index: number;
        readonly id?: string;
        readonly function: { readonly name?: string; readonly arguments: string };
      }[];
    };

/** An engine's chunks, with calls that begin before their arguments come. */
function chunksOf(pieces: readonly Piece[], finish: string): Buffer {
  const begun = new Set<number>();
  const deltas = pieces.map((piece): Delta => {
    if (piece.kind === 'content') return { content: piece.text };
    if (piece.kind === 'reasoning') return { reasoning_content: piece.text };
    const { index, text } = piece;
    if (begun.has(index)) return { tool_calls: [{ index, function: { arguments: text } }] };
    begun.add(index);
    const name = NAMES[index % NAMES.length] ?? '';
    const id = index % 2 === 0 ? `call_${index}` : 'not a safe id';
    return { tool_calls: [{ index, id, function: { name, arguments: text } }] };
  });
  const chunk = (delta: object, finish_reason: string | null) => ({
    id: 'u',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'u',
    choices: [{ index: 0, delta, finish_reason }],
  });
  const all = [...deltas.map((delta) => chunk(delta, null)), chunk({}, finish)];
  const events = all.map((one) => `data: ${JSON.stringify(one)}\n\n`);
  return Buffer.from(`${events.join('')}data: [DONE]\n\n`);
}

/** The same as a non-streaming message. */
function messageOf(pieces: readonly Piece[]) {
  const text = (kind: Piece['kind']) =>
    pieces.map((piece) => (piece.kind === kind ? piece.text : '')).join('');
  const calls = new Map<number, string>();
  for (const piece of pieces) {
    if (piece.kind !== 'call') continue;
    calls.set(piece.index, (calls.get(piece.index) ?? '') + piece.text);
  }
  return {
    content: text('content'),
    reasoning_content: text('reasoning'),
    tool_calls: [...calls].map(([index, given]) => {
      const id = index % 2 === 0 ? `call_${index}` : 'not a safe id';
      const made = { name: NAMES[index % NAMES.length] ?? '', arguments: given };
      return { index, id, type: 'function', function: made };
    }),
  };
}

interface Piece {
  readonly kind: 'content' | 'reasoning' | 'call';
  readonly text: string;
  /** Id of the call. */
  readonly index: number;
}

const piece = fc.record<Piece>({
  kind: fc.constantFrom('content', 'reasoning', 'call'),
  text: fc.oneof(
    fc.string({ unit: 'grapheme' }),
    fc.constantFrom(' ', '\n\n', '{"a":1}', '{"input":"x"}', '{"a"', ':1}', '"', '\\'),
  ),
  index: fc.nat(3),
});
/** Behind the arguments of a call that are a whole object nothing means anything. */
function sensible(pieces: readonly Piece[]): Piece[] {
  const given = new Map<number, string>();
  return pieces.filter(({ kind, text, index }) => {
    if (kind !== 'call') return true;
    const before = given.get(index) ?? '';
    if (isObjectText(before)) return false;
    given.set(index, before + text);
    return true;
  });
}

function isObjectText(text: string): boolean {
  try {
    return isJsonObject(JSON.parse(text));
  } catch {
    // Not yet.
    return false;
  }
}

const script = fc.record({
  pieces: fc.array(piece, { maxLength: 30 }).map(sensible),
  cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }),
  finish: fc.constantFrom('stop', 'tool_calls', 'length', 'content_filter'),
});

type Event = ReturnType<typeof JSON.parse>;

function streamed(bytes: Buffer, cuts: readonly number[], fault?: Fault): Event[] {
  const { blocks } = writing();
  const stream = new ChatStream({
    stripThinkTags: false,
    dropReasoning: false,
    choiceCount: 1,
    maxOutputTokens: 100_000,
    id: 'chatcmpl-0',
    model: 'm',
    createdS: 1,
    serviceName: 'svc',
    newCallId: () => 'call_x',
    events: blocks,
  });
  let text = blocks.writer.begin();
  const places = cuts.map((cut) => Math.floor(cut * bytes.length)).sort((a, b) => a - b);
  let from = 0;
  for (const to of [...places, bytes.length]) {
    const shown = new Frame();
    stream.push(bytes.subarray(from, to), shown);
    text += shown.take().toString();
    from = to;
  }
  text += stream.flush().toString();
  text += fault === undefined ? stream.closing(END).toString() : blocks.writer.failed(fault, END);
  return text
    .split('\n\n')
    .filter((frame) => frame !== '')
    .map((frame) => {
      const [, name, data = ''] = /^event: (\S*)\ndata: (.*)$/s.exec(frame) ?? [];
      const event: Event = JSON.parse(data);
      assert.equal(event.type, name);
      return event;
    });
}

/** Folds the events as a client does; returns the items and the final event. */
function followed(events: readonly Event[], isFailed: boolean) {
  assert.deepEqual(
    events.map(({ sequence_number }) => sequence_number),
    events.map((_, at) => at),
  );
  for (const event of events) assert.equal(eventProblems(event), '');
  assert.deepEqual(
    events.slice(0, 2).map(({ type }) => type),
    ['response.created', 'response.in_progress'],
  );
  const items: Event[] = [];
  let open: { readonly id: string; text: string; done: string | undefined } | undefined;
  for (const event of events.slice(2, -1)) {
    switch (event.type) {
      case 'response.output_item.added':
        assert.equal(open, undefined, 'one item at a time');
        assert.equal(event.output_index, items.length);
        open = { id: event.item.id, text: '', done: undefined };
        break;
      case 'response.output_item.done': {
        assert.equal(event.item.id, open?.id);
        assert.equal(event.output_index, items.length);
        assert.equal(open?.done, open?.text, 'the pieces are the text');
        items.push(event.item);
        open = undefined;
        break;
      }
      default:
        assert.equal(event.item_id, open?.id);
        assert.equal(event.output_index, items.length);
        assert.ok(open);
        if (event.type.endsWith('.delta')) open.text += event.delta;
        else if (/(?:text|arguments|input)\.done$/.test(event.type)) {
          open.done = event.text ?? event.arguments ?? event.input;
        }
    }
  }
  if (!isFailed) assert.equal(open, undefined);
  const last = events.at(-1);
  assert.match(last.type, /^response\.(?:completed|incomplete|failed)$/);
  assert.deepEqual(last.response.output, items, 'what was told is what is there at the end');
  return { items, last };
}

/** Text of the items. White space between blocks belongs to no item. */
function saidBy(items: readonly Event[]) {
  const squeezed = (text: string) => text.replaceAll(/\s+/g, '');
  const of = (type: string) => items.filter((item) => item.type === type);
  return {
    text: squeezed(
      of('message')
        .map((item) => item.content[0].text)
        .join(''),
    ),
    reasoning: squeezed(
      of('reasoning')
        .map((item) => item.summary[0].text)
        .join(''),
    ),
    calls: [...of('function_call'), ...of('custom_tool_call')]
      .map(({ name, namespace, arguments: given, input }) =>
        JSON.stringify([name, namespace, given ?? input]),
      )
      .sort(),
  };
}

test('any engine output yields a valid event sequence that folds to the JSON response', () => {
  fc.assert(
    fc.property(script, ({ pieces, cuts, finish }) => {
      const { items, last } = followed(streamed(chunksOf(pieces, finish), cuts), false);
      const { blocks } = writing();
      blocks.choice({ delta: messageOf(pieces), finish_reason: finish });
      const whole = JSON.parse(blocks.whole(END).toString());
      assert.equal(responseProblems(whole), '');
      assert.equal(whole.status, last.response.status);
      assert.deepEqual(whole.incomplete_details, last.response.incomplete_details);
      assert.deepEqual(saidBy(whole.output), saidBy(items));
      assert.equal(`response.${whole.status}`, last.type);
    }),
    { numRuns: 300 },
  );
});

test('a completion in the usual order is equal as JSON and as a stream, ids included', () => {
  const usual = fc.record({
    reasoning: fc.array(fc.string({ minLength: 1 })),
    content: fc.array(fc.string({ minLength: 1 })),
    calls: fc.nat(3),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }),
  });
  fc.assert(
    fc.property(usual, ({ reasoning, content, calls, cuts }) => {
      const pieces = [
        ...reasoning.map((text): Piece => ({ kind: 'reasoning', text, index: 0 })),
        ...content.map((text): Piece => ({ kind: 'content', text, index: 0 })),
        ...Array.from({ length: calls }, (_, index) => [
          { kind: 'call' as const, text: '{"a":', index },
          { kind: 'call' as const, text: '[1]}', index },
        ]).flat(),
      ];
      const { items } = followed(streamed(chunksOf(pieces, 'stop'), cuts), false);
      const { blocks } = writing();
      blocks.choice({ delta: messageOf(pieces), finish_reason: 'stop' });
      assert.deepEqual(JSON.parse(blocks.whole(END).toString()).output, items);
    }),
    { numRuns: 100 },
  );
});

test('a stream that fails at any point ends with `response.failed`', () => {
  fc.assert(
    fc.property(script, fc.double({ min: 0, max: 1, noNaN: true }), ({ pieces, cuts }, at) => {
      const bytes = chunksOf(pieces, 'stop');
      const broken = bytes.subarray(0, Math.floor(at * bytes.length));
      const fault = new Fault('INFERENCE_FAILED');
      const { last } = followed(streamed(broken, cuts, fault), true);
      assert.equal(last.type, 'response.failed');
      assert.equal(last.response.error.code, 'server_error');
    }),
    { numRuns: 100 },
  );
});

test('a keep-alive is a comment, and an event once a minute', () => {
  const { blocks } = writing();
  blocks.writer.begin();
  const told = Array.from({ length: 12 }, () => blocks.writer.keepAlive());
  const isEvent = told.map((text) => text.startsWith('event: response.in_progress\n'));
  assert.deepEqual(
    isEvent,
    Array.from({ length: 12 }, (_, at) => at % 6 === 5),
  );
  assert.match(told[5] ?? '', /"sequence_number":2,/);
  assert.match(told[11] ?? '', /"sequence_number":3,/);
});
