/**
 * The configuration is reloaded while jobs and streams of the previous one run: they cost their
 * original price, and jobs without an engine are refunded.
 */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import OpenAI from 'openai';
import { formatProblem, loadConfig } from '../../src/config/config.ts';
import { usdToNano } from '../../src/core/money.ts';
import { call, chatBody } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { openEngine, sendJson } from '../support/loopback-engine.ts';
import { batchEnd, chatLine, linesOfFile, startBatch } from '../support/batch-client.ts';
import { fastClock } from '../support/fast-clock.ts';
import { until } from '../support/until.ts';

const ANSWER = {
  id: 'c1',
  object: 'chat.completion',
  created: 1,
  model: 'atlas',
  choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 12, completion_tokens: 5, total_tokens: 17 },
};
/** Price of those tokens at 1 and 2 USD per million. */
const COST = usdToNano('0.000022');
const FILM = usdToNano('0.1');

const model = (id: string, price: string, engine: string) =>
  `  - { id: ${id}, type: text, context: 8192, maxCompletionTokens: 64, price: ${price}, replicas: [{ engine: ${engine} }] }\n`;
const film = (usd: number) =>
  `  - { id: film, type: video, replicas: [{ engine: studio }], video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: ${usd} } } }\n`;

async function reload({ app, config }: TestApp, yaml: string): Promise<void> {
  const cwd = config.dataFolder;
  const loaded = await loadConfig({
    env: { FAREBOX_DATA: cwd, PORT: '0' },
    cwd,
    readFile: async () => `discovery: { enabled: false }\nembedded: { enabled: false }\n${yaml}`,
  });
  assert.ok(loaded.ok, loaded.ok ? '' : loaded.problems.map(formatProblem).join('\n'));
  app.configure(loaded.config);
}

test('jobs and streams keep their price across a reload, and end if their model or engine is removed', async () => {
  const engine = await openEngine();
  const held: ServerResponse[] = [];
  engine.answer = ({ method, path }, response) => {
    if (path.endsWith('/chat/completions')) held.push(response);
    else if (method === 'POST') sendJson(response, 200, { id: 'v1', status: 'queued' });
    else sendJson(response, 200, { id: 'v1', status: 'in_progress', progress: 10, data: [] });
  };
  const studio = `engines: { studio: { url: "${engine.url}/v1" } }\n`;
  const settings = 'video: { maxSilenceMinutes: 1 }\nbatches: { concurrency: 1 }\n';
  const farebox = await startTestApp({
    // An engine may be silent for a minute, which is two seconds.
    clock: fastClock(30),
    yaml: `${studio}${settings}models:\n${model('atlas', '{ input: 1, output: 2 }', 'studio')}${film(0.1)}`,
  });
  try {
    const { secret, accountId } = await farebox.account('10');
    const client = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const spent = async () => {
      const { usdNano } = await farebox.app.stores.ledger.balances(accountId);
      return usdToNano('10') - usdNano;
    };
    const nextHeld = async (): Promise<ServerResponse> => {
      await until(() => held.length > 0, 'that the engine is asked');
      return held.shift()!;
    };

    const chat = call(farebox, '/chat/completions', { secret, body: chatBody() });
    const answer = await nextHeld();
    const order = { model: 'film', prompt: 'a lighthouse', duration: '1 gen' };
    const queued = await call(farebox, '/video/queue', { secret, body: order });
    assert.equal(queued.status, 200, queued.text);
    assert.equal(await spent(), FILM);
    await reload(
      farebox,
      `${studio}${settings}models:\n${model('atlas', '{ input: 100, output: 200 }', 'studio')}${film(0.9)}`,
    );
    sendJson(answer, 200, ANSWER);
    assert.equal((await chat).status, 200, (await chat).text);
    assert.equal(await spent(), FILM + COST);

    const batch = await startBatch(client, [chatLine('a'), chatLine('b'), chatLine('c')]);
    const line = await nextHeld();
    await reload(
      farebox,
      `engines: { other: { url: "http://127.0.0.1:9/v1" } }\n${settings}models:\n${model('left', '{ input: 1, output: 2 }', 'other')}`,
    );
    sendJson(line, 200, ANSWER);
    const ended = await batchEnd(client, batch.id);
    assert.equal(ended.status, 'completed');
    assert.deepEqual(ended.request_counts, { total: 3, completed: 1, failed: 2 });
    for (const { response } of await linesOfFile(client, ended.error_file_id)) {
      assert.equal(response?.status_code, 404, JSON.stringify(response));
    }
    // Half of a hundred times the price: that of batches, when the line was begun.
    const LINE = COST * 50n;

    const lookup = { queue_id: queued.body.queue_id };
    const hasEnded = async (): Promise<boolean> => {
      const { status, text } = await call(farebox, '/video/retrieve', { secret, body: lookup });
      if (status !== 200) assert.match(text, /"credits_refunded":true/);
      return status !== 200;
    };
    await until(hasEnded, 'the end of a film whose engine is gone', 50);
    assert.equal(await spent(), COST + LINE);
    assert.equal((await farebox.app.stores.ledger.funds(accountId)).heldUsdNano, 0n);
    await farebox.audit();
  } finally {
    await farebox.stop();
    await engine.close();
  }
});
