import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { openWorkFolder } from './work-folder.ts';

const root = mkdtempSync(join(tmpdir(), 'work-folder-'));
after(() => rmSync(root, { recursive: true, force: true }));

test('the folder of a killed process is deleted within minutes, that of a living one is kept', async () => {
  const ids = systemIds();
  const clock = new TestClock();
  // The clock does not advance, so the folder is never touched again.
  const dead = await openWorkFolder(root, { ids, clock: new TestClock(), log: silentLog });
  writeFileSync(join(dead.path, 'film'), 'x');
  const diedSeconds = clock.nowMs() / 1_000;
  utimesSync(dead.path, diedSeconds, diedSeconds);
  const living = await openWorkFolder(root, { ids, clock, log: silentLog });
  for (let minute = 0; minute < 4; minute += 1) {
    clock.advance(60_000);
    const touchedMs = clock.nowMs();
    await until(() => statSync(living.path).mtimeMs === touchedMs, 'the touch of a minute');
    assert.ok(existsSync(dead.path), `${minute} minutes`);
  }
  await until(() => {
    clock.advance(60_000);
    return !existsSync(dead.path);
  }, 'the deletion of the abandoned folder');
  assert.ok(existsSync(living.path));
  await living.remove();
  assert.equal(existsSync(living.path), false);
});
