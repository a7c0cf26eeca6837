/** Shutdown, logs and changes of the configuration of a complete server. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { call, chatBody } from '../../test/app/call.ts';
import { startTestApp } from '../../test/app/test-app.ts';
import { type Clock, MINUTE_MS, systemClock } from '../core/clock.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { rawServer } from '../../test/support/raw-server.ts';

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

test('`close` does not wait for a background job whose peer does not respond', async (t) => {
  const called = Promise.withResolvers<void>();
  const url = await rawServer(t, () => called.resolve());
  const clock = systemClock();
  const minutes: (() => void)[] = [];
  const every: Clock['every'] = (ms, work) => {
    if (ms === MINUTE_MS) minutes.push(work);
    return clock.every(ms, work);
  };
  const farebox = await startTestApp({
    clock: { ...clock, every },
    yaml: `payments: { stripe: { secretKey: sk_test_1, webhookSecret: whsec_MTIzNDU2Nzg5, apiUrl: '${url}' } }`,
  });
  for (const work of minutes) work();
  await called.promise;
  const startedMs = clock.monotonicMs();
  await farebox.app.close();
  assert.ok(clock.monotonicMs() - startedMs < 10_000);
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

test('a changed configuration applies without the sections that need a restart', async (t) => {
  const farebox = await startTestApp();
  t.after(() => farebox.stop());
  const { config } = farebox;
  const rpc = { ...config.rpc, usdPerCredit: '1e-6' };
  const limits = { ...config.limits, minimumCreditUsd: '0.2' };
  farebox.app.configure({ ...config, rpc, limits, databaseUrl: 'sqlite:/nowhere/farebox.db' });
  const secret = await farebox.key({ kind: 'ADMIN' });
  const { body } = await call(farebox, '/admin/config', { secret });
  // The file still has the settings of the start.
  assert.deepEqual([body.reload.changed, body.reload.restart], [['limits'], []]);
});

test('a changed minimum credit applies to the amounts that wallets pay', async (t) => {
  const farebox = await startTestApp({
    yaml: `payments:
  base:
    payTo: '0x52908400098527886E0F7030069857D2E4169EE7'
    rpcUrl: http://127.0.0.1:9
    gasKey: '0x${'11'.repeat(32)}'
`,
  });
  t.after(() => farebox.stop());
  const { config } = farebox;
  const url = `${new URL(farebox.url).origin}/.well-known/x402.json`;
  const firstPaymentUsd = async (): Promise<unknown> => {
    const manifest = (await (await fetch(url)).json()) as { firstPaymentUsd: unknown };
    return manifest.firstPaymentUsd;
  };
  assert.equal(await firstPaymentUsd(), 1);
  farebox.app.configure({ ...config, limits: { ...config.limits, minimumCreditUsd: '2.5' } });
  assert.equal(await firstPaymentUsd(), 2.5);
});
