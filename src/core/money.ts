/**
 * Money as integers of nano-USD (1e-9 USD), the only unit inside Farebox.
 *
 * Invariant: no float takes part in a sum. Prices are decimal strings or numbers in the
 * configuration and are converted once to exact integers (`usdToNano`, `perMillionToFemto`).
 * `divideHalfUp` is the only rounding function and is applied once per charge, at settle.
 */
import { assert } from './assert.ts';

export type Nano = bigint & { readonly __unit: 'nano-usd' };

export const ZERO = 0n as Nano; // brands a literal

export function nano(value: bigint | number): Nano {
  return BigInt(value) as Nano; // the one place where a number becomes money
}

/** Divides non-negative integers, rounding half up: the only rounding of money. */
export function divideHalfUp(numerator: bigint, denominator: bigint): bigint {
  assert(
    numerator >= 0n && denominator > 0n,
    'money division needs numerator >= 0, denominator > 0',
  );
  return (2n * numerator + denominator) / (2n * denominator);
}

/**
 * Returns the exact nano-USD of a decimal amount of USD, such as `0.03` or `"6.25e-7"`. Throws a
 * RangeError if it is negative, not finite or has more than nine decimals.
 */
export function usdToNano(usd: number | string): Nano {
  return nano(scaledDecimal(usd, 9));
}

/** Whether an amount has at most nine decimals; `true` for negative ones. */
export function isExactUsd(usd: number): boolean {
  try {
    usdToNano(Math.abs(usd));
    return true;
  } catch {
    return false;
  }
}

/** Error text for an amount with more than nine decimals. */
export const TOO_FINE = 'Must have at most 9 decimals';

/**
 * Returns the exact price of one token in femto-USD (1e-15 USD) from USD per 1,000,000 tokens. For
 * example, 0.0125 USD per million is 12,500,000 femto-USD.
 */
export function perMillionToFemto(usdPerMillion: number | string): bigint {
  return scaledDecimal(usdPerMillion, 9);
}

export const FEMTO_PER_NANO = 1_000_000n;

/** Rounds a sum of femto-USD to nano-USD, half up. Used once per charge. */
export function femtoToNano(femto: bigint): Nano {
  return nano(divideHalfUp(femto, FEMTO_PER_NANO));
}

/** Rounds a bound in femto-USD up to nano-USD. Used for holds, never for settles. */
export function femtoToNanoBound(femto: bigint): Nano {
  assert(femto >= 0n, 'a bound is not negative');
  return nano((femto + FEMTO_PER_NANO - 1n) / FEMTO_PER_NANO);
}

const UNITS = Array.from({ length: 10 }, (_, decimals) => 10n ** BigInt(9 - decimals));

type Decimals = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9;

/** Returns decimal text with exactly `decimals` digits, rounded half up. */
export function formatUsd(amount: bigint, decimals: Decimals = 9): string {
  const negative = amount < 0n;
  const unit = UNITS[decimals] ?? 1n;
  const magnitude = negative ? -amount : amount;
  const rounded = unit === 1n ? magnitude : divideHalfUp(magnitude, unit);
  const digits = rounded.toString().padStart(decimals + 1, '0');
  const whole = digits.slice(0, digits.length - decimals);
  const text = decimals === 0 ? whole : `${whole}.${digits.slice(-decimals)}`;
  return negative && rounded > 0n ? `-${text}` : text;
}

/** Returns exact decimal text with 4 to 9 decimals, such as `1.2300`. */
export function decimalUsd(amount: bigint): string {
  return formatUsd(amount).replace(/0{1,5}$/, '');
}

/** Returns a JSON number of USD, exact up to 9,007,199 USD; `formatUsd` is exact beyond that. */
export function toUsdNumber(amount: bigint): number {
  return Number(amount) / 1e9;
}

export function smaller<T extends bigint>(a: T, b: T): T {
  return a < b ? a : b;
}

export function larger<T extends bigint>(a: T, b: T): T {
  return a > b ? a : b;
}

export function addNano(a: Nano, b: Nano): Nano {
  return (a + b) as Nano; // both are nano-USD
}

const DECIMAL = /^(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?$/;

/** Parses a non-negative decimal as `digits` × 10^`power`; `undefined` for other text. */
export function parseDecimal(
  text: string,
): { readonly digits: bigint; readonly power: number } | undefined {
  const match = DECIMAL.exec(text.trim());
  if (match === null) return undefined;
  const [, whole = '', fraction = '', exponent = '0'] = match;
  return { digits: BigInt(whole + fraction), power: Number(exponent) - fraction.length };
}

function scaledDecimal(value: number | string, scale: number): bigint {
  const parsed = parseDecimal(String(value));
  if (parsed === undefined) throw new RangeError(`"${value}" is not a non-negative decimal amount`);
  const shift = scale + parsed.power;
  if (shift >= 0) return parsed.digits * 10n ** BigInt(shift);
  const divisor = 10n ** BigInt(-shift);
  if (parsed.digits % divisor !== 0n) {
    throw new RangeError(`"${value}" is finer than 10^-${scale}, the smallest step`);
  }
  return parsed.digits / divisor;
}
