/**
 * Refusals of a route: its own codes and those that its stages give by what it declares, by status,
 * with their bodies. An undocumented code on a route is found by the check of the tests.
 */
import { FAULTS, type FaultCode } from '../../core/faults.ts';
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
/** What methods that can have a body can be refused for, whether the route reads one or not. */
const WITH_METHOD: readonly FaultCode[] = ['PAYLOAD_TOO_LARGE', 'INVALID_CONTENT_TYPE'];
const WITH_BODY: readonly FaultCode[] = ['INVALID_JSON'];
const PRICED: readonly FaultCode[] = [
  'INSUFFICIENT_BALANCE',
  'API_KEY_USD_SPEND_LIMIT_EXCEEDED',
  'API_KEY_DIEM_SPEND_LIMIT_EXCEEDED',
  'CREDIT_HELD',
  'INVALID_IDEMPOTENCY_KEY',
  'IDEMPOTENCY_KEY_REUSED',
  'IDEMPOTENT_ANSWER_NOT_KEPT',
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
  if (paysHere(route)) add(PAYMENT_REFUSALS);
  if (route.auth.startsWith('admin')) add(['ADMIN_KEY_REQUIRED']);
  if (route.method !== 'GET') add(WITH_METHOD);
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

const ERROR_TREE = { $ref: '#/components/schemas/ErrorTree' } as const;
const OPTIONAL_TEXT = { type: ['string', 'null'] } as const;

/** What a refusal can say beside its sentence and its code, each for some codes only. */
const FURTHER_FIELDS = {
  details: { ...ERROR_TREE, description: 'Validation: a key for each invalid field.' },
  issues: {
    type: 'array',
    description: 'The same as a flat list.',
    items: {
      type: 'object',
      required: ['code', 'path', 'message'],
      additionalProperties: false,
      properties: {
        code: { type: 'string' },
        path: { type: 'array', items: { type: ['string', 'integer'] } },
        message: { type: 'string' },
      },
    },
  },
  limit: {
    type: 'object',
    description: 'The spend limit of the key that is reached.',
    required: ['currency', 'amount', 'spent', 'resetsAt'],
    additionalProperties: false,
    properties: {
      currency: { enum: ['USD', 'DIEM'] },
      amount: { type: 'string' },
      spent: { type: 'string' },
      resetsAt: { ...OPTIONAL_TEXT, description: 'ISO 8601; null when it never does.' },
    },
  },
  customMessage: { type: 'string', description: 'Blockchain RPC: the limit in figures.' },
  width: { type: 'integer', description: 'Pixels of the refused image.' },
  height: { type: 'integer', description: 'Pixels of the refused image.' },
  credits_refunded: { const: true, description: 'A failed video: what was set aside is back.' },
} as const satisfies Record<string, JsonSchema>;

const RESOURCE = {
  type: 'object',
  required: ['url', 'description', 'mimeType'],
  additionalProperties: false,
  properties: {
    url: { type: 'string' },
    description: { type: 'string' },
    mimeType: { type: 'string' },
  },
} as const satisfies JsonSchema;

const AUTH_OPTIONS = {
  type: 'object',
  required: ['apiKey', 'x402Wallet'],
  additionalProperties: false,
  properties: {
    apiKey: texts(['header', 'getKey', 'docs']),
    x402Wallet: texts(['header', 'legacyHeader', 'topUp', 'docs']),
  },
} as const satisfies JsonSchema;

const PAYMENT_REQUIRED = {
  x402Version: { const: 2 },
  error: { type: 'string' },
  resource: RESOURCE,
  accepts: {
    type: 'array',
    description: 'Payment options of a wallet; sign exactly one. Empty where only keys pay.',
    items: { $ref: '#/components/schemas/PaymentOption' },
  },
  extensions: {
    type: 'object',
    additionalProperties: false,
    properties: {
      'sign-in-with-x': { $ref: '#/components/schemas/SignInChallenge' },
      'payment-identifier': {
        type: 'object',
        description: 'What an id that a client adds to its payment looks like.',
        required: ['info', 'schema'],
        additionalProperties: false,
        properties: { info: { type: 'object' }, schema: { type: 'object' } },
      },
    },
  },
  authOptions: AUTH_OPTIONS,
} as const satisfies Record<string, JsonSchema>;

const INSUFFICIENT_CREDIT = {
  error: { const: 'Payment required' },
  code: { const: 'PAYMENT_REQUIRED' },
  reason: { const: 'insufficient_balance' },
  message: { type: 'string' },
  currentBalanceUsd: { type: 'number' },
  minimumBalanceUsd: { type: 'number', description: 'What this request needs.' },
  description: { type: 'string' },
  suggestedTopUpUsd: { type: 'number' },
  minimumTopUpUsd: { type: 'number' },
  supportedTokens: { type: 'array', items: { type: 'string' } },
  supportedChains: { type: 'array', items: { type: 'string' } },
  topUpInstructions: {
    type: 'object',
    required: ['step1', 'step2', 'step3', 'receiverWallet', 'tokenAddress', 'network'],
    additionalProperties: false,
    properties: {
      step1: { type: 'string' },
      step2: { type: 'string' },
      step3: { type: 'string' },
      receiverWallet: { type: 'string' },
      tokenAddress: { type: 'string' },
      tokenDecimals: { type: 'integer' },
      network: { type: 'string' },
      minimumAmountUsd: { type: 'number' },
    },
  },
  siwxChallenge: { $ref: '#/components/schemas/SignInChallenge' },
} as const satisfies Record<string, JsonSchema>;

const PAYMENT_REASON = {
  type: 'object',
  required: ['reason'],
  additionalProperties: false,
  properties: { reason: { type: 'string', description: 'A word of the x402 protocol.' } },
} as const satisfies JsonSchema;

/** The shapes of error bodies, as components. */
export const ERROR_SCHEMAS = {
  ErrorTree: {
    type: 'object',
    description: '`_errors` on every level and one key for each invalid field or item.',
    required: ['_errors'],
    properties: { _errors: { type: 'array', items: { type: 'string' } } },
    additionalProperties: ERROR_TREE,
  },
  Error: {
    type: 'object',
    description: 'What was wrong and what would be right.',
    required: ['error', 'code'],
    additionalProperties: false,
    properties: {
      error: { type: 'string', description: 'A sentence for people.' },
      code: { type: 'string', description: 'A word for programs, from the error catalogue.' },
      ...FURTHER_FIELDS,
    },
  },
  OpenAiError: {
    type: 'object',
    description:
      "OpenAI's shape: with the header `x-svc-error-format: openai`. What a refusal of a payment says else stands beside `error`.",
    required: ['error'],
    additionalProperties: false,
    properties: {
      ...INSUFFICIENT_CREDIT,
      ...PAYMENT_REQUIRED,
      x402Version: { enum: [1, 2] },
      accepts: {
        type: 'array',
        items: {
          anyOf: [
            { $ref: '#/components/schemas/PaymentOption' },
            { $ref: '#/components/schemas/PaymentOptionV1' },
          ],
        },
      },
      details: PAYMENT_REASON,
      error: {
        type: 'object',
        required: ['message', 'type', 'param', 'code'],
        additionalProperties: false,
        properties: {
          message: { type: 'string' },
          type: { type: 'string' },
          param: OPTIONAL_TEXT,
          code: OPTIONAL_TEXT,
          ...FURTHER_FIELDS,
        },
      },
    },
  },
  PaymentRefused: {
    type: 'object',
    description: 'Why a payment was not taken; `message` says whether money has moved.',
    required: ['error', 'message'],
    additionalProperties: false,
    properties: {
      error: { type: 'string', description: 'A word for programs, from the error catalogue.' },
      message: { type: 'string', description: 'A sentence for people.' },
      details: PAYMENT_REASON,
    },
  },
  PaymentRequired: {
    type: 'object',
    description: 'How to get access: sent when a request has no credentials.',
    required: ['x402Version', 'error', 'resource', 'accepts', 'extensions'],
    additionalProperties: false,
    properties: PAYMENT_REQUIRED,
  },
  PaymentRequiredV1: {
    type: 'object',
    description: 'The same for clients of version 1, with `?x402Version=1`.',
    required: ['x402Version', 'error', 'accepts'],
    additionalProperties: false,
    properties: {
      x402Version: { const: 1 },
      error: { type: 'string' },
      accepts: { type: 'array', items: { $ref: '#/components/schemas/PaymentOptionV1' } },
    },
  },
  PaymentOption: {
    type: 'object',
    required: ['scheme', 'network', 'asset', 'amount', 'payTo', 'maxTimeoutSeconds', 'extra'],
    additionalProperties: false,
    properties: {
      scheme: { const: 'exact' },
      network: { type: 'string', description: 'CAIP-2, such as `eip155:8453`.' },
      asset: { type: 'string' },
      amount: { type: 'string', description: 'Base units; USDC has 6 decimals.' },
      payTo: { type: 'string' },
      maxTimeoutSeconds: { type: 'number' },
      extra: { type: 'object', description: 'What signing needs on this network.' },
    },
  },
  PaymentOptionV1: {
    type: 'object',
    required: ['scheme', 'network', 'maxAmountRequired', 'resource', 'payTo', 'asset', 'extra'],
    additionalProperties: false,
    properties: {
      scheme: { const: 'exact' },
      network: { type: 'string', description: 'A name, such as `base`.' },
      maxAmountRequired: { type: 'string', description: 'Base units; USDC has 6 decimals.' },
      resource: { type: 'string' },
      description: { type: 'string' },
      mimeType: { type: 'string' },
      payTo: { type: 'string' },
      maxTimeoutSeconds: { type: 'number' },
      asset: { type: 'string' },
      extra: { type: 'object', description: 'What signing needs on this network.' },
    },
  },
  SignInChallenge: {
    type: 'object',
    description: 'What a wallet signs to sign in.',
    required: ['info', 'supportedChains'],
    additionalProperties: false,
    properties: {
      info: texts(['domain', 'uri', 'version', 'nonce', 'issuedAt', 'expirationTime', 'statement']),
      supportedChains: { type: 'array', items: texts(['chainId', 'type']) },
    },
  },
  InsufficientCredit: {
    type: 'object',
    description: 'A wallet is known and its credit is too low.',
    required: Object.keys(INSUFFICIENT_CREDIT),
    additionalProperties: false,
    properties: INSUFFICIENT_CREDIT,
  },
} as const satisfies Record<string, JsonSchema>;

/** An object of these texts, all of them there. */
function texts(names: readonly string[]) {
  return {
    type: 'object',
    required: names,
    additionalProperties: false,
    properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
  } as const;
}

const reference = (name: keyof typeof ERROR_SCHEMAS): JsonSchema => ({
  $ref: `#/components/schemas/${name}`,
});

/** The body of a refusal of `route` with one of `codes`; other codes do not fit. */
export function errorSchema(route: Route, codes: readonly FaultCode[]): JsonSchema {
  const standard = narrowed('Error', 'code', codes);
  const ofPayments = paysHere(route) ? codes.filter((code) => isOfPayment(code)) : [];
  const shapes = [standard, reference('OpenAiError')];
  if (ofPayments.length > 0) shapes.push(narrowed('PaymentRefused', 'error', ofPayments));
  if (codes.includes('PAYMENT_REQUIRED')) {
    shapes.push(reference('PaymentRequired'), reference('PaymentRequiredV1'));
    if (takesWallets(route)) shapes.push(reference('InsufficientCredit'));
  }
  return { anyOf: shapes };
}

function narrowed(
  name: keyof typeof ERROR_SCHEMAS,
  member: string,
  codes: readonly FaultCode[],
): JsonSchema {
  return { allOf: [reference(name), { properties: { [member]: { enum: [...codes] } } }] };
}

/** A chain that cannot be reached is a payment's 503. */
function isOfPayment(code: FaultCode): boolean {
  return code === 'SERVICE_UNAVAILABLE' || PAYMENT_REFUSALS.includes(code);
}

/** Whether a payment can come with a request of the route. */
export function paysHere(route: Route): boolean {
  return (
    (route.auth === 'key-or-wallet' && route.sells !== undefined) ||
    route.describe?.refusals?.includes('INVALID_PAYMENT') === true
  );
}
