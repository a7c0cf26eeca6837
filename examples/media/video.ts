/**
 * Generates a video from an image: quote, queue, poll, save, complete.
 *
 *   FAREBOX_URL=http://127.0.0.1:8402/api/v1 FAREBOX_KEY=… npx node examples/media/video.ts me.jpg me.mp4
 */
import { readFile, writeFile } from 'node:fs/promises';
import { argv, env } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

const url = env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const key = env['FAREBOX_KEY'] ?? '';
/** The default suits the embedded engine; use 5 to 10 seconds for a larger one. */
const pollMs = Number(env['POLL_MS'] ?? '1000');
const [, , photo = 'photo.jpg', output = 'video.mp4'] = argv;

async function post(path: string, body: object): Promise<Response> {
  const response = await fetch(url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response;
}

const order = {
  model: 'farebox-still-to-video',
  duration: '2s',
  resolution: '360p',
  aspect_ratio: '16:9',
};
const { quote } = (await (await post('/video/quote', order)).json()) as { quote: number };
console.log(`The video will cost ${quote} USD`);

const image = `data:image/jpeg;base64,${(await readFile(photo)).toString('base64')}`;
const queued = await post('/video/queue', { ...order, prompt: 'zoom out', image_url: image });
const { queue_id: id } = (await queued.json()) as { queue_id: string };

for (;;) {
  const response = await post('/video/retrieve', { queue_id: id });
  if (response.headers.get('content-type') === 'video/mp4') {
    await writeFile(output, Buffer.from(await response.arrayBuffer()));
    break;
  }
  const { progress, remaining_time: leftMs } = (await response.json()) as {
    progress: number;
    remaining_time: number;
  };
  console.log(`${Math.round(progress * 100)} %, about ${Math.ceil(leftMs / 1000)} s left`);
  await sleep(pollMs);
}
await post('/video/complete', { model: order.model, queue_id: id });
console.log(`Saved ${output}; the server has deleted its copy`);
