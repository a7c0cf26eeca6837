/** The end of a server: every part of it ends, whatever became of the others. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startTestApp } from '../../test/app/test-app.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';

test('what fails at the end of a server is logged, and the rest ends all the same', async (t) => {
  const dataFolder = mkdtempSync(join(tmpdir(), 'farebox-server-'));
  t.after(() => rmSync(dataFolder, { recursive: true, force: true }));
  const lines: LogLine[] = [];
  const { app } = await startTestApp({ dataFolder, log: memoryLog(lines) });
  const failing = () => Promise.reject(new Error('away'));
  t.mock.method(app.engines, 'close', failing);
  t.mock.method(app.stores.ledger, 'stop', failing);
  const children = t.mock.method(app.localEngines, 'stop');
  await app.close();
  assert.equal(children.mock.callCount(), 1);
  const failed = lines.filter(({ level }) => level === 'error');
  assert.deepEqual(
    failed.map(({ message, fields }) => [message, fields['reason']]),
    Array.from({ length: 2 }, () => ['A part of the server has not ended well', 'away']),
  );
  // The lock of the data folder is free.
  const next = await startTestApp({ dataFolder });
  await next.stop();
});
