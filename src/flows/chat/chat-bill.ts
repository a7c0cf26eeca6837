/**
 * What a chat answer used and costs. The engine's own usage comes first; without one the stream's
 * deltas and the text are counted, and the record says so. No output and no engine work is free.
 */
import { type Price, chargeFor } from '../../catalog/catalog.ts';
import type { Nano } from '../../kernel/money.ts';
import type { TokenCounts, UsageRecord } from '../../ledger/ledger.ts';
import type { OutputTally } from '../../wire/chat-response.ts';
import type { TokenUsage } from '../../wire/usage.ts';
import type { ChatBounds } from './chat-bounds.ts';

/** Prose takes about this many bytes a token; used when an engine counts nothing. */
const BYTES_PER_TOKEN = 4;

export interface ChatBill {
  readonly usage: TokenUsage;
  readonly tokens: TokenCounts;
  readonly countedBy: UsageRecord['countedBy'];
  readonly costNano: Nano;
}

export interface BillInputs {
  readonly usage: TokenUsage | undefined;
  readonly tally: Readonly<OutputTally>;
  readonly bounds: ChatBounds;
  readonly choiceCount: number;
  /** Bytes of the prompt's text. */
  readonly promptBytes: number;
  readonly price: Price;
  /** Searches, pages and the like that were really used. */
  readonly surchargesNano: Nano;
}

export function billChat(inputs: BillInputs): ChatBill {
  const usage = inputs.usage ?? countedUsage(inputs);
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
      ? chargeFor({ ...usage, surcharges: inputs.surchargesNano }, inputs.price)
      : inputs.surchargesNano;
  return { usage, tokens, countedBy: inputs.usage === undefined ? 'deltas' : 'engine', costNano };
}

/** Nobody is billed for more than was held, so a count stays within its bounds. */
function countedUsage(inputs: BillInputs): TokenUsage {
  const { tally, bounds } = inputs;
  const bytes = tally.contentBytes + tally.reasoningBytes + tally.toolBytes;
  const output = tally.deltas > 0 ? tally.deltas : Math.ceil(bytes / BYTES_PER_TOKEN);
  const reasoningShare = bytes === 0 ? 0 : tally.reasoningBytes / bytes;
  const completionTokens = Math.min(output, bounds.outputTokens * inputs.choiceCount);
  return {
    promptTokens: Math.min(Math.ceil(inputs.promptBytes / BYTES_PER_TOKEN), bounds.promptTokens),
    completionTokens,
    cachedTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: Math.floor(completionTokens * reasoningShare),
  };
}
