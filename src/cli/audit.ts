/**
 * `farebox audit`: recomputes all money from the postings and lists every difference. `--chain`
 * compares every payment with its chain, and `--repair` credits payments that have arrived without
 * a credit.
 */
import type { AuditReport } from '../billing/ledger/ledger.ts';
import { reasonOf, silentLog } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import { type ChainAuditReport, auditChains } from '../payments/payments.ts';
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

Ends with exit code 1 when a stored amount differs from the recomputed one by a single nano-USD, or
a payment from its chain. It reads one consistent state, so it can run at any time beside a busy
server. Without --repair it changes nothing.`)
    .option(
      '--chain',
      'also ask the chains about every wallet payment and every paid refund, and list transfers to the receivers that no payment here knows',
    )
    .option(
      '--since <date or span>',
      'only payments since then, such as 2027-01-31 or 30d (default: all)',
      pastMs,
    )
    .option(
      '--repair',
      'with --chain: credit each payment that is on its chain and was never credited, then compare again; run it without first, and read what it lists',
    )
    .action(({ chain, since: sinceMs, repair }) => {
      if (sinceMs !== undefined && chain !== true) {
        throw new UsageError('--since goes with --chain: the postings are always read whole');
      }
      if (repair === true && chain !== true) {
        throw new UsageError(
          '--repair goes with --chain: only a chain shows what was never credited',
        );
      }
      return cli.withStores(async (context) => {
        const repaired = repair === true ? await repairChains(cli, context, sinceMs) : undefined;
        const report = await context.stores.ledger.audit();
        const chains = chain === true ? await askChains(cli, context, sinceMs) : undefined;
        const isOk = report.ok && chains?.ok !== false;
        cli.print(
          {
            ...auditBody(report, shownUsd),
            ok: isOk,
            ...(chains && { chain: jsonOfChains(chains) }),
            ...(repaired && { repaired: repaired.map(jsonOfRepair) }),
          },
          shownLedger(report) +
            (repaired === undefined ? '' : shownRepair(repaired)) +
            (chains === undefined ? '' : shownChains(chains)),
        );
        cli.exitCode = isOk ? 0 : 1;
      });
    });
}

/** What became of a payment that was on its chain and not credited. */
interface Repair {
  readonly paymentId: string;
  readonly amountNano: Nano;
  /** `undefined` when it was credited. */
  readonly problem: string | undefined;
}

/** Credits what the chains show and the books do not have. */
async function repairChains(
  cli: Cli,
  context: CommandContext,
  sinceMs: number | undefined,
): Promise<readonly Repair[]> {
  const { differences } = await askChains(cli, context, sinceMs);
  const found = differences.filter(({ recoverKey }) => recoverKey !== undefined);
  if (found.length === 0) return [];
  const payments = await openWalletPayments({ ...context, basePath: '/api/v1' });
  if (payments === undefined) throw new Error('The configuration has no payment rail');
  const repairs: Repair[] = [];
  for (const { recoverKey = '', paymentId = '', amountNano } of found) {
    const problem = await payments.topUps.recover(recoverKey).then(
      () => undefined,
      // The reason is the answer, and the comparison that follows names the payment again.
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
  if (repairs.length === 0) return '\nNo payment is on its chain without a credit\n';
  const rows = repairs.map(({ paymentId, amountNano, problem }) => [
    paymentId,
    shownUsd(amountNano),
    problem ?? 'credited',
  ]);
  return `\n${table(['PAYMENT', 'USD', 'REPAIR'], rows, ['USD'])}`;
}

async function askChains(
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
    receivedInLedger: (tx, prefix) => stores.ledger.receivedFrom(topUpAccount(prefix), tx),
    onProgress: (what, done, total) => progress?.count(`Asking about ${what}`, done, total),
  });
  progress?.end();
  return report;
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
  const canRepair = chains.differences.some(({ recoverKey }) => recoverKey !== undefined);
  const next = canRepair ? '; "farebox audit --chain --repair" credits what has arrived' : '';
  return `\n${figures}${others}\n${differences}\n${counted(rows)} between books and chains${next}\n`;
}

function counted({ length }: readonly unknown[]): string {
  return `${length} ${length === 1 ? 'difference' : 'differences'}`;
}
