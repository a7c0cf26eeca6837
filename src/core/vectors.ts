/** Vectors of float32, as embedding models make them. */

/** The vector at length 1; one of zeros as it is. */
export function unitVector(values: Float32Array): Float32Array {
  let sum = 0;
  for (const value of values) sum += value * value;
  const length = Math.sqrt(sum);
  return length === 0 ? values : values.map((value) => value / length);
}

/** base64 of the float32 of the values, little-endian as every machine is that this runs on. */
export function floatsToBase64({ buffer, byteOffset, byteLength }: Float32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}
