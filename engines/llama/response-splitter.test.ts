import assert from 'node:assert/strict';
import { suite, test } from 'node:test';

import { type ResponsePiece, ResponseSplitter, type SplitterOptions } from './response-splitter.ts';

function split(text: string, size: number, options: Partial<SplitterOptions> = {}) {
  const splitter = new ResponseSplitter({
    start: 'content',
    mayThink: false,
    mayCall: false,
    stops: [],
    ...options,
  });
  const pieces: ResponsePiece[] = [];
  for (let at = 0; at < text.length && !splitter.isStopped; at += size) {
    pieces.push(...splitter.push(text.slice(at, at + size)));
  }
  pieces.push(...splitter.end());
  const join = (type: 'content' | 'reasoning'): string =>
    pieces.map((piece) => (piece.type === type ? piece.text : '')).join('');
  const calls = new Map<number, string>();
  for (const piece of pieces) {
    if (piece.type === 'call-start') calls.set(piece.index, `${piece.name} `);
    if (piece.type === 'call-arguments') {
      calls.set(piece.index, (calls.get(piece.index) ?? '') + piece.text);
    }
  }
  return {
    splitter,
    content: join('content'),
    reasoning: join('reasoning'),
    calls: [...calls.values()],
  };
}

/** Piece lengths: every test must hold for each of them. */
const SIZES = [1, 2, 3, 7, 1_000];

suite('ResponseSplitter', () => {
  test('text with half a mark passes unchanged', () => {
    for (const size of SIZES) {
      const text = 'a < b, <thin>, <tool';
      assert.equal(split(text, size, { mayCall: true, mayThink: true }).content, text);
    }
  });

  test('the first stop text ends the content', () => {
    for (const size of SIZES) {
      const { content, splitter } = split('one two STOP three', size, { stops: ['three', 'STOP'] });
      assert.equal(content, 'one two ');
      assert.ok(splitter.isStopped);
    }
  });

  test('a stop text inside a thinking block is ignored', () => {
    for (const size of SIZES) {
      const { content, reasoning } = split('a STOP b</think>\n\nhello STOP', size, {
        start: 'thought',
        mayThink: true,
        stops: ['STOP'],
      });
      assert.deepEqual([reasoning, content], ['a STOP b', 'hello ']);
    }
  });

  test('a thinking block that the model opens is separated', () => {
    for (const size of SIZES) {
      const { content, reasoning } = split('<think>hm</think>\nyes', size, { mayThink: true });
      assert.deepEqual([reasoning, content], ['hm', 'yes']);
    }
  });

  test('several calls are parsed, with braces and quotes in their arguments', () => {
    const one = '{"a": "}\\"{", "b": [1, {"c": 2}]}';
    const text =
      `Well.\n<tool_call>\n{"name": "f", "arguments": ${one}}\n</tool_call>\n` +
      `<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>`;
    for (const size of SIZES) {
      const { content, calls, splitter } = split(text, size, { mayCall: true });
      assert.equal(content.trim(), 'Well.');
      assert.deepEqual(calls, [`f ${one}`, 'g {}']);
      assert.equal(splitter.calls, 2);
    }
  });

  test('an incomplete call is not counted', () => {
    const { splitter, calls } = split('{"name": "f", "arguments": {"a": 1', 3, { start: 'call' });
    assert.equal(splitter.calls, 0);
    assert.deepEqual(calls, ['f {"a": 1']);
  });
});
