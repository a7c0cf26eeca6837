/**
 * Malformed HTTP messages: a valid message with wrong, oversized or truncated lines, and first
 * bytes of other protocols. They are sent by socket, because HTTP clients reject them.
 */
import fc from 'fast-check';

/** Above the limit of 64 KiB for a head. */
const LARGE_HEAD_BYTES = 70_000;
const MANY_HEADERS = 3_000;

export interface RightMessage {
  readonly host: string;
  readonly authorization: string;
  readonly path: string;
  readonly body: string;
}

/** Lines of a message up to the empty one, and the rest. */
interface Message {
  readonly lines: readonly string[];
  readonly body: string;
}

type Wrong = (message: Message) => Message | string;

const header =
  (line: string): Wrong =>
  ({ lines, body }) => ({ lines: [...lines, line], body });

const without =
  (name: string): Wrong =>
  ({ lines, body }) => ({
    lines: lines.filter((line) => !line.toLowerCase().startsWith(`${name}:`)),
    body,
  });

const instead =
  (name: string, ...others: readonly string[]): Wrong =>
  (message) => {
    const { lines, body } = without(name)(message) as Message; // returns its own type
    return { lines: [...lines, ...others], body };
  };

const first =
  (change: (line: string) => string): Wrong =>
  ({ lines: [line = '', ...others], body }) => ({ lines: [change(line), ...others], body });

const chunked =
  (...body: readonly string[]): Wrong =>
  (message) => {
    const { lines } = instead('content-length', 'transfer-encoding: chunked')(message) as Message; // returns its own type
    return { lines, body: body.join('') };
  };

/** Mutations of a message, by name for readable failures. */
const WRONGS: Readonly<Record<string, Wrong>> = {
  nothing: (message) => message,
  'no host': without('host'),
  'two hosts': header('host: elsewhere.example'),
  'a host that is none': instead('host', 'host: :::'),
  'no version': first((line) => line.replace(/ HTTP.*/, '')),
  'version 0.9': first((line) => line.replace('1.1', '0.9')),
  'version 1.0': first((line) => line.replace('1.1', '1.0')),
  'version 9.9': first((line) => line.replace('1.1', '9.9')),
  'a method in small letters': first((line) => line.toLowerCase()),
  'a method of signs': first((line) => line.replace('POST', 'P{}ST')),
  'a method nobody knows': first((line) => line.replace('POST', 'BREW')),
  'a tunnel': first(() => 'CONNECT example.com:443 HTTP/1.1'),
  'a path of another server': first((line) => line.replace(' /', ' http://elsewhere.example/')),
  'a path without a slash': first((line) => line.replace(' /', ' ')),
  'no path': first((line) => line.replace(/ \S+ /, '  ')),
  'a star': first((line) => line.replace(/ \S+ /, ' * ')),
  'a path with bytes': first((line) => line.replace('/api', '/\u0000\u00ff\u0080')),
  'a long path': first((line) => line.replace('/api', `/${'a'.repeat(LARGE_HEAD_BYTES)}`)),
  'a long query': first((line) => line.replace(' HTTP', `?a=${'b'.repeat(30_000)} HTTP`)),
  'a long header': header(`x-long: ${'a'.repeat(LARGE_HEAD_BYTES)}`),
  'many headers': ({ lines, body }) => ({
    lines: [...lines, ...Array.from({ length: MANY_HEADERS }, (_, index) => `x-${index}: 1`)],
    body,
  }),
  'a header without a colon': header('nonsense'),
  'a header without a name': header(': nothing'),
  'a space before the colon': header('x-a : 1'),
  'a folded header': header('x-a: 1\r\n 2'),
  'a header with a NUL': header('x-a: a\u0000b'),
  'a header with a bare return': header('x-a: a\rx-b: c'),
  'two lengths': header('content-length: 3'),
  'a length below zero': instead('content-length', 'content-length: -1'),
  'a length of letters': instead('content-length', 'content-length: abc'),
  'a length beyond numbers': instead('content-length', `content-length: ${'9'.repeat(40)}`),
  'a length that never comes': instead('content-length', 'content-length: 1000000'),
  'a length too short': instead('content-length', 'content-length: 3'),
  'a length and chunks': header('transfer-encoding: chunked'),
  'a coding nobody knows': instead('content-length', 'transfer-encoding: nonsense'),
  'chunks twice': instead('content-length', 'transfer-encoding: chunked, chunked'),
  'chunks without an end': chunked('5\r\nhello\r\n'),
  'a chunk size of letters': chunked('xyz\r\nhello\r\n0\r\n\r\n'),
  'a chunk size beyond numbers': chunked(`${'f'.repeat(30)}\r\nhello\r\n0\r\n\r\n`),
  'a chunk larger than its size': chunked('2\r\nhello\r\n0\r\n\r\n'),
  'a chunk with an extension': chunked(`2;${'a'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`),
  'chunks with a trailer': chunked('2\r\n{}\r\n0\r\nauthorization: Bearer x\r\n\r\n'),
  'an upgrade': header('connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__'),
  'bare line feeds': ({ lines, body }) => `${lines.join('\n')}\n\n${body}`,
  'no end of the head': ({ lines }) => lines.join('\r\n'),
  'another message behind': (message) => `${written(message)}${written(message)}`,
  'nonsense behind': (message) => `${written(message)}nonsense\r\n\r\n`,
  'the preface of HTTP/2': () => 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\u0000\u0000\u0000\u0004\u0000',
  'the hello of TLS': () => '\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\u00fc\u0003\u0003',
  'a proxy line': (message) => `PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n${written(message)}`,
  'empty lines': () => '\r\n'.repeat(5_000),
  'no bytes': () => '',
};

function written({ lines, body }: Message): string {
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** A message with one fault, and sometimes a changed byte or a missing end. */
export function heads(right: RightMessage): fc.Arbitrary<Buffer> {
  const message: Message = {
    lines: [
      `POST ${right.path} HTTP/1.1`,
      `host: ${right.host}`,
      `authorization: ${right.authorization}`,
      'content-type: application/json',
      `content-length: ${Buffer.byteLength(right.body)}`,
    ],
    body: right.body,
  };
  const slip = fc.option(fc.record({ at: fc.nat(2_000), byte: fc.nat(255), isCut: fc.boolean() }), {
    freq: 3,
  });
  return fc.tuple(fc.constantFrom(...Object.keys(WRONGS)), slip).map(([name, one]) => {
    const wrong = WRONGS[name]?.(message) ?? '';
    const bytes = Buffer.from(typeof wrong === 'string' ? wrong : written(wrong), 'latin1');
    if (one === null || bytes.length === 0) return bytes;
    if (one.isCut) return bytes.subarray(0, one.at % bytes.length);
    bytes[one.at % bytes.length] = one.byte;
    return bytes;
  });
}
