/** `farebox audit`: recomputes all money from the postings and names every difference. */
import { type Command, type Invocation, printJson } from './command.ts';
import { listing, table } from './table.ts';
import { isGiven, shownUsd } from './values.ts';
import { type Desk, withOffice } from './with-office.ts';

export const auditCommand: Command = {
  name: 'audit',
  summary: 'Recompute every balance from the postings',
  usage: 'audit',
  details: `
Ends with exit code 1 when a stored amount differs from the recomputed one by a single nano-USD.
It reads one consistent state, so it can run at any time beside a busy server.`,
  options: {},
  run: (invocation) => withOffice(invocation, (desk) => audit(invocation, desk)),
};

async function audit(invocation: Invocation, { office }: Desk): Promise<number> {
  const report = await office.ledger.audit();
  const { stdout } = invocation.console;
  if (isGiven(invocation, 'json')) {
    printJson(invocation, {
      ok: report.ok,
      accounts: report.accounts,
      transfers: report.transfers,
      openHolds: report.openHolds,
      owedUsd: shownUsd(report.owedNano),
      revenueUsd: shownUsd(report.revenueNano),
      differences: report.differences.map((difference) => ({
        account: difference.accountId,
        what: difference.what,
        storedUsd: shownUsd(difference.storedNano),
        recomputedUsd: shownUsd(difference.recomputedNano),
      })),
    });
    return report.ok ? 0 : 1;
  }
  stdout.write(
    listing([
      ['Accounts', String(report.accounts)],
      ['Postings', String(report.transfers)],
      ['Open holds', String(report.openHolds)],
      ['Owed to callers', `${shownUsd(report.owedNano)} USD`],
      ['Charged so far', `${shownUsd(report.revenueNano)} USD`],
    ]),
  );
  if (report.ok) {
    stdout.write('\nEvery balance is the sum of its postings\n');
    return 0;
  }
  const columns = [
    { title: 'ACCOUNT' },
    { title: 'WHAT' },
    { title: 'STORED', align: 'right' },
    { title: 'RECOMPUTED', align: 'right' },
  ] as const;
  const rows = report.differences.map((difference) => [
    difference.accountId,
    difference.what,
    shownUsd(difference.storedNano),
    shownUsd(difference.recomputedNano),
  ]);
  stdout.write(`\n${table(columns, rows)}\n`);
  const count = report.differences.length;
  stdout.write(
    `${count} ${count === 1 ? 'difference' : 'differences'}: keep a copy of the database before you change anything\n`,
  );
  return 1;
}
