/**
 * EVM networks that payments know: USDC with the name of its EIP-712 domain, and properties of the chain.
 * The addresses are those of `@x402/evm` and viem; a rail compares the domain with the token when it starts.
 */

export interface EvmNetwork {
  readonly name: string;
  /** Name in x402 version 1. */
  readonly slug: string;
  /** USDC; the version of its domain is 2. */
  readonly asset: string;
  readonly tokenName: string;
  /** URL of a transaction page, with `{tx}` for its id. */
  readonly explorer: string;
  /** The coin that pays for gas. */
  readonly coin: string;
  /** Usual maximum fee per gas. */
  readonly maxFeeGwei: number;
  /** Balance of the gas key that is low, in the coin. */
  readonly warnBelow: number;
  readonly blockSeconds: number;
}

export const BASE = 'eip155:8453';
export const BASE_SEPOLIA = 'eip155:84532';

const ETH = { coin: 'ETH', maxFeeGwei: 5, warnBelow: 0.002, blockSeconds: 2 } as const;

export const EVM_NETWORKS: Readonly<Record<string, EvmNetwork>> = {
  [BASE]: {
    ...ETH,
    name: 'Base',
    slug: 'base',
    asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    tokenName: 'USD Coin',
    explorer: 'https://basescan.org/tx/{tx}',
  },
  [BASE_SEPOLIA]: {
    ...ETH,
    name: 'Base Sepolia',
    slug: 'base-sepolia',
    asset: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    tokenName: 'USDC',
    explorer: 'https://sepolia.basescan.org/tx/{tx}',
  },
  'eip155:1': {
    ...ETH,
    name: 'Ethereum',
    slug: 'ethereum',
    asset: '0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48',
    tokenName: 'USD Coin',
    explorer: 'https://etherscan.io/tx/{tx}',
    maxFeeGwei: 50,
    warnBelow: 0.05,
    blockSeconds: 12,
  },
  'eip155:10': {
    ...ETH,
    name: 'Optimism',
    slug: 'optimism',
    asset: '0x0b2C639c533813f4Aa9D7837CAf62653d097Ff85',
    tokenName: 'USD Coin',
    explorer: 'https://optimistic.etherscan.io/tx/{tx}',
  },
  'eip155:137': {
    name: 'Polygon',
    slug: 'polygon',
    asset: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
    tokenName: 'USD Coin',
    explorer: 'https://polygonscan.com/tx/{tx}',
    coin: 'POL',
    maxFeeGwei: 1_000,
    warnBelow: 2,
    blockSeconds: 2,
  },
  'eip155:143': {
    name: 'Monad',
    slug: 'monad',
    asset: '0x754704Bc059F8C67012fEd69BC8A327a5aafb603',
    tokenName: 'USDC',
    explorer: 'https://monadscan.com/tx/{tx}',
    coin: 'MON',
    maxFeeGwei: 500,
    warnBelow: 1,
    blockSeconds: 0.4,
  },
  'eip155:480': {
    ...ETH,
    name: 'World Chain',
    slug: 'worldchain',
    asset: '0x79A02482A880bCE3F13e09Da970dC34db4CD24d1',
    tokenName: 'USD Coin',
    explorer: 'https://worldscan.org/tx/{tx}',
  },
  'eip155:42161': {
    ...ETH,
    name: 'Arbitrum',
    slug: 'arbitrum',
    asset: '0xaf88d065e77c8cC2239327C5EDb3A432268e5831',
    tokenName: 'USD Coin',
    explorer: 'https://arbiscan.io/tx/{tx}',
    blockSeconds: 0.25,
  },
  'eip155:42220': {
    name: 'Celo',
    slug: 'celo',
    asset: '0xcebA9300f2b948710d2653dD7B07f33A8B32118C',
    tokenName: 'USDC',
    explorer: 'https://celoscan.io/tx/{tx}',
    coin: 'CELO',
    maxFeeGwei: 500,
    warnBelow: 1,
    blockSeconds: 1,
  },
  'eip155:43114': {
    name: 'Avalanche',
    slug: 'avalanche',
    asset: '0xB97EF9Ef8734C71904D8002F8b6Bc66Dd9c48a6E',
    tokenName: 'USD Coin',
    explorer: 'https://snowtrace.io/tx/{tx}',
    coin: 'AVAX',
    maxFeeGwei: 100,
    warnBelow: 0.1,
    blockSeconds: 1,
  },
};

/** The network of a CAIP-2 id; `undefined` if it is not built in. */
export function evmNetwork(id: string): EvmNetwork | undefined {
  return Object.hasOwn(EVM_NETWORKS, id) ? EVM_NETWORKS[id] : undefined;
}
