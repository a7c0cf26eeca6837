import assert from 'node:assert/strict';
import { syncBuiltinESMExports } from 'node:module';
import { type TestContext, test } from 'node:test';
import workerThreads, { type Worker } from 'node:worker_threads';
import { Fault } from '../core/faults.ts';
import { scanRequest } from '../json/json-spans.ts';
import { parseChatRequest } from '../chat/wire/chat-request.ts';
import { parseEmbeddingsRequest } from '../embeddings/embeddings-request.ts';
import { localDialect } from '../chat/wire/engine-dialect.ts';
import { engineRequest } from '../chat/wire/engine-request.ts';
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import { LargeBodies } from './large-bodies.ts';
import { until } from '../../test/support/until.ts';

const OPTIONS = { serviceName: 'svc' };
const CALLER = 'account';
const TEXT = 'A "line" of téxt \\ 字\n'.repeat(LARGE_BODY_BYTES / 16);

function chatOf(fields: object): Buffer {
  const messages = [
    { role: 'developer', content: 'Be brief' },
    { role: 'user', content: [{ type: 'text', text: TEXT }] },
  ];
  return Buffer.from(JSON.stringify({ model: 'm:enable_web_search=on', messages, ...fields }));
}

function refusalOf(read: () => unknown): Fault {
  try {
    read();
  } catch (error) {
    assert.ok(error instanceof Fault);
    return error;
  }
  throw new Error('It was taken');
}

test('a large chat request is parsed like a small one, and the engine receives the same bytes', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const bytes = chatOf({ unknown: { deep: [1, null] }, user: 'x', stream: true });
  const here = parseChatRequest(bytes, OPTIONS);
  const there = await bodies.chat(Buffer.from(bytes), CALLER, OPTIONS);
  assert.deepEqual({ ...there, source: 0 }, { ...here, source: 0 });
  assert.deepEqual(there.source.members, here.source.members);
  assert.ok(there.source.bytes.equals(here.source.bytes));
  const target = {
    model: 'engine-model',
    dialect: localDialect('embedded'),
    abilities: { capabilities: new Set<never>() },
    maxOutputTokens: 7,
    systemPrompt: 'First of all',
  };
  assert.ok(engineRequest(there, target).equals(engineRequest(here, target)));
});

test('a body is transferred without a copy if its memory contains no other data', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const alone = chatOf({});
  const expected = Buffer.from(alone);
  const moved = await bodies.chat(alone, CALLER, OPTIONS);
  assert.equal(alone.length, 0);
  assert.ok(moved.source.bytes.equals(expected));
  const neighbours = Buffer.concat([expected, Buffer.from('!')]);
  const copied = await bodies.chat(neighbours.subarray(0, -1), CALLER, OPTIONS);
  assert.equal(neighbours.at(-1), 0x21);
  assert.ok(copied.source.bytes.equals(expected));
});

test('a large embeddings request is parsed like a small one', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const input = Array.from({ length: 200 }, () => TEXT.slice(0, 8_000));
  const bytes = Buffer.from(JSON.stringify({ model: 'm', input, dimensions: 8 }));
  const here = parseEmbeddingsRequest(bytes);
  const there = await bodies.embeddings(Buffer.from(bytes), CALLER);
  assert.deepEqual({ ...there, source: 0 }, { ...here, source: 0 });
});

test('a large JSON-RPC body is scanned like a small one', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const call = `{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[${JSON.stringify(TEXT)}]}`;
  for (const text of [call, `[${call},${call}]`, `[${call},{}`, `[${call},${call},${call}]`]) {
    const { body, scanned } = await bodies.rpc(Buffer.from(text), CALLER, 2);
    assert.equal(body.toString(), text);
    assert.deepEqual(scanned, scanRequest(body, 2));
  }
});

test('any large JSON body is parsed like a small one', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  assert.deepEqual(await bodies.json(Buffer.from(JSON.stringify([TEXT, { a: null }])), CALLER), [
    TEXT,
    { a: null },
  ]);
  await assert.rejects(bodies.json(Buffer.from(`["${TEXT}`), CALLER), { code: 'INVALID_JSON' });
});

