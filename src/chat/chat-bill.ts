/**
 * Computes the usage and cost of a chat over all its engine calls. The engine's plausible usage
 * counts; otherwise tokens are estimated from the bytes of the text, and the record says so.
 * Without output and engine work, the chat is free.
 */
import {
  type Price,
  type StoredLine,
  chargeForCalls,
  storedTokenLines,
  surcharge,
} from '../catalog/catalog.ts';
import { type Nano, ZERO, formatUsd, nano } from '../core/money.ts';
import { mediaTokensAbout, tokensAbout, tokensAtLeast } from '../core/token-count.ts';
import type { TokenCounts, UsageRecord } from '../billing/ledger/ledger.ts';
import { type OutputTally, outputBytes } from './wire/chat-choice.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { EngineFailure, EngineOutcome } from '../engines/engines.ts';
import type { ReportedUsage, TokenDetail, TokenUsage } from '../engines/usage.ts';

export interface ExtraUse {
  readonly name: 'web_search' | 'web_scraping' | 'x_search';
  readonly count: number;
  readonly eachNano: Nano;
}

export interface ExtraPrices {
  readonly searchNano: Nano;
  readonly pageNano: Nano;
  readonly socialNano: Nano;
}

const USD_DECIMALS = 9;

interface SearchesOfModel {
  readonly autoSearch?: { readonly use: ExtraUse } | undefined;
  readonly socialSearch?: { readonly bound: ExtraUse } | undefined;
}

/** Searches of the model, and of the engine. */
export function searchUses(
  { autoSearch: auto, socialSearch: social }: SearchesOfModel,
  rounds: readonly RoundUse[],
): ExtraUse[] {
  const uses = auto === undefined ? [] : [auto.use];
  if (social === undefined || rounds.length === 0) return uses;
  // An engine that reports no sources has made one search.
  const sources = rounds.reduce((sum, round) => sum + (round.searchSources ?? 1), 0);
  return [...uses, { ...social.bound, count: Math.min(sources, social.bound.count) }];
}

export function surchargesOf(uses: readonly ExtraUse[]): Nano {
  let sum = ZERO;
  for (const use of uses) sum = nano(sum + surcharge(use.count, use.eachNano));
  return sum;
}

export function receiptLines(uses: readonly ExtraUse[]): Readonly<Record<string, unknown>> {
  const used = uses.filter(({ count }) => count > 0);
  const lines = used.map(({ name, count, eachNano }) => {
    return [name, { count, usd: formatUsd(surcharge(count, eachNano), USD_DECIMALS) }];
  });
  return Object.fromEntries(lines);
}

/** An engine call of a round. */
export type Attempted = Pick<EngineOutcome, 'attempts' | 'replica'> &
  Partial<Pick<EngineFailure, 'wasWorking'>>;

export interface RoundEnd {
  readonly reported: ReportedUsage | undefined;
  /** Output of the call, including text that was not sent. */
  readonly tally: Readonly<OutputTally>;
  /**
   * - `whole`: the engine has completed, so usage that it reported after the text is final
   * - `partial`: the caller left, the engine failed, or the grant ended
   * - `unseen`: the caller left while the engine worked, before any text
   */
  readonly extent: 'whole' | 'partial' | 'unseen';
}

