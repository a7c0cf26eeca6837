/** Memory and disk space of large media. Disk space is reserved before it is used. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { makeClip, makeSound, portraitJpeg } from '../media/clips.ts';
import { type Site, openSite } from '../media/site.ts';
import { until } from '../support/until.ts';

const MB = 1_000_000;
const LARGE_BYTES = 120 * MB;
/** Size factor for media that is only counted, a sixth of the real size. */
const SMALLER_BYTES = 20 * MB;
const PICTURE_BYTES = 10 * MB;

const folder = mkdtempSync(join(tmpdir(), 'farebox-room-'));
let site: Site;
let farebox: TestApp;
let crowded: TestApp;
/** A server on which one open video uses the storage of its caller. */
let full: TestApp;
let clip: Buffer;
/** Bytes of each upload that has ended. */
const uploads: number[] = [];
let takesOrders = true;
let spokenTexts = 0;
let sound: Buffer;
let picture: Buffer;
const engine = createServer((request, response) => {
  if (request.url === '/v1/audio/speech') {
    spokenTexts += 1;
    response.writeHead(200, { 'content-type': 'audio/mpeg' });
    return void response.end(sound);
  }
  if (request.url === '/v1/images/generations') {
    response.writeHead(200, { 'content-type': 'application/json' });
    return void response.end(JSON.stringify({ data: [{ b64_json: picture.toString('base64') }] }));
  }
  let size = 0;
  request.on('data', (chunk: Buffer) => (size += chunk.length));
  request.on('end', () => {
    if (request.method === 'POST') uploads.push(size);
    const status = takesOrders ? 200 : 503;
    response.writeHead(status, { 'content-type': 'application/json', 'retry-after': '1' });
    response.end(JSON.stringify({ id: `v${uploads.length}`, status: 'in_progress' }));
  });
});

/** A box of an MP4 that players skip. */
function freeBox(bytes: number, content = bytes - 8): Buffer<ArrayBuffer> {
  const box = Buffer.alloc(8 + content);
  box.writeUInt32BE(bytes, 0);
  box.write('free', 4);
  return box;
}

/** A video of two seconds in a file of `bytes`. */
function padded(bytes: number) {
  return (response: ServerResponse): void => {
    response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': bytes });
    const head = freeBox(bytes - clip.length, 0);
    response.write(Buffer.concat([clip, head]));
    const zeros = Buffer.alloc(MB);
    let left = bytes - clip.length - head.length;
    const more = (): void => {
      while (left > 0) {
        const piece = zeros.subarray(0, Math.min(left, zeros.length));
        left -= piece.length;
        if (!response.write(piece)) return void response.once('drain', more);
      }
      response.end();
    };
    more();
  };
}

before(async () => {
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
  const port = uploadsPort();
  site = await openSite();
  clip = await makeClip(folder, {
    letters: 'ab',
    width: 160,
    height: 120,
    seconds: 2,
    framesPerSecond: 12,
  });
  sound = await makeSound(folder, 'ab ba', 'mp3');
  picture = await portraitJpeg();
  site.pages.set('/large.mp4', padded(LARGE_BYTES));
  site.pages.set('/smaller.mp4', padded(SMALLER_BYTES));
  farebox = await startTestApp({ yaml: settings(port, { all: 1_600, each: 1_600 }) });
  crowded = await startTestApp({ yaml: settings(port, { all: 1_250, each: 750 }) });
  const yaml = `${settings(port, { all: 1_250, each: 205 })}video: { maxOpenJobs: 1 }\n`;
  full = await startTestApp({ yaml });
});
after(async () => {
  for (const server of [farebox, crowded, full]) {
    await server.audit();
    await server.stop();
  }
  engine.closeAllConnections();
  engine.close();
  await site.close();
  rmSync(folder, { recursive: true, force: true });
});

function uploadsPort(): number {
  return (engine.address() as AddressInfo).port; // the address of a TCP server
}

