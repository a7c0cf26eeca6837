/**
 * A video job outlives its server: queued, the server killed with SIGKILL, started again, retrieved
 * and completed. Charged once, media gone, audit clean.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { openTestStore } from '../databases/stores.ts';
import { portraitJpeg } from '../media/clips.ts';
import { type FareboxProcess, startFarebox } from './farebox-process.ts';

const YAML = `listen: { host: 127.0.0.1, port: 0 }
embedded: { demo: false, download: false, threads: 1 }
discovery: { enabled: false }
log: { level: silent }
`;
/** Far above what a start or a video takes on any machine. */
const MOST_MS = 120_000;

test('a video survives a kill of the server and is charged once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-media-kill-'));
  let running: FareboxProcess | undefined;
  after(async () => {
    await running?.stop('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  });
  running = await startFarebox({ folder, yaml: YAML });
  const { secret } = running;
  const post = async (path: string, body: unknown): Promise<Response> =>
    fetch(`${running?.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const until = async (ask: () => Promise<Response>, isDone: (answer: Response) => boolean) => {
    const endMs = performance.now() + MOST_MS;
    while (performance.now() < endMs) {
      const answer = await ask();
      if (isDone(answer)) return answer;
      await answer.arrayBuffer();
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return assert.fail('It took too long');
  };
  const image = (await portraitJpeg()).toString('base64');
  const order = {
    model: 'farebox-still-to-video',
    prompt: 'zoom out',
    duration: '3s',
    resolution: '360p',
    image_url: `data:image/jpeg;base64,${image}`,
  };
  await until(
    () => fetch(`${running?.url}/models/traits?type=video`),
    (answer) => Number(answer.headers.get('content-length')) > 60,
  );
  const queued = await post('/video/queue', order);
  const { queue_id: id } = (await queued.json()) as { queue_id: string };
  await running.stop('SIGKILL');
  running = await startFarebox({ folder, yaml: YAML });
  const film = await until(
    () => post('/video/retrieve', { queue_id: id }),
    (answer) => answer.headers.get('content-type') === 'video/mp4',
  );
  assert.equal(Buffer.from(await film.arrayBuffer()).toString('latin1', 4, 8), 'ftyp');
  assert.equal((await post('/video/complete', { model: order.model, queue_id: id })).status, 200);
  assert.equal((await post('/video/retrieve', { queue_id: id })).status, 404);
  await running.stop('SIGKILL');
  assert.deepEqual(readdirSync(join(folder, 'data/media/results')), []);
  assert.deepEqual(readdirSync(join(folder, 'data/media/inputs')), []);
  const store = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
  try {
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    assert.deepEqual((await ledger.audit()).differences, []);
    const charges = await store.query<{ id: string; amount_nano: bigint }>(
      "SELECT id, amount_nano FROM ledger_transfer WHERE kind = 'CHARGE'",
    );
    assert.deepEqual(
      charges.map((row) => [row.id, row.amount_nano]),
      [[id, 3_000_000n]],
    );
    const receipts = await store.query<{ status: string }>(
      'SELECT status FROM ledger_usage WHERE request_id = $1',
      [id],
    );
    assert.deepEqual(
      receipts.map((row) => row.status),
      ['completed'],
    );
  } finally {
    await store.close();
  }
});
