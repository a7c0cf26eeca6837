/**
 * Converts the MediaPipe selfie segmentation model (Apache-2.0) from TensorFlow Lite to ONNX and
 * writes `assets/person-segmentation.onnx`: input `image` 1x3x256x256 in 0..1, output `mask`
 * 1x1x256x256 in 0..1. Weights stay in half precision, as they are in the source.
 *
 * Run it with `node scripts/build-person-model.ts`; a test checks that the committed file is exactly
 * what this script writes.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import {
  type OnnxAttribute,
  type OnnxNode,
  type OnnxTensor,
  floatTensor,
  writeOnnx,
} from './onnx-writer.ts';
import {
  type TfliteModel,
  type TfliteOperator,
  type TfliteTensor,
  readTflite,
} from './tflite-reader.ts';

/** From Google's package `@mediapipe/selfie_segmentation` 0.1.1675465747, unchanged. */
const SOURCE = new URL('person-model/selfie_segmentation.tflite', import.meta.url);
const TARGET = new URL('../assets/person-segmentation.onnx', import.meta.url);
/** `HardSwish` exists from 14 on. */
const OPSET = 17;
const PADDING_VALID = 1;

/** How a weight's axes move from TensorFlow's order to the ONNX order. */
const CONV_AXES = [0, 3, 1, 2]; // OHWI -> OIHW
const DEPTHWISE_AXES = [3, 0, 1, 2]; // 1HWC -> C1HW
const TRANSPOSED_AXES = [3, 0, 1, 2]; // OHWI -> IOHW

function permute(source: Uint8Array, shape: readonly number[], axes: readonly number[]): Buffer {
  const width = source.length / shape.reduce((product, size) => product * size, 1);
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, width));
  const moved = axes.map((axis) => ({ size: shape[axis] ?? 1, stride: strides[axis] ?? 0 }));
  const target = Buffer.alloc(source.length);
  let written = 0;
  const walk = (depth: number, offset: number): void => {
    const axis = moved[depth];
    if (axis === undefined) {
      target.set(source.subarray(offset, offset + width), written);
      written += width;
      return;
    }
    for (let i = 0; i < axis.size; i += 1) walk(depth + 1, offset + i * axis.stride);
  };
  walk(0, 0);
  return target;
}

/** Padding of one axis as TensorFlow's SAME counts it: the odd pixel goes to the end. */
function samePads(input: number, kernel: number, stride: number): [number, number] {
  const total = Math.max((Math.ceil(input / stride) - 1) * stride + kernel - input, 0);
  return [Math.floor(total / 2), total - Math.floor(total / 2)];
}

class Converter {
  readonly #model: TfliteModel;
  /** Half-precision constants are behind a `dequantize`: output index -> source tensor. */
  readonly #halves = new Map<number, TfliteTensor>();
  readonly #written = new Set<string>();
  readonly nodes: OnnxNode[] = [];
  readonly constants: OnnxTensor[] = [];

  constructor(model: TfliteModel) {
    this.#model = model;
  }

