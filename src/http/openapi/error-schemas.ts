/** JSON Schemas of error responses, and of 402 responses with payment options. */
import type { JsonSchema } from '../describe.ts';

/** Schema of an object with exactly these members. By default all are required. */
function object(
  properties: Readonly<Record<string, JsonSchema>>,
  given: { readonly description?: string; readonly required?: readonly string[] } = {},
) {
  const { required = Object.keys(properties), ...description } = given;
  return { type: 'object', ...description, required, additionalProperties: false, properties };
}

/** Schema of an object of strings; `words` are their descriptions. */
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
const PIXELS = { type: 'integer', description: 'Size of the rejected image, in pixels.' };
const ERROR_TREE = { $ref: '#/components/schemas/ErrorTree' };

/** Optional members of an error response; each belongs to some codes. */
const FURTHER_FIELDS = {
  details: { ...ERROR_TREE, description: 'Validation errors, with a key for each invalid field.' },
  issues: {
    type: 'array',
    description: 'Validation errors as a list.',
    items: object({
      code: text('Kind of the validation error.'),
      path: list(
        { type: ['string', 'integer'] },
        'Path of the field: member names and list indexes.',
      ),
      message: text('Error message: what is wrong and what would be valid.'),
    }),
  },
  limit: object(
    {
      currency: { enum: ['USD', 'DIEM'], description: 'Currency of the limit.' },
      amount: text('Limit, as a decimal number.'),
      spent: text('Amount that the key has spent, as a decimal number.'),
      resetsAt: {
        ...OPTIONAL_TEXT,
        description: 'Time of the next reset, ISO 8601; null if the limit has no reset.',
      },
    },
    { description: 'Spend limit of the key that is reached.' },
  ),
  customMessage: text('JSON-RPC: the limit with its numbers.'),
  currentBalanceUsd: {
    type: 'number',
    description: 'INSUFFICIENT_BALANCE: posted balance, in USD.',
  },
  minimumBalanceUsd: {
    type: 'number',
    description: 'INSUFFICIENT_BALANCE: balance that the request needs, in USD.',
  },
  width: PIXELS,
  height: PIXELS,
  credits_refunded: { const: true, description: 'Failed video: the hold was released.' },
};

const PAYMENT_REQUIRED = {
  x402Version: { const: 2, description: 'Version of the x402 protocol.' },
  error: text('Error message.'),
  resource: object(
    {
      url: text('URL of the resource.'),
      description: text('Description of the resource.'),
      mimeType: text('Content type of the response.'),
      serviceName: text('Name of the service.'),
      tags: list(TEXT, 'Topics of the resource.'),
    },
    {
      description: 'Resource that the payment is for.',
      required: ['url', 'description', 'mimeType'],
    },
  ),
  accepts: {
    type: 'array',
    description: 'Payment options for wallets; sign exactly one. Empty if only API keys can pay.',
    items: reference('PaymentOption'),
  },
  extensions: {
    type: 'object',
    description: 'Extensions of the protocol.',
    additionalProperties: false,
    properties: {
      'sign-in-with-x': reference('SignInChallenge'),
      'payment-identifier': object(
        {
          info: { type: 'object', description: '`required`: true if a payment needs an id.' },
          schema: { type: 'object', description: 'JSON Schema of the id.' },
        },
        { description: 'Id that a client can add to its payment.' },
      ),
      'refund-policy': object(
        { info: { type: 'object', description: 'Summary of the terms, and their URL.' } },
        { description: 'Refund of a payment whose request fails.' },
      ),
      eip2612GasSponsoring: object(
        { info: { type: 'object', description: '`version` of the extension.' } },
        {
          description:
            'With the scheme `upto`, the wallet can also sign its approval of Permit2 (EIP-2612).',
        },
      ),
      'bound-nonce': object(
        { info: texts({ hash: 'Hash function: `keccak256`.' }, 'Parameters of the nonce.') },
        {
          description:
            'Payments on Base: binds a signature to this server. The nonce is the hash of the lines `x402 bound nonce v1`, origin, `resource.url` and `salt`; the payment sends `info.salt` (0x and 64 hex digits) in this extension.',
        },
      ),
      bazaar: {
        type: 'object',
        description: 'For indexes: example request and response, with their schemas.',
      },
      'offer-receipt': object(
        {
          info: {
            type: 'object',
            description: '`offers`: each payment option, signed as JWS and as EIP-712.',
          },
        },
        {
          description:
            'Payment options signed by this service. Usually only in the body, because headers are too short.',
        },
      ),
    },
  },
  authOptions: object(
    {
      apiKey: texts(
        {
          header: 'Request header for the key.',
          getKey: 'URL to get a key.',
          docs: 'URL of the documentation.',
        },
        'Access with an API key.',
      ),
      x402Wallet: texts(
        {
          header: 'Request header for the sign-in.',
          legacyHeader: 'Older name of the header.',
          topUp: 'Method and path of the top-up.',
          docs: 'URL of the documentation.',
        },
        'Access with a wallet.',
      ),
    },
    { description: 'Ways to get access.' },
  ),
};

