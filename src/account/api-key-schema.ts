/** Schemas and descriptions of `/api_keys`. Amounts are USD and DIEM. */
import * as z from 'zod';
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
/** The maximum of active keys, so that one page has all. */
const KEYS_PER_PAGE = 500;
/** Exact as a JSON number with nine decimals. */
const MAX_AMOUNT = 9_000_000;

const SPEND_LIMITS = 'Spend limits of the key per period.';
const PERIODS =
  'Start of a new period: each day (EPOCH), each week on Monday, each month, or never (LIFETIME), at 00:00 UTC.';
const ALLOWED_MODELS = 'Ids of the models that the key may use; null: all models.';
const PRIVACIES =
  'PRIVATE_TEXT: text models must be private; PRIVATE_ONLY: all models must be private; ALL: any model.';
const EXPIRES =
  'Expiry of the key: a day (rejected from 00:00 UTC of this day on), a time in UTC, or "" for never.';
const KEY_ID = 'Id of the key, which is not a secret.';

const Description = z
  .string()
  .min(1)
  .max(MAX_DESCRIPTION)
  .describe('Purpose of the key, shown in lists.');

export const Amount = z.number().min(0).max(MAX_AMOUNT).refine(isExactUsd, TOO_FINE);

const ConsumptionLimit = z
  .object({
    usd: Amount.nullish().describe('Maximum USD per period; null: no limit.'),
    diem: Amount.nullish().describe('Maximum daily credit (DIEM) per period; null: no limit.'),
    vcu: z.null().optional().describe('Always null, for old clients.'),
  })
  .describe(SPEND_LIMITS);

const Models = z
  .array(z.string().min(1).max(MAX_MODEL_NAME))
  .min(1)
  .max(MAX_MODELS)
  .describe(ALLOWED_MODELS);

const DAY = /^\d{4}-\d{2}-\d{2}$/;
const INSTANT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]00:?00)$/;

const ExpiresAt = z
  .string()
  .max(40)
  .refine(isExpiry, 'Must be empty, a day (2027-01-31) or a time in UTC (2027-01-31T12:00:00Z)')
  .describe(EXPIRES)
  .meta({ examples: ['2027-01-31', '2027-01-31T12:00:00Z', ''] });

function isExpiry(text: string): boolean {
  return text === '' || ((DAY.test(text) || INSTANT.test(text)) && isDay(text));
}

export type CreateKeyRequest = z.infer<typeof CreateKeyRequest>;
export const CreateKeyRequest = z
  .object({
    apiKeyType: KIND,
    description: Description,
    consumptionLimit: ConsumptionLimit.nullish().describe(SPEND_LIMITS),
    limitPeriod: PERIOD.nullish().describe(`${PERIODS} Default: EPOCH.`),
    modelPrivacy: PRIVACY.nullish().describe(`${PRIVACIES} Default: ALL.`),
    models: Models.nullish().describe(ALLOWED_MODELS),
    expiresAt: ExpiresAt.nullish().describe(EXPIRES),
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
    description: Description.nullish().describe('Purpose of the key, shown in lists.'),
    consumptionLimit: ConsumptionLimit.nullable()
      .optional()
      .describe('A missing member does not change; null removes the limit.'),
    limitPeriod: PERIOD.nullish().describe(
      'A new period includes the earlier spending of the key in it.',
    ),
    modelPrivacy: PRIVACY.nullish().describe(PRIVACIES),
    models: Models.nullable().optional().describe(ALLOWED_MODELS),
    expiresAt: ExpiresAt.nullable().optional().describe('"" or null: never.'),
  })
  .describe(
    'A missing field does not change. Null is the same as a missing field, except where it is described.',
  )
  .meta({ id: 'UpdateApiKeyRequest', examples: [{ id: 'key_1', consumptionLimit: { usd: 75 } }] });

export const DeleteKeyQuery = z.object({
  id: z.string().min(1).max(100).describe('The key to revoke.'),
});

export const ListKeysQuery = z.object(pageQuery({ max: KEYS_PER_PAGE, usual: KEYS_PER_PAGE }));

