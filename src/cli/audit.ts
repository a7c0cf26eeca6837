/**
 * `farebox audit`: recomputes all money from the postings and names every difference. With
 * `--chain` it also asks the chains about every payment, and names the transfers that are none.
 */
import type { AuditReport } from '../billing/ledger/ledger.ts';
import { silentLog } from '../core/log.ts';
import { type ChainAuditReport, auditChains } from '../payments/payments.ts';
import { topUpAccount } from '../wallet/wallet-postings.ts';
import {
  type Command,
  type CommandContext,
  type Invocation,
  UsageError,
  jsonUsd,
  pastMs,
  shownUsd,
  withStores,
} from './command.ts';
import { Progress } from './progress.ts';
import { listing, table } from './terminal.ts';

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
  run: (invocation) => {
    if (invocation.text('since') !== undefined && !invocation.given('chain')) {
      throw new UsageError('--since goes with --chain: the postings are always read whole');
    }
    return withStores(invocation, async (context) => {
      const report = await context.stores.ledger.audit();
      const chains = invocation.given('chain') ? await askChains(invocation, context) : undefined;
      const isOk = report.ok && chains?.ok !== false;
      invocation.answer(
        () => ({
          ...jsonOf(report),
          ok: isOk,
          ...(chains === undefined ? {} : { chain: jsonOfChains(chains) }),
        }),
        () => shownLedger(report) + (chains === undefined ? '' : shownChains(chains)),
      );
      return isOk ? 0 : 1;
    });
  },
};

async function askChains(
  invocation: Invocation,
  { config, stores, clock }: CommandContext,
): Promise<ChainAuditReport> {
  const since = invocation.text('since');
  const progress = invocation.isJson ? undefined : new Progress(invocation.console.stderr);
  const report = await auditChains({
    settings: {
      ...config.payments,
      minimumBalanceUsd: Number(config.limits.minimumCreditUsd),
    },
    store: stores.store,
    clock,
    log: silentLog,
    sinceMs: since === undefined ? 0 : pastMs(since, clock.nowMs()),
    receivedInLedger: (tx, prefix) => stores.ledger.receivedFrom(topUpAccount(prefix), tx),
    onProgress: (what, done, total) => progress?.count(`Asking about ${what}`, done, total),
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
    leasedUsd: shownUsd(report.leasedNano),
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
  const withUsd = <T extends { readonly amountNano?: bigint | undefined }>(rows: readonly T[]) =>
    rows.map(({ amountNano, ...row }) => ({ ...row, amountUsd: jsonUsd(amountNano) }));
  const { differences, unknown } = chains;
  return { ...chains, differences: withUsd(differences), unknown: withUsd(unknown) };
}

function shownLedger(report: AuditReport): string {
  const figures = listing([
    ['Accounts', String(report.accounts)],
    ['Postings', String(report.transfers)],
    ['Open holds', String(report.openHolds)],
    ['Leased', `${shownUsd(report.leasedNano)} USD`],
    ['Owed to callers', `${shownUsd(report.owedNano)} USD`],
    ['Owed by callers', `${shownUsd(report.debtNano)} USD`],
    ['Charged so far', `${shownUsd(report.revenueNano)} USD`],
  ]);
  if (report.ok) return `${figures}\nEvery balance is the sum of its postings\n`;
  const rows = report.differences.map((difference) => [
    difference.accountId,
    difference.what,
    shownUsd(difference.storedNano),
    shownUsd(difference.recomputedNano),
  ]);
  const titles = ['ACCOUNT', 'WHAT', 'STORED', 'RECOMPUTED'];
  const differences = table(titles, rows, ['STORED', 'RECOMPUTED']);
  return `${figures}\n${differences}\n${counted(rows)}: keep a copy of the database before you change anything\n`;
}

function shownChains(chains: ChainAuditReport): string {
  const figures = listing([
    ['Payments compared', String(chains.payments)],
    ['Refunds compared', String(chains.refunds)],
    ['Under way', String(chains.underWay)],
    ['Not compared', `${chains.notAsked} (their rail or its refund key is not configured)`],
  ]);
  const unknown = chains.unknown.map((transfer) => [
    transfer.network,
    transfer.transaction,
    transfer.amountNano === undefined ? '-' : shownUsd(transfer.amountNano),
  ]);
  const others =
    unknown.length === 0
      ? ''
      : `\nTransfers to a receiver that are no payment here:\n${table(['NETWORK', 'TRANSACTION', 'USD'], unknown, ['USD'])}`;
  if (chains.ok) return `\n${figures}${others}\nEvery credit is on its chain\n`;
  const rows = chains.differences.map((difference) => [
    difference.network,
    difference.paymentId ?? '-',
    difference.what,
    shownUsd(difference.amountNano),
    difference.transaction ?? '-',
  ]);
  const differences = table(['NETWORK', 'PAYMENT', 'WHAT', 'USD', 'TRANSACTION'], rows, ['USD']);
  return `\n${figures}${others}\n${differences}\n${counted(rows)} between books and chains\n`;
}

function counted({ length }: readonly unknown[]): string {
  return `${length} ${length === 1 ? 'difference' : 'differences'}`;
}