export interface RoundLimits {
  readonly promptBytes: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

export interface RoundUse extends TokenUsage {
  readonly countedBy: 'engine' | 'bytes';
  /** Whether the prompt is billed without output. */
  readonly billsPrompt: boolean;
  /** Whether the engine reported more than the hold covers. */
  readonly exceedsBound: boolean;
}

export interface ChatBill {
  readonly usage: TokenUsage;
  readonly tokens: TokenCounts;
  readonly countedBy: UsageRecord['countedBy'];
  readonly costNano: Nano;
  readonly extraUses: readonly ExtraUse[];
  /** The priced tokens, if they do not follow from `tokens` and the price row. */
  readonly lines?: readonly StoredLine[];
}

export function billChat(
  rounds: readonly RoundUse[],
  price: Price,
  extraUses: readonly ExtraUse[],
): ChatBill {
  let detail: TokenDetail | undefined;
  const tokens = { prompt: 0, completion: 0, cached: 0, cacheWrite: 0, reasoning: 0 };
  let hasWork = false;
  let countedBy: 'engine' | 'bytes' = 'engine';
  for (const round of rounds) {
    tokens.prompt += round.promptTokens;
    tokens.completion += round.completionTokens;
    tokens.cached += round.cachedTokens;
    tokens.cacheWrite += round.cacheWriteTokens;
    tokens.reasoning += round.reasoningTokens;
    if (round.detail !== undefined) detail = addedDetail(detail, round.detail);
    hasWork ||= round.billsPrompt;
    if (round.countedBy === 'bytes') countedBy = 'bytes';
  }
  const surcharges = extraUses.length === 0 ? ZERO : surchargesOf(extraUses);
  const isDue = tokens.completion > 0 || hasWork;
  const summed = {
    promptTokens: tokens.prompt,
    completionTokens: tokens.completion,
    cachedTokens: tokens.cached,
    cacheWriteTokens: tokens.cacheWrite,
    reasoningTokens: tokens.reasoning,
  };
  const usage = detail === undefined ? summed : { ...summed, detail };
  const costNano = isDue ? chargeForCalls(rounds, { surcharges }, price) : surcharges;
  const bill = { usage, tokens, countedBy, costNano, extraUses };
  const isSimple =
    detail === undefined &&
    price.tokens?.special === undefined &&
    (rounds.length === 1 || price.steps === undefined);
  return isSimple || !isDue ? bill : { ...bill, lines: storedTokenLines(rounds, price) };
}

function addedDetail(sum: TokenDetail | undefined, more: TokenDetail): TokenDetail {
  if (sum === undefined) return more;
  return {
    cacheWrite1h: sum.cacheWrite1h + more.cacheWrite1h,
    audioInput: sum.audioInput + more.audioInput,
    imageInput: sum.imageInput + more.imageInput,
    audioOutput: sum.audioOutput + more.audioOutput,
    imageOutput: sum.imageOutput + more.imageOutput,
  };
}

/** The usage of one engine call, within the bounds of its hold. */
export function roundUse(
  end: RoundEnd,
  round: RoundLimits,
  request: Pick<ChatRequest, 'facts' | 'choiceCount'>,
): RoundUse {
  const { reported, extent } = end;
  const usage = reported?.usage;
  const mostOutput = round.outputTokens * request.choiceCount;
  const exceedsBound =
    usage !== undefined &&
    (usage.promptTokens > round.promptTokens || usage.completionTokens > mostOutput);
  // A request for no output pays for its prompt.
  const billsPrompt = extent === 'unseen' || round.outputTokens === 0;
  if (usage !== undefined && isFinalUsage(end) && !exceedsBound) {
    return { ...usage, countedBy: 'engine', billsPrompt, exceedsBound };
  }
  const counted = countedUsage(end, round, request, mostOutput);
  if (reported === undefined || usage === undefined) {
    return { ...counted, countedBy: 'bytes', billsPrompt, exceedsBound };
  }
  let { promptTokens } = usage;
  if (promptTokens > round.promptTokens) {
    // The bound of a prompt with media is the whole context, so a count above it is not plausible.
    const hasMedia = mediaTokensAbout(request.facts) > 0;
    promptTokens = hasMedia ? counted.promptTokens : round.promptTokens;
  }
  const output = outputOf(end, reported, counted.completionTokens, mostOutput);
  const { tokens: completionTokens, isEngines } = output;
  const reasoning = isEngines ? usage.reasoningTokens : counted.reasoningTokens;
  const cachedTokens = Math.min(usage.cachedTokens, promptTokens);
  return {
    ...usage,
    promptTokens,
    completionTokens,
    cachedTokens,
    cacheWriteTokens: Math.min(usage.cacheWriteTokens, promptTokens - cachedTokens),
    reasoningTokens: Math.min(reasoning, completionTokens),
    countedBy: isEngines ? 'engine' : 'bytes',
    billsPrompt,
    exceedsBound,
  };
}

/** Some engines report usage with the beginning of a stream, and none with its end. */
function isFinalUsage({ extent, reported, tally }: RoundEnd): boolean {
  return extent === 'whole' && reported !== undefined && reported.atBytes >= outputBytes(tally);
}

/**
 * The engine's count at the end. A count before the end is extended by an estimate of the later
 * text; a count too small for its text is ignored.
 */
function outputOf(end: RoundEnd, reported: ReportedUsage, counted: number, most: number) {
  const tokens = reported.usage.completionTokens;
  if (tokens > most) return { tokens: counted, isEngines: false };
  if (isFinalUsage(end)) return { tokens, isEngines: true };
  if (tokens < tokensAtLeast(reported.atBytes)) return { tokens: counted, isEngines: false };
  const sinceBytes = outputBytes(end.tally) - reported.atBytes;
  const sum = Math.min(tokens + tokensAbout(sinceBytes), most);
  return { tokens: sum, isEngines: sinceBytes === 0 };
}

function countedUsage(
  { tally }: RoundEnd,
  round: RoundLimits,
  { facts }: Pick<ChatRequest, 'facts'>,
  mostOutput: number,
): TokenUsage {
  const bytes = outputBytes(tally);
  const completionTokens = Math.min(tokensAbout(bytes), mostOutput);
  const reasoningShare = bytes === 0 ? 0 : tally.reasoningBytes / bytes;
  const promptTokens = tokensAbout(round.promptBytes) + mediaTokensAbout(facts);
  return {
    promptTokens: Math.min(promptTokens, round.promptTokens),
    completionTokens,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: Math.floor(completionTokens * reasoningShare),
  };
}
