/**
 * Wallet addresses: validation, and the canonical spelling.
 *
 * Invariant: an EVM wallet is stored by its lower-case address, a Solana wallet by its unchanged
 * base58 text (base58 is case-sensitive: lower-casing would merge different keys).
 */
import { base58Decode } from './base58.ts';
import { isOnCurve, isSmallOrder } from './ed25519.ts';
import { keccak256 } from './keccak.ts';

export type WalletKind = 'evm' | 'solana';

const EVM_ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const SOLANA_ADDRESS = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;
const SOLANA_KEY_BYTES = 32;

/** Returns the kind of an address; `undefined` if it is invalid or its EIP-55 checksum is wrong. */
export function walletKind(text: string): WalletKind | undefined {
  if (EVM_ADDRESS.test(text)) return hasValidChecksum(text) ? 'evm' : undefined;
  if (!SOLANA_ADDRESS.test(text)) return undefined;
  return base58Decode(text, SOLANA_KEY_BYTES)?.length === SOLANA_KEY_BYTES ? 'solana' : undefined;
}

export function walletIdentity(address: string): string {
  return address.startsWith('0x') ? address.toLowerCase() : address;
}

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

/**
 * Returns what is wrong with a configured EVM address, or `undefined`. Does not suggest the right
 * checksum: for a mistyped address it would confirm someone else's.
 */
export function evmAddressProblem(text: string): string | undefined {
  if (!EVM_ADDRESS.test(text)) return 'An EVM address is 0x and 40 hex digits';
  if (!hasValidChecksum(text)) {
    return 'The EIP-55 checksum (the capital letters) does not fit the address: a digit is mistyped; copy it from the wallet again';
  }
  return /^0x0{40}$/.test(text)
    ? 'Must not be the zero address, which has no private key'
    : undefined;
}

/** Whether an EVM address has letters of one case only, and so no checksum. */
export function isWithoutChecksum(address: string): boolean {
  return checksumAddress(address) !== address;
}

export function solanaAddressProblem(text: string): string | undefined {
  if (!SOLANA_ADDRESS.test(text)) return 'A Solana address is 32 to 44 base58 characters';
  return walletKind(text) === undefined ? 'A Solana address is base58 of 32 bytes' : undefined;
}

/** Like `solanaAddressProblem`, for an address that must be a wallet. */
export function solanaOwnerProblem(text: string): string | undefined {
  const problem = solanaAddressProblem(text);
  const bytes = base58Decode(text, SOLANA_KEY_BYTES);
  if (problem !== undefined || bytes === undefined) return problem;
  if (isSmallOrder(bytes)) return 'Must be the address of a wallet; this one has no private key';
  if (isOnCurve(bytes)) return undefined;
  return 'Must be the address of a wallet: this one is not on the Ed25519 curve, so it is a token account or belongs to a program';
}

/** Single-case addresses have no checksum and pass; mixed case must match EIP-55. */
function hasValidChecksum(address: string): boolean {
  const digits = address.slice(2);
  if (digits === digits.toLowerCase() || digits === digits.toUpperCase()) return true;
  return checksumAddress(address) === address;
}
