/**
 * Runs the tests: `node test/run.ts [files]`. Several processes at once take batches of files from one
 * list, the slow ones first, so that a test that waits leaves its core to another. They share one
 * PostgreSQL and one build of the program, which starts faster than its source; within a process the
 * files share chains and compiled modules too.
 *
 * What the tests write to the temporary folder lies in one folder of the run, which goes with it.
 *
 * Each batch's report is printed when it is there; the files that took longest and the sums come last.
 * Ends with 1 when a test failed, a process broke off, or nothing ran.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BUILT_PROGRAM } from './app/program.ts';
import {
  PREPARED,
  preparePostgres,
  startPostgres,
  type TestPostgres,
} from './databases/postgres.ts';
import { installTestPackages } from './install.ts';
import { endWithUs, removeWithUs } from './support/end-with-us.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

const PATTERNS = ['src/**/*.test.ts', 'test/**/*.test.ts'];
const MAX_PROCESSES = 6;
/** A process lives for this many files: starting one takes a second. */
const BATCH_FILES = 16;
const TIMEOUT_MS = 600_000;
/** What begins first, each in another batch: it takes longest, with browsers, processes or much to ask. */
const SLOWEST = [
  'test/package/package.test.ts',
  'test/e2e/console.test.ts',
  'test/e2e/docs-browser.test.ts',
  'test/e2e/fuzz.test.ts',
  'test/e2e/several-processes.test.ts',
  'test/e2e/lease-faults.test.ts',
  'test/e2e/wallet-crash.test.ts',
  'test/e2e/media.test.ts',
  'test/e2e/media-engines.test.ts',
  'test/e2e/sold-films.test.ts',
  'test/e2e/slow-readers.test.ts',
  'test/e2e/kill.test.ts',
  'test/e2e/console-media.test.ts',
  'src/video/video.test.ts',
  'src/cli/cli.test.ts',
];
const SHOWN_FILES = 15;
const FILE_TIMES = fileURLToPath(new URL('support/file-times.ts', import.meta.url));
/** The lines of node's own summary that are added up. */
const COUNTS = ['tests', 'pass', 'fail', 'cancelled', 'skipped', 'todo'];

const startedMs = Date.now();
const given = process.argv.slice(2);
const files =
  given.length > 0 ? given : slowFirst(globSync(PATTERNS, { exclude: ['test/node_modules'] }));
const batches = cut(files);
const total = new Map<string, number>();
const broken: string[] = [];
/** `seconds file` of each file that has run. */
const timesOfFiles: string[] = [];

const missing = installTestPackages();
if (missing !== undefined) {
  console.error(missing);
  process.exit(1);
}
const folder = temporaryFolder();
await fetchEngines();
const isWhole = batches.length > 1;
const [postgres] = await Promise.all([
  isWhole ? sharedPostgres() : undefined,
  compileOnce(),
  isWhole ? buildOnce() : undefined,
]);
await Promise.all(Array.from({ length: processes() }, takeBatches));
showSlowest();

for (const name of COUNTS) console.log(`ℹ ${name} ${total.get(name) ?? 0}`);
console.log(`ℹ seconds ${Math.round((Date.now() - startedMs) / 1_000)}`);
if ((total.get('pass') ?? 0) === 0) broken.push('No test ran');
for (const line of broken) console.error(line);
await postgres?.close();
rmSync(folder, { recursive: true, force: true });
process.exitCode = broken.length > 0 ? 1 : 0;

/** The tests' own, so that nothing of theirs stays when they are cut off. */
function temporaryFolder(): string {
  const made = mkdtempSync(join(tmpdir(), 'farebox-run-'));
  // Other users enter it: PostgreSQL runs as one of them when the tests are run by root.
  chmodSync(made, 0o755);
  removeWithUs(made);
  process.env['TMPDIR'] = made;
  return made;
}

/** One for all processes of the run, unless one is named; started once, and made out of one cluster. */
async function sharedPostgres(): Promise<TestPostgres | undefined> {
  if (process.env['TEST_DATABASE_URL'] !== undefined) return undefined;
  const from = preparePostgres();
  process.env[PREPARED] = from.folder;
  const server = await startPostgres({ from });
  process.env['TEST_DATABASE_URL'] = server.url('postgres');
  return server;
}

