/** `farebox backup` and `farebox restore`. */
import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { CONFIG_FILE, backupPlace } from '../config/config.ts';
import { isoTime, systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { type BackupReport, createBackup } from '../server/backup/backup.ts';
import { restoreConfig, restoreDatabase, unpackBackup } from '../server/backup/restore.ts';
import { type Cli, UsageError, shownUsd } from './command.ts';
import { Progress } from './progress.ts';
import { version } from './server-start.ts';
import { listing } from './terminal.ts';

export function backupCommand(cli: Cli): void {
  cli.program
    .command('backup')
    .description(`Back up the database and the configuration to a folder or S3

The server may run meanwhile. The command copies one snapshot of the database, audits the copy, and
stores it with the configuration as one file. If the audit finds a difference, it stores nothing.
The section "backup" of the configuration schedules backups and encrypts them.`)
    .option(
      '--to <place>',
      'folder or s3://bucket/prefix (default: "backup.to" of the configuration)',
    )
    .option(
      '--new-key <file>',
      'make no backup: write a new private key for encrypted backups to the file, and print the line for the configuration',
    )
    .action(async ({ to, newKey }) => {
      if (newKey !== undefined) return makeKey(cli, newKey);
      const { config, sources } = await cli.settings();
      const place = to === undefined ? config.backup.to : backupPlace(to, cli.console.cwd);
      if (place === undefined) {
        throw new UsageError('There is no place for the backup: give --to, or set "backup.to"');
      }
      const progress = cli.isJson ? undefined : new Progress(cli.console.stderr);
      const report = await createBackup({
        config,
        sources,
        to: place,
        version: version(),
        clock: systemClock(),
        ids: systemIds(),
        log: cli.warningLog(),
        onProgress: (task, done, total) => progress?.count(task, done, total),
      });
      progress?.end();
      const variables = await variablesIn(sources.map(({ path }) => path));
      cli.print(jsonOf(report, variables), shown(report, variables));
    });
}

async function makeKey(cli: Cli, file: string): Promise<void> {
  const { generateX25519Identity, identityToRecipient } = await import('age-encryption');
  const identity = await generateX25519Identity();
  const recipient = await identityToRecipient(identity);
  await writeFile(resolve(cli.console.cwd, file), `${identity}\n`, { mode: 0o600, flag: 'wx' });
  const advice =
    `The private key is in ${file}. Keep it away from this machine: without it no backup can be restored.\n` +
    `Add to farebox.yaml:\n\nbackup:\n  recipient: ${recipient}\n`;
  cli.print({ file, recipient }, advice);
}

/** Names of the environment variables in files of the configuration. */
async function variablesIn(files: readonly string[]): Promise<readonly string[]> {
  const names = new Set<string>();
  for (const file of files) {
    if (!existsSync(file)) continue;
    const text = await readFile(file, 'utf8');
    for (const [, name = ''] of text.matchAll(/(?<!\$)\$\{([A-Z_a-z][\w]*)/g)) names.add(name);
  }
  return [...names].sort();
}

function jsonOf(report: BackupReport, variables: readonly string[]): Record<string, unknown> {
  const { audit, ...rest } = report;
  return {
    ...rest,
    audit: {
      ok: audit.ok,
      accounts: audit.accounts,
      transfers: audit.transfers,
      owedUsd: shownUsd(audit.owedNano),
    },
    variables,
  };
}

function shown(report: BackupReport, variables: readonly string[]): string {
  const { location, bytes, sha256, isEncrypted, audit, files, otherFiles, deleted } = report;
  const facts = listing([
    ['Backup', location],
    ['Size', `${bytes} bytes`],
    ['SHA-256', sha256],
    ['Encrypted', isEncrypted ? 'yes' : 'no'],
    ['Accounts', String(audit.accounts)],
    ['Postings', String(audit.transfers)],
    ['Unspent credit', `${shownUsd(audit.owedNano)} USD`],
    ['Configuration', files.length === 0 ? 'none' : files.join(', ')],
    ['Deleted backups', String(deleted.length)],
  ]);
  const missing = [
    ...otherFiles.map((file) => `the file ${file}`),
    ...variables.map((name) => `the variable ${name}`),
  ];
  const rest =
    missing.length === 0
      ? ''
      : `\nNot in the backup, so keep it elsewhere: ${missing.join(', ')}\n`;
  return `${facts}${rest}\nThe audit of the copy found every balance equal to its postings\n`;
}

export function restoreCommand(cli: Cli): void {
  cli.program
    .command('restore')
    .description(`Restore a backup into an empty place

Give --data a new folder, or an empty PostgreSQL database in the configuration. The configuration of
the backup is written if there is none. The command ends with an audit that must equal that of the
backup. Credentials for s3:// come from the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION and AWS_ENDPOINT_URL.`)
    .argument('<backup>', 'file or s3:// URL of the backup')
    .option('--identity <file>', 'file with the private key, for an encrypted backup')
    .action(async (backup, { identity }) => {
      const { cwd, env, stderr } = cli.console;
      const key = identity === undefined ? undefined : await readIdentity(resolve(cwd, identity));
      const unpacked = await unpackBackup(backupPlace(backup, cwd), cwd, key);
      try {
        const written = await restoreConfig(
          unpacked,
          resolve(cwd, env['FAREBOX_CONFIG'] ?? CONFIG_FILE),
        );
        for (const file of written) stderr.write(`Written: ${file}\n`);
        const { config } = await cli.settings();
        const progress = cli.isJson ? undefined : new Progress(stderr);
        const audit = await restoreDatabase(unpacked, {
          config,
          clock: systemClock(),
          ids: systemIds(),
          log: cli.warningLog(),
          onProgress: (done, total) => progress?.count('Copying rows', done, total),
        });
        progress?.end();
        const { manifest } = unpacked;
        const facts = { accounts: audit.accounts, transfers: audit.transfers };
        cli.print(
          {
            ok: true,
            createdAt: isoTime(manifest.createdMs),
            written,
            ...facts,
            owedUsd: shownUsd(audit.owedNano),
          },
          `${listing([
            ['Backup of', isoTime(manifest.createdMs)],
            ['Accounts', String(audit.accounts)],
            ['Postings', String(audit.transfers)],
            ['Unspent credit', `${shownUsd(audit.owedNano)} USD`],
          ])}\nThe audit equals that of the backup. Next: "farebox audit --chain" and "farebox audit --stripe" list the payments since then, which "farebox credit --reference" adds; then "farebox serve"\n`,
        );
      } finally {
        await rm(unpacked.folder, { recursive: true, force: true });
      }
    });
}

/** The line with the key; `age-keygen` writes comments before it. */
async function readIdentity(file: string): Promise<string> {
  const text = await readFile(file, 'utf8');
  const key = /^AGE-SECRET-KEY-.*$/m.exec(text)?.[0];
  if (key === undefined) throw new Error(`${file} has no private key of age (AGE-SECRET-KEY-…)`);
  return key.trim();
}
