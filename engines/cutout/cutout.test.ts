import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { deflateSync } from 'node:zlib';
import { sharp } from '../../test/support/sharp.ts';
import { request } from 'undici';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import type { EngineProcess } from '../../src/engines/embedded/supervisor.ts';
import type { FetchModel } from '../../src/engines/embedded/model-files.ts';
import { cutoutEngine } from '../../src/engines/embedded/programs.ts';
import { until } from '../../test/support/until.ts';
import {
  toyCutoutModel,
  portraitMaskSvg,
  portraitSvg,
} from '../../test/support/engine-fixtures.ts';

const folder = mkdtempSync(join(tmpdir(), 'cutout-'));

function engineWith(model: string, fetchModel: FetchModel): EngineProcess {
  const parts = { log: silentLog, clock: systemClock(), ids: systemIds() };
  return cutoutEngine({ model, threads: 1, fetchModel }, parts);
}

const noFetch: FetchModel = () => Promise.reject(new Error('no network here'));
const engine = engineWith('person', noFetch);
after(async () => {
  await engine.close();
  rmSync(folder, { recursive: true });
});

interface Result {
  readonly status: number;
  readonly type: string;
  readonly body: Buffer;
  readonly model: string;
}

async function send(
  body: Buffer | FormData,
  contentType: string | undefined = 'application/octet-stream',
  target = engine,
): Promise<Result> {
  const { url, apiKey } = await target.address();
  const headers = { authorization: `Bearer ${apiKey}` };
  const answer = await request(`${url}/api/remove`, {
    method: 'POST',
    headers: body instanceof Buffer ? { ...headers, 'content-type': contentType } : headers,
    body,
  });
  return {
    status: answer.statusCode,
    type: String(answer.headers['content-type']),
    model: String(answer.headers['x-model']),
    body: Buffer.from(await answer.body.arrayBuffer()),
  };
}

async function pixels(png: Buffer): Promise<{ data: Buffer; width: number; height: number }> {
  const { data, info } = await sharp(png).ensureAlpha().raw().toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height };
}

/** Alpha value of one pixel. */
async function alpha(png: Buffer, x: number, y: number): Promise<number> {
  const { data, width } = await pixels(png);
  return data[(y * width + x) * 4 + 3]!;
}

const portrait = await sharp(Buffer.from(portraitSvg())).jpeg({ quality: 82 }).toBuffer();

/** Asserts that the person is opaque and the upper left background is transparent. */
async function assertCut(png: Buffer, width = 640, height = 480): Promise<void> {
  const facts = await sharp(png).metadata();
  assert.deepEqual(
    [facts.format, facts.width, facts.height, facts.hasAlpha],
    ['png', width, height, true],
  );
  assert.ok((await alpha(png, Math.round(width / 2), Math.round(height * 0.4))) > 240);
  assert.ok((await alpha(png, Math.round(width * 0.05), Math.round(height * 0.05))) < 10);
}

