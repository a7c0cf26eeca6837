/** The count of the text of a completion, and its truncation at a grant. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { readChatResponse } from './chat-response.ts';
import { ChatStream } from './chat-stream.ts';
import { Frame } from '../../http/stream-writer.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { cutMessage, mostBytes, outputBytes, tallyOf, textBytes } from './chat-choice.ts';
import { anyCharacter } from '../../../test/support/any-character.ts';

const OPTIONS = {
  stripThinkTags: false,
  dropReasoning: false,
  choiceCount: 1,
  maxOutputTokens: 10_000,
};

/** As `json.dumps` of Python writes it: halves of a pair each for itself. */
function ascii(json: string): string {
  return json.replaceAll(
    /[\u0080-\uFFFF]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Cut by UTF-16 units, which is what JSON text can be cut by. */
function piecesOf(text: string, cuts: readonly number[]): string[] {
  const edges = [0, ...cuts.map((cut) => cut % (text.length + 1)), text.length];
  const sorted = edges.toSorted((a, b) => a - b);
  return sorted.slice(1).map((edge, at) => text.slice(sorted[at], edge));
}

const texts = fc.string({ unit: anyCharacter, maxLength: 60 });
const cuts = fc.array(fc.nat(), { maxLength: 8 });

interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly call: string;
}

function deltasOf(said: Said, places: readonly number[]): JsonObject[] {
  const start = { index: 0, id: 'a', type: 'function', function: { name: 'find', arguments: '' } };
  return [
    ...piecesOf(said.reasoning, places).map((reasoning) => ({ reasoning })),
    ...piecesOf(said.content, places).map((content) => ({ content })),
    { tool_calls: [start] },
    ...piecesOf(said.call, places).map((text) => ({
      tool_calls: [{ index: 0, function: { arguments: text } }],
    })),
  ];
}

test('output counts the same as JSON and as a stream, however it is cut and spelled', () => {
  const saids = fc.record({ content: texts, reasoning: texts, call: texts });
  fc.assert(
    fc.property(saids, cuts, cuts, fc.boolean(), (said, places, byteCuts, isAscii) => {
      const message = {
        role: 'assistant',
        content: said.content,
        reasoning_content: said.reasoning,
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'find', arguments: said.call } },
        ],
      };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const whole = readChatResponse(Buffer.from(JSON.stringify({ choices })), OPTIONS).tally;
      const stream = new ChatStream({
        ...OPTIONS,
        id: 'i',
        model: 'm',
        createdS: 1,
        serviceName: 'svc',
        newCallId: () => 'c',
      });
      const events = deltasOf(said, places).map((delta) => {
        const head = { id: 'e', object: 'chat.completion.chunk', created: 1, model: 'e' };
        const choice = { index: 0, delta, finish_reason: null };
        const json = JSON.stringify({ ...head, choices: [choice] });
        return `data: ${isAscii ? ascii(json) : json}\n\n`;
      });
      const bytes = Buffer.from(events.join(''));
      let at = 0;
      for (const end of [...byteCuts.map((cut) => cut % bytes.length), bytes.length].toSorted(
        (a, b) => a - b,
      )) {
        stream.push(bytes.subarray(at, end), new Frame());
        at = end;
      }
      assert.deepEqual(stream.tally, whole);
      assert.equal(stream.failure, undefined);
    }),
    { numRuns: 400 },
  );
});

test('content parts count as their texts, and a lone surrogate as two bytes', () => {
  assert.equal(textBytes('aä🦊'), 7);
  assert.equal(textBytes('🦊'.slice(0, 1)) + textBytes('🦊'.slice(1)), 4);
  assert.equal(
    textBytes([
      { type: 'text', text: 'ab' },
      { type: 'x', inner: ['cd', 1] },
    ]),
    4,
  );
  assert.equal(textBytes(null), 0);
  assert.equal(outputBytes(tallyOf({ content: 'ab', refusal: 'cd', reasoning: 'ef' })), 6);
});

test('a message is truncated at a character: reasoning first, tool calls last', () => {
  const call = (name: string, text: string) => ({ function: { name, arguments: text } });
  const message = {
    reasoning_content: 'rr',
    content: 'a🦊b',
    tool_calls: [call('f', '{"x":1}'), call('g', '{}')],
  };
  assert.deepEqual(cutMessage(message, 100), message);
  assert.deepEqual(cutMessage(message, 12)['tool_calls'], [call('f', '{"x')]);
  assert.equal(cutMessage(message, 6)['content'], 'a');
  assert.equal(cutMessage(message, 7)['content'], 'a🦊');
  assert.deepEqual(cutMessage(message, 0), { reasoning_content: '', content: '', tool_calls: [] });
  fc.assert(
    fc.property(texts, fc.nat(200), (text, roomBytes) => {
      const cut = cutMessage({ content: text }, roomBytes)['content'];
      assert.ok(typeof cut === 'string' && text.startsWith(cut));
      assert.ok(textBytes(cut) <= roomBytes);
      // No whole character more would fit.
      const next = text.codePointAt(cut.length);
      if (next === undefined) return;
      assert.ok(textBytes(cut + String.fromCodePoint(next)) > roomBytes);
    }),
  );
});

test('a choice with more deltas than tokens is limited to usual token lengths', () => {
  assert.equal(mostBytes(10, 10), 10 * 16 + 128);
  assert.equal(mostBytes(10, 11), 40);
  assert.equal(mostBytes(10, 0), 10 * 16 + 128);
});
