/** The settings of payments: the `payments` section and the amounts in it. */
import type { Config } from '../config/config.ts';
import { checksumAddress } from '../core/addresses.ts';
import { evmNetwork } from '../core/evm-networks.ts';
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

type BaseSettings = RailSettings<NonNullable<PaymentsSection['base']>> & {
  readonly upto?: boolean;
};
export type NetworkSettings = RailSettings<PaymentsSection['networks'][number]> & {
  readonly upto?: boolean;
};

/** The settings of an EVM rail, with the properties of its network. */
export interface EvmSettings extends Omit<
  NetworkSettings,
  'asset' | 'domain' | 'maxFeeGwei' | 'warnBelow' | 'blockSeconds'
> {
  readonly asset: string;
  readonly domain: { readonly name: string; readonly version: string };
  readonly coin: string;
  readonly maxFeeGwei: number;
  readonly warnBelow: number;
  readonly blockSeconds: number;
  /** Whether the token is USDC of the network, which has 6 decimals and EIP-2612. */
  readonly isUsdc: boolean;
}

/** Properties of a chain that is not built in. */
const OTHER_CHAIN = { coin: 'ETH', maxFeeGwei: 5, warnBelow: 0.002, blockSeconds: 2 } as const;
/** Version of the EIP-712 domain of USDC. */
const USDC_VERSION = '2';

/** The EVM rails in the order of the configuration, Base first. */
export function evmSettings({
  base,
  networks = [],
}: Pick<PaymentSettings, 'base' | 'networks'>): readonly EvmSettings[] {
  const all: readonly NetworkSettings[] =
    base === undefined ? networks : [{ ...base, warnBelow: base.warnBelowEth }, ...networks];
  return all.map((settings) => {
    const known = evmNetwork(settings.network);
    const { name, version } = settings.domain ?? {
      name: known?.tokenName ?? '',
      version: USDC_VERSION,
    };
    const asset = checksumAddress(settings.asset ?? known?.asset ?? '');
    const { coin, ...usual } = known ?? OTHER_CHAIN;
    return {
      ...settings,
      asset,
      domain: { name, version },
      isUsdc: asset === known?.asset,
      coin,
      maxFeeGwei: settings.maxFeeGwei ?? usual.maxFeeGwei,
      warnBelow: settings.warnBelow ?? usual.warnBelow,
      blockSeconds: settings.blockSeconds ?? usual.blockSeconds,
    };
  });
}

/** CAIP-2 ids of the configured networks; the first EVM network is the one of contract wallets. */
export function paymentNetworks({
  base,
  networks = [],
  solana,
}: Pick<PaymentSettings, 'base' | 'networks' | 'solana'>): readonly string[] {
  return [base, ...networks, solana].flatMap((rail) => rail?.network ?? []);
}
export type SolanaSettings = RailSettings<NonNullable<PaymentsSection['solana']>>;
export type StakingSettings = Nodes<NonNullable<PaymentsSection['staking']>>;

export interface PaymentSettings extends Omit<
  PaymentsSection,
  'base' | 'networks' | 'solana' | 'staking' | 'routesPerMinute'
> {
  readonly base?: BaseSettings | undefined;
  readonly networks?: readonly NetworkSettings[] | undefined;
  readonly solana?: SolanaSettings | undefined;
  readonly staking?: StakingSettings | undefined;
  /** Credit that a wallet needs to start a request, from the `limits` section. A reload can change it. */
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
  const minimumBalance = (): Nano => usdToNano(settings.minimumBalanceUsd);
  return {
    minimumTopUp: usdToNano(settings.minimumTopUpUsd),
    suggestedTopUp: usdToNano(settings.suggestedTopUpUsd),
    maximumTopUp: usdToNano(settings.maximumTopUpUsd),
    get minimumBalance() {
      return minimumBalance();
    },
    get firstPayment() {
      return payable(larger(usdToNano(settings.firstPaymentUsd), minimumBalance()));
    },
    get firstPaymentVersionOne() {
      return payable(larger(usdToNano(settings.firstPaymentVersionOneUsd), minimumBalance()));
    },
  };
}
