/**
 * Runs a segmentation model. The input format (side, normalisation) and the output format of a
 * model are data, a `ModelRecipe`.
 */
import type * as onnx from 'onnxruntime-common';
import { assert } from '../../src/core/assert.ts';
import { onnxOptions } from '../server/onnx-options.ts';
import type { Plane } from './matte.ts';

export type Onnx = typeof onnx;

export interface ModelRecipe {
  /** Input is `1 x 3 x side x side`. */
  readonly side: number;
  /** Subtracted from and divided into each colour after scaling. */
  readonly mean: readonly [number, number, number];
  readonly deviation: readonly [number, number, number];
  /** `unit` divides by 255; `brightest` divides by the largest value in the image. */
  readonly scale: 'unit' | 'brightest';
  /** `probability` is already a mask; `stretch` maps the smallest and largest value to 0 and 1. */
  readonly output: 'probability' | 'stretch';
}

/** Keyed by the model name in the settings and messages of the parent. */
export const RECIPES = {
  person: {
    side: 256,
    mean: [0, 0, 0],
    deviation: [1, 1, 1],
    scale: 'unit',
    output: 'probability',
  },
  u2net: {
    side: 320,
    mean: [0.485, 0.456, 0.406],
    deviation: [0.229, 0.224, 0.225],
    scale: 'brightest',
    output: 'stretch',
  },
  isnet: {
    side: 1024,
    mean: [0.5, 0.5, 0.5],
    deviation: [1, 1, 1],
    scale: 'brightest',
    output: 'stretch',
  },
} as const satisfies Record<string, ModelRecipe>;

/** Planar, normalised model input from 8-bit RGB of `side * side` pixels. */
export function modelInput(rgb: Buffer, recipe: ModelRecipe): Float32Array {
  const count = recipe.side * recipe.side;
  assert(rgb.length === count * 3, 'the copy has the size that the model wants');
  // A loop instead of a spread: a million arguments would overflow the stack.
  let brightest = 1;
  if (recipe.scale === 'unit') brightest = 255;
  else for (const value of rgb) if (value > brightest) brightest = value;
  const input = new Float32Array(count * 3);
  for (let channel = 0; channel < 3; channel += 1) {
    const mean = recipe.mean[channel] ?? 0;
    const deviation = recipe.deviation[channel] ?? 1;
    for (let i = 0; i < count; i += 1) {
      input[channel * count + i] = ((rgb[i * 3 + channel] ?? 0) / brightest - mean) / deviation;
    }
  }
  return input;
}

export function modelMask(output: Float32Array, recipe: ModelRecipe): Float32Array {
  if (recipe.output === 'probability') return output;
  let low = Infinity;
  let high = -Infinity;
  for (const value of output) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  // A flat output means that the model found no subject: the mask is empty.
  const range = high - low;
  return output.map((value) => (range > 0 ? (value - low) / range : 0));
}

export interface LoadedModel {
  readonly path: string;
  readonly name: string;
  /** If it is missing, the input size selects U-2-Net or ISNet. */
  readonly recipe?: keyof typeof RECIPES | undefined;
}

export class Segmenter {
  readonly name: string;
  /** Width and height of the model input, in pixels. */
  readonly side: number;
  readonly #session: onnx.InferenceSession;
  readonly #ort: Onnx;
  readonly #recipe: ModelRecipe;

  private constructor(
    ort: Onnx,
    name: string,
    recipe: ModelRecipe,
    session: onnx.InferenceSession,
  ) {
    this.#ort = ort;
    this.name = name;
    this.side = recipe.side;
    this.#recipe = recipe;
    this.#session = session;
  }

  /** Loads a model file; rejects if it is not an ONNX model. */
  static async load(
    ort: Onnx,
    model: LoadedModel & { readonly threads: number },
  ): Promise<Segmenter> {
    const options = onnxOptions(model.threads);
    const session = await ort.InferenceSession.create(model.path, options);
    const recipe = RECIPES[model.recipe ?? recipeOf(session)];
    return new Segmenter(ort, model.name, recipe, session);
  }

  async segment(rgb: Buffer): Promise<Plane> {
    const { side } = this;
    const [inputName] = this.#session.inputNames;
    const [outputName] = this.#session.outputNames;
    assert(inputName !== undefined && outputName !== undefined, 'a model has input and output');
    const values = modelInput(rgb, this.#recipe);
    const input = new this.#ort.Tensor('float32', values, [1, 3, side, side]);
    // U-2-Net has seven outputs and ISNet twelve. The first is the fused one; the others only cost
    // memory.
    const result = await this.#session.run({ [inputName]: input }, [outputName]);
    const data = result[outputName]?.data;
    assert(data instanceof Float32Array, 'the model returns 32-bit floats');
    assert(data.length === side * side, 'the mask has the size of the input');
    return { width: side, height: side, values: modelMask(data, this.#recipe) };
  }

  async close(): Promise<void> {
    await this.#session.release();
  }
}

/** Throws if neither family has this input size; the message is for the operator. */
function recipeOf({ inputMetadata: [input] }: onnx.InferenceSession): 'u2net' | 'isnet' {
  const shape = input?.isTensor === true ? input.shape : [];
  const side = shape.at(-1);
  if (side === RECIPES.u2net.side) return 'u2net';
  // Exports with dynamic axes are ISNet.
  if (side === RECIPES.isnet.side || typeof side === 'string') return 'isnet';
  throw new Error(
    `The cutout model takes [${shape.join(', ')}]: use a U-2-Net (320x320) or an ISNet (1024x1024) file`,
  );
}
