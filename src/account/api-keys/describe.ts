/** What `/api_keys` says of itself. */
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import {
  ApiKeyAnswer,
  ApiKeyList,
  CreateKeyRequest,
  CreatedKeyAnswer,
  DeleteKeyQuery,
  DeletedKeyAnswer,
  ListKeysQuery,
  UpdateKeyRequest,
  UpdatedKeyAnswer,
} from './schema.ts';

const KEY = {
  id: 'key_019aa3f1c0de',
  apiKeyType: 'INFERENCE' as const,
  description: 'ci',
  createdAt: '2026-11-21T04:00:00.000Z',
  expiresAt: null,
  lastUsedAt: null,
  last6Chars: 'a1b2c3',
  consumptionLimits: { usd: 50, diem: null, vcu: null },
  limitPeriod: 'EPOCH' as const,
  modelPrivacy: 'ALL' as const,
  models: null,
  usage: { trailingSevenDays: { usd: '1.2300', vcu: '0.0000', diem: '0.0000' } },
  currentPeriodUsage: { usd: '0.5000', diem: '0.0000' },
};

export const LIST_KEYS: RouteDescription = {
  tag: 'API keys',
  summary: 'List keys',
  query: ListKeysQuery,
  answers: [
    {
      status: 200,
      about: 'Keys that are not revoked, newest first.',
      headers: ['page'],
      content: jsonContent(ApiKeyList, { object: 'list', data: [KEY] }),
    },
  ],
};

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
  answers: [
    {
      status: 200,
      about: 'The key, with its secret.',
      headers: ['no-store', 'rate'],
      content: jsonContent(CreatedKeyAnswer, {
        success: true,
        data: {
          id: KEY.id,
          apiKey: 'SVC_INFERENCE_KEY_…',
          apiKeyType: 'INFERENCE',
          description: 'ci',
          consumptionLimit: { usd: 50, diem: null, vcu: null },
          limitPeriod: 'MONTH',
          modelPrivacy: 'ALL',
          models: null,
          expiresAt: null,
        },
      }),
    },
  ],
  refusals: ['API_KEY_LIMIT_REACHED', 'RATE_LIMIT_EXCEEDED'],
};

export const UPDATE_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Change a key',
  request: jsonContent(UpdateKeyRequest, { id: KEY.id, consumptionLimit: { usd: 75 } }),
  answers: [
    {
      status: 200,
      about: 'The key as it is now.',
      content: jsonContent(UpdatedKeyAnswer, { success: true, data: KEY }),
    },
  ],
  refusals: ['API_KEY_NOT_FOUND'],
};

export const DELETE_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Revoke a key',
  query: DeleteKeyQuery,
  answers: [
    {
      status: 200,
      about: 'The key is refused from now on.',
      content: jsonContent(DeletedKeyAnswer, { success: true }),
    },
  ],
  refusals: ['API_KEY_NOT_FOUND'],
};

export const GET_KEY: RouteDescription = {
  tag: 'API keys',
  summary: 'Get a key',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the key.', example: KEY.id }],
  answers: [{ status: 200, about: 'The key.', content: jsonContent(ApiKeyAnswer, { data: KEY }) }],
  refusals: ['API_KEY_NOT_FOUND'],
};