describe('the bundled person model', () => {
  test('the matte follows the true outline with a soft edge at full size', async () => {
    const answer = await send(portrait, 'image/jpeg');
    assert.deepEqual([answer.status, answer.type, answer.model], [200, 'image/png', 'person']);
    const cut = await pixels(answer.body);
    const truth = await sharp(Buffer.from(portraitMaskSvg())).greyscale().raw().toBuffer();
    let inBoth = 0;
    let inEither = 0;
    let soft = 0;
    let error = 0;
    for (let i = 0; i < truth.length; i += 1) {
      const [mine, real] = [cut.data[i * 4 + 3]!, truth[i]!];
      if (mine > 127 && real > 127) inBoth += 1;
      if (mine > 127 || real > 127) inEither += 1;
      if (mine > 8 && mine < 247) soft += 1;
      error += Math.abs(mine - real) / 255;
    }
    assert.ok(inBoth / inEither > 0.99, `intersection over union ${inBoth / inEither}`);
    assert.ok(error / truth.length < 0.004, `mean difference ${error / truth.length}`);
    assert.ok(soft > 1000 && soft < 0.05 * truth.length, `${soft} soft pixels`);
  });

  test('a small image is finished before the large one of another caller', async () => {
    const large = await sharp(portrait).resize(4_000, 3_000).jpeg().toBuffer();
    const { url, apiKey } = await engine.address();
    const order: string[] = [];
    const cut = async (caller: string, body: Buffer): Promise<void> => {
      const headers = { authorization: `Bearer ${apiKey}`, [CALLER_HEADER]: caller };
      const answer = await request(`${url}/api/remove`, { method: 'POST', headers, body });
      const png = Buffer.from(await answer.body.arrayBuffer());
      order.push(caller);
      assert.deepEqual([answer.statusCode, png.subarray(1, 4).toString()], [200, 'PNG']);
    };
    const first = cut('large', large);
    await delay(50);
    await Promise.all([first, cut('small', portrait)]);
    assert.deepEqual(order, ['small', 'large']);
  });

  test('a multipart body works as with rembg', async () => {
    const form = new FormData();
    form.set('file', new Blob([new Uint8Array(portrait)], { type: 'image/jpeg' }), 'me.jpg');
    const { url, apiKey } = await engine.address();
    const headers = { authorization: `Bearer ${apiKey}` };
    const answer = await fetch(`${url}/api/remove`, { method: 'POST', headers, body: form });
    assert.equal(answer.status, 200);
    await assertCut(Buffer.from(await answer.arrayBuffer()));
  });

  const kinds: Record<string, () => Promise<Buffer>> = {
    'a palette PNG': () => sharp(portrait).png({ palette: true, colours: 64 }).toBuffer(),
    'a 16-bit PNG': () => sharp(portrait).toColourspace('rgb16').png().toBuffer(),
    'a CMYK JPEG': () => sharp(portrait).toColourspace('cmyk').jpeg().toBuffer(),
    'a WebP': () => sharp(portrait).webp().toBuffer(),
    'an AVIF': () => sharp(portrait).avif({ effort: 0 }).toBuffer(),
    'a TIFF': () => sharp(portrait).tiff().toBuffer(),
    'a GIF': () => sharp(portrait).gif().toBuffer(),
    'a progressive JPEG': () => sharp(portrait).jpeg({ progressive: true }).toBuffer(),
    'an interlaced PNG': () => sharp(portrait).png({ progressive: true }).toBuffer(),
    'the first frame of an animation': async () => {
      const frame = await sharp(portrait).png().toBuffer();
      const black = await sharp(frame).linear(0, 0).png().toBuffer();
      return await sharp([frame, black], { join: { animated: true } })
        .webp()
        .toBuffer();
    },
  };
  for (const [name, make] of Object.entries(kinds)) {
    test(`${name} is cut out`, async () => {
      const answer = await send(await make());
      assert.equal(answer.status, 200, answer.body.toString('latin1', 0, 200));
      await assertCut(answer.body);
    });
  }

  test('a greyscale image stays grey', async () => {
    const answer = await send(await sharp(portrait).greyscale().png().toBuffer());
    assert.equal(answer.status, 200);
    const { data } = await pixels(answer.body);
    const middle = (240 * 640 + 320) * 4;
    assert.equal(data[middle], data[middle + 2]);
    await assertCut(answer.body);
  });

  test('the EXIF orientation is applied', async () => {
    // Stored rotated, with the EXIF orientation tag that says how to rotate it back.
    const stored = await sharp(portrait)
      .rotate(270)
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer();
    const answer = await send(stored);
    assert.equal(answer.status, 200);
    await assertCut(answer.body);
  });

  test('transparent pixels stay transparent', async () => {
    const holed = await sharp(portrait)
      .composite([
        {
          input: Buffer.from('<svg width="40" height="40"><rect width="40" height="40"/></svg>'),
          left: 300,
          top: 180,
          blend: 'dest-out',
        },
      ])
      .png()
      .toBuffer();
    const answer = await send(holed);
    assert.equal(await alpha(answer.body, 320, 200), 0);
    assert.ok((await alpha(answer.body, 320, 150)) > 240);
  });

  test('a large image keeps its size', async () => {
    const large = await sharp(portrait).resize(3200, 2400).jpeg().toBuffer();
    const answer = await send(large);
    assert.equal(answer.status, 200);
    await assertCut(answer.body, 3200, 2400);
  });
});

function chunk(type: string, data: Buffer): Buffer {
  const size = Buffer.alloc(4);
  size.writeUInt32BE(data.length);
  // The CRC is wrong on purpose: the decoder must tolerate it.
  return Buffer.concat([size, Buffer.from(type, 'latin1'), data, Buffer.alloc(4)]);
}

function pngHeader(width: number, height: number): Buffer {
  const data = Buffer.alloc(13);
  data.writeUInt32BE(width, 0);
  data.writeUInt32BE(height, 4);
  data.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', data)]);
}

