/**
 * Runs the tests: `node test/run.ts [files]`. Several processes (`run-files.ts`) take files from
 * one list, the slow ones first. They share one PostgreSQL and one build of the program, which
 * starts faster than its source; files of one process also share chains and loaded modules.
 * Temporary files of the tests are in one folder, which is removed at the end. The report of a file
 * is printed when it is complete; the slowest files, totals and all failures are printed at the end.
 * Exits with 1 if a test failed, a process crashed, or a file did not run.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { availableParallelism, freemem, tmpdir } from 'node:os';
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
import { cpuSeconds } from './support/cpu-seconds.ts';
import { endWithUs, removeWithUs } from './support/end-with-us.ts';
import type { FileTimes } from './support/file-times.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

const PATTERNS = ['src/**/*.test.ts', 'engines/*/*.test.ts', 'test/**/*.test.ts'];
const MAX_PROCESSES = 6;
/** A run of fewer files starts its own PostgreSQL and the source, because preparing takes longer. */
const FEW_FILES = 16;
/** The slowest files, which start first. */
const SLOWEST = [
  'test/e2e/fuzz.test.ts',
  'test/e2e/console.test.ts',
  'test/e2e/console-pages.test.ts',
  'test/e2e/slow-readers.test.ts',
  'test/e2e/docs-browser.test.ts',
  'test/e2e/media.test.ts',
  'test/e2e/several-processes.test.ts',
  'test/package/package.test.ts',
  'test/e2e/lease-faults.test.ts',
  'test/e2e/media-engines.test.ts',
  'test/e2e/wallet-crash.test.ts',
  'test/simulation/simulation.test.ts',
  'test/e2e/sold-films.test.ts',
  'test/e2e/media-room.test.ts',
  'src/billing/ledger/postgres/leases.test.ts',
  'src/video/video.test.ts',
  'test/e2e/console-media.test.ts',
  'test/e2e/wallets.test.ts',
  'test/e2e/kill.test.ts',
  'test/readme.test.ts',
  'src/cli/cli.test.ts',
  'engines/cutout/cutout.test.ts',
  'src/engines/media/media.test.ts',
  'src/documents/bombs.test.ts',
  'src/payments/extensions/upto.test.ts',
  'src/rpc/hostile-callers.test.ts',
  'src/payments/crash.test.ts',
  'src/documents/worker-pool.test.ts',
];
const SHOWN_FILES = 15;
/** Longer than the timeout of a file in its process. */
const STUCK_MS = 270_000;
const WATCH_MS = 2_000;
/** Time to print the running tests. */
const LAST_WORDS_MS = 10_000;
/** A file system in memory, and the free space that a run needs there. */
const MEMORY_FOLDER = '/dev/shm';
const MEMORY_BYTES = 6 * 2 ** 30;
const RUN_FILES = fileURLToPath(new URL('run-files.ts', import.meta.url));
const FILE_REPORT = fileURLToPath(new URL('support/file-report.ts', import.meta.url));
const FILE_TIMES = fileURLToPath(new URL('support/file-times.ts', import.meta.url));
const COUNTS = ['tests', 'pass', 'fail'] as const;

const startedMs = Date.now();
const given = process.argv.slice(2);
const files =
  given.length > 0 ? given : slowFirst(globSync(PATTERNS, { exclude: ['test/node_modules'] }));
const broken: string[] = [];
/** Processes of the run. */
let started = 0;
/** Report of each completed file. */
const times: FileTimes[] = [];

const missing = installTestPackages();
if (missing !== undefined) {
  console.error(missing);
  process.exit(1);
}
const folder = temporaryFolder();
await fetchEngines();
const isWhole = files.length > FEW_FILES;
const [postgres] = await Promise.all([
  isWhole ? sharedPostgres() : undefined,
  isWhole ? fetchBrowser() : undefined,
  compileOnce(),
  isWhole ? buildOnce() : undefined,
]);
const list = join(folder, 'list');
const taken = join(folder, 'taken');
writeFileSync(list, files.join('\n'));
mkdirSync(taken);
await Promise.all(Array.from({ length: processes() }, runFiles));
showSlowest();

for (const name of COUNTS) console.log(`ℹ ${name} ${sumOf(name)}`);
console.log(`ℹ not run ${sumOf('tests') - sumOf('pass') - sumOf('fail')}`);
console.log(`ℹ seconds ${Math.round((Date.now() - startedMs) / 1_000)}`);
console.log(`ℹ seconds of the cores ${Math.round(cpuSeconds(process.pid))}`);
const seen = new Set(times.filter(({ tests }) => tests > 0).map(({ file }) => file));
for (const file of files) if (!seen.has(file)) broken.push(`No test of ${file} has run`);
for (const { file, failures } of times)
  for (const failure of failures) console.error(`✖ ${file}: ${failure}`);
for (const line of broken) console.error(line);
await postgres?.close();
rmSync(folder, { recursive: true, force: true });
process.exitCode = broken.length > 0 ? 1 : 0;

/** The temporary folder of the tests, so that an aborted run leaves no files. */
function temporaryFolder(): string {
  const made = mkdtempSync(join(hasMemory() ? MEMORY_FOLDER : tmpdir(), 'farebox-run-'));
  // Other users need access, because PostgreSQL runs as another user if root runs the tests.
  chmodSync(made, 0o755);
  removeWithUs(made);
  process.env['TMPDIR'] = made;
  return made;
}

