/**
 * What a chat answer used and costs, over all its engine calls. The engine's own usage comes first,
 * as far as it is possible; what it did not count is counted here, by the bytes of the text, and the
 * record says so. No output and no engine work is free. What is used beside tokens has its count and
 * its price: the surcharge of the bill and the lines of the receipt are made of the same list.
 */
import { type Price, chargeForCalls, surcharge } from '../catalog/catalog.ts';
import { type Nano, ZERO, formatUsd, nano } from '../core/money.ts';
import { mediaTokensAbout, tokensAbout, tokensAtLeast } from '../core/token-count.ts';
import type { TokenCounts, UsageRecord } from '../billing/ledger/ledger.ts';
import { type OutputTally, outputBytes } from './wire/chat-choice.ts';
import type { ChatRequest } from './wire/chat-request.ts';
import type { ReportedUsage, TokenUsage } from '../engines/usage.ts';

export interface ExtraUse {
  /** In the words of the request's parameters. */
  readonly name: 'web_search' | 'web_scraping' | 'x_search';
  readonly count: number;
  readonly eachNano: Nano;
}

/** Prices of one search, of one page that was read, of one result of an engine's own search. */
export interface ExtraPrices {
  readonly searchNano: Nano;
  readonly pageNano: Nano;
  readonly socialNano: Nano;
}

const USD_DECIMALS = 9;

export function surchargesOf(uses: readonly ExtraUse[]): Nano {
  let sum = ZERO;
  for (const use of uses) sum = nano(sum + surcharge(use.count, use.eachNano));
  return sum;
}

/** The lines of the receipt, with USD as exact decimal text. */
export function receiptLines(
  uses: readonly ExtraUse[],
): Record<string, { readonly count: number; readonly usd: string }> {
  const lines: Record<string, { readonly count: number; readonly usd: string }> = {};
  for (const { name, count, eachNano } of uses) {
    if (count > 0)
      lines[name] = { count, usd: formatUsd(surcharge(count, eachNano), USD_DECIMALS) };
  }
  return lines;
}

export interface RoundEnd {
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

export interface RoundLimits {
  readonly promptBytes: number;
  readonly promptTokens: number;
  /** The output cap of one choice: what the engine is told. */
  readonly outputTokens: number;
}

export interface RoundUse extends TokenUsage {
  readonly countedBy: 'engine' | 'bytes';
  /** Whether the prompt is billed when there is no output. */
  readonly isWork: boolean;
  /** The engine said more than can be. */
  readonly isImpossible: boolean;
}

export interface ChatBill {
  readonly usage: TokenUsage;
  readonly tokens: TokenCounts;
  readonly countedBy: UsageRecord['countedBy'];
  readonly costNano: Nano;
  readonly extraUses: readonly ExtraUse[];
}

/** The bill of all rounds, with the searches, pages and the like that were really used. */
export function billChat(
  rounds: readonly RoundUse[],
  price: Price,
  extraUses: readonly ExtraUse[],
): ChatBill {
  const tokens = { prompt: 0, completion: 0, cached: 0, cacheWrite: 0, reasoning: 0 };
  let hasWork = false;
  let countedBy: 'engine' | 'bytes' = 'engine';
  for (const round of rounds) {
    tokens.prompt += round.promptTokens;
    tokens.completion += round.completionTokens;
    tokens.cached += round.cachedTokens;
    tokens.cacheWrite += round.cacheWriteTokens;
    tokens.reasoning += round.reasoningTokens;
    hasWork ||= round.isWork;
    if (round.countedBy === 'bytes') countedBy = 'bytes';
  }
  const surcharges = extraUses.length === 0 ? ZERO : surchargesOf(extraUses);
  // An empty answer that cost the engine no work is free: nothing to pay for the tokens.
  const isDue = tokens.completion > 0 || hasWork;
  const usage = {
    promptTokens: tokens.prompt,
    completionTokens: tokens.completion,
    cachedTokens: tokens.cached,
    cacheWriteTokens: tokens.cacheWrite,
    reasoningTokens: tokens.reasoning,
  };
  const costNano = isDue ? chargeForCalls(rounds, { surcharges }, price) : surcharges;
  return { usage, tokens, countedBy, costNano, extraUses };
}

/** The usage of one engine call, within what its hold covers. The one place that counts. */
export function roundUse(
  end: RoundEnd,
  round: RoundLimits,
  request: Pick<ChatRequest, 'facts' | 'choiceCount'>,
): RoundUse {
  const { reported, extent } = end;
  // A request for no output pays for reading the prompt.
  const isWork = extent === 'unseen' || round.outputTokens === 0;
  const mostOutput = round.outputTokens * request.choiceCount;
  const said = reported?.usage;
  const isImpossible =
    said !== undefined &&
    (said.promptTokens > round.promptTokens || said.completionTokens > mostOutput);
  if (said !== undefined && extent === 'whole' && !isImpossible) {
    return { ...said, countedBy: 'engine', isWork, isImpossible };
  }
  const counted = countedUsage(end, round, request, mostOutput);
  if (reported === undefined || said === undefined) {
    return { ...counted, countedBy: 'bytes', isWork, isImpossible };
  }
  // A prompt that is longer than its bound is billed as the bound. Media have none of their own: the
  // whole context is theirs, and an engine that says more than that is not believed at all.
  let { promptTokens } = said;
  if (promptTokens > round.promptTokens) {
    const hasMedia = mediaTokensAbout(request.facts) > 0;
    promptTokens = hasMedia ? counted.promptTokens : round.promptTokens;
  }
  const output = outputOf(end, reported, counted.completionTokens, mostOutput);
  const { tokens: completionTokens, isEngines } = output;
  const reasoning = isEngines ? said.reasoningTokens : counted.reasoningTokens;
  const cachedTokens = Math.min(said.cachedTokens, promptTokens);
  return {
    ...said,
    promptTokens,
    completionTokens,
    cachedTokens,
    cacheWriteTokens: Math.min(said.cacheWriteTokens, promptTokens - cachedTokens),
    reasoningTokens: Math.min(reasoning, completionTokens),
    countedBy: isEngines ? 'engine' : 'bytes',
    isWork,
    isImpossible,
  };
}

/**
 * The engine's count of a whole answer. Before the end its count is of the text that had come by
 * then, and what came after is counted here; a count that is too small for its text is none.
 */
function outputOf(end: RoundEnd, reported: ReportedUsage, counted: number, most: number) {
  const said = reported.usage.completionTokens;
  if (said > most) return { tokens: counted, isEngines: false };
  if (end.extent === 'whole') return { tokens: said, isEngines: true };
  if (said < tokensAtLeast(reported.atBytes)) return { tokens: counted, isEngines: false };
  const sinceBytes = outputBytes(end.tally) - reported.atBytes;
  const tokens = Math.min(said + tokensAbout(sinceBytes), most);
  return { tokens, isEngines: sinceBytes === 0 };
}

/** By the bytes of the text, whatever pieces it came in; media by their number. */
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
