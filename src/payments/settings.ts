/**
 * What payments are told, in plain values. The `payments` section of the configuration has
 * this shape; this folder does not import it, so that it can be built without a file.
 */
import { usdToNano } from '../core/money.ts';
import type { Nano } from '../core/money.ts';

/** From this amount on, a payment is credited when it is so deep: blocks with its own, or a tag. */
export interface ConfirmationRule<Depth> {
  readonly fromUsd: number;
  readonly wait: Depth;
}

export type BaseDepth = number | 'safe' | 'finalized';
export type SolanaDepth = 'confirmed' | 'finalized';

export interface BaseSettings {
  readonly network: 'eip155:8453' | 'eip155:84532';
  readonly payTo: string;
  readonly rpcUrl: string | readonly string[];
  readonly gasKey?: string | undefined;
  readonly refundKey?: string | undefined;
  readonly asset?: string | undefined;
  /** Without rules: in one block. */
  readonly confirmations?: readonly ConfirmationRule<BaseDepth>[] | undefined;
  readonly maxGas: number;
  readonly maxFeeGwei: number;
  readonly warnBelowEth: number;
}

export interface SolanaSettings {
  readonly network:
    | 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp'
    | 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1';
  readonly payTo: string;
  readonly rpcUrl: string | readonly string[];
  readonly feePayerKey?: string | undefined;
  readonly refundKey?: string | undefined;
  readonly asset?: string | undefined;
  /** Without rules: confirmed. */
  readonly confirmations?: readonly ConfirmationRule<SolanaDepth>[] | undefined;
  readonly maxPriorityFeeMicroLamports: number;
  readonly maxComputeUnits: number;
  readonly warnBelowSol: number;
}

interface FacilitatorSettings {
  readonly url?: string | undefined;
  readonly authorization?: string | undefined;
  readonly timeoutSeconds: number;
  readonly expose: boolean;
}

export interface StakingSettings {
  readonly rpcUrl: string | readonly string[];
  readonly contract: string;
  readonly function: string;
  readonly decimals: number;
  readonly usdPerUnit: number;
}

export interface PaymentSettings {
  readonly minimumTopUpUsd: number;
  readonly suggestedTopUpUsd: number;
  readonly maximumTopUpUsd: number;
  /** Credit that a wallet needs to start a request; the `limits` section holds it for all callers. */
  readonly minimumBalanceUsd: number;
  readonly maxTimeoutSeconds: number;
  readonly settleWaitSeconds: number;
  readonly sessionMinutes: number;
  readonly receipts: boolean;
  readonly base?: BaseSettings | undefined;
  readonly solana?: SolanaSettings | undefined;
  readonly facilitator: FacilitatorSettings;
  readonly staking?: StakingSettings | undefined;
}

/** The depth of the rule with the largest amount that a payment reaches. */
export function depthFor<Depth>(
  rules: readonly ConfirmationRule<Depth>[] | undefined,
  amount: Nano,
): Depth | undefined {
  let found: ConfirmationRule<Depth> | undefined;
  for (const rule of rules ?? []) {
    const applies = usdToNano(rule.fromUsd) <= amount;
    if (applies && (found === undefined || rule.fromUsd >= found.fromUsd)) found = rule;
  }
  return found?.wait;
}

export interface Amounts {
  readonly minimumTopUp: Nano;
  readonly suggestedTopUp: Nano;
  readonly maximumTopUp: Nano;
  readonly minimumBalance: Nano;
}

/** The amounts as integers; throws a RangeError for an impossible order of them. */
export function readAmounts(settings: PaymentSettings): Amounts {
  const amounts = {
    minimumTopUp: usdToNano(settings.minimumTopUpUsd),
    suggestedTopUp: usdToNano(settings.suggestedTopUpUsd),
    maximumTopUp: usdToNano(settings.maximumTopUpUsd),
    minimumBalance: usdToNano(settings.minimumBalanceUsd),
  };
  const { minimumTopUp, suggestedTopUp, maximumTopUp } = amounts;
  if (minimumTopUp > suggestedTopUp || suggestedTopUp > maximumTopUp) {
    throw new RangeError('payments: minimumTopUpUsd <= suggestedTopUpUsd <= maximumTopUpUsd');
  }
  return amounts;
}
