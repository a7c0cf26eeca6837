/** Events of messages of an engine, and the end of a message that is passed on. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Frame } from '../../../http/stream-writer.ts';
import { SVC_PARAMETER_DEFAULTS } from '../../wire/svc-parameters.ts';
import { MessageReader } from './message-reader.ts';
import { PassStream } from './pass-stream.ts';

const USAGE = {
  promptTokens: 1,
  completionTokens: 1,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
};
const END = {
  usage: USAGE,
  cost: { usd: 0, diem: 0 },
  parameters: SVC_PARAMETER_DEFAULTS,
  citations: [],
};

const FRAME = { id: 'x', model: 'm', createdS: 0, serviceName: 'svc' };

test('only a block that the caller has received is closed at the end of the grant', () => {
  const delta = { type: 'text_delta', text: 'x'.repeat(400) };
  for (const [block, isClosed] of [
    [{ type: 'tool_use', id: 'c', name: 'n'.repeat(400), input: {} }, false],
    [{ type: 'text', text: '' }, true],
  ] as const) {
    const events = [
      { type: 'content_block_start', index: 0, content_block: block },
      { type: 'content_block_delta', index: 0, delta },
    ];
    const stream = new PassStream(1, FRAME);
    const shown = new Frame();
    const text = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
    stream.push(Buffer.from(text), shown);
    const all = shown.take().toString() + stream.closing(END).toString();
    assert.ok(stream.isCutOff);
    assert.equal(all.includes('content_block_start'), isClosed);
    assert.equal(all.includes('content_block_stop'), isClosed);
  }
});

test('a ping behind the last delta of a message keeps its reason', () => {
  const stream = new PassStream(100, FRAME);
  const shown = new Frame();
  const delta = { stop_reason: 'tool_use', stop_sequence: null };
  const events = [
    { type: 'message_delta', delta, usage: { output_tokens: 1 } },
    { type: 'ping' },
    { type: 'message_stop' },
  ];
  const text = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
  stream.push(Buffer.from(text), shown);
  const all = shown.take().toString() + stream.closing(END).toString();
  const reasons = [...all.matchAll(/"stop_reason":"(\w+)"/g)].map(([, reason]) => reason);
  assert.deepEqual(reasons, ['tool_use']);
  assert.match(all, /"type":"ping"/);
});

test('an event that is nested too deeply to be written ends the stream', () => {
  const deep = '{"1":'.repeat(20_000) + '1' + '}'.repeat(20_000);
  const start = `{"type":"message_start","message":{"usage":{"input_tokens":1},"more":${deep}}}`;
  const block = `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"n","input":${deep}}}`;
  const end = `{"type":"message_delta","delta":{"stop_reason":"end_turn","more":${deep}}}`;
  for (const event of [start, block, end]) {
    const stream = new PassStream(100, FRAME);
    stream.push(Buffer.from(`data: ${event}\n\n`), new Frame());
    assert.equal(stream.failure?.code, 'broken_stream');
    const chunks = new MessageReader().push(Buffer.from(`data: ${event}\n\n`)).toString();
    assert.match(chunks, /^data: \{"error":/);
  }
});
