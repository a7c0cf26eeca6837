/**
 * `farebox refund`: pays unused credit back to the wallet that paid. The debit, the signed transfer
 * and its end are in the database, so a refund that is cut short is finished by the server.
 */
import type { Ledger } from '../billing/ledger/ledger.ts';
import { type Nano, formatUsd, usdToNano } from '../core/money.ts';
import { walletAccountId } from '../identity/identity.ts';
import type { Payments, RefundState } from '../payments/payments.ts';
import { openWalletPayments } from '../wallet/wallet.ts';
import { type Command, type Invocation, UsageError, withStores } from './command.ts';

export const refundCommand: Command = {
  name: 'refund',
  takesWords: true,
  summary: "Pay a wallet's unused credit back to it, in USDC",
  usage: 'refund <wallet> <amount in USD | all>   or   refund --state <refund id>',
  details: `
  --state <refund id>   look at a refund that was on its way, and finish it

Needs \`refundKey\` (holds the USDC) and the gas key of the rail in the configuration. The server may
run meanwhile. A refund that can never arrive becomes credit again.

Example: farebox refund 0x2f3C…91aB 4.50`,
  run: (invocation) => {
    const wanted = wantedRefund(invocation);
    return withStores(invocation, async (context) => {
      const payments = await openWalletPayments({ ...context, basePath: '/api/v1' });
      if (payments === undefined) throw new Error('The configuration has no payment rail');
      const state = await refund(payments, context.stores.ledger, wanted);
      await payments.stop();
      const { amountNano, ...json } = state;
      invocation.answer(
        () => ({ ...json, amountUsd: formatUsd(amountNano, 6) }),
        () => sentenceOf(state),
      );
      return state.state === 'failed' ? 1 : 0;
    });
  },
};

type WantedRefund =
  | { readonly refundId: string }
  | { readonly wallet: string; readonly amount: Nano | 'all' };

function wantedRefund(invocation: Invocation): WantedRefund {
  const refundId = invocation.text('state');
  if (refundId !== undefined) return { refundId };
  const [wallet, amount, ...rest] = invocation.positionals;
  if (wallet === undefined || amount === undefined || rest.length > 0) {
    throw new UsageError('Give a wallet and an amount in USD');
  }
  if (amount === 'all') return { wallet, amount };
  if (!/^\d+(?:\.\d{1,6})?$/.test(amount) || /^[0.]+$/.test(amount)) {
    throw new UsageError(`The amount must be USD such as 4.50, or all, not "${amount}"`);
  }
  return { wallet, amount: usdToNano(amount) };
}

async function refund(
  payments: Payments,
  ledger: Ledger,
  wanted: WantedRefund,
): Promise<RefundState> {
  if ('refundId' in wanted) {
    await payments.sweep();
    return payments.refunds.state(wanted.refundId);
  }
  const { wallet, amount } = wanted;
  if (amount !== 'all') return payments.refunds.refund(wallet, amount);
  const { usdNano } = await ledger.balances(walletAccountId(wallet));
  return payments.refunds.refund(wallet, usdNano);
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
      return `On its way: ${what}. The server finishes it; "farebox refund --state ${state.refundId}" looks again\n`;
  }
}
