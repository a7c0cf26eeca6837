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
import { mkdtempSync, readFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { Command } from '@commander-js/extra-typings';
import { removeWithUs } from '../support/end-with-us.ts';
import { SimulatedPostgres } from './database.ts';
import { replaceEdges } from './edges.ts';
import { type Plan, planOf, shrink } from './plan.ts';
import { plant } from './planted.ts';
import { World, enter } from './world.ts';

const MINUTE_MS = 60_000;
const HASH_DIGITS = 16;

const values = new Command('npm run simulate --')
  .option('--seed <n>', 'the first seed', Number, 1)
  .option('--seeds <n>', 'number of seeds, one after the other', Number, 1)
  .option('--minutes <n>', 'simulated minutes with callers and faults in each run', Number, 10)
  .option('--hours <n>', 'the same in hours', Number)
  .option('--processes <n>', 'one server on SQLite, or several on one PostgreSQL', Number, 1)
  .option('--plan <file>', 'runs a plan that a failed run has printed')
  .option(
    '--plant <name>',
    'plants a bug of planted-bugs.txt in the server, to see that it is found',
  )
  .option('--trace', 'prints every event of the run')
  .option('--no-shrink', 'ends at a defect without looking for a shorter plan')
  .parse()
  .opts();

if (values.plant !== undefined) plant(values.plant);
const givenPlan =
  values.plan === undefined ? undefined : (JSON.parse(readFileSync(values.plan, 'utf8')) as Plan); // printed by an earlier run
const processes = givenPlan?.processes ?? values.processes;
enableCompileCache();
const realMs = performance.now.bind(performance);
enter(new World('start'));
const folder = mkdtempSync('/dev/shm/farebox-simulation-');
removeWithUs(folder);
const database = processes > 1 ? await SimulatedPostgres.start() : undefined;
replaceEdges();
const { Run } = await import('./run.ts');
const { resetLibraries } = await import('./libraries.ts');

const minutes = values.hours === undefined ? values.minutes : values.hours * 60;
for (let seed = values.seed; seed < values.seed + values.seeds; seed += 1) {
  const plan = givenPlan ?? planOf(String(seed), minutes * MINUTE_MS, processes);
  const startedMs = realMs();
  const { defect, seen, world } = await runPlan(plan, values.trace);
  if (defect !== undefined) {
    await report(plan, world, defect);
    process.exit(1);
  }
  const seconds = (realMs() - startedMs) / 1_000;
  const served = seen.filter(({ status }) => status === 200).length;
  const simulated = Math.round(world.passedMs / MINUTE_MS);
  console.log(
    `seed ${plan.seed}: ${world.traceHash().slice(0, HASH_DIGITS)}, ${served} of ${seen.length} requests served, ${simulated} minutes in ${seconds.toFixed(1)} s`,
  );
}
process.exit(0);

/** The defect is `undefined` if the run has found none. */
async function runPlan(plan: Plan, isTraced = false) {
  const world = new World(plan.seed);
  if (isTraced) world.onLine = (line) => process.stdout.write(line);
  enter(world);
  resetLibraries();
  const run = new Run(plan, folder, database);
  const defect: unknown = await run.run().catch((error: unknown) => error);
  return { world, seen: run.seen, defect };
}

async function report(plan: Plan, world: World, defect: unknown): Promise<void> {
  console.log(`seed ${plan.seed}: ${reasonOf(defect)}`);
  let shortest = plan;
  let shown = world;
  if (values.shrink) {
    console.log('Looking for a shorter plan with a defect …');
    shortest = await shrink(plan, async (shorter) => {
      const ran = await runPlan(shorter);
      if (kindOf(ran.defect) !== kindOf(defect)) return false;
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
