/**
 * Reads the inner payload of an EVM payment: `{authorization, signature}` of ERC-3009. The Permit2
 * shape is refused, because the scheme classes would route on the shape, offered or not.
 */
import { sha256Hex } from '../../core/ids.ts';
import { walletIdentity, walletKind } from '../../core/addresses.ts';
import { asObject } from '../header-codec.ts';
import { type AmountLimits, type Envelope, checkAccepted, checkAmount } from '../envelope.ts';
import { type Erc3009, type SignedPayment, paymentId, refusePayment } from '../payment.ts';
import type { RailOffer } from '../requirements.ts';

const HEX32 = /^0x[0-9a-fA-F]{64}$/;
/** 65 bytes, or longer for contract wallets; the header's size bounds it further. */
const SIGNATURE = /^0x(?:[0-9a-fA-F]{2}){65,4096}$/;
const UINT = /^\d{1,78}$/;

type Fields = Readonly<Record<string, unknown>>;

/**
 * Throws a 400 Fault for anything but a well-formed payment. With limits it is held against the
 * offer and them; without, its shape alone is read.
 */
export function readErc3009(
  envelope: Envelope,
  offer: RailOffer,
  limits: AmountLimits | undefined,
): SignedPayment {
  if ('permit2Authorization' in envelope.inner) {
    throw refusePayment(
      'INVALID_PAYMENT',
      'Permit2 payments are not offered, sign an ERC-3009 authorization',
    );
  }
  const fields = asObject(envelope.inner['authorization']);
  const signature = envelope.inner['signature'];
  if (fields === undefined || typeof signature !== 'string' || !SIGNATURE.test(signature)) {
    throw refusePayment(
      'INVALID_PAYMENT',
      'The payload needs an authorization and its signature as hex',
    );
  }
  if (limits !== undefined) checkAccepted(envelope.accepted, offer);
  const value = readUint(fields, 'value', 'INVALID_AMOUNT');
  const from = readAddress(fields, 'from', 'INVALID_PAYMENT_PAYER');
  const to = readAddress(fields, 'to', 'INVALID_PAYMENT_RECIPIENT');
  if (limits !== undefined) checkTransfer({ from, to, value }, offer, limits);
  const nonce = fields['nonce'];
  if (typeof nonce !== 'string' || !HEX32.test(nonce)) {
    throw refusePayment(
      'INVALID_PAYMENT',
      'The nonce of the authorization must be 32 bytes as hex',
    );
  }
  const validAfter = readUint(fields, 'validAfter', 'INVALID_PAYMENT');
  const validBefore = readUint(fields, 'validBefore', 'INVALID_PAYMENT');
  const wallet = walletIdentity(from);
  const key = `${envelope.network}/erc3009:${wallet}:${nonce.toLowerCase()}`;
  const authorization = {
    from,
    to,
    value: value.toString(),
    validAfter: validAfter.toString(),
    validBefore: validBefore.toString(),
    nonce,
  };
  return {
    key,
    id: paymentId(key),
    network: envelope.network,
    wallet,
    amountUnits: value,
    offer,
    authorization: {
      kind: 'erc3009',
      from: from as `0x${string}`, // a valid EVM address
      to: to as `0x${string}`, // a valid EVM address
      value,
      validAfter,
      validBefore,
      nonce: nonce as `0x${string}`, // matched HEX32
    },
    inner: { authorization, signature },
    // The signature is left out: the same authorization may be signed twice.
    hash: sha256Hex(JSON.stringify({ ...authorization, from: wallet, nonce: nonce.toLowerCase() })),
    identifier: envelope.identifier,
  };
}

function checkTransfer(
  { from, to, value }: { readonly from: string; readonly to: string; readonly value: bigint },
  offer: RailOffer,
  limits: AmountLimits,
): void {
  if (to.toLowerCase() !== offer.payTo.toLowerCase()) {
    throw refusePayment('INVALID_PAYMENT_RECIPIENT', `The payment must go to ${offer.payTo}`);
  }
  if (from.toLowerCase() === offer.payTo.toLowerCase()) {
    throw refusePayment('INVALID_PAYMENT_PAYER', 'The receiver cannot pay itself');
  }
  checkAmount(value, limits);
}

function readUint(
  fields: Fields,
  name: string,
  code: 'INVALID_AMOUNT' | 'INVALID_PAYMENT',
): bigint {
  const value = fields[name];
  const text = typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : value;
  if (typeof text !== 'string' || !UINT.test(text)) {
    throw refusePayment(
      code,
      `The field ${name} of the authorization must be a whole number as text`,
    );
  }
  const number = BigInt(text);
  if (number >= 1n << 256n) throw refusePayment(code, `The field ${name} must fit into 256 bits`);
  return number;
}

function readAddress(
  fields: Fields,
  name: string,
  code: 'INVALID_PAYMENT_PAYER' | 'INVALID_PAYMENT_RECIPIENT',
): string {
  const value = fields[name];
  if (typeof value !== 'string' || walletKind(value) !== 'evm') {
    throw refusePayment(code, `The field ${name} of the authorization must be an EVM address`);
  }
  return value;
}

/** The authorization of a payment that `readErc3009` has read. */
export function erc3009Of(payment: SignedPayment): Erc3009 {
  if (payment.authorization.kind !== 'erc3009') throw new Error('not an EVM payment');
  return payment.authorization;
}