const Limits = z.object({
  usd: z.number().nullable().describe('Maximum USD per period; null: no limit.'),
  diem: z.number().nullable().describe('Maximum daily credit per period; null: no limit.'),
  vcu: z.null().describe('Always null, for old clients.'),
});
export const Time = z.string().describe('ISO 8601, UTC.');
export const DecimalText = z.string().describe('Decimal text with 4 to 9 decimals.');
const Spent = {
  usd: DecimalText.describe('USD, decimal text.'),
  diem: DecimalText.describe('Daily credit, decimal text.'),
};

/** Members of every response with a key. */
const KeyMembers = {
  id: z.string().describe(KEY_ID),
  apiKeyType: KIND,
  description: z.string().describe('Purpose of the key.'),
  limitPeriod: PERIOD.describe(PERIODS),
  modelPrivacy: PRIVACY.describe(PRIVACIES),
  models: z.array(z.string()).nullable().describe(ALLOWED_MODELS),
  expiresAt: Time.nullable().describe('Expiry; ISO 8601, UTC. Null: never.'),
};

export type ApiKeyItem = z.infer<typeof ApiKeyItem>;
export const ApiKeyItem = z
  .object({
    ...KeyMembers,
    parentId: z
      .string()
      .nullable()
      .describe('Id of the key that created it (see `/key/children`), or null.'),
    createdAt: Time,
    lastUsedAt: Time.nullable().describe(
      'Time of the last use; up to 20 seconds behind if several servers run.',
    ),
    last6Chars: z.string().describe('End of the secret, to distinguish keys.'),
    consumptionLimits: Limits.describe(SPEND_LIMITS),
    usage: z
      .object({
        trailingSevenDays: z
          .object({ ...Spent, vcu: DecimalText.describe('Always zero, for old clients.') })
          .describe('In the last seven days, including today.'),
      })
      .describe('Spending of the key.'),
    currentPeriodUsage: z.object(Spent).describe('Spending in the current period.'),
  })
  .meta({ id: 'ApiKey' });

export const ApiKeyList = listOf(ApiKeyItem, 'The keys, newest first.');
export const ApiKeyResponse = z.object({ data: ApiKeyItem.describe('The key.') });
export const UpdatedKeyResponse = z.object({
  success: z.literal(true).describe('The key was changed.'),
  data: ApiKeyItem.describe('The changed key.'),
});
export const DeletedKeyResponse = z.object({
  success: z.literal(true).describe('The key is revoked.'),
});

export type CreatedKeyResponse = z.infer<typeof CreatedKeyResponse>;
export const CreatedKeyResponse = z.object({
  success: z.literal(true).describe('The key was created.'),
  data: z
    .object({
      ...KeyMembers,
      apiKey: z.string().describe('The secret, which is shown only here and is not stored.'),
      consumptionLimit: Limits.describe(SPEND_LIMITS),
    })
    .describe('The new key, with its secret.'),
});

/** Purpose of a key of a wallet that names none. */
export const WALLET_KEY = 'Web3 API key';

export const CreateWalletKeyRequest = CreateKeyRequest.extend({
  description: Description.nullish().describe(
    `Purpose of the key, shown in lists. Default: ${WALLET_KEY}.`,
  ),
  address: z.string().min(1).max(100).describe('The wallet that signed.'),
  token: z.string().min(1).max(512).describe('The token from `GET`.'),
  signature: z.string().min(1).max(8_192).describe('Signature of the token as text.'),
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

/** The response with a new key; `different` are the members that differ from a key without limits. */
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
  about: 'The secret is only in this response. At most 20 keys per minute, and 500 in all.',
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
  response: jsonResponse('The changed key.', UpdatedKeyResponse, { success: true, data: KEY }),
  refusals: ['API_KEY_NOT_FOUND'],
};

export const DELETE_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Revoke a key',
  about: 'Also revokes the keys that it has created.',
  query: DeleteKeyQuery,
  response: jsonResponse('The key is revoked.', DeletedKeyResponse, { success: true }),
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
    'A token that is valid for 15 minutes.',
    z.strictObject({
      success: z.literal(true).describe('The token was created.'),
      data: z
        .strictObject({ token: z.string().describe('The text to sign; valid once.') })
        .describe('The challenge.'),
    }),
    { success: true, data: { token: 'eyJ…' } },
    'no-store',
  ),
  refusals: ['X402_NOT_CONFIGURED'],
};

export const CREATE_WALLET_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Create a key for a wallet',
  about: 'The wallet signs the token from `GET` as text; the key spends the credit of the wallet.',
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
