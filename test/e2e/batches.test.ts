/** Files and batches over the unmodified `openai` SDK, against a real server and a fake engine. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { after, before, describe, test } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { type Bench, call, startWithEngine } from '../app/call.ts';
import {
  batchEnd,
  chatLine,
  linesOfFile,
  startBatch,
  uploadLines,
} from '../support/batch-client.ts';
import type { Behaviour } from '../support/test-upstream.ts';
import { usdToNano } from '../../src/core/money.ts';
import { until } from '../support/until.ts';

/** 12 prompt tokens and 5 completion tokens, as the fake engine counts, at half of 1 and 2 USD per million. */
const HALF_COST = usdToNano('0.000011');

/** An engine that waits for something, and counts the same. */
function answer(after?: Promise<void>): Behaviour {
  const said = { content: 'Hi', promptTokens: 12, completionTokens: 5 };
  return { kind: 'answer', ...said, ...(after === undefined ? {} : { after }) };
}

function completion(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(
    JSON.stringify({
      object: 'text_completion',
      choices: [{ index: 0, text: ' upon', finish_reason: 'stop', logprobs: null }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    }),
  );
}

describe('batches', () => {
  let bench: Bench;
  let client: OpenAI;
  let secret: string;
  let accountId: string;

  before(async () => {
    bench = await startWithEngine({
      yaml: 'batches: { concurrency: 8, maxFileMb: 1, maxStoredMbPerCaller: 3, maxRequests: 200 }',
      model:
        '  - { id: closed, type: text, context: 8192, maxCompletionTokens: 64, batch: false, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }\n' +
        '  - { id: vectors, type: embedding, context: 8192, embedding: { dimensions: 3 }, price: { input: 1 }, replicas: [{ engine: rack1, model: tiny }] }',
    });
    ({ secret, accountId } = await bench.farebox.account('10'));
    client = new OpenAI({ baseURL: bench.farebox.url, apiKey: secret, maxRetries: 0 });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const spent = async (id = accountId) =>
    usdToNano('10') - (await bench.farebox.app.stores.ledger.balances(id)).usdNano;

  test('every request of a batch gets one response, at the batch price', async () => {
    const before = await spent();
    const lines = Array.from({ length: 60 }, (_, at) => chatLine(`q-${at}`));
    const file = await uploadLines(client, lines);
    assert.equal(file.purpose, 'batch');
    assert.equal(file.filename, 'questions.jsonl');
    const made = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { run: 'first' },
    });
    assert.equal(made.status, 'validating');
    const batch = await batchEnd(client, made.id);
    assert.equal(batch.status, 'completed');
    assert.deepEqual(batch.request_counts, { total: 60, completed: 60, failed: 0 });
    assert.deepEqual(batch.metadata, { run: 'first' });
    assert.deepEqual(batch.usage, {
      input_tokens: 720,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 300,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 1_020,
    });
    assert.deepEqual((batch as { cost?: unknown }).cost, { usd: 0.00066, diem: 0 });
    assert.equal(batch.error_file_id, null);
    const answers = await linesOfFile(client, batch.output_file_id);
    assert.deepEqual(
      answers.map(({ custom_id: id }) => id),
      lines.map(({ custom_id: id }) => id),
    );
    for (const { response, error } of answers) {
      assert.equal(error, null);
      assert.equal(response?.status_code, 200);
      assert.match(response.request_id, /^[0-9a-f]{32}$/);
      assert.equal((response.body as { object: string }).object, 'chat.completion');
    }
    assert.equal((await spent()) - before, HALF_COST * 60n);
    const requestId = answers[0]?.response?.request_id ?? '';
    const { body: receipt } = await call(bench.farebox, `/usage/${requestId}`, { secret });
    assert.deepEqual(receipt.unitPrices, { input: '0.5000', output: '1.0000' });
    assert.equal(receipt.cost.usd, 0.000011);
  });

  test('`GET /models` shows the batch price, and the metrics count completed requests', async () => {
    const { body: list } = await call(bench.farebox, '/models?type=all');
    const priceOf = (model: string) =>
      list.data.find(({ id }: { id: string }) => id === model).model_spec.pricing;
    assert.deepEqual(priceOf('atlas').batch, {
      input: { usd: 0.5, diem: 0.5 },
      output: { usd: 1, diem: 1 },
    });
    assert.equal(priceOf('closed').batch, undefined);
    const metrics = await (await fetch(new URL('/metrics', bench.farebox.url))).text();
    assert.match(metrics, /farebox_batch_requests_total\{result="completed"\} [1-9]/);
    assert.match(metrics, /# TYPE farebox_batches gauge/);
  });

  test('a rejected request has its error in the error file and is not charged', async () => {
    const before = await spent();
    const started = await startBatch(client, [
      chatLine('good'),
      chatLine('bad', { temperature: 7 }),
      chatLine('unknown-field-is-fine', { messages: 'no list' }),
    ]);
    const batch = await batchEnd(client, started.id);
    assert.equal(batch.status, 'completed');
    assert.deepEqual(batch.request_counts, { total: 3, completed: 1, failed: 2 });
    const [good, ...others] = await linesOfFile(client, batch.output_file_id);
    assert.deepEqual([good?.custom_id, others], ['good', []]);
    const errors = await linesOfFile(client, batch.error_file_id);
    assert.deepEqual(
      errors.map(({ custom_id: id, response, error }) => [id, response?.status_code, error]),
      [
        ['bad', 400, null],
        ['unknown-field-is-fine', 400, null],
      ],
    );
    const { error } = errors[0]!.response!.body as { error: { message: string; type: string } };
    assert.equal(error.type, 'invalid_request_error');
    assert.match(error.message, /temperature/);
    assert.equal((await spent()) - before, HALF_COST);
  });

  test('an invalid file fails with its line numbers and runs no request', async () => {
    const before = await spent();
    const good = chatLine('twice');
    const started = await startBatch(client, [
      good,
      '{"custom_id": ',
      '',
      good,
      { ...chatLine('method'), method: 'GET' },
      { ...chatLine('url'), url: '/v1/embeddings' },
      chatLine('stream', { stream: true }),
      chatLine('model', { model: 'nothing' }),
      chatLine('off', { model: 'closed' }),
      { ...chatLine('body'), body: 'text' },
      { ...chatLine(''), custom_id: 7 },
    ]);
    const batch = await batchEnd(client, started.id);
    assert.equal(batch.status, 'failed');
    assert.ok((batch.failed_at ?? 0) > 0);
    assert.deepEqual(
      batch.errors?.data?.map(({ code, line, param }) => [line, code, param]),
      [
        [2, 'invalid_json_line', null],
        [4, 'duplicate_custom_id', 'custom_id'],
        [5, 'invalid_method', 'method'],
        [6, 'invalid_url', 'url'],
        [7, 'invalid_stream', 'body.stream'],
        [8, 'model_not_found', 'body.model'],
        [9, 'model_not_found', 'body.model'],
        [10, 'invalid_body', 'body'],
        [11, 'invalid_custom_id', 'custom_id'],
      ],
    );
    assert.deepEqual([batch.output_file_id, batch.error_file_id], [null, null]);
    const empty = await batchEnd(client, (await startBatch(client, ['', '\r', ' \t'])).id);
    assert.equal(empty.errors?.data?.[0]?.code, 'empty_file');
    const many = Array.from({ length: 201 }, (_, at) => chatLine(`m-${at}`));
    const tooMany = await batchEnd(client, (await startBatch(client, many)).id);
    assert.equal(tooMany.errors?.data?.[0]?.code, 'too_many_requests');
    assert.equal(await spent(), before);
  });

  test('a batch can call embeddings, completions and responses, with and without the base path', async () => {
    bench.upstream.otherwise = { kind: 'embeddings', usage: true };
    const vectors = { model: 'vectors', input: ['a', 'b'] };
    const line = { custom_id: 'e', method: 'POST', url: '/api/v1/embeddings', body: vectors };
    const embedded = await batchEnd(
      client,
      (await startBatch(client, [line], '/v1/embeddings')).id,
    );
    bench.upstream.otherwise = { kind: 'json', usage: true };
    const [vector] = await linesOfFile(client, embedded.output_file_id);
    assert.equal((vector!.response!.body as { data: unknown[] }).data.length, 2);
    bench.upstream.otherwise = { kind: 'own', answer: completion };
    const prompt = { model: 'atlas', prompt: 'Once', max_tokens: 8 };
    const text = { custom_id: 't', method: 'POST', url: '/v1/completions', body: prompt };
    const written = await batchEnd(
      client,
      (await startBatch(client, [text], '/v1/completions')).id,
    );
    bench.upstream.otherwise = { kind: 'json', usage: true };
    const [completed] = await linesOfFile(client, written.output_file_id);
    assert.equal((completed!.response!.body as { object: string }).object, 'text_completion');
    const asked = { model: 'atlas', input: 'Hello' };
    const turn = { custom_id: 'r', method: 'POST', url: '/v1/responses', body: asked };
    const answered = await batchEnd(client, (await startBatch(client, [turn], '/v1/responses')).id);
    const [response] = await linesOfFile(client, answered.output_file_id);
    assert.equal((response!.response!.body as { object: string }).object, 'response');
  });

  test('a cancelled batch keeps its completed requests, and charges nothing else', async () => {
    const { secret: own, accountId: id } = await bench.farebox.account('10');
    const other = new OpenAI({ baseURL: bench.farebox.url, apiKey: own, maxRetries: 0 });
    const gate = Promise.withResolvers<void>();
    bench.upstream.script.push(...Array.from({ length: 10 }, () => answer()));
    bench.upstream.otherwise = answer(gate.promise);
    const lines = Array.from({ length: 100 }, (_, at) => chatLine(`c-${at}`));
    const started = await startBatch(other, lines);
    await until(async () => (await spent(id)) >= HALF_COST * 10n, 'ten charges');
    const cancelling = await other.batches.cancel(started.id);
    assert.equal(cancelling.status, 'cancelling');
    assert.equal((await other.batches.cancel(started.id)).id, started.id);
    gate.resolve();
    const batch = await batchEnd(other, started.id);
    bench.upstream.otherwise = { kind: 'json', usage: true };
    assert.equal(batch.status, 'cancelled');
    const answers = await linesOfFile(other, batch.output_file_id);
    const errors = await linesOfFile(other, batch.error_file_id);
    assert.ok(answers.length >= 10 && answers.length < 100, `${answers.length} answers`);
    assert.equal(answers.length + errors.length, 100);
    assert.deepEqual(new Set(errors.map(({ error }) => error?.code)), new Set(['batch_cancelled']));
    assert.equal(await spent(id), HALF_COST * BigInt(answers.length));
    await assert.rejects(other.batches.cancel(started.id), { status: 409 });
  });

  test('callers see their own files and batches, page by page', async () => {
    const { secret: own } = await bench.farebox.account('10');
    const other = new OpenAI({ baseURL: bench.farebox.url, apiKey: own, maxRetries: 0 });
    const mine = await startBatch(client, [chatLine('mine')]);
    for (const refusal of [
      () => other.files.retrieve(mine.input_file_id),
      () => other.files.content(mine.input_file_id),
      () => other.files.delete(mine.input_file_id),
      () => other.batches.retrieve(mine.id),
      () => other.batches.cancel(mine.id),
      () =>
        other.batches.create({
          input_file_id: mine.input_file_id,
          endpoint: '/v1/chat/completions',
          completion_window: '24h',
        }),
      () => other.files.list({ after: mine.input_file_id }),
      () => other.batches.list({ after: mine.id }),
    ])
      await assert.rejects(refusal(), { status: 404 });
    assert.deepEqual((await other.files.list()).data, []);
    const ids: string[] = [];
    for (let at = 0; at < 5; at += 1) ids.push((await uploadLines(other, [chatLine('x')])).id);
    const listed: string[] = [];
    for await (const file of other.files.list({ limit: 2, order: 'asc' })) listed.push(file.id);
    assert.deepEqual(listed, ids);
    const made: string[] = [];
    for (const id of ids.slice(0, 3)) {
      const { id: batchId } = await other.batches.create({
        input_file_id: id,
        endpoint: '/v1/chat/completions',
        completion_window: '24h',
      });
      made.push(batchId);
    }
    const batches: string[] = [];
    for await (const batch of other.batches.list({ limit: 2 })) batches.push(batch.id);
    assert.deepEqual(batches, made.toReversed());
    for (const id of made) await batchEnd(other, id);
    const outputs = await other.files.list({ purpose: 'batch_output' });
    assert.equal(outputs.data.length, 3);
    await batchEnd(client, mine.id);
  });

  test('a download is cut if its file is deleted', async () => {
    const { secret: own } = await bench.farebox.account('1');
    const other = new OpenAI({ baseURL: bench.farebox.url, apiKey: own, maxRetries: 0 });
    const file = await toFile(Buffer.alloc(900_000, 'x'), 'large.jsonl');
    const { id } = await other.files.create({ file, purpose: 'batch' });
    // The deletion happens after the first chunks were read.
    const { store } = bench.farebox.app.stores;
    await store.query('DELETE FROM batches_piece WHERE content_id = $1 AND seq > 0', [id]);
    const answer = await other.files.content(id);
    assert.equal(answer.headers.get('content-length'), '900000');
    await assert.rejects(answer.arrayBuffer(), TypeError);
  });

  test('a deleted file is gone, and a file that a batch reads cannot be deleted', async () => {
    const gate = Promise.withResolvers<void>();
    bench.upstream.otherwise = answer(gate.promise);
    const started = await startBatch(client, [chatLine('slow')]);
    await assert.rejects(client.files.delete(started.input_file_id), { status: 409 });
    gate.resolve();
    const batch = await batchEnd(client, started.id);
    bench.upstream.otherwise = { kind: 'json', usage: true };
    const { store } = bench.farebox.app.stores;
    const pieces = async (of: string) => {
      const rows = await store.query('SELECT seq FROM batches_piece WHERE content_id = $1', [of]);
      return rows.length;
    };
    assert.deepEqual(await client.files.delete(batch.input_file_id), {
      id: batch.input_file_id,
      object: 'file',
      deleted: true,
    });
    await client.files.delete(batch.output_file_id ?? '');
    assert.equal((await pieces(batch.input_file_id)) + (await pieces(batch.id)), 0);
    await assert.rejects(client.files.retrieve(batch.input_file_id), { status: 404 });
    await assert.rejects(client.files.content(batch.output_file_id ?? ''), { status: 404 });
    await assert.rejects(client.files.delete(batch.input_file_id), { status: 404 });
  });

  test('files keep their bytes, and files above the limits are rejected', async () => {
    const { secret: own } = await bench.farebox.account('1');
    const other = new OpenAI({ baseURL: bench.farebox.url, apiKey: own, maxRetries: 0 });
    const bytes = randomBytes(900_000);
    const upload = async (content: Buffer, further = {}) =>
      await other.files.create({
        file: await toFile(content, 'a.jsonl'),
        purpose: 'batch',
        ...further,
      });
    const stored = await upload(bytes, {
      expires_after: { anchor: 'created_at', seconds: 3_600 },
    });
    assert.equal(stored.bytes, bytes.length);
    assert.equal((stored.expires_at ?? 0) - stored.created_at, 3_600);
    const back = Buffer.from(await (await other.files.content(stored.id)).arrayBuffer());
    assert.ok(back.equals(bytes));
    await assert.rejects(upload(Buffer.alloc(1_000_001)), { status: 413 });
    await assert.rejects(upload(bytes, { purpose: 'assistants' }), {
      message: /purpose: Must be/,
    });
    await upload(bytes);
    await upload(bytes);
    // Each rejected upload releases its storage.
    await assert.rejects(upload(bytes), { status: 429 });
    await other.files.delete(stored.id);
    await upload(bytes);
    const noFile = new FormData();
    noFile.set('purpose', 'batch');
    const { status } = await fetch(`${bench.farebox.url}/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${own}` },
      body: noFile,
    });
    assert.equal(status, 400);
  });

  test('an aborted upload leaves no data', async () => {
    const { secret: own, accountId: id } = await bench.farebox.account('1');
    const { port } = new URL(bench.farebox.url);
    const socket = connect(Number(port), '127.0.0.1');
    await once(socket, 'connect');
    socket.write(
      `POST /api/v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${own}\r\n` +
        'content-type: multipart/form-data; boundary=b\r\ncontent-length: 900000\r\n\r\n' +
        '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n',
    );
    socket.write(Buffer.alloc(600_000, 97));
    const { store } = bench.farebox.app.stores;
    const rows = async (): Promise<number> =>
      (await store.query('SELECT id FROM batches_file WHERE account_id = $1', [id])).length;
    const pieces = async (): Promise<number> =>
      (await store.query('SELECT seq FROM batches_piece')).length;
    const before = await pieces();
    await until(async () => (await rows()) > 0 && (await pieces()) >= before + 2, 'two pieces');
    socket.destroy();
    await until(async () => (await rows()) === 0, 'the end of the file');
    assert.equal(await pieces(), before);
  });

  test('an idempotency key creates one batch', async () => {
    const { id } = await uploadLines(client, [chatLine('once')]);
    const create = () =>
      client.batches.create(
        { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' },
        { headers: { 'idempotency-key': 'batch-once' } },
      );
    const [first, again] = [await create(), await create()];
    assert.equal(again.id, first.id);
    await batchEnd(client, first.id);
    const refused = { input_file_id: id, completion_window: '24h' } as const;
    for (const [endpoint = '', window] of [
      ['/v1/fine_tuning', '24h'],
      ['/v1/chat/completions', '7d'],
    ]) {
      const body = { ...refused, endpoint, completion_window: window };
      const { status } = await call(bench.farebox, '/batches', { secret, body });
      assert.equal(status, 400, endpoint);
    }
  });

  test('the example of docs/callers/batches.md prints the completions', async () => {
    const file = join(import.meta.dirname, '../../examples/batches/ask-many.ts');
    const env = {
      PATH: process.env['PATH'],
      FAREBOX_URL: bench.farebox.url,
      FAREBOX_KEY: secret,
      MODEL: 'atlas',
      POLL_MS: '50',
    };
    const { stdout } = await promisify(execFile)(process.execPath, [file, 'One?', 'Two?'], { env });
    assert.match(
      stdout,
      /^2 requests in batch_\w+\ncompleted: 2 completed, 0 failed\nquestion-1: \S/,
    );
    assert.match(stdout, /\nquestion-2: \S/);
  });

  test('requests of a batch fail one by one without credit or with a revoked key', async () => {
    const { secret: own, accountId: id } = await bench.farebox.account('0.05');
    const poor = new OpenAI({ baseURL: bench.farebox.url, apiKey: own, maxRetries: 0 });
    const batch = await batchEnd(poor, (await startBatch(poor, [chatLine('p')])).id);
    const [refused] = await linesOfFile(poor, batch.error_file_id);
    assert.equal(refused?.response?.status_code, 402);
    const { identity } = bench.farebox.app.stores;
    const gate = Promise.withResolvers<void>();
    bench.upstream.script.push(...Array.from({ length: 10 }, () => answer()));
    bench.upstream.otherwise = answer(gate.promise);
    const { secret: rich, accountId: richId } = await bench.farebox.account('10');
    const second = await bench.farebox.key({ accountId: richId });
    const client2 = new OpenAI({ baseURL: bench.farebox.url, apiKey: rich, maxRetries: 0 });
    const lines = Array.from({ length: 60 }, (_, at) => chatLine(`k-${at}`));
    const started = await startBatch(client2, lines);
    await until(async () => (await spent(richId)) >= HALF_COST * 5n, 'five charges');
    const { keyId } = await identity.keys.callerOf(rich);
    await identity.revokeKey(richId, keyId);
    gate.resolve();
    const reader = new OpenAI({ baseURL: bench.farebox.url, apiKey: second, maxRetries: 0 });
    const ended = await batchEnd(reader, started.id);
    bench.upstream.otherwise = { kind: 'json', usage: true };
    const errors = await linesOfFile(reader, ended.error_file_id);
    assert.ok(errors.length > 20);
    assert.deepEqual(new Set(errors.map(({ response }) => response?.status_code)), new Set([401]));
    assert.equal(await spent(richId), HALF_COST * BigInt(ended.request_counts?.completed ?? 0));
    assert.ok(id.length > 0);
  });
});

describe('requests of agent protocols in a batch', () => {
  let bench: Bench;
  let client: OpenAI;

  before(async () => {
    bench = await startWithEngine();
    const { secret } = await bench.farebox.account('10');
    client = new OpenAI({ baseURL: bench.farebox.url, apiKey: secret, maxRetries: 0 });
  });
  after(() => bench.stop());

  const run = async (path: OpenAI.BatchCreateParams['endpoint'], body: object) => {
    const line = { custom_id: 'one', method: 'POST', url: path, body: { model: 'atlas', ...body } };
    return await batchEnd(client, (await startBatch(client, [line], path)).id, 40_000);
  };

  test('are tried again after a failure of the engine, as others are', async () => {
    // One call tries an engine three times.
    for (let at = 0; at < 3; at += 1) bench.upstream.script.push({ kind: 'status', status: 500 });
    const messages = [{ role: 'user', content: 'Hi' }];
    // The SDK lacks this endpoint.
    const path = '/v1/messages' as OpenAI.BatchCreateParams['endpoint'];
    const batch = await run(path, { max_tokens: 50, messages });
    assert.deepEqual(batch.request_counts, { total: 1, completed: 1, failed: 0 });
  });

  test('end after three failures of the engine, as others do', async () => {
    bench.upstream.otherwise = { kind: 'status', status: 500 };
    const batch = await run('/v1/responses', { input: 'Hi' });
    assert.deepEqual(batch.request_counts, { total: 1, completed: 0, failed: 1 });
    const [line] = await linesOfFile(client, batch.error_file_id);
    assert.equal(line?.response?.status_code, 503, 'the status of the protocol');
  });
});
