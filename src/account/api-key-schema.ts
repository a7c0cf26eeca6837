/** What `/api_keys` says of itself: what is asked and what is answered. Amounts are USD and DIEM. */
import { z } from 'zod';
import { TOO_FINE, isExactUsd } from '../core/money.ts';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../http/describe.ts';
import { SIGN_IN_REFUSALS } from '../http/openapi/refusals.ts';
import { pageQuery } from '../http/read-request.ts';
import { isDay } from './usage-schema.ts';

const KIND = z
  .enum(['INFERENCE', 'ADMIN'])
  .describe('INFERENCE keys call models; ADMIN keys also manage the account.');
export const PERIOD = z.enum(['EPOCH', 'WEEK', 'MONTH', 'LIFETIME']);
const PRIVACY = z.enum(['ALL', 'PRIVATE_TEXT', 'PRIVATE_ONLY']);

const MAX_DESCRIPTION = 64;
const MAX_MODELS = 500;
const MAX_MODEL_NAME = 200;
/** At most 500 active keys, so that one page shows all. */
const KEYS_PER_PAGE = 500;
/** More than any balance; keeps an amount exact as a JSON number. */
const MAX_AMOUNT = 9_000_000;

const Description = z
  .string()
  .min(1)
  .max(MAX_DESCRIPTION)
  .describe('What the key is for, shown in lists.');

export const Amount = z.number().min(0).max(MAX_AMOUNT).refine(isExactUsd, TOO_FINE);

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
  return text === '' || ((DAY.test(text) || INSTANT.test(text)) && isDay(text));
}

export type CreateKeyRequest = z.infer<typeof CreateKeyRequest>;
export const CreateKeyRequest = z
  .object({
    apiKeyType: KIND,
    description: Description,
    consumptionLimit: ConsumptionLimit.nullish().describe(
      'What the key may spend a period; null is no limit.',
    ),
    limitPeriod: PERIOD.nullish().describe(
      'When spending starts again from zero: each day (EPOCH, the default), each week on Monday, each month, never. All in UTC.',
    ),
    modelPrivacy: PRIVACY.nullish().describe(
      'PRIVATE_TEXT: text models must be private; PRIVATE_ONLY: every model must be. Default ALL.',
    ),
    models: Models.nullish().describe(
      'Ids of the only models that the key may use; null, the default, is every model.',
    ),
    expiresAt: ExpiresAt.nullish().describe(
      'When the key stops: a day (from 00:00 UTC of that day on it is refused), a time in UTC, or "" for never, the default.',
    ),
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
    modelPrivacy: PRIVACY.optional().describe(
      '`PRIVATE_TEXT`: text models must be private; `PRIVATE_ONLY`: every model must be.',
    ),
    models: Models.nullable()
      .optional()
      .describe('Ids of the only models that the key may use; null is every model.'),
    expiresAt: ExpiresAt.nullable().optional().describe('"" or null: never.'),
  })
  .describe('A missing field stays as it is.')
  .meta({ id: 'UpdateApiKeyRequest', examples: [{ id: 'key_1', consumptionLimit: { usd: 75 } }] });

export const DeleteKeyQuery = z.object({
  id: z.string().min(1).max(100).describe('The key to revoke.'),
});

export const ListKeysQuery = z.object(pageQuery({ max: KEYS_PER_PAGE, usual: KEYS_PER_PAGE }));

const Limits = z.object({
  usd: z.number().nullable().describe('Most USD a period; null is no limit.'),
  diem: z.number().nullable().describe('Most daily credit a period; null is no limit.'),
  vcu: z.null().describe('Always null; kept for old clients.'),
});
export const Time = z.string().describe('ISO 8601, UTC.');
export const DecimalText = z
  .string()
  .describe('Decimal text of at least 4 and at most 9 decimals.');

