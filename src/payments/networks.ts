/**
 * The networks that payments know: CAIP-2 names, the slugs of version 1, the USDC of each with its
 * EIP-712 domain. Outgoing objects always carry CAIP-2; slugs are read, and written in v1 only.
 */
import { type Nano, nano } from '../core/money.ts';
import { chainReason } from './chain-reason.ts';

export const BASE = 'eip155:8453';
const BASE_SEPOLIA = 'eip155:84532';
export const SOLANA = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';
const SOLANA_DEVNET = 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1';

export interface NetworkFacts {
  readonly slug: string;
  readonly usdc: string;
  /** The EIP-712 domain name differs between networks; a wrong one reads as a bad signature. */
  readonly domainName: string;
  readonly domainVersion: string;
}

const FACTS: Readonly<Record<string, NetworkFacts>> = {
  [BASE]: {
    slug: 'base',
    usdc: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    domainName: 'USD Coin',
    domainVersion: '2',
  },
  [BASE_SEPOLIA]: {
    slug: 'base-sepolia',
    usdc: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    domainName: 'USDC',
    domainVersion: '2',
  },
  [SOLANA]: {
    slug: 'solana',
    usdc: 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v',
    domainName: 'USD Coin',
    domainVersion: '2',
  },
  [SOLANA_DEVNET]: {
    slug: 'solana-devnet',
    usdc: '4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU',
    domainName: 'USDC',
    domainVersion: '2',
  },
};

/** The facts of a CAIP-2 network, or `undefined` for one that payments do not know. */
export function networkFacts(network: string): NetworkFacts | undefined {
  return Object.hasOwn(FACTS, network) ? FACTS[network] : undefined;
}

/** CAIP-2 of an incoming name, which may be a slug. */
export function toCaip2(name: string): string {
  for (const [network, facts] of Object.entries(FACTS)) if (facts.slug === name) return network;
  return name;
}

/** USDC has 6 decimals: one base unit is 1,000 nano-USD. */
const NANO_PER_UNIT = 1_000n;
export const USDC_DECIMALS = 6;

/** What a token with other decimals would be: each of its units a thousand or a billion times wrong. */
export function wrongDecimals(asset: string, decimals: number): string {
  return `The token ${asset} has ${decimals} decimals; payments are counted in ${USDC_DECIMALS}, so name a token that has as many`;
}

/** Why no amount of a rail's token can be credited now, or `undefined`. Never rejects. */
export async function decimalsProblem(rail: {
  readonly offer: { readonly asset: string };
  decimals(): Promise<number>;
}): Promise<string | undefined> {
  const { asset } = rail.offer;
  try {
    const decimals = await rail.decimals();
    return decimals === USDC_DECIMALS ? undefined : wrongDecimals(asset, decimals);
  } catch (error) {
    // What is not known is not credited.
    return `The decimals of the token ${asset} cannot be read: ${chainReason(error)}`;
  }
}

export function unitsToNano(units: bigint): Nano {
  return nano(units * NANO_PER_UNIT);
}

/** Base units of an amount, rounded down: nobody is asked for a fraction of a unit. */
export function nanoToUnits(amount: bigint): bigint {
  return amount / NANO_PER_UNIT;
}
