/**
 * Results are validated before they are charged: cutouts, vectors, transcripts, chats and searches
 * of engines that respond 200 with invalid data. `sold-films.test.ts` has videos.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { crc32 } from 'node:zlib';
import { sharp } from '../support/sharp.ts';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { toneWav } from '../media/clips.ts';

const [width, height] = [320, 240];
const photo = await sharp({ create: { width, height, channels: 3, background: '#336699' } })
  .jpeg()
  .toBuffer();
const image = photo.toString('base64');

/** An image in which only the left `kept` columns are visible. */
const cut = (kept: number, size = { width, height }) => {
  const data = Buffer.alloc(size.width * size.height * 4, 0x80);
  for (let at = 0; at < size.width * size.height; at += 1) {
    data[at * 4 + 3] = at % size.width < kept ? 255 : 0;
  }
  return sharp(data, { raw: { ...size, channels: 4 } });
};
const right = await cut(100).png().toBuffer();

type Answer = (response: ServerResponse, asked: Buffer) => unknown;

const engine = { answer: ((response) => response.end()) as Answer };
const pages = new Map<string, Buffer | string>();
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const page = pages.get(new URL(request.url ?? '/', 'http://engine').pathname);
    if (page !== undefined) response.end(page);
    else void engine.answer(response, Buffer.concat(chunks));
  });
});
let address: string;
let farebox: TestApp;

before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  address = `http://127.0.0.1:${port}`;
  farebox = await startTestApp({
    yaml: `fetch: { allow: [127.0.0.0/8] }
engines: { rack: { url: "${address}/v1" }, rembg: { protocol: rembg, url: "${address}" }, spare: { protocol: rembg, url: "${address}" } }
search: { provider: brave, url: "${address}", apiKey: key }
limits: { guard: { failures: 100000 }, plans: { staff: { image: 100000, audio: 100000 } } }
models:
  - id: scissors
    type: inpaint
    description: Cuts out people.
    price: { perImage: 0.02 }
    replicas: [{ engine: rembg }]
  - id: two-scissors
    type: inpaint
    price: { perImage: 0.02 }
    replicas: [{ engine: rembg }, { engine: spare }]
  - id: ears
    type: asr
    price: { perSecond: 0.0001 }
    replicas: [{ engine: rack }]
  - id: vectors
    type: embedding
    price: { input: 1000 }
    embedding: { dimensions: 3, maxBatch: 2, customDimensions: true }
    replicas: [{ engine: rack }]
  - id: talker
    type: text
    context: 32000
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack }]
`,
  });
});
after(async () => {
  await farebox.audit();
  await farebox.stop();
  server.closeAllConnections();
  server.close();
});

interface Answered {
  readonly status: number;
  readonly bytes: Buffer;
  readonly body: Record<string, unknown>;
  readonly receipt: string | undefined;
  readonly cost: bigint;
}

async function spent(): Promise<bigint> {
  const { usdNano } = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
  return farebox.owner.creditNano - usdNano;
}

async function post(path: string, request: unknown): Promise<Answered> {
  const before = await spent();
  const answer = await fetch(farebox.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${farebox.owner.secret}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(request),
  });
  const bytes = Buffer.from(await answer.arrayBuffer());
  const isJson = (answer.headers.get('content-type') ?? '').startsWith('application/json');
  const id = answer.headers.get('x-request-id') ?? '';
  const { store } = farebox.app.stores;
  const receipt = await receiptOf(store, farebox.owner.accountId, id);
  return {
    status: answer.status,
    bytes,
    body: isJson ? (JSON.parse(bytes.toString()) as Record<string, unknown>) : {},
    receipt: receipt?.status,
    cost: (await spent()) - before,
  };
}

function assertUnpaid(answered: Answered, status: number, code: string): void {
  const { body, cost, receipt } = answered;
  const told = answered.bytes.toString('utf8', 0, 300);
  assert.deepEqual([answered.status, body['code'], cost], [status, code, 0n], told);
  assert.equal(receipt, 'failed');
}

function json(value: unknown): Answer {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return (response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(text);
  };
}

