/** `farebox move`: copies the installation from its SQLite file to PostgreSQL and proves the copy. */
import { type MoveReport, moveDatabase } from '../server/move-database.ts';
import { openStores } from '../server/stores.ts';
import { logWriter } from '../observability/log-writer.ts';
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { lockDataFolder } from '../db/db.ts';
import {
  type Command,
  type Console,
  type Invocation,
  UsageError,
  printJson,
  requireConfig,
} from './command.ts';
import { progressOf } from './progress.ts';
import { listing } from './table.ts';
import { isGiven, shownUsd, textOption } from './values.ts';

export const moveCommand: Command = {
  name: 'move',
  summary: 'Copy everything from SQLite to PostgreSQL',
  usage: 'move --to <postgres://user:password@host/database>',
  details: `
  --to <address>   an empty PostgreSQL database

Stop the server first. Everything is copied in one transaction: accounts, keys, postings, receipts.
Then both databases are audited and compared, table by table. The SQLite file stays as it is. When
the copy is proven, set "database" to the new address and start the server.`,
  options: { to: { type: 'string' } },
  run: move,
};

async function move(invocation: Invocation): Promise<number> {
  const { console } = invocation;
  const to = textOption(invocation, 'to');
  if (to === undefined || !/^postgres(?:ql)?:\/\//.test(to)) {
    throw new UsageError(
      '--to must name a PostgreSQL database: postgres://user:password@host/name',
    );
  }
  const config = await requireConfig(console);
  if (!config.databaseUrl.startsWith('sqlite:')) {
    throw new Error('The configured database is PostgreSQL already; there is nothing to move');
  }
  const lock = lockDataFolder(config.dataFolder);
  if (lock === undefined) {
    throw new Error(`A server runs on the data folder ${config.dataFolder}. Stop it first`);
  }
  try {
    const report = await copy(console, config, to, isGiven(invocation, 'json'));
    show(invocation, report);
    return report.ok ? 0 : 1;
  } finally {
    lock.release();
  }
}

async function copy(
  console: Console,
  config: Config,
  to: string,
  isQuiet: boolean,
): Promise<MoveReport> {
  const clock = systemClock();
  const ids = systemIds();
  const log = logWriter({
    level: 'warn',
    pretty: true,
    clock,
    write: (text) => console.stderr.write(text),
  });
  const source = await openStores({ config, clock, ids, log });
  try {
    const target = await openStores({ config: { ...config, databaseUrl: to }, clock, ids, log });
    try {
      const progress = isQuiet ? undefined : progressOf(console);
      const report = await moveDatabase({
        source,
        target,
        nowMs: clock.nowMs(),
        onProgress: (done, total) => progress?.show('Copying rows', done, total),
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

function show(invocation: Invocation, report: MoveReport): void {
  const { source, target, tables, differences, ok } = report;
  if (isGiven(invocation, 'json')) {
    const moneyOf = (audit: MoveReport['source']) => ({
      ok: audit.ok,
      accounts: audit.accounts,
      transfers: audit.transfers,
      owedUsd: shownUsd(audit.owedNano),
      revenueUsd: shownUsd(audit.revenueNano),
    });
    const audits = { source: moneyOf(source), target: moneyOf(target) };
    printJson(invocation, { ok, tables, audits, differences });
    return;
  }
  const { stdout } = invocation.console;
  stdout.write(listing(tables.map(({ table, rows }) => [table, `${rows} rows`] as const)));
  stdout.write(
    `\nOwed to callers: ${shownUsd(source.owedNano)} USD in SQLite, ${shownUsd(target.owedNano)} USD in PostgreSQL\n`,
  );
  if (ok) {
    stdout.write(
      'Both audits are clean and every table is equal.\nNow set "database" in farebox.yaml to the new address and start the server\n',
    );
    return;
  }
  const which = differences.length === 0 ? 'an audit' : differences.join(', ');
  stdout.write(`The copy is NOT proven (${which}): go on with SQLite and keep both databases\n`);
}
