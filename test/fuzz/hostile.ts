/**
 * Texts, numbers and shapes that no client sends on purpose, and that have broken servers. All can
 * be written as JSON; `bodies.ts` mutates the text of a body.
 */
import fc from 'fast-check';
import { anyCharacter } from '../support/any-character.ts';

/** Longer than most limits of members, and short enough to be sent thousands of times. */
const LONG_CHARS = 20_000;
/** Deeper than the limit of bodies, and far below the limit of parsers. */
const DEEP_LEVELS = 300;

export const HOSTILE_TEXTS: readonly string[] = [
  '',
  ' ',
  '0',
  '-1',
  '1e999',
  'NaN',
  'Infinity',
  'null',
  'undefined',
  'true',
  '[object Object]',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '\u0000',
  'a\u0000b',
  '\ud800',
  '\udfff\ud800',
  '\ufeff',
  '\u202eabc',
  '\u2028',
  'e\u0301\u0301\u0301\u0301',
  '👩‍👩‍👧‍👦🏴‍☠️',
  '\ufffe\uffff',
  '\r\nx-injected: 1',
  "' OR 1=1 --",
  '"; DROP TABLE ledger_entry; --',
  '${jndi:ldap://127.0.0.1/a}',
  '{{7*7}}',
  '%s%n%d',
  '%00',
  '../../../../etc/passwd',
  '<script>alert(1)</script>',
  'file:///etc/passwd',
  'javascript:alert(1)',
  'http://',
  'http://[',
  'http://169.254.169.254/latest/meta-data/',
  'http://127.0.0.1:1/',
  'http://10.0.0.1/',
  'http://[::1]:1/',
  'http://user:pass@127.0.0.1:1/',
  'data:',
  'data:;base64,',
  'data:image/png;base64,AAAA',
  'data:application/pdf;base64,JVBERi0xLjcK',
  'data:text/html;charset=utf-16,%ff%fe',
  '1970-01-01',
  '2026-02-30',
  '9999-12-31',
  '275760-09-13T00:00:00Z',
  '0x52908400098527886E0F7030069857D2E4169EE7',
  'a'.repeat(257),
  'x'.repeat(LONG_CHARS),
  '\ud83d'.repeat(1_000),
  '`'.repeat(5_000),
  '<think>'.repeat(500),
];

export const HOSTILE_NUMBERS: readonly number[] = [
  0,
  -0,
  1,
  -1,
  0.1,
  -0.5,
  1e-9,
  5e-324,
  1.5e9,
  1e21,
  1e308,
  -1e308,
  2 ** 31 - 1,
  2 ** 31,
  -(2 ** 31) - 1,
  2 ** 32,
  2 ** 53 - 1,
  2 ** 53,
  -(2 ** 53) - 2,
  2 ** 63,
  2 ** 64,
  Number.MAX_VALUE,
];

const HOSTILE_SHAPES: readonly unknown[] = [
  null,
  true,
  false,
  [],
  {},
  [null],
  [[]],
  [{}],
  [''],
  own('__proto__', { isAdmin: true }),
  own('constructor', { prototype: {} }),
  { toJSON: 'x', valueOf: 'x', length: -1 },
  own('then', 'x'),
  { '': '' },
  nested((inner) => [inner]),
  nested((inner) => ({ a: inner })),
  Array.from({ length: 3_000 }, () => 0),
];

export const hostileText: fc.Arbitrary<string> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...HOSTILE_TEXTS) },
  { weight: 1, arbitrary: fc.string({ unit: anyCharacter, maxLength: 40 }) },
  { weight: 1, arbitrary: fc.string({ maxLength: 40 }) },
);

/** Any JSON value. */
export const hostileValue: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 3, arbitrary: hostileText },
  { weight: 2, arbitrary: fc.constantFrom(...HOSTILE_NUMBERS) },
  { weight: 1, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }) },
  { weight: 3, arbitrary: fc.constantFrom(...HOSTILE_SHAPES) },
  { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
);

/** Adds an own member whose name has a special meaning in assignments. */
function own(name: string, value: unknown): unknown {
  return Object.fromEntries([[name, value]]);
}

function nested(around: (inner: unknown) => unknown): unknown {
  let value: unknown = 1;
  for (let level = 0; level < DEEP_LEVELS; level += 1) value = around(value);
  return value;
}
