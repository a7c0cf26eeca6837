/** Media of chat content: real headers, limits, data URLs and a media server on loopback. */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { constants, deflateRawSync } from 'node:zlib';
import { ContentSection } from '../config/web-section.ts';
import { Fault, type FaultCode } from '../core/faults.ts';
import { imageSize, sniffMedia } from '../core/media-type.ts';
import { Guard } from '../net/guard.ts';
import { parseDataUrl } from './data-url.ts';
import { RequestMedia } from './request-media.ts';

const PATH = ['messages', '0', 'content', '1', 'image_url', 'url'];

const BLOCK_BYTES = 1_000_000;
/** The modulus of the Adler-32 checksum. */
const ADLER = 65_521;

/**
 * Like `deflateSync` of `sizeBytes` zeros, but compresses each repeated block once, because bombs
 * have thousands.
 */
function deflatedZeros(sizeBytes: number): Buffer {
  const block = deflateRawSync(Buffer.alloc(BLOCK_BYTES), { finishFlush: constants.Z_FULL_FLUSH });
  const last = deflateRawSync(Buffer.alloc(sizeBytes % BLOCK_BYTES));
  const checksum = Buffer.alloc(4);
  checksum.writeUInt16BE(sizeBytes % ADLER, 0);
  checksum.writeUInt16BE(1, 2);
  const blocks = Array.from({ length: Math.floor(sizeBytes / BLOCK_BYTES) }, () => block);
  return Buffer.concat([Buffer.from('789c', 'hex'), ...blocks, last, checksum]);
}

