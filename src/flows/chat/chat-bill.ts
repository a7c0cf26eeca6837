/**
 * What a chat answer used and costs, over all its engine calls. The engine's own usage comes first;
 * without one the stream's deltas and the text are counted, and the record says so. No output and
 * no engine work is free.
 */
import { type Price, chargeForCalls } from '../../catalog/catalog.ts';
import type { Nano } from '../../kernel/money.ts';
import { tokensAbout } from '../../kernel/token-count.ts';
import type { TokenCounts, UsageRecord } from '../../ledger/ledger.ts';
import type { OutputTally } from '../../wire/chat-response.ts';
import type { TokenUsage } from '../../wire/usage.ts';
import type { Round } from './round.ts';

export interface ChatBill {
  /** The sum of all rounds, for the caller and the record. */
  readonly usage: TokenUsage;
  readonly tokens: TokenCounts;
  readonly countedBy: UsageRecord['countedBy'];
  readonly costNano: Nano;
}

export interface RoundUse {
  readonly usage: TokenUsage | undefined;
  readonly tally: Readonly<OutputTally>;
  readonly round: Pick<Round, 'bounds' | 'promptBytes'>;
}

export interface BillInputs {
  readonly rounds: readonly RoundUse[];
  readonly choiceCount: number;
  readonly price: Price;
  /** Searches, pages and the like that were really used. */
  readonly surchargesNano: Nano;
}

export function billChat(inputs: BillInputs): ChatBill {
  const { rounds, choiceCount, price, surchargesNano } = inputs;
  const usages = rounds.map((round) => round.usage ?? countedUsage(round, choiceCount));
  const usage = usages.reduce(added, NO_USAGE);
  const tokens: TokenCounts = {
    prompt: usage.promptTokens,
    completion: usage.completionTokens,
    cached: usage.cachedTokens,
    cacheWrite: usage.cacheWriteTokens,
    reasoning: usage.reasoningTokens,
  };
  // Pricing, "Empty output": no output tokens, nothing to pay for the tokens.
  const costNano =
    usage.completionTokens > 0
      ? chargeForCalls(usages, { surcharges: surchargesNano }, price)
      : surchargesNano;
  const isCounted = rounds.some((round) => round.usage === undefined);
  return { usage, tokens, countedBy: isCounted ? 'deltas' : 'engine', costNano };
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

/** Nobody is billed for more than was held, so a count stays within its bounds. */
function countedUsage({ tally, round }: RoundUse, choiceCount: number): TokenUsage {
  const bytes = tally.contentBytes + tally.reasoningBytes + tally.toolBytes;
  const output = tally.deltas > 0 ? tally.deltas : tokensAbout(bytes);
  const reasoningShare = bytes === 0 ? 0 : tally.reasoningBytes / bytes;
  const completionTokens = Math.min(output, round.bounds.outputTokens * choiceCount);
  return {
    promptTokens: Math.min(tokensAbout(round.promptBytes), round.bounds.promptTokens),
    completionTokens,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: Math.floor(completionTokens * reasoningShare),
  };
}
