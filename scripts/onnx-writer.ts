/**
 * Writes ONNX model files: just the protobuf messages that an inference graph needs. The same graph
 * always gives the same bytes, so that a committed model can be checked against its script.
 */

export type OnnxType = 'float' | 'float16' | 'int32' | 'int64';

/** `TensorProto.DataType` numbers. */
const TYPE_NUMBERS = { float: 1, int32: 6, int64: 7, float16: 10 } as const;
/** `AttributeProto.AttributeType` numbers. */
const ATTRIBUTE = { float: 1, int: 2, string: 3, floats: 6, ints: 7 } as const;
const IR_VERSION = 8;

export type OnnxAttribute =
  | { readonly float: number }
  | { readonly int: number }
  | { readonly string: string }
  | { readonly floats: readonly number[] }
  | { readonly ints: readonly number[] };

export interface OnnxNode {
  readonly type: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

export interface OnnxTensor {
  readonly name: string;
  readonly type: OnnxType;
  readonly shape: readonly number[];
  /** Little-endian values. */
  readonly data: Uint8Array;
}

export interface OnnxPort {
  readonly name: string;
  readonly type: OnnxType;
  /** A string is a dimension that is only known at run time. */
  readonly shape: readonly (number | string)[];
}

export interface OnnxGraph {
  readonly name: string;
  readonly opset: number;
  readonly nodes: readonly OnnxNode[];
  readonly constants: readonly OnnxTensor[];
  readonly inputs: readonly OnnxPort[];
  readonly outputs: readonly OnnxPort[];
  readonly metadata?: Readonly<Record<string, string>>;
}

function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  do {
    const low = Number(rest & 0x7fn);
    rest >>= 7n;
    bytes.push(rest === 0n ? low : low | 0x80);
  } while (rest !== 0n);
  return Buffer.from(bytes);
}

function integer(field: number, value: number | bigint): Buffer {
  return Buffer.concat([varint(BigInt(field) << 3n), varint(BigInt(value))]);
}

function bytes(field: number, data: Uint8Array): Buffer {
  return Buffer.concat([varint((BigInt(field) << 3n) | 2n), varint(BigInt(data.length)), data]);
}

function text(field: number, value: string): Buffer {
  return bytes(field, Buffer.from(value));
}

function floatBytes(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeFloatLE(value);
  return buffer;
}

function attribute(name: string, value: OnnxAttribute): Buffer {
  const parts = [text(1, name)];
  if ('float' in value) {
    parts.push(varint((2n << 3n) | 5n), floatBytes(value.float), integer(20, ATTRIBUTE.float));
  } else if ('int' in value) {
    parts.push(integer(3, value.int), integer(20, ATTRIBUTE.int));
  } else if ('string' in value) {
    parts.push(text(4, value.string), integer(20, ATTRIBUTE.string));
  } else if ('floats' in value) {
    parts.push(bytes(7, Buffer.concat(value.floats.map(floatBytes))));
    parts.push(integer(20, ATTRIBUTE.floats));
  } else {
    parts.push(bytes(8, Buffer.concat(value.ints.map((int) => varint(BigInt(int))))));
    parts.push(integer(20, ATTRIBUTE.ints));
  }
  return Buffer.concat(parts);
}

function node(value: OnnxNode, index: number): Buffer {
  return Buffer.concat([
    ...value.inputs.map((name) => text(1, name)),
    ...value.outputs.map((name) => text(2, name)),
    text(3, `${value.type}_${index}`),
    text(4, value.type),
    ...Object.entries(value.attributes ?? {}).map(([name, v]) => bytes(5, attribute(name, v))),
  ]);
}

function tensor(value: OnnxTensor): Buffer {
  return Buffer.concat([
    ...value.shape.map((size) => integer(1, size)),
    integer(2, TYPE_NUMBERS[value.type]),
    text(8, value.name),
    bytes(9, value.data),
  ]);
}

function port(value: OnnxPort): Buffer {
  const dimensions = value.shape.map((size) =>
    bytes(1, typeof size === 'number' ? integer(1, size) : text(2, size)),
  );
  const tensorType = Buffer.concat([
    integer(1, TYPE_NUMBERS[value.type]),
    bytes(2, Buffer.concat(dimensions)),
  ]);
  return Buffer.concat([text(1, value.name), bytes(2, bytes(1, tensorType))]);
}

/** The bytes of an `.onnx` file. */
export function writeOnnx(graph: OnnxGraph): Buffer {
  const body = Buffer.concat([
    ...graph.nodes.map((value, index) => bytes(1, node(value, index))),
    text(2, graph.name),
    ...graph.constants.map((value) => bytes(5, tensor(value))),
    ...graph.inputs.map((value) => bytes(11, port(value))),
    ...graph.outputs.map((value) => bytes(12, port(value))),
  ]);
  return Buffer.concat([
    integer(1, IR_VERSION),
    text(2, 'farebox'),
    bytes(7, body),
    bytes(8, Buffer.concat([text(1, ''), integer(2, graph.opset)])),
    ...Object.entries(graph.metadata ?? {}).map(([key, value]) =>
      bytes(14, Buffer.concat([text(1, key), text(2, value)])),
    ),
  ]);
}

/** A constant of 32-bit floats. */
export function floatTensor(
  name: string,
  shape: readonly number[],
  values: readonly number[],
): OnnxTensor {
  return { name, type: 'float', shape, data: Buffer.concat(values.map(floatBytes)) };
}

/** A constant of 64-bit integers, one dimension. */
export function integerTensor(name: string, values: readonly number[]): OnnxTensor {
  const data = Buffer.alloc(values.length * 8);
  values.forEach((value, index) => data.writeBigInt64LE(BigInt(value), index * 8));
  return { name, type: 'int64', shape: [values.length], data };
}
