/** Request members that several chat protocols share. */
import * as z from 'zod';

/** Includes suffixes of the model name. */
export const MAX_MODEL_CHARACTERS = 2_048;
/**
 * Maximum number of stop texts by the protocol of the caller. An engine can accept fewer: `maxStops` of its dialect.
 * Both limits reject a request; no stop text is dropped.
 */
export const STOP_LIMITS = { chat: 4, completions: 4, messages: 64 } as const;

export const flag = z.boolean().nullish();
export const count = z.int().min(0).nullish();
export const probability = z.number().min(0).max(1).nullish();
export const penalty = z.number().min(-2).max(2).nullish();

export const modelName = z
  .string()
  .min(1)
  .max(MAX_MODEL_CHARACTERS)
  .describe(
    'Id of a model, a trait such as `default`, or a compatibility name; `:parameter=value` after it sets service parameters.',
  );

export const isStream = flag.describe('Whether to send server-sent events. Default false.');

export const temperature = z
  .number()
  .min(0)
  .max(2)
  .nullish()
  .describe("0 to 2: higher is more random. Default: the model's.");

export const topP = probability.describe('0 to 1: picks among the likeliest tokens.');

export const topK = count.describe('Number of likeliest tokens to pick from; 0 for all.');

export const presencePenalty = penalty.describe(
  '-2 to 2: reduces repetition of used tokens. Default 0.',
);

export const frequencyPenalty = penalty.describe('-2 to 2: reduces frequent tokens. Default 0.');

/** Requests of Messages become chats. */
export const stopTexts = stopsUpTo(STOP_LIMITS.messages);

export function stopsUpTo(most: number) {
  return z
    .union([z.string(), z.array(z.string()).max(most)], 'Expected a string or a list of strings')
    .nullish();
}

export const verbosity = z.enum(['low', 'medium', 'high', 'auto']).nullish();

export const parallelToolCalls = flag.describe('Whether to allow parallel tool calls.');

export const promptCacheKey = z
  .string()
  .nullish()
  .describe(
    'Requests of an account with the same key go to the same replica, which caches their prompt prefix.',
  );
