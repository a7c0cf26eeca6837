/** Schemas and descriptions of `/admin/accounts/{id}/keys`. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse, jsonContent, listOf } from '../../http/describe.ts';
import {
  ApiKeyItem,
  CreateKeyRequest,
  CreatedKeyResponse,
  DeletedKeyResponse,
  KEY,
  LIST_KEYS,
  ListKeysQuery,
  Time,
  UpdateKeyRequest,
  createdKey,
} from '../api-key-schema.ts';
import {
  ACCOUNT,
  ACCOUNT_PATH,
  LimitsChange,
  LimitsItem,
  ofAccount,
} from './operator-accounts-schema.ts';

const KEY_PATH = [
  ...ACCOUNT_PATH,
  { name: 'keyId', in: 'path', about: 'Id of the key.', example: KEY.id },
] as const;

export type OperatorKey = z.infer<typeof OperatorKey>;
const OperatorKey = ApiKeyItem.extend({
  limits: LimitsItem,
  revokedAt: Time.nullable().describe('Null for a key that is not revoked.'),
}).meta({ id: 'OperatorApiKey' });

export const OperatorKeysQuery = ListKeysQuery.extend({
  revoked: z.enum(['true', 'false']).optional().describe('`true` includes revoked keys.'),
});

const SAMPLE: OperatorKey = { ...KEY, limits: ACCOUNT.limits, revokedAt: null };

export const LIST_ACCOUNT_KEYS: RouteDescription = {
  ...ofAccount(LIST_KEYS, 'List keys of an account'),
  query: OperatorKeysQuery,
  response: jsonResponse(
    'Keys, newest first.',
    listOf(OperatorKey, 'The keys, newest first.'),
    { object: 'list', data: [SAMPLE] },
    'page',
  ),
};

export const CreateAccountKeyRequest = CreateKeyRequest.extend({
  limits: LimitsChange.optional(),
}).meta({ id: 'CreateAccountKeyRequest' });

export type CreatedAccountKey = z.infer<typeof CreatedAccountKey>;
const CreatedAccountKey = CreatedKeyResponse.extend({
  data: CreatedKeyResponse.shape.data
    .extend({
      apiKey: z
        .string()
        .nullable()
        .describe(
          'The secret, which is shown only here and is not stored. It is null in a repeated response; revoke the key then and create another one.',
        ),
    })
    .describe('The new key, with its secret.'),
});

export const CREATE_ACCOUNT_KEY: RouteDescription = {
  tag: 'Operator',
  summary: 'Create a key for an account',
  parameters: ACCOUNT_PATH,
  request: jsonContent(CreateAccountKeyRequest, { apiKeyType: 'INFERENCE', description: 'first' }),
  response: createdKey({ description: 'first' }, CreatedAccountKey),
  refusals: ['ACCOUNT_NOT_FOUND', 'API_KEY_LIMIT_REACHED'],
};

export const ChangeAccountKeyRequest = UpdateKeyRequest.omit({ id: true })
  .extend({ limits: LimitsChange.optional() })
  .meta({ id: 'ChangeAccountKeyRequest' });

export const CHANGE_ACCOUNT_KEY: RouteDescription = {
  tag: 'Operator',
  summary: 'Change a key of an account',
  about: 'Can also change the rate limits, which the owner of the key cannot.',
  parameters: KEY_PATH,
  request: jsonContent(ChangeAccountKeyRequest, { limits: { requestsPerMinute: 10 } }),
  response: jsonResponse(
    'The changed key.',
    z.object({
      success: z.literal(true).describe('The key was changed.'),
      data: OperatorKey.describe('The changed key.'),
    }),
    { success: true, data: SAMPLE },
  ),
  refusals: ['ACCOUNT_NOT_FOUND', 'API_KEY_NOT_FOUND'],
};

export const REVOKE_ACCOUNT_KEY: RouteDescription = {
  tag: 'Operator',
  summary: 'Revoke a key of an account',
  parameters: KEY_PATH,
  response: jsonResponse('The key is revoked.', DeletedKeyResponse, { success: true }),
  refusals: ['ACCOUNT_NOT_FOUND', 'API_KEY_NOT_FOUND'],
};
