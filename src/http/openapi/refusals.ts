/**
 * Refusals of a route: its own codes and those that its stages give by what it declares, by status,
 * with their bodies. An undocumented code on a route is found by the check of the tests.
 */
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import type { JsonSchema } from '../describe.ts';
import { takesIdempotencyKey } from '../idempotent.ts';
import type { Route } from '../route.ts';

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
  'REGION_NOT_ALLOWED',
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

/** The codes that a route can answer with: its own, and those of its stages. */
export function refusalsOf(route: Route): FaultCode[] {
  const { describe, operational, auth, method, body, sells } = route;
  const stages: readonly (readonly [isPassed: boolean, codes: readonly FaultCode[]])[] = [
    [true, ['INVALID_REQUEST', 'UNKNOWN_ERROR']],
    [
      operational !== true,
      ['RATE_LIMIT_EXCEEDED', 'FAILED_REQUESTS', 'SERVICE_UNAVAILABLE', 'SHUTTING_DOWN'],
    ],
    [
      auth !== 'public',
      [
        'AUTHENTICATION_FAILED',
        'AUTHENTICATION_FAILED_INACTIVE_KEY',
        'API_ACCESS_DISABLED',
        'CSRF_CHECK_FAILED',
        // A wallet's token is read wherever a bearer is, and can be too old.
        'X402_INVALID_SIGN_IN',
        'PAYMENT_REQUIRED',
        'PAYMENT_HEADER_NOT_ACCEPTED',
      ],
    ],
    [takesWallets(route), [...SIGN_IN_REFUSALS, 'X402_NOT_CONFIGURED', 'X402_CONCURRENCY_LIMIT']],
    [paysHere(route), PAYMENT_REFUSALS],
    [auth.startsWith('admin'), ['ADMIN_KEY_REQUIRED']],
    [auth === 'operator', ['ADMIN_KEY_REQUIRED', 'OPERATOR_KEY_REQUIRED']],
    // Of methods that can have a body, whether the route reads one or not.
    [method !== 'GET', ['PAYLOAD_TOO_LARGE', 'INVALID_CONTENT_TYPE']],
    [body !== undefined, ['INVALID_JSON']],
    [
      sells !== undefined,
      [
        'INSUFFICIENT_BALANCE',
        'API_KEY_USD_SPEND_LIMIT_EXCEEDED',
        'API_KEY_DIEM_SPEND_LIMIT_EXCEEDED',
        'CREDIT_HELD',
      ],
    ],
    [
      sells !== undefined || takesIdempotencyKey(route),
      [
        'INVALID_IDEMPOTENCY_KEY',
        'IDEMPOTENCY_KEY_REUSED',
        'IDEMPOTENT_ANSWER_NOT_KEPT',
        'REQUEST_IN_PROGRESS',
      ],
    ],
  ];
  const codes = stages.flatMap(([isPassed, given]) => (isPassed ? given : []));
  return [...new Set([...(describe?.refusals ?? []), ...codes])];
}

export function takesWallets(route: Route): boolean {
  return route.auth.endsWith('wallet');
}

/** Codes by status, lowest first. */
export function byStatus(
  codes: readonly FaultCode[],
  statusesOf: (code: FaultCode) => readonly number[] = (code) => [FAULTS[code].status],
): [number, FaultCode[]][] {
  const pairs = codes.flatMap((code) => statusesOf(code).map((status) => ({ status, code })));
  const groups = Map.groupBy(pairs, ({ status }) => status);
  return [...groups]
    .map(([status, ofStatus]): [number, FaultCode[]] => [status, ofStatus.map(({ code }) => code)])
    .sort(([a], [b]) => a - b);
}

/** An object of these members, all of them required unless some are named, and no others. */
function object(
  properties: Readonly<Record<string, JsonSchema>>,
  given: { readonly description?: string; readonly required?: readonly string[] } = {},
) {
  const { required = Object.keys(properties), ...description } = given;
  return { type: 'object', ...description, required, additionalProperties: false, properties };
}

