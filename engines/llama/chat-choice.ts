/**
 * Generates one choice of a completion on one sequence: evaluates the prompt in slices, samples
 * token by token, and emits pieces when they are final. Ends at the end-of-generation token, a stop
 * text, the token limit, a forced tool call, or when the caller disconnects.
 */
import {
  type LlamaContextSequence,
  type LlamaGrammar,
  LlamaGrammarEvaluationState,
  type LlamaModel,
  type SequenceEvaluateOptions,
  type Token,
  TokenBias,
} from 'node-llama-cpp';
import { type ResponsePiece, ResponseSplitter } from './response-splitter.ts';
import type { ChatRequest } from './chat-request.ts';
import type { DecodePause } from './decode-pause.ts';
import type { SamplingDefaults } from '../../src/engines/embedded/program-contract.ts';
import { RawSampler } from './raw-sampler.ts';
import type { SliceLength } from './slice-length.ts';

/** Number of recent tokens to which repetition penalties apply. */
const PENALTY_WINDOW_TOKENS = 1_024;
/** A UTF-8 character has up to four bytes and a token has at least one. */
const MAX_PENDING = 4;
/** Preceding tokens for the detokenizer: the spacing of some tokenizers depends on them. */
const LOOK_BACK = 4;
const REPLACEMENT = '\uFFFD';
/** OpenAI's lowest log probability, since JSON has no infinity. */
const LOWEST = -9999;

export interface ScoredText {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[];
}

export interface TokenLogprob extends ScoredText {
  readonly top_logprobs: ScoredText[];
}

export interface ChoiceTask {
  readonly markTexts: ReadonlyMap<Token, string>;
  readonly request: ChatRequest;
  readonly defaults: SamplingDefaults;
  readonly prompt: Token[];
  readonly start: 'thought' | 'content' | 'call';
  readonly canReason: boolean;
  readonly seed: number;
  readonly maxTokens: number;
  readonly contentGrammar: LlamaGrammar | undefined;
  readonly callGrammar: LlamaGrammar | undefined;
  readonly signal: AbortSignal;
  readonly pause: DecodePause;
  /** Shared by all requests to the model. */
  readonly sliceLength: SliceLength;
  readonly onPieces: (pieces: readonly ResponsePiece[], logprobs: readonly TokenLogprob[]) => void;
}

export interface ChoiceEnd {
  readonly finishReason: 'stop' | 'length' | 'tool_calls';
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** Runs the task to its end; throws the reason of the signal if the caller disconnects. */
export async function generateChoice(
  sequence: LlamaContextSequence,
  task: ChoiceTask,
): Promise<ChoiceEnd> {
  const cachedTokens = await readPrompt(sequence, task);
  const run = new ChoiceRun(sequence.model, task);
  const last = task.prompt.slice(-1);
  const sampler = run.rawSampler();
  if (sampler !== undefined) await generateRaw(sequence, last, run, sampler, task);
  else {
    const { logprobs } = task.request;
    const options = run.samplerOptions();
    const metadata = { probabilities: logprobs };
    for await (const output of sequence.evaluateWithMetadata(last, metadata, options)) {
      task.signal.throwIfAborted();
      if (!run.push(logprobs ? unscaled(output, options.temperature ?? 0) : output)) break;
      if (task.pause.end !== undefined) await task.pause.end;
    }
  }
  return { ...run.end(), cachedTokens };
}

/** Removes the effect of the temperature from the probabilities of the kept tokens. */
function unscaled({ token, probabilities }: TokenOutput, temperature: number): TokenOutput {
  if (probabilities === undefined || temperature === 0 || temperature === 1) {
    return { token, confidence: probabilities?.get(token) ?? 0, probabilities };
  }
  let sum = 0;
  for (const chance of probabilities.values()) sum += chance ** temperature;
  const open = new Map<Token, number>();
  for (const [one, chance] of probabilities) open.set(one, chance ** temperature / sum);
  return { token, confidence: open.get(token) ?? 0, probabilities: open };
}

/** Greedy sampling changes no probability: the library returns those of the model. */
const RAW_OPTIONS: SequenceEvaluateOptions = { temperature: 0, yieldEogToken: true };

/** The same, but picks the token from the raw distribution, which it also reports. */
async function generateRaw(
  sequence: LlamaContextSequence,
  last: Token[],
  run: ChoiceRun,
  sampler: RawSampler<Token>,
  { signal, pause }: ChoiceTask,
): Promise<void> {
  const outputs = sequence.evaluateWithMetadata(last, { probabilities: true }, RAW_OPTIONS);
  try {
    let next = await outputs.next();
    while (next.done !== true) {
      signal.throwIfAborted();
      const { probabilities } = next.value;
      const token = sampler.pick(probabilities, run.countedTokens) ?? next.value.token;
      if (sequence.model.isEogToken(token)) return;
      const confidence = probabilities.get(token) ?? 0;
      if (!run.push({ token, confidence, probabilities })) return;
      if (pause.end !== undefined) await pause.end;
      next = await outputs.next(token);
    }
  } finally {
    await outputs.return();
  }
}

/** Evaluates all but the last prompt token; returns how many were already in the sequence. */
async function readPrompt(sequence: LlamaContextSequence, task: ChoiceTask): Promise<number> {
  const body = task.prompt.slice(0, -1);
  await task.pause.during(() => sequence.adaptStateToTokens(body, false));
  const cached = sequence.nextTokenIndex;
  let at = cached;
  while (at < body.length) {
    task.signal.throwIfAborted();
    if (task.pause.end !== undefined) await task.pause.end;
    const slice = body.slice(at, at + task.sliceLength.tokens);
    const fromMs = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(slice);
    task.sliceLength.record(slice.length, performance.now() - fromMs);
    at += slice.length;
  }
  task.signal.throwIfAborted();
  return cached;
}

interface TokenOutput {
  readonly token: Token;
  readonly confidence?: number;
  readonly probabilities?: Map<Token, number> | undefined;
}

class ChoiceRun {
  readonly #model: LlamaModel;
  readonly #task: ChoiceTask;
  readonly #text: TokenText;
  readonly #splitter: ResponseSplitter;
  readonly #logprobs: LogprobTrack | undefined;
  readonly #generated: Token[] = [];
  #reasoningTokens = 0;
  #isAtLimit = false;
  #grammar:
    | { readonly key: 'content' | number; readonly state: LlamaGrammarEvaluationState }
    | undefined;

