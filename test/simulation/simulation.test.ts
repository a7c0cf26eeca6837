/** Short runs of the simulation; `npm run simulate` makes long ones. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { endWithUs } from '../support/end-with-us.ts';
import { type Plan, planOf, shrink } from './plan.ts';
import { PLANTED, planted } from './planted.ts';

const SIMULATE = fileURLToPath(new URL('simulate.ts', import.meta.url));
const LONG_TEXT = 16 * 1024 * 1024;

/** Lets Node.js close a connection whose request has not arrived after 20 ms of real time. */
const HASTE = `data:text/javascript,${encodeURIComponent(`
  import http from 'node:http';
  import { syncBuiltinESMExports } from 'node:module';
  const { createServer } = http;
  const limits = { requestTimeout: 20, headersTimeout: 20, connectionsCheckingInterval: 5 };
  http.createServer = (options, listener) =>
    typeof options === 'function' ? createServer(limits, options) : createServer({ ...options, ...limits }, listener);
  syncBuiltinESMExports();
`)}`;

/** Standard output of a run that ended with `code`. */
async function simulate(code: number, ...options: readonly string[]): Promise<string> {
  const running = promisify(execFile)(process.execPath, options, {
    maxBuffer: LONG_TEXT,
  });
  endWithUs(running.child);
  const ended = await running.then(
    ({ stdout }) => ({ code: 0, stdout }),
    (error: unknown) => error as { readonly code: number; readonly stdout: string },
  );
  assert.equal(ended.code, code, ended.stdout);
  return ended.stdout;
}

test('the books are right after crashes and lost messages, and a seed has one history', async () => {
  const [both, alone] = await Promise.all([
    simulate(0, SIMULATE, '--seed', '113', '--seeds', '2', '--minutes', '0.3'),
    // No history depends on real time.
    simulate(0, '--import', HASTE, SIMULATE, '--seed', '114', '--minutes', '0.3'),
  ]);
  const hashes = [...`${both}${alone}`.matchAll(/^seed (\d+): ([0-9a-f]{16}), (\d+) of/gm)];
  assert.deepEqual(
    hashes.map(([, seed]) => seed),
    ['113', '114', '114'],
  );
  assert.notEqual(hashes[0]?.[2], hashes[1]?.[2]);
  // The second run has wallets, whose libraries keep state in the process.
  assert.equal(hashes[1]?.[2], hashes[2]?.[2]);
  for (const [, , , served] of hashes) assert.ok(Number(served) > 20);
});

test('several servers on one PostgreSQL have right books after crashes, failovers and lost leases', async () => {
  const options = [SIMULATE, '--seed', '1606', '--minutes', '0.2', '--processes', '2'];
  const [one, other] = await Promise.all([simulate(0, ...options), simulate(0, ...options)]);
  const [, hash, served] = /^seed 1606: ([0-9a-f]{16}), (\d+) of/m.exec(one) ?? [];
  assert.ok(Number(served) > 20, one);
  assert.ok(other.startsWith(`seed 1606: ${hash},`), `${one}${other}`);
});

test('a planted bug is found', async () => {
  const bug = 'a settled request keeps its hold';
  const options = ['--seed', '2', '--minutes', '0.2', '--no-shrink'];
  const found = await simulate(1, SIMULATE, '--plant', bug, ...options);
  assert.match(found, /holds (?:of requests )?did not end$/m);
});

test('a plan is shortened to the faults and callers that a defect needs', async () => {
  const plan = planOf('14', 600_000);
  const needed = plan.faults.find(({ kind }) => kind === 'crash');
  const isThere = async ({ faults, callers }: Plan): Promise<boolean> =>
    faults.some(({ atMs }) => atMs === needed?.atMs) &&
    callers.some(({ kind }) => kind === 'keyed');
  const shortest = await shrink(plan, isThere);
  assert.deepEqual(shortest.faults, [needed]);
  assert.deepEqual(
    shortest.callers.map(({ kind }) => kind),
    ['keyed'],
  );
  assert.ok(shortest.durationMs < 2 * (needed?.atMs ?? 0) + 2_000);
});

test('each bug can still be planted', () => {
  const bugs = [...PLANTED.values()];
  for (const bug of bugs) planted(bug);
  assert.equal(bugs.length, 35);
});