/** An object of texts, each with what it says. */
function texts(words: Readonly<Record<string, string>>, description: string) {
  const members = Object.entries(words).map(([name, about]) => [name, text(about)]);
  return object(Object.fromEntries(members), { description });
}

function text(description: string) {
  return { type: 'string', description };
}

function list(items: JsonSchema, description?: string) {
  return { type: 'array', ...(description === undefined ? {} : { description }), items };
}

function number(description: string) {
  return { type: 'number', description };
}

function reference(name: string) {
  return { $ref: `#/components/schemas/${name}` };
}

const TEXT = { type: 'string' };
const OPTIONAL_TEXT = { type: ['string', 'null'] };
const PIXELS = { type: 'integer', description: 'Pixels of the refused image.' };
const ERROR_TREE = { $ref: '#/components/schemas/ErrorTree' };

/** What a refusal can say beside its sentence and its code, each for some codes only. */
const FURTHER_FIELDS = {
  details: { ...ERROR_TREE, description: 'Validation: a key for each invalid field.' },
  issues: {
    type: 'array',
    description: 'The same as a flat list.',
    items: object({
      code: text('What kind of mistake it is.'),
      path: list({ type: ['string', 'integer'] }, 'Names and places that lead to the field.'),
      message: text('What was wrong and what would be right.'),
    }),
  },
  limit: object(
    {
      currency: { enum: ['USD', 'DIEM'], description: 'What the limit is in.' },
      amount: text('The limit, decimal.'),
      spent: text('What the key has spent of it, decimal.'),
      resetsAt: { ...OPTIONAL_TEXT, description: 'ISO 8601; null when it never does.' },
    },
    { description: 'The spend limit of the key that is reached.' },
  ),
  customMessage: text('Blockchain RPC: the limit in figures.'),
  currentBalanceUsd: { type: 'number', description: 'INSUFFICIENT_BALANCE: what is posted.' },
  minimumBalanceUsd: {
    type: 'number',
    description: 'INSUFFICIENT_BALANCE: what the request needs at least.',
  },
  width: PIXELS,
  height: PIXELS,
  credits_refunded: { const: true, description: 'A failed video: what was set aside is back.' },
};

const PAYMENT_REQUIRED = {
  x402Version: { const: 2, description: 'Version of the x402 protocol.' },
  error: text('A sentence for people.'),
  resource: texts(
    { url: 'Its address.', description: 'What it is.', mimeType: 'What it answers with.' },
    'What is paid for.',
  ),
  accepts: {
    type: 'array',
    description: 'Payment options of a wallet; sign exactly one. Empty where only keys pay.',
    items: reference('PaymentOption'),
  },
  extensions: {
    type: 'object',
    description: 'What goes beyond the protocol, each with its own schema.',
    additionalProperties: false,
    properties: {
      'sign-in-with-x': reference('SignInChallenge'),
      'payment-identifier': object(
        {
          info: { type: 'object', description: 'Whether an id is needed.' },
          schema: { type: 'object', description: 'JSON Schema of the id.' },
        },
        { description: 'What an id that a client adds to its payment looks like.' },
      ),
      'refund-policy': object(
        { info: { type: 'object', description: 'The terms in short, and their address.' } },
        { description: 'What becomes of a payment whose request is not served.' },
      ),
      'offer-receipt': object(
        { info: { type: 'object', description: '`offers`: each option, as JWS and as EIP-712.' } },
        { description: 'The options, signed by this service. Too long for most headers.' },
      ),
    },
  },
  authOptions: object(
    {
      apiKey: texts(
        {
          header: 'The header that a key is sent in.',
          getKey: 'Where a key is had.',
          docs: 'Where it is explained.',
        },
        'Access with an API key.',
      ),
      x402Wallet: texts(
        {
          header: 'The header that a sign-in is sent in.',
          legacyHeader: 'Its older name.',
          topUp: 'Method and path of the top-up.',
          docs: 'Where it is explained.',
        },
        'Access with a wallet.',
      ),
    },
    { description: 'Ways to get access.' },
  ),
};

