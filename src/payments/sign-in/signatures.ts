/**
 * Verifies signatures of wallets. EVM: secp256k1 in native code, and a call of the contract for contract
 * wallets. Solana: Ed25519 of `node:crypto`, which accepts forgeries under small-order keys, so these keys
 * are rejected first. A malformed signature is `false`, never an exception.
 */
import { createPublicKey, verify } from 'node:crypto';
import { promisify } from 'node:util';
import secp256k1 from 'secp256k1';
import { base58Decode } from '../../core/base58.ts';
import { isSmallOrder } from '../../core/ed25519.ts';
import { keccak256 } from '../../core/keccak.ts';
import { addressOf } from '../evm-key.ts';

/**
 * Calls the contract at an address (EIP-1271, or ERC-6492 before it is deployed). Rejects if the chain does
 * not respond, and with a Fault above the limit of calls.
 */
export type ContractSignatureCheck = (signed: {
  readonly address: `0x${string}`;
  readonly hash: `0x${string}`;
  readonly signature: `0x${string}`;
  /** IP address of the caller, for the limit of calls. */
  readonly clientAddress: string;
}) => Promise<boolean>;

export interface SignedText {
  readonly wallet: string;
  readonly text: string;
  readonly signature: string;
  readonly clientAddress: string;
}

const HEX_SIGNATURE = /^0x(?:[0-9a-fA-F]{2})+$/;
const EOA_SIGNATURE_BYTES = 65;
const ED25519_SIGNATURE_BYTES = 64;
/** With a callback the check runs on the thread pool, which saves 0.1 ms of the event loop. */
const verifyOffLoop = promisify(verify);

/** EIP-191. */
function personalMessageHash(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8');
  const prefix = `\u0019Ethereum Signed Message:\n${bytes.length}`;
  return keccak256(Buffer.concat([Buffer.from(prefix, 'latin1'), bytes]));
}

/** The lower-case address that signed a digest; `undefined` for an invalid signature. */
export function recoverAddress(digest: Uint8Array, signature: Uint8Array): string | undefined {
  if (signature.length !== EOA_SIGNATURE_BYTES) return undefined;
  const v = signature[64] ?? 0;
  const recovery = v >= 27 ? v - 27 : v;
  if (recovery > 1) return undefined;
  try {
    const key = secp256k1.ecdsaRecover(signature.subarray(0, 64), recovery, digest, false);
    return addressOf(key);
  } catch {
    // The library throws on values that are no signature.
    return undefined;
  }
}

export async function isSignedByKey(
  wallet: string,
  text: string,
  signature: string,
): Promise<boolean> {
  if (!wallet.startsWith('0x')) {
    const bytes = decodeSolanaSignature(signature);
    return bytes !== undefined && (await isSignedByEd25519(wallet, Buffer.from(text), bytes));
  }
  if (!HEX_SIGNATURE.test(signature)) return false;
  const bytes = Buffer.from(signature.slice(2), 'hex');
  return recoverAddress(personalMessageHash(text), bytes) === wallet;
}

export async function isSignedByContract(
  { wallet, text, signature, clientAddress }: SignedText,
  check: ContractSignatureCheck,
): Promise<boolean> {
  if (!HEX_SIGNATURE.test(signature)) return false;
  return await check({
    address: wallet as `0x${string}`, // the calling function has checked that it begins with 0x
    hash: `0x${personalMessageHash(text).toString('hex')}`,
    signature: signature as `0x${string}`, // matched HEX_SIGNATURE
    clientAddress,
  });
}

export async function isSignedByEd25519(
  wallet: string,
  message: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  const publicKey = base58Decode(wallet, 32);
  if (publicKey?.length !== 32 || isSmallOrder(publicKey)) return false;
  try {
    const key = createPublicKey({
      format: 'jwk',
      key: { kty: 'OKP', crv: 'Ed25519', x: publicKey.toString('base64url') },
    });
    return await verifyOffLoop(null, message, key, signature);
  } catch {
    // The key is not a point of the curve.
    return false;
  }
}

/** Wallets send base58, some libraries base64; the signature has 64 bytes. */
function decodeSolanaSignature(signature: string): Buffer | undefined {
  const base58 = base58Decode(signature, ED25519_SIGNATURE_BYTES);
  if (base58?.length === ED25519_SIGNATURE_BYTES) return base58;
  if (!/^[A-Za-z0-9+/_-]{86}(==)?$/.test(signature)) return undefined;
  const base64 = Buffer.from(signature, 'base64');
  return base64.length === ED25519_SIGNATURE_BYTES ? base64 : undefined;
}