/** Members that responses to anonymous requests and to wallets have in common. */
const { authOptions: _, ...PAYMENT_OFFER } = PAYMENT_REQUIRED;

const INSUFFICIENT_CREDIT = {
  error: { const: 'Payment required', description: 'Error message.' },
  code: { const: 'PAYMENT_REQUIRED', description: 'Error code.' },
  reason: { const: 'insufficient_balance', description: 'Reason of the 402.' },
  message: text('Missing amount, as a sentence.'),
  currentBalanceUsd: number('Credit of the wallet in USD; negative for a debt.'),
  minimumBalanceUsd: number('Credit that this request needs, in USD.'),
  description: text('Explanation of top-ups.'),
  suggestedTopUpUsd: number('Suggested amount of a top-up, in USD.'),
  minimumTopUpUsd: number('Minimum amount of a top-up, in USD.'),
  supportedTokens: list(TEXT, 'Symbols of the accepted tokens.'),
  supportedChains: list(TEXT, 'Accepted networks, CAIP-2.'),
  topUpInstructions: object(
    {
      step1: text('First step.'),
      step2: text('Second step.'),
      step3: text('Third step.'),
      receiverWallet: text('Address of the receiver.'),
      tokenAddress: text('Contract of the token; on Solana its mint.'),
      tokenDecimals: { type: 'integer', description: 'Decimals of the token.' },
      network: text('Network of the address.'),
      minimumAmountUsd: number('Minimum amount of a top-up, in USD.'),
    },
    {
      description: 'Steps of a top-up.',
      required: ['step1', 'step2', 'step3', 'receiverWallet', 'tokenAddress', 'network'],
    },
  ),
  siwxChallenge: reference('SignInChallenge'),
};

const PAYMENT_REASON = object(
  { reason: text('Error code of the x402 protocol.') },
  { description: 'Reason why the payment was not accepted.' },
);
const ERROR_CODE = text('Stable error code; see the error catalogue.');
const EXTRA = {
  type: 'object',
  description:
    'Parameters of the signature on this network; `minimumTopUpUsd` and `suggestedTopUpUsd` are the minimum and the suggested top-up.',
};
const BASE_UNITS = text('Amount in base units of the token; USDC has 6 decimals.');

