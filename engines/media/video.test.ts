import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { sharp } from '../../test/support/sharp.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import { Media } from '../../src/engines/media/media.ts';
import { videoEngine } from '../../src/engines/embedded/programs.ts';
import { focusOf, moveOf } from './video-service.ts';
import { portraitSvg } from '../../test/support/engine-fixtures.ts';

const folder = mkdtempSync(join(tmpdir(), 'video-'));
const clock = systemClock();
const engine = videoEngine(
  { directory: join(folder, 'jobs'), searchPath: '' },
  { log: silentLog, clock, ids: systemIds() },
);
const media = await Media.open({ searchPath: '', log: silentLog, clock });
const call = { signal: new AbortController().signal };
after(async () => {
  await engine.close();
  rmSync(folder, { recursive: true });
});

interface Video {
  readonly id: string;
  readonly status: string;
  readonly progress: number;
  readonly error: { code: string; message: string } | null;
}

async function ask(
  method: string,
  path: string,
  body?: FormData,
  further: Record<string, string> = {},
): Promise<Response> {
  const { url, apiKey } = await engine.address();
  const headers = { authorization: `Bearer ${apiKey}`, ...further };
  return await fetch(`${url}${path}`, { method, headers, ...(body && { body }) });
}

function form(fields: Record<string, string>, files: Record<string, Buffer> = {}): FormData {
  const result = new FormData();
  for (const [name, value] of Object.entries(fields)) result.set(name, value);
  for (const [name, data] of Object.entries(files))
    result.set(name, new Blob([new Uint8Array(data)]), name);
  return result;
}

/** Creates a video and polls until the job ends. */
async function make(body: FormData): Promise<{ video: Video; seen: Video[] }> {
  const created = await ask('POST', '/v1/videos', body);
  assert.equal(created.status, 200, await created.clone().text());
  let video = (await created.json()) as Video;
  const seen = [video];
  while (video.status === 'queued' || video.status === 'in_progress') {
    await clock.sleep(20);
    video = (await (await ask('GET', `/v1/videos/${video.id}`)).json()) as Video;
    seen.push(video);
  }
  return { video, seen };
}

const portrait = await sharp(Buffer.from(portraitSvg())).jpeg().toBuffer();

