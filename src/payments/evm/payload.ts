/**
 * Reads the inner payload of the scheme `exact`: `{authorization, signature}` of ERC-3009. Rejects the
 * shape of Permit2, which the scheme classes would accept although it is not offered.
 */
import { type Hex, hexToBytes } from 'viem';
import { checksumAddress, walletIdentity, walletKind } from '../../core/addresses.ts';
import { assert } from '../../core/assert.ts';
import type { FaultCode } from '../../core/faults.ts';
import { sha256Hex } from '../../core/ids.ts';
import type { Envelope } from '../envelope.ts';
import { asObject } from '../header-codec.ts';
import {
  type Erc3009,
  type SignedPayment,
  invalidPayment,
  paymentId,
  paymentError,
} from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { recoverAddress } from '../sign-in/signatures.ts';

const HEX32 = /^0x[0-9a-fA-F]{64}$/;
/** 65 bytes, or more for contract wallets. */
export const SIGNATURE = /^0x(?:[0-9a-fA-F]{2}){65,4096}$/;
const UINT = /^\d{1,78}$/;

type Fields = Readonly<Record<string, unknown>>;

export function readErc3009(
  { network, inner, identifier }: Envelope,
  offer: RailOffer,
): SignedPayment {
  if ('permit2Authorization' in inner) {
    throw invalidPayment(
      'Permit2 payments of the scheme exact are not offered, sign an ERC-3009 authorization',
    );
  }
  const fields = asObject(inner['authorization']);
  const signature = inner['signature'];
  if (fields === undefined || typeof signature !== 'string' || !SIGNATURE.test(signature)) {
    throw invalidPayment('The payload must have an authorization and its signature as hex');
  }
  const value = readUint(fields, 'value', 'INVALID_AMOUNT');
  const from = readAddress(fields, 'from', 'INVALID_PAYMENT_PAYER');
  const to = readAddress(fields, 'to', 'INVALID_PAYMENT_RECIPIENT');
  const nonce = fields['nonce'];
  if (typeof nonce !== 'string' || !HEX32.test(nonce)) {
    throw invalidPayment('The nonce of the authorization must be 32 bytes as hex');
  }
  const validAfter = readUint(fields, 'validAfter', 'INVALID_PAYMENT');
  const validBefore = readUint(fields, 'validBefore', 'INVALID_PAYMENT');
  const wallet = walletIdentity(from);
  const key = `${network}/erc3009:${wallet}:${nonce.toLowerCase()}`;
  const authorization = {
    from,
    to,
    value: value.toString(),
    validAfter: validAfter.toString(),
    validBefore: validBefore.toString(),
    nonce: nonce as `0x${string}`, // matched HEX32
  };
  return {
    key,
    id: paymentId(key),
    network,
    wallet,
    amountUnits: value,
    offer,
    authorization: { ...authorization, kind: 'erc3009', value, validAfter, validBefore },
    inner: { authorization, signature },
    // Without the signature, because the same authorization may be signed twice.
    hash: sha256Hex(JSON.stringify({ ...authorization, from: wallet, nonce: nonce.toLowerCase() })),
    identifier,
  };
}

export function readUint(
  fields: Fields,
  name: string,
  code: 'INVALID_AMOUNT' | 'INVALID_PAYMENT',
  of = 'authorization',
): bigint {
  const value = fields[name];
  const text = typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : value;
  if (typeof text !== 'string' || !UINT.test(text)) {
    throw paymentError(code, `The field ${name} of the ${of} must be a whole number as text`);
  }
  const number = BigInt(text);
  if (number >= 1n << 256n) throw paymentError(code, `The field ${name} must fit into 256 bits`);
  return number;
}

/** Returns the address with its EIP-55 checksum. Throws a 400 Fault. */
export function readAddress(fields: Fields, name: string, code: FaultCode): Hex {
  const value = fields[name];
  if (typeof value !== 'string' || walletKind(value) !== 'evm') {
    throw paymentError(code, `The field ${name} of the authorization must be an EVM address`);
  }
  // Libraries of the chain reject an address in upper case.
  return checksumAddress(value) as Hex; // an EVM address
}

export function checkTransfer(
  { from, to }: Pick<Erc3009, 'from' | 'to'>,
  { payTo }: RailOffer,
): void {
  if (to.toLowerCase() !== payTo.toLowerCase()) {
    throw paymentError('INVALID_PAYMENT_RECIPIENT', `The payment must go to ${payTo}`);
  }
  if (from.toLowerCase() === payTo.toLowerCase()) {
    throw paymentError('INVALID_PAYMENT_PAYER', 'The receiver cannot pay itself');
  }
}

export function erc3009Of({ authorization }: SignedPayment): Erc3009 {
  assert(authorization.kind === 'erc3009', 'not an EVM payment');
  return authorization;
}

/** Some wallets end a signature with 0 or 1, but token contracts require 27 or 28 (`v` of ECDSA). */
const CONTRACT_FORM: Readonly<Record<string, string>> = { '00': '1b', '01': '1c' };

/**
 * Returns a signature of `hash` by the key of `wallet` with the last byte that contracts require. Returns
 * other signatures unchanged, because contract wallets have their own formats.
 */
export function contractForm(signature: Hex, hash: Hex, wallet: string): Hex {
  const formed = keyForm(signature);
  if (formed === signature) return signature;
  const isOfKey = recoverAddress(hexToBytes(hash), hexToBytes(signature)) === wallet;
  return isOfKey ? formed : signature;
}

/** As `contractForm`, without the check of the signer. */
export function keyForm(signature: string): Hex {
  const last = CONTRACT_FORM[signature.slice(-2)] ?? signature.slice(-2);
  return `${signature.slice(0, -2)}${last}` as Hex; // hex by the callers' checks
}
