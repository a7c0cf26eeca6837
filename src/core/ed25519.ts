/**
 * Ed25519 public-key checks that `node:crypto` lacks: whether a key is a point of the curve, and
 * whether it is a small-order point, for which anyone can forge signatures. Not constant in time,
 * since public keys are not secret.
 */
const P = 2n ** 255n - 19n;
/** -121665/121666 of the curve -x² + y² = 1 + d·x²·y². */
const D = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;

/** Whether 32 bytes encode a point (RFC 8032 §5.1.3); program-derived addresses do not. */
export function isOnCurve(publicKey: Uint8Array): boolean {
  const y = BigInt(`0x${Buffer.from(withoutSign(publicKey).toReversed()).toString('hex')}`);
  if (y >= P) return false;
  const square = (y * y) % P;
  // x² = (y² - 1) / (d·y² + 1) has a root when the product of both is a square (Euler).
  return isSquare(((square + P - 1n) * (D * square + 1n)) % P);
}

function isSquare(value: bigint): boolean {
  let power = 1n;
  let base = value;
  for (let exponent = (P - 1n) / 2n; exponent > 0n; exponent >>= 1n) {
    if ((exponent & 1n) === 1n) power = (power * base) % P;
    base = (base * base) % P;
  }
  return power <= 1n;
}

/** The y coordinates (little endian, sign bit cleared) of all points of order 1, 2, 4 and 8. */
const SMALL_ORDER = new Set([
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0100000000000000000000000000000000000000000000000000000000000000',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
]);

/** Whether anyone can forge signatures for this key. */
export function isSmallOrder(publicKey: Uint8Array): boolean {
  return SMALL_ORDER.has(withoutSign(publicKey).toString('hex'));
}

/** Returns the encoding of y alone: the highest bit is the sign of x. */
function withoutSign(publicKey: Uint8Array): Buffer {
  const masked = Buffer.from(publicKey);
  masked[31] = (masked[31] ?? 0) & 0x7f;
  return masked;
}
