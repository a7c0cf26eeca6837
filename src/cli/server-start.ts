/** What every way of serving needs: the start, the log, the watched configuration, the greeting. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type App, type AppParts, BASE_PATH, startApp } from '../server/server.ts';
import type { Operations } from '../server/ops/admin.ts';
import type { FirstOwner } from '../server/stores.ts';
import { logWriter } from '../observability/log-writer.ts';
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
import type { Log } from '../core/log.ts';
import { formatUsd } from '../core/money.ts';
import { packagePath } from '../core/package-root.ts';
import { makeLasting } from '../core/young-generation.ts';
import { findingsOf, listenProblem } from './check.ts';
import type { Settings } from './command.ts';
import type { Console } from './terminal.ts';

const UNKNOWN_REVISION = '00000000.000000';

/** The build, `YYYYMMDD.HHMMSS`, as in `x-svc-version`; in a checkout that of package.json. */
export function revision(): string {
  const isBuild = import.meta.url.endsWith('.js');
  return packageField(isBuild ? 'dist/build.json' : 'package.json', 'revision') ?? UNKNOWN_REVISION;
}

/** The number of the release, such as `1.2.0`. */
export function version(): string {
  return packageField('package.json', 'version') ?? '0.0.0';
}

function packageField(file: string, name: 'revision' | 'version'): string | undefined {
  const fields: unknown = JSON.parse(readFileSync(packagePath(file), 'utf8'));
  return (fields as { readonly [key in typeof name]?: string })[name]; // our own files
}

/** The log of this process on the terminal's second stream. */
export function logFor(console: Console, config: Config, json: boolean): Log {
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

/** What the operator asks the server for and only the program around it can do. */
export function operationsOf({ env, cwd }: Console): Operations {
  return { load: () => reloadConfig({ env, cwd }), check: findingsOf };
}

/** Starts the server of this process; resolves when it listens. Its failures are in words. */
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
    // What an operator can mend is said in their words; anything else as it is.
    throw startProblem(error, parts.config) ?? error;
  }
}

/** Why the address or the data folder cannot be had; `undefined` for any other error. */
function startProblem(error: unknown, config: Config): Error | undefined {
  const root = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(root instanceof Error)) return undefined;
  // Errors of the system have them.
  const { code = '', path } = root as NodeJS.ErrnoException;
  const problem = listenProblem(root, config.listen);
  if (problem !== undefined) return new Error(problem, { cause: error });
  const why: Readonly<Record<string, string>> = {
    EACCES: 'this user may not write there',
    EPERM: 'this user may not write there',
    EROFS: 'it is on a file system that is read-only',
    ENOTDIR: 'a part of its path is a file',
    EEXIST: 'it is a file',
    ENOENT: 'no folder can be made there',
    ENOSPC: 'the disk is full',
  };
  const { dataFolder } = config;
  const isOurs = path?.startsWith(dataFolder) === true || dataFolder.startsWith(path ?? '\n');
  if (why[code] === undefined || !isOurs) return undefined;
  const message = `The data folder ${dataFolder} cannot be used: ${why[code]}; choose another with --data or FAREBOX_DATA`;
  return new Error(message, { cause: error });
}

/** npm and the terminal can both pass on the same Ctrl-C. */
const ASKED_ONCE_MS = 1_000;

/** Resolves when somebody asks this process to end; who asks again does not want to wait. */
export function stopSignal(console: Console, again: () => void): Promise<void> {
  return new Promise((done) => {
    const clock = systemClock();
    let askedMs = Infinity;
    const ask = (): void => {
      const nowMs = clock.monotonicMs();
      if (askedMs === Infinity) {
        askedMs = nowMs;
        console.stderr.write('Stopping: open answers finish first\n');
        done();
      } else if (nowMs - askedMs >= ASKED_ONCE_MS) {
        console.stderr.write('Stopping now: open answers are cut\n');
        again();
      }
    };
    console.onSignal('SIGINT', ask);
    console.onSignal('SIGTERM', ask);
  });
}

/** Takes over a changed file; a broken one is refused while the old settings go on. */
export function watchSettings(
  console: Console,
  app: App,
  settings: Settings,
  log: Log,
): ConfigWatch {
  const { env, cwd } = console;
  const watch = new ConfigWatch({
    current: settings,
    files: [resolve(cwd, env['FAREBOX_CONFIG'] ?? CONFIG_FILE)],
    load: () => reloadConfig({ env, cwd }),
    clock: systemClock(),
    onConfig: (next, difference) => {
      app.configure(next);
      log.info({ changed: difference.changed }, 'Configuration taken over');
      if (difference.restart.length === 0) return;
      log.warn({ sections: difference.restart }, 'These sections take effect after a restart');
    },
    onProblems: (problems) => {
      for (const problem of problems) {
        log.error({ problem: formatProblem(problem) }, 'The changed configuration is refused');
      }
    },
  });
  console.onSignal('SIGHUP', () => void watch.check(true));
  return watch;
}

/** The page that begins a session; what stands after `#` is sent to nobody by a browser. */
export function signInLink(origin: string, secret: string): string {
  return `${origin}/console/sign-in#${secret}`;
}

/** What a newcomer reads: where it listens, the key, and a command that works as it stands. */
export function greeting(address: string, config: Config, owner: FirstOwner | undefined): string {
  const base = `${address}${BASE_PATH}`;
  const where = `
  ${config.service.title} listens on ${base}
  Data folder: ${config.dataFolder}
`;
  if (owner === undefined) return `${where}\n  Make a key: npx farebox keys create\n\n`;
  const { linkSecret } = owner;
  const link =
    linkSecret === undefined
      ? ''
      : `
  Open the console, signed in (once, within 15 minutes):

    ${signInLink(address, linkSecret)}
`;
  return `${where}${link}
  The owner account has ${formatUsd(owner.creditNano, 2)} USD of starter credit.
  Its API key is shown only now; it also manages keys and accounts, so keep it to yourself:

    ${owner.secret}

  Try it:

    curl ${base}/chat/completions \\
      -H "Authorization: Bearer ${owner.secret}" \\
      -H "Content-Type: application/json" \\
      -d '{"model":"default","messages":[{"role":"user","content":"Hello"}]}'

  Next: npx farebox models   what is on offer, and where it runs
        npx farebox --help   keys, credit, audit, check

`;
}
