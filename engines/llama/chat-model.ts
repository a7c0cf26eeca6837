/**
 * A loaded chat model: its template, its pool of sequences, and the processing of a chat request
 * into one or more choices. The choices of all requests share the decode batches of one context.
 */
import { randomInt } from 'node:crypto';
import {
  type LlamaContext,
  type LlamaContextSequence,
  LlamaGrammar,
  type LlamaModel,
  type Token,
} from 'node-llama-cpp';
import { assert } from '../../src/core/assert.ts';
import type { JobQueue } from '../../src/core/job-queue.ts';
import { engineQueue } from '../server/engine-queue.ts';
import { reasonOf } from '../../src/core/log.ts';
import type { EngineRequest } from '../server/server.ts';
import type { ResponsePiece } from './response-splitter.ts';
import { type ChoiceEnd, generateChoice, type TokenLogprob } from './chat-choice.ts';
import type { ChatRequest } from './chat-request.ts';
import {
  type ChatTemplate,
  compileTemplate,
  THINK_CLOSE,
  THINK_OPEN,
  TOOL_CLOSE,
  TOOL_OPEN,
} from './chat-template.ts';
import {
  grammarForSchema,
  grammarForToolCall,
  OPEN_LIMITS,
  SHORT_LIMITS,
} from './json-schema-grammar.ts';
import type {
  LlamaModelSpec,
  LoadedLlamaModel,
  SamplingDefaults,
} from '../../src/engines/embedded/program-contract.ts';
import { DecodePause } from './decode-pause.ts';
import { overloaded, refusal } from './refusal.ts';
import { SliceLength } from './slice-length.ts';

const NEUTRAL_SAMPLING: SamplingDefaults = { temperature: 1, topP: 1, topK: 0, minP: 0 };
const MAX_CACHED_GRAMMARS = 32;
const MAX_SEED = 2 ** 31;
/** Choices that may wait for a free sequence; further ones are rejected with 429. */
const MAX_WAITING = 64;

type CallerTurn = Pick<EngineRequest, 'caller' | 'signal'>;

export interface ChatListener {
  /** Called when the prompt fits and a sequence is assigned. */
  onStart(): void;
  onPieces(
    choice: number,
    pieces: readonly ResponsePiece[],
    logprobs: readonly TokenLogprob[],
  ): void;
  onEnd(choice: number, finishReason: ChoiceEnd['finishReason']): void;
}

export interface ChatUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

export class ChatModel {
  readonly #spec: LlamaModelSpec;
  readonly #model: LlamaModel;
  readonly #context: LlamaContext;
  readonly #pause = new DecodePause();
  readonly #sliceLength = new SliceLength();
  readonly #pool: SequencePool;
  readonly #template: ChatTemplate;
  readonly #markTexts: ReadonlyMap<Token, string>;
  readonly #grammars = new Map<string, LlamaGrammar>();

