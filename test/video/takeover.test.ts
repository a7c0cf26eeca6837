import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { sharp } from '../support/sharp.ts';
import { Media } from '../../src/engines/media/media.ts';
import { videoEngine } from '../../src/engines/embedded/programs.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { openTestStore } from '../databases/stores.ts';
import { type Place, openVideo } from './open-video.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { fastClock } from '../support/fast-clock.ts';
import { until } from '../support/until.ts';
import { portraitSvg } from '../support/engine-fixtures.ts';

const folder = mkdtempSync(join(tmpdir(), 'takeover-'));
const clock = systemClock();
const fast = fastClock(5);
/** Leases of a dead process have expired a minute later. The server polls a job every few seconds. */
const later: Clock = { ...fast, nowMs: () => fast.nowMs() + 60_000 };
const engine = videoEngine(
  { directory: join(folder, 'engine'), searchPath: '' },
  { log: silentLog, clock, ids: systemIds() },
);
after(async () => {
  await engine.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts an owner, waits for the state, and kills it. Returns the id of the job. */
async function killedIn(state: string, place: Place): Promise<string> {
  const owner: ChildProcess = endWithUs(
    fork(new URL('./owner-process.ts', import.meta.url), [], {
      // Removes the environment of the test run.
      env: childEnvironment(),
      execArgv: [],
    }),
  );
  const imagePath = join(place.folder, 'given.png');
  writeFileSync(imagePath, await sharp(Buffer.from(portraitSvg())).png().toBuffer());
  owner.send({ ...place, imagePath });
  for (;;) {
    const [message] = (await once(owner, 'message')) as [{ id: string; state: string }];
    if (message.state !== state) continue;
    owner.kill('SIGKILL');
    await once(owner, 'exit');
    return message.id;
  }
}

async function finish(name: string, state: string, disturb: () => Promise<void>): Promise<void> {
  const { url, apiKey } = await engine.address();
  const home = mkdtempSync(join(folder, `${name}-`));
  const place: Place = {
    databaseUrl: `sqlite:${join(home, 'farebox.db')}`,
    folder: home,
    engineUrl: `${url}/v1`,
    engineKey: apiKey,
  };
  const id = await killedIn(state, place);
  await disturb();
  // A restarted engine has the same address.
  await engine.address();
  const store = await openTestStore(place.databaseUrl);
  const { video, engines, money } = openVideo(place, store, later);
  try {
    assert.deepEqual(await money.moves(id), ['hold']);
    video.start();
    const look = () => video.retrieve({ accountId: 'alice', queueId: id });
    let now = await look();
    await until(async () => (now = await look()).kind !== 'processing', 'the end of the job', 50);
    assert.ok(now.kind === 'media');
    const media = await Media.open({ searchPath: '', log: silentLog, clock });
    const facts = await media.probe(now.media.path, { signal: new AbortController().signal });
    assert.deepEqual([facts.video?.width, facts.video?.height], [320, 180]);
    assert.deepEqual(await money.moves(id), ['hold', 'settle']);
    await video.complete({ accountId: 'alice', queueId: id });
    assert.deepEqual(readdirSync(join(home, 'results')), []);
  } finally {
    await video.stop();
    await engines.close();
    await store.close();
  }
}

test('another process finishes a job whose owner is killed right after the submission', async () => {
  await finish('submitted', 'submitted', async () => undefined);
});

test('a job whose owner and engine are killed runs again and is charged once', async () => {
  await finish('both', 'submitted', async () => {
    const { pid } = engine;
    assert.ok(pid !== undefined);
    process.kill(pid, 'SIGKILL');
    await until(() => engine.pid === undefined, 'the end of the process');
  });
});

test('another process submits a job whose owner is killed before the submission', async () => {
  await finish('queued', 'queued', async () => undefined);
});
