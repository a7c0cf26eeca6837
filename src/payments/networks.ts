/**
 * The supported networks: CAIP-2 names, the slugs of x402 version 1, and USDC with its EIP-712 domain and
 * its units. Slugs are read, and written in version 1 only.
 */
import { type Nano, nano } from '../core/money.ts';
import type { Config } from '../config/config.ts';

export const BASE = 'eip155:8453';
const BASE_SEPOLIA = 'eip155:84532';
export const SOLANA = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';
const SOLANA_DEVNET = 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1';

type Section = Config['payments'];
type Network = NonNullable<Section['base'] | Section['solana']>['network'];

interface NetworkFacts {
  readonly slug: string;
  readonly asset: string;
  /** EIP-712 domain name of USDC, which differs between networks. */
  readonly name: string;
  /** URL of a transaction page, with `{tx}` for its id. */
  readonly explorer: string;
}

const NETWORKS: Readonly<Record<Network, NetworkFacts>> = {
  [BASE]: {
    slug: 'base',
    asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    name: 'USD Coin',
    explorer: 'https://basescan.org/tx/{tx}',
  },
  [BASE_SEPOLIA]: {
    slug: 'base-sepolia',
    asset: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    name: 'USDC',
    explorer: 'https://sepolia.basescan.org/tx/{tx}',
  },
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

export function usdcOf(network: Network) {
  const { asset, name } = NETWORKS[network];
  return { asset, extra: { name, version: '2' } };
}

export function explorerUrl(network: string, transaction: string): string | null {
  if (!Object.hasOwn(NETWORKS, network)) return null;
  const { explorer } = NETWORKS[network as Network]; // own key
  return explorer.replace('{tx}', encodeURIComponent(transaction));
}

export function slugOf(network: string): string {
  return Object.hasOwn(NETWORKS, network) ? NETWORKS[network as Network].slug : network; // own key
}

/** The CAIP-2 name for a slug; returns other names unchanged. */
export function toCaip2(name: string): string {
  for (const [network, { slug }] of Object.entries(NETWORKS)) if (slug === name) return network;
  return name;
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