describe('the video engine', () => {
  test('an image becomes a video, which can be upscaled and deleted', async () => {
    const still = { model: 'still-to-video', prompt: 'pan left', seconds: '1', size: '160x90' };
    const { video, seen } = await make(form(still, { input_reference: portrait }));
    assert.deepEqual([video.status, video.progress, video.error], ['completed', 100, null]);
    assert.ok(seen.every((one, i) => i === 0 || one.progress >= seen[i - 1]!.progress));
    const content = await ask('GET', `/v1/videos/${video.id}/content`);
    assert.equal(content.headers.get('content-type'), 'video/mp4');
    const film = Buffer.from(await content.arrayBuffer());

    const larger = await make(
      form({ model: 'upscale', upscale_factor: '2' }, { input_video: film }),
    );
    assert.equal(larger.video.status, 'completed');
    const large = await ask('GET', `/v1/videos/${larger.video.id}/content`);
    writeFileSync(join(folder, 'large.mp4'), Buffer.from(await large.arrayBuffer()));
    const facts = await media.probe(join(folder, 'large.mp4'), call);
    assert.deepEqual([facts.video?.width, facts.video?.height], [320, 180]);

    for (const id of [video.id, larger.video.id]) {
      assert.equal((await ask('DELETE', `/v1/videos/${id}`)).status, 200);
      assert.equal((await ask('GET', `/v1/videos/${id}`)).status, 404);
    }
    assert.deepEqual(readdirSync(join(folder, 'jobs')), []);
  });

  test('a short video of one caller does not wait for the long ones of another', async () => {
    const order = (caller: string, seconds: string, size: string): Promise<Response> =>
      ask(
        'POST',
        '/v1/videos',
        form({ model: 'still-to-video', seconds, size }, { input_reference: portrait }),
        { [CALLER_HEADER]: caller },
      );
    const idOf = async (response: Response) => ((await response.json()) as Video).id;
    const statusOf = async (id: string) =>
      ((await (await ask('GET', `/v1/videos/${id}`)).json()) as Video).status;
    const long = [
      await idOf(await order('long', '30', '1920x1080')),
      await idOf(await order('long', '30', '1920x1080')),
    ];
    const short = await idOf(await order('short', '1', '64x64'));
    while ((await statusOf(short)) !== 'completed') await clock.sleep(100);
    assert.deepEqual(await Promise.all(long.map(statusOf)), ['in_progress', 'queued']);
    for (const id of [...long, short]) await ask('DELETE', `/v1/videos/${id}`);
  });

  test('a repeated request returns the first job, which contains its key', async () => {
    const order = () =>
      form({ model: 'still-to-video', seconds: '1', size: '64x64' }, { input_reference: portrait });
    const key = { 'idempotency-key': 'job-1-0' };
    const first = (await (await ask('POST', '/v1/videos', order(), key)).json()) as Video;
    const again = (await (await ask('POST', '/v1/videos', order(), key)).json()) as Video;
    const other = (await (await ask('POST', '/v1/videos', order())).json()) as Video;
    assert.equal(again.id, first.id);
    assert.notEqual(other.id, first.id);
    const list = (await (await ask('GET', '/v1/videos?limit=100&order=desc')).json()) as {
      data: { id: string; metadata: { idempotency_key?: string } }[];
    };
    assert.deepEqual(
      list.data.map(({ id, metadata }) => [id, metadata.idempotency_key]),
      [
        [other.id, undefined],
        [first.id, 'job-1-0'],
      ],
    );
    for (const { id } of [first, other]) await ask('DELETE', `/v1/videos/${id}`);
  });

  test('a failed job contains its error', async () => {
    const rubbish = Buffer.concat([
      Buffer.from([0, 0, 0, 24]),
      Buffer.from('ftypisom'),
      Buffer.alloc(99, 7),
    ]);
    const { video } = await make(form({ model: 'upscale' }, { input_video: rubbish }));
    assert.equal(video.status, 'failed');
    assert.equal(video.error?.code, 'INVALID_VIDEO_FORMAT');
    assert.equal((await ask('GET', `/v1/videos/${video.id}/content`)).status, 404);
  });

  test('an invalid request is rejected at once', async () => {
    const status = async (body: FormData): Promise<number> =>
      (await ask('POST', '/v1/videos', body)).status;
    assert.equal(await status(form({ model: 'other' })), 400);
    assert.equal(await status(form({ model: 'upscale' })), 400);
    assert.equal(await status(form({ model: 'upscale', upscale_factor: '3' })), 400);
    assert.equal(
      await status(form({ model: 'still-to-video', seconds: '31' }, { input_reference: portrait })),
      400,
    );
    assert.equal((await ask('PUT', '/v1/videos')).status, 405);
    assert.equal((await ask('GET', '/v1/nothing')).status, 404);
    const list = (await (await ask('GET', '/v1/models')).json()) as { data: { id: string }[] };
    assert.deepEqual(
      list.data.map(({ id }) => id),
      ['upscale', 'still-to-video'],
    );
  });

  test('deleting a job aborts it', async () => {
    const long = { model: 'still-to-video', seconds: '30', size: '1920x1080' };
    const created = (await (
      await ask('POST', '/v1/videos', form(long, { input_reference: portrait }))
    ).json()) as Video;
    await ask('DELETE', `/v1/videos/${created.id}`);
    const next = await make(
      form({ model: 'still-to-video', seconds: '1', size: '64x64' }, { input_reference: portrait }),
    );
    assert.equal(next.video.status, 'completed');
  });
});

test('`moveOf` returns the camera move of a prompt', () => {
  assert.equal(moveOf('Slowly zooming out of the harbour'), 'out');
  assert.equal(moveOf('pan to the left, golden light'), 'left');
  assert.equal(moveOf('the camera tilts up'), 'up');
  assert.equal(moveOf('a quiet scene'), 'in');
});

test('`focusOf` returns the part of the image that a prompt names', () => {
  assert.deepEqual(focusOf('a quiet scene'), { x: 0.5, y: 0.5 });
  assert.deepEqual(focusOf('pan left'), { x: 0.5, y: 0.5 });
  assert.deepEqual(focusOf('zoom in on the tower at the upper right'), { x: 1, y: 0 });
  assert.deepEqual(focusOf('pan right, keep the boat on the left'), { x: 0, y: 0.5 });
  assert.deepEqual(focusOf('her face in golden light'), { x: 0.5, y: 0.25 });
  assert.deepEqual(focusOf('the feet at the bottom, not the sky'), { x: 0.5, y: 1 });
});
