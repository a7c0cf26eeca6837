/**
 * Makes one backup: copies the database beside a running server, audits the copy, packs it with the configuration
 * and the settles that wait on this disk, and stores the archive. Each attempt is a row of `backup_run`.
 */
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { DatabaseSync, backup as backupFile } from 'node:sqlite';
import type { AuditReport } from '../../billing/ledger/ledger.ts';
import type { Config, ConfigSource } from '../../config/config.ts';
import { isoTime } from '../../core/clock.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import type { Store } from '../../db/db.ts';
import { copySnapshot } from '../copy-database.ts';
import { type Stores, type StoresParts, openStores } from '../stores.ts';
import { lockBackups } from './backup-lock.ts';
import { packArchive, sha256Of } from './archive.ts';
import { type Destination, openDestination } from './destination.ts';

export const DATABASE_FILE = 'farebox.db';
/** Folders of an archive. */
export const [CONFIG_FOLDER, JOURNAL_FOLDER] = ['config', 'journal'];
export const JOURNAL_FILE = /^settles-\d{1,4}\.journal$/;
const ARCHIVE_NAME = /^farebox-\d{8}T\d{9}Z\.tar\.gz(?:\.age)?$/;
/** All pages in one step: smaller steps start again after each write of the server. */
const ALL_PAGES = 2_147_483_647;

export interface BackupParts extends StoresParts {
  readonly sources: readonly ConfigSource[];
  readonly version: string;
  /** An absolute folder or an `s3://` URL. */
  readonly to: string;
  readonly onProgress?: (task: string, done: number, total: number) => void;
}

export interface BackupReport {
  readonly location: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly isEncrypted: boolean;
  readonly audit: AuditReport;
  /** Files of the configuration that are in the archive, and those outside of its folder, which are not. */
  readonly files: readonly string[];
  readonly otherFiles: readonly string[];
  /** Names of older backups that were deleted. */
  readonly deleted: readonly string[];
}

/** Throws if the audit of the copy fails; then nothing is stored. */
export async function createBackup(parts: BackupParts): Promise<BackupReport> {
  const { config, clock, ids } = parts;
  const lock = lockBackups(config);
  if (lock === undefined) throw new Error('Another backup of this data folder is running');
  const stores = await openStores(parts);
  const run = { id: ids.uuid(), startedMs: clock.nowMs() };
  await stores.store.query('INSERT INTO backup_run (id, started_ms, place) VALUES ($1, $2, $3)', [
    run.id,
    run.startedMs,
    parts.to,
  ]);
  const ended = (location: string, bytes: number, problem: string): Promise<unknown> =>
    stores.store.query(
      'UPDATE backup_run SET ended_ms = $2, location = $3, bytes = $4, problem = $5 WHERE id = $1',
      [run.id, clock.nowMs(), location, bytes, problem],
    );
  // The data folder has space for a copy of the database, unlike some folders for temporary files.
  const folder = join(config.dataFolder, 'backup');
  try {
    await rm(folder, { recursive: true, force: true }); // left by a killed process
    const report = await store(parts, stores, folder, run.startedMs);
    await ended(report.location, report.bytes, '');
    return report;
  } catch (error) {
    await ended('', 0, reasonOf(error));
    throw error;
  } finally {
    await rm(folder, { recursive: true, force: true });
    await stores.close();
    lock.release();
  }
}

async function store(
  parts: BackupParts,
  { store: source }: Stores,
  folder: string,
  createdMs: number,
): Promise<BackupReport> {
  const { config, version, to, onProgress } = parts;
  const { recipient, s3, keep } = config.backup;
  const staging = join(folder, 'files');
  await mkdir(staging, { recursive: true, mode: 0o700 });
  const { files, otherFiles } = await copyConfig(parts.sources, staging);
  // Before the database: each of these settles belongs to a hold in the copy.
  await copyJournals(join(config.dataFolder, 'journal'), join(staging, JOURNAL_FOLDER));
  const audit = await copyDatabase(parts, source, join(staging, DATABASE_FILE));
  const packed = join(folder, nameAt(createdMs, recipient !== undefined));
  onProgress?.('Packing', 0, 1);
  const facts = {
    version,
    createdMs,
    database: source.dialect,
    audit: {
      accounts: audit.accounts,
      transfers: audit.transfers,
      owedNano: String(audit.owedNano),
      revenueNano: String(audit.revenueNano),
    },
  };
  await packArchive(staging, facts, packed, recipient);
  const { size: bytes } = await stat(packed);
  const sha256 = await sha256Of(packed);
  const destination = await openDestination(to, s3);
  const location = await destination.put(packed, basename(packed), (done, total) =>
    onProgress?.('Storing', done, total),
  );
  // `keep` is for the configured place.
  const isArchive = config.backup.to !== undefined && config.backup.to !== to;
  const deleted = isArchive ? [] : await deleteOld(destination, keep, basename(packed));
  const isEncrypted = recipient !== undefined;
  return { location, bytes, sha256, isEncrypted, audit, files, otherFiles, deleted };
}

