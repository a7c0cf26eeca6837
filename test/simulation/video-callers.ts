/** Callers that queue a video, sometimes cancel it, wait until it has ended, and retrieve it. */
import { untilDecided } from './callers.ts';
import type { Town } from './town.ts';
import { isFilm } from './video-studio.ts';
import { DefectFound, world } from './world.ts';

export const VIDEO_MODEL = 'v';
export const VIDEO_USD = 0.001;
const MAX_PAUSE_MS = 10_000;
/** A finished video is retrieved later, often after a crash. */
const MAX_LATER_MS = 30_000;
const LOOK_MS = 3_000;

/** Makes one video after the other until the run is over. */
export async function makeVideos(town: Town, name: string): Promise<void> {
  const { random } = world();
  for (let count = 1; ; count += 1) {
    await world().sleep(random.between(1, MAX_PAUSE_MS));
    if (town.isOver) return;
    const account = random.pick(town.accounts);
    await makeVideo(town, account.secret, `${name}-${count}`);
  }
}

async function makeVideo(town: Town, secret: string, key: string): Promise<void> {
  const { random } = world();
  const ask = untilDecided(town, key, secret);
  const queued = await ask('/video/queue', {
    headers: { 'idempotency-key': key, 'x-svc-metadata': JSON.stringify({ key }) },
    body: videoBody(key),
  });
  const id = /"queue_id":"([^"]+)"/.exec(queued.body)?.[1];
  if (id === undefined) {
    // Without credit, or above the limit of the key.
    if (queued.status === 402) return;
    throw new DefectFound(`${key} was rejected: ${queued.body}`);
  }
  const lookup = { body: { queue_id: id } };
  if (random.once(5)) {
    await world().sleep(random.between(1, LOOK_MS));
    await ask('/video/cancel', lookup);
  }
  const ended = new RegExp(`"queue_id":"${id}"[^{}]*?"status":"(COMPLETED|FAILED|CANCELLED)"`);
  let state: string | undefined;
  while (state === undefined) {
    if (town.isCalm) throw new DefectFound(`${key} did not end`);
    await world().sleep(random.between(1, LOOK_MS));
    state = ended.exec((await ask('/video/jobs', { method: 'GET' })).body)?.[1];
  }
  if (state !== 'COMPLETED') return;
  town.happens('confirmation');
  await world().sleep(random.between(1, MAX_LATER_MS));
  const { status, body } = await ask('/video/retrieve', lookup);
  if (status !== 200 || !isFilm(body, key))
    throw new DefectFound(`${key} is charged, and its video is ${status} ${body.slice(0, 100)}`);
}

export function videoBody(prompt: string): object {
  return { model: VIDEO_MODEL, prompt, duration: '1s' };
}