  private constructor(spec: LlamaModelSpec, context: LlamaContext) {
    const { model } = context;
    this.#spec = spec;
    this.#model = model;
    this.#context = context;
    const sequences = Array.from({ length: spec.sequences }, () => context.getSequence());
    this.#pool = new SequencePool(sequences, this.#pause);
    this.#template = compileTemplate(model.fileInfo.metadata.tokenizer?.chat_template, {
      bos: model.tokens.bosString ?? '',
      eos: model.tokens.eosString ?? '',
    });
    this.#markTexts = markTextsOf(model);
  }

  /** Creates the context of a loaded file; throws if memory does not suffice. */
  static async create(
    spec: LlamaModelSpec,
    model: LlamaModel,
    threads: number,
  ): Promise<ChatModel> {
    const context = await model.createContext({
      sequences: spec.sequences,
      contextSize: Math.min(spec.contextTokens, model.trainContextSize),
      threads,
    });
    return new ChatModel(spec, context);
  }

  info(): LoadedLlamaModel {
    return {
      id: this.#spec.id,
      work: 'chat',
      contextTokens: this.#context.contextSize,
      sequences: this.#spec.sequences,
      isDemo: this.#spec.isDemo,
      canReason: this.#template.canReason,
      dimensions: 0,
    };
  }

  /** Resolves with the usage of all choices; rejects when `signal` aborts. */
  async generate(
    request: ChatRequest,
    listener: ChatListener,
    turn: CallerTurn,
  ): Promise<ChatUsage> {
    const { caller, signal } = turn;
    const prompt = this.#prompt(request);
    const maxCompletionTokens = this.#maxTokens - prompt.tokens.length;
    const grammars = this.#grammarsFor(request);
    this.#pool.admit(request.choices, caller);
    listener.onStart();
    const seed = request.seed ?? randomInt(MAX_SEED);
    const choices = Array.from({ length: request.choices }, async (_, index) => {
      const salted = { tokens: prompt.tokens, salt: request.cacheSalt };
      const end = await this.#pool.use(salted, turn, async (sequence) =>
        generateChoice(sequence, {
          ...grammars,
          markTexts: this.#markTexts,
          request,
          defaults: this.#spec.sampling ?? NEUTRAL_SAMPLING,
          prompt: prompt.tokens,
          start: prompt.start,
          canReason: this.#template.canReason && request.rawPrompt === undefined,
          seed: seed + index,
          maxTokens: Math.min(request.maxTokens, maxCompletionTokens),
          signal,
          pause: this.#pause,
          sliceLength: this.#sliceLength,
          onPieces: (pieces, logprobs) => listener.onPieces(index, pieces, logprobs),
        }),
      );
      listener.onEnd(index, end.finishReason);
      return end;
    });
    return sumUsage(prompt.tokens.length, await allOrFirstError(choices));
  }

  /**
   * Maximum tokens of prompt and completion together. One position stays free, because a full
   * context would be shifted.
   */
  get #maxTokens(): number {
    return this.#context.contextSize - 1;
  }

  #prompt(request: ChatRequest): { tokens: Token[]; start: 'thought' | 'content' | 'call' } {
    const { rawPrompt } = request;
    if (rawPrompt !== undefined)
      return { tokens: this.#tokens(rawPrompt, false), start: 'content' };
    const isForced = request.toolChoice === 'one';
    const prompt = this.#template.render({
      messages: request.messages,
      tools: request.tools,
      thinking: request.thinking && !isForced,
      variables: request.templateVariables,
    });
    const text = isForced ? `${prompt.text}${TOOL_OPEN}\n` : prompt.text;
    const tokens = this.#tokens(text, true);
    if (isForced) return { tokens, start: 'call' };
    return { tokens, start: prompt.startsThinking ? 'thought' : 'content' };
  }

  /** Throws an error response if the prompt exceeds the context. */
  #tokens(text: string, hasMarks: boolean): Token[] {
    const tokens = this.#model.tokenize(text, hasMarks);
    const { bos, shouldPrependBosToken } = this.#model.tokens;
    if (shouldPrependBosToken && bos !== null && tokens[0] !== bos) tokens.unshift(bos);
    if (tokens.length === 0) {
      throw refusal('invalid_request', 'prompt: Must not be empty', 'prompt');
    }
    if (tokens.length >= this.#maxTokens) {
      const message = `The prompt has ${tokens.length} tokens, the context of ${this.#spec.id} has ${this.#context.contextSize}`;
      throw refusal('context_length_exceeded', message, hasMarks ? 'messages' : 'prompt');
    }
    return tokens;
  }

  #grammarsFor(request: ChatRequest): {
    contentGrammar: LlamaGrammar | undefined;
    callGrammar: LlamaGrammar | undefined;
  } {
    const limits = this.#spec.isDemo ? SHORT_LIMITS : OPEN_LIMITS;
    const { schema, tools } = request;
    const content = schema === undefined ? undefined : grammarForSchema(schema, limits);
    const call = tools.length > 0 ? grammarForToolCall(tools, TOOL_CLOSE, limits) : undefined;
    return { contentGrammar: this.#grammar(content), callGrammar: this.#grammar(call) };
  }

  #grammar(text: string | undefined): LlamaGrammar | undefined {
    if (text === undefined) return undefined;
    const known = this.#grammars.get(text);
    this.#grammars.delete(text);
    const grammar = known ?? this.#compile(text);
    this.#grammars.set(text, grammar);
    for (const oldest of this.#grammars.keys()) {
      if (this.#grammars.size <= MAX_CACHED_GRAMMARS) break;
      this.#grammars.delete(oldest);
    }
    return grammar;
  }

  #compile(grammar: string): LlamaGrammar {
    try {
      return new LlamaGrammar(this.#model.llama, { grammar });
    } catch (error) {
      // The native parser has its own limits; the caller has to simplify a schema that exceeds
      // them.
      const message = `The JSON schema cannot be enforced: ${reasonOf(error)}`;
      throw refusal('invalid_request', message, 'schema');
    }
  }
}

