/**
 * Long versions of the lease scenarios; `test/e2e/lease-faults.test.ts` runs short ones.
 *
 * Run: node bench/lease-faults.ts [scenario …]. ROUNDS=100 is the number of kills or suspensions,
 * OLD=/path/to/src/main.ts the previous version for `upgrade`, PGBOUNCER the program for `pooler`.
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
