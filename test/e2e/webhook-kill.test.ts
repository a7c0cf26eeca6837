/**
 * A process that is killed between an event and its delivery: the next one delivers it under the same
 * id, on both databases.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { openTestStore } from '../databases/stores.ts';
import { type FareboxProcess, startFarebox } from './farebox-process.ts';
import { until } from '../support/until.ts';

const FAST_MINUTES = fileURLToPath(new URL('../support/fast-minutes.ts', import.meta.url));

for (const dialect of ['sqlite', 'postgres'] as const) {
  test(`killed between event and delivery, it is delivered after the restart on ${dialect}`, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'farebox-webhook-kill-'));
    const url = dialect === 'sqlite' ? undefined : await emptyPostgresDatabase();
    const yaml = `listen: { host: 127.0.0.1, port: 0 }
${url === undefined ? '' : `database: ${JSON.stringify(url)}`}
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: silent }
fetch: { allow: ["127.0.0.0/8"] }
`;
    const heard: { id: string; body: string }[] = [];
    let answer: (response: ServerResponse) => void = () => undefined; // the first delivery never gets a response
    const receiver = createServer((request, response) => {
      let body = '';
      request.on('data', (piece) => (body += String(piece)));
      request.on('end', () => {
        heard.push({ id: String(request.headers['webhook-id']), body });
        answer(response);
        receiver.emit('heard');
      });
    });
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const address = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
    let farebox: FareboxProcess | undefined;
    const start = () => startFarebox({ folder, yaml, nodeOptions: `--import ${FAST_MINUTES}` });
    try {
      farebox = await start();
      const { secret } = farebox;
      const ask = async (path: string, body?: object) => {
        const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
        const options = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
        const response = await fetch(farebox?.url + path, { headers, ...options });
        assert.equal(response.status, 200);
        return (await response.json()) as ReturnType<typeof JSON.parse>;
      };
      const thresholds = { balanceUsd: 1_000_000 };
      const { id } = await ask('/webhooks', { url: address, events: ['balance.low'], thresholds });
      await once(receiver, 'heard', { signal: AbortSignal.timeout(120_000) });
      await farebox.stop('SIGKILL');
      if (url !== undefined) await endPause(url);
      answer = (response) => void response.writeHead(204).end();
      farebox = await start();
      await once(receiver, 'heard', { signal: AbortSignal.timeout(120_000) });
      const list = () => ask(`/webhooks/${id}/deliveries`).then(({ data }) => data);
      await until(async () => (await list())[0].status !== 'pending', 'the delivery');
      const [delivery, ...others] = await list();
      assert.deepEqual([delivery.status, others], ['delivered', []]);
      assert.ok(delivery.attempts >= 2, 'the attempt that was cut off counts');
      assert.deepEqual(new Set(heard.map((one) => one.id)), new Set([delivery.id]));
      assert.equal(new Set(heard.map(({ body }) => body)).size, 1);
    } finally {
      await farebox?.stop('SIGKILL');
      receiver.close();
      receiver.closeAllConnections();
      rmSync(folder, { recursive: true, force: true });
    }
  });
}

/** The clock of PostgreSQL is not sped up: lets the two minutes before the next attempt end. */
async function endPause(url: string): Promise<void> {
  const store = await openTestStore(url);
  await store.query('UPDATE webhooks_delivery SET due_ms = 1 WHERE due_ms > 0');
  await store.close();
}
