/**
 * A full disk: the responses to callers and load balancers, and the recovery. SQLite's limit of
 * pages simulates it, because it fails with the same code at the same place.
 */
import assert from 'node:assert/strict';
import { closeSync, fstatSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, describe, test } from 'node:test';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';

const PAGE_BYTES = 4_096;

describe('a full disk', () => {
  let upstream: TestUpstream;
  let farebox: TestApp;

  before(async () => {
    upstream = await TestUpstream.start();
    upstream.otherwise = { kind: 'json', usage: true };
    farebox = await startTestApp({
      yaml: `
engines: { one: { url: ${upstream.url} } }
models: [{ id: m, type: text, context: 65536, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: one }] }]
`,
    });
  });
  after(async () => {
    await farebox.stop();
    await upstream.kill();
  });

  const chat = (more = {}): Promise<Response> =>
    fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({
        model: 'm',
        messages: [{ role: 'user', content: 'Hello' }],
        ...more,
      }),
    });
  const ready = async (): Promise<number> => {
    const answer = await fetch(new URL('/readyz', farebox.url));
    await answer.arrayBuffer();
    return answer.status;
  };
  const databaseUp = async (): Promise<string | undefined> => {
    const page = await (await fetch(new URL('/metrics', farebox.url))).text();
    return /^farebox_database_up (\d)$/m.exec(page)?.[1];
  };
  const limitPages = (pages: bigint): Promise<unknown> =>
    farebox.app.stores.store.query(`PRAGMA max_page_count = ${pages}`);

  test('a chat gets 503 and can be retried, readiness fails, and both recover', async () => {
    assert.equal((await chat()).status, 200);
    assert.equal(await ready(), 200);
    const [size] = await farebox.app.stores.store.query<{
      page_count: bigint;
    }>('PRAGMA page_count');
    await limitPages(size?.page_count ?? 0n);

    let refused: Response | undefined;
    // The last pages have space for a few requests.
    for (let tries = 0; refused === undefined && tries < 300; tries += 1) {
      const answer = await chat();
      if (answer.status === 200) await answer.arrayBuffer();
      else refused = answer;
    }
    assert.equal(refused?.status, 503);
    assert.ok(Number(refused?.headers.get('retry-after')) > 0);
    assert.deepEqual(await refused?.json(), {
      error: 'The service is not available',
      code: 'SERVICE_UNAVAILABLE',
    });
    assert.equal(await ready(), 503);
    assert.equal(await databaseUp(), '0');
    const asked = upstream.seen.length;
    for (const stream of [true, false]) assert.equal((await chat({ stream })).status, 503);
    assert.equal(upstream.seen.length, asked, 'the engine works for nobody');

    await limitPages(1_000_000n);
    await until(async () => (await ready()) === 200, 'that the server recovers');
    assert.equal(await databaseUp(), '1');
    assert.equal((await chat()).status, 200);
    await farebox.audit();
  });

  test('a damaged database file stops all sales, also after later writes', async () => {
    const path = join(farebox.config.dataFolder, 'farebox.db');
    // A write by another process makes SQLite drop its cached pages.
    const other = new DatabaseSync(path);
    other.exec('CREATE TABLE store_other (id TEXT); PRAGMA wal_checkpoint(TRUNCATE)');
    other.close();
    const file = openSync(path, 'r+');
    const { size } = fstatSync(file);
    // All but the first page, which names the others.
    writeSync(file, Buffer.alloc(size - PAGE_BYTES, 0xff), 0, size - PAGE_BYTES, PAGE_BYTES);
    closeSync(file);
    const asked = upstream.seen.length;
    const answers: number[] = [];
    for (let tries = 0; tries < 3; tries += 1) {
      const answer = await chat();
      answers.push(answer.status);
      await answer.arrayBuffer();
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
    assert.deepEqual(answers, [503, 503, 503]);
    assert.ok(upstream.seen.length - asked <= 1, 'the engine works for nobody');
    assert.equal(await ready(), 503);
    assert.equal(await databaseUp(), '0');
  });
});