/** The packages of the embedded engines, which no installation brings. */
async function fetchEngines(): Promise<void> {
  const script = join(ROOT, 'scripts/fetch-engines.ts');
  const child = endWithUs(spawn(process.execPath, [script], { stdio: 'inherit' }));
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) broken.push('The packages of the embedded engines are not here');
}

/**
 * Compiles the server into the cache that all processes of the tests share: one that is killed
 * writes nothing there.
 */
async function compileOnce(): Promise<void> {
  process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, 'node_modules/.cache/farebox');
  const script = `await import(${JSON.stringify(new URL('../src/server/server.ts', import.meta.url))})`;
  const child = endWithUs(
    spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' }),
  );
  await once(child, 'exit');
}

/**
 * Packs the program, for the test of the package, and lets the other tests start what was packed: a
 * built server starts with half the work. Tests of a few files start the source.
 */
async function buildOnce(): Promise<void> {
  const script = join(ROOT, 'scripts/package.ts');
  const built = endWithUs(spawn(process.execPath, [script, folder], { stdio: 'ignore' }));
  const [code] = (await once(built, 'exit')) as [number | null];
  const [tarball] = globSync(join(folder, '*.tgz'));
  if (code !== 0 || tarball === undefined) {
    broken.push('The program cannot be packed: npm run package says why');
    return;
  }
  process.env['FAREBOX_PACKAGE'] ??= tarball;
  process.env[BUILT_PROGRAM] = join(ROOT, 'dist/main.js');
}

/** One more than there are cores: a third of the time tests wait for something. */
function processes(): number {
  return Math.min(MAX_PROCESSES, Math.max(2, availableParallelism()) + 1, batches.length);
}

/** Then end to end, and large before small: what takes longest should not begin last. */
function slowFirst(found: readonly string[]): string[] {
  const weight = (file: string): number => {
    const place = SLOWEST.indexOf(file);
    if (place !== -1) return 3_000_000 - place;
    return statSync(file).size + (file.startsWith('test') ? 1_000_000 : 0);
  };
  return found.toSorted((a, b) => weight(b) - weight(a));
}

/** Neighbours of the list go to different batches, so that no batch has all that is slow. */
function cut(list: readonly string[]): string[][] {
  const count = Math.max(1, Math.ceil(list.length / BATCH_FILES));
  const cuts = Array.from({ length: count }, (): string[] => []);
  for (const [at, file] of list.entries()) cuts[at % count]?.push(file);
  return cuts;
}

async function takeBatches(): Promise<void> {
  for (let batch = batches.shift(); batch !== undefined; batch = batches.shift()) {
    await runBatch(batch);
  }
}

async function runBatch(batch: readonly string[]): Promise<void> {
  const times = join(folder, `times-${batch[0]?.replaceAll('/', '-')}`);
  const flags = [
    '--test',
    '--test-force-exit',
    '--test-isolation=none',
    `--test-timeout=${TIMEOUT_MS}`,
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    `--test-reporter=${FILE_TIMES}`,
    `--test-reporter-destination=${times}`,
  ];
  const child = endWithUs(
    spawn(process.execPath, [...flags, ...batch], {
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  );
  const parts: Buffer[] = [];
  child.stdout.on('data', (part: Buffer) => parts.push(part));
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  const said = Buffer.concat(parts).toString();
  process.stdout.write(said);
  if (existsSync(times)) timesOfFiles.push(...readFileSync(times, 'utf8').trim().split('\n'));
  if (code !== 0) broken.push(`A process ended with ${code}: ${batch.join(' ')}`);
  for (const name of COUNTS) {
    const count = new RegExp(`^ℹ ${name} (\\d+)$`, 'm').exec(said)?.[1];
    if (count !== undefined) total.set(name, (total.get(name) ?? 0) + Number(count));
    else if (code === 0) broken.push(`No count of ${name}: ${batch.join(' ')}`);
  }
}

/** What would have to become faster. */
function showSlowest(): void {
  const slowest = timesOfFiles.toSorted((a, b) => parseFloat(b) - parseFloat(a));
  for (const line of slowest.slice(0, SHOWN_FILES)) console.log(`ℹ slow ${line}`);
}
