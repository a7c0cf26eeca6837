/**
 * Short histories of idempotency keys under faults. For more: `KEYS=10000 SEED=7 npx node --test
 * --test-isolation=none test/keys/key-histories.test.ts`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { runHistories } from './key-histories.ts';

const KEYS = Number(process.env['KEYS'] ?? '250');
const SEED = Number(process.env['SEED'] ?? '1');

test('one key has one charge and one response under faults of processes and networks', async (t) => {
  const report = await runHistories(await emptyPostgresDatabase(), { keys: KEYS, seed: SEED });
  t.diagnostic(JSON.stringify(report));
  assert.equal(report.keys, KEYS);
  // The faults had effects: keys were taken over, and most requests still got a response.
  assert.ok(report.lost > 0 && report.runs > KEYS, JSON.stringify(report));
  assert.ok(report.fromJournal > 0 && report.unavailable > 0, JSON.stringify(report));
  assert.ok(report.charged > KEYS * 0.8, JSON.stringify(report));
});
