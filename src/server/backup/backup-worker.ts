/** Worker thread of `scheduled-backups.ts`: loads the configuration and makes one backup. */
import { workerData } from 'node:worker_threads';
import {
  type Config,
  type ConfigInputs,
  loadConfig,
  settingsInForce,
} from '../../config/config.ts';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { postResult } from '../../core/worker-result.ts';
import { createBackup } from './backup.ts';

export interface BackupRequest extends Pick<ConfigInputs, 'env' | 'cwd'> {
  readonly version: string;
}

interface BackupTask extends BackupRequest {
  /** The settings of the server: the file can have another database, for the next start. */
  readonly inForce: Config;
}

const { env, cwd, version, inForce } = workerData as BackupTask; // set by scheduled-backups.ts

postResult(async () => {
  const loaded = await loadConfig({ env, cwd });
  if (!loaded.ok)
    throw new Error('The configuration is not valid; "farebox check" lists the problems');
  const config = settingsInForce(inForce, loaded.config);
  const { to } = config.backup;
  if (to === undefined) throw new Error('The configuration has no "backup.to" any more');
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog, version, to };
  await createBackup({ ...parts, config, sources: loaded.sources });
});
