/**
 * Reads the parts of a TensorFlow Lite flatbuffer that a float vision network uses: operators,
 * tensors and constant buffers. It knows the layout of the file, not the meaning of an operator.
 *
 * Every offset is checked by `DataView`, so that a damaged file ends in a RangeError.
 */

export type TfliteType = 'float32' | 'float16' | 'int32' | 'other';

export interface TfliteTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: TfliteType;
  /** Constant data; `undefined` for what is computed. */
  readonly data: Uint8Array | undefined;
}

export interface TfliteOperator {
  /** Builtin name of `BUILTIN_NAMES`, or `custom:<name>`. */
  readonly kind: string;
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  /** Reads scalar field `index` of the options table, or the default. */
  option(index: number, width: 'byte' | 'int', fallback: number): number;
  readonly customOptions: Uint8Array;
}

export interface TfliteModel {
  readonly tensors: readonly TfliteTensor[];
  readonly operators: readonly TfliteOperator[];
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
}

/** Names of the builtin operators that float vision networks use, by their number in the schema. */
const BUILTIN_NAMES = new Map<number, string>([
  [0, 'add'],
  [1, 'averagePool'],
  [2, 'concatenation'],
  [3, 'conv'],
  [4, 'depthwiseConv'],
  [6, 'dequantize'],
  [14, 'logistic'],
  [18, 'mul'],
  [19, 'relu'],
  [23, 'resizeBilinear'],
  [117, 'hardSwish'],
]);
const CUSTOM_OPERATOR = 32;
const TENSOR_TYPES: readonly TfliteType[] = ['float32', 'float16', 'int32'];
const EMPTY = new Uint8Array(0);

/** A flatbuffer table: a signed offset to its vtable, which lists where each field is. */
class Table {
  readonly #view: DataView;
  readonly #at: number;

  constructor(view: DataView, at: number) {
    this.#view = view;
    this.#at = at;
  }

  /** Absolute position of field `index`, or 0 when the table leaves it out. */
  #field(index: number): number {
    const vtable = this.#at - this.#view.getInt32(this.#at, true);
    const entry = 4 + index * 2;
    if (entry >= this.#view.getUint16(vtable, true)) return 0;
    const offset = this.#view.getUint16(vtable + entry, true);
    return offset === 0 ? 0 : this.#at + offset;
  }

  byte(index: number, fallback: number): number {
    const at = this.#field(index);
    return at === 0 ? fallback : this.#view.getInt8(at);
  }

  int(index: number, fallback: number): number {
    const at = this.#field(index);
    return at === 0 ? fallback : this.#view.getInt32(at, true);
  }

  /** The absolute start and length of vector `index`. */
  #vector(index: number): { start: number; length: number } {
    const at = this.#field(index);
    if (at === 0) return { start: 0, length: 0 };
    const vector = at + this.#view.getUint32(at, true);
    return { start: vector + 4, length: this.#view.getUint32(vector, true) };
  }

  bytes(index: number): Uint8Array {
    const { start, length } = this.#vector(index);
    if (length === 0) return EMPTY;
    return new Uint8Array(this.#view.buffer, this.#view.byteOffset + start, length);
  }

  text(index: number): string {
    return new TextDecoder().decode(this.bytes(index));
  }

  ints(index: number): number[] {
    const { start, length } = this.#vector(index);
    return Array.from({ length }, (_, i) => this.#view.getInt32(start + i * 4, true));
  }

  tables(index: number): Table[] {
    const { start, length } = this.#vector(index);
    return Array.from({ length }, (_, i) => {
      const at = start + i * 4;
      return new Table(this.#view, at + this.#view.getUint32(at, true));
    });
  }

  table(index: number): Table | undefined {
    const at = this.#field(index);
    return at === 0 ? undefined : new Table(this.#view, at + this.#view.getUint32(at, true));
  }
}

function readTensor(table: Table, buffers: readonly Table[]): TfliteTensor {
  const data = buffers[table.int(2, 0)]?.bytes(0) ?? EMPTY;
  return {
    name: table.text(3),
    shape: table.ints(0),
    type: TENSOR_TYPES[table.byte(1, 0)] ?? 'other',
    data: data.length === 0 ? undefined : data,
  };
}

function readKind(code: Table | undefined): string {
  if (code === undefined) throw new RangeError('An operator names a code that the file lacks');
  // Old files fill only the byte field, new ones the integer field.
  const number = Math.max(code.byte(0, 0), code.int(3, 0));
  if (number === CUSTOM_OPERATOR) return `custom:${code.text(1)}`;
  return BUILTIN_NAMES.get(number) ?? `builtin:${number}`;
}

/** Reads the first subgraph of a `.tflite` file; throws a RangeError for anything else. */
export function readTflite(file: Uint8Array): TfliteModel {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (new TextDecoder().decode(file.subarray(4, 8)) !== 'TFL3') {
    throw new RangeError('The file is not a TensorFlow Lite model');
  }
  const model = new Table(view, view.getUint32(0, true));
  const codes = model.tables(1);
  const buffers = model.tables(4);
  const graph = model.tables(2)[0];
  if (graph === undefined) throw new RangeError('The model has no graph');
  return {
    tensors: graph.tables(0).map((tensor) => readTensor(tensor, buffers)),
    inputs: graph.ints(1),
    outputs: graph.ints(2),
    operators: graph.tables(3).map((operator) => {
      const options = operator.table(4);
      return {
        kind: readKind(codes[operator.int(0, 0)]),
        inputs: operator.ints(1),
        outputs: operator.ints(2),
        option: (index, width, fallback) =>
          (width === 'byte' ? options?.byte(index, fallback) : options?.int(index, fallback)) ??
          fallback,
        customOptions: operator.bytes(5),
      };
    }),
  };
}