/** Components with the bodies of error responses. */
export const ERROR_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  ErrorTree: {
    type: 'object',
    description: '`_errors` at every level, and one key for each invalid field or item.',
    required: ['_errors'],
    properties: { _errors: list(TEXT, 'Error messages of this field.') },
    // Includes the type of `_errors`, because generated types have one index signature for both.
    additionalProperties: { anyOf: [ERROR_TREE, list(TEXT)] },
  },
  Error: object(
    { error: text('Error message.'), code: ERROR_CODE, ...FURTHER_FIELDS },
    { description: 'Error response.', required: ['error', 'code'] },
  ),
  OpenAiError: object(
    {
      ...INSUFFICIENT_CREDIT,
      ...PAYMENT_REQUIRED,
      x402Version: { enum: [1, 2], description: 'Version of the x402 protocol.' },
      accepts: list(
        { anyOf: [reference('PaymentOption'), reference('PaymentOptionV1')] },
        'Payment options for wallets; sign exactly one.',
      ),
      details: PAYMENT_REASON,
      error: object(
        {
          message: text('Error message.'),
          type: text('Type of the error, as in the OpenAI protocol.'),
          param: { ...OPTIONAL_TEXT, description: 'Invalid field, if there is one.' },
          code: { ...OPTIONAL_TEXT, description: 'Stable error code; see the error catalogue.' },
          ...FURTHER_FIELDS,
        },
        { description: 'Error.', required: ['message', 'type', 'param', 'code'] },
      ),
    },
    {
      description:
        'Error response in the OpenAI format, for SDKs of that protocol and with the header `x-svc-error-format: openai`. Members about payments are beside `error`.',
      required: ['error'],
    },
  ),
  PaymentRefused: object(
    { error: ERROR_CODE, message: text('Error message.'), details: PAYMENT_REASON },
    {
      description:
        'Response to a payment that was not accepted; `message` states whether money was transferred.',
      required: ['error', 'message'],
    },
  ),
  PaymentRequired: object(PAYMENT_REQUIRED, {
    description: 'Response to a request without credentials: ways to get access.',
    required: ['x402Version', 'error', 'resource', 'accepts', 'extensions'],
  }),
  PaymentRequiredV1: object(
    {
      x402Version: { const: 1, description: 'Version of the x402 protocol.' },
      error: text('Error message.'),
      accepts: list(reference('PaymentOptionV1'), 'Payment options; sign exactly one.'),
    },
    { description: 'Response for x402 clients of version 1, with `?x402Version=1`.' },
  ),
  PaymentOption: object({
    scheme: {
      enum: ['exact', 'upto'],
      description: '`exact`: the amount is transferred. `upto`: at most the amount is transferred.',
    },
    network: text('Network, CAIP-2, such as `eip155:8453`.'),
    asset: text('Contract of the token; on Solana its mint.'),
    amount: BASE_UNITS,
    payTo: text('Address of the receiver.'),
    maxTimeoutSeconds: number('Validity that the signature needs, in seconds.'),
    extra: EXTRA,
  }),
  PaymentOptionV1: object(
    {
      scheme: { const: 'exact', description: 'The amount is transferred.' },
      network: text('Name of the network, such as `base`.'),
      maxAmountRequired: BASE_UNITS,
      resource: text('URL of the resource.'),
      description: text('Description of the resource.'),
      mimeType: text('Content type of the response.'),
      payTo: text('Address of the receiver.'),
      maxTimeoutSeconds: number('Validity that the signature needs, in seconds.'),
      asset: text('Contract of the token; on Solana its mint.'),
      extra: EXTRA,
    },
    { required: ['scheme', 'network', 'maxAmountRequired', 'resource', 'payTo', 'asset', 'extra'] },
  ),
  SignInChallenge: object(
    {
      info: texts(
        {
          domain: 'Domain that requests the sign-in.',
          uri: 'URI that the sign-in is for.',
          version: 'Version of the message, `1`.',
          nonce: 'Nonce, valid for one sign-in.',
          issuedAt: 'Time of issue, ISO 8601.',
          expirationTime: 'Time of expiry, ISO 8601.',
          statement: 'Text that the wallet shows.',
        },
        'Fields of the message (EIP-4361).',
      ),
      supportedChains: list(
        texts({ chainId: 'CAIP-2.', type: 'Signature type.' }, 'Chain.'),
        'Supported chains.',
      ),
    },
    { description: 'Message that a wallet signs to sign in.' },
  ),
  InsufficientCredit: object(
    { ...PAYMENT_OFFER, ...INSUFFICIENT_CREDIT },
    { description: 'Response to a wallet whose credit is too low.' },
  ),
};
