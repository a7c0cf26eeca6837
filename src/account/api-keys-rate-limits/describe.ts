/** What the routes of rate limits say of themselves. */
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { RateLimitLogAnswer, RateLimitsAnswer } from './schema.ts';

export const RATE_LIMITS: RouteDescription = {
  tag: 'API keys',
  summary: 'Limits in force',
  about: 'By the same rules that requests are admitted with: this is the authoritative source.',
  answers: [
    {
      status: 200,
      about: 'Limits by model, and the balances.',
      content: jsonContent(RateLimitsAnswer, {
        data: {
          accessPermitted: true,
          apiTier: { id: 'paid', isCharged: true },
          balances: { USD: 50.23, DIEM: 0 },
          keyExpiration: null,
          nextEpochBegins: '2026-11-22T00:00:00.000Z',
          rateLimits: [
            {
              apiModelId: 'atlas-24b',
              rateLimits: [
                { type: 'RPM', amount: 50 },
                { type: 'TPM', amount: 750000 },
              ],
            },
          ],
        },
      }),
    },
  ],
};

export const RATE_LIMIT_LOG: RouteDescription = {
  tag: 'API keys',
  summary: 'Requests that a limit refused',
  about: 'An ADMIN key sees the account, another key itself. Two paths, one answer.',
  answers: [
    {
      status: 200,
      about: 'The last 50, newest first.',
      content: jsonContent(RateLimitLogAnswer, {
        object: 'list',
        data: [
          {
            apiKeyId: 'key_019aa3f1c0de',
            modelId: 'atlas-24b',
            rateLimitTier: 'paid',
            rateLimitType: 'RPM',
            timestamp: '2026-11-21T04:00:00.000Z',
          },
        ],
      }),
    },
  ],
};

/** The same under its second path. */
export const RATE_LIMIT_LOGS: RouteDescription = {
  ...RATE_LIMIT_LOG,
  summary: 'The same, second path',
};