const CRLF = '\r\n';
const plain = (text: string): Buffer => Buffer.from(text);
const solid = (width: number, height: number) =>
  sharp({ create: { width, height, channels: 3, background: '#808080' } });

/** Hostile or broken input: name, factory, expected status and code. */
const HOSTILE: [string, () => Promise<Buffer> | Buffer, number, string][] = [
  ['an empty body', () => Buffer.alloc(0), 400, 'CORRUPTED_IMAGE'],
  ['a text', () => plain('this is certainly not an image'), 415, 'INVALID_CONTENT_TYPE'],
  ['an SVG', () => plain(portraitSvg()), 415, 'INVALID_CONTENT_TYPE'],
  [
    'an SVG that reads a file',
    () => plain('<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'),
    415,
    'INVALID_CONTENT_TYPE',
  ],
  [
    'an HTML page',
    () => plain('<!doctype html><html><body>no</body></html>'),
    415,
    'INVALID_CONTENT_TYPE',
  ],
  ['a PDF', () => plain(`%PDF-1.7${'\n'.repeat(50)}%%EOF`), 415, 'INVALID_CONTENT_TYPE'],
  [
    'a ZIP',
    () => Buffer.concat([plain('PK\x03\x04'), Buffer.alloc(64)]),
    415,
    'INVALID_CONTENT_TYPE',
  ],
  [
    'an MP4',
    () => Buffer.concat([Buffer.from([0, 0, 0, 24]), plain('ftypisom'), Buffer.alloc(64)]),
    415,
    'INVALID_CONTENT_TYPE',
  ],
  [
    'a HEIC',
    () => Buffer.concat([Buffer.from([0, 0, 0, 24]), plain('ftypheic'), Buffer.alloc(64)]),
    415,
    'INVALID_CONTENT_TYPE',
  ],
  [
    'an AVIF brand with invalid data',
    () => Buffer.concat([Buffer.from([0, 0, 0, 24]), plain('ftypavif'), Buffer.alloc(64, 7)]),
    400,
    'CORRUPTED_IMAGE',
  ],
  [
    'a JPEG start with invalid data',
    () => Buffer.concat([Buffer.from([0xff, 0xd8, 0xff]), Buffer.alloc(4096, 0x55)]),
    400,
    'CORRUPTED_IMAGE',
  ],
  ['half a JPEG', () => portrait.subarray(0, portrait.length / 2), 400, 'CORRUPTED_IMAGE'],
  [
    'half a PNG',
    async () => {
      const png = await sharp(portrait).png().toBuffer();
      return png.subarray(0, png.length / 2);
    },
    400,
    'CORRUPTED_IMAGE',
  ],
  [
    'half a WebP',
    async () => {
      const webp = await sharp(portrait).webp().toBuffer();
      return webp.subarray(0, webp.length / 2);
    },
    400,
    'CORRUPTED_IMAGE',
  ],
  [
    'a PNG that claims 60000 x 60000',
    () =>
      Buffer.concat([
        pngHeader(60_000, 60_000),
        chunk('IDAT', deflateSync(Buffer.alloc(1_000_000))),
      ]),
    422,
    'IMAGE_TOO_LARGE',
  ],
  [
    'a PNG with width 0',
    () => Buffer.concat([pngHeader(0, 500), chunk('IDAT', deflateSync(Buffer.alloc(10)))]),
    400,
    'CORRUPTED_IMAGE',
  ],
  ['a PNG without pixels', () => pngHeader(640, 480), 400, 'CORRUPTED_IMAGE'],
  ['an image of one pixel', () => solid(1, 1).png().toBuffer(), 400, 'IMAGE_TOO_SMALL'],
  ['an image one pixel too small', () => solid(255, 257).png().toBuffer(), 400, 'IMAGE_TOO_SMALL'],
  ['an image of 36 megapixels', () => solid(6000, 6000).png().toBuffer(), 422, 'IMAGE_TOO_LARGE'],
  ['25 megabytes', () => Buffer.alloc(25_000_000, 1), 413, 'PAYLOAD_TOO_LARGE'],
  [
    'a TIFF with invalid offsets',
    () => Buffer.concat([plain('II*\0'), Buffer.alloc(200, 0xff)]),
    400,
    'CORRUPTED_IMAGE',
  ],
];

