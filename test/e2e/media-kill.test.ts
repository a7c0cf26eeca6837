/**
 * A video job outlives its server: queued, the server killed with SIGKILL, started again, retrieved
 * and completed. Charged once, media gone, audit clean.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../src/kernel/clock.ts';
import { systemIds } from '../../src/kernel/ids.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Ledger } from '../../src/ledger/ledger.ts';
import { openTestStore } from '../databases/stores.ts';
import { portraitJpeg } from '../media/clips.ts';

const BINARY = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

interface Running {
  readonly child: ChildProcess;
  readonly url: string;
  readonly secret: string | undefined;
}

function start(folder: string): Promise<Running> {
  const child = spawn(process.execPath, [BINARY, 'serve'], {
    cwd: folder,
    env: {},
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (data: Buffer) => {
      text += data.toString();
      const url = /listens on (\S+)/.exec(text)?.[1];
      if (url === undefined || !text.endsWith('\n\n')) return;
      resolve({ child, url, secret: /SVC_INFERENCE_KEY_[\w-]+/.exec(text)?.[0] });
    });
    child.once('exit', (code) => reject(new Error(`The server ended with ${code}: ${text}`)));
  });
}

async function kill({ child }: Running): Promise<void> {
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await gone;
}

test('queued, killed, started again, retrieved, completed: charged once and the media is gone', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-media-kill-'));
  let running: Running | undefined;
  after(async () => {
    if (running?.child.exitCode === null && running.child.signalCode === null) await kill(running);
    rmSync(folder, { recursive: true, force: true });
  });
  writeFileSync(
    join(folder, 'farebox.yaml'),
    `listen: { host: 127.0.0.1, port: 0 }
embedded: { demo: false, download: false, threads: 1 }
discovery: { enabled: false }
log: { level: silent }
`,
  );
  running = await start(folder);
  const { secret } = running;
  const post = async (path: string, body: unknown): Promise<Response> =>
    fetch(`${running?.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const until = async (ask: () => Promise<Response>, isDone: (answer: Response) => boolean) => {
    for (let turn = 0; turn < 900; turn += 1) {
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
  await kill(running);
  running = await start(folder);
  const film = await until(
    () => post('/video/retrieve', { queue_id: id }),
    (answer) => answer.headers.get('content-type') === 'video/mp4',
  );
  assert.equal(Buffer.from(await film.arrayBuffer()).toString('latin1', 4, 8), 'ftyp');
  assert.equal((await post('/video/complete', { model: order.model, queue_id: id })).status, 200);
  assert.equal((await post('/video/retrieve', { queue_id: id })).status, 404);
  await kill(running);
  assert.deepEqual(readdirSync(join(folder, 'data/media/results')), []);
  assert.deepEqual(readdirSync(join(folder, 'data/media/inputs')), []);
  const store = openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
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
