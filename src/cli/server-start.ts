/** Shared by all server processes: start, log, configuration reload, signals and startup banner. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type App, type AppParts, BASE_PATH, startApp } from '../server/server.ts';
import type { Operations } from '../server/ops/admin.ts';
import type { FirstOwner } from '../server/stores.ts';
import { type LeveledLog, logWriter } from '../observability/log-writer.ts';
import { countRejections } from '../server/unhandled-rejections.ts';
import {
  CONFIG_FILE,
  type Config,
  ConfigWatch,
  formatProblem,
  reloadConfig,
} from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { formatUsd } from '../core/money.ts';
import { packagePath } from '../core/package-root.ts';
import { makeLasting } from '../core/young-generation.ts';
import { findingsOf, listenProblem } from './check.ts';
import type { Settings } from './command.ts';
import type { Console } from './terminal.ts';

const UNKNOWN_REVISION = '00000000.000000';

/** The build as `YYYYMMDD.HHMMSS`, as in `x-svc-version`; a checkout reads it from package.json. */
export function revision(): string {
  const isBuild = import.meta.url.endsWith('.js');
  return packageField(isBuild ? 'dist/build.json' : 'package.json', 'revision') ?? UNKNOWN_REVISION;
}

export function version(): string {
  return packageField('package.json', 'version') ?? '0.0.0';
}

function packageField(file: string, name: 'revision' | 'version'): string | undefined {
  const fields: unknown = JSON.parse(readFileSync(packagePath(file), 'utf8'));
  return (fields as { readonly [key in typeof name]?: string })[name]; // our own files
}

export function logFor(console: Console, config: Config, json: boolean): LeveledLog {
  const { format, level } = config.log;
  const pretty =
    !json && (format === 'pretty' || (format === 'auto' && console.stderr.isTTY === true));
  return logWriter({
    level,
    pretty,
    clock: systemClock(),
    write: console.stderr.draw ?? console.stderr.write,
  });
}

export function operationsOf({ env, cwd }: Console): Operations {
  return {
    load: () => reloadConfig({ env, cwd }),
    check: findingsOf,
    inputs: { env, cwd, version: version() },
  };
}

/** Starts the server; resolves when it listens. Throws errors that name the remedy. */
export async function startServer(
  parts: Omit<AppParts, 'clock' | 'ids' | 'version'>,
): Promise<App> {
  const unhandledRejections = countRejections(process, parts.log, systemClock());
  try {
    return await makeLasting(() =>
      startApp({
        ...parts,
        unhandledRejections,
        clock: systemClock(),
        ids: systemIds(),
        version: revision(),
      }),
    );
  } catch (error) {
    throw startProblem(error, parts.config) ?? error;
  }
}

/** Explains why the address or the data folder cannot be used; `undefined` for any other error. */
function startProblem(error: unknown, config: Config): Error | undefined {
  const root = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(root instanceof Error)) return undefined;
  // System errors have these fields.
  const { code = '', path } = root as NodeJS.ErrnoException;
  const problem = listenProblem(root, config.listen);
  if (problem !== undefined) return new Error(problem, { cause: error });
  const why: Readonly<Record<string, string>> = {
    EACCES: 'this user may not write there',
    EPERM: 'this user may not write there',
    EROFS: 'it is on a read-only file system',
    ENOTDIR: 'a part of its path is a file',
    EEXIST: 'it is a file',
    ENOENT: 'no folder can be created there',
    ENOSPC: 'the disk is full',
  };
  const { dataFolder } = config;
  const isOurs = path?.startsWith(dataFolder) === true || dataFolder.startsWith(path ?? '\n');
  if (why[code] === undefined || !isOurs) return undefined;
  const message = `The data folder ${dataFolder} cannot be used: ${why[code]}; choose another with --data or FAREBOX_DATA`;
  return new Error(message, { cause: error });
}

/** npm and the terminal may both deliver the same Ctrl-C within this time. */
const SAME_SIGNAL_MS = 1_000;

/** Resolves on the first SIGINT or SIGTERM; calls `again` on every later one. */
export function stopSignal(console: Console, again: () => void): Promise<void> {
  return new Promise((resolve) => {
    const clock = systemClock();
    let firstMs = Infinity;
    const onSignal = (): void => {
      const nowMs = clock.monotonicMs();
      if (firstMs === Infinity) {
        firstMs = nowMs;
        console.stderr.write(
          'Stopping after open requests have finished; press Ctrl-C again to abort them\n',
        );
        resolve();
      } else if (nowMs - firstMs >= SAME_SIGNAL_MS) {
        console.stderr.write('Stopping now; open requests are aborted\n');
        again();
      }
    };
    console.onSignal('SIGINT', onSignal);
    console.onSignal('SIGTERM', onSignal);
  });
}

/** Applies a changed configuration file; an invalid one is logged and ignored. */
export function watchSettings(
  console: Console,
  app: App,
  settings: Settings,
  log: LeveledLog,
): ConfigWatch {
  const { env, cwd } = console;
  const watch = new ConfigWatch({
    current: settings,
    files: [resolve(cwd, env['FAREBOX_CONFIG'] ?? CONFIG_FILE)],
    load: () => reloadConfig({ env, cwd }),
    clock: systemClock(),
    onConfig: (next, { changed, restart }) => {
      log.setLevel(next.log.level);
      app.configure(next);
      const applied = changed.filter((name) => !restart.includes(name));
      if (applied.length > 0) log.info({ changed: applied }, 'Applied the changed configuration');
      if (restart.length === 0) return;
      log.warn({ sections: restart }, 'Restart the server to apply these sections');
    },
    onProblems: (problems) => {
      for (const problem of problems) {
        log.error(
          { problem: formatProblem(problem) },
          'Ignored the changed configuration, because it is not valid',
        );
      }
    },
  });
  console.onSignal('SIGHUP', () => void watch.check(true));
  return watch;
}

/** The secret follows `#`, because browsers do not send that part of a URL. */
export function signInLink(origin: string, secret: string): string {
  return `${origin}/console/sign-in#${secret}`;
}

/** The first lines of output: address, data folder, and on the first start a key and an example. */
export function startupBanner(
  address: string,
  config: Config,
  owner: FirstOwner | undefined,
  env: Console['env'],
): string {
  // npm sets the variable. Without npm, the command is installed, as in the container image.
  const command = env['npm_execpath'] === undefined ? 'farebox' : 'npx farebox';
  const base = `${address}${BASE_PATH}`;
  const where = `
  ${config.service.title} listens on ${base}
  Data folder: ${config.dataFolder}
`;
  if (owner === undefined) {
    return `${where}
  Open the console: ${command} sign-in
  Create a key:     ${command} keys create

`;
  }
  const { linkSecret } = owner;
  const link =
    linkSecret === undefined
      ? ''
      : `
  This link opens the console and signs in (once, within 15 minutes):

    ${signInLink(address, linkSecret)}
`;
  return `${where}${link}
  The owner account has ${formatUsd(owner.creditNano, 2)} USD of starter credit.
  Its ADMIN key is not shown again. Keep it secret, because it manages keys and accounts:

    ${owner.secret}

  Try it:

    curl ${base}/chat/completions \\
      -H "Authorization: Bearer ${owner.secret}" \\
      -H "Content-Type: application/json" \\
      -d '{"model":"default","messages":[{"role":"user","content":"Hello"}]}'

  Next: ${command} models   lists the models, their prices and engines
        ${command} --help   lists the commands

`;
}
