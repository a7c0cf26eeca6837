/**
 * A loaded embedding model: unit vectors for texts or token ids. An input longer than the model's
 * window is cut into windows whose vectors are averaged by length.
 */
import type { Turn } from '../../src/core/job-queue.ts';
import { engineQueue } from '../server/engine-queue.ts';
import { unitVector } from '../../src/core/vectors.ts';
import type { LlamaEmbeddingContext, LlamaModel, Token } from 'node-llama-cpp';
import * as z from 'zod';
import type { EngineRequest } from '../server/server.ts';
import { parsed } from './chat-request.ts';
import type {
  LlamaModelSpec,
  LoadedLlamaModel,
} from '../../src/engines/embedded/program-contract.ts';
import { overloaded, refusal } from './refusal.ts';

const MAX_INPUTS = 2_048;
/** Reserves the begin and end tokens that the model adds to each window. */
const FRAME_TOKENS = 2;

const tokenIds = z.array(z.number().int().min(0)).min(1);
const body = z.looseObject({
  model: z.string(),
  input: z.union([
    z.string().min(1),
    tokenIds,
    z.array(z.string().min(1)).min(1).max(MAX_INPUTS),
    z.array(tokenIds).min(1).max(MAX_INPUTS),
  ]),
  dimensions: z.number().int().min(1).nullish(),
  encoding_format: z.enum(['float', 'base64']).nullish(),
});

export type EmbeddingRequest = ReturnType<typeof parseEmbeddingRequest>;

/** Parses an OpenAI embeddings body; throws an error response that names the invalid field. */
export function parseEmbeddingRequest(input: unknown) {
  const request = parsed(body, input);
  return {
    model: request.model,
    inputs: listOf(request.input),
    dimensions: request.dimensions ?? undefined,
    format: request.encoding_format ?? 'float',
  };
}

function listOf(input: z.infer<typeof body>['input']): (string | number[])[] {
  if (typeof input === 'string') return [input];
  if (input.every((item) => typeof item === 'number')) return [input];
  return input.filter((item) => typeof item !== 'number');
}

export class EmbeddingModel {
  readonly #spec: LlamaModelSpec;
  readonly #model: LlamaModel;
  readonly #context: LlamaEmbeddingContext;
  readonly #windowTokens: number;
  readonly #queue = engineQueue({ running: 1, waiting: 64, retryAfterSeconds: 0 });

  private constructor(spec: LlamaModelSpec, model: LlamaModel, context: LlamaEmbeddingContext) {
    this.#spec = spec;
    this.#model = model;
    this.#context = context;
    this.#windowTokens = windowTokensOf(spec, model);
  }

  static async create(
    spec: LlamaModelSpec,
    model: LlamaModel,
    threads: number,
  ): Promise<EmbeddingModel> {
    const contextSize = windowTokensOf(spec, model);
    // A bidirectional model must receive the whole window in one batch.
    const bounds = { contextSize, batchSize: contextSize, threads };
    return new EmbeddingModel(spec, model, await model.createEmbeddingContext(bounds));
  }

  info(): LoadedLlamaModel {
    return {
      id: this.#spec.id,
      work: 'embeddings',
      contextTokens: this.#windowTokens,
      sequences: 1,
      isDemo: this.#spec.isDemo,
      canReason: false,
      dimensions: this.#model.embeddingVectorSize,
    };
  }

  /** Returns one vector per input, in order, and the tokens of all inputs. */
  async embed(
    request: EmbeddingRequest,
    { caller, signal }: Pick<EngineRequest, 'caller' | 'signal'>,
  ): Promise<{ vectors: Float32Array[]; tokens: number }> {
    const size = this.#model.embeddingVectorSize;
    const dimensions = request.dimensions ?? size;
    if (dimensions > size) {
      const message = `dimensions: Must be at most ${size} for ${this.#spec.id}, got ${dimensions}`;
      throw refusal('invalid_request', message, 'dimensions');
    }
    if (!this.#queue.hasRoom(caller)) throw overloaded();
    const inputs = request.inputs.map((input) => this.#tokensOf(input));
    // A queue turn covers one window, so that a request with thousands of inputs does not block
    // others.
    const turn = this.#queue.turnsOf(caller, signal);
    const vectors: Float32Array[] = [];
    for (const tokens of inputs) vectors.push(await this.#vector(tokens, dimensions, turn));
    return { vectors, tokens: inputs.reduce((sum, tokens) => sum + tokens.length, 0) };
  }

  #tokensOf(input: string | readonly number[]): Token[] {
    if (typeof input === 'string') return this.#model.tokenize(input);
    const known = this.#model.fileInfo.metadata.tokenizer.ggml.tokens.length;
    const unknown = input.find((token) => token >= known);
    if (unknown !== undefined) {
      const message = `Token ${unknown} is not in the vocabulary of ${this.#spec.id}: send text`;
      throw refusal('invalid_request', message, 'input');
    }
    // The library uses branded token ids; these are already checked against the vocabulary.
    return [...input] as Token[];
  }

  async #vector(tokens: Token[], dimensions: number, turn: Turn): Promise<Float32Array> {
    const window = this.#windowTokens - FRAME_TOKENS;
    const sum = new Float32Array(this.#model.embeddingVectorSize);
    for (let at = 0; at < tokens.length; at += window) {
      const part = tokens.slice(at, at + window);
      const { vector } = await turn(() => this.#context.getEmbeddingFor([...part]));
      const unit = unitVector(Float32Array.from(vector));
      for (const [index, value] of unit.entries()) {
        sum[index] = (sum[index] ?? 0) + value * part.length;
      }
    }
    // Truncating changes the length of a vector: normalise it again.
    return unitVector(sum.subarray(0, dimensions));
  }
}

function windowTokensOf(spec: LlamaModelSpec, model: LlamaModel): number {
  return Math.min(spec.contextTokens, model.trainContextSize);
}