const INSUFFICIENT_CREDIT = {
  error: { const: 'Payment required', description: 'A sentence for people.' },
  code: { const: 'PAYMENT_REQUIRED', description: 'The word of the error catalogue.' },
  reason: { const: 'insufficient_balance', description: 'Why payment is required.' },
  message: text('What is missing, in a sentence.'),
  currentBalanceUsd: number('What the wallet has.'),
  minimumBalanceUsd: number('What this request needs.'),
  description: text('What a top-up is.'),
  suggestedTopUpUsd: number('A top-up that lasts for a while.'),
  minimumTopUpUsd: number('The smallest top-up.'),
  supportedTokens: list(TEXT, 'Tokens that can be paid in.'),
  supportedChains: list(TEXT, 'Networks that can be paid on, CAIP-2.'),
  topUpInstructions: object(
    {
      step1: text('What to do first.'),
      step2: text('What to do next.'),
      step3: text('What to do last.'),
      receiverWallet: text('The address that is paid.'),
      tokenAddress: text('The contract, or on Solana the mint, of the token.'),
      tokenDecimals: { type: 'integer', description: 'Decimals of the token.' },
      network: text('The network of the address.'),
      minimumAmountUsd: number('The smallest top-up.'),
    },
    {
      description: 'How to top up.',
      required: ['step1', 'step2', 'step3', 'receiverWallet', 'tokenAddress', 'network'],
    },
  ),
  siwxChallenge: reference('SignInChallenge'),
};

const PAYMENT_REASON = object(
  { reason: text('A word of the x402 protocol.') },
  { description: 'Why a payment was not taken.' },
);
const ERROR_CODE = text('A word for programs, from the error catalogue.');
const EXTRA = {
  type: 'object',
  description:
    'What signing needs on this network, and `minimumTopUpUsd` and `suggestedTopUpUsd`, the least and the suggested top-up.',
};
const BASE_UNITS = text('Base units; USDC has 6 decimals.');