describe('hostile images', () => {
  let pid: number | undefined;
  before(async () => {
    await engine.address();
    pid = engine.pid;
  });

  for (const [name, make, status, code] of HOSTILE) {
    test(`${name} is rejected with ${status} ${code}`, async () => {
      const answer = await send(await make());
      const body = JSON.parse(answer.body.toString()) as { error: string; code: string };
      assert.deepEqual([answer.status, body.code], [status, code]);
      assert.match(body.error, /^[A-Z].*[^.]$/);
    });
  }

  test('an invalid multipart body is rejected with 400', async () => {
    const part = `--x${CRLF}Content-Disposition: form-data; name="other"; filename="a"${CRLF}${CRLF}abc${CRLF}`;
    for (const [type, body] of [
      ['multipart/form-data; boundary=x', `${part}--x--${CRLF}`],
      ['multipart/form-data; boundary=x', part],
      ['multipart/form-data', part],
    ] as const) {
      assert.equal((await send(plain(body), type)).status, 400);
    }
  });

  test('a wrong secret, path or method is rejected with 401, 404 or 405', async () => {
    const { url, apiKey } = await engine.address();
    const authorization = `Bearer ${apiKey}`;
    const status = async (path: string, options: object): Promise<number> => {
      const answer = await request(`${url}${path}`, options);
      await answer.body.dump();
      return answer.statusCode;
    };
    assert.equal(await status('/api/remove', { method: 'POST', body: portrait }), 401);
    assert.equal(await status('/else', { headers: { authorization } }), 404);
    assert.equal(await status('/api/remove', { headers: { authorization } }), 405);
  });

  test('the process survives all hostile images', async () => {
    assert.equal((await send(portrait)).status, 200);
    assert.equal(engine.pid, pid);
  });
});

describe('the general model', () => {
  test('it is fetched on first use, replaces the bundled model, and is used after a restart', async () => {
    const path = join(folder, 'toy.onnx');
    writeFileSync(path, toyCutoutModel());
    const gate = Promise.withResolvers<void>();
    const requested = Promise.withResolvers<void>();
    const general = engineWith('u2netp', async (file, onProgress) => {
      onProgress({ bytesDone: file.sizeBytes / 2, bytesPerSecond: 0 });
      requested.resolve();
      await gate.promise;
      return path;
    });
    // Left half bright, right half dark: the test model keeps bright pixels.
    const picture = await solid(400, 300)
      .composite([
        {
          input: { create: { width: 200, height: 300, channels: 3, background: '#fff' } },
          left: 0,
          top: 0,
        },
      ])
      .png()
      .toBuffer();
    try {
      assert.equal((await send(picture, undefined, general)).model, 'person');
      await requested.promise;
      assert.equal(general.modelOutage()?.reason, 'is being downloaded: 50 %');
      gate.resolve();
      let answer = await send(picture, undefined, general);
      while (answer.model === 'person') answer = await send(picture, undefined, general);
      assert.equal(answer.model, 'u2netp');
      assert.deepEqual(
        [await alpha(answer.body, 50, 150), await alpha(answer.body, 350, 150)],
        [255, 0],
      );
      assert.equal(general.modelOutage(), undefined);
      process.kill(general.pid!, 'SIGKILL');
      await until(() => general.pid === undefined, 'the end of the process');
      assert.equal((await send(picture, undefined, general)).model, 'u2netp');
    } finally {
      await general.close();
    }
  });

  test('it can be a file of the operator, whose name is in the response', async () => {
    for (const side of [320, 1024] as const) {
      const path = join(folder, `my-model-${side}.onnx`);
      writeFileSync(path, toyCutoutModel(side));
      const own = engineWith(path, noFetch);
      try {
        const answer = await send(portrait, undefined, own);
        assert.deepEqual([answer.status, answer.model], [200, `my-model-${side}`]);
      } finally {
        await own.close();
      }
    }
    const missing = engineWith(join(folder, 'missing.onnx'), noFetch);
    await assert.rejects(missing.address(), /missing\.onnx/);
    await missing.close();
  });

  test('after a failed fetch the person model stays in use', async () => {
    const offline = engineWith('u2netp', noFetch);
    try {
      assert.equal((await send(portrait, undefined, offline)).model, 'person');
      const hasFailed = () => offline.modelOutage()?.reason.startsWith('could not') === true;
      await until(hasFailed, 'the end of the fetch');
      assert.equal((await send(portrait, undefined, offline)).status, 200);
    } finally {
      await offline.close();
    }
  });
});