function png(widthPx: number, heightPx: number): Buffer {
  const chunk = (name: string, data: Buffer): Buffer => {
    const head = Buffer.alloc(4);
    head.writeUInt32BE(data.length);
    return Buffer.concat([head, Buffer.from(name), data, Buffer.alloc(4)]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(widthPx, 0);
  header.writeUInt32BE(heightPx, 4);
  header.set([8, 0], 8);
  const rows = deflatedZeros((widthPx + 1) * heightPx);
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    chunk('IDAT', rows),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function jpeg(widthPx: number, heightPx: number, profileBytes = 0): Buffer {
  const frame = Buffer.from('ffc0001108000000000301220002110103110100', 'hex');
  frame.writeUInt16BE(heightPx, 5);
  frame.writeUInt16BE(widthPx, 7);
  const parts = [Buffer.from('ffd8', 'hex')];
  for (let left = profileBytes; left > 0; left -= 60_000) {
    const segment = Buffer.alloc(60_002);
    segment.set([0xff, 0xe2]);
    segment.writeUInt16BE(60_000, 2);
    parts.push(segment);
  }
  return Buffer.concat([...parts, frame, Buffer.alloc(32)]);
}

function riff(form: string, chunk: string, body: Buffer): Buffer {
  const size = Buffer.alloc(4);
  size.writeUInt32LE(body.length);
  return Buffer.concat([
    Buffer.from('RIFF'),
    Buffer.alloc(4),
    Buffer.from(form + chunk),
    size,
    body,
  ]);
}

function ftyp(major: string, ...compatible: string[]): Buffer {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(16 + compatible.length * 4);
  return Buffer.concat([
    head,
    Buffer.from(`ftyp${major}\0\0\0\0${compatible.join('')}`),
    Buffer.alloc(64),
  ]);
}

function ispe(widthPx: number, heightPx: number): Buffer {
  const box = Buffer.alloc(20);
  box.writeUInt32BE(20, 0);
  box.write('ispe', 4);
  box.writeUInt32BE(widthPx, 12);
  box.writeUInt32BE(heightPx, 16);
  return box;
}

function dataUrl(mediaType: string, bytes: Buffer): string {
  return `data:${mediaType};base64,${bytes.toString('base64')}`;
}

let server: Server;
let base: string;
const paths: string[] = [];
const served: Record<string, { type: string; body: Buffer }> = {
  '/a.png': { type: 'image/png', body: png(100, 80) },
  '/page': { type: 'text/html', body: Buffer.from('<p>') },
  '/clip.mp4': { type: 'video/mp4', body: ftyp('isom', 'mp42') },
  '/doc.pdf': { type: 'application/pdf', body: Buffer.from('%PDF-1.7') },
  '/big': { type: 'application/octet-stream', body: Buffer.alloc(60_000) },
};
before(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? '';
    paths.push(path);
    const file = served[path];
    if (file === undefined) response.writeHead(302, { location: '/a.png' }).end();
    else response.writeHead(200, { 'content-type': file.type }).end(file.body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function media(
  limits: { maxImageBytes?: number; maxRequestBytes?: number } = {},
  engineFetches = false,
): RequestMedia {
  const guard = new Guard({ allow: ['127.0.0.0/8'] });
  return new RequestMedia({ guard, ...ContentSection.parse(limits) }, { engineFetches });
}

async function assertFault(work: () => unknown, code: FaultCode, message?: RegExp): Promise<void> {
  await assert.rejects(
    async () => await work(),
    (error: unknown) => {
      assert.ok(error instanceof Fault, String(error));
      assert.equal(error.code, code, error.message);
      if (message !== undefined) assert.match(error.message, message);
      return true;
    },
  );
}

test('`sniffMedia` detects media types by their bytes', () => {
  const table: readonly (readonly [Buffer, string | undefined])[] = [
    [png(1, 1), 'image/png'],
    [jpeg(1, 1), 'image/jpeg'],
    [Buffer.from('GIF89a'), 'image/gif'],
    [riff('WEBP', 'VP8 ', Buffer.alloc(20)), 'image/webp'],
    [riff('WAVE', 'fmt ', Buffer.alloc(20)), 'audio/wav'],
    [ftyp('avif'), 'image/avif'],
    [ftyp('heic', 'mif1'), 'image/heic'],
    [ftyp('mif1', 'heic'), 'image/heic'],
    [ftyp('mif1'), 'image/heif'],
    [ftyp('M4A ', 'isom'), 'audio/mp4'],
    [ftyp('isom', 'mp42'), 'video/mp4'],
    [ftyp('qt  '), 'video/quicktime'],
    [Buffer.from('\x1aE\xdf\xa3....B\x82\x84webm', 'latin1'), 'video/webm'],
    [Buffer.from('OggS\0'), 'audio/ogg'],
    [Buffer.from('fLaC\0'), 'audio/flac'],
    [Buffer.from('ID3\x04'), 'audio/mpeg'],
    [Buffer.from('fffb9064', 'hex'), 'audio/mpeg'],
    [Buffer.from('fff15080', 'hex'), 'audio/aac'],
    [Buffer.from('FORM\0\0\0\0AIFF'), 'audio/aiff'],
    [Buffer.from('%PDF-1.7'), 'application/pdf'],
    [Buffer.from('PK\x03\x04'), 'application/zip'],
    [Buffer.from('hello'), undefined],
    [Buffer.from('\ufeffwide text', 'utf16le'), undefined],
    [Buffer.alloc(0), undefined],
  ];
  for (const [bytes, mediaType] of table) assert.equal(sniffMedia(bytes), mediaType);
});

test('`imageSize` reads every header, and returns undefined for damaged ones', () => {
  const extended = Buffer.alloc(10);
  extended.writeUIntLE(639, 4, 3);
  extended.writeUIntLE(479, 7, 3);
  const lossy = Buffer.alloc(10);
  lossy.writeUInt16LE(640, 6);
  lossy.writeUInt16LE(480, 8);
  const lossless = Buffer.alloc(10);
  lossless[0] = 0x2f;
  lossless.writeUInt32LE(639 | (479 << 14), 1);
  const size = { width: 640, height: 480 };
  assert.deepEqual(imageSize(png(640, 480)), size);
  assert.deepEqual(imageSize(jpeg(640, 480)), size);
  assert.deepEqual(imageSize(riff('WEBP', 'VP8X', extended)), size);
  assert.deepEqual(imageSize(riff('WEBP', 'VP8 ', lossy)), size);
  assert.deepEqual(imageSize(riff('WEBP', 'VP8L', lossless)), size);
  assert.deepEqual(imageSize(Buffer.concat([ftyp('avif'), ispe(160, 120), ispe(640, 480)])), size);
  for (const broken of [
    Buffer.from('89504e470d0a1a0a', 'hex'),
    jpeg(640, 480).subarray(0, 8),
    ftyp('heic'),
    png(0, 5),
  ]) {
    assert.equal(imageSize(broken), undefined);
  }
});

test('`parseDataUrl` accepts base64 and percent-encoding only', () => {
  const url = parseDataUrl('data:Image/PNG;charset=x;base64,aGVsbG8=');
  assert.equal(url?.mediaType, 'image/png');
  assert.equal(url?.sizeBytes, 5);
  assert.equal(url?.head(2).toString(), 'he');
  assert.equal(url?.bytes().toString(), 'hello');
  assert.equal(parseDataUrl('data:,a%20b')?.bytes().toString(), 'a b');
  for (const bad of [
    '',
    'data:',
    'data:image/png;base64',
    'data:image/png;base64,<>',
    'http://a/',
    'data:x y,z',
    'data:,%zz',
  ]) {
    assert.equal(parseDataUrl(bad), undefined, bad);
  }
});

describe('images', () => {
  test('a valid data URL is unchanged, and a wrong media type is corrected', async () => {
    const url = dataUrl('image/png', png(100, 80));
    assert.equal(await media().image(url, PATH), url);
    assert.equal(await media().image(dataUrl('image/jpeg', png(100, 80)), PATH), url);
  });

  test('the size of a JPEG is found after a long profile', async () => {
    const url = dataUrl('image/jpeg', jpeg(300, 200, 300_000));
    assert.equal(await media().image(url, PATH), url);
    const small = dataUrl('image/jpeg', jpeg(300, 20, 300_000));
    await assertFault(() => media().image(small, PATH), 'IMAGE_TOO_SMALL', /300 x 20/);
  });

  test('a remote image becomes a data URL, without redirects', async () => {
    const loaded = await media().image(`${base}/a.png`, PATH);
    assert.equal(loaded, dataUrl('image/png', png(100, 80)));
    await assertFault(() => media().image(`${base}/moved`, PATH), 'FETCH_FAILED', /redirects/);
  });

  test('a small file with too many pixels is rejected', async () => {
    const taken = dataUrl('image/png', png(12_000, 10_000));
    assert.equal(await media().image(taken, PATH), taken);
    const bomb = dataUrl('image/png', png(60_000, 60_000));
    await assertFault(() => media().image(bomb, PATH), 'IMAGE_TOO_LARGE', /60000 x 60000 pixels/);
  });

  test('a file that is not an image, too small, too large or at an internal URL is rejected', async () => {
    const text = dataUrl('image/png', Buffer.from('hello'));
    await assertFault(
      () => media().image(text, PATH),
      'CORRUPTED_IMAGE',
      /messages\.0.*must be PNG/,
    );
    const gif = dataUrl('image/png', Buffer.from('GIF89a....'));
    await assertFault(() => media().image(gif, PATH), 'CORRUPTED_IMAGE', /this is image\/gif/);
    await assertFault(
      () => media().image(dataUrl('image/png', png(63, 100)), PATH),
      'IMAGE_TOO_SMALL',
      /63 x 100/,
    );
    const large = media({ maxImageBytes: 50 });
    await assertFault(
      () => large.image(dataUrl('image/png', png(100, 100)), PATH),
      'PAYLOAD_TOO_LARGE',
    );
    await assertFault(() => media().image('not a url', PATH), 'UNSAFE_URL');
    await assertFault(() => media().image('data:nonsense', PATH), 'INVALID_REQUEST');
    await assertFault(() => media().image('http://10.0.0.1/a.png', PATH), 'UNSAFE_URL');
    await assertFault(() => media().image(`${base}/page`, PATH), 'FETCH_FAILED');
  });

  test('the URL is passed to an engine that fetches, after it was checked', async () => {
    const before = paths.length;
    assert.equal(await media({}, true).image(`${base}/a.png`, PATH), `${base}/a.png`);
    assert.equal(paths.length, before);
    await assertFault(() => media({}, true).image('http://169.254.169.254/', PATH), 'UNSAFE_URL');
  });

  test('the bytes of all fetches of one request are limited', async () => {
    const one = media({ maxRequestBytes: 100_000 });
    const file = { file_data: `${base}/big` };
    await one.file(file, PATH);
    await assertFault(() => one.file(file, PATH), 'PAYLOAD_TOO_LARGE');
  });
});

test('audio must be base64 in a declared or detected format', async () => {
  const wav = riff('WAVE', 'fmt ', Buffer.alloc(20)).toString('base64');
  assert.deepEqual(media().audio({ data: wav }, PATH), { data: wav, format: 'wav' });
  assert.equal(
    media().audio({ data: `data:audio/wav;base64,${wav}`, format: 'WAV' }, PATH).data,
    wav,
  );
  assert.equal(media().audio({ data: 'AAAA', format: 'pcm16' }, PATH).data, 'AAAA');
  for (const audio of [
    { data: '' },
    { data: 'https://a.example/a.wav' },
    { data: 'AAAA' },
    { data: wav, format: 'mid' },
  ]) {
    await assertFault(() => media().audio(audio, PATH), 'INVALID_AUDIO_FORMAT');
  }
});

test('videos and files are loaded from data URLs and from http URLs', async () => {
  const clip = await media().video(`${base}/clip.mp4`, PATH);
  assert.ok(clip.startsWith('data:video/mp4;base64,'));
  await assertFault(
    () => media().video(dataUrl('video/mp4', png(1, 1)), PATH),
    'INVALID_VIDEO_FORMAT',
  );
  const remote = await media().file({ file_data: `${base}/doc.pdf` }, PATH);
  assert.deepEqual([remote.filename, remote.mediaType], ['doc.pdf', 'application/pdf']);
  const inline = await media().file(
    { filename: 'a.txt', file_data: 'data:text/plain;base64,aGk=' },
    PATH,
  );
  assert.deepEqual([inline.filename, inline.bytes.toString()], ['a.txt', 'hi']);
  await assertFault(
    () => media().file({ filename: 'a', file_data: 'data:text/plain;base64,' }, PATH),
    'INVALID_REQUEST',
  );
});
