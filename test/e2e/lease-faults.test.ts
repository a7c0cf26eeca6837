/** Short versions of what `bench/lease-faults.ts` tries at length. */
import { test } from 'node:test';
import { runScenario } from './lease-scenarios.ts';

test('a process that is stopped past its death and continued counts nothing twice', async () => {
  await runScenario('stopped', 1);
});

test('a synchronous standby that is promoted under load has every settle that was seen', async () => {
  await runScenario('standby', 1);
});
