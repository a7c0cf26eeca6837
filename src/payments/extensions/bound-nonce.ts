/**
 * The extension `bound-nonce` of a 402, which binds a signed payment to this server.
 *
 * A payment on Base contains a receiver and an amount, but not the shop. A client can use the hash of the
 * origin, the resource and a random salt as the nonce, and send the salt with the payment. The server
 * rejects a payment whose salt does not match its nonce; with the salt the payer can prove later what the
 * payment was for. Random nonces are accepted as well.
 */
import { keccak256 } from '../../core/keccak.ts';
import { asObject } from '../header-codec.ts';
import { type SignedPayment, invalidPayment, paymentError } from '../payment.ts';
import { BOUND_NONCE } from '../required-header.ts';

/** First line of the hashed text, so that the hash has no other meaning. */
const PURPOSE = 'x402 bound nonce v1';
const SALT = /^0x[0-9a-f]{64}$/;

/** The salt of a payment; `undefined` if its nonce is not bound. Throws a 400 Fault. */
export function readSalt(extensions: ReturnType<typeof asObject>): string | undefined {
  const salt = asObject(asObject(extensions?.[BOUND_NONCE])?.['info'])?.['salt'];
  if (salt === undefined || salt === null) return undefined;
  if (typeof salt === 'string' && SALT.test(salt)) return salt;
  throw paymentError(
    'INVALID_PAYMENT_FORMAT',
    `The salt of ${BOUND_NONCE} must be 0x and 64 hex digits in lower case`,
  );
}

/** The nonce for a resource, a URL without its query: 0x and 64 hex digits. */
export function boundNonce(origin: string, resource: string, salt: string): `0x${string}` {
  const text = [PURPOSE, origin, resource, salt].join('\n');
  return `0x${keccak256(Buffer.from(text)).toString('hex')}`;
}

export function checkBoundNonce(
  { authorization }: SignedPayment,
  salt: string | undefined,
  resource: string,
): void {
  if (salt === undefined) return;
  if (authorization.kind === 'solana') {
    throw invalidPayment(`The extension ${BOUND_NONCE} is for payments on Base`);
  }
  const wanted = boundNonce(new URL(resource).origin, resource, salt);
  if (BigInt(authorization.nonce) === BigInt(wanted)) return;
  throw invalidPayment(
    `The nonce of the payment must be the hash of the origin, the resource ${resource} and the salt`,
  );
}