/** What answers say of the bounds of a key, beside its limits. */
const Bounds = {
  limitPeriod: PERIOD.describe(
    'When spending starts again from zero: each day (EPOCH), each week on Monday, each month, never. All in UTC.',
  ),
  modelPrivacy: PRIVACY.describe(
    'Which models by their privacy: every one, text models that are private, or private ones only.',
  ),
  models: z
    .array(z.string())
    .nullable()
    .describe('Ids of the only models that the key may use; null is every model.'),
};

export type ApiKeyItem = z.infer<typeof ApiKeyItem>;
export const ApiKeyItem = z
  .object({
    id: z.string().describe('Id of the key; it is no secret.'),
    apiKeyType: KIND,
    description: z.string().describe('What the key is for.'),
    parentId: z
      .string()
      .nullable()
      .describe('The key that made it, if one did: see `/key/children`.'),
    createdAt: Time,
    expiresAt: Time.nullable().describe('When it stops; ISO 8601, UTC. Null is never.'),
    lastUsedAt: Time.nullable().describe('Up to 20 seconds old where several servers run.'),
    last6Chars: z.string().describe('End of the secret, to tell keys apart.'),
    consumptionLimits: Limits.describe('What the key may spend a period.'),
    ...Bounds,
    usage: z
      .object({
        trailingSevenDays: z
          .object({
            usd: DecimalText.describe('USD, decimal text.'),
            vcu: DecimalText.describe('Always zero; kept for old clients.'),
            diem: DecimalText.describe('Daily credit, decimal text.'),
          })
          .describe('In the last seven days, today included.'),
      })
      .describe('What it has spent.'),
    currentPeriodUsage: z
      .object({
        usd: DecimalText.describe('USD, decimal text.'),
        diem: DecimalText.describe('Daily credit, decimal text.'),
      })
      .describe('What counts against the limits now.'),
  })
  .meta({ id: 'ApiKey' });

export const ApiKeyList = listOf(ApiKeyItem, 'The keys, newest first.');
export const ApiKeyResponse = z.object({ data: ApiKeyItem.describe('The key.') });
export const UpdatedKeyResponse = z.object({
  success: z.literal(true).describe('It was changed.'),
  data: ApiKeyItem.describe('The key as it is now.'),
});
export const DeletedKeyResponse = z.object({
  success: z.literal(true).describe('It was revoked, or had been.'),
});

export type CreatedKeyResponse = z.infer<typeof CreatedKeyResponse>;
export const CreatedKeyResponse = z.object({
  success: z.literal(true).describe('It was made.'),
  data: z
    .object({
      id: z.string().describe('Id of the key; it is no secret.'),
      apiKey: z.string().describe('The secret. It is shown here once and stored nowhere.'),
      apiKeyType: KIND,
      description: z.string().describe('What the key is for.'),
      consumptionLimit: Limits.describe('What the key may spend a period.'),
      ...Bounds,
      expiresAt: Time.nullable().describe('When it stops; ISO 8601, UTC. Null is never.'),
    })
    .describe('The new key, with its secret.'),
});

export const CreateWalletKeyRequest = CreateKeyRequest.extend({
  address: z.string().min(1).max(100).describe('The wallet that signed.'),
  token: z.string().min(1).max(512).describe('What `GET` gave.'),
  signature: z.string().min(1).max(8_192).describe('Of the token as text, by the wallet.'),
}).meta({ id: 'CreateWalletKeyRequest' });

const NO_LIMITS = { usd: null, diem: null, vcu: null };
export const KEY: ApiKeyItem = {
  id: 'key_019aa3f1c0de',
  apiKeyType: 'INFERENCE',
  description: 'ci',
  parentId: null,
  createdAt: '2026-11-21T04:00:00.000Z',
  expiresAt: null,
  lastUsedAt: null,
  last6Chars: 'a1b2c3',
  consumptionLimits: { ...NO_LIMITS, usd: 50 },
  limitPeriod: 'EPOCH',
  modelPrivacy: 'ALL',
  models: null,
  usage: { trailingSevenDays: { usd: '1.2300', vcu: '0.0000', diem: '0.0000' } },
  currentPeriodUsage: { usd: '0.5000', diem: '0.0000' },
};

