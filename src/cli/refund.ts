/**
 * `farebox refund`: pays unused credit back to the wallet that paid. The database stores the debit and
 * the signed transfer, so the server completes an interrupted refund.
 */
import type { Ledger } from '../billing/ledger/ledger.ts';
import { type Nano, formatUsd, nano, usdToNano } from '../core/money.ts';
import { accountIdOf, walletAccountId, walletOfAccount } from '../identity/identity.ts';
import { type OpenCredit, type Payments, type RefundState, sumOf } from '../payments/payments.ts';
import { openWalletPayments } from '../wallet/wallet.ts';
import { type Cli, UsageError } from './command.ts';

export function refundCommand(cli: Cli): void {
  cli.program
    .command('refund')
    .description(`Pay unused credit back to its wallet, in USDC

Pays back only credit from final payments. Credit from a payment that the chain can still revert is
listed and kept (on Base for about 20 minutes after the payment, on Solana for 15 seconds).

The rail needs \`refundKey\`, whose address holds the USDC, and its gas key in the configuration. The
server may run meanwhile. A refund that the chain rejects becomes credit again.

Example: farebox refund 0x2f3C…91aB 4.50`)
    .argument('[wallet]', 'address of the wallet')
    .argument('[amount]', 'amount in USD, or all')
    .option('--state <refund id>', 'continue a refund that was sent, and print its state')
    .action((wallet, amount, { state: refundId }) => {
      const wanted = refundId === undefined ? wantedRefund(wallet, amount) : { refundId };
      return cli.withStores(async (context) => {
        const payments = await openWalletPayments({ ...context, basePath: '/api/v1' });
        if (payments === undefined) throw new Error('The configuration has no payment rail');
        const { state, left } = await refund(payments, context.stores.ledger, wanted);
        await payments.stop();
        const { amountNano, ...json } = state;
        cli.print(
          { ...json, amountUsd: formatUsd(amountNano, 6), notFinal: left.map(jsonOf) },
          sentenceOf(state) + sentenceOfLeft(left),
        );
        cli.exitCode = state.state === 'failed' ? 1 : 0;
      });
    });
}

type WantedRefund =
  | { readonly refundId: string }
  | { readonly wallet: string; readonly amount: Nano | 'all' };

function wantedRefund(given: string | undefined, amount: string | undefined): WantedRefund {
  if (given === undefined || amount === undefined) {
    throw new UsageError('The arguments <wallet> and <amount> are required');
  }
  const wallet = walletOfAccount(accountIdOf(given)) ?? given;
  if (amount === 'all') return { wallet, amount };
  if (!/^\d+(?:\.\d{1,6})?$/.test(amount) || /^[0.]+$/.test(amount)) {
    throw new UsageError(
      `The amount must be USD with at most 6 decimals such as 4.50, or all, not "${amount}"`,
    );
  }
  return { wallet, amount: usdToNano(amount) };
}

interface Refunded {
  readonly state: RefundState;
  /** Credit that stays, because the chain can still revert its payment. */
  readonly left: readonly OpenCredit[];
}

async function refund(payments: Payments, ledger: Ledger, wanted: WantedRefund): Promise<Refunded> {
  const { refunds } = payments;
  if ('refundId' in wanted) {
    await payments.sweep();
    return { state: await refunds.state(wanted.refundId), left: [] };
  }
  const { wallet, amount } = wanted;
  if (amount !== 'all') return { state: await refunds.refund(wallet, amount), left: [] };
  const left = await refunds.openCredits(wallet);
  const { usdNano } = await ledger.balances(walletAccountId(wallet));
  const finalNano = nano(usdNano - sumOf(left));
  if (left.length > 0 && finalNano <= 0n) {
    throw new Error(`Nothing was paid back. ${sentenceOfLeft(left).trimEnd()}`);
  }
  return { state: await refunds.refund(wallet, finalNano), left };
}

function jsonOf({ amountNano, ...credit }: OpenCredit): Record<string, unknown> {
  return { ...credit, amountUsd: formatUsd(amountNano, 6) };
}

function sentenceOfLeft(left: readonly OpenCredit[]): string {
  if (left.length === 0) return '';
  const named = left.map(
    ({ paymentId, amountNano, transaction = 'no transaction' }) =>
      `${formatUsd(amountNano, 6)} USD of ${paymentId} (${transaction})`,
  );
  return `Kept as credit, because the payment is not final yet: ${named.join(', ')}\n`;
}

function sentenceOf(state: RefundState): string {
  const what = `${formatUsd(state.amountNano, 6)} USD to ${state.wallet} (${state.refundId})`;
  switch (state.state) {
    case 'paid':
      return `Paid ${what} in the transaction ${state.transaction ?? ''}\n`;
    case 'failed':
      return `Not paid: ${what} is credit again (${state.failure ?? 'failed'})\n`;
    case 'open':
    case 'sent':
      return `Pending: ${what}. The server completes it; "farebox refund --state ${state.refundId}" prints its state\n`;
  }
}
