/**
 * Runs the server in a simulated world:
 *
 *   npm run simulate -- --seed 42 --hours 1
 *   npm run simulate -- --seeds 1000 --minutes 10
 *   npm run simulate -- --plant "settles are not durable" --seeds 1000
 *
 * Prints one line for each run, with the hash of its trace: the same seed gives the same hash. After a
 * defect it looks for the shortest plan that shows it, prints its history, and exits with 1.
 */
import { readFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { parseArgs } from 'node:util';
import { SimulatedPostgres } from './database.ts';
import { replaceEdges } from './edges.ts';
import { planOf, type Plan } from './plan.ts';
import { PLANTED, plant } from './planted.ts';
import { shrink } from './shrink.ts';
import type { RunResult } from './town.ts';
import { World, enter } from './world.ts';

const MINUTE_MS = 60_000;
const MINUTES_PER_HOUR = 60;
const HASH_DIGITS = 16;

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1' },
    minutes: { type: 'string', default: '10' },
    hours: { type: 'string' },
    processes: { type: 'string', default: '1' },
    plan: { type: 'string' },
    plant: { type: 'string' },
    'show-plants': { type: 'boolean', default: false },
    trace: { type: 'boolean', default: false },
    'no-shrink': { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
  },
});

if (values.help) {
  console.log(`Usage: npm run simulate -- [options]

  --seed N          the first seed (default 1)
  --seeds N         number of seeds, one after the other (default 1)
  --minutes N       simulated minutes with callers and faults in each run (default 10)
  --hours N         the same in hours
  --processes N     servers: one on SQLite (default), or several on one PostgreSQL
  --plan FILE       runs a plan that a failed run has printed
  --plant NAME      plants a bug in the server, to see that it is found
  --show-plants     lists these bugs
  --trace           prints every event of the run
  --no-shrink       ends at a defect without looking for a shorter plan`);
  process.exit(0);
}
if (values['show-plants']) {
  for (const { name } of PLANTED) console.log(name);
  process.exit(0);
}

if (values.plant !== undefined) plant(values.plant);
const givenPlan =
  values.plan === undefined ? undefined : (JSON.parse(readFileSync(values.plan, 'utf8')) as Plan); // printed by an earlier run
const processes = givenPlan?.processes ?? Number(values.processes);
enableCompileCache();
const realMs = performance.now.bind(performance);
enter(new World('start'));
const database = processes > 1 ? await SimulatedPostgres.start() : undefined;
replaceEdges();
const { Town, removeOldFolders } = await import('./town.ts');
const { resetLibraries } = await import('./libraries.ts');
removeOldFolders();

const durationMs =
  Number(values.hours ?? Number(values.minutes) / MINUTES_PER_HOUR) * MINUTES_PER_HOUR * MINUTE_MS;
const first = Number(values.seed);
for (let seed = first; seed < first + Number(values.seeds); seed += 1) {
  const plan = givenPlan ?? planOf(String(seed), durationMs, processes);
  const startedMs = realMs();
  const { defect, result, world } = await runPlan(plan, values.trace);
  if (result === undefined) {
    await report(plan, world, defect);
    process.exit(1);
  }
  const seconds = (realMs() - startedMs) / 1_000;
  const minutes = Math.round(result.simulatedMs / MINUTE_MS);
  console.log(
    `seed ${plan.seed}: ${result.traceHash.slice(0, HASH_DIGITS)}, ${result.served} of ${result.requests} requests served, ${minutes} minutes in ${seconds.toFixed(1)} s`,
  );
}
process.exit(0);

interface Ran {
  readonly world: World;
  readonly result?: RunResult;
  readonly defect?: unknown;
}

async function runPlan(plan: Plan, isTraced = false): Promise<Ran> {
  const world = new World(plan.seed);
  if (isTraced) world.onLine = (line) => process.stdout.write(line);
  enter(world);
  resetLibraries();
  try {
    return { world, result: await new Town(plan, database).run() };
  } catch (defect) {
    return { world, defect };
  }
}

async function report(plan: Plan, world: World, defect: unknown): Promise<void> {
  console.log(`seed ${plan.seed}: ${reasonOf(defect)}`);
  let shortest = plan;
  let shown = world;
  if (!values['no-shrink']) {
    console.log('Looking for a shorter plan with a defect …');
    shortest = await shrink(plan, async (shorter) => {
      const ran = await runPlan(shorter);
      if (ran.result !== undefined || kindOf(ran.defect) !== kindOf(defect)) return false;
      shown = ran.world;
      return true;
    });
  }
  console.log(`\nHistory of ${shortest.durationMs / 1_000} s:\n`);
  for (const line of shown.story()) console.log(line);
  console.log(`\n${reasonOf(shown.defect ?? defect)}`);
  console.log(`\nPlan, for --plan FILE:\n${JSON.stringify(shortest)}`);
}

/** The message of a defect without its ids and amounts. */
function kindOf(defect: unknown): string {
  return reasonOf(defect).replace(/[\w-]*\d[\w-]*/g, '#');
}

function reasonOf(defect: unknown): string {
  return defect instanceof Error ? defect.message : String(defect);
}