/** The shapes of error bodies, as components. */
export const ERROR_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  ErrorTree: {
    type: 'object',
    description: '`_errors` on every level and one key for each invalid field or item.',
    required: ['_errors'],
    properties: { _errors: list(TEXT, 'What is wrong with this field itself.') },
    // With the type of `_errors` beside its own: types of languages give both one index.
    additionalProperties: { anyOf: [ERROR_TREE, list(TEXT)] },
  },
  Error: object(
    { error: text('A sentence for people.'), code: ERROR_CODE, ...FURTHER_FIELDS },
    { description: 'What was wrong and what would be right.', required: ['error', 'code'] },
  ),
  OpenAiError: object(
    {
      ...INSUFFICIENT_CREDIT,
      ...PAYMENT_REQUIRED,
      x402Version: { enum: [1, 2], description: 'Version of the x402 protocol.' },
      accepts: list(
        { anyOf: [reference('PaymentOption'), reference('PaymentOptionV1')] },
        'Payment options of a wallet; sign exactly one.',
      ),
      details: PAYMENT_REASON,
      error: object(
        {
          message: text('A sentence for people.'),
          type: text('The kind of error, a word of OpenAI.'),
          param: { ...OPTIONAL_TEXT, description: 'The field that is wrong, where one is.' },
          code: { ...OPTIONAL_TEXT, description: 'A word for programs, from the error catalogue.' },
          ...FURTHER_FIELDS,
        },
        { description: 'The refusal.', required: ['message', 'type', 'param', 'code'] },
      ),
    },
    {
      description:
        "OpenAI's shape: with the header `x-svc-error-format: openai`. What a refusal of a payment says else stands beside `error`.",
      required: ['error'],
    },
  ),
  PaymentRefused: object(
    { error: ERROR_CODE, message: text('A sentence for people.'), details: PAYMENT_REASON },
    {
      description: 'Why a payment was not taken; `message` says whether money has moved.',
      required: ['error', 'message'],
    },
  ),
  PaymentRequired: object(PAYMENT_REQUIRED, {
    description: 'How to get access: sent when a request has no credentials.',
    required: ['x402Version', 'error', 'resource', 'accepts', 'extensions'],
  }),
  PaymentRequiredV1: object(
    {
      x402Version: { const: 1, description: 'Version of the x402 protocol.' },
      error: text('A sentence for people.'),
      accepts: list(reference('PaymentOptionV1'), 'Payment options; sign exactly one.'),
    },
    { description: 'The same for clients of version 1, with `?x402Version=1`.' },
  ),
  PaymentOption: object({
    scheme: { const: 'exact', description: 'The amount is paid as it stands.' },
    network: text('CAIP-2, such as `eip155:8453`.'),
    asset: text('The contract, or on Solana the mint, of the token.'),
    amount: BASE_UNITS,
    payTo: text('The address that is paid.'),
    maxTimeoutSeconds: number('How long the signature has to be good for.'),
    extra: EXTRA,
  }),
  PaymentOptionV1: object(
    {
      scheme: { const: 'exact', description: 'The amount is paid as it stands.' },
      network: text('A name, such as `base`.'),
      maxAmountRequired: BASE_UNITS,
      resource: text('The address of what is paid for.'),
      description: text('What is paid for.'),
      mimeType: text('What it answers with.'),
      payTo: text('The address that is paid.'),
      maxTimeoutSeconds: number('How long the signature has to be good for.'),
      asset: text('The contract, or on Solana the mint, of the token.'),
      extra: EXTRA,
    },
    { required: ['scheme', 'network', 'maxAmountRequired', 'resource', 'payTo', 'asset', 'extra'] },
  ),
  SignInChallenge: object(
    {
      info: texts(
        {
          domain: 'Who asks for the sign-in.',
          uri: 'What it is for.',
          version: 'Version of the text, `1`.',
          nonce: 'To be used once.',
          issuedAt: 'ISO 8601.',
          expirationTime: 'ISO 8601; until then it can be used.',
          statement: 'What the wallet shows to its owner.',
        },
        'The fields of the text (EIP-4361).',
      ),
      supportedChains: list(
        texts({ chainId: 'CAIP-2.', type: 'How it signs.' }, 'A chain.'),
        'Chains whose wallets can sign in.',
      ),
    },
    { description: 'What a wallet signs to sign in.' },
  ),
  InsufficientCredit: object(INSUFFICIENT_CREDIT, {
    description: 'A wallet is known and its credit is too low.',
  }),
};

/** The body of a refusal of `route` with one of `codes`; other codes do not fit. */
export function errorSchema(route: Route, codes: readonly FaultCode[]): JsonSchema {
  const shapes = [narrowed('Error', 'code', codes), reference('OpenAiError')];
  const ofPayments = paysHere(route) ? codes.filter(isOfPayment) : [];
  if (ofPayments.length > 0) shapes.push(narrowed('PaymentRefused', 'error', ofPayments));
  if (codes.includes('PAYMENT_REQUIRED')) {
    shapes.push(reference('PaymentRequired'), reference('PaymentRequiredV1'));
    if (takesWallets(route)) shapes.push(reference('InsufficientCredit'));
  }
  return { anyOf: shapes };
}

/** In the form of the route's protocol; a path that cannot be read is of no route yet. */
export function ownError(route: Route, status: number, own: JsonSchema): JsonSchema {
  const isPathRead = status !== 400 || !route.path.includes(':');
  return isPathRead ? own : { anyOf: [own, reference('Error'), reference('OpenAiError')] };
}

function narrowed(name: string, member: string, codes: readonly FaultCode[]): JsonSchema {
  return {
    allOf: [
      reference(name),
      { properties: { [member]: { enum: [...codes], description: 'One of these codes.' } } },
    ],
  };
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
