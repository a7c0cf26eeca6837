/** Worker thread of `scheduled-backups.ts`: makes one backup. */
import { workerData } from 'node:worker_threads';
import { type Config, type ConfigInputs, loadConfig } from '../../config/config.ts';
import { assert } from '../../core/assert.ts';
import { systemClock } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { postResult } from '../../core/worker-result.ts';
import { createBackup } from './backup.ts';

export interface BackupRequest extends Pick<ConfigInputs, 'env' | 'cwd'> {
  readonly version: string;
}

interface BackupTask extends BackupRequest {
  /** The settings of the server: the file can be invalid, or have another database for the next start. */
  readonly inForce: Config;
}

const { env, cwd, version, inForce: config } = workerData as BackupTask; // set by scheduled-backups.ts

postResult(async () => {
  const { to } = config.backup;
  assert(to !== undefined, 'a backup is scheduled to a place');
  const { sources } = await loadConfig({ env, cwd });
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog, version, to };
  await createBackup({ ...parts, config, sources });
});
