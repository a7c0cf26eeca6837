/**
 * Puts the packages of the embedded engines beside the code, in `engines/`, where a checkout and an
 * image look for them: `node scripts/fetch-engines.ts [llama cutout speech media]`. What is there
 * already stays.
 */
import { parseArgs } from 'node:util';
import { loadConfig } from '../src/config/config.ts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { Progress } from '../src/cli/progress.ts';
import { ENGINE_SETS, ownEnginesFolder, packageSet } from '../src/engines/local/engine-packages.ts';
import { fetchPackages } from '../src/engines/local/package-fetch.ts';

const { positionals } = parseArgs({ allowPositionals: true });
const loaded = await loadConfig({ env: process.env, cwd: '/' });
if (!loaded.ok) throw new Error('The environment has settings that are not valid');

for (const name of ENGINE_SETS) {
  if (positionals.length > 0 && !positionals.includes(name)) continue;
  const progress = new Progress(process.stdout);
  await fetchPackages({
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
}
