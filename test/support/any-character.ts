/**
 * Every character of Unicode, for texts of fast-check: `fc.string({ unit: anyCharacter })`. The
 * unit `binary` of the library is equal, but builds a table of a million characters, which costs
 * each process a second and 100 MB.
 */
import fc from 'fast-check';

const SURROGATES = 0xd800;
const SURROGATES_COUNT = 0x800;

export const anyCharacter: fc.Arbitrary<string> = fc
  .nat(0x10ffff - SURROGATES_COUNT)
  .map(
    (index) => String.fromCodePoint(index < SURROGATES ? index : index + SURROGATES_COUNT),
    indexOf,
  );

/**
 * Internals with which the library shrinks values and generates names such as `__proto__`. Throws
 * for other values.
 */
function indexOf(value: unknown): number {
  const code = typeof value === 'string' ? (value.codePointAt(0) ?? -1) : -1;
  const isOne = code >= 0 && value === String.fromCodePoint(code);
  if (!isOne || (code >= SURROGATES && code < SURROGATES + SURROGATES_COUNT)) {
    throw new Error('One character of Unicode is asked for');
  }
  return code < SURROGATES ? code : code - SURROGATES_COUNT;
}
