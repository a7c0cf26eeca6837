/** The sign-in message for wallets (EIP-4361, and its form for Solana) and its header. */
import type { SignInChallenge } from '../shapes.ts';
import { type ConnectedWallet, WalletError } from './wallet.ts';

const FAMILIES = { base: 'Ethereum', solana: 'Solana' } as const;
const NAMESPACES = { base: 'eip155', solana: 'solana' } as const;

/** Has the wallet sign the challenge. Returns the value of the header `SIGN-IN-WITH-X`. */
export async function signInHeader(
  wallet: ConnectedWallet,
  { info, supportedChains }: SignInChallenge,
): Promise<string> {
  const { rail, address } = wallet;
  const chain = supportedChains.find(({ chainId }) => chainId.startsWith(`${NAMESPACES[rail]}:`));
  if (chain === undefined) {
    throw new WalletError('The service does not support wallets of this kind.');
  }
  const lines = [
    `${info.domain} wants you to sign in with your ${FAMILIES[rail]} account:`,
    address,
    '',
    ...(info.statement === undefined ? (rail === 'base' ? [''] : []) : [info.statement, '']),
    `URI: ${info.uri}`,
    `Version: ${info.version}`,
    `Chain ID: ${chain.chainId.split(':')[1]}`,
    `Nonce: ${info.nonce}`,
    `Issued At: ${info.issuedAt}`,
    ...(info.expirationTime === undefined ? [] : [`Expiration Time: ${info.expirationTime}`]),
  ];
  const message = lines.join('\n');
  const signature = await wallet.signText(message);
  return encodeHeader({ address, message, signature, chainId: chain.chainId });
}

/** Encodes a value as base64 of JSON, the form of x402 headers. */
export function encodeHeader(value: unknown): string {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
}
