/**
 * Wallet addresses: what is a valid one, and the one spelling under which Farebox keeps it.
 *
 * Invariant: an EVM wallet is known by its lower-case address, a Solana wallet by its base58 text
 * as it is (base58 is case-sensitive: lower-casing would merge different keys).
 */
import { keccak256 } from './keccak.ts';
import { base58Decode } from './base58.ts';

export type WalletKind = 'evm' | 'solana';

const EVM_ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const SOLANA_ADDRESS = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;
const SOLANA_KEY_BYTES = 32;

/** Which kind of address the text is, or `undefined` when it is none; a wrong EIP-55 checksum is none. */
export function walletKind(text: string): WalletKind | undefined {
  if (EVM_ADDRESS.test(text)) return hasValidChecksum(text) ? 'evm' : undefined;
  if (!SOLANA_ADDRESS.test(text)) return undefined;
  return base58Decode(text, SOLANA_KEY_BYTES)?.length === SOLANA_KEY_BYTES ? 'solana' : undefined;
}

/** The spelling under which a valid address is an account. */
export function walletIdentity(address: string): string {
  return address.startsWith('0x') ? address.toLowerCase() : address;
}

/** The EIP-55 spelling of a valid EVM address. */
export function checksumAddress(address: string): string {
  const lower = address.slice(2).toLowerCase();
  const digest = keccak256(Buffer.from(lower, 'latin1')).toString('hex', 0, 20);
  let text = '0x';
  for (let index = 0; index < lower.length; index += 1) {
    const char = lower.charAt(index);
    // A digest digit of 8 or more means upper case; '8' to '9' and 'a' to 'f' sort after '7'.
    text += digest.charAt(index) > '7' ? char.toUpperCase() : char;
  }
  return text;
}

/** Addresses of one case carry no checksum and pass; mixed case must be the EIP-55 spelling. */
function hasValidChecksum(address: string): boolean {
  const digits = address.slice(2);
  if (digits === digits.toLowerCase() || digits === digits.toUpperCase()) return true;
  return checksumAddress(address) === address;
}
