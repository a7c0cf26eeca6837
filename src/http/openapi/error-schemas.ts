/** The bodies of refusals as JSON Schema: errors, and the 402s with their payment options. */
import type { JsonSchema } from '../describe.ts';

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

export function reference(name: string) {
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
  resource: object(
    {
      url: text('Its address.'),
      description: text('What it is.'),
      mimeType: text('What it answers with.'),
      serviceName: text('Name of the service.'),
      tags: list(TEXT, 'What it is about.'),
    },
    { description: 'What is paid for.', required: ['url', 'description', 'mimeType'] },
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
      eip2612GasSponsoring: object(
        { info: { type: 'object', description: '`version` of the extension.' } },
        {
          description:
            'The wallet may sign its approval of Permit2 (EIP-2612) beside a payment of the scheme `upto`.',
        },
      ),
      'bound-nonce': object(
        { info: texts({ hash: 'The hash: `keccak256`.' }, 'How the nonce is made.') },
        {
          description:
            'Payments on Base: the nonce may be the hash of the lines `x402 bound nonce v1`, origin, `resource.url` and `salt`, with `info.salt` (0x and 64 hex digits) added to the extension of the payment.',
        },
      ),
      bazaar: {
        type: 'object',
        description: 'For indexes: a request, its answer, and their schema.',
      },
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

/** What a payment needs to know: the same for a stranger and for a wallet. */
const { authOptions: _, ...PAYMENT_OFFER } = PAYMENT_REQUIRED;

const INSUFFICIENT_CREDIT = {
  error: { const: 'Payment required', description: 'A sentence for people.' },
  code: { const: 'PAYMENT_REQUIRED', description: 'The word of the error catalogue.' },
  reason: { const: 'insufficient_balance', description: 'Why payment is required.' },
  message: text('What is missing, in a sentence.'),
  currentBalanceUsd: number('What the wallet has; below zero what it owes.'),
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
        "OpenAI's shape, for SDKs of that protocol and with the header `x-svc-error-format: openai`. What a refusal of a payment says else stands beside `error`.",
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
    scheme: {
      enum: ['exact', 'upto'],
      description: 'The amount is paid as it stands, or is the most that a request may take of it.',
    },
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
  InsufficientCredit: object(
    { ...PAYMENT_OFFER, ...INSUFFICIENT_CREDIT },
    { description: 'A wallet is known and its credit is too low.' },
  ),
};