/** Tests do not simulate a power failure, so no flush is needed. */
function hasMemory(): boolean {
  if (process.env['TMPDIR'] !== undefined || !existsSync(MEMORY_FOLDER)) return false;
  const { bavail, bsize } = statfsSync(MEMORY_FOLDER);
  return Math.min(bavail * bsize, freemem()) > MEMORY_BYTES;
}

/** One PostgreSQL for all processes, unless an environment variable names one. */
async function sharedPostgres(): Promise<TestPostgres | undefined> {
  if (process.env['TEST_DATABASE_URL'] !== undefined) return undefined;
  const from = preparePostgres();
  process.env[PREPARED] = from.folder;
  const server = await startPostgres({ from });
  process.env['TEST_DATABASE_URL'] = server.url('postgres');
  return server;
}

/** Packages of the embedded engines, which `npm ci` does not install. */
async function fetchEngines(): Promise<void> {
  const script = join(ROOT, 'scripts/fetch-engines.ts');
  const child = endWithUs(spawn(process.execPath, [script], { stdio: 'inherit' }));
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) broken.push('The packages of the embedded engines are not here');
}

/** Downloads the browser before several files need it; a failure is reported by the tests. */
async function fetchBrowser(): Promise<void> {
  // The package may have been installed by this run.
  const { findChromium } = await import('./support/chromium.ts');
  await findChromium().catch(() => undefined);
}

/** Compiles the server into the shared compile cache, because killed processes write nothing to it. */
async function compileOnce(): Promise<void> {
  process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, 'node_modules/.cache/farebox');
  const script = `await import(${JSON.stringify(new URL('../src/server/server.ts', import.meta.url))})`;
  const child = endWithUs(
    spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' }),
  );
  await once(child, 'exit');
}

/**
 * Builds the package for its test and for the other tests, because the build starts in half the
 * time. Runs of a few files start the source.
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

/** One more process than cores, because tests wait for a third of their time. */
function processes(): number {
  return Math.min(MAX_PROCESSES, Math.max(2, availableParallelism()) + 1, files.length);
}

/** Then end-to-end tests, and large files before small ones, so that the longest do not start last. */
function slowFirst(found: readonly string[]): string[] {
  const weight = (file: string): number => {
    const place = SLOWEST.indexOf(file);
    if (place !== -1) return 3_000_000 - place;
    return statSync(file).size + (file.startsWith('test') ? 1_000_000 : 0);
  };
  return found.toSorted((a, b) => weight(b) - weight(a));
}

/** Restarts the process as long as files are left. */
async function runFiles(): Promise<void> {
  while ((await runProcess()) && readdirSync(taken).length < files.length);
}

/** Numbers of its files. */
function takenBy({ pid }: ChildProcess): string[] {
  const all = readdirSync(taken);
  return all.filter((number) => readFileSync(join(taken, number), 'utf8') === String(pid));
}

/** Kills a process whose file exceeds the timeout, for example in a hook or an endless loop. */
function watch(child: ChildProcess): () => void {
  let endsMs = Infinity;
  const look = (): void => {
    const own = takenBy(child).map((number) => {
      return { number, takenMs: statSync(join(taken, number)).mtimeMs };
    });
    const last = own.toSorted((a, b) => a.takenMs - b.takenMs).at(-1);
    if (last === undefined || Date.now() < last.takenMs + STUCK_MS) return;
    if (Date.now() > endsMs + LAST_WORDS_MS) child.kill('SIGKILL');
    if (endsMs < Infinity) return;
    endsMs = Date.now();
    broken.push(`${files[Number(last.number)]} did not end within ${STUCK_MS / 1_000} s`);
    child.kill('SIGTERM');
  };
  const timer = setInterval(look, WATCH_MS);
  return () => clearInterval(timer);
}

/** True if it has started a file. */
async function runProcess(): Promise<boolean> {
  started += 1;
  const written = join(folder, `times-${started}`);
  const child = endWithUs(
    spawn(
      process.execPath,
      [
        '--test-force-exit',
        ...reporter(FILE_REPORT, 'stdout'),
        ...reporter(FILE_TIMES, written),
        RUN_FILES,
        list,
        taken,
      ],
      { stdio: ['ignore', 'inherit', 'inherit'] },
    ),
  );
  const stopWatching = watch(child);
  const [code] = (await once(child, 'exit')) as [number | null];
  stopWatching();
  if (code !== 0) broken.push(`A process of tests ended with ${code}`);
  const isUsed = takenBy(child).length > 0;
  if (!existsSync(written)) return isUsed;
  const lines = readFileSync(written, 'utf8').split('\n').filter(Boolean);
  times.push(...lines.map((line) => JSON.parse(line) as FileTimes)); // written by our reporter
  return isUsed;
}

function reporter(module: string, destination: string): string[] {
  return [`--test-reporter=${module}`, `--test-reporter-destination=${destination}`];
}

function sumOf(name: (typeof COUNTS)[number]): number {
  return times.reduce((sum, one) => sum + one[name], 0);
}

/** Prints the slowest files. */
function showSlowest(): void {
  console.log('ℹ slow: seconds of a clock, seconds of the cores');
  const slowest = times.toSorted((a, b) => b.cpuSeconds - a.cpuSeconds);
  for (const { file, seconds, cpuSeconds: cores } of slowest.slice(0, SHOWN_FILES)) {
    console.log(`ℹ slow ${seconds.toFixed(1)} ${cores.toFixed(1)} ${file}`);
  }
}