describe('a cutout', () => {
  /** The chunk of a type, with its place. */
  const chunkAt = (png: Buffer, type: string): { start: number; length: number } => {
    const start = png.indexOf(type, 0, 'latin1') - 4;
    return { start, length: png.readUInt32BE(start) + 12 };
  };
  /** The PNG without one of its chunks. */
  const without = (type: string): Buffer => {
    const { start, length } = chunkAt(right, type);
    return Buffer.concat([right.subarray(0, start), right.subarray(start + length)]);
  };
  /** The PNG with half of its pixels, and every checksum right. */
  const halved = (): Buffer => {
    const { start, length } = chunkAt(right, 'IDAT');
    const data = right.subarray(start + 8, start + 8 + Math.floor((length - 12) / 2));
    const chunk = Buffer.concat([Buffer.alloc(4), Buffer.from('IDAT'), data, Buffer.alloc(4)]);
    chunk.writeUInt32BE(data.length, 0);
    chunk.writeUInt32BE(crc32(chunk.subarray(4, -4)), chunk.length - 4);
    return Buffer.concat([right.subarray(0, start), chunk, right.subarray(start + length)]);
  };
  const flipped = (): Buffer => {
    const png = Buffer.from(right);
    const { start } = chunkAt(right, 'IDAT');
    png[start + 40] = (png[start + 40] ?? 0) ^ 1;
    return png;
  };

  const GARBAGE: [string, () => Buffer | string | Promise<Buffer>][] = [
    ['nothing', () => ''],
    ['a web page', () => '<html>502</html>'],
    ['JSON', () => '{"error":"cuda out of memory"}'],
    ['a JPEG', () => photo],
    ['a WebP', () => cut(100).webp().toBuffer()],
    ['the first 200 bytes of a PNG', () => right.subarray(0, 200)],
    ['a PNG without its last byte', () => right.subarray(0, -1)],
    ['a PNG without its end', () => without('IEND')],
    ['a PNG without pixels', () => without('IDAT')],
    ['a PNG with half of its pixels', halved],
    ['a PNG with a wrong bit', flipped],
    ['a PNG without alpha', () => cut(100).removeAlpha().png().toBuffer()],
    ['a smaller PNG', () => cut(50, { width: 160, height: 120 }).png().toBuffer()],
  ];
  for (const [name, give] of GARBAGE) {
    test(`that is ${name} is not sold`, async () => {
      const bytes = await give();
      engine.answer = (response) => response.end(bytes);
      const answered = await post('/image/background-remove', { image, model: 'scissors' });
      assertUnpaid(answered, 500, 'INFERENCE_FAILED');
    });
  }

  for (const [name, kept, words] of [
    ['that kept nothing', 0, /removed the whole image/],
    ['that removed nothing', width, /removed less than 2 % of this image/],
    ['that removed less than 2 %', Math.ceil(width * 0.981), /removed less than 2 %/],
  ] as const) {
    test(`${name} is a refusal that says what the model can do`, async () => {
      engine.answer = async (response) => response.end(await cut(kept).png().toBuffer());
      const answered = await post('/image/background-remove', { image, model: 'scissors' });
      assertUnpaid(answered, 422, 'SUBJECT_NOT_FOUND');
      assert.match(String(answered.body['error']), words);
      assert.match(String(answered.body['error']), /Cuts out people/);
    });
  }

  test('is returned unchanged for every PNG alpha format', async () => {
    const ways = [
      right,
      await cut(1).png().toBuffer(),
      await cut(Math.floor(width * 0.979))
        .png()
        .toBuffer(),
      await cut(100).png({ progressive: true }).toBuffer(),
      await cut(100).png({ palette: true }).toBuffer(),
      await cut(100).toColourspace('rgb16').png().toBuffer(),
      await cut(100).greyscale().png().toBuffer(),
      await sharp(photo).ensureAlpha(0.5).png().toBuffer(),
    ];
    for (const [at, png] of ways.entries()) {
      engine.answer = (response) => response.end(png);
      const answered = await post('/image/background-remove', { image, model: 'scissors' });
      assert.deepEqual([answered.status, answered.cost], [200, 20_000_000n], `way ${at}`);
      assert.ok(answered.bytes.equals(png));
    }
  });

  test('that is not a PNG makes the server try another engine before it sends an error', async () => {
    let calls = 0;
    engine.answer = (response) => response.end((calls += 1) === 1 ? right.subarray(0, 200) : right);
    const answered = await post('/image/background-remove', { image, model: 'two-scissors' });
    assert.deepEqual([answered.status, answered.cost, calls], [200, 20_000_000n, 2]);
  });
});

