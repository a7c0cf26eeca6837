/**
 * 10,000 idle connections: their memory, and chats of 64 callers beside them, compared with the
 * same server without them and with a bare proxy.
 *
 * Run: node bench/connections.ts
 */
import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import {
  type Figures,
  type Target,
  chatBody,
  medians,
  report,
  residentMegabytes,
  runWindow,
  startPair,
  startProcess,
  stopAll,
  warmUp,
} from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const CONNECTIONS = Number(process.env['CONNECTIONS'] ?? '10000');
/** Connections that are opened at once. */
const STEP = 200;
/** After opening and closing: 10,000 connections cost a process of Node 0.6 s to close. */
const SETTLE_MS = 2_000;

/** Opens connections that have had one response, and then wait. */
async function openIdle(target: Target): Promise<Socket[]> {
  const { hostname, port, pathname } = new URL(target.url);
  const sockets: Socket[] = [];
  for (let at = 0; at < CONNECTIONS; at += STEP) {
    const opened = Array.from({ length: Math.min(STEP, CONNECTIONS - at) }, async () => {
      const socket = connect(Number(port), hostname);
      socket.write(
        `GET ${pathname.replace(/\/$/, '')}/models HTTP/1.1\r\nhost: ${hostname}\r\n\r\n`,
      );
      await once(socket, 'data');
      return socket;
    });
    sockets.push(...(await Promise.all(opened)));
  }
  return sockets;
}

const upstream = await startProcess('./fixed-upstream.ts');
const targets = await startPair(upstream, {
  BENCH_YAML: `http: { maxConnections: ${CONNECTIONS * 8} }`,
});

try {
  const load = { path: '/chat/completions', body: chatBody(), connections: 64, windowMs: 1_000 };
  const results = new Map<string, Figures>();
  for (const target of targets) {
    await warmUp(target, load);
    const alone: Figures[] = [];
    const beside: Figures[] = [];
    const before = residentMegabytes(target.pid);
    let grown = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      alone.push(await runWindow(target, load));
      const sockets = await openIdle(target);
      await delay(SETTLE_MS);
      if (round === 0) grown = residentMegabytes(target.pid) - before;
      beside.push(await runWindow(target, load));
      const closed = sockets.filter((one) => one.closed).length;
      if (closed > 0) console.log(`${target.name} has closed ${closed} idle connections`);
      for (const socket of sockets) socket.destroy();
      await delay(SETTLE_MS);
    }
    results.set(`${target.name}, alone`, medians(alone));
    results.set(`${target.name}, beside`, medians(beside));
    console.log(`${target.name}: ${grown.toFixed(1)} MB more for ${CONNECTIONS} connections`);
  }
  report(`chat JSON beside ${CONNECTIONS} idle connections`, results);
} finally {
  await stopAll();
}
