/**
 * Bodies of requests: JSON values, forms and multipart forms, and mutations of their bytes. A body
 * includes its headers.
 */
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { hostileText } from './hostile.ts';

export interface Body {
  readonly bytes: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

const JSON_TYPE = 'application/json';

/** A valid JSON body. */
export function jsonBody(value: unknown): Body {
  return {
    bytes: Buffer.from(JSON.stringify(value) ?? ''),
    headers: { 'content-type': JSON_TYPE },
  };
}

type Break = (text: string, at: number) => string | Buffer;

/** Mutations of the bytes of a body, by name for readable failures. */
const BREAKS: Readonly<Record<string, Break>> = {
  empty: () => '',
  blank: () => ' \r\n\t ',
  cut: (text, at) => text.slice(0, at % (text.length + 1)),
  'more after': (text) => `${text}{}`,
  twice: (text) => text.replace(/^\{("[^"]*":)/, '{$1null,$1'),
  'twice at the end': (text) => text.replace(/\}$/, ',"model":1,"model":"atlas"}'),
  'own proto': (text) => text.replace(/^\{/, '{"__proto__":{"model":"atlas"},'),
  'number too large': (text, at) => withNumber(text, at, '1e999'),
  'number not JSON': (text, at) => withNumber(text, at, 'NaN'),
  'number of many digits': (text, at) => withNumber(text, at, `1${'0'.repeat(400)}`),
  'number with a zero before': (text, at) => withNumber(text, at, '01'),
  'minus zero': (text, at) => withNumber(text, at, '-0'),
  'lone surrogate': (text) => text.replace(/"([^"]*)"$/m, String.raw`"\ud800$1"`),
  'bad escape': (text) => text.replace(/"/, String.raw`"\x`),
  'single quotes': (text) => text.replaceAll('"', "'"),
  comment: (text) => `/* hi */${text}`,
  'byte order mark': (text) => `\ufeff${text}`,
  'utf-16': (text) => Buffer.from(text, 'utf16le'),
  'bytes that are no text': (text, at) =>
    Buffer.concat([
      Buffer.from(text.slice(0, at % (text.length + 1))),
      Buffer.from([0xff, 0xc0, 0x80]),
    ]),
  'a bit of noise': (text, at) => {
    const bytes = Buffer.from(text);
    if (bytes.length > 0) bytes[at % bytes.length] = (at * 31) % 256;
    return bytes;
  },
  deep: () => '['.repeat(100_000),
  'deep and closed': () => '[{"a":'.repeat(200) + '1' + '}]'.repeat(200),
  'no JSON at all': () => '<?xml version="1.0"?><a/>',
  'a NUL': (text) => `${text}\u0000`,
};

/** Replaces a value by a number. */
function withNumber(text: string, at: number, number: string): string {
  const spots = [...text.matchAll(/:(?:"[^"]*"|-?\d[\d.e+]*|true|false|null)/g)];
  const spot = spots[at % Math.max(1, spots.length)];
  if (spot === undefined) return number;
  return `${text.slice(0, spot.index)}:${number}${text.slice(spot.index + spot[0].length)}`;
}

const CONTENT_TYPES = [
  'application/json; charset=utf-8',
  'application/json;charset=utf-16',
  'application/json; charset="nonsense"',
  'application/json, text/plain',
  'APPLICATION/JSON',
  'application/problem+json',
  'application/jsonp',
  'text/json',
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data',
  'multipart/form-data; boundary=',
  'multipart/form-data; boundary="a b"',
  'application/octet-stream',
  '',
  ';;;',
  '*/*',
  `application/json; a=${'b'.repeat(2_000)}`,
];

/** A JSON body with one fault in its bytes, its type or its encoding. */
export function brokenJsonBody(value: fc.Arbitrary<unknown>): fc.Arbitrary<Body> {
  const bytes = fc
    .tuple(value, fc.constantFrom(...Object.keys(BREAKS)), fc.nat(5_000))
    .map(([made, name, at]) => {
      const text = BREAKS[name]?.(JSON.stringify(made) ?? '', at) ?? '';
      return { bytes: Buffer.from(text as string), headers: { 'content-type': JSON_TYPE } };
    });
  const type = fc.tuple(value, fc.constantFrom(...CONTENT_TYPES)).map(([made, contentType]) => ({
    ...jsonBody(made),
    headers: { 'content-type': contentType },
  }));
  const coding = fc
    .tuple(value, fc.constantFrom('gzip', 'deflate', 'br', 'identity', 'nonsense', 'gzip, gzip'))
    .map(([made, name]) => {
      const { bytes: plain, headers } = jsonBody(made);
      const packed = name === 'gzip' ? gzipSync(plain) : plain;
      return { bytes: packed, headers: { ...headers, 'content-encoding': name } };
    });
  return fc.oneof(
    { weight: 6, arbitrary: bytes },
    { weight: 2, arbitrary: type },
    { weight: 1, arbitrary: coding },
  );
}

/** The members of a value as a form. */
export function formBody(value: unknown): Body {
  const pairs = Object.entries(isObject(value) ? value : { value }).map(
    ([name, member]) =>
      `${encoded(name)}=${encoded(typeof member === 'string' ? member : (JSON.stringify(member) ?? ''))}`,
  );
  return {
    bytes: Buffer.from(pairs.join('&')),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  };
}

export interface Part {
  readonly name: string;
  readonly fileName: string | undefined;
  readonly bytes: Buffer;
}

const BOUNDARY = '----fuzz-7MA4YWxkTrZu0gW';

/** Valid parts of a form. */
export function partsBody(parts: readonly Part[]): Body {
  const written = parts.flatMap(({ name, fileName, bytes }) => [
    Buffer.from(
      `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${
        fileName === undefined ? '' : `; filename="${fileName}"\r\ncontent-type: image/png`
      }\r\n\r\n`,
    ),
    bytes,
    Buffer.from('\r\n'),
  ]);
  return {
    bytes: Buffer.concat([...written, Buffer.from(`--${BOUNDARY}--\r\n`)]),
    headers: { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` },
  };
}

/** Multipart forms around a file in `field`: valid ones, other parts, and mutated bytes. */
export function partsBodies(field: string, files: readonly Buffer[]): fc.Arbitrary<Body> {
  const file = fc.record({
    name: fc.oneof(
      { weight: 6, arbitrary: fc.constant(field) },
      { weight: 1, arbitrary: hostileText.map(unquoted) },
    ),
    fileName: fc.oneof(
      { weight: 6, arbitrary: fc.constant('a.png') },
      { weight: 1, arbitrary: hostileText.map(unquoted) },
      { weight: 1, arbitrary: fc.constant(undefined) },
    ),
    bytes: fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(...files) },
      { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...files), fc.nat(50_000)).map(spoilt) },
      { weight: 1, arbitrary: fc.uint8Array({ maxLength: 40 }).map((made) => Buffer.from(made)) },
    ),
  });
  const text = fc.record({
    name: fc.oneof(
      fc.constantFrom('model', 'response_format', 'language', 'timestamp_granularities[]'),
      hostileText.map(unquoted),
    ),
    fileName: fc.constant(undefined),
    bytes: hostileText.map((made) => Buffer.from(made)),
  });
  const whole = fc
    .tuple(fc.array(file, { maxLength: 2 }), fc.array(text, { maxLength: 20 }))
    .map(([some, others]) => partsBody([...others, ...some]));
  const broken = fc
    .tuple(
      whole,
      fc.constantFrom('cut', 'no boundary', 'other boundary', 'noise', 'nothing'),
      fc.nat(5_000),
    )
    .map(([body, kind, at]) => brokenParts(body, kind, at));
  return fc.oneof({ weight: 3, arbitrary: whole }, { weight: 2, arbitrary: broken });
}

function brokenParts({ bytes, headers }: Body, kind: string, at: number): Body {
  switch (kind) {
    case 'cut':
      return { bytes: bytes.subarray(0, at % (bytes.length + 1)), headers };
    case 'no boundary':
      return { bytes, headers: { 'content-type': 'multipart/form-data' } };
    case 'other boundary':
      return { bytes, headers: { 'content-type': 'multipart/form-data; boundary=other' } };
    case 'nothing':
      return { bytes: Buffer.alloc(0), headers };
    default:
      return { bytes: spoilt([bytes, at]), headers };
  }
}

/** Changes one byte of a file, or removes its end. */
function spoilt([bytes, at]: readonly [Buffer, number]): Buffer {
  if (at % 2 === 0) return bytes.subarray(0, at % (bytes.length + 1));
  const copy = Buffer.from(bytes);
  if (copy.length > 0) copy[at % copy.length] = at % 256;
  return copy;
}

function unquoted(text: string): string {
  return text.replaceAll(/["\r\n]/g, '');
}

/** As `encodeURIComponent`, for any text. */
export function encoded(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
