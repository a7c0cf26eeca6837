/** Callers on raw sockets that read slowly or not at all: who pays, and what they can hold. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { after, before, describe, test } from 'node:test';
import { fastClock } from '../support/fast-clock.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { until } from '../support/until.ts';

const PIECE = 'x'.repeat(16_384);
/** More than the kernel's buffers take on both sides. */
const PIECES = 1_000;
const STALLED = 30;
/** The clock of the server is so many times as fast. */
const TIMES = 2;

function event(choices: readonly object[], more: object = {}): string {
  const head = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm' };
  return `data: ${JSON.stringify({ ...head, choices, ...more })}\n\n`;
}

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void; // what the flag adds to a new context

/** Bytes of buffers in use in this process, what waits to be collected not among them. */
function heldNow(): number {
  collect();
  return process.memoryUsage().arrayBuffers;
}

/** Streams all pieces, as fast as it is read, then its usage. */
async function streamAll(response: ServerResponse): Promise<void> {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const piece = event([{ index: 0, delta: { content: PIECE }, finish_reason: null }]);
  let wake = (): void => undefined;
  response.on('drain', () => wake()).on('close', () => wake());
  for (let at = 0; at < PIECES && !response.destroyed; at += 1) {
    if (response.write(piece)) continue;
    await new Promise<void>((resolve) => (wake = resolve));
  }
  response.write(event([{ index: 0, delta: {}, finish_reason: 'stop' }]));
  const usage = { prompt_tokens: 10, completion_tokens: 5_000_000, total_tokens: 5_000_010 };
  response.end(`${event([], { usage })}data: [DONE]\n\n`);
}

describe('callers that do not read', () => {
  let engine: TestUpstream;
  let farebox: TestApp;
  const sockets = new Set<Socket>();

  before(async () => {
    engine = await TestUpstream.start();
    engine.otherwise = { kind: 'own', answer: (response) => void streamAll(response) };
    farebox = await startTestApp({
      clock: fastClock(TIMES),
      yaml: `
http: { writeTimeoutSeconds: 9 }
engines: { one: { url: ${engine.url}, totalTimeoutMs: 7000, concurrency: 500 } }
models:
  - { id: m, type: text, context: 100000000, maxCompletionTokens: 20000000, price: { input: 1, output: 0.0001 }, replicas: [{ engine: one }] }
limits: { plans: { staff: { text: { XS: &wide { requestsPerMinute: 100000, tokensPerMinute: 100000000000 }, S: *wide, M: *wide, L: *wide } } }, guard: { failures: 100000 } }
`,
    });
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    await farebox.audit();
    await farebox.stop();
    await engine.kill();
  });

  /** Sends a chat and reads nothing yet. */
  async function ask(body: object): Promise<Socket> {
    const { hostname, port, pathname } = new URL(`${farebox.url}/chat/completions`);
    const socket = connect({ host: hostname, port: Number(port) });
    socket.pause();
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined); // cut off by the server, which is what is tested
    await once(socket, 'connect');
    const json = JSON.stringify({
      model: 'm',
      messages: [{ role: 'user', content: 'Hi' }],
      ...body,
    });
    socket.write(
      `POST ${pathname} HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer ${farebox.owner.secret}\r\ncontent-type: application/json\r\ncontent-length: ${json.length}\r\nconnection: close\r\n\r\n${json}`,
    );
    return socket;
  }

  async function balance(): Promise<bigint> {
    return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
  }

  const connections = (): Promise<number> =>
    new Promise((resolve) => {
      farebox.app.server.server.getConnections((_error, count) => resolve(count));
    });
  const openHolds = async () => (await farebox.app.stores.ledger.audit()).openHolds;

  test('the timeouts of the engine stop while the caller is slow', async () => {
    const before = await balance();
    const socket = await ask({ stream: true });
    // Longer than the engine may take, shorter than the write timeout.
    await new Promise((resolve) => setTimeout(resolve, 7_600 / TIMES));
    let text = '';
    let sizeBytes = 0;
    socket.resume().on('data', (chunk: Buffer) => {
      sizeBytes += chunk.length;
      text = text.slice(-10_000) + chunk.toString('latin1');
    });
    await once(socket, 'close');
    assert.ok(sizeBytes > PIECES * PIECE.length, `${sizeBytes} bytes came`);
    assert.match(text, /"completion_tokens":5000000/);
    assert.match(text, /data: \[DONE\]\n\n/);
    assert.equal(before - (await balance()), 10n * 1_000n + 500_000n);
  });

  test('a caller that reads nothing is disconnected, its engine released, its output charged', async () => {
    const before = await balance();
    const abandoned = engine.abandoned;
    await ask({ stream: true });
    await until(async () => engine.active === 1, 'the engine works');
    await until(async () => (await openHolds()) === 0, 'the caller was cut off');
    await until(async () => engine.abandoned === abandoned + 1, 'the engine is free');
    // One token for the prompt; the output is what the socket and the buffers before it took.
    const paid = before - (await balance());
    assert.ok(paid > 1_000n + 10_000n, `paid ${paid}`);
  });

  test('a non-streaming response that is not read ends too, and is charged', async () => {
    const before = await balance();
    const answer = (response: ServerResponse): void => {
      response.setHeader('content-type', 'application/json');
      const message = { role: 'assistant', content: PIECE.repeat(PIECES) };
      const usage = { prompt_tokens: 10, completion_tokens: 5_000_000 };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      response.end(JSON.stringify({ id: 'c', model: 'm', choices, usage }));
    };
    engine.script.push({ kind: 'own', answer });
    const socket = await ask({});
    await until(async () => before - (await balance()) === 510_000n, 'charged');
    const closed = once(socket, 'close');
    await until(async () => (await connections()) === 0, 'the connection is closed');
    socket.resume();
    await closed;
  });

  test(`${STALLED} of them are gone after the write timeout, and their memory too`, async () => {
    const before = engine.seen.length;
    // The test before has ended everywhere, and its memory is free.
    await until(async () => engine.active === 0 && (await connections()) === 0, 'all is idle');
    const heldBefore = heldNow();
    let mostHeld = 0;
    const look = (): void => void (mostHeld = Math.max(mostHeld, heldNow() - heldBefore));
    const readers: Socket[] = [];
    // One after the other: on a busy machine, thirty at once would exceed the timeout of the engine.
    for (let at = 1; at <= STALLED; at += 1) {
      readers.push(await ask({ stream: true }));
      await until(() => engine.seen.length >= before + at, 'that it runs');
      look();
    }
    // A look collects, which takes long on a busy machine; the server runs between two looks.
    const LOOK_MS = 250;
    await until(
      () => {
        look();
        // On a slow machine, the first ones are gone before the last ones begin.
        return mostHeld > 700_000;
      },
      'that bytes are held',
      LOOK_MS,
    );
    await until(async () => (await openHolds()) === 0, 'all are settled');
    await until(async () => engine.active === 0, 'the engine is free');
    await until(async () => (await connections()) === 0, 'all connections are closed');
    for (const reader of readers) reader.destroy();
    // Less than one of them holds.
    await until(async () => heldNow() - heldBefore < 500_000, 'their memory is free', LOOK_MS);
  });
});
