/** `farebox move`: copies the installation from SQLite to PostgreSQL and verifies the copy. */
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { lockData } from '../db/db.ts';
import { type MoveReport, moveDatabase } from '../server/copy-database.ts';
import { openStores } from '../server/stores.ts';
import { type Cli, UsageError, shownUsd } from './command.ts';
import { Progress } from './progress.ts';
import { listing } from './terminal.ts';

export function moveCommand(cli: Cli): void {
  cli.program
    .command('move')
    .description(`Copy the database from SQLite to PostgreSQL

Stop the server first. The command copies all accounts, keys, postings and receipts in one
transaction, then audits both databases and compares them table by table. The SQLite file does not
change. If the copy is verified, set "database" to the new URL and start the server.`)
    .option('--to <url>', 'an empty PostgreSQL database: postgres://user:password@host/name')
    .action(async ({ to }) => {
      if (to === undefined || !/^postgres(?:ql)?:\/\//.test(to)) {
        throw new UsageError(
          '--to must be the URL of a PostgreSQL database: postgres://user:password@host/name',
        );
      }
      const { config } = await cli.settings();
      if (!config.databaseUrl.startsWith('sqlite:')) {
        throw new Error('The configured database is PostgreSQL already; there is nothing to move');
      }
      const lock = lockData(config.dataFolder, config.databaseUrl);
      if (lock === undefined) {
        throw new Error(
          `A server uses the data folder ${config.dataFolder} or the file of "database": stop it, then run the command again`,
        );
      }
      try {
        const report = await copy(cli, config, to);
        cli.print(jsonOf(report), shown(report));
        cli.exitCode = report.ok ? 0 : 1;
      } finally {
        lock.release();
      }
    });
}

async function copy(cli: Cli, config: Config, to: string): Promise<MoveReport> {
  const clock = systemClock();
  const parts = { clock, ids: systemIds(), log: cli.warningLog() };
  const source = await openStores({ ...parts, config });
  try {
    const target = await openStores({ ...parts, config: { ...config, databaseUrl: to } });
    try {
      const progress = cli.isJson ? undefined : new Progress(cli.console.stderr);
      const report = await moveDatabase({
        source,
        target,
        nowMs: clock.nowMs(),
        onProgress: (done, total) => progress?.count('Copying rows', done, total),
      });
      progress?.end('Copied all rows; auditing and comparing both databases');
      return report;
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

function jsonOf({ ok, source, target, tables, differences }: MoveReport): Record<string, unknown> {
  const moneyOf = (audit: MoveReport['source']) => ({
    ok: audit.ok,
    accounts: audit.accounts,
    transfers: audit.transfers,
    owedUsd: shownUsd(audit.owedNano),
    revenueUsd: shownUsd(audit.revenueNano),
  });
  const audits = { source: moneyOf(source), target: moneyOf(target) };
  return { ok, tables, audits, differences };
}

function shown({ ok, source, target, tables, differences }: MoveReport): string {
  const rows = listing(tables.map(({ table, rows: count }) => [table, `${count} rows`] as const));
  const owed = `Unspent credit: ${shownUsd(source.owedNano)} USD in SQLite, ${shownUsd(target.owedNano)} USD in PostgreSQL`;
  const failed = differences.length === 0 ? 'an audit failed' : differences.join(', ');
  const verdict = ok
    ? 'Both audits succeeded and all tables are equal.\nNext: set "database" in farebox.yaml to the new URL and start the server'
    : `The copy is NOT verified (${failed}): keep both databases and continue with SQLite`;
  return `${rows}\n${owed}\n${verdict}\n`;
}
