/**
 * The three layouts of a payment header, brought to one envelope:
 * A. version 2 with `accepted`; B. version 1 (`scheme` and `network` beside `payload`);
 * C. the layout of version 1 stamped 2. The inner payload is the same in all.
 *
 * Shapes are checked here and in the rails before any x402 class sees them, because those throw on
 * malformed input; whatever a caller sends ends in an envelope or in a 400 Fault.
 */
import type { Fault } from '../core/faults.ts';
import { readSalt } from './extensions/bound-nonce.ts';
import { asObject, decodeHeader } from './header-codec.ts';
import { toCaip2 } from './networks.ts';
import { refusePayment } from './payment.ts';
import { GAS_SPONSORING } from './requirements.ts';

export interface Envelope {
  readonly network: string;
  /** What the client says it chose; only compared, never trusted. */
  readonly accepted: Readonly<Record<string, unknown>>;
  /** The payload, and as `eip2612` what the extension says of the approval of a Permit2 payment. */
  readonly inner: Readonly<Record<string, unknown>>;
  readonly identifier: string | undefined;
  /** Of a nonce that is bound to this server: the extension `bound-nonce`. */
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
    throw refusePayment(
      'UNSUPPORTED_SCHEME',
      'The payment scheme must be exact, or upto where that is offered',
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
  return refusePayment('INVALID_PAYMENT_FORMAT', message);
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

/** Compares what the client says it accepted with what is offered. Throws a 400 Fault. */
export function checkAccepted(
  accepted: Readonly<Record<string, unknown>>,
  offer: { readonly asset: string; readonly payTo: string },
  offeredScheme: 'exact' | 'upto',
): void {
  const { scheme, asset, payTo } = accepted;
  if (scheme !== offeredScheme) {
    throw refusePayment('UNSUPPORTED_SCHEME', `The payment scheme must be ${offeredScheme}`);
  }
  if (asset !== undefined && !isSameAddress(asset, offer.asset)) {
    throw refusePayment('UNSUPPORTED_TOKEN', `The payment token must be ${offer.asset}`);
  }
  if (payTo !== undefined && !isSameAddress(payTo, offer.payTo)) {
    throw refusePayment('INVALID_PAYMENT_RECIPIENT', `The payment must go to ${offer.payTo}`);
  }
}

function isSameAddress(value: unknown, address: string): boolean {
  if (typeof value !== 'string') return false;
  return address.startsWith('0x')
    ? value.toLowerCase() === address.toLowerCase()
    : value === address;
}

/** Throws the Fault of an amount outside the limits; all in base units, inclusive. */
export function checkAmount(units: bigint, limits: AmountLimits): void {
  const { minimumUnits, maximumUnits, smaller } = limits;
  if (units <= 0n) throw refusePayment('INVALID_AMOUNT', 'The payment amount must be above zero');
  if (units < minimumUnits && smaller?.isOne(units) !== true) {
    const words = smaller === undefined ? '' : `, or ${smaller.words}`;
    throw refusePayment('AMOUNT_TOO_LOW', `Pay at least ${usdOf(minimumUnits)} USD${words}`);
  }
  if (units > maximumUnits) {
    throw refusePayment('AMOUNT_TOO_HIGH', `Pay at most ${usdOf(maximumUnits)} USD`);
  }
}

/** The most that is moved under a ceiling of the scheme `upto`. Throws the Fault of one that is too low. */
export function mostUnder(ceilingUnits: bigint, limits: AmountLimits): bigint {
  const { leastUnits, maximumUnits } = limits;
  if (leastUnits === undefined) {
    throw refusePayment(
      'UNSUPPORTED_SCHEME',
      'A top-up is paid with the scheme exact; upto pays for requests',
    );
  }
  if (ceilingUnits < leastUnits) {
    throw refusePayment('AMOUNT_TOO_LOW', `Sign at least ${usdOf(leastUnits)} USD`);
  }
  return ceilingUnits < maximumUnits ? ceilingUnits : maximumUnits;
}

export function usdOf(units: bigint): number {
  return Number(units) / 1e6;
}

export interface AmountLimits {
  readonly minimumUnits: bigint;
  readonly maximumUnits: bigint;
  /** The least that a payment of the scheme `upto` moves; missing where that pays for nothing. */
  readonly leastUnits?: bigint;
  /** Amounts below the minimum that are offered all the same; missing where there are none. */
  readonly smaller?: { readonly isOne: (units: bigint) => boolean; readonly words: string };
}
