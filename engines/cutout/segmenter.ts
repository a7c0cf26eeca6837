/**
 * Runs a segmentation model: what it wants to see (side, normalisation) and how its answer is read
 * are data, a `ModelRecipe`; the rest is the same for all of them.
 */
import type * as onnx from 'onnxruntime-common';
import { assert } from '../../src/core/assert.ts';
import type { Plane } from './matte.ts';

export type Onnx = typeof onnx;

/** How a model of the segmentation family is fed and read. */
export interface ModelRecipe {
  /** Input is `1 x 3 x side x side`. */
  readonly side: number;
  /** Subtracted from and divided into each colour after scaling. */
  readonly mean: readonly [number, number, number];
  readonly deviation: readonly [number, number, number];
  /** `unit` divides by 255; `brightest` divides by the largest value of the image. */
  readonly scale: 'unit' | 'brightest';
  /** `probability` is a mask already; `stretch` maps its smallest and largest value to 0 and 1. */
  readonly output: 'probability' | 'stretch';
}

/** By the name of the model in the settings and messages of the parent. */
export const RECIPES = {
  /** MediaPipe selfie segmentation, the model of the package. */
  person: {
    side: 256,
    mean: [0, 0, 0],
    deviation: [1, 1, 1],
    scale: 'unit',
    output: 'probability',
  },
  /** U-2-Net and its small form: the ImageNet normalisation of their authors. */
  u2net: {
    side: 320,
    mean: [0.485, 0.456, 0.406],
    deviation: [0.229, 0.224, 0.225],
    scale: 'brightest',
    output: 'stretch',
  },
  /** ISNet (general use). */
  isnet: {
    side: 1024,
    mean: [0.5, 0.5, 0.5],
    deviation: [1, 1, 1],
    scale: 'brightest',
    output: 'stretch',
  },
} as const satisfies Record<string, ModelRecipe>;

/** Planar, normalised input of a model from 8-bit RGB of `side * side` pixels. */
export function modelInput(rgb: Buffer, recipe: ModelRecipe): Float32Array {
  const count = recipe.side * recipe.side;
  assert(rgb.length === count * 3, 'the copy has the size that the model wants');
  // A loop, not a spread: a megapixel of arguments would not fit on the stack.
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

/** A mask in 0..1 from what the model returned. */
export function modelMask(output: Float32Array, recipe: ModelRecipe): Float32Array {
  if (recipe.output === 'probability') return output;
  let low = Infinity;
  let high = -Infinity;
  for (const value of output) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  // A flat answer means that the model saw nothing: nothing is kept.
  const range = high - low;
  return output.map((value) => (range > 0 ? (value - low) / range : 0));
}

/** A model file, and what is known of it. */
export interface LoadedModel {
  readonly path: string;
  readonly name: string;
  /** Without one it is taken for U-2-Net or ISNet, by the side of its input. */
  readonly recipe?: keyof typeof RECIPES | undefined;
}

export class Segmenter {
  readonly name: string;
  /** What it looks at has so many pixels on both sides. */
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

  /** Loads a model file; rejects when it is not an ONNX model. */
  static async load(
    ort: Onnx,
    model: LoadedModel & { readonly threads: number },
  ): Promise<Segmenter> {
    const session = await ort.InferenceSession.create(model.path, {
      // The arena keeps a peak of gigabytes for good; without it the speed is the same.
      enableCpuMemArena: false,
      intraOpNumThreads: model.threads,
      interOpNumThreads: 1,
      executionMode: 'sequential',
      logSeverityLevel: 3,
    });
    const recipe = RECIPES[model.recipe ?? recipeOf(session)];
    return new Segmenter(ort, model.name, recipe, session);
  }

  /** The mask of a square copy in 8-bit RGB. */
  async segment(rgb: Buffer): Promise<Plane> {
    const { side } = this;
    const [inputName] = this.#session.inputNames;
    const [outputName] = this.#session.outputNames;
    assert(inputName !== undefined && outputName !== undefined, 'a model has input and output');
    const values = modelInput(rgb, this.#recipe);
    const input = new this.#ort.Tensor('float32', values, [1, 3, side, side]);
    // U-2-Net has seven outputs and ISNet twelve; the first is the fused one, the rest cost memory.
    const result = await this.#session.run({ [inputName]: input }, [outputName]);
    const data = result[outputName]?.data;
    assert(data instanceof Float32Array, 'the model answers with 32-bit floats');
    assert(data.length === side * side, 'the mask has the size of the input');
    return { width: side, height: side, values: modelMask(data, this.#recipe) };
  }

  async close(): Promise<void> {
    await this.#session.release();
  }
}

/** Throws for an input that neither family has, in words for the operator. */
function recipeOf({ inputMetadata: [input] }: onnx.InferenceSession): 'u2net' | 'isnet' {
  const shape = input?.isTensor === true ? input.shape : [];
  const side = shape.at(-1);
  if (side === RECIPES.u2net.side) return 'u2net';
  // Exports with free axes are of the larger family.
  if (side === RECIPES.isnet.side || typeof side === 'string') return 'isnet';
  throw new Error(
    `The cutout model takes [${shape.join(', ')}]: use a U-2-Net (320x320) or an ISNet (1024x1024) file`,
  );
}
