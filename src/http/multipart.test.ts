/** Files in multipart bodies: what is taken, and that no body ends more than its own request. */
import assert from 'node:assert/strict';
import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { after, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { RequestContext } from './request-context.ts';
import { readFile, sizeBound, streamFile } from './multipart.ts';

const MAX_BYTES = 1_000;

function exchangeWith(body: string): RequestContext {
  const request = new IncomingMessage(new Socket());
  request.headers['content-type'] = 'multipart/form-data; boundary=x';
  const context = new RequestContext({
    requestId: 'r',
    request,
    response: new ServerResponse(request),
    parameters: {},
    address: '127.0.0.1',
    startedMs: 0,
    route: undefined,
    answerHeaders: {},
    countryOf: undefined,
    ended: () => undefined,
  });
  context.body = Buffer.from(body);
  return context;
}

const part = (name: string, content: string): string =>
  `--x\r\ncontent-disposition: form-data; name="${name}"; filename="a.png"\r\n\r\n${content}`;

describe('a multipart body', () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  before(() => process.on('uncaughtExceptionMonitor', note));
  after(() => process.off('uncaughtExceptionMonitor', note));
  beforeEach(() => {
    uncaught.length = 0;
  });

  test('returns the bytes of its file', async () => {
    const body = `${part('other', 'x')}\r\n${part('image', 'abc')}\r\n--x--\r\n`;
    const { bytes } = await readFile(exchangeWith(body), 'image', MAX_BYTES);
    assert.equal(bytes.toString(), 'abc');
  });

  test('that is streamed ends with its parser, also if parts follow the last boundary', async () => {
    const context = exchangeWith('');
    context.request.push('\r\n--x--\r\n\r\n--x\r\n\r\n--x--\r\n');
    context.request.push(null);
    const read = streamFile(context, 'image', MAX_BYTES, () => Promise.resolve());
    const late = delay(5_000, undefined, { ref: false }).then(() => assert.fail('no end'));
    await assert.rejects(Promise.race([read, late]), /no file field "image"/);
  });

  test('shows a limit of whole megabytes in megabytes', () => {
    assert.equal(sizeBound(24_999_999), 'less than 25 MB');
    assert.equal(sizeBound(25_000_000), 'at most 25000000 bytes');
    assert.equal(sizeBound(3000), 'at most 3000 bytes');
  });

  for (const [name, body, code] of [
    ['that ends inside the file', part('image', 'abc'), 'INVALID_REQUEST'],
    ['that ends inside another file', part('other', 'abc'), 'INVALID_REQUEST'],
    ['that ends inside the head of a part', part('image', '').slice(0, 30), 'INVALID_REQUEST'],
    ['without the file', '--x--\r\n', 'INVALID_REQUEST'],
    [
      'with the file twice',
      `${part('image', 'a')}\r\n${part('image', 'b')}\r\n--x--\r\n`,
      'INVALID_REQUEST',
    ],
    [
      'with too large a file',
      `${part('image', 'a'.repeat(MAX_BYTES + 1))}\r\n--x--\r\n`,
      'PAYLOAD_TOO_LARGE',
    ],
  ] as const) {
    test(`${name} is ${code}, without an unhandled error`, async () => {
      await assert.rejects(readFile(exchangeWith(body), 'image', MAX_BYTES), { code });
      // Streams tell their errors a tick later.
      await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(uncaught, []);
    });
  }
});