  #tensor(index: number | undefined): TfliteTensor {
    const tensor = this.#model.tensors[index ?? -1];
    if (tensor === undefined) throw new RangeError('An operator lacks an input');
    return tensor;
  }

  /** Name of a computed value: the graph's ports have their own. */
  #name(index: number | undefined): string {
    if (index === this.#model.inputs[0]) return 'image';
    if (index === this.#model.outputs[0]) return 'mask';
    return `t${index}`;
  }

  /** Writes a constant once, in ONNX order, and returns the name of its 32-bit form. */
  #constant(index: number | undefined, axes?: readonly number[]): string {
    const name = this.#name(index);
    if (this.#written.has(name)) return name;
    this.#written.add(name);
    const source = this.#halves.get(index ?? -1) ?? this.#tensor(index);
    if (source.data === undefined) throw new RangeError(`Tensor ${source.name} is not constant`);
    const data = axes === undefined ? source.data : permute(source.data, source.shape, axes);
    const shape = axes === undefined ? source.shape : axes.map((axis) => source.shape[axis] ?? 1);
    if (source.type === 'float32') {
      this.constants.push({ name, type: 'float', shape, data });
    } else if (source.type === 'float16') {
      this.constants.push({ name: `${name}h`, type: 'float16', shape, data });
      this.#push('Cast', [`${name}h`], name, { to: { int: 1 } });
    } else throw new RangeError(`Tensor ${source.name} has a type that is not converted`);
    return name;
  }

  #push(
    type: string,
    inputs: readonly string[],
    output: string,
    attributes: Record<string, OnnxAttribute> = {},
  ): void {
    this.nodes.push({ type, inputs, outputs: [output], attributes });
  }

  convert(operator: TfliteOperator): void {
    const [first, second] = operator.inputs;
    const output = this.#name(operator.outputs[0]);
    const unary = (type: string): void => this.#push(type, [this.#name(first)], output);
    switch (operator.kind) {
      case 'dequantize':
        this.#halves.set(operator.outputs[0] ?? -1, this.#tensor(first));
        return;
      case 'conv':
        return this.#convolution(operator, CONV_AXES, 1);
      case 'depthwiseConv':
        return this.#convolution(operator, DEPTHWISE_AXES, this.#tensor(first).shape[3] ?? 1);
      case 'custom:Convolution2DTransposeBias':
        return this.#transposed(operator);
      case 'averagePool':
        return this.#pool(operator);
      case 'resizeBilinear':
        return this.#resize(operator);
      case 'add':
        return this.#push('Add', [this.#name(first), this.#name(second)], output);
      case 'mul':
        return this.#push('Mul', [this.#name(first), this.#name(second)], output);
      case 'relu':
        return unary('Relu');
      case 'hardSwish':
        return unary('HardSwish');
      case 'logistic':
        return unary('Sigmoid');
      default:
        throw new RangeError(`Operator ${operator.kind} is not converted`);
    }
  }

  #convolution(operator: TfliteOperator, axes: readonly number[], group: number): void {
    const [input, weight, bias] = operator.inputs;
    const shape = this.#tensor(input).shape;
    const kernel = this.#tensor(weight).shape.slice(1, 3);
    const strides = [operator.option(2, 'int', 1), operator.option(1, 'int', 1)];
    const valid = operator.option(0, 'byte', 0) === PADDING_VALID;
    const pads = [0, 1].map((axis) =>
      valid ? [0, 0] : samePads(shape[axis + 1] ?? 1, kernel[axis] ?? 1, strides[axis] ?? 1),
    );
    const at = (side: number): number[] => pads.map((pair) => pair[side] ?? 0);
    this.#push(
      'Conv',
      [this.#name(input), this.#constant(weight, axes), this.#constant(bias)],
      this.#name(operator.outputs[0]),
      {
        group: { int: group },
        kernel_shape: { ints: kernel },
        pads: { ints: [...at(0), ...at(1)] },
        strides: { ints: strides },
      },
    );
  }

  /** MediaPipe's own operator; its options are three integers: padding, stride width and height. */
  #transposed(operator: TfliteOperator): void {
    const [input, weight, bias] = operator.inputs;
    const kernel = this.#tensor(weight).shape.slice(1, 3);
    const options = Buffer.from(operator.customOptions);
    const strides = [options.readInt32LE(8), options.readInt32LE(4)];
    // Kernel equal to stride: the windows tile the output, and both paddings mean none.
    if (String(kernel) !== String(strides)) throw new RangeError('The windows overlap');
    this.#push(
      'ConvTranspose',
      [this.#name(input), this.#constant(weight, TRANSPOSED_AXES), this.#constant(bias)],
      this.#name(operator.outputs[0]),
      { kernel_shape: { ints: kernel }, strides: { ints: strides } },
    );
  }

  #pool(operator: TfliteOperator): void {
    const [input] = operator.inputs;
    const [, height, width] = this.#tensor(input).shape;
    if (operator.option(4, 'int', 0) !== height || operator.option(3, 'int', 0) !== width) {
      throw new RangeError('Only pools over the whole image are converted');
    }
    this.#push('GlobalAveragePool', [this.#name(input)], this.#name(operator.outputs[0]));
  }

  #resize(operator: TfliteOperator): void {
    if (operator.option(2, 'byte', 0) !== 0 || operator.option(3, 'byte', 0) !== 1) {
      throw new RangeError('Only half-pixel resizes are converted');
    }
    const from = this.#tensor(operator.inputs[0]).shape;
    const to = this.#tensor(operator.outputs[0]).shape;
    const name = `${this.#name(operator.outputs[0])}scale`;
    const scale = [1, 2].map((axis) => (to[axis] ?? 1) / (from[axis] ?? 1));
    this.constants.push(floatTensor(name, [4], [1, 1, ...scale]));
    this.#push(
      'Resize',
      [this.#name(operator.inputs[0]), '', name],
      this.#name(operator.outputs[0]),
      { coordinate_transformation_mode: { string: 'half_pixel' }, mode: { string: 'linear' } },
    );
  }
}

/** The bytes of the ONNX model, made from the original. */
export function buildPersonModel(): Buffer {
  const model = readTflite(readFileSync(SOURCE));
  const converter = new Converter(model);
  for (const operator of model.operators) converter.convert(operator);
  return writeOnnx({
    name: 'person-segmentation',
    opset: OPSET,
    nodes: converter.nodes,
    constants: converter.constants,
    inputs: [{ name: 'image', type: 'float', shape: [1, 3, 256, 256] }],
    outputs: [{ name: 'mask', type: 'float', shape: [1, 1, 256, 256] }],
    metadata: { license: 'Apache-2.0', source: 'MediaPipe Selfie Segmentation (general)' },
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(TARGET, buildPersonModel());
