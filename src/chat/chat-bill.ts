/**
 * What a chat answer used and costs, over all its engine calls. The engine's own usage comes first,
 * as far as it is possible; what it did not count is counted here, by the bytes of the text, and the
 * record says so. No output and no engine work is free.
 */
import { type Price, chargeForCalls } from '../catalog/catalog.ts';
import type { Nano } from '../core/money.ts';
import { mediaTokensAbout, tokensAbout, tokensAtLeast } from '../core/token-count.ts';
import type { TokenCounts, UsageRecord } from '../billing/ledger/ledger.ts';
import { type OutputTally, outputBytes } from './wire/chat-choice.ts';
import type { PromptFacts } from './wire/prompt-facts.ts';
import type { ReportedUsage, TokenUsage } from '../engines/usage.ts';
import type { Round } from './round.ts';

export interface ChatBill {
  /** The sum of all rounds, for the caller and the record. */
  readonly usage: TokenUsage;
  readonly tokens: TokenCounts;
  readonly countedBy: UsageRecord['countedBy'];
  readonly costNano: Nano;
}

/** How one engine call ended, and what came of it. */
export interface RoundEnd {
  /** What the engine said last of its usage. */
  readonly reported: ReportedUsage | undefined;
  /** What the caller was given, and what was held back of it. */
  readonly tally: Readonly<OutputTally>;
  /**
   * - `whole`: the engine said everything, so its usage is its last word
   * - `partial`: the caller left, the engine broke, or the grant ended
   * - `unseen`: the caller left while an engine worked on it, before any text
   */
  readonly extent: 'whole' | 'partial' | 'unseen';
}

/** What bounds the usage of a round, and what it is counted by. */
export interface RoundMeasure {
  readonly round: Pick<Round, 'bounds' | 'promptBytes'>;
  readonly media: Pick<PromptFacts, 'imageCount' | 'audioCount' | 'videoCount'>;
  readonly choiceCount: number;
}

export interface RoundUse {
  readonly usage: TokenUsage;
  readonly countedBy: 'engine' | 'bytes';
  /** Whether the prompt is billed when there is no output. */
  readonly isWork: boolean;
  /** Of an engine's own search. */
  readonly searchSources: number | undefined;
  /** The engine said more than can be. */
  readonly isImpossible: boolean;
}

export interface BillInputs {
  readonly rounds: readonly RoundUse[];
  readonly price: Price;
  /** Searches, pages and the like that were really used. */
  readonly surchargesNano: Nano;
}

export function billChat({ rounds, price, surchargesNano }: BillInputs): ChatBill {
  const usages = rounds.map((round) => round.usage);
  const usage = usages.reduce(added, NO_USAGE);
  const tokens: TokenCounts = {
    prompt: usage.promptTokens,
    completion: usage.completionTokens,
    cached: usage.cachedTokens,
    cacheWrite: usage.cacheWriteTokens,
    reasoning: usage.reasoningTokens,
  };
  // Pricing, "Empty output": no output tokens, nothing to pay for the tokens.
  const isDue = usage.completionTokens > 0 || rounds.some((round) => round.isWork);
  const costNano = isDue
    ? chargeForCalls(usages, { surcharges: surchargesNano }, price)
    : surchargesNano;
  const isCounted = rounds.some((round) => round.countedBy === 'bytes');
  return { usage, tokens, countedBy: isCounted ? 'bytes' : 'engine', costNano };
}

const NO_USAGE: TokenUsage = {
  promptTokens: 0,
  completionTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
};

function added(a: TokenUsage, b: TokenUsage): TokenUsage {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  };
}

/** The usage of one engine call, within what its hold covers. The one place that counts. */
export function roundUse(end: RoundEnd, measure: RoundMeasure): RoundUse {
  const { reported, tally, extent } = end;
  const most = measure.round.bounds.outputTokens * measure.choiceCount;
  const counted = countedUsage(tally, measure, most);
  const common = { isWork: extent === 'unseen', searchSources: reported?.usage.searchSources };
  if (reported === undefined) {
    return { ...common, usage: counted, countedBy: 'bytes', isImpossible: false };
  }
  const { promptTokens, isPromptPossible } = promptOf(reported.usage, counted, measure);
  const output = outputOf(end, reported, counted, most);
  const { usage } = reported;
  const cachedTokens = Math.min(usage.cachedTokens, promptTokens);
  return {
    ...common,
    usage: {
      promptTokens,
      completionTokens: output.tokens,
      cachedTokens,
      cacheWriteTokens: Math.min(usage.cacheWriteTokens, promptTokens - cachedTokens),
      reasoningTokens: output.isEngines
        ? Math.min(usage.reasoningTokens, output.tokens)
        : Math.min(counted.reasoningTokens, output.tokens),
    },
    countedBy: output.isEngines ? 'engine' : 'bytes',
    isImpossible: !isPromptPossible || usage.completionTokens > most,
  };
}

/**
 * A prompt that is longer than its bound is billed as the bound. Media have none of their own: the
 * whole context is theirs, and an engine that says more than that is not believed at all.
 */
function promptOf(usage: TokenUsage, counted: TokenUsage, { round, media }: RoundMeasure) {
  const most = round.bounds.promptTokens;
  if (usage.promptTokens <= most) {
    return { promptTokens: usage.promptTokens, isPromptPossible: true };
  }
  const promptTokens = mediaTokensAbout(media) > 0 ? counted.promptTokens : most;
  return { promptTokens, isPromptPossible: false };
}

/**
 * The engine's count of a whole answer. Before the end its count is of the text that had come by
 * then, and what came after is counted here; a count that is too small for its text is none.
 */
function outputOf(end: RoundEnd, reported: ReportedUsage, counted: TokenUsage, most: number) {
  const said = reported.usage.completionTokens;
  if (said > most) return { tokens: counted.completionTokens, isEngines: false };
  if (end.extent === 'whole') return { tokens: said, isEngines: true };
  if (said < tokensAtLeast(reported.atBytes)) {
    return { tokens: counted.completionTokens, isEngines: false };
  }
  const sinceBytes = outputBytes(end.tally) - reported.atBytes;
  const tokens = Math.min(said + tokensAbout(sinceBytes), most);
  return { tokens, isEngines: sinceBytes === 0 };
}

/** By the bytes of the text, whatever pieces it came in; media by their number. */
function countedUsage(
  tally: Readonly<OutputTally>,
  { round, media }: RoundMeasure,
  most: number,
): TokenUsage {
  const bytes = outputBytes(tally);
  const completionTokens = Math.min(tokensAbout(bytes), most);
  const reasoningShare = bytes === 0 ? 0 : tally.reasoningBytes / bytes;
  const promptTokens = tokensAbout(round.promptBytes) + mediaTokensAbout(media);
  return {
    promptTokens: Math.min(promptTokens, round.bounds.promptTokens),
    completionTokens,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: Math.floor(completionTokens * reasoningShare),
  };
}
