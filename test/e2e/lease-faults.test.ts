/** Short versions of what `bench/lease-faults.ts` tries at length. */
import { test } from 'node:test';
import { runScenario } from './lease-scenarios.ts';

/** About a dozen callers per process, with a slow engine. */
const PAUSE_MS = 90;

test('a process that is suspended past its dead-after time and resumed charges nothing twice', async () => {
  await runScenario('stopped', 1, PAUSE_MS);
});

test('a promoted synchronous standby has every settle that a client received', async () => {
  await runScenario('standby', 1, PAUSE_MS);
});

test('a process that is suspended longer than the lease of its keys charges none of them twice', async () => {
  await runScenario('keys', 1);
});
