/**
 * The form of a signature that token contracts accept. Some wallets end a signature with 0 or 1 where
 * the contracts require 27 or 28 (`v` of ECDSA).
 */
import { type Hex, hexToBytes } from 'viem';
import { recoverAddress } from '../sign-in/signatures.ts';

/** Hex characters of a signature of 65 bytes. */
const KEY_SIGNATURE_CHARS = 132;
const CONTRACT_FORM: Readonly<Record<string, string>> = { '00': '1b', '01': '1c' };

/**
 * A signature of `hash` by the key of `wallet` with its last byte as contracts require it. Returns every
 * other signature unchanged, because a contract wallet has a format of its own.
 */
export function contractForm(signature: Hex, hash: Hex, wallet: string): Hex {
  const last = CONTRACT_FORM[signature.slice(-2)];
  if (signature.length !== KEY_SIGNATURE_CHARS || last === undefined) return signature;
  if (recoverAddress(hexToBytes(hash), hexToBytes(signature)) !== wallet) return signature;
  return keyForm(signature);
}

/** The same for a signature that only a key can have made. */
export function keyForm(signature: string): Hex {
  const last = CONTRACT_FORM[signature.slice(-2)] ?? signature.slice(-2);
  return `${signature.slice(0, -2)}${last}` as Hex; // hex by the callers' checks
}