/** Keeps the newest backups, of which `last` is the one that was just made; returns the deleted names. */
async function deleteOld(destination: Destination, keep: number, last: string) {
  const names = (await destination.names()).filter((name) => ARCHIVE_NAME.test(name)).sort();
  const isLater = (name: string): boolean => name > last;
  // Later ones are from the time before the clock was set back.
  const oldestFirst = [...names.filter(isLater), ...names.filter((name) => !isLater(name))];
  const deleted = oldestFirst.slice(0, Math.max(0, names.length - keep));
  for (const name of deleted) await destination.remove(name);
  return deleted;
}

/** `farebox-20261121T035500000Z.tar.gz`; names sort by time. */
function nameAt(ms: number, isEncrypted: boolean): string {
  return `farebox-${isoTime(ms).replaceAll(/[-:.]/g, '')}.tar.gz${isEncrypted ? '.age' : ''}`;
}

/** Copies the database to a new SQLite file and audits it. */
async function copyDatabase(parts: BackupParts, source: Store, file: string): Promise<AuditReport> {
  const { config, onProgress } = parts;
  onProgress?.('Copying the database', 0, 1);
  if (source.dialect === 'sqlite') {
    const database = new DatabaseSync(config.databaseUrl.slice('sqlite:'.length), {
      readOnly: true,
    });
    await backupFile(database, file, { rate: ALL_PAGES }).finally(() => database.close());
  }
  const copy = await openCopy(parts, file);
  try {
    if (source.dialect === 'postgres') {
      const { differences } = await copySnapshot(source, copy.store, (done, total) =>
        onProgress?.('Copying rows', done, total),
      );
      if (differences.length > 0) {
        throw new Error(`The copy of the database differs in ${differences.join(', ')}`);
      }
    }
    onProgress?.('Auditing the copy', 0, 1);
    const audit = await copy.ledger.audit();
    if (!audit.ok) {
      throw new Error(
        'The audit of the copy found differences, so no backup was stored: run "farebox audit"',
      );
    }
    return audit;
  } finally {
    await copy.close();
  }
}

/** Opens the SQLite copy of a database. */
export function openCopy(
  { config, clock, ids, log }: { readonly config: Config; readonly log: Log } & StoresParts,
  file: string,
): Promise<Stores> {
  const alone = { ...config, databaseUrl: `sqlite:${file}` };
  return openStores({ config: alone, clock, ids, log });
}

async function copyConfig(sources: readonly ConfigSource[], staging: string) {
  const [first] = sources;
  const files: string[] = [];
  const otherFiles: string[] = [];
  for (const { path, digest } of sources) {
    if (digest === undefined || first === undefined) continue;
    const name = relative(dirname(first.path), path);
    if (name.startsWith(`..${sep}`)) otherFiles.push(path);
    else {
      const target = join(staging, CONFIG_FOLDER, name);
      await mkdir(dirname(target), { recursive: true });
      await copyFile(path, target);
      files.push(name);
    }
  }
  return { files, otherFiles };
}

async function copyJournals(from: string, to: string): Promise<void> {
  // Only PostgreSQL has journals.
  if (!existsSync(from)) return;
  for (const name of await readdir(from)) {
    if (!JOURNAL_FILE.test(name) || (await stat(join(from, name))).size === 0) continue;
    await mkdir(to, { recursive: true });
    await copyFile(join(from, name), join(to, name));
  }
}
