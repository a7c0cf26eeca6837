/**
 * Restores a backup into an empty place: the configuration if there is none, then the database, with an audit that must
 * equal the one of the backup.
 */
import {
  appendFile,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rename,
  rm,
} from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { AuditReport } from '../../billing/ledger/ledger.ts';
import { flushFile } from '../../core/flush.ts';
import { reasonOf } from '../../core/log.ts';
import type { Config } from '../../config/config.ts';
import { lockData } from '../../db/db.ts';
import { moveDatabase } from '../copy-database.ts';
import { type Stores, type StoresParts, openStores } from '../stores.ts';
import { type Manifest, unpackArchive } from './archive.ts';
import { CONFIG_FOLDER, DATABASE_FILE, JOURNAL_FOLDER, openCopy } from './backup.ts';
import { download, isS3 } from './destination.ts';

export interface UnpackedBackup {
  readonly manifest: Manifest;
  /** Remove it after use. */
  readonly folder: string;
}

/** `archive`: a file or an `s3://` URL, for which the variables `AWS_…` apply. */
export async function unpackBackup(
  archive: string,
  cwd: string,
  identity: string | undefined,
): Promise<UnpackedBackup> {
  // The working directory is on a disk with space, unlike some folders for temporary files.
  const folder = await mkdtemp(join(cwd, '.farebox-restore-')).catch((error: unknown) => {
    throw new Error(
      `The backup is unpacked in the working directory, and ${cwd} cannot be written (${reasonOf(error)}): run the command in another folder`,
      { cause: error },
    );
  });
  try {
    const files = join(folder, 'files');
    await mkdir(files);
    const local = isS3(archive) ? join(folder, 'archive') : archive;
    if (isS3(archive)) await download(archive, undefined, local);
    return { manifest: await unpackArchive(local, files, identity), folder };
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Copies the configuration to `target` unless there is a file of that name; returns the written files. */
export async function restoreConfig(
  { folder }: UnpackedBackup,
  target: string,
): Promise<readonly string[]> {
  if (existsSync(target)) return [];
  const from = join(folder, 'files', CONFIG_FOLDER);
  if (!existsSync(from)) return [];
  const entries = await readdir(from, { recursive: true, withFileTypes: true });
  const written: string[] = [];
  for (const entry of entries) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const to = join(dirname(target), path.slice(from.length + 1));
    if (existsSync(to)) continue;
    await mkdir(dirname(to), { recursive: true });
    await copyFile(path, to);
    written.push(to);
  }
  return written;
}

/** Throws if the database is not empty, or differs from the backup afterwards. */
export async function restoreDatabase(
  { manifest, folder }: UnpackedBackup,
  parts: StoresParts & { readonly onProgress: (done: number, total: number) => void },
): Promise<AuditReport> {
  const { config } = parts;
  const copy = join(folder, 'files', DATABASE_FILE);
  const lock = lockData(config.dataFolder, config.databaseUrl);
  if (lock === undefined) {
    throw new Error(
      `A server uses the data folder ${config.dataFolder} or the file of "database": stop it first`,
    );
  }
  try {
    if (config.databaseUrl.startsWith('sqlite:')) await placeFile(config, manifest, copy);
    else await fillPostgres(parts, join(folder, 'files'), copy);
    const audit = await auditOf(await openStores(parts));
    const isSame =
      audit.ok &&
      audit.transfers === manifest.audit.transfers &&
      String(audit.owedNano) === manifest.audit.owedNano &&
      String(audit.revenueNano) === manifest.audit.revenueNano;
    if (!isSame) {
      throw new Error(
        'The audit of the restored database differs from the backup: do not start the server with it, and restore again into an empty place',
      );
    }
    return audit;
  } finally {
    lock.release();
  }
}

async function auditOf(stores: Stores): Promise<AuditReport> {
  try {
    return await stores.ledger.audit();
  } finally {
    await stores.close();
  }
}

async function placeFile(
  { databaseUrl }: Config,
  { database }: Manifest,
  copy: string,
): Promise<void> {
  if (database === 'postgres') {
    throw new Error(
      'This is a backup of PostgreSQL, which has rows that only PostgreSQL uses: set "database" to the URL of an empty PostgreSQL database',
    );
  }
  const file = databaseUrl.slice('sqlite:'.length);
  // SQLite would add the log of another database, whose process was killed, to the restored one.
  const found = [file, `${file}-wal`].find((path) => existsSync(path));
  if (found !== undefined) {
    throw new Error(
      `The database file ${found} exists: restore into an empty data folder, or move it away`,
    );
  }
  await mkdir(dirname(file), { recursive: true });
  // A kill during the copy leaves no database.
  await copyFile(copy, `${file}.part`);
  await flushFile(`${file}.part`);
  await rename(`${file}.part`, file);
}

async function fillPostgres(
  parts: StoresParts & { readonly onProgress: (done: number, total: number) => void },
  files: string,
  copy: string,
): Promise<void> {
  const [source, target] = [await openCopy(parts, copy), await openStores(parts)];
  try {
    const { clock, onProgress } = parts;
    const moved = await moveDatabase({ source, target, nowMs: clock.nowMs(), onProgress });
    if (!moved.ok) {
      const differences = moved.differences.join(', ') || 'the audit';
      throw new Error(`The restored database differs from the backup in ${differences}`);
    }
  } finally {
    await source.close();
    await target.close();
  }
  const journals = join(files, JOURNAL_FOLDER);
  if (!existsSync(journals)) return;
  const folder = join(parts.config.dataFolder, 'journal');
  await mkdir(folder, { recursive: true });
  for (const name of await readdir(journals)) {
    // Settles that wait on this disk stay: the database that they waited for may be lost.
    const settles = await readFile(join(journals, name));
    await appendFile(join(folder, name), Buffer.concat([Buffer.from('\n'), settles]));
  }
}
