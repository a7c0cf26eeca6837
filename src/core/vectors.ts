/** Float32 vectors of embedding models. */

/** Scales the vector to length 1; a zero vector stays unchanged. */
export function unitVector(values: Float32Array): Float32Array {
  let sum = 0;
  for (const value of values) sum += value * value;
  const length = Math.sqrt(sum);
  return length === 0 ? values : values.map((value) => value / length);
}

/** base64 of the float32 values; little-endian, like every supported platform. */
export function floatsToBase64({ buffer, byteOffset, byteLength }: Float32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}
