/** The fast parser of plain chats accepts only bodies that the schema accepts, with the same result. */
import { parseJsonObject } from '../../json/json-scan.ts';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { anyRequest, type ChatRequest, plainRequest } from './chat-request.ts';
import { ChatBody } from './chat-schema.ts';

const VALUES: readonly unknown[] = [
  0,
  1,
  -1,
  2,
  2.1,
  0.5,
  128,
  129,
  2 ** 53,
  1e21,
  -0,
  Infinity,
  Number.NaN,
  true,
  false,
  null,
  '',
  'a',
  'user',
  'assistant',
  'system',
  'tool',
  {},
  [],
  [''],
  ['a', 1],
];
const scalars = fc.constantFrom(...VALUES);
/** Mostly what is plain, now and then anything. */
const mostly = <T>(usual: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 30, arbitrary: usual }, { weight: 1, arbitrary: scalars });

const message = fc.record(
  {
    role: mostly(fc.constantFrom('user', 'assistant', 'system')),
    content: mostly(fc.string()),
    name: scalars,
    tool_calls: scalars,
  },
  { requiredKeys: ['role', 'content'] },
);
const plainMessage = fc.record({ role: fc.constant('user'), content: fc.string() });
const always = {
  model: mostly(fc.constantFrom('m', 'x'.repeat(2_048), 'x'.repeat(2_049))),
  messages: mostly(fc.array(fc.oneof(plainMessage, message), { maxLength: 3 })),
};
const sometimes = {
  ...Object.fromEntries(Object.keys(ChatBody.shape).map((name) => [name, scalars])),
  stream_options: mostly(fc.record({ include_usage: scalars, more: scalars })),
  unknown: scalars,
};
const body = fc.record({ ...sometimes, ...always }, { requiredKeys: ['model', 'messages'] });

/** The request of a plain body, which is that of any other reading. */
function plainOf(fields: object): ChatRequest | undefined {
  const source = parseJsonObject(Buffer.from(JSON.stringify(fields)));
  const plain = plainRequest(source);
  if (plain === undefined) return undefined;
  const read = anyRequest(source, { serviceName: 'svc' });
  assert.deepEqual(plain, { ...read, isPlain: true }, JSON.stringify(fields));
  return plain;
}

test('a plain request is read as the schema reads it', () => {
  let plain = 0;
  const further = fc.subarray(Object.keys(sometimes), { maxLength: 2 });
  fc.assert(
    fc.property(body, further, (given, kept) => {
      const names = new Set([...Object.keys(always), ...kept]);
      const fields = Object.fromEntries(Object.entries(given).filter(([key]) => names.has(key)));
      if (plainOf(fields) !== undefined) plain += 1;
    }),
    { numRuns: 5_000 },
  );
  assert.ok(plain > 100, `only ${plain} of the bodies were plain`);
});

test('a member is plain only with values that the schema accepts', () => {
  const plain = { model: 'm', messages: [{ role: 'user', content: 'Hello' }] };
  let seen = 0;
  for (const name of [...Object.keys(ChatBody.shape), 'unknown']) {
    for (const value of VALUES) {
      if (plainOf({ ...plain, [name]: value }) !== undefined) seen += 1;
    }
  }
  assert.ok(seen > 30, `only ${seen} were plain`);
});

test('common requests are plain', () => {
  const messages = [
    { role: 'system', content: 'Be brief' },
    { role: 'user', content: 'Hello' },
    { role: 'assistant', content: 'Hi' },
    { role: 'user', content: '' },
  ];
  assert.ok(plainOf({ model: 'm', messages }));
  const sampling = { temperature: 0.7, top_p: 1, max_tokens: 100, seed: 7, stop: '\n', n: 2 };
  const stream = { stream: true, stream_options: { include_usage: true } };
  assert.ok(plainOf({ model: 'm', messages, ...sampling, ...stream }));
});
