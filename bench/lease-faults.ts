/**
 * What leases must survive, at length; `test/e2e/lease-faults.test.ts` runs short versions.
 *
 * Run: node bench/lease-faults.ts [scenario …]; ROUNDS=100 says how often a process is killed or
 * stopped, OLD=/path/to/src/main.ts is the version before for `upgrade`, PGBOUNCER the program for
 * `pooler`.
 */
import { SCENARIOS, runScenario } from '../test/e2e/lease-scenarios.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '3');

const wanted = process.argv.slice(2);
for (const name of Object.keys(SCENARIOS)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const startedMs = performance.now();
  const result = await runScenario(name, ROUNDS);
  const seconds = Math.round((performance.now() - startedMs) / 1_000);
  console.log(`${name} (${seconds} s): ${result}`);
}