export const LIST_KEYS: RouteDescription = {
  tag: 'API keys',
  summary: 'List keys',
  query: ListKeysQuery,
  response: jsonResponse(
    'Keys that are not revoked, newest first.',
    ApiKeyList,
    { object: 'list', data: [KEY] },
    'page',
  ),
};

/** The response with a new key; `different` from a key without limits. */
export function createdKey(
  different: Partial<CreatedKeyResponse['data']>,
  schema: z.ZodType = CreatedKeyResponse,
) {
  const data: CreatedKeyResponse['data'] = {
    id: KEY.id,
    apiKey: 'SVC_INFERENCE_KEY_…',
    apiKeyType: 'INFERENCE',
    description: 'agent',
    consumptionLimit: NO_LIMITS,
    limitPeriod: 'EPOCH',
    modelPrivacy: 'ALL',
    models: null,
    expiresAt: null,
    ...different,
  };
  const example: CreatedKeyResponse = { success: true, data };
  return [jsonResponse('The key, with its secret.', schema, example, 'no-store', 'rate')];
}

export const CREATE_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Create a key',
  about: 'The secret is in this answer and nowhere else. At most 20 keys a minute, 500 in all.',
  request: jsonContent(CreateKeyRequest, {
    apiKeyType: 'INFERENCE',
    description: 'ci',
    consumptionLimit: { usd: 50 },
    limitPeriod: 'MONTH',
  }),
  response: createdKey({
    description: 'ci',
    consumptionLimit: KEY.consumptionLimits,
    limitPeriod: 'MONTH',
  }),
  refusals: ['API_KEY_LIMIT_REACHED', 'RATE_LIMIT_EXCEEDED'],
};

export const UPDATE_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Change a key',
  request: jsonContent(UpdateKeyRequest, { id: KEY.id, consumptionLimit: { usd: 75 } }),
  response: jsonResponse('The key as it is now.', UpdatedKeyResponse, { success: true, data: KEY }),
  refusals: ['API_KEY_NOT_FOUND'],
};

export const DELETE_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Revoke a key',
  about: 'All keys below it are revoked with it.',
  query: DeleteKeyQuery,
  response: jsonResponse('The key is refused from now on.', DeletedKeyResponse, { success: true }),
  refusals: ['API_KEY_NOT_FOUND'],
};

export const GET_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Get a key',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the key.', example: KEY.id }],
  response: jsonResponse('The key.', ApiKeyResponse, { data: KEY }),
  refusals: ['API_KEY_NOT_FOUND'],
};

export const KEY_CHALLENGE: RouteDescription = {
  tag: 'API keys',
  summary: 'Get a text for a wallet to sign',
  response: jsonResponse(
    'A token of 15 minutes.',
    z.strictObject({
      success: z.literal(true).describe('It was made.'),
      data: z
        .strictObject({
          token: z.string().describe('The text to sign, good once and for a few minutes.'),
        })
        .describe('What the wallet signs.'),
    }),
    { success: true, data: { token: 'eyJ…' } },
    'no-store',
  ),
  refusals: ['X402_NOT_CONFIGURED'],
};

export const CREATE_WALLET_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Create a key for a wallet',
  about: 'The wallet signs the token as text; the key spends the credit of the wallet.',
  request: jsonContent(CreateWalletKeyRequest, {
    apiKeyType: 'INFERENCE',
    description: 'agent',
    address: '0x52908400098527886E0F7030069857D2E4169EE7',
    token: 'eyJ…',
    signature: '0x…',
  }),
  response: createdKey({}),
  refusals: [
    ...SIGN_IN_REFUSALS,
    'X402_NOT_CONFIGURED',
    'AUTHENTICATION_FAILED',
    'API_KEY_LIMIT_REACHED',
    'RATE_LIMIT_EXCEEDED',
  ],
};