describe('an embedding', () => {
  const item = (embedding: unknown, index = 0) => ({ object: 'embedding', index, embedding });
  const floats = (...values: number[]): string =>
    Buffer.from(Float32Array.from(values).buffer).toString('base64');
  const list = (...data: unknown[]) => ({ object: 'list', data, usage: { prompt_tokens: 5 } });
  const raw = (vector: string): string => `{"data":[{"index":0,"embedding":${vector}}]}`;

  const GARBAGE: [string, unknown][] = [
    ['too short', list(item([1, 2]))],
    ['too long', list(item([1, 2, 3, 4]))],
    ['base64 and too short', list(item(floats(1, 2)))],
    ['base64 of half a number', list(item(Buffer.alloc(14, 1).toString('base64')))],
    ['base64 with a NaN', list(item(floats(1, NaN, 3)))],
    ['base64 with an infinity', list(item(floats(1, 2, -Infinity)))],
    ['with null', list(item([1, null, 3]))],
    ['with NaN', raw('[1,NaN,3]')],
    ['with a number that no float holds', raw('[1,1e39,3]')],
    ['with a number that nothing holds', raw('[1,2,-1e999]')],
    ['with digits that are no numbers', raw('[1,2-3,4]')],
    ['with a gap', raw('[1,,3]')],
    ['with a comma too many', raw('[1,2,3,]')],
    ['with numbers that lack a comma', raw('[1 2,3,4]')],
    ['with text', list(item(['1', '2', '3']))],
    ['empty', list(item([]))],
    ['missing', list()],
    ['there twice', list(item([1, 2, 3]), item([1, 2, 3]))],
    ['of another input', list(item([1, 2, 3], 7))],
    ['a web page', '<html>502</html>'],
  ];
  for (const [name, answer] of GARBAGE) {
    test(`that is ${name} is not sold`, async () => {
      for (const format of ['float', 'base64']) {
        engine.answer = json(answer);
        const request = { model: 'vectors', input: 'a sea', encoding_format: format };
        assertUnpaid(await post('/embeddings', request), 500, 'INFERENCE_FAILED');
        const cut = { ...request, dimensions: 2 };
        assertUnpaid(await post('/embeddings', cut), 500, 'INFERENCE_FAILED');
      }
    });
  }

  test('that is invalid in the last of several calls is not charged', async () => {
    const answers = [list(item([1, 2, 3]), item([1, 2, 3], 1)), list(item([1, 2]))];
    engine.answer = (response, asked) => {
      const { input } = JSON.parse(asked.toString()) as { input: string[] };
      json(answers[2 - input.length])(response, asked);
    };
    const three = { model: 'vectors', input: ['a', 'b', 'c'] };
    assertUnpaid(await post('/embeddings', three), 500, 'INFERENCE_FAILED');
  });

  test('is charged with every number format, and with zeros', async () => {
    for (const vector of ['[1,-2.5e-3,0]', '[ 1 ,\n2E+1,\t-0.0 ]', '[0,0,0]', '[1e38,0e99,3]']) {
      engine.answer = json(raw(vector));
      const answered = await post('/embeddings', { model: 'vectors', input: 'a sea' });
      assert.equal(answered.status, 200, answered.bytes.toString());
      const [sold] = answered.body['data'] as { embedding: number[] }[];
      assert.deepEqual(sold?.embedding, JSON.parse(vector));
      assert.ok(answered.cost > 0n);
    }
  });
});

