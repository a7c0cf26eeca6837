/**
 * Reads the three layouts of a payment header, whose inner payload is the same: A. version 2 with
 * `accepted`; B. version 1 (`scheme` and `network` beside `payload`); C. the layout of B with version 2.
 *
 * Shapes are checked here and in the rails, because the x402 classes throw on malformed input.
 */
import type { Fault } from '../core/faults.ts';
import { readSalt } from './extensions/bound-nonce.ts';
import { asObject, decodeHeader } from './header-codec.ts';
import { toCaip2 } from './networks.ts';
import { paymentError } from './payment.ts';
import { GAS_SPONSORING } from './requirements.ts';

export interface Envelope {
  readonly network: string;
  /** The option that the client reports as chosen; never trusted. */
  readonly accepted: Readonly<Record<string, unknown>>;
  /** The payload; `eip2612` is the signed approval of a Permit2 payment. */
  readonly inner: Readonly<Record<string, unknown>>;
  readonly identifier: string | undefined;
  readonly salt?: string | undefined;
}

/** Decodes `PAYMENT-SIGNATURE`, `X-402-Payment` or `X-PAYMENT`. Throws a 400 Fault. */
export function readEnvelope(header: string): Envelope {
  const value = decodeHeader(header);
  if (value === undefined) {
    throw malformed('The payment header must be base64 of a JSON object');
  }
  const version = value['x402Version'];
  if (version !== 1 && version !== 2) {
    throw malformed('The x402Version of the payment must be 1 or 2');
  }
  const accepted = value['accepted'] === undefined ? value : asObject(value['accepted']);
  if (accepted === undefined) throw malformed('The field accepted must be one entry of accepts');
  const inner = asObject(value['payload']);
  const { scheme, network } = accepted;
  if (inner === undefined || typeof network !== 'string' || typeof scheme !== 'string') {
    throw malformed('The payment needs a scheme, a network and a payload');
  }
  if (scheme !== 'exact' && scheme !== 'upto') {
    throw paymentError(
      'UNSUPPORTED_SCHEME',
      'The payment scheme must be exact, or upto if it is offered',
    );
  }
  const extensions = asObject(value['extensions']);
  return {
    network: toCaip2(network),
    accepted,
    inner: { ...inner, eip2612: asObject(extensions?.[GAS_SPONSORING])?.['info'] },
    identifier: readIdentifier(extensions),
    salt: readSalt(extensions),
  };
}

function malformed(message: string): Fault {
  return paymentError('INVALID_PAYMENT_FORMAT', message);
}

const IDENTIFIER = /^[a-zA-Z0-9_-]{16,128}$/;

function readIdentifier(extensions: ReturnType<typeof asObject>): string | undefined {
  const extension = asObject(extensions?.['payment-identifier']);
  const id = asObject(extension?.['info'])?.['id'];
  if (id === undefined || id === null) return undefined;
  if (typeof id !== 'string' || !IDENTIFIER.test(id)) {
    throw malformed(
      'The payment identifier must have 16 to 128 letters, digits, dashes or underscores',
    );
  }
  return id;
}

/** Compares the option that the client reports with the offer. Throws a 400 Fault. */
export function checkAccepted(
  accepted: Readonly<Record<string, unknown>>,
  offer: { readonly asset: string; readonly payTo: string },
  offeredScheme: 'exact' | 'upto',
): void {
  const { scheme, asset, payTo } = accepted;
  if (scheme !== offeredScheme) {
    throw paymentError('UNSUPPORTED_SCHEME', `The payment scheme must be ${offeredScheme}`);
  }
  if (asset !== undefined && !isSameAddress(asset, offer.asset)) {
    throw paymentError('UNSUPPORTED_TOKEN', `The payment token must be ${offer.asset}`);
  }
  if (payTo !== undefined && !isSameAddress(payTo, offer.payTo)) {
    throw paymentError('INVALID_PAYMENT_RECIPIENT', `The payment must go to ${offer.payTo}`);
  }
}

function isSameAddress(value: unknown, address: string): boolean {
  if (typeof value !== 'string') return false;
  return address.startsWith('0x')
    ? value.toLowerCase() === address.toLowerCase()
    : value === address;
}

/** Throws a 400 Fault for an amount outside the limits, which are inclusive and in base units. */
export function checkAmount(units: bigint, limits: AmountLimits): void {
  const { minimumUnits, maximumUnits, firstUnits } = limits;
  if (units <= 0n) throw paymentError('INVALID_AMOUNT', 'The payment amount must be above zero');
  if (units < minimumUnits && units !== firstUnits) {
    const words = firstUnits === undefined ? '' : `, or exactly ${usdOf(firstUnits)} USD`;
    throw paymentError('AMOUNT_TOO_LOW', `Pay at least ${usdOf(minimumUnits)} USD${words}`);
  }
  if (units > maximumUnits) {
    throw paymentError('AMOUNT_TOO_HIGH', `Pay at most ${usdOf(maximumUnits)} USD`);
  }
}

/** The largest amount to move under a ceiling of the scheme `upto`. Throws a 400 Fault if it is too low. */
export function mostUnder(ceilingUnits: bigint, limits: AmountLimits): bigint {
  const { leastUnits, maximumUnits } = limits;
  if (leastUnits === undefined) {
    throw paymentError(
      'UNSUPPORTED_SCHEME',
      'A top-up must use the scheme exact; upto is for requests',
    );
  }
  if (ceilingUnits < leastUnits) {
    throw paymentError('AMOUNT_TOO_LOW', `Sign at least ${usdOf(leastUnits)} USD`);
  }
  return ceilingUnits < maximumUnits ? ceilingUnits : maximumUnits;
}

export function usdOf(units: bigint): number {
  return Number(units) / 1e6;
}

export interface AmountLimits {
  readonly minimumUnits: bigint;
  readonly maximumUnits: bigint;
  /** Smallest payment of the scheme `upto`; missing if `upto` is not accepted. */
  readonly leastUnits?: bigint;
  /** An offered amount below the minimum. */
  readonly firstUnits?: bigint;
}
