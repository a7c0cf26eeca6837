/** Shutdown and logs of a complete server. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { call, chatBody } from '../../test/app/call.ts';
import { startTestApp } from '../../test/app/test-app.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';

test('`close` logs a part that fails and closes the others', async (t) => {
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
    Array.from({ length: 2 }, () => ['Closing a part of the server failed', 'away']),
  );
  // The lock of the data folder is released.
  const next = await startTestApp({ dataFolder });
  await next.stop();
});

test('failed anonymous requests cause no warnings in the log', async (t) => {
  const lines: LogLine[] = [];
  const farebox = await startTestApp({ log: memoryLog(lines) });
  t.after(() => farebox.stop());
  const headers = { 'x-payment': 'e30=' };
  const answer = await call(farebox, '/chat/completions', { body: chatBody(), headers });
  assert.deepEqual([answer.status, answer.body.code], [503, 'X402_NOT_CONFIGURED']);
  assert.deepEqual(
    lines.filter(({ level }) => level === 'error'),
    [],
  );
});
