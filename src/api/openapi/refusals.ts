/**
 * Refusals of a route: its own codes and those that its stages give by what it declares, by status,
 * with their bodies. An undocumented code on a route is found by the check of the tests.
 */
import { FAULTS, type FaultCode } from '../../kernel/faults.ts';
import type { JsonSchema } from '../describe.ts';
import type { Route } from '../route.ts';

const EVERYWHERE: readonly FaultCode[] = ['INVALID_REQUEST', 'UNKNOWN_ERROR'];
const BELOW_BASE: readonly FaultCode[] = [
  'FAILED_REQUESTS',
  'SERVICE_UNAVAILABLE',
  'SHUTTING_DOWN',
];
const WITH_CREDENTIALS: readonly FaultCode[] = [
  'AUTHENTICATION_FAILED',
  'AUTHENTICATION_FAILED_INACTIVE_KEY',
  'API_ACCESS_DISABLED',
  // A wallet's token is read wherever a bearer is, and can be too old.
  'X402_INVALID_SIGN_IN',
  'PAYMENT_REQUIRED',
  'PAYMENT_HEADER_NOT_ACCEPTED',
  'RATE_LIMIT_EXCEEDED',
];
const WITH_BODY: readonly FaultCode[] = [
  'INVALID_JSON',
  'PAYLOAD_TOO_LARGE',
  'INVALID_CONTENT_TYPE',
];
const PRICED: readonly FaultCode[] = [
  'INSUFFICIENT_BALANCE',
  'API_KEY_USD_SPEND_LIMIT_EXCEEDED',
  'API_KEY_DIEM_SPEND_LIMIT_EXCEEDED',
  'INVALID_IDEMPOTENCY_KEY',
  'IDEMPOTENCY_KEY_REUSED',
  'REQUEST_IN_PROGRESS',
];
/** Of a payment: at the top-up, and in a header of an inference request. */
export const PAYMENT_REFUSALS: readonly FaultCode[] = [
  'INVALID_PAYMENT_FORMAT',
  'INVALID_PAYMENT',
  'UNSUPPORTED_NETWORK',
  'INVALID_PAYMENT_RECIPIENT',
  'UNSUPPORTED_TOKEN',
  'UNSUPPORTED_SCHEME',
  'INVALID_AMOUNT',
  'INVALID_PAYMENT_PAYER',
  'AMOUNT_TOO_LOW',
  'AMOUNT_TOO_HIGH',
  'PAYMENT_VERIFICATION_FAILED',
  'SETTLEMENT_FAILED',
  'PAYMENT_IN_PROGRESS',
  'PAYMENT_ALREADY_CREDITED',
  'SETTLEMENT_TIMEOUT',
  'SETTLEMENT_PENDING',
];

/** Refusals of running a model, for the routes that do. */
export const MODEL_REFUSALS: readonly FaultCode[] = [
  'INVALID_MODEL',
  'PRO_ONLY_MODEL',
  'MODEL_NOT_ALLOWED',
  'UNAUTHORIZED',
  'MODEL_NOT_FOUND',
  'MODEL_RETIRED',
  'CONTENT_POLICY_VIOLATION',
  'MODEL_OVERLOADED',
  'INFERENCE_FAILED',
  'MODEL_OFFLINE',
  'MODEL_AT_CAPACITY',
  'REQUEST_TIMEOUT',
];

/** Refusals of a wallet's sign-in. */
export const SIGN_IN_REFUSALS = Object.keys(FAULTS).filter((code) =>
  /^X402_(?:INVALID_)?SIGN_IN/.test(code),
) as FaultCode[]; // keys of the catalogue

/** The codes that a route can answer with. */
export function refusalsOf(route: Route): FaultCode[] {
  const codes = new Set<FaultCode>(route.describe?.refusals ?? []);
  const add = (more: readonly FaultCode[]): void => more.forEach((code) => codes.add(code));
  add(EVERYWHERE);
  if (route.operational !== true) add(BELOW_BASE);
  if (route.auth !== 'public') add(WITH_CREDENTIALS);
  if (takesWallets(route))
    add([...SIGN_IN_REFUSALS, 'X402_NOT_CONFIGURED', 'X402_CONCURRENCY_LIMIT']);
  if (route.auth === 'key-or-wallet') add(PAYMENT_REFUSALS);
  if (route.auth.startsWith('admin')) add(['ADMIN_KEY_REQUIRED']);
  if (route.body !== undefined) add(WITH_BODY);
  if (route.sells !== undefined) add(PRICED);
  return [...codes];
}

export function takesWallets(route: Route): boolean {
  return route.auth.endsWith('wallet');
}

