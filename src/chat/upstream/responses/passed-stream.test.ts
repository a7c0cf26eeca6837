/** Counts of a passed stream, for engines that send text without deltas. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Frame } from '../../../http/stream-writer.ts';
import { PassedStream } from './passed-stream.ts';

const FRAME = {
  requestId: 'a'.repeat(32),
  model: 'm',
  serviceName: 'svc',
  defaults: {},
  fits: undefined,
};

function streamOf(events: readonly object[], grantedTokens = 100): PassedStream {
  const stream = new PassedStream(FRAME, grantedTokens, () => {});
  const text = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
  stream.push(Buffer.from(text), new Frame());
  return stream;
}

const PART = { output_index: 0, content_index: 0 };
const TEXT_DONE = { ...PART, type: 'response.output_text.done', text: 'Hello' };
const ARGUMENTS_DONE = {
  ...PART,
  type: 'response.function_call_arguments.done',
  arguments: '{"a":1}',
};

function added(item: object): object {
  return { type: 'response.output_item.added', output_index: 0, item };
}

function done(item: object): object {
  return { type: 'response.output_item.done', output_index: 0, item };
}

test('text that comes with the end of a part only is counted, though the stream breaks off', () => {
  const message = added({ type: 'message', content: [] });
  const { tally, hasShownText } = streamOf([message, TEXT_DONE]);
  assert.equal(tally.contentBytes, 5);
  assert.ok(hasShownText);
  const call = added({ type: 'function_call', call_id: 'c', name: 'f' });
  assert.equal(streamOf([call, ARGUMENTS_DONE]).tally.toolBytes, 8);
  assert.ok(streamOf([message, { ...TEXT_DONE, text: 'x'.repeat(400) }], 1).isCutOff);
});

test('text is counted once, whichever of its events an engine sends', () => {
  const content = (...texts: string[]) =>
    done({ type: 'message', content: texts.map((text) => ({ type: 'output_text', text })) });
  const delta = { ...PART, type: 'response.output_text.delta', delta: 'Hello' };
  const message = added({ type: 'message', content: [] });
  const second = { ...TEXT_DONE, content_index: 1, text: 'World!' };
  for (const events of [
    [message, delta, TEXT_DONE, second, content('Hello', 'World!')],
    [message, TEXT_DONE, second, content('Hello', 'World!')],
    [delta, TEXT_DONE, second, content('Hello', 'World!')],
    [message, delta, TEXT_DONE, content('Hello', 'World!')],
    [message, content('Hello', 'World!')],
    [content('Hello', 'World!')],
  ]) {
    assert.equal(streamOf(events).tally.contentBytes, 11);
  }
});

test('an event on several lines is passed on as one event', () => {
  const stream = new PassedStream(FRAME, 100, () => {});
  const shown = new Frame();
  const response = { status: 'in_progress', output: [] };
  const delta = { ...PART, type: 'response.output_text.delta', delta: 'Hello' };
  for (const event of [{ type: 'response.created', response }, delta]) {
    const lines = JSON.stringify(event, undefined, 1).replaceAll('\n', '\ndata: ');
    stream.push(Buffer.from(`event: ${event.type}\ndata: ${lines}\n\n`), shown);
  }
  const [created = '', passed = '', rest] = shown.take().toString().split('\n\n');
  assert.match(created, /^event: response\.created\ndata: \{.*"model":"m".*\}$/);
  assert.equal(passed, `event: ${delta.type}\ndata: ${JSON.stringify(delta)}`);
  assert.equal(rest, '');
});

test('an event with the name of a member of all objects is passed on', () => {
  const stream = streamOf([{ type: 'constructor', output_index: 0 }, TEXT_DONE]);
  assert.equal(stream.failure, undefined);
  assert.equal(stream.tally.contentBytes, 5);
});
