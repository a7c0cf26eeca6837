/**
 * The catalogue of expected errors: code, HTTP status, public message, and whether the same request
 * can succeed later. `docs/reference/errors.md` is checked against this table.
 */

interface FaultKind {
  readonly status: number;
  /** The default public message; a fault can replace it with a more precise one. */
  readonly message: string;
  /** What the client should do next, for the reference page. */
  readonly remedy: string;
  /** Whether the same request can succeed later; sent as `x-should-retry` if not. */
  readonly canRetry: boolean;
}

function refusals<Code extends string>(
  status: number,
  sentences: Readonly<Record<Code, readonly [message: string, remedy: string]>>,
  canRetry = isPassing(status),
): Readonly<Record<Code, FaultKind>> {
  const kinds = Object.entries<readonly [string, string]>(sentences).map(
    ([code, [message, remedy]]) => [code, { status, message, remedy, canRetry }],
  );
  return Object.fromEntries(kinds) as Record<Code, FaultKind>; // one for each of `sentences`
}

/** Whether an error of this status can pass: timeouts, conflicts, limits and server errors can. */
function isPassing(status: number): boolean {
  return status < 400 || status === 408 || status === 409 || status === 429 || status >= 500;
}

/** Every error code of a response body, ordered by status. */
export const FAULTS = {
  ...refusals(202, {
    SETTLEMENT_PENDING: [
      'The payment is not confirmed yet',
      'Send the same header again; do not sign a new one.',
    ],
  }),
  ...refusals(400, {
    INVALID_REQUEST: ['The request is not valid', 'Correct the fields named in `details`.'],
    MALFORMED_REQUEST: ['The request is not HTTP', 'Use an HTTP client.'],
    HEADERS_TOO_LARGE: ['The headers are too large', 'Send at most 64 KiB of headers.'],
    INVALID_JSON: ['The body is not valid JSON', 'Send one JSON document in UTF-8.'],
    INVALID_MODEL: [
      'The model cannot serve this request',
      'Choose a model of the right type from `GET /models`.',
    ],
    CONTEXT_LENGTH_EXCEEDED: [
      'The prompt is longer than the context of the model',
      'Shorten the prompt, or choose a model with a longer context.',
    ],
    TOO_MANY_TOKENS: ['The input has too many tokens', 'Split the input.'],
    INVALID_AUDIO_FORMAT: [
      'The audio format is not supported',
      'Send one of the formats that the message names.',
    ],
    INVALID_VIDEO_FORMAT: ['The video format is not supported', 'Send MP4, MOV, MPEG or WebM.'],
    CORRUPTED_IMAGE: [
      'The image cannot be read',
      'Send an intact PNG, JPEG, WebP, HEIF or AVIF image.',
    ],
    IMAGE_TOO_SMALL: [
      'The image is too small',
      'Send an image within the limits that the message names.',
    ],
    UNSUPPORTED_PARAMETER: [
      'The parameter is not supported',
      'Leave out the parameter that the message names.',
    ],
    PREVIOUS_RESPONSE_NOT_FOUND: [
      'The previous response is not stored, or no longer',
      'Send the whole conversation as `input`.',
    ],
    REQUEST_ID_NOT_FOUND: ['No such request', 'Check the id.'],
    API_KEY_NOT_FOUND: ['No such API key', 'List the keys with `GET /api_keys`.'],
    BUDGET_NOT_FOUND: ['No such budget', 'List the budgets with `GET /budgets`.'],
    API_KEY_LIMIT_REACHED: [
      'The account has as many active API keys as it may have',
      'Delete a key first.',
    ],
    WEBHOOK_LIMIT_REACHED: [
      'The account has as many webhooks as it may have',
      'Delete a webhook first.',
    ],
    BUDGET_LIMIT_REACHED: [
      'The account has as many budgets as it may have, or a budget of each value as many values',
      'Delete a budget first; one that is full of values can be made again.',
    ],
    UNSAFE_URL: [
      'The URL is not a public http(s) address',
      'Use a public http or https URL without credentials.',
    ],
    FETCH_FAILED: [
      'The URL could not be fetched',
      'Check that the URL answers from the public internet.',
    ],
    IDEMPOTENCY_KEY_REUSED: [
      'The idempotency key was used with another body',
      'Use a new key for a new request.',
    ],
    INVALID_IDEMPOTENCY_KEY: ['The idempotency key must match [A-Za-z0-9_-]{1,255}', 'Use a UUID.'],
    UNSUPPORTED_METHOD: [
      'The JSON-RPC method is not supported',
      'Use a method of the list in the documentation.',
    ],
    UNSUPPORTED_RPC_NETWORK: [
      'The RPC network is not supported',
      'Choose one from `GET /crypto/rpc/networks`.',
    ],
    PAYMENT_HEADER_NOT_ACCEPTED: [
      'A payment header is not accepted here',
      'Send it to `POST /x402/top-up` or to an inference endpoint.',
    ],
    INVALID_PAYMENT_FORMAT: [
      'The payment header is not base64 JSON of a known layout',
      'Build the header with an x402 client.',
    ],
    INVALID_PAYMENT: ['The payment is not valid', 'Sign one entry of `accepts` again.'],
    UNSUPPORTED_NETWORK: ['The payment network is not supported', 'Use a network of `accepts`.'],
    INVALID_PAYMENT_RECIPIENT: [
      'The payment goes to another receiver',
      'Sign with the `payTo` of `accepts`.',
    ],
    UNSUPPORTED_TOKEN: ['The payment token is not supported', 'Pay with USDC as `accepts` says.'],
    UNSUPPORTED_SCHEME: ['The payment scheme is not supported', 'Use the scheme `exact`.'],
    INVALID_AMOUNT: ['The payment amount is not valid', 'Send a whole number of base units.'],
    INVALID_PAYMENT_PAYER: [
      'The payer of the payment is not valid',
      'Pay from the wallet that signed.',
    ],
    AMOUNT_TOO_LOW: [
      'The payment is below the minimum top-up',
      'Pay at least the minimum that the message names.',
    ],
    AMOUNT_TOO_HIGH: [
      'The payment is above the maximum top-up',
      'Pay at most the maximum that the message names.',
    ],
    PAYMENT_VERIFICATION_FAILED: [
      'The payment could not be verified',
      'Read the reason, then sign again.',
    ],
  }),
  ...refusals(401, {
    AUTHENTICATION_FAILED: ['Authentication failed', 'Check the API key.'],
    AUTHENTICATION_FAILED_INACTIVE_KEY: ['The API key is revoked or expired', 'Use another key.'],
    PRO_ONLY_MODEL: [
      'The model is only available to Pro users',
      'Choose another model, or ask the operator for the pro plan.',
    ],
    ADMIN_KEY_REQUIRED: ['This endpoint needs an ADMIN key', 'Use an ADMIN key.'],
    X402_INVALID_SIGN_IN: ['The wallet sign-in is not valid', 'Sign a fresh challenge.'],
    X402_SIGN_IN_INVALID_PAYLOAD: [
      'The sign-in header is not base64 JSON of a known layout',
      'Encode the proof as base64 of JSON.',
    ],
    X402_SIGN_IN_PARSE_ERROR: ['The sign-in message cannot be parsed', 'Use the EIP-4361 text.'],
    X402_SIGN_IN_INVALID_MESSAGE: [
      'The sign-in message lacks a required field',
      'Fill every required field of the message.',
    ],
    X402_SIGN_IN_ADDRESS_MISMATCH: [
      'The address differs from the one in the message',
      'Send the address that signed.',
    ],
    X402_SIGN_IN_INVALID_CHAIN_ID: ['The chain id is not valid', 'Use a CAIP-2 chain id.'],
    X402_SIGN_IN_CHAIN_MISMATCH: [
      'The chain id differs from the one in the message',
      'Send the chain of the message.',
    ],
    X402_SIGN_IN_UNSUPPORTED_CHAIN: [
      'The chain is not supported for sign-in',
      'Sign in on Base (8453) or Solana mainnet.',
    ],
    X402_SIGN_IN_MISSING_NONCE: ['The sign-in has no nonce', 'Add a fresh random nonce.'],
    X402_SIGN_IN_DOMAIN_MISMATCH: [
      'The sign-in is for another domain',
      'Sign for the domain of the challenge.',
    ],
    X402_SIGN_IN_TIMESTAMP_MISMATCH: [
      'The timestamp differs from the issued-at time',
      'Use the time of signing.',
    ],
    X402_SIGN_IN_EXPIRED: ['The sign-in has expired', 'Sign a fresh challenge.'],
    X402_SIGN_IN_FUTURE_TIMESTAMP: ['The sign-in was issued in the future', 'Check the clock.'],
    X402_SIGN_IN_NOT_BEFORE: ['The sign-in is not valid yet', 'Wait until its not-before time.'],
    X402_SIGN_IN_INVALID_SIGNATURE: [
      'The signature does not verify',
      'Sign the exact message with the wallet.',
    ],
    X402_SIGN_IN_INVALID_WALLET: [
      'The wallet address is not valid',
      'Use a checksummed EVM or base58 Solana address.',
    ],
    X402_SIGN_IN_NONCE_REUSED: [
      'The sign-in was already used',
      'Sign a fresh challenge for each request.',
    ],
  }),
  ...refusals(402, {
    INSUFFICIENT_BALANCE: ['The balance is too low', 'Add credit.'],
    API_KEY_USD_SPEND_LIMIT_EXCEEDED: [
      'The USD spend limit of the API key is reached',
      'Raise the limit or wait for the reset.',
    ],
    API_KEY_DIEM_SPEND_LIMIT_EXCEEDED: [
      'The DIEM spend limit of the API key is reached',
      'Raise the limit or wait for the reset.',
    ],
    PAYMENT_REQUIRED: ['Payment required', 'Top up the wallet.'],
    SETTLEMENT_FAILED: [
      'The payment could not be settled',
      'Read the reason; sign a new payment only if it says that nothing moved.',
    ],
  }),
  ...refusals(403, {
    UNAUTHORIZED: ['Not allowed', 'Use credentials that own the resource.'],
    API_ACCESS_DISABLED: ['API access is disabled for this account', 'Ask the operator.'],
    REGION_NOT_ALLOWED: [
      'The model is not offered in this country',
      'Choose another model; `GET /models` names the countries of each.',
    ],
    MODEL_NOT_ALLOWED: ['The API key may not use this model', 'Use another key or another model.'],
    OPERATOR_KEY_REQUIRED: [
      "This endpoint needs an ADMIN key of the operator's account",
      'Ask the operator of the service.',
    ],
    CSRF_CHECK_FAILED: [
      'The request of a console session does not come from the console',
      'Send it from a page of this origin, with the token of the session in `X-CSRF-Token`; programs use an API key.',
    ],
    X402_WALLET_MISMATCH: [
      'The signer is not the wallet of the path',
      'Sign with the wallet that you ask about.',
    ],
  }),
  ...refusals(404, {
    NOT_FOUND: ['Not found', 'Check the path; all paths start with /api/v1.'],
    MODEL_NOT_FOUND: ['The model does not exist', 'Choose one from `GET /models`.'],
    CHARACTER_NOT_FOUND: ['The character does not exist', 'Choose one from `GET /characters`.'],
    ACCOUNT_NOT_FOUND: ['The account does not exist', 'List them with `GET /admin/accounts`.'],
    SESSION_NOT_FOUND: [
      'There is no such session, or it has ended',
      'List them with `GET /console/sessions`.',
    ],
    PAYMENT_NOT_FOUND: ['There is no such payment', 'List them with `GET /admin/top-ups`.'],
    FILE_NOT_FOUND: ['There is no such file', 'List the files with `GET /files`.'],
    WEBHOOK_NOT_FOUND: ['There is no such webhook', 'List the webhooks with `GET /webhooks`.'],
    BATCH_NOT_FOUND: ['There is no such batch', 'List the batches with `GET /batches`.'],
    MEDIA_NOT_FOUND: ['The media does not exist or has expired', 'Queue it again.'],
  }),
  ...refusals(405, {
    METHOD_NOT_ALLOWED: [
      'The method is not allowed on this path',
      'Use a method of the `Allow` header.',
    ],
  }),
  ...refusals(408, {
    REQUEST_TOO_SLOW: [
      'The request took too long to arrive',
      'Send the whole request without a pause.',
    ],
  }),
  ...refusals(409, {
    REQUEST_IN_PROGRESS: ['The same request is still running', 'Send it again when it has ended.'],
    PAYMENT_IN_PROGRESS: [
      'The payment is being settled',
      'Send the same header again; do not sign a new one.',
    ],
    PAYMENT_ALREADY_CREDITED: [
      'The payment is credited already',
      'Sign in with the wallet that paid; do not pay again.',
    ],
  }),
  ...refusals(
    409,
    {
      ACCOUNT_EXISTS: ['There is an account of that name already', 'Choose another name.'],
      BATCH_HAS_ENDED: ['The batch has ended', 'Read its result with `GET /batches/{id}`.'],
      FILE_IN_USE: ['A batch still reads the file', 'Wait for the batch, or cancel it.'],
      NEEDS_CONSENT: [
        'The model needs a consent for the media of this request',
        'Show the policy of the answer, and send `consents` with its version once it is agreed to.',
      ],
      REFERENCE_REUSED: [
        'The reference stands for another movement',
        'Use a reference of its own for each movement.',
      ],
    },
    false,
  ),
  ...refusals(410, {
    IDEMPOTENT_ANSWER_NOT_KEPT: [
      'The request with this idempotency key ran and was charged once; its response is not kept. Use a new key to run it, and pay for it, again',
      'The message says why: the response was larger than 16 MiB, broke off, or was dropped for newer ones of the account. Use a new key.',
    ],
    MODEL_RETIRED: ['The model is retired', 'Use the replacement that the message names.'],
    VIDEO_CANCELLED: ['The video was cancelled', 'Queue it again.'],
  }),
  ...refusals(413, {
    PAYLOAD_TOO_LARGE: ['The body is too large', 'Send a smaller body.'],
  }),
  ...refusals(415, {
    INVALID_CONTENT_TYPE: [
      'The Content-Type is not supported',
      'Send `Content-Type: application/json`.',
    ],
  }),
  ...refusals(416, {
    RANGE_NOT_SATISFIABLE: [
      'The range begins behind the end of the file',
      'Ask for bytes that the file has: the message names its size.',
    ],
  }),
  ...refusals(422, {
    VIDEO_DURATION_TOO_LONG: ['The video is too long', 'Send a shorter video.'],
    VIDEO_DURATION_TOO_SHORT: ['The video is too short', 'Send a longer video.'],
    IMAGE_TOO_LARGE: [
      'The image is too large',
      'Send an image within the limits that the message names.',
    ],
    SUBJECT_NOT_FOUND: [
      'The model finds nothing to cut out in the image',
      'Send an image of what the model is made for, or choose another model.',
    ],
    CONTENT_POLICY_VIOLATION: ['The engine refused the content', 'Change the content.'],
    VIDEO_REQUEST_REFUSED: ['The engine refused the request', 'Change the request.'],
    ASR_UPSTREAM_VALIDATION_FAILED: [
      'The transcription engine refused the media',
      'Send media with an audio track.',
    ],
  }),
  ...refusals(429, {
    RATE_LIMIT_EXCEEDED: [
      'The rate limit is reached',
      'Wait until the time that the headers name.',
    ],
    CREDIT_HELD: [
      'The credit for this request is held by requests that are running; try again when one has ended, or ask for less with max_completion_tokens',
      'Try again after the time in `Retry-After`, or send a smaller `max_completion_tokens`.',
    ],
    FAILED_REQUESTS: ['Too many failed requests', 'Wait 30 seconds, then correct the request.'],
    IDEMPOTENCY_STORAGE_FULL: [
      'The idempotency keys of this account take all the storage that it has for kept responses',
      'Send the request without `Idempotency-Key`, or wait until keys are 24 hours old.',
    ],
    MODEL_OVERLOADED: ['The model is overloaded', 'Try again after the time in `Retry-After`.'],
    X402_CONCURRENCY_LIMIT: ['Too many concurrent requests', 'Wait for one to end.'],
  }),
  ...refusals(500, {
    INFERENCE_FAILED: ['The inference failed', 'Try again; nothing was charged.'],
    UNKNOWN_ERROR: [
      'Something went wrong on our side',
      'Try again, and give the request id to the operator if it stays.',
    ],
  }),
  ...refusals(502, {
    ASR_UPSTREAM_FAILED: ['The transcription engine failed', 'Try again; nothing was charged.'],
  }),
  ...refusals(503, {
    MODEL_OFFLINE: ['The model is offline', 'Try again later or choose another model.'],
    MODEL_AT_CAPACITY: ['The model is at capacity', 'Try again after the time in `Retry-After`.'],
    SERVICE_UNAVAILABLE: [
      'The service is not available',
      'Try again after the time in `Retry-After`.',
    ],
    SHUTTING_DOWN: ['The server is shutting down', 'Try again; another server answers.'],
    RPC_NETWORK_UNAVAILABLE: [
      'The network has no healthy node',
      'Try again after the time in `Retry-After`.',
    ],
    RPC_TIMEOUT: [
      'No node responded in time; request less at once',
      'Request less at once, or try again after the time in `Retry-After`; nothing was charged.',
    ],
    RPC_UPSTREAM_FAILED: [
      'No node responded',
      'Read the reason in the message; try again after the time in `Retry-After`. Nothing was charged.',
    ],
  }),
  ...refusals(
    503,
    {
      X402_NOT_CONFIGURED: ['Wallet payments are not configured on this server', 'Use an API key.'],
    },
    false,
  ),
  ...refusals(504, {
    REQUEST_TIMEOUT: ['The engine took too long', 'Use `stream: true` for long answers.'],
    SETTLEMENT_TIMEOUT: [
      'The payment is not confirmed yet',
      'Send the same header again; do not sign a new one.',
    ],
  }),
} as const;