/** Storage limits in megabytes, for all callers and for each. */
function settings(port: number, room: { readonly all: number; readonly each: number }): string {
  return `fetch: { allow: [127.0.0.0/8] }
engines: { studio: { url: "http://127.0.0.1:${port}/v1" } }
limits: { plans: { staff: { videoQueue: 1000, videoRetrieve: 10000 }, paid: { videoQueue: 1000 } } }
media: { maxStoredMb: ${room.all}, maxStoredMbPerCaller: ${room.each} }
models:
  - id: larger
    type: video
    replicas: [{ engine: studio }]
    video: { task: upscale, pricing: { kind: upscale, tiers: [{ maxHeight: 480, perSecond: 0.001 }], fastAbove: 30, maxSourceSeconds: 9 } }
  - id: moving
    type: video
    replicas: [{ engine: studio }]
    video: { task: image-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.01 } }
  - { id: speaker, type: tts, replicas: [{ engine: studio }], price: { perMillionCharacters: 15 } }
  - { id: hearer, type: asr, replicas: [{ engine: studio }], price: { perSecond: 0.0001 } }
  - { id: painter, type: image, replicas: [{ engine: studio }], price: { perImage: 0.01 } }
`;
}

async function queue(order: object, server = farebox, key = server.owner.secret) {
  const answer = await fetch(`${server.url}/video/queue`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(order),
  });
  const body = (await answer.json()) as Record<string, unknown>; // the tests check single fields
  return { status: answer.status, body, id: String(body['queue_id']) };
}

async function cancel(id: string, server = farebox, key = server.owner.secret): Promise<void> {
  await fetch(`${server.url}/video/cancel`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ queue_id: id }),
  });
}

const upscale = (film: string) => ({
  model: 'larger',
  video_url: `${site.url}/${film}.mp4`,
  upscale_factor: 2,
});

test('videos of 120 MB are streamed without being in memory', async () => {
  const heldNow = (): number => process.memoryUsage().arrayBuffers;
  const startBytes = heldNow();
  let peakBytes = startBytes;
  const watch = setInterval(() => (peakBytes = Math.max(peakBytes, heldNow())), 5);
  const queued = await Promise.all([1, 2, 3].map(() => queue(upscale('large'))));
  await until(() => uploads.length >= 3, 'that three films are sent');
  clearInterval(watch);
  for (const { id } of queued) await cancel(id);
  assert.equal(uploads.length, 3, JSON.stringify(queued));
  for (const bytes of uploads) assert.ok(bytes > LARGE_BYTES && bytes < LARGE_BYTES + 10_000);
  const grownMb = (peakBytes - startBytes) / MB;
  // Chunks that wait to be collected are among it, those of the site of this test too.
  assert.ok(grownMb < 250, `${grownMb} MB were held for 360 MB of films`);
});

test('the disk space of each caller and of all callers is limited', async () => {
  takesOrders = false;
  const other = await crowded.account('1');
  const third = await crowded.account('1');
  const mine: string[] = [];
  const refusedFor = async (key: string, ids: string[]) => {
    for (let turn = 0; turn < 10; turn += 1) {
      const { status, body, id } = await queue(upscale('smaller'), crowded, key);
      if (status !== 200) return { status, body };
      ids.push(id);
    }
    return assert.fail('Nothing was refused');
  };
  const full = await refusedFor(crowded.owner.secret, mine);
  assert.deepEqual([full.status, full.body['code']], [429, 'RATE_LIMIT_EXCEEDED']);
  assert.match(String(full.body['error']), /exceeds 750 MB on this server/);
  assert.equal(mine.length, 3);
  const theirs: string[] = [];
  const all = await refusedFor(other.secret, theirs);
  assert.deepEqual([all.status, all.body['code']], [503, 'SERVICE_UNAVAILABLE']);
  // Rejected requests leave no files, and completed ones release their space.
  const kept = readdirSync(join(crowded.config.dataFolder, 'media/inputs'));
  assert.deepEqual(kept.toSorted(), [...mine, ...theirs].toSorted());
  for (const work of readdirSync(join(crowded.config.dataFolder, 'work'))) {
    assert.deepEqual(readdirSync(join(crowded.config.dataFolder, 'work', work)), []);
  }
  for (const id of mine) await cancel(id, crowded);
  assert.equal((await queue(upscale('smaller'), crowded, third.secret)).status, 200);
  takesOrders = true;
});

