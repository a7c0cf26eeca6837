/** The settings of payments: the `payments` section and the amounts in it. */
import type { Config } from '../config/config.ts';
import { type Nano, larger, usdToNano } from '../core/money.ts';
import { unitsAbove, unitsToNano } from './networks.ts';

type PaymentsSection = Config['payments'];

/**
 * The settings of a rail. Without `confirmations` a payment is credited as soon as it is in a block, and
 * without `upto` that scheme is not accepted.
 */
type RailSettings<Rail extends { confirmations: readonly unknown[] }> = Nodes<
  Omit<Rail, 'confirmations' | 'upto'>
> & { readonly confirmations?: Readonly<Rail['confirmations']> | undefined };
type Nodes<Section> = Omit<Section, 'rpcUrl'> & { readonly rpcUrl: string | readonly string[] };

export type BaseSettings = RailSettings<NonNullable<PaymentsSection['base']>> & {
  readonly upto?: boolean;
};
export type SolanaSettings = RailSettings<NonNullable<PaymentsSection['solana']>>;
export type StakingSettings = Nodes<NonNullable<PaymentsSection['staking']>>;

export interface PaymentSettings extends Omit<
  PaymentsSection,
  'base' | 'solana' | 'staking' | 'routesPerMinute'
> {
  readonly base?: BaseSettings | undefined;
  readonly solana?: SolanaSettings | undefined;
  readonly staking?: StakingSettings | undefined;
  /** Credit that a wallet needs to start a request, from the `limits` section. */
  readonly minimumBalanceUsd: number;
}

/** The depth of the rule with the largest amount that a payment reaches. */
export function depthFor<Depth>(
  rules: readonly { readonly fromUsd: number; readonly wait: Depth }[] = [],
  amount: Nano,
): Depth | undefined {
  return rules
    .filter(({ fromUsd }) => usdToNano(fromUsd) <= amount)
    .toSorted((a, b) => a.fromUsd - b.fromUsd)
    .at(-1)?.wait;
}

export interface Amounts {
  readonly minimumTopUp: Nano;
  readonly suggestedTopUp: Nano;
  readonly maximumTopUp: Nano;
  readonly minimumBalance: Nano;
  /** The amount that stock clients pay by default; enough to start a request. */
  readonly firstPayment: Nano;
  /** The same for stock clients of version 1, which reject more. */
  readonly firstPaymentVersionOne: Nano;
}

function payable(amount: Nano): Nano {
  return unitsToNano(unitsAbove(amount));
}

export function readAmounts(settings: PaymentSettings): Amounts {
  const minimumBalance = usdToNano(settings.minimumBalanceUsd);
  return {
    minimumTopUp: usdToNano(settings.minimumTopUpUsd),
    suggestedTopUp: usdToNano(settings.suggestedTopUpUsd),
    maximumTopUp: usdToNano(settings.maximumTopUpUsd),
    minimumBalance,
    firstPayment: payable(larger(usdToNano(settings.firstPaymentUsd), minimumBalance)),
    firstPaymentVersionOne: payable(
      larger(usdToNano(settings.firstPaymentVersionOneUsd), minimumBalance),
    ),
  };
}
