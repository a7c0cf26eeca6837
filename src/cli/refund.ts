/**
 * `farebox refund`: pays unused credit back to the wallet or the card that paid. The database stores the
 * debit and the transfer, so the server completes an interrupted refund.
 */
import type { Account } from '../identity/identity.ts';
import type { Ledger } from '../billing/ledger/ledger.ts';
import { type Nano, formatUsd, nano, usdToNano } from '../core/money.ts';
import { accountIdOf, walletAccountId, walletOfAccount } from '../identity/identity.ts';
import { type OpenCredit, type Payments, type RefundState, sumOf } from '../payments/payments.ts';
import { openWalletPayments } from '../wallet/wallet.ts';
import { walletKind } from '../core/addresses.ts';
import type { CardRefund } from '../payments/cards/cards.ts';
import { openCardPayments } from '../server/checkout.ts';
import { type Cli, UsageError, findAccount, shownUsd } from './command.ts';

export function refundCommand(cli: Cli): void {
  cli.program
    .command('refund')
    .description(`Pay unused credit back to its wallet in USDC, or to its card

A wallet gets back only credit from final payments. Credit from a payment that the chain can still revert
is listed and kept (on Base for about 20 minutes after the payment, on Solana for 15 seconds). The refund is on the network of the latest payment of the wallet.

The network needs "refundKey", whose address holds the USDC, and its gas key in the configuration. The
server may run meanwhile. A refund that the chain rejects becomes credit again.

For another account, or with --card, the credit from card payments is paid back to these cards, the newest
payment first.

Examples:
  farebox refund 0x2f3C…91aB 4.50
  farebox refund alice@example.com all`)
    .argument('[account]', 'address of the wallet, or id or name of the account')
    .argument('[amount]', 'amount in USD, or all')
    .option(
      '--network <id>',
      'network of the refund, such as eip155:137 (default: that of its latest payment)',
    )
    .option('--card', 'pay back to the cards of the account of a wallet')
    .option('--allow-debt', 'with a card: also pay back credit that was spent; the account owes it')
    .option('--state <refund id>', 'continue a refund that was sent, and print its state')
    .action((wallet, amount, { state: refundId, network, card = false, allowDebt = false }) => {
      const isWallet = walletKind(walletOfAccount(accountIdOf(wallet ?? '')) ?? '') !== undefined;
      if (
        refundId?.startsWith(CARD_REFUND) === true ||
        (wallet !== undefined && (card || !isWallet))
      ) {
        return refundCards(cli, { refundId, given: wallet, amount, takesSpent: allowDebt });
      }
      const wanted = refundId === undefined ? wantedRefund(wallet, amount, network) : { refundId };
      return cli.withStores(async (context) => {
        const payments = await openWalletPayments({ ...context, basePath: '/api/v1' });
        if (payments === undefined)
          throw new Error('The configuration has no payment network: set "payments"');
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

/** Beginning of the id of a refund to a card. */
const CARD_REFUND = 'refund_';

function refundCards(
  cli: Cli,
  wanted: {
    readonly refundId: string | undefined;
    readonly given: string | undefined;
    readonly amount: string | undefined;
    readonly takesSpent: boolean;
  },
): Promise<void> {
  const { refundId, given, amount, takesSpent } = wanted;
  if (refundId === undefined && amount === undefined) {
    throw new UsageError('The arguments <account> and <amount> are required');
  }
  if (takesSpent && amount === 'all') throw new UsageError('--allow-debt needs an amount, not all');
  const amountNano = amount === undefined ? 'all' : wantedAmount(amount, CENT_DECIMALS);
  return cli.withStores(async (context) => {
    const { stores } = context;
    const cards = await openCardPayments(context);
    if (cards === undefined)
      throw new Error('The configuration has no card payments: set "payments.stripe"');
    let refunds: readonly CardRefund[];
    if (refundId === undefined) {
      const account: Account = await findAccount(stores, given);
      const { usdNano } = await stores.ledger.balances(account.id);
      refunds = await cards.refund(account.id, amountNano, usdNano, { takesSpent });
    } else {
      const { paymentId } = await cards.refundState(refundId);
      await cards.check(paymentId);
      refunds = [await cards.refundState(refundId)];
    }
    await cards.stop();
    cli.print(
      refunds.map(({ amountNano: nanos, id, paymentId, state, failure = null }) => {
        return { refundId: id, paymentId, amountUsd: shownUsd(nanos), state, failure };
      }),
      refunds.map(sentenceOfCard).join(''),
    );
    cli.exitCode = refunds.some(({ state }) => state === 'failed') ? 1 : 0;
  });
}

function sentenceOfCard({ id, paymentId, amountNano, state, failure }: CardRefund): string {
  const what = `${shownUsd(amountNano)} USD of the payment ${paymentId} (${id})`;
  if (state === 'paid') return `Paid back ${what}\n`;
  if (state === 'failed')
    return `Not paid back: ${what} is credit again (${failure ?? 'failed'})\n`;
  return `Pending: ${what}. The server completes it; "farebox refund --state ${id}" prints its state\n`;
}

const CENT_DECIMALS = 2;
const USDC_DECIMALS = 6;

function wantedAmount(amount: string, decimals: number): Nano | 'all' {
  if (amount === 'all') return 'all';
  const isAmount = new RegExp(`^\\d+(?:\\.\\d{1,${decimals}})?$`).test(amount);
  if (isAmount && !/^[0.]+$/.test(amount)) return usdToNano(amount);
  throw new UsageError(
    `The amount must be USD with at most ${decimals} decimals such as 4.50, or all, not "${amount}"`,
  );
}

type WantedRefund =
  | { readonly refundId: string }
  | {
      readonly wallet: string;
      readonly amount: Nano | 'all';
      readonly network: string | undefined;
    };

function wantedRefund(
  given: string | undefined,
  amount: string | undefined,
  network: string | undefined,
): WantedRefund {
  if (given === undefined || amount === undefined) {
    throw new UsageError('The arguments <account> and <amount> are required');
  }
  const wallet = walletOfAccount(accountIdOf(given)) ?? given;
  return { wallet, amount: wantedAmount(amount, USDC_DECIMALS), network };
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
  const { wallet, amount, network } = wanted;
  const pay = (nanos: Nano): Promise<RefundState> =>
    refunds.refund(wallet, nanos, undefined, network);
  if (amount !== 'all') return { state: await pay(amount), left: [] };
  const left = await refunds.openCredits(wallet);
  const { usdNano } = await ledger.balances(walletAccountId(wallet));
  const finalNano = nano(usdNano - sumOf(left));
  if (left.length > 0 && finalNano <= 0n) {
    throw new Error(`Nothing was paid back. ${sentenceOfLeft(left).trimEnd()}`);
  }
  return { state: await pay(finalNano), left };
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
