/**
 * `farebox audit`: recomputes all money from the postings and names every difference. With
 * `--chain` it also asks the chains about every payment, and names the transfers that are none.
 */
import { topUpAccount } from '../wallet/wallet-postings.ts';
import { silentLog } from '../core/log.ts';
import { type AuditReport } from '../billing/ledger/ledger.ts';
import { type ChainAuditReport, auditChains } from '../payments/payments.ts';
import { type Command, type Invocation, UsageError, printJson } from './command.ts';
import { progressOf } from './progress.ts';
import { listing, table } from './table.ts';
import { isGiven, jsonUsd, pastMs, shownUsd, textOption } from './values.ts';
import { type Desk, withStores } from './with-stores.ts';

export const auditCommand: Command = {
  name: 'audit',
  summary: 'Recompute every balance from the postings',
  usage: 'audit [--chain] [--since <date or span>]',
  details: `
  --chain                 also ask the chains about every wallet payment and every paid refund, and
                          list transfers to the receivers that no payment here knows
  --since <date or span>  only payments since then, such as 2027-01-31 or 30d (default: all)

Ends with exit code 1 when a stored amount differs from the recomputed one by a single nano-USD, or
a payment from its chain. It reads one consistent state, so it can run at any time beside a busy
server.`,
  options: { chain: { type: 'boolean' }, since: { type: 'string' } },
  run: (invocation) => {
    if (textOption(invocation, 'since') !== undefined && !isGiven(invocation, 'chain')) {
      throw new UsageError('--since goes with --chain: the postings are always read whole');
    }
    return withStores(invocation, (desk) => audit(invocation, desk));
  },
};

async function audit(invocation: Invocation, desk: Desk): Promise<number> {
  const report = await desk.stores.ledger.audit();
  const chains = isGiven(invocation, 'chain') ? await askChains(invocation, desk) : undefined;
  const isOk = report.ok && chains?.ok !== false;
  if (isGiven(invocation, 'json')) {
    const chain = chains === undefined ? {} : { chain: jsonOfChains(chains) };
    printJson(invocation, { ...jsonOf(report), ok: isOk, ...chain });
    return isOk ? 0 : 1;
  }
  showLedger(invocation, report);
  if (chains !== undefined) showChains(invocation, chains);
  return isOk ? 0 : 1;
}

async function askChains(invocation: Invocation, desk: Desk): Promise<ChainAuditReport> {
  const { config, stores, clock } = desk;
  const { payments, limits } = config;
  const since = textOption(invocation, 'since');
  const progress = isGiven(invocation, 'json') ? undefined : progressOf(invocation.console);
  const report = await auditChains({
    settings: { ...payments, minimumBalanceUsd: Number(limits.minimumCreditUsd) },
    store: stores.store,
    clock,
    log: silentLog,
    sinceMs: since === undefined ? 0 : pastMs(since, clock.nowMs()),
    receivedInLedger: (tx, prefix) => stores.ledger.receivedFrom(topUpAccount(prefix), tx),
    onProgress: (what, done, total) => progress?.show(`Asking about ${what}`, done, total),
  });
  progress?.end();
  return report;
}

function jsonOf(report: AuditReport): Record<string, unknown> {
  return {
    ok: report.ok,
    accounts: report.accounts,
    transfers: report.transfers,
    openHolds: report.openHolds,
    owedUsd: shownUsd(report.owedNano),
    debtsUsd: shownUsd(report.debtNano),
    revenueUsd: shownUsd(report.revenueNano),
    differences: report.differences.map((difference) => ({
      account: difference.accountId,
      what: difference.what,
      storedUsd: shownUsd(difference.storedNano),
      recomputedUsd: shownUsd(difference.recomputedNano),
    })),
  };
}

function jsonOfChains(chains: ChainAuditReport): Record<string, unknown> {
  return {
    ...chains,
    differences: chains.differences.map(({ amountNano, ...difference }) => ({
      ...difference,
      amountUsd: jsonUsd(amountNano),
    })),
    unknown: chains.unknown.map(({ amountNano, ...transfer }) => ({
      ...transfer,
      amountUsd: jsonUsd(amountNano),
    })),
  };
}

function showLedger({ console }: Invocation, report: AuditReport): void {
  const { stdout } = console;
  stdout.write(
    listing([
      ['Accounts', String(report.accounts)],
      ['Postings', String(report.transfers)],
      ['Open holds', String(report.openHolds)],
      ['Owed to callers', `${shownUsd(report.owedNano)} USD`],
      ['Owed by callers', `${shownUsd(report.debtNano)} USD`],
      ['Charged so far', `${shownUsd(report.revenueNano)} USD`],
    ]),
  );
  if (report.ok) {
    stdout.write('\nEvery balance is the sum of its postings\n');
    return;
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
}

function showChains({ console }: Invocation, chains: ChainAuditReport): void {
  const { stdout } = console;
  stdout.write(
    `\n${listing([
      ['Payments compared', String(chains.payments)],
      ['Refunds compared', String(chains.refunds)],
      ['Under way', String(chains.underWay)],
      ['Not compared', `${chains.notAsked} (their rail or its refund key is not configured)`],
    ])}`,
  );
  if (chains.unknown.length > 0) {
    const columns = [{ title: 'NETWORK' }, { title: 'TRANSACTION' }, USD_COLUMN] as const;
    const rows = chains.unknown.map((transfer) => [
      transfer.network,
      transfer.transaction,
      transfer.amountNano === undefined ? '-' : shownUsd(transfer.amountNano),
    ]);
    stdout.write(`\nTransfers to a receiver that are no payment here:\n${table(columns, rows)}`);
  }
  if (chains.ok) {
    stdout.write('\nEvery credit is on its chain\n');
    return;
  }
  const columns = [
    { title: 'NETWORK' },
    { title: 'PAYMENT' },
    { title: 'WHAT' },
    USD_COLUMN,
    { title: 'TRANSACTION' },
  ] as const;
  const rows = chains.differences.map((difference) => [
    difference.network,
    difference.paymentId ?? '-',
    difference.what,
    shownUsd(difference.amountNano),
    difference.transaction ?? '-',
  ]);
  const count = chains.differences.length;
  stdout.write(`\n${table(columns, rows)}\n`);
  stdout.write(`${count} ${count === 1 ? 'difference' : 'differences'} between books and chains\n`);
}

const USD_COLUMN = { title: 'USD', align: 'right' } as const;
