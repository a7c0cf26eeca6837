/** Base58 (Bitcoin alphabet) for keys and signatures of at most 64 bytes. */
const ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

/** Returns the decoded bytes; `undefined` if the text is not base58 or longer than `maxBytes`. */
export function base58Decode(text: string, maxBytes: number): Buffer | undefined {
  // One byte takes at least 1.36 characters, so a longer text cannot fit.
  if (text.length > Math.ceil(maxBytes * 1.37) + 1) return undefined;
  let value = 0n;
  for (const character of text) {
    const digit = ALPHABET.indexOf(character);
    if (digit < 0) return undefined;
    value = value * 58n + BigInt(digit);
  }
  const hex = value === 0n ? '' : value.toString(16);
  const zeros = Buffer.alloc(/^1*/.exec(text)?.[0].length ?? 0);
  const bytes = Buffer.concat([zeros, Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex')]);
  return bytes.length > maxBytes ? undefined : bytes;
}

export function base58Encode(bytes: Uint8Array): string {
  let text = '';
  let value = BigInt(`0x0${Buffer.from(bytes).toString('hex')}`);
  for (; value > 0n; value /= 58n) text = ALPHABET.charAt(Number(value % 58n)) + text;
  const zeros = bytes.findIndex((byte) => byte !== 0);
  return '1'.repeat(zeros < 0 ? bytes.length : zeros) + text;
}
