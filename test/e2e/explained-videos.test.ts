/** The record of a video job: each failed call of its engine, from the id of the job. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type LoopbackEngine, openEngine, sendJson } from '../support/loopback-engine.ts';
import { type LogLine, memoryLog } from '../support/memory-log.ts';
import { runCli } from '../support/run-cli.ts';
import { until } from '../support/until.ts';

const PROMPT = 'The violet otter counts seventeen lanterns at dusk';
let engine: LoopbackEngine;
let farebox: TestApp;
let admin: string;
const lines: LogLine[] = [];

before(async () => {
  engine = await openEngine();
  farebox = await startTestApp({
    log: memoryLog(lines),
    yaml: `
engines: { studio: { url: "${engine.url}/v1" } }
models:
  - id: film
    type: video
    replicas: [{ engine: studio, model: clips }]
    video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.28 } }`,
  });
  admin = await farebox.key({ kind: 'ADMIN' });
});
after(async () => {
  await farebox.stop();
  await engine.close();
});

test('a failed video job shows its calls of engines, its refund and the next step', async () => {
  engine.answer = ({ method }, response) => {
    if (method === 'POST') sendJson(response, 200, { id: 'v1', status: 'queued' });
    else {
      const message = `Out of memory while drawing "${PROMPT}"`;
      sendJson(response, 200, { id: 'v1', status: 'failed', error: { code: 'oom', message } });
    }
  };
  const queued = await call(farebox, '/video/queue', {
    secret: admin,
    body: { model: 'film', prompt: PROMPT, duration: '1 gen' },
  });
  assert.equal(queued.status, 200, queued.text);
  const { queue_id: id } = JSON.parse(queued.text) as { queue_id: string };
  const explained = async () =>
    await call(farebox, `/admin/requests/${id}`, { method: 'GET', secret: admin });
  await until(async () => (await explained()).text.includes('INFERENCE_FAILED'), 'the record', 500);
  const { text } = await explained();
  const { data } = JSON.parse(text) as {
    data: {
      route: string;
      tries: { engine: string; target: string; result: string; words: string }[];
      charge: { why: string };
      parameters: Record<string, unknown>;
      nextStep: { operator: string };
    };
  };
  assert.equal(data.route, 'POST /video/queue');
  assert.deepEqual(
    data.tries.map(({ engine: name, target, result }) => [name, target, result]),
    [['studio', 'clips', 'failed']],
  );
  assert.match(data.tries[0]?.words ?? '', /Out of memory/);
  assert.doesNotMatch(text, /violet otter/);
  assert.doesNotMatch(JSON.stringify(lines), /violet otter/);
  assert.match(data.charge.why, /^Charged in advance, and refunded because the job failed/);
  assert.match(String(data.parameters['body']), /^\d+ bytes$/);
  assert.match(data.nextStep.operator, /^Read the log of the engine studio/);
  const env = { FAREBOX_DATA: farebox.config.dataFolder };
  const shown = async (): Promise<string> =>
    (await runCli(process.cwd(), ['request', id], env)).out;
  // Another process reads a record once it is written.
  await until(async () => (await shown()).includes('Out of memory'), 'the written record', 500);
});