describe('a transcript', () => {
  const ask = (sound: string) => {
    pages.set('/sound.wav', toneWav(sound));
    return post('/video/transcriptions', { url: `${address}/sound.wav` });
  };
  const GARBAGE: [string, Answer][] = [
    ['nothing', (response) => response.end()],
    ['a web page', (response) => response.end('<html>502</html>')],
    ['JSON without text', json({ segments: [] })],
    ['null', json({ text: null })],
    ['an error beside no text', json({ text: '', error: 'cuda out of memory' })],
    ['longer than anybody speaks', json({ text: 'la '.repeat(5_000) })],
    ['of hundreds of words in two seconds', json({ text: 'la '.repeat(300) })],
    ['JSON that is cut', json('{"text":"Hel')],
  ];
  for (const [name, answer] of GARBAGE) {
    test(`that is ${name} is not sold`, async () => {
      engine.answer = answer;
      assertUnpaid(await ask('a b'), 502, 'ASR_UPSTREAM_FAILED');
    });
  }

  test('of silence is empty, and charged', async () => {
    engine.answer = json({ text: '', language: 'en' });
    const answered = await ask('  ');
    assert.deepEqual(answered.body, { transcript: '', lang: 'en' });
    assert.equal(answered.cost, 200_000n);
  });
});

describe('a chat', () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  const usage = { prompt_tokens: 500, completion_tokens: 500, total_tokens: 1_000 };
  const WHOLE: [string, Answer][] = [
    ['nothing', (response) => response.end()],
    ['a web page', (response) => response.end('<html>502</html>')],
    ['no choices', json({ usage })],
    ['an empty list of choices', json({ choices: [], usage })],
    ['a choice without a message', json({ choices: [{ index: 0 }], usage })],
    ['an error', json({ error: { message: 'cuda out of memory' }, usage })],
  ];
  for (const [name, answer] of WHOLE) {
    test(`whose answer is ${name} is free`, async () => {
      engine.answer = answer;
      const answered = await post('/chat/completions', { model: 'talker', messages });
      assertUnpaid(answered, 500, 'INFERENCE_FAILED');
    });
  }

  const events = (...data: string[]): Answer => {
    return (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(data.map((one) => `data: ${one}\n\n`).join(''));
    };
  };
  const STREAMED: [string, Answer][] = [
    ['nothing', (response) => response.end()],
    ['a web page', (response) => response.end('<html>502</html>')],
    ['an end alone', events('[DONE]')],
    ['usage alone', events(JSON.stringify({ choices: [], usage }), '[DONE]')],
    ['an error', events(JSON.stringify({ error: { message: 'cuda' }, usage }), '[DONE]')],
  ];
  for (const [name, answer] of STREAMED) {
    test(`whose stream is ${name} is free`, async () => {
      engine.answer = answer;
      const request = { model: 'talker', messages, stream: true };
      const { cost, bytes } = await post('/chat/completions', request);
      assert.equal(cost, 0n, bytes.toString());
      assert.match(bytes.toString(), /"error"/);
    });
  }
});

describe('a search', () => {
  const said = { choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' } }] };
  const search = async (found: string) => {
    engine.answer = json({ ...said, usage: { prompt_tokens: 0, completion_tokens: 0 } });
    pages.set('/res/v1/web/search', found);
    const messages = [{ role: 'user', content: 'What is new?' }];
    const request = { model: 'talker', messages, svc_parameters: { enable_web_search: 'on' } };
    return await post('/chat/completions', request);
  };
  const GARBAGE: [string, string][] = [
    ['a web page', '<html>502</html>'],
    ['an error', '{"type":"ErrorResponse","error":{"code":"QUOTA"}}'],
    ['null', 'null'],
    ['a list', '[]'],
    [
      'results without addresses',
      '{"type":"search","web":{"results":[{"a":1},{"url":"javascript:1"}]}}',
    ],
  ];
  for (const [name, found] of GARBAGE) {
    test(`that gives ${name} is free`, async () => {
      const answered = await search(found);
      assert.deepEqual([answered.status, answered.cost], [200, 0n], answered.bytes.toString());
    });
  }

  test('with or without results is charged', async () => {
    const found = { title: 'News', url: 'https://example.com/', description: 'All is well' };
    for (const results of [[found], []]) {
      const answered = await search(JSON.stringify({ type: 'search', web: { results } }));
      assert.deepEqual([answered.status, answered.cost], [200, 10_000_000n]);
    }
  });
});