/** Codes by status, lowest first. */
export function byStatus(codes: readonly FaultCode[]): [number, FaultCode[]][] {
  const groups = Map.groupBy(codes, (code) => FAULTS[code].status);
  return [...groups].sort(([a], [b]) => a - b);
}

/** The shapes of error bodies, as components. */
export const ERROR_SCHEMAS = {
  Error: {
    type: 'object',
    description: 'What was wrong and what would be right.',
    required: ['error'],
    properties: {
      error: { type: 'string', description: 'A sentence for people.' },
      code: { type: 'string', description: 'A word for programs, from the error catalogue.' },
      details: {
        type: 'object',
        description: 'Validation: `_errors` on every level and one key per invalid field.',
        properties: { _errors: { type: 'array', items: { type: 'string' } } },
      },
      issues: {
        type: 'array',
        description: 'The same as a flat list.',
        items: {
          type: 'object',
          required: ['code', 'path', 'message'],
          properties: {
            code: { type: 'string' },
            path: { type: 'array', items: { type: ['string', 'integer'] } },
            message: { type: 'string' },
          },
        },
      },
    },
  },
  OpenAiError: {
    type: 'object',
    description: "OpenAI's shape: with the header `x-svc-error-format: openai`.",
    required: ['error'],
    properties: {
      error: {
        type: 'object',
        required: ['message', 'type', 'code'],
        properties: {
          message: { type: 'string' },
          type: { type: 'string' },
          param: { type: ['string', 'null'] },
          code: { type: ['string', 'null'] },
        },
      },
    },
  },
  PaymentRequired: {
    type: 'object',
    description: 'How to get access: sent when a request has no credentials.',
    required: ['x402Version', 'accepts'],
    properties: {
      x402Version: { type: 'number' },
      error: { type: 'string' },
      resource: {
        type: 'object',
        required: ['url', 'description', 'mimeType'],
        properties: {
          url: { type: 'string' },
          description: { type: 'string' },
          mimeType: { type: 'string' },
        },
      },
      accepts: {
        type: 'array',
        description: 'Payment options of a wallet; sign exactly one.',
        items: {
          type: 'object',
          required: ['scheme', 'network', 'asset', 'amount', 'payTo', 'maxTimeoutSeconds'],
          properties: {
            scheme: { const: 'exact' },
            network: { type: 'string' },
            asset: { type: 'string' },
            amount: { type: 'string', description: 'Base units; USDC has 6 decimals.' },
            payTo: { type: 'string' },
            maxTimeoutSeconds: { type: 'number' },
            extra: { type: 'object' },
          },
        },
      },
      extensions: { type: 'object', description: 'Holds the challenge of `sign-in-with-x`.' },
      authOptions: {
        type: 'object',
        required: ['apiKey', 'x402Wallet'],
        properties: { apiKey: { type: 'object' }, x402Wallet: { type: 'object' } },
      },
    },
  },
  InsufficientCredit: {
    type: 'object',
    description: 'A wallet is known and its credit is too low.',
    required: [
      'error',
      'code',
      'reason',
      'suggestedTopUpUsd',
      'minimumTopUpUsd',
      'supportedTokens',
      'supportedChains',
      'topUpInstructions',
      'siwxChallenge',
    ],
    properties: {
      error: { const: 'Payment required' },
      code: { const: 'PAYMENT_REQUIRED' },
      reason: { const: 'insufficient_balance' },
      message: { type: 'string' },
      currentBalanceUsd: { type: 'number' },
      minimumBalanceUsd: { type: 'number' },
      description: { type: 'string' },
      suggestedTopUpUsd: { type: 'number' },
      minimumTopUpUsd: { type: 'number' },
      supportedTokens: { type: 'array', items: { type: 'string' } },
      supportedChains: { type: 'array', items: { type: 'string' } },
      topUpInstructions: { type: 'object' },
      siwxChallenge: { type: 'object' },
    },
  },
} as const satisfies Record<string, JsonSchema>;

const reference = (name: keyof typeof ERROR_SCHEMAS): JsonSchema => ({
  $ref: `#/components/schemas/${name}`,
});

/** The body of a refusal with one of `codes`; other codes do not fit. */
export function errorSchema(status: number, codes: readonly FaultCode[]): JsonSchema {
  const standard = {
    allOf: [
      reference('Error'),
      { properties: { error: { type: 'string' }, code: { enum: [...codes] } } },
    ],
  };
  const further =
    status === 402 ? [reference('PaymentRequired'), reference('InsufficientCredit')] : [];
  return { anyOf: [standard, reference('OpenAiError'), ...further] };
}
