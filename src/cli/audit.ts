/**
 * `farebox audit`: recomputes all balances from the postings. `--chain` compares every payment with
 * its chain, and `--repair` credits payments that arrived without a credit. `--stripe` compares the card
 * payments with Stripe.
 */
import type { AuditReport } from '../billing/ledger/ledger.ts';
import { reasonOf, silentLog } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import { postedFor } from '../checkout/card-postings.ts';
import { type CardAuditReport, auditCards } from '../payments/cards/cards.ts';
import { type ChainAuditReport, auditChains } from '../payments/payments.ts';
import { openCardPayments } from '../server/checkout.ts';
import { openWalletPayments } from '../wallet/wallet.ts';
import { topUpAccount } from '../wallet/wallet-postings.ts';
import { auditBody } from '../server/ops/admin.ts';
import { type Cli, type CommandContext, UsageError, jsonUsd, pastMs, shownUsd } from './command.ts';
import { Progress } from './progress.ts';
import { listing, table } from './terminal.ts';

export function auditCommand(cli: Cli): void {
  cli.program
    .command('audit')
    .description(`Recompute every balance from the postings

Exits with code 1 if a stored amount differs from the recomputed amount, or a payment from its chain.
The audit reads one consistent snapshot, so it can run beside a busy server. Without --repair it
changes nothing.`)
    .option(
      '--chain',
      'also compare every wallet payment and paid refund with its chain, and list transfers to the receivers that match no payment',
    )
    .option(
      '--stripe',
      'also compare every card payment with Stripe, and every payment at Stripe with this database',
    )
    .option(
      '--since <date or span>',
      'with --chain or --stripe: compare payments since then, such as 2027-01-31 or 30d (default: all)',
      pastMs,
    )
    .option(
      '--repair',
      'with --chain: credit each payment that is on its chain and has no credit, then compare again; run --chain alone first and check its list',
    )
    .action(({ chain, stripe, since: sinceMs, repair }) => {
      if (sinceMs !== undefined && chain !== true && stripe !== true) {
        throw new UsageError(
          '--since needs --chain or --stripe: the audit of postings always covers all time',
        );
      }
      if (repair === true && chain !== true) throw new UsageError('--repair needs --chain');
      return cli.withStores(async (context) => {
        const repaired = repair === true ? await repairChains(cli, context, sinceMs) : undefined;
        const report = await context.stores.ledger.audit();
        const chains = chain === true ? await compareChains(cli, context, sinceMs) : undefined;
        const cards = stripe === true ? await compareStripe(context, sinceMs) : undefined;
        const isOk = report.ok && chains?.ok !== false && cards?.ok !== false;
        cli.print(
          {
            ...(await auditBody(context.stores.identity, report, shownUsd)),
            ok: isOk,
            ...(chains && { chain: jsonOfChains(chains) }),
            ...(cards && { stripe: jsonOfCards(cards) }),
            ...(repaired && { repaired: repaired.map(jsonOfRepair) }),
          },
          shownLedger(report) +
            (repaired === undefined ? '' : shownRepair(repaired)) +
            (chains === undefined ? '' : shownChains(chains)) +
            (cards === undefined ? '' : shownCards(cards)),
        );
        cli.exitCode = isOk ? 0 : 1;
      });
    });
}

/** The attempt to credit a payment that is on its chain. */
interface Repair {
  readonly paymentId: string;
  readonly amountNano: Nano;
  /** `undefined` if the credit succeeded. */
  readonly problem: string | undefined;
}

async function repairChains(
  cli: Cli,
  context: CommandContext,
  sinceMs: number | undefined,
): Promise<readonly Repair[]> {
  const { differences } = await compareChains(cli, context, sinceMs);
  const found = differences.filter(({ recoverKey }) => recoverKey !== undefined);
  if (found.length === 0) return [];
  const payments = await openWalletPayments({ ...context, basePath: '/api/v1' });
  if (payments === undefined)
    throw new Error('The configuration has no payment network: set "payments"');
  const repairs: Repair[] = [];
  for (const { recoverKey = '', paymentId = '', amountNano } of found) {
    const problem = await payments.topUps.recover(recoverKey).then(
      () => undefined,
      // The reason goes into the report, and the comparison that follows lists the payment again.
      (error: unknown) => reasonOf(error),
    );
    repairs.push({ paymentId, amountNano, problem });
  }
  await payments.stop();
  return repairs;
}

function jsonOfRepair({ paymentId, amountNano, problem }: Repair): Record<string, unknown> {
  return { paymentId, amountUsd: jsonUsd(amountNano), credited: problem === undefined, problem };
}

function shownRepair(repairs: readonly Repair[]): string {
  if (repairs.length === 0) return '\nNothing to repair: every payment on a chain has its credit\n';
  const rows = repairs.map(({ paymentId, amountNano, problem }) => [
    paymentId,
    shownUsd(amountNano),
    problem ?? 'credited',
  ]);
  return `\n${table(['PAYMENT', 'USD', 'REPAIR'], rows, ['USD'])}`;
}

