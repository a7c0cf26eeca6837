/** What the routes of wallet-made keys say of themselves. */
import { z } from 'zod';
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { SIGN_IN_REFUSALS } from '../../http/openapi/refusals.ts';
import { CreatedKeyAnswer } from '../api-keys/schema.ts';
import { CreateWalletKeyRequest } from './schema.ts';

export const KEY_CHALLENGE: RouteDescription = {
  tag: 'API keys',
  summary: 'Get a text for a wallet to sign',
  answers: [
    {
      status: 200,
      about: 'A token of 15 minutes.',
      headers: ['no-store'],
      content: jsonContent(
        z.strictObject({ success: z.literal(true), data: z.strictObject({ token: z.string() }) }),
        { success: true, data: { token: 'eyJ…' } },
      ),
    },
  ],
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
  answers: [
    {
      status: 200,
      about: 'The key, with its secret.',
      headers: ['no-store', 'rate'],
      content: jsonContent(CreatedKeyAnswer, {
        success: true,
        data: {
          id: 'key_019aa3f1c0de',
          apiKey: 'SVC_INFERENCE_KEY_…',
          apiKeyType: 'INFERENCE',
          description: 'agent',
          consumptionLimit: { usd: null, diem: null, vcu: null },
          limitPeriod: 'EPOCH',
          modelPrivacy: 'ALL',
          models: null,
          expiresAt: null,
        },
      }),
    },
  ],
  refusals: [
    ...SIGN_IN_REFUSALS,
    'X402_NOT_CONFIGURED',
    'AUTHENTICATION_FAILED',
    'API_KEY_LIMIT_REACHED',
    'RATE_LIMIT_EXCEEDED',
  ],
};
