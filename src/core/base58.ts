/**
 * Base58 (the Bitcoin alphabet) for keys and signatures of at most 64 bytes. Decoding garbage
 * gives `undefined`, never an exception, and its work is bounded by `maxBytes`.
 */
const ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const VALUE_OF = new Map(Array.from(ALPHABET, (char, value) => [char.charCodeAt(0), value]));

/** The bytes of a base58 text, or `undefined` when it is not base58 or longer than `maxBytes`. */
export function base58Decode(text: string, maxBytes: number): Buffer | undefined {
  // One byte takes at least 1.36 characters, so a longer text cannot fit.
  if (text.length > Math.ceil(maxBytes * 1.37) + 1) return undefined;
  const bytes = new Uint8Array(maxBytes);
  let used = 0;
  for (let index = 0; index < text.length; index += 1) {
    let carry = VALUE_OF.get(text.charCodeAt(index));
    if (carry === undefined) return undefined;
    for (let at = 0; at < used || carry > 0; at += 1) {
      if (at === maxBytes) return undefined;
      carry += (bytes[at] ?? 0) * 58;
      bytes[at] = carry & 0xff;
      carry >>= 8;
      if (at === used) used += 1;
    }
  }
  let zeros = 0;
  while (zeros < text.length && text.charAt(zeros) === '1') zeros += 1;
  if (zeros + used > maxBytes) return undefined;
  const result = Buffer.alloc(zeros + used);
  for (let at = 0; at < used; at += 1) result[zeros + used - 1 - at] = bytes[at] ?? 0;
  return result;
}

/** The base58 text of bytes. */
export function base58Encode(bytes: Uint8Array): string {
  const digits: number[] = [];
  for (const byte of bytes) {
    let carry = byte;
    for (let at = 0; at < digits.length || carry > 0; at += 1) {
      carry += (digits[at] ?? 0) * 256;
      digits[at] = carry % 58;
      carry = Math.floor(carry / 58);
    }
  }
  let text = '';
  for (const byte of bytes) {
    if (byte !== 0) break;
    text += '1';
  }
  for (const digit of digits.toReversed()) text += ALPHABET.charAt(digit);
  return text;
}
