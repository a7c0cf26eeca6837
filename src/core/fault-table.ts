/**
 * The catalogue of expected refusals: code -> HTTP status, public sentence, and whether the same
 * request can succeed later. `docs/reference/errors.md` is checked against this table.
 */

interface FaultKind {
  readonly status: number;
  /** The default public sentence; a fault can say it more precisely. */
  readonly message: string;
  /** What the caller does next, for the reference page. */
  readonly remedy: string;
  /** Whether the same request can succeed later; where it cannot, `x-should-retry` says so. */
  readonly canRetry: boolean;
}

function kind(
  status: number,
  message: string,
  remedy: string,
  canRetry = isPassing(status),
): FaultKind {
  return { status, message, remedy, canRetry };
}

/** A refusal of the request stays one; time, conflicts, limits and our own failures pass. */
function isPassing(status: number): boolean {
  return status < 400 || status === 408 || status === 409 || status === 429 || status >= 500;
}

/** Every code that a body can carry, in order of status. */
export const FAULTS = {
  SETTLEMENT_PENDING: kind(
    202,
    'The payment is not confirmed yet',
    'Send the same header again; do not sign a new one.',
  ),
  INVALID_REQUEST: kind(400, 'The request is not valid', 'Correct the fields named in `details`.'),
  MALFORMED_REQUEST: kind(400, 'The request is not HTTP', 'Use an HTTP client.'),
  HEADERS_TOO_LARGE: kind(400, 'The headers are too large', 'Send at most 64 KiB of headers.'),
  INVALID_JSON: kind(400, 'The body is not valid JSON', 'Send one JSON document in UTF-8.'),
  INVALID_MODEL: kind(
    400,
    'The model cannot serve this request',
    'Choose a model of the right type from `GET /models`.',
  ),
  CONTEXT_LENGTH_EXCEEDED: kind(
    400,
    'The prompt is longer than the context of the model',
    'Shorten the prompt, or choose a model with a longer context.',
  ),
  TOO_MANY_TOKENS: kind(400, 'The input has too many tokens', 'Split the input.'),
  INVALID_AUDIO_FORMAT: kind(
    400,
    'The audio format is not supported',
    'Send one of the formats that the message names.',
  ),
  INVALID_VIDEO_FORMAT: kind(
    400,
    'The video format is not supported',
    'Send MP4, MOV, MPEG or WebM.',
  ),
  CORRUPTED_IMAGE: kind(
    400,
    'The image cannot be read',
    'Send an intact PNG, JPEG, WebP, HEIF or AVIF image.',
  ),
  IMAGE_TOO_SMALL: kind(
    400,
    'The image is too small',
    'Send an image within the limits that the message names.',
  ),
  REQUEST_ID_NOT_FOUND: kind(400, 'No such request', 'Check the id.'),
  API_KEY_NOT_FOUND: kind(400, 'No such API key', 'List the keys with `GET /api_keys`.'),
  API_KEY_LIMIT_REACHED: kind(
    400,
    'The account has as many active API keys as it may have',
    'Delete a key first.',
  ),
  UNSAFE_URL: kind(
    400,
    'The URL is not a public http(s) address',
    'Use a public http or https URL without credentials.',
  ),
  FETCH_FAILED: kind(
    400,
    'The URL could not be fetched',
    'Check that the URL answers from the public internet.',
  ),
  IDEMPOTENCY_KEY_REUSED: kind(
    400,
    'The idempotency key was used with another body',
    'Use a new key for a new request.',
  ),
  INVALID_IDEMPOTENCY_KEY: kind(
    400,
    'The idempotency key must match [A-Za-z0-9_-]{1,255}',
    'Use a UUID.',
  ),
  UNSUPPORTED_METHOD: kind(
    400,
    'The JSON-RPC method is not supported',
    'Use a method of the list in the documentation.',
  ),
  UNSUPPORTED_RPC_NETWORK: kind(
    400,
    'The RPC network is not supported',
    'Choose one from `GET /crypto/rpc/networks`.',
  ),
  PAYMENT_HEADER_NOT_ACCEPTED: kind(
    400,
    'A payment header is not accepted here',
    'Send it to `POST /x402/top-up` or to an inference endpoint.',
  ),
  INVALID_PAYMENT_FORMAT: kind(
    400,
    'The payment header is not base64 JSON of a known layout',
    'Build the header with an x402 client.',
  ),
  INVALID_PAYMENT: kind(400, 'The payment is not valid', 'Sign one entry of `accepts` again.'),
  UNSUPPORTED_NETWORK: kind(
    400,
    'The payment network is not supported',
    'Use a network of `accepts`.',
  ),
  INVALID_PAYMENT_RECIPIENT: kind(
    400,
    'The payment goes to another receiver',
    'Sign with the `payTo` of `accepts`.',
  ),
  UNSUPPORTED_TOKEN: kind(
    400,
    'The payment token is not supported',
    'Pay with USDC as `accepts` says.',
  ),
  UNSUPPORTED_SCHEME: kind(400, 'The payment scheme is not supported', 'Use the scheme `exact`.'),
  INVALID_AMOUNT: kind(
    400,
    'The payment amount is not valid',
    'Send a whole number of base units.',
  ),
  INVALID_PAYMENT_PAYER: kind(
    400,
    'The payer of the payment is not valid',
    'Pay from the wallet that signed.',
  ),
  AMOUNT_TOO_LOW: kind(
    400,
    'The payment is below the minimum top-up',
    'Pay at least the minimum that the message names.',
  ),
  AMOUNT_TOO_HIGH: kind(
    400,
    'The payment is above the maximum top-up',
    'Pay at most the maximum that the message names.',
  ),
  PAYMENT_VERIFICATION_FAILED: kind(
    400,
    'The payment could not be verified',
    'Read the reason, then sign again.',
  ),
  AUTHENTICATION_FAILED: kind(401, 'Authentication failed', 'Check the API key.'),
  AUTHENTICATION_FAILED_INACTIVE_KEY: kind(
    401,
    'The API key is revoked or expired',
    'Use another key.',
  ),
  PRO_ONLY_MODEL: kind(
    401,
    'The model is only available to Pro users',
    'Choose another model, or ask the operator for the pro plan.',
  ),
  ADMIN_KEY_REQUIRED: kind(401, 'This endpoint needs an ADMIN key', 'Use an ADMIN key.'),
  X402_INVALID_SIGN_IN: kind(401, 'The wallet sign-in is not valid', 'Sign a fresh challenge.'),
  X402_SIGN_IN_INVALID_PAYLOAD: kind(
    401,
    'The sign-in header is not base64 JSON of a known layout',
    'Encode the proof as base64 of JSON.',
  ),
  X402_SIGN_IN_PARSE_ERROR: kind(
    401,
    'The sign-in message cannot be parsed',
    'Use the EIP-4361 text.',
  ),
  X402_SIGN_IN_INVALID_MESSAGE: kind(
    401,
    'The sign-in message lacks a required field',
    'Fill every required field of the message.',
  ),
  X402_SIGN_IN_ADDRESS_MISMATCH: kind(
    401,
    'The address differs from the one in the message',
    'Send the address that signed.',
  ),
  X402_SIGN_IN_INVALID_CHAIN_ID: kind(401, 'The chain id is not valid', 'Use a CAIP-2 chain id.'),
  X402_SIGN_IN_CHAIN_MISMATCH: kind(
    401,
    'The chain id differs from the one in the message',
    'Send the chain of the message.',
  ),
  X402_SIGN_IN_UNSUPPORTED_CHAIN: kind(
    401,
    'The chain is not supported for sign-in',
    'Sign in on Base (8453) or Solana mainnet.',
  ),
  X402_SIGN_IN_MISSING_NONCE: kind(401, 'The sign-in has no nonce', 'Add a fresh random nonce.'),
  X402_SIGN_IN_DOMAIN_MISMATCH: kind(
    401,
    'The sign-in is for another domain',
    'Sign for the domain of the challenge.',
  ),
  X402_SIGN_IN_TIMESTAMP_MISMATCH: kind(
    401,
    'The timestamp differs from the issued-at time',
    'Use the time of signing.',
  ),
  X402_SIGN_IN_EXPIRED: kind(401, 'The sign-in has expired', 'Sign a fresh challenge.'),
  X402_SIGN_IN_FUTURE_TIMESTAMP: kind(
    401,
    'The sign-in was issued in the future',
    'Check the clock.',
  ),
  X402_SIGN_IN_NOT_BEFORE: kind(
    401,
    'The sign-in is not valid yet',
    'Wait until its not-before time.',
  ),
  X402_SIGN_IN_INVALID_SIGNATURE: kind(
    401,
    'The signature does not verify',
    'Sign the exact message with the wallet.',
  ),
  X402_SIGN_IN_INVALID_WALLET: kind(
    401,
    'The wallet address is not valid',
    'Use a checksummed EVM or base58 Solana address.',
  ),
  X402_SIGN_IN_NONCE_REUSED: kind(
    401,
    'The sign-in was already used',
    'Sign a fresh challenge for each request.',
  ),
  INSUFFICIENT_BALANCE: kind(402, 'The balance is too low', 'Add credit.'),
  API_KEY_USD_SPEND_LIMIT_EXCEEDED: kind(
    402,
    'The USD spend limit of the API key is reached',
    'Raise the limit or wait for the reset.',
  ),
  API_KEY_DIEM_SPEND_LIMIT_EXCEEDED: kind(
    402,
    'The DIEM spend limit of the API key is reached',
    'Raise the limit or wait for the reset.',
  ),
  PAYMENT_REQUIRED: kind(402, 'Payment required', 'Top up the wallet.'),
  SETTLEMENT_FAILED: kind(
    402,
    'The payment could not be settled',
    'Read the reason; sign a new payment only if it says that nothing moved.',
  ),
  UNAUTHORIZED: kind(403, 'Not allowed', 'Use credentials that own the resource.'),
  API_ACCESS_DISABLED: kind(403, 'API access is disabled for this account', 'Ask the operator.'),
  MODEL_NOT_ALLOWED: kind(
    403,
    'The API key may not use this model',
    'Use another key or another model.',
  ),
  X402_WALLET_MISMATCH: kind(
    403,
    'The signer is not the wallet of the path',
    'Sign with the wallet that you ask about.',
  ),
  NOT_FOUND: kind(404, 'Not found', 'Check the path; all paths start with /api/v1.'),
  MODEL_NOT_FOUND: kind(404, 'The model does not exist', 'Choose one from `GET /models`.'),
  CHARACTER_NOT_FOUND: kind(
    404,
    'The character does not exist',
    'Choose one from `GET /characters`.',
  ),
  MEDIA_NOT_FOUND: kind(404, 'The media does not exist or has expired', 'Queue it again.'),
  METHOD_NOT_ALLOWED: kind(
    405,
    'The method is not allowed on this path',
    'Use a method of the `Allow` header.',
  ),
  REQUEST_TOO_SLOW: kind(
    408,
    'The request took too long to arrive',
    'Send the whole request without a pause.',
  ),
  REQUEST_IN_PROGRESS: kind(
    409,
    'The same request is still running',
    'Send it again when it has ended.',
  ),
  PAYMENT_IN_PROGRESS: kind(
    409,
    'The payment is being settled',
    'Send the same header again; do not sign a new one.',
  ),
  PAYMENT_ALREADY_CREDITED: kind(
    409,
    'The payment is credited already',
    'Sign in with the wallet that paid; do not pay again.',
  ),
  IDEMPOTENT_ANSWER_NOT_KEPT: kind(
    410,
    'The request with this idempotency key ran and was charged once; its answer was larger than 16 MiB and is not kept. Use a new key to run it, and pay for it, again',
    'Use a new key, and a smaller request or `stream: true`, and read the answer to its end.',
  ),
  MODEL_RETIRED: kind(410, 'The model is retired', 'Use the replacement that the message names.'),
  VIDEO_CANCELLED: kind(410, 'The video was cancelled', 'Queue it again.'),
  PAYLOAD_TOO_LARGE: kind(413, 'The body is too large', 'Send a smaller body.'),
  INVALID_CONTENT_TYPE: kind(
    415,
    'The Content-Type is not supported',
    'Send `Content-Type: application/json`.',
  ),
  VIDEO_DURATION_TOO_LONG: kind(422, 'The video is too long', 'Send a shorter video.'),
  VIDEO_DURATION_TOO_SHORT: kind(422, 'The video is too short', 'Send a longer video.'),
  IMAGE_TOO_LARGE: kind(
    422,
    'The image is too large',
    'Send an image within the limits that the message names.',
  ),
  SUBJECT_NOT_FOUND: kind(
    422,
    'The model finds nothing to cut out in the image',
    'Send an image of what the model is made for, or choose another model.',
  ),
  CONTENT_POLICY_VIOLATION: kind(422, 'The engine refused the content', 'Change the content.'),
  VIDEO_REQUEST_REFUSED: kind(422, 'The engine refused the request', 'Change the request.'),
  ASR_UPSTREAM_VALIDATION_FAILED: kind(
    422,
    'The transcription engine refused the media',
    'Send media with an audio track.',
  ),
  RATE_LIMIT_EXCEEDED: kind(
    429,
    'The rate limit is reached',
    'Wait until the time that the headers name.',
  ),
  CREDIT_HELD: kind(
    429,
    'The credit for this request is held by requests that are running; try again when one has ended, or ask for less with max_completion_tokens',
    'Try again after the time in `Retry-After`, or send a smaller `max_completion_tokens`.',
  ),
  FAILED_REQUESTS: kind(
    429,
    'Too many failed requests',
    'Wait 30 seconds, then correct the request.',
  ),
  MODEL_OVERLOADED: kind(
    429,
    'The model is overloaded',
    'Try again after the time in `Retry-After`.',
  ),
  X402_CONCURRENCY_LIMIT: kind(429, 'Too many concurrent requests', 'Wait for one to end.'),
  INFERENCE_FAILED: kind(500, 'The inference failed', 'Try again; nothing was charged.'),
  RPC_UPSTREAM_FAILED: kind(500, 'No node answered', 'Try again; nothing was charged.'),
  UNKNOWN_ERROR: kind(
    500,
    'Something went wrong on our side',
    'Try again, and give the request id to the operator if it stays.',
  ),
  ASR_UPSTREAM_FAILED: kind(
    502,
    'The transcription engine failed',
    'Try again; nothing was charged.',
  ),
  MODEL_OFFLINE: kind(503, 'The model is offline', 'Try again later or choose another model.'),
  MODEL_AT_CAPACITY: kind(
    503,
    'The model is at capacity',
    'Try again after the time in `Retry-After`.',
  ),
  SERVICE_UNAVAILABLE: kind(
    503,
    'The service is not available',
    'Try again after the time in `Retry-After`.',
  ),
  SHUTTING_DOWN: kind(503, 'The server is shutting down', 'Try again; another server answers.'),
  RPC_NETWORK_UNAVAILABLE: kind(503, 'The network has no healthy node', 'Try again later.'),
  X402_NOT_CONFIGURED: kind(
    503,
    'Wallet payments are not configured on this server',
    'Use an API key.',
    false,
  ),
  REQUEST_TIMEOUT: kind(504, 'The engine took too long', 'Use `stream: true` for long answers.'),
  SETTLEMENT_TIMEOUT: kind(
    504,
    'The payment is not confirmed yet',
    'Send the same header again; do not sign a new one.',
  ),
} as const satisfies Record<string, FaultKind>;
