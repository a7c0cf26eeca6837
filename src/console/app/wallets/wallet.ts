/** Wallets of the browser, whatever their kind: found, connected, asked to sign. */
import type { Rail } from '../page-facts.ts';

/** One entry of `accepts` of the answer 402. */
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
  /** Of a text; hex on Base, base58 on Solana. */
  signText(text: string): Promise<string>;
  /** The inner payload of an x402 payment of `units` of the offer's token. */
  signPayment(offer: Offer, units: bigint): Promise<Readonly<Record<string, unknown>>>;
}

export interface WalletChoice {
  readonly id: string;
  readonly name: string;
  /** A picture in a `data:` URL, when the wallet has one. */
  readonly icon: string | undefined;
  readonly rail: Rail;
  connect(): Promise<ConnectedWallet>;
}

/** Why a wallet did not sign, in words for people. */
export class WalletError extends Error {}

/** EIP-1193: the user said no. */
const REJECTED = 4001;
/** EIP-1193: the wallet waits for an answer to an earlier question. */
const BUSY = -32_002;

/** What a wallet threw, in words. */
export function walletError(error: unknown): WalletError {
  if (error instanceof WalletError) return error;
  const { code, message = '' } = (error ?? {}) as { code?: unknown; message?: string };
  if (code === REJECTED || /reject|denied|declin|cancel/i.test(message)) {
    return new WalletError('You rejected the request in your wallet. Nothing was signed or paid.');
  }
  if (code === BUSY) {
    return new WalletError(
      'Your wallet still waits for an answer: open it and finish or close that.',
    );
  }
  return new WalletError(
    `The wallet answered: ${message === '' ? 'nothing' : message.slice(0, 300)}`,
  );
}

/** Pictures of wallets are data; anything else would be a request to somebody. */
export function safeIcon(icon: string | undefined): string | undefined {
  return icon?.startsWith('data:image/') === true ? icon : undefined;
}

/** USDC and its like: one USD is a million units. */
export const UNITS_PER_USD = 1_000_000;

export function usdOfUnits(units: bigint): number {
  return Number(units) / UNITS_PER_USD;
}
