/** The lock of a data folder that a backup holds while it runs. */
import { join } from 'node:path';
import type { Config } from '../../config/config.ts';
import { type ServerLock, lockFile } from '../../db/db.ts';

/** Returns `undefined` while a backup runs. */
export function lockBackups({ dataFolder }: Pick<Config, 'dataFolder'>): ServerLock | undefined {
  return lockFile(join(dataFolder, 'backup.lock'));
}