async function compareChains(
  { isJson, console }: Cli,
  { config, stores, clock }: CommandContext,
  sinceMs = 0,
): Promise<ChainAuditReport> {
  const progress = isJson ? undefined : new Progress(console.stderr);
  const report = await auditChains({
    settings: {
      ...config.payments,
      minimumBalanceUsd: Number(config.limits.minimumCreditUsd),
    },
    store: stores.store,
    clock,
    log: silentLog,
    sinceMs,
    receivedInLedger: (tx, network) => stores.ledger.receivedFrom(topUpAccount(network), tx),
    onProgress: (what, done, total) => progress?.count(`Comparing ${what}`, done, total),
  });
  progress?.end();
  return report;
}

async function compareStripe(context: CommandContext, sinceMs = 0): Promise<CardAuditReport> {
  const cards = await openCardPayments(context);
  const provider = cards?.providers.get('stripe');
  if (cards === undefined || provider === undefined) {
    throw new Error('The configuration has no payments.stripe');
  }
  const { store, ledger } = context.stores;
  const report = await auditCards({
    store,
    table: cards.table,
    provider,
    sinceMs,
    postedFor: (tx, name) => postedFor(ledger, tx, name),
  });
  await cards.stop();
  return report;
}

function jsonOfCards({ differences, ...report }: CardAuditReport): Record<string, unknown> {
  const rows = differences.map(({ providerNano, hereNano, ...difference }) => ({
    ...difference,
    stripeUsd: jsonUsd(providerNano),
    hereUsd: jsonUsd(hereNano),
  }));
  return { ...report, differences: rows };
}

function shownCards({ ok, payments, pending, differences }: CardAuditReport): string {
  const figures = listing([
    ['Card payments compared', String(payments)],
    ['Pending', String(pending)],
  ]);
  if (ok) return `\n${figures}\nEvery card payment is credited as Stripe reports it\n`;
  const rows = differences.map(({ what, paymentId, intent, providerNano, hereNano }) => [
    paymentId ?? '-',
    intent ?? '-',
    what,
    shownUsd(providerNano),
    shownUsd(hereNano),
  ]);
  const titles = ['PAYMENT', 'PAYMENT INTENT', 'WHAT', 'STRIPE', 'HERE'];
  return `\n${figures}\n${table(titles, rows, ['STRIPE', 'HERE'])}\n${counted(rows)} between ledger and Stripe\n`;
}

function jsonOfChains(chains: ChainAuditReport): Record<string, unknown> {
  const withUsd = <T extends { readonly amountNano?: bigint | undefined }>(rows: readonly T[]) =>
    rows.map(({ amountNano, ...row }) => ({ ...row, amountUsd: jsonUsd(amountNano) }));
  const differences = chains.differences.map(({ recoverKey, ...difference }) => ({
    ...difference,
    canRepair: recoverKey !== undefined,
  }));
  return { ...chains, differences: withUsd(differences), unknown: withUsd(chains.unknown) };
}

function shownLedger(report: AuditReport): string {
  const figures = listing([
    ['Accounts', String(report.accounts)],
    ['Postings', String(report.transfers)],
    ['Open holds', String(report.openHolds)],
    ['Leased by processes', `${shownUsd(report.leasedNano)} USD`],
    ['Unspent credit', `${shownUsd(report.owedNano)} USD`],
    ['Debts of accounts', `${shownUsd(report.debtNano)} USD`],
    ['Total charged', `${shownUsd(report.revenueNano)} USD`],
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
  return `${figures}\n${differences}\n${counted(rows)}: make a backup of the database before you change anything\n`;
}

function shownChains(chains: ChainAuditReport): string {
  const figures = listing([
    ['Payments compared', String(chains.payments)],
    ['Refunds compared', String(chains.refunds)],
    ['Pending', String(chains.underWay)],
    ['Not compared', `${chains.notAsked} (the rail or its refund key is not configured)`],
  ]);
  const unknown = chains.unknown.map((transfer) => [
    transfer.network,
    transfer.transaction,
    transfer.amountNano === undefined ? '-' : shownUsd(transfer.amountNano),
  ]);
  const others =
    unknown.length === 0
      ? ''
      : `\nTransfers to a receiver that match no payment:\n${table(['NETWORK', 'TRANSACTION', 'USD'], unknown, ['USD'])}`;
  if (chains.ok) return `\n${figures}${others}\nEvery credit is on its chain\n`;
  const rows = chains.differences.map((difference) => [
    difference.network,
    difference.paymentId ?? '-',
    difference.what,
    shownUsd(difference.amountNano),
    difference.transaction ?? '-',
  ]);
  const differences = table(['NETWORK', 'PAYMENT', 'WHAT', 'USD', 'TRANSACTION'], rows, ['USD']);
  const canRepair = chains.differences.some(({ recoverKey }) => recoverKey !== undefined);
  const next = canRepair
    ? '; "farebox audit --chain --repair" credits the payments that arrived'
    : '';
  return `\n${figures}${others}\n${differences}\n${counted(rows)} between ledger and chains${next}\n`;
}

function counted({ length }: readonly unknown[]): string {
  return `${length} ${length === 1 ? 'difference' : 'differences'}`;
}
