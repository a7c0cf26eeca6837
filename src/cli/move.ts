/** `farebox move`: copies the installation from its SQLite file to PostgreSQL and proves the copy. */
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { lockDataFolder } from '../db/db.ts';
import { type MoveReport, moveDatabase } from '../server/move-database.ts';
import { openStores } from '../server/stores.ts';
import { type Cli, UsageError, shownUsd } from './command.ts';
import { Progress } from './progress.ts';
import { listing } from './terminal.ts';

export function moveCommand(cli: Cli): void {
  cli.program
    .command('move')
    .description(`Copy everything from SQLite to PostgreSQL

Stop the server first. Everything is copied in one transaction: accounts, keys, postings, receipts.
Then both databases are audited and compared, table by table. The SQLite file stays as it is. When
the copy is proven, set "database" to the new address and start the server.`)
    .option('--to <address>', 'an empty PostgreSQL database: postgres://user:password@host/name')
    .action(async ({ to }) => {
      if (to === undefined || !/^postgres(?:ql)?:\/\//.test(to)) {
        throw new UsageError(
          '--to must name a PostgreSQL database: postgres://user:password@host/name',
        );
      }
      const { config } = await cli.settings();
      if (!config.databaseUrl.startsWith('sqlite:')) {
        throw new Error('The configured database is PostgreSQL already; there is nothing to move');
      }
      const lock = lockDataFolder(config.dataFolder);
      if (lock === undefined) {
        throw new Error(`A server runs on the data folder ${config.dataFolder}. Stop it first`);
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
      progress?.end('Copied; comparing and auditing both');
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
  const owed = `Owed to callers: ${shownUsd(source.owedNano)} USD in SQLite, ${shownUsd(target.owedNano)} USD in PostgreSQL`;
  const which = differences.length === 0 ? 'an audit' : differences.join(', ');
  const proof = ok
    ? 'Both audits are clean and every table is equal.\nNow set "database" in farebox.yaml to the new address and start the server'
    : `The copy is NOT proven (${which}): go on with SQLite and keep both databases`;
  return `${rows}\n${owed}\n${proof}\n`;
}
