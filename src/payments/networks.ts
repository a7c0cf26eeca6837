/**
 * The networks of rails: CAIP-2 names, the slugs of x402 version 1, and USDC with its units. Slugs are read,
 * and written in version 1 only.
 */
import { type Nano, larger, nano, usdToNano } from '../core/money.ts';
import type { Config } from '../config/config.ts';
import { BASE, BASE_SEPOLIA, EVM_NETWORKS, type EvmNetwork } from '../core/evm-networks.ts';

export { BASE };
export const SOLANA = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';
const SOLANA_DEVNET = 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1';

type SolanaNetwork = NonNullable<Config['payments']['solana']>['network'];
type Facts = Pick<EvmNetwork, 'slug' | 'explorer'>;

const SOLANA_NETWORKS: Readonly<
  Record<SolanaNetwork, Facts & { readonly asset: string; readonly name: string }>
> = {
  [SOLANA]: {
    slug: 'solana',
    asset: 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v',
    name: 'USD Coin',
    explorer: 'https://explorer.solana.com/tx/{tx}',
  },
  [SOLANA_DEVNET]: {
    slug: 'solana-devnet',
    asset: '4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU',
    name: 'USDC',
    explorer: 'https://explorer.solana.com/tx/{tx}?cluster=devnet',
  },
};
const NETWORKS = new Map<string, Facts>([
  ...Object.entries(EVM_NETWORKS),
  ...Object.entries(SOLANA_NETWORKS),
]);

export function solanaUsdc(network: SolanaNetwork) {
  const { asset, name } = SOLANA_NETWORKS[network];
  return { asset, extra: { name, version: '2' } };
}

export function isEvm(network: string): boolean {
  return network.startsWith('eip155:');
}

export function explorerUrl(network: string, transaction: string): string | null {
  const facts = NETWORKS.get(network);
  return facts?.explorer.replace('{tx}', encodeURIComponent(transaction)) ?? null;
}

export function slugOf(network: string): string {
  return NETWORKS.get(network)?.slug ?? network;
}

/** The CAIP-2 name for a slug; returns other names unchanged. */
export function toCaip2(name: string): string {
  for (const [network, { slug }] of NETWORKS) if (slug === name) return network;
  return name;
}

export type LedgerNetwork = 'base' | 'solana' | `eip155:${string}`;

/**
 * The name of a network in the accounts of the ledger; test networks share those of the main network. Returns
 * such a name unchanged.
 */
export function ledgerNetwork(network: string): LedgerNetwork {
  if (network.startsWith('solana:')) return 'solana';
  if (network === BASE || network === BASE_SEPOLIA) return 'base';
  return network as `eip155:${string}`; // the networks of rails
}

/** USDC has 6 decimals: one base unit is 1,000 nano-USD. */
const NANO_PER_UNIT = 1_000n;
export const USDC_DECIMALS = 6;

export function wrongDecimals(asset: string, decimals: number): string {
  return `The token ${asset} has ${decimals} decimals; it must have ${USDC_DECIMALS}`;
}

export function unitsToNano(units: bigint): Nano {
  return nano(units * NANO_PER_UNIT);
}

/** Base units of an amount, rounded down. */
export function nanoToUnits(amount: bigint): bigint {
  return amount / NANO_PER_UNIT;
}

/** Base units of an amount, rounded up. */
export function unitsAbove(amount: bigint): bigint {
  return (amount + NANO_PER_UNIT - 1n) / NANO_PER_UNIT;
}

/** The amount, or the minimum of the network of an offer if that is larger. */
export function largestOf(
  amount: Nano,
  { minimumUsd = 0 }: { readonly minimumUsd?: number },
): Nano {
  return larger(amount, usdToNano(minimumUsd));
}
