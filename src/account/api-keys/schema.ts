/** Shapes of `/api_keys`: what is asked and what is answered. Amounts are USD and DIEM. */
import { z } from 'zod';
import { pageQuery } from '../../http/read-request.ts';

const KIND = z.enum(['INFERENCE', 'ADMIN']);
const PERIOD = z.enum(['EPOCH', 'MONTH', 'LIFETIME']);
const PRIVACY = z.enum(['ALL', 'PRIVATE_TEXT', 'PRIVATE_ONLY']);

const MAX_DESCRIPTION = 64;
const MAX_MODELS = 500;
const MAX_MODEL_NAME = 200;
/** decisions.md 6: at most 500 active keys, so that one page shows all. */
const KEYS_PER_PAGE = 500;
/** More than any balance; keeps an amount exact as a JSON number. */
const MAX_AMOUNT = 9_000_000;

const Description = z
  .string()
  .min(1)
  .max(MAX_DESCRIPTION)
  .describe('What the key is for, shown in lists.');

const Amount = z
  .number()
  .min(0)
  .max(MAX_AMOUNT)
  .refine(hasNineDecimals, 'Must have at most 9 decimals');

function hasNineDecimals(amount: number): boolean {
  const [digits = '', exponent = '0'] = String(amount).split('e');
  const fraction = digits.split('.')[1]?.length ?? 0;
  return fraction - Number(exponent) <= 9;
}

const ConsumptionLimit = z
  .object({
    usd: Amount.nullish().describe('Most USD a period; null is no limit.'),
    diem: Amount.nullish().describe('Most daily credit (DIEM) a period; null is no limit.'),
    vcu: z.null().optional().describe('Always null; kept for old clients.'),
  })
  .describe('What the key may spend a period.');

const Models = z
  .array(z.string().min(1).max(MAX_MODEL_NAME))
  .min(1)
  .max(MAX_MODELS)
  .describe('Ids of the only models that the key may use; null is every model.');

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const INSTANT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]00:?00)$/;

const ExpiresAt = z
  .string()
  .max(40)
  .refine(isExpiry, 'Must be empty, a day (2027-01-31) or a time in UTC (2027-01-31T12:00:00Z)')
  .describe(
    'When the key stops: a day (from 00:00 UTC of that day on it is refused), a time in UTC, or "" for never.',
  )
  .meta({ examples: ['2027-01-31', '2027-01-31T12:00:00Z', ''] });

function isExpiry(text: string): boolean {
  if (text === '') return true;
  return (DAY.test(text) || INSTANT.test(text)) && isDate(text);
}

/** JavaScript rolls 31 February over; a day that does not exist is refused here. */
function isDate(text: string): boolean {
  const ms = Date.parse(text);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(text.slice(0, 10));
}

export type CreateKeyRequest = z.infer<typeof CreateKeyRequest>;
export const CreateKeyRequest = z
  .object({
    apiKeyType: KIND.describe('INFERENCE keys call models; ADMIN keys also manage the account.'),
    description: Description,
    consumptionLimit: ConsumptionLimit.nullish(),
    limitPeriod: PERIOD.nullish().describe(
      'When spending starts again from zero: each day (EPOCH, the default), each month, never. All in UTC.',
    ),
    modelPrivacy: PRIVACY.nullish().describe(
      'PRIVATE_TEXT: text models must be private; PRIVATE_ONLY: every model must be. Default ALL.',
    ),
    models: Models.nullish(),
    expiresAt: ExpiresAt.nullish(),
  })
  .meta({
    id: 'CreateApiKeyRequest',
    examples: [
      { apiKeyType: 'INFERENCE', description: 'ci', consumptionLimit: { usd: 50 }, expiresAt: '' },
    ],
  });

export type UpdateKeyRequest = z.infer<typeof UpdateKeyRequest>;
export const UpdateKeyRequest = z
  .object({
    id: z.string().min(1).max(100).describe('The key to change.'),
    description: Description.optional(),
    consumptionLimit: ConsumptionLimit.nullable()
      .optional()
      .describe('A missing member stays as it is; null takes the limit away.'),
    limitPeriod: PERIOD.optional().describe(
      'A new period counts what the key has spent in it so far.',
    ),
    modelPrivacy: PRIVACY.optional(),
    models: Models.nullable().optional(),
    expiresAt: ExpiresAt.nullable().optional().describe('"" or null: never.'),
  })
  .describe('A missing field stays as it is.')
  .meta({ id: 'UpdateApiKeyRequest', examples: [{ id: 'key_1', consumptionLimit: { usd: 75 } }] });

export const DeleteKeyQuery = z.object({
  id: z.string().min(1).max(100).describe('The key to revoke.'),
});

export const ListKeysQuery = z.object(pageQuery({ max: KEYS_PER_PAGE, usual: KEYS_PER_PAGE }));

const Limits = z.object({
  usd: z.number().nullable(),
  diem: z.number().nullable(),
  vcu: z.null(),
});
const Time = z.string().describe('ISO 8601, UTC.');
const DecimalText = z.string().describe('Decimal text of at least 4 and at most 9 decimals.');

export type ApiKeyItem = z.infer<typeof ApiKeyItem>;
export const ApiKeyItem = z
  .object({
    id: z.string(),
    apiKeyType: KIND,
    description: z.string(),
    createdAt: Time,
    expiresAt: Time.nullable(),
    lastUsedAt: Time.nullable().describe('Up to 20 seconds old where several servers run.'),
    last6Chars: z.string(),
    consumptionLimits: Limits,
    limitPeriod: PERIOD,
    modelPrivacy: PRIVACY,
    models: z.array(z.string()).nullable(),
    usage: z.object({
      trailingSevenDays: z.object({ usd: DecimalText, vcu: DecimalText, diem: DecimalText }),
    }),
    currentPeriodUsage: z
      .object({ usd: DecimalText, diem: DecimalText })
      .describe('What counts against the limits now.'),
  })
  .meta({ id: 'ApiKey' });

export const ApiKeyList = z.object({ object: z.literal('list'), data: z.array(ApiKeyItem) });
export const ApiKeyAnswer = z.object({ data: ApiKeyItem });
export const UpdatedKeyAnswer = z.object({ success: z.literal(true), data: ApiKeyItem });
export const DeletedKeyAnswer = z.object({ success: z.literal(true) });

export type CreatedKeyAnswer = z.infer<typeof CreatedKeyAnswer>;
export const CreatedKeyAnswer = z.object({
  success: z.literal(true),
  data: z.object({
    id: z.string(),
    apiKey: z.string().describe('The secret. It is shown here once and stored nowhere.'),
    apiKeyType: KIND,
    description: z.string(),
    consumptionLimit: Limits,
    limitPeriod: PERIOD,
    modelPrivacy: PRIVACY,
    models: z.array(z.string()).nullable(),
    expiresAt: Time.nullable(),
  }),
});
