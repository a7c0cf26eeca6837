/** The interface of browser wallets, and their errors. */
import type { Rail } from '../page-facts.ts';

/** One entry of `accepts` in a 402 response. */
export interface Offer {
  readonly scheme: string;
  readonly network: string;
  readonly asset: string;
  readonly payTo: string;
  readonly amount: string;
  readonly maxTimeoutSeconds: number;
  readonly extra: Readonly<Record<string, string>>;
}

export interface ConnectedWallet {
  readonly name: string;
  readonly rail: Rail;
  readonly address: string;
  /** Returns the signature in hex on EVM networks, in base58 on Solana. */
  signText(text: string): Promise<string>;
  /** Returns the payload of an x402 payment. `units`: amount in units of the token. */
  signPayment(offer: Offer, units: bigint): Promise<Readonly<Record<string, unknown>>>;
}

export interface WalletChoice {
  readonly id: string;
  readonly name: string;
  /** An image in a `data:` URL. */
  readonly icon: string | undefined;
  readonly rail: Rail;
  connect(): Promise<ConnectedWallet>;
}

export class WalletError extends Error {}

/** EIP-1193: the user rejected the request. */
const REJECTED = 4001;
/** EIP-1193: an earlier request is still open. */
const BUSY = -32_002;

export function walletError(error: unknown): WalletError {
  if (error instanceof WalletError) return error;
  const { code, message = '' } = (error ?? {}) as { code?: unknown; message?: string };
  if (code === REJECTED || /reject|denied|declin|cancel/i.test(message)) {
    return new WalletError('You rejected the request in your wallet. Nothing was signed or paid.');
  }
  if (code === BUSY) {
    return new WalletError(
      'Your wallet has an open request. Open the wallet, confirm or reject it, and try again.',
    );
  }
  return new WalletError(
    `The wallet reported: ${message === '' ? 'an error without a message' : message.slice(0, 300)}`,
  );
}

/** Accepts only `data:` images, because a URL would be a request to another server. */
export function safeIcon(icon: string | undefined): string | undefined {
  return icon?.startsWith('data:image/') === true ? icon : undefined;
}

/** USDC has six decimals. */
export const UNITS_PER_USD = 1_000_000;

export function usdOfUnits(units: bigint): number {
  return Number(units) / UNITS_PER_USD;
}