test('an image in the request is stored as a file before the job is queued', async () => {
  const picture = Buffer.concat([await portraitJpeg(), Buffer.alloc(PICTURE_BYTES)]);
  const image_url = `data:image/jpeg;base64,${picture.toString('base64')}`;
  const { length } = uploads;
  const { status, body, id } = await queue({
    model: 'moving',
    prompt: 'pan left',
    duration: '1 gen',
    image_url,
  });
  assert.equal(status, 200, JSON.stringify(body));
  const isPicture = (size: number): boolean =>
    size > picture.length && size < picture.length + 10_000;
  await until(() => uploads.slice(length).some(isPicture), 'that the picture is sent');
  await cancel(id);
});

test('sound that is longer than its timestamps say counts with its samples', async (t) => {
  const seconds = 60;
  const film = await makeClip(folder, {
    letters: ' '.repeat(seconds),
    width: 64,
    height: 48,
    seconds,
    framesPerSecond: 0.05,
  });
  const small = await startTestApp({ yaml: settings(uploadsPort(), { all: 1_250, each: 17 }) });
  t.after(() => small.stop());
  const body = new FormData();
  // Almost the 16 MB that a request counts at once.
  body.set('file', new Blob([hurried(film), freeBox(15 * MB)]), 'film.mp4');
  body.set('model', 'hearer');
  const { length } = uploads;
  const answer = await fetch(`${small.url}/audio/transcriptions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${small.owner.secret}` },
    body,
  });
  assert.equal(answer.status, 429, await answer.clone().text());
  assert.match(await answer.text(), /exceeds 17 MB on this server/);
  assert.equal(uploads.length, length);
});

/** An MP4 whose packets have a sixteenth of their duration. */
function hurried(film: Buffer): Buffer<ArrayBuffer> {
  const hurriedFilm = Buffer.from(film);
  const each = (box: string, change: (at: number) => void): void => {
    for (let at = film.indexOf(box); at !== -1; at = film.indexOf(box, at + 4)) change(at);
  };
  const shorten = (at: number): void => {
    hurriedFilm.writeUInt32BE(Math.ceil(film.readUInt32BE(at) / 16), at);
  };
  each('stts', (at) => {
    for (let entry = 0; entry < film.readUInt32BE(at + 8); entry += 1) {
      shorten(at + 16 + 8 * entry);
    }
  });
  for (const box of ['mvhd', 'mdhd']) each(box, (at) => shorten(at + 20));
  each('tkhd', (at) => shorten(at + 24));
  each('elst', (at) => shorten(at + 12));
  return hurriedFilm;
}

describe('a caller whose open video uses all of its disk space', () => {
  let id: string;
  before(async () => {
    const image_url = `data:image/jpeg;base64,${picture.toString('base64')}`;
    const film = { model: 'moving', prompt: 'pan left', duration: '1 gen', image_url };
    const queued = await queue(film, full);
    assert.equal(queued.status, 200);
    ({ id } = queued);
  });
  after(() => cancel(id, full));

  const call = (path: string, body: object) =>
    fetch(full.url + path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${full.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify(body),
    });

  test('gets and pays for an image that was generated', async () => {
    const painted = await call('/images/generations', { model: 'painter', prompt: 'a bay' });
    assert.equal(painted.status, 200, await painted.text());
  });

  test('is rejected before speech is generated', async () => {
    const said = { model: 'speaker', input: 'Good morning' };
    const rejected = await call('/audio/speech', said);
    assert.equal(rejected.status, 429);
    assert.match(await rejected.text(), /exceeds 205 MB on this server/);
    assert.equal(spokenTexts, 0);
    await cancel(id, full);
    const spoken = await call('/audio/speech', said);
    assert.equal(spoken.status, 200);
    assert.deepEqual(Buffer.from(await spoken.arrayBuffer()), sound);
  });
});
