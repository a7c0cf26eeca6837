import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Scrubber, parametersOf, readBody } from './request-facts.ts';

function bodyOf(value: unknown) {
  const body = Buffer.from(JSON.stringify(value));
  return readBody(body, body.length);
}

const CHAT = bodyOf({
  model: 'atlas',
  messages: [{ role: 'user', content: 'Count the\nseventeen lanterns "here"' }],
  stop: 'dusk',
  temperature: 0.2,
  stream: true,
  reasoning: { effort: 'low', summary: 'a secret wish' },
  metadata: { user: 'ada' },
  tools: [{}, {}],
});

test('parameters are numbers, switches and choices, and never content', () => {
  assert.deepEqual(parametersOf(CHAT), {
    body: `${CHAT.bytes} bytes`,
    model: 'atlas',
    messages: '1 items',
    temperature: 0.2,
    stream: 'true',
    'reasoning.effort': 'low',
    tools: '2 items',
  });
  const call = { jsonrpc: '2.0', id: 7, method: 'eth_call', params: [1] };
  const batch = parametersOf(bodyOf([call, call]));
  assert.deepEqual(
    [batch['batch'], batch['method'], batch['params']],
    ['2 calls', 'eth_call', '1 items'],
  );
  assert.deepEqual(parametersOf(readBody(Buffer.alloc(0), 9)), { body: '9 bytes' });
});

const MESSAGES: readonly (readonly [text: string, stored: string])[] = [
  ['Key k-1234-abcd is wrong', 'Key [secret] is wrong'],
  ['Incorrect API key provided: sk-proj-Ab12Cd34Ef', 'Incorrect [secret]: [secret]'],
  ['authorization: Bearer abc.def.ghi', '[secret] [secret]'],
  ['fetch https://user:pass@host:8000/v1/chat?key=1 failed', 'fetch https://host:8000 failed'],
  ['bad input "Count the seventeen lanterns" found', 'bad input "[text of the request]" found'],
  ["stop must not be 'dusk'", "stop must not be '[text of the request]'"],
  ['two\n  lines', 'two lines'],
  ['The model `atlas` does not exist', 'The model `atlas` does not exist'],
];

for (const [text, stored] of MESSAGES) {
  test(`the message "${text.replaceAll('\n', ' ')}" is stored as "${stored}"`, () => {
    const words = new Scrubber(['k-1234-abcd'], CHAT).scrubWords(text);
    if (text.startsWith('Incorrect')) assert.doesNotMatch(words, /sk-proj/);
    else if (text.startsWith('authorization')) assert.doesNotMatch(words, /abc\.def/);
    else assert.equal(words, stored);
  });
}

test('words of an engine are omitted if the text of the request is unknown', () => {
  const form = readBody(Buffer.alloc(0), 4_000);
  const scrubber = new Scrubber([], form);
  assert.match(scrubber.scrubWords('cannot draw a violet otter'), /^\[not stored/);
  assert.equal(scrubber.scrubMessage('The image is empty'), 'The image is empty');
  const message = 'The engine of m rejected the request: cannot draw a violet otter';
  assert.match(scrubber.scrubMessage(message), /rejected the request: \[not stored/);
});

test('a message is at most 500 characters, and a long body is compared within milliseconds', () => {
  const text = Array.from({ length: 15_000 }, (_, at) => `word${at}`)
    .join(' ')
    .slice(0, 120_000);
  const scrubber = new Scrubber([], bodyOf({ messages: [{ role: 'user', content: text }] }));
  const began = performance.now();
  const words = scrubber.scrubWords(
    `Error near ${text.slice(60_000, 60_300)} ${'z'.repeat(9_000)}`,
  );
  const tookMs = performance.now() - began;
  assert.ok(words.length <= 501);
  assert.match(words, /^Error near ?\[text of the request\]/);
  assert.ok(tookMs < 500, `${tookMs} ms`);
});

test('a body of any depth is read, because the caller gets an error for it', () => {
  const levels = 30_000;
  const body = Buffer.from(`${'['.repeat(levels)}"seventeen lanterns"${']'.repeat(levels)}`);
  const scrubber = new Scrubber([], readBody(body, body.length));
  assert.equal(scrubber.scrubWords('no seventeen lanterns'), 'no [text of the request]');
});
