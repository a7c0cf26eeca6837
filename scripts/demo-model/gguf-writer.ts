/**
 * Writes a GGUF version 3 file: typed metadata, then tensors aligned to 32 bytes.
 * Owns the number formats (F32, Q8_0); the same input gives the same bytes on every machine.
 * It does not know what the tensors mean.
 */

export type MetadataValue =
  | { readonly kind: 'text'; readonly value: string }
  | { readonly kind: 'uint32'; readonly value: number }
  | { readonly kind: 'float32'; readonly value: number }
  | { readonly kind: 'flag'; readonly value: boolean }
  | { readonly kind: 'texts'; readonly value: readonly string[] }
  | { readonly kind: 'floats'; readonly value: readonly number[] }
  | { readonly kind: 'integers'; readonly value: readonly number[] };

export interface Tensor {
  readonly name: string;
  /** Length of one row: the input width of a matrix, or the length of a vector. */
  readonly columns: number;
  /** Absent for a vector. */
  readonly rows?: number;
  /** Row after row. */
  readonly values: Float32Array;
  readonly format: 'F32' | 'Q8_0';
}

const ALIGNMENT_BYTES = 32;
const BLOCK_LENGTH = 32;
const TENSOR_TYPES = { F32: 0, Q8_0: 8 } as const;
const VALUE_TYPES = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 } as const;

/** The whole file as bytes; a Q8_0 row must be a multiple of 32 long. */
export function writeGguf(
  metadata: ReadonlyMap<string, MetadataValue>,
  tensors: readonly Tensor[],
): Buffer {
  const data = tensors.map(encodeTensor);
  const head = [
    Buffer.from('GGUF', 'ascii'),
    uint32(3),
    uint64(tensors.length),
    uint64(metadata.size),
  ];
  for (const [key, value] of metadata) head.push(text(key), ...encodeValue(value));
  let offset = 0;
  for (const [index, tensor] of tensors.entries()) {
    head.push(text(tensor.name), uint32(tensor.rows === undefined ? 1 : 2));
    head.push(uint64(tensor.columns));
    if (tensor.rows !== undefined) head.push(uint64(tensor.rows));
    head.push(uint32(TENSOR_TYPES[tensor.format]), uint64(offset));
    offset += padded(data[index]?.length ?? 0);
  }
  return Buffer.concat([pad(Buffer.concat(head)), ...data.map(pad)]);
}

function encodeValue(entry: MetadataValue): Buffer[] {
  switch (entry.kind) {
    case 'text':
      return [uint32(VALUE_TYPES.string), text(entry.value)];
    case 'uint32':
      return [uint32(VALUE_TYPES.uint32), uint32(entry.value)];
    case 'float32':
      return [uint32(VALUE_TYPES.float32), float32(entry.value)];
    case 'flag':
      return [uint32(VALUE_TYPES.bool), Buffer.from([entry.value ? 1 : 0])];
    case 'texts':
      return [...arrayHead(VALUE_TYPES.string, entry.value.length), ...entry.value.map(text)];
    case 'floats':
      return [...arrayHead(VALUE_TYPES.float32, entry.value.length), ...entry.value.map(float32)];
    case 'integers':
      return [...arrayHead(VALUE_TYPES.int32, entry.value.length), ...entry.value.map(uint32)];
  }
}

function arrayHead(type: number, length: number): Buffer[] {
  return [uint32(VALUE_TYPES.array), uint32(type), uint64(length)];
}

function encodeTensor(tensor: Tensor): Buffer {
  if (tensor.format === 'Q8_0') return encodeBlocks(tensor.values);
  const bytes = Buffer.alloc(tensor.values.length * 4);
  for (const [index, value] of tensor.values.entries()) bytes.writeFloatLE(value, index * 4);
  return bytes;
}

/** Q8_0: per 32 values one half-precision scale and 32 signed bytes. */
function encodeBlocks(values: Float32Array): Buffer {
  const bytes = Buffer.alloc((values.length / BLOCK_LENGTH) * (BLOCK_LENGTH + 2));
  for (let block = 0; block < values.length / BLOCK_LENGTH; block += 1) {
    const part = values.subarray(block * BLOCK_LENGTH, (block + 1) * BLOCK_LENGTH);
    let largest = 0;
    for (const value of part) largest = Math.max(largest, Math.abs(value));
    const scale = largest / 127;
    const at = block * (BLOCK_LENGTH + 2);
    bytes.writeUInt16LE(halfBits(scale), at);
    for (const [index, value] of part.entries()) {
      bytes.writeInt8(scale === 0 ? 0 : Math.round(value / scale), at + 2 + index);
    }
  }
  return bytes;
}

/** IEEE 754 half precision of a value between 0 and 65504, rounded to nearest. */
function halfBits(value: number): number {
  if (value === 0) return 0;
  const exponent = Math.max(Math.floor(Math.log2(value)), -14);
  const fraction = Math.round((value / 2 ** exponent) * 1024);
  return fraction < 1024 ? fraction : ((exponent + 15) << 10) + (fraction - 1024);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function uint64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function float32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'utf8');
  return Buffer.concat([uint64(bytes.length), bytes]);
}

function padded(length: number): number {
  return Math.ceil(length / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
}

function pad(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc(padded(bytes.length) - bytes.length)]);
}
