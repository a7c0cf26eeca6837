/** Shapes of `/api_keys/rate_limits` and of the log of refusals. */
import { z } from 'zod';

const Time = z.string().describe('ISO 8601, UTC.');

const Rate = z.object({
  type: z
    .enum(['RPM', 'RPD', 'TPM'])
    .describe('Requests a minute, requests a day, tokens a minute.'),
  amount: z.number().int(),
});

export type RateLimitsAnswer = z.infer<typeof RateLimitsAnswer>;
export const RateLimitsAnswer = z
  .object({
    data: z.object({
      accessPermitted: z.boolean().describe('Whether the credit is enough for a priced request.'),
      apiTier: z.object({ id: z.string().describe('The plan.'), isCharged: z.boolean() }),
      balances: z.object({
        USD: z.number(),
        DIEM: z.number().describe("What is left of today's."),
      }),
      keyExpiration: Time.nullable(),
      nextEpochBegins: Time.describe('When daily credit and EPOCH limits start again.'),
      rateLimits: z.array(
        z.object({
          apiModelId: z.string(),
          rateLimits: z.array(Rate).describe('A kind of limit that is missing does not apply.'),
        }),
      ),
    }),
  })
  .meta({ id: 'RateLimits' });

export type RateLimitLogAnswer = z.infer<typeof RateLimitLogAnswer>;
export const RateLimitLogAnswer = z
  .object({
    object: z.literal('list'),
    data: z
      .array(
        z.object({
          apiKeyId: z.string(),
          modelId: z.string().describe('A model, or `endpoint:<path>`.'),
          rateLimitTier: z.string().describe('The plan.'),
          rateLimitType: z.enum([
            'RPM',
            'RPD',
            'TPM',
            'FAILED_REQUESTS',
            'UNSUPPORTED_FEATURE_REQUESTS',
          ]),
          timestamp: Time,
        }),
      )
      .describe('The last 50, newest first.'),
  })
  .meta({ id: 'RateLimitLog' });