  constructor(model: LlamaModel, task: ChoiceTask) {
    this.#model = model;
    this.#task = task;
    const { request, markTexts, prompt, start, canReason, callGrammar } = task;
    this.#text = new TokenText(model, markTexts, prompt);
    const mayCall = callGrammar !== undefined;
    const { stops, logprobs, topLogprobs } = request;
    this.#splitter = new ResponseSplitter({ start, mayThink: canReason, mayCall, stops });
    if (logprobs) this.#logprobs = new LogprobTrack(model, topLogprobs);
  }

  /** Processes one sampled token; `false` ends the choice. */
  push(output: TokenOutput): boolean {
    const { request } = this.#task;
    this.#generated.push(output.token);
    if (request.stopTokens.has(output.token)) return false;
    const before = this.#splitter.state;
    if (before === 'thought') this.#reasoningTokens += 1;
    const text = this.#text.push(output.token);
    if (before === 'content') this.#logprobs?.add(output, text);
    this.#emit(this.#splitter.push(text));
    if (this.#splitter.isStopped) return false;
    const isOneCallEnough = request.toolChoice === 'one' || !request.parallelToolCalls;
    if (this.#splitter.calls > 0 && isOneCallEnough) return false;
    this.#isAtLimit = this.#generated.length >= this.#task.maxTokens;
    return !this.#isAtLimit;
  }

  end(): Omit<ChoiceEnd, 'cachedTokens'> {
    if (!this.#splitter.isStopped) {
      this.#emit(this.#splitter.push(this.#text.end()));
      this.#emit(this.#splitter.end());
    }
    const finishReason = this.#splitter.calls > 0 ? 'tool_calls' : 'stop';
    return {
      finishReason: this.#isAtLimit ? 'length' : finishReason,
      completionTokens: this.#generated.length,
      reasoningTokens: this.#reasoningTokens,
    };
  }

  get countedTokens(): readonly Token[] {
    return this.#generated.slice(-PENALTY_WINDOW_TOKENS);
  }

  /**
   * The sampler for a request with logprobs. `undefined` if a grammar or the repetition penalty
   * applies: only the library implements these, and its log probabilities then cover the remaining
   * tokens only.
   */
  rawSampler(): RawSampler<Token> | undefined {
    const { request, defaults, contentGrammar, callGrammar, seed } = this.#task;
    const { sampling, logprobs } = request;
    const isOpen = contentGrammar === undefined && callGrammar === undefined;
    if (!logprobs || !isOpen || sampling.repetitionPenalty !== 1) return undefined;
    const { frequencyPenalty, presencePenalty, logitBias } = sampling;
    return new RawSampler(
      {
        temperature: sampling.temperature ?? defaults.temperature,
        topP: sampling.topP ?? defaults.topP,
        topK: sampling.topK ?? defaults.topK,
        minP: sampling.minP ?? defaults.minP,
        frequencyPenalty,
        presencePenalty,
        logitBias,
      },
      seed,
    );
  }

  samplerOptions(): SequenceEvaluateOptions {
    const { request, defaults, contentGrammar, callGrammar, seed } = this.#task;
    const { sampling } = request;
    const { repetitionPenalty: penalty, frequencyPenalty, presencePenalty } = sampling;
    const counts = frequencyPenalty !== 0 || presencePenalty !== 0;
    const repeatPenalty = {
      punishTokens: () => this.#punishable(counts),
      maxPunishTokens: PENALTY_WINDOW_TOKENS,
      penalty,
      frequencyPenalty,
      presencePenalty,
    };
    const tokenBias = new TokenBias(this.#model.tokenizer);
    // Token ids are plain numbers; the library uses a branded type.
    for (const [token, logit] of sampling.logitBias) tokenBias.set(token as Token, { logit });
    const grammarEvaluationState = (): LlamaGrammarEvaluationState | undefined =>
      this.#grammarState();
    return {
      temperature: sampling.temperature ?? defaults.temperature,
      topP: sampling.topP ?? defaults.topP,
      topK: sampling.topK ?? defaults.topK,
      minP: sampling.minP ?? defaults.minP,
      seed,
      ...((counts || penalty !== 1) && { repeatPenalty }),
      ...(sampling.logitBias.size > 0 && { tokenBias }),
      ...((contentGrammar ?? callGrammar) && { grammarEvaluationState }),
    };
  }

  /**
   * Frequency and presence penalties count the completion only; the repetition penalty also counts
   * the prompt.
   */
  #punishable(counts: boolean): Token[] {
    const tokens = counts ? this.#generated : [...this.#task.prompt, ...this.#generated];
    return tokens.slice(-PENALTY_WINDOW_TOKENS);
  }

  /** Grammar state of the current part: none in a thinking block, a new one for each tool call. */
  #grammarState(): LlamaGrammarEvaluationState | undefined {
    const state = this.#splitter.state;
    if (state === 'thought') return undefined;
    const grammar = state === 'call' ? this.#task.callGrammar : this.#task.contentGrammar;
    if (grammar === undefined) return undefined;
    const key = state === 'call' ? this.#splitter.calls : 'content';
    if (this.#grammar?.key !== key) {
      const state = new LlamaGrammarEvaluationState({ model: this.#model, grammar });
      this.#grammar = { key, state };
    }
    return this.#grammar.state;
  }

  #emit(pieces: readonly ResponsePiece[]): void {
    if (pieces.length === 0) return;
    let emitted = 0;
    for (const piece of pieces) if (piece.type === 'content') emitted += piece.text.length;
    this.#task.onPieces(pieces, this.#logprobs?.release(emitted, this.#splitter.isStopped) ?? []);
  }
}

/**
 * Turns tokens into text one by one. A token can end within a UTF-8 character: its text is kept
 * until the next token, so that no replacement character is emitted for a valid character.
 */
class TokenText {
  readonly #model: LlamaModel;
  readonly #markTexts: ReadonlyMap<Token, string>;
  #before: Token[];
  #pending: Token[] = [];

  constructor(model: LlamaModel, markTexts: ReadonlyMap<Token, string>, prompt: readonly Token[]) {
    this.#model = model;
    this.#markTexts = markTexts;
    this.#before = prompt.slice(-LOOK_BACK);
  }

  push(token: Token): string {
    const mark = this.#markTexts.get(token);
    if (mark !== undefined) return this.end() + this.#advance([token], mark);
    this.#pending.push(token);
    const text = this.#model.detokenize(this.#pending, false, this.#before);
    if (text.endsWith(REPLACEMENT) && this.#pending.length < MAX_PENDING) return '';
    return this.#flush(text);
  }

  end(): string {
    if (this.#pending.length === 0) return '';
    return this.#flush(this.#model.detokenize(this.#pending, false, this.#before));
  }

  #flush(text: string): string {
    const tokens = this.#pending;
    this.#pending = [];
    return this.#advance(tokens, text);
  }

  #advance(tokens: readonly Token[], text: string): string {
    this.#before = [...this.#before, ...tokens].slice(-LOOK_BACK);
    return text;
  }
}

/**
 * Log probabilities of the content tokens in the OpenAI format. Text can be held back after its
 * tokens are sampled, so each entry waits until its text is emitted. Entries of text that is never
 * emitted (a stop text) are dropped.
 */
class LogprobTrack {
  readonly #model: LlamaModel;
  readonly #top: number;
  #waiting: { readonly entry: TokenLogprob; readonly start: number; readonly end: number }[] = [];
  #written = 0;
  #emitted = 0;

  constructor(model: LlamaModel, top: number) {
    this.#model = model;
    this.#top = top;
  }

  add(output: TokenOutput, text: string): void {
    const start = this.#written;
    this.#written += text.length;
    const best: ScoredText[] = [];
    for (const [token, chance] of output.probabilities ?? []) {
      if (best.length >= this.#top || chance <= 0) break;
      best.push(this.#score(token, chance));
    }
    const entry = { ...this.#score(output.token, output.confidence ?? 0), top_logprobs: best };
    this.#waiting.push({ entry, start, end: this.#written });
  }

  /** Returns the entries of emitted text; `isCut` includes an entry that is emitted in part. */
  release(length: number, isCut: boolean): TokenLogprob[] {
    this.#emitted += length;
    const isDue = (wait: { start: number; end: number }): boolean =>
      isCut ? wait.start < this.#emitted : wait.end <= this.#emitted;
    const due = this.#waiting.filter(isDue);
    this.#waiting = this.#waiting.filter((wait) => !isDue(wait));
    return due.map((wait) => wait.entry);
  }

  #score(token: Token, chance: number): ScoredText {
    const text = this.#model.detokenize([token], true);
    const logprob = chance > 0 ? Math.log(chance) : LOWEST;
    return { token: text, logprob, bytes: [...Buffer.from(text, 'utf8')] };
  }
}