test('an invalid large body gets the same error as a small one', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const wrong = [
    Buffer.alloc(LARGE_BODY_BYTES, '{'),
    Buffer.alloc(LARGE_BODY_BYTES, 0xff),
    Buffer.from(`[${'1,'.repeat(LARGE_BODY_BYTES)}1]`),
    chatOf({ temperature: 'hot', tools: [{ type: 1 }] }),
  ];
  for (const bytes of wrong) {
    const here = refusalOf(() => parseChatRequest(bytes, OPTIONS));
    await assert.rejects(bodies.chat(bytes, CALLER, OPTIONS), (error) => {
      assert.ok(error instanceof Fault);
      assert.deepEqual([error.code, error.message], [here.code, here.message]);
      const { details, fields, canRetry } = error.options;
      const expected = here.options;
      assert.deepEqual(
        { details, fields, canRetry },
        {
          details: expected.details,
          fields: expected.fields,
          canRetry: expected.canRetry,
        },
      );
      return true;
    });
  }
});

test('concurrent bodies each get their own result', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const models = ['a', 'b', 'c', 'd'];
  const read = await Promise.all(
    models.map((model) => bodies.chat(chatOf({ model }), CALLER, OPTIONS)),
  );
  assert.deepEqual(
    read.map((request) => request.model),
    models,
  );
});

test('a caller with many bodies delays another one by at most two bodies', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const order: string[] = [];
  const ask = async (caller: string): Promise<void> => {
    await bodies.chat(chatOf({}), caller, OPTIONS);
    order.push(caller);
  };
  const many = Array.from({ length: 8 }, () => ask('many'));
  await Promise.all([...many, ask('few'), ask('other'), ask('few')]);
  assert.equal(order.length, 11);
  assert.deepEqual(order.slice(0, 6), ['many', 'many', 'few', 'other', 'many', 'few']);
});

test('another thread parses the bodies that wait behind a crash', async (t) => {
  const started = watchThreads(t);
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  const first = assert.rejects(bodies.chat(chatOf({}), 'one', OPTIONS), /ended/);
  const second = bodies.chat(chatOf({ model: 'second' }), 'two', OPTIONS);
  await until(() => started.length > 0, 'the thread');
  await started[0]?.terminate();
  await first;
  assert.equal((await second).model, 'second');
});

test('an idle thread ends after a minute, and the next body starts a new one', async (t) => {
  const started = watchThreads(t);
  const bodies = new LargeBodies();
  await bodies.chat(chatOf({}), CALLER, OPTIONS);
  await bodies.rest();
  await bodies.chat(chatOf({}), CALLER, OPTIONS);
  assert.equal(started.length, 1, 'it has worked in this minute');
  await bodies.rest();
  await bodies.rest();
  const read = await bodies.chat(chatOf({ model: 'again' }), CALLER, OPTIONS);
  assert.equal(read.model, 'again');
  assert.deepEqual(
    started.map(({ threadId }) => threadId > 0),
    [false, true],
    'the first has ended',
  );
  await bodies.close();
});

test('a body that arrives while an idle thread ends is parsed by a new one', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  await bodies.chat(chatOf({}), CALLER, OPTIONS);
  await bodies.rest();
  const resting = bodies.rest();
  const read = await bodies.chat(chatOf({ model: 'next' }), CALLER, OPTIONS);
  assert.equal(read.model, 'next');
  await resting;
});

test('`close` rejects the waiting bodies', async (t) => {
  const started = watchThreads(t);
  const bodies = new LargeBodies();
  const waiting = bodies.chat(chatOf({}), CALLER, OPTIONS);
  const failed = assert.rejects(waiting, /The thread of large bodies ended/);
  await until(() => started.length > 0, 'the thread');
  await bodies.close();
  await failed;
});

/** Records the threads that start from now on. */
function watchThreads(t: TestContext): Worker[] {
  const started: Worker[] = [];
  const note = (worker: Worker): void => void started.push(worker);
  process.on('worker', note);
  t.after(() => process.off('worker', note));
  return started;
}

test('a thread that cannot be created fails the bodies of this moment only', async (t) => {
  const bodies = new LargeBodies();
  t.after(() => bodies.close());
  t.mock.method(workerThreads, 'Worker', () => {
    throw Object.assign(new Error('EAGAIN'), { code: 'ERR_WORKER_INIT_FAILED' });
  });
  syncBuiltinESMExports();
  try {
    await assert.rejects(bodies.json(Buffer.from('[1]'), CALLER), /EAGAIN/);
  } finally {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  }
  assert.deepEqual(await bodies.json(Buffer.from('[2]'), CALLER), [2]);
});
