/**
 * Farebox beside other gateways, on the same upstream and compared with the bare proxy. Portkey is
 * installed from npm into a temporary folder. Any other gateway is measured by its URL:
 *
 *   UPSTREAM_PORT=9100 PEER_URL=http://127.0.0.1:4000/v1 PEER_KEY=sk-… PEER_PID=1234 node bench/peers.ts
 *
 * Start it first, with `http://127.0.0.1:9100` as its model server and a model `bench-model`.
 * `PEER_PID` is its process, whose CPU time counts.
 */
import { execFileSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '../test/support/free-port.ts';
import {
  type Target,
  chatBody,
  compare,
  report,
  startPair,
  startProcess,
  stopAll,
  temporaryFolder,
} from './harness.ts';
import { compareByWrk, missingForWrk } from './wrk.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const PORTKEY = '@portkey-ai/gateway@1.15.2';
const START_SECONDS = 30;
const INSTALL_SECONDS = 300;

/** Portkey without authentication, records or billing: it forwards to the host in a header. */
async function startPortkey(upstreamUrl: string): Promise<Target & { readonly stop: () => void }> {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'package.json'), '{}');
  console.log(`Installing ${PORTKEY} …`);
  const flags = ['install', '--no-audit', '--no-fund', '--ignore-scripts', PORTKEY];
  execFileSync('npm', flags, { cwd: folder, stdio: 'ignore', timeout: INSTALL_SECONDS * 1_000 });
  const port = await freePort();
  const program = join(folder, 'node_modules/@portkey-ai/gateway/build/start-server.js');
  const child = spawn(process.execPath, [program, `--port=${port}`, '--headless'], {
    env: { ...process.env, NODE_ENV: 'production', TRUSTED_CUSTOM_HOSTS: '127.0.0.1' },
    stdio: 'ignore',
  });
  const url = `http://127.0.0.1:${port}`;
  for (let second = 0; ; second += 1) {
    const isReady = await fetch(url).then(
      (response) => response.ok,
      () => false, // not listening yet
    );
    if (isReady) break;
    if (second >= START_SECONDS) throw new Error(`Portkey has not started in ${START_SECONDS} s`);
    await delay(1_000);
  }
  const headers = {
    'x-portkey-provider': 'openai',
    'x-portkey-custom-host': upstreamUrl,
    authorization: 'Bearer unused',
  };
  const stop = (): void => void child.kill('SIGKILL');
  return { name: 'portkey', url: `${url}/v1`, pid: child.pid ?? 0, headers, stop };
}

const { PEER_URL, PEER_KEY, PEER_PID, UPSTREAM_PORT } = process.env;
const upstream = await startProcess('./fixed-upstream.ts', {
  env: UPSTREAM_PORT === undefined ? {} : { BENCH_PORT: UPSTREAM_PORT },
});
const targets: Target[] = [...(await startPair(upstream))];
const stops: (() => void)[] = [];
try {
  if (PEER_URL === undefined) {
    const portkey = await startPortkey(upstream.url);
    stops.push(portkey.stop);
    targets.push(portkey);
  } else {
    const headers = PEER_KEY === undefined ? {} : { authorization: `Bearer ${PEER_KEY}` };
    targets.push({ name: 'peer', url: PEER_URL, pid: Number(PEER_PID ?? '0'), headers });
  }
  const load = { path: '/chat/completions', connections: 64, windowMs: 1_000, body: chatBody() };
  report('chat JSON, 1 KB prompt, 64 callers', await compare(targets, load, ROUNDS));
  const missing = missingForWrk();
  if (missing !== undefined) console.log(`\nNo figures by wrk: ${missing}`);
  else {
    const byWrk = { ...load, windowMs: 2_000 };
    const figures = await compareByWrk(targets, upstream.pid, byWrk, ROUNDS);
    report('chat JSON by wrk, one core for the server', figures);
  }
} finally {
  for (const stop of stops) stop();
  await stopAll();
}