interface SaltedPrompt {
  readonly tokens: Token[];
  readonly salt: string;
}

/**
 * The sequences of one context. Each holds the state of one conversation and runs in the same
 * decode batches as the others. The pool prefers a free sequence that already holds the beginning
 * of the prompt, so that a conversation is not evaluated again. State of a prompt with one salt is
 * never used for a prompt with another.
 */
class SequencePool {
  readonly #free: LlamaContextSequence[];
  readonly #salts = new WeakMap<LlamaContextSequence, string>();
  readonly #queue: JobQueue;
  readonly #pause: DecodePause;

  constructor(sequences: readonly LlamaContextSequence[], pause: DecodePause) {
    this.#free = [...sequences];
    this.#pause = pause;
    const { length: running } = sequences;
    this.#queue = engineQueue({
      running,
      // Another caller does not wait for the end of long completions.
      runningOfCaller: Math.max(1, running - 1),
      waiting: MAX_WAITING,
      retryAfterSeconds: 0,
    });
  }

  admit(count: number, caller: string): void {
    if (!this.#queue.hasRoom(caller, count)) throw overloaded();
  }

  /** Runs `work` with a sequence and releases it afterwards. Rejects if `signal` aborts before. */
  async use<Result>(
    prompt: SaltedPrompt,
    { caller, signal }: CallerTurn,
    work: (sequence: LlamaContextSequence) => Promise<Result>,
  ): Promise<Result> {
    return await this.#queue.run(
      async () => {
        const sequence = this.#acquire(prompt);
        try {
          if (this.#salts.get(sequence) !== prompt.salt) {
            await this.#pause.during(() => sequence.clearHistory());
          }
          this.#salts.set(sequence, prompt.salt);
          return await work(sequence);
        } finally {
          this.#free.push(sequence);
        }
      },
      signal,
      caller,
    );
  }

  #acquire({ tokens, salt }: SaltedPrompt): LlamaContextSequence {
    let best = 0;
    let bestScore = -1;
    for (const [index, sequence] of this.#free.entries()) {
      const usedTokens = sequence.nextTokenIndex;
      const isOwn = usedTokens > 0 && this.#salts.get(sequence) === salt;
      const shared = !isOwn ? 0 : sequence.compareContextTokens(tokens).firstDifferentIndex;
      // If no sequence shares a prefix, prefer an empty one: a used one may still serve its caller.
      const score = shared > 0 ? shared + 1 : Number(usedTokens === 0);
      if (score > bestScore) [best, bestScore] = [index, score];
    }
    const [sequence] = this.#free.splice(best, 1);
    assert(sequence !== undefined, 'as many jobs run as there are sequences');
    return sequence;
  }
}

/** Marks that are one token of the vocabulary; plain detokenizing may omit them. */
function markTextsOf(model: LlamaModel): Map<Token, string> {
  const texts = new Map<Token, string>();
  for (const mark of [THINK_OPEN, THINK_CLOSE, TOOL_OPEN, TOOL_CLOSE]) {
    const [token, ...rest] = model.tokenize(mark, true);
    if (token !== undefined && rest.length === 0) texts.set(token, mark);
  }
  return texts;
}

function sumUsage(promptTokens: number, ends: readonly ChoiceEnd[]): ChatUsage {
  return {
    promptTokens,
    cachedTokens: Math.min(...ends.map((end) => end.cachedTokens)),
    completionTokens: ends.reduce((sum, end) => sum + end.completionTokens, 0),
    reasoningTokens: ends.reduce((sum, end) => sum + end.reasoningTokens, 0),
  };
}

/** Waits until all promises settle, so that no sequence is in use, then throws the first error. */
async function allOrFirstError<Value>(works: readonly Promise<Value>[]): Promise<Value[]> {
  const results = await Promise.allSettled(works);
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value;
  });
}
