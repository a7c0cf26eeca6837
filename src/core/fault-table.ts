/**
 * The catalogue of expected errors: code, HTTP status, public message, and whether the same request
 * can succeed later. `docs/reference/errors.md` is checked against this table.
 */

import { WALLET_SIGN_IN_TEXTS } from './wallet-sign-in-texts.ts';

interface FaultKind {
  readonly status: number;
  /** Default public message: what is wrong and, if it is short, what would be right. */
  readonly message: string;
  /** Next step of the client, for the reference page. */
  readonly remedy: string;
  /** True if the same request can succeed later; otherwise `x-should-retry: false` is sent. */
  readonly canRetry: boolean;
}

function faults<Code extends string>(
  status: number,
  texts: Readonly<Record<Code, readonly [message: string, remedy: string]>>,
  canRetry = isTransient(status),
): Readonly<Record<Code, FaultKind>> {
  const kinds = Object.entries<readonly [string, string]>(texts).map(
    ([code, [message, remedy]]) => [code, { status, message, remedy, canRetry }],
  );
  return Object.fromEntries(kinds) as Record<Code, FaultKind>; // has one entry per key of `texts`
}

/** True for timeouts, conflicts, limits and server errors, which a retry can avoid. */
function isTransient(status: number): boolean {
  return status < 400 || status === 408 || status === 409 || status === 429 || status >= 500;
}

/** Every error code of a response body, ordered by status. */
export const FAULTS = {
  ...faults(202, {
    SETTLEMENT_PENDING: [
      'The payment is not confirmed yet',
      'Send the same payment header again; do not sign a new payment.',
    ],
  }),
  ...faults(400, {
    INVALID_REQUEST: ['The request is not valid', 'Correct the fields named in `details`.'],
    MALFORMED_REQUEST: ['The request is not valid HTTP/1.1', 'Use an HTTP client.'],
    HEADERS_TOO_LARGE: ['The headers are larger than 64 KiB', 'Send at most 64 KiB of headers.'],
    INVALID_JSON: ['The body is not valid JSON', 'Send one JSON document in UTF-8.'],
    INVALID_MODEL: [
      'The model cannot serve this request',
      'Choose a model of the right type from `GET /models`.',
    ],
    CONTEXT_LENGTH_EXCEEDED: [
      'The prompt is longer than the context of the model',
      'Shorten the prompt, or choose a model with a longer context.',
    ],
    TOO_MANY_TOKENS: [
      'The input has too many tokens',
      'Split the input; `GET /models` lists the limit of the model.',
    ],
    INVALID_AUDIO_FORMAT: [
      'The audio format is not supported',
      'Use a format that the message lists.',
    ],
    INVALID_VIDEO_FORMAT: [
      'The video format is not supported; send MP4, MOV, MPEG or WebM',
      'Convert the video.',
    ],
    CORRUPTED_IMAGE: [
      'The image cannot be decoded; send PNG, JPEG, WebP, HEIF or AVIF',
      'Check the file, or convert it.',
    ],
    IMAGE_TOO_SMALL: ['The image is too small', 'Resize the image to the limits in the message.'],
    UNSUPPORTED_PARAMETER: [
      'The parameter is not supported',
      'Omit the parameter that the message names.',
    ],
    PREVIOUS_RESPONSE_NOT_FOUND: [
      'The previous response was not stored, or has been deleted',
      'Send the whole conversation as `input`.',
    ],
    REQUEST_ID_NOT_FOUND: ['Request not found', 'Check the id.'],
    API_KEY_NOT_FOUND: ['API key not found', 'List the keys with `GET /api_keys`.'],
    BUDGET_NOT_FOUND: ['Budget not found', 'List the budgets with `GET /budgets`.'],
    API_KEY_LIMIT_REACHED: [
      'The account has the maximum number of active API keys; delete one first',
      'Delete a key with `DELETE /api_keys`.',
    ],
    WEBHOOK_LIMIT_REACHED: [
      'The account has the maximum number of webhooks; delete one first',
      'Delete a webhook with `DELETE /webhooks/{id}`.',
    ],
    MEMBER_LIMIT_REACHED: [
      'The account has the maximum number of members or open invitations',
      'Remove a member, or delete an invitation with `DELETE /members/invitations/{id}`.',
    ],
    BUDGET_LIMIT_REACHED: [
      'The account has the maximum number of budgets, or the budget has the maximum number of tag values',
      'Delete a budget. A budget with too many values can be created again, which drops unused values.',
    ],
    UNSAFE_URL: [
      'The URL must be a public http or https URL without credentials',
      'Host the file at a public URL, or send it in the request.',
    ],
    FETCH_FAILED: [
      'The URL could not be fetched',
      'Check that the URL is reachable from the public internet.',
    ],
    IDEMPOTENCY_KEY_REUSED: [
      'The idempotency key was used with another request; use a new key',
      'Use a new key for each request, and the same key only for retries.',
    ],
    INVALID_IDEMPOTENCY_KEY: ['The idempotency key must match [A-Za-z0-9_-]{1,255}', 'Use a UUID.'],
    UNSUPPORTED_METHOD: [
      'The JSON-RPC method is not supported on this network',
      'Use a method that the documentation lists.',
    ],
    UNSUPPORTED_RPC_NETWORK: [
      'The RPC network is not supported',
      'Choose one from `GET /crypto/rpc/networks`.',
    ],
    PAYMENT_HEADER_NOT_ACCEPTED: [
      'This route does not accept a payment header',
      'Send the header to `POST /x402/top-up` or to an inference route.',
    ],
    INVALID_PAYMENT_FORMAT: [
      'The payment header must be base64 of an x402 payment in JSON',
      'Create the header with an x402 client.',
    ],
    INVALID_PAYMENT: ['The payment is not valid', 'Sign one entry of `accepts` again.'],
    UNSUPPORTED_NETWORK: ['The payment network is not supported', 'Use a network of `accepts`.'],
    INVALID_PAYMENT_RECIPIENT: [
      'The payment has another receiver than `payTo` of `accepts`',
      'Sign a payment to the `payTo` of `accepts`.',
    ],
    UNSUPPORTED_TOKEN: ['The payment token is not supported', 'Use the `asset` of `accepts`.'],
    UNSUPPORTED_SCHEME: ['The payment scheme is not supported', 'Use a `scheme` of `accepts`.'],
    INVALID_AMOUNT: [
      'The payment amount must be a positive whole number of base units',
      'Sign an amount in base units of the token; 1 USDC is 1000000.',
    ],
    INVALID_PAYMENT_PAYER: [
      'The payer of the payment is not the signer',
      'Pay from the wallet that signs.',
    ],
    AMOUNT_TOO_LOW: [
      'The payment is below the minimum top-up',
      'Pay at least the minimum in the message.',
    ],
    AMOUNT_TOO_HIGH: [
      'The payment is above the maximum top-up',
      'Pay at most the maximum in the message.',
    ],
    PAYMENT_VERIFICATION_FAILED: [
      'The payment could not be verified',
      'Correct the problem that the message names, then sign a new payment.',
    ],
  }),
  ...faults(401, {
    AUTHENTICATION_FAILED: ['Authentication failed', 'Check the API key.'],
    AUTHENTICATION_FAILED_INACTIVE_KEY: ['The API key is revoked or expired', 'Use another key.'],
    PRO_ONLY_MODEL: [
      'The model is only available to Pro users',
      'Choose another model, or request the pro plan from the operator.',
    ],
    ADMIN_KEY_REQUIRED: ['This route needs an ADMIN key', 'Use an ADMIN key.'],
    ...WALLET_SIGN_IN_TEXTS,
  }),
  ...faults(402, {
    INSUFFICIENT_BALANCE: ['The balance is too low', 'Add credit.'],
    API_KEY_USD_SPEND_LIMIT_EXCEEDED: [
      'The USD spend limit of the API key is reached',
      'Raise the limit, or wait for the reset.',
    ],
    API_KEY_DIEM_SPEND_LIMIT_EXCEEDED: [
      'The DIEM spend limit of the API key is reached',
      'Raise the limit, or wait for the reset.',
    ],
    PAYMENT_REQUIRED: ['Payment required', 'Top up the wallet.'],
    SETTLEMENT_FAILED: [
      'The payment could not be settled',
      'Sign a new payment only if the message says that no money was transferred.',
    ],
  }),
  ...faults(403, {
    UNAUTHORIZED: ['Not allowed', 'Use credentials of the owner of the resource.'],
    API_ACCESS_DISABLED: ['API access is disabled for this account', 'Contact the operator.'],
    REGION_NOT_ALLOWED: [
      'The model is not offered in this country',
      'Choose another model; `GET /models` lists the countries of each.',
    ],
    MODEL_NOT_ALLOWED: ['The API key may not use this model', 'Use another key or another model.'],
    OPERATOR_KEY_REQUIRED: [
      "This route needs an ADMIN key of the operator's account",
      'Contact the operator.',
    ],
    MEMBER_ROLE_REQUIRED: [
      'The role of this member does not allow the request',
      'Contact an owner of the account, who can change the role.',
    ],
    SIGN_IN_NOT_ALLOWED: [
      'This person has no account here, and no rule of the server creates one',
      'Use the link of an invitation, or contact the operator.',
    ],
    CONFIG_READ_ONLY: [
      'The server may not write the configuration file',
      'Change the file where it is managed.',
    ],
    CSRF_CHECK_FAILED: [
      'The request of a console session has no valid `Origin` or `X-CSRF-Token`',
      'Send the request from a page of this origin, with the token of the session. In programs use an API key.',
    ],
    X402_WALLET_MISMATCH: [
      'The signer is not the wallet of the path',
      'Sign with the wallet in the path.',
    ],
  }),
  ...faults(404, {
    NOT_FOUND: ['Not found', 'Check the path; all paths start with /api/v1.'],
    MODEL_NOT_FOUND: ['Model not found', 'Choose one from `GET /models`.'],
    CHARACTER_NOT_FOUND: ['Character not found', 'Choose one from `GET /characters`.'],
    ACCOUNT_NOT_FOUND: ['Account not found', 'List them with `GET /admin/accounts`.'],
    SESSION_NOT_FOUND: ['Session not found, or ended', 'List them with `GET /console/sessions`.'],
    MEMBER_NOT_FOUND: ['Member not found', 'List the members with `GET /members`.'],
    INVITATION_NOT_FOUND: [
      'The invitation was used, has expired or was deleted',
      'Request a new link from the sender.',
    ],
    PAYMENT_NOT_FOUND: ['Payment not found', 'List them with `GET /admin/top-ups`.'],
    FILE_NOT_FOUND: ['File not found', 'List the files with `GET /files`.'],
    WEBHOOK_NOT_FOUND: ['Webhook not found', 'List the webhooks with `GET /webhooks`.'],
    BATCH_NOT_FOUND: ['Batch not found', 'List the batches with `GET /batches`.'],
    MEDIA_NOT_FOUND: ['Media not found, or expired', 'Queue the job again.'],
  }),
  ...faults(405, {
    METHOD_NOT_ALLOWED: [
      'The method is not allowed on this path',
      'Use a method of the `Allow` header.',
    ],
  }),
  ...faults(408, {
    REQUEST_TOO_SLOW: [
      'The request did not arrive in time',
      'Send the whole request without pauses.',
    ],
  }),
  ...faults(409, {
    REQUEST_IN_PROGRESS: [
      'A request with the same idempotency key is still running',
      'Retry after the first request has ended.',
    ],
    PAYMENT_IN_PROGRESS: [
      'The payment is being settled',
      'Send the same payment header again; do not sign a new payment.',
    ],
    PAYMENT_ALREADY_CREDITED: [
      'The payment is already credited',
      'Sign in with the wallet that paid; do not pay again.',
    ],
  }),
  ...faults(
    409,
    {
      NO_SAVED_CARD: ['The account has no saved card', 'Pay once with `saveCard: true`.'],
      ACCOUNT_EXISTS: ['An account with this name already exists', 'Choose another name.'],
      LAST_OWNER: [
        'The account must keep one member with the role owner',
        'Give the role owner to another member first.',
      ],
      BATCH_HAS_ENDED: ['The batch has ended', 'Read its result with `GET /batches/{id}`.'],
      CONFIG_CHANGED: [
        'The configuration file has changed since it was read',
        'Read it again, and repeat the change.',
      ],
      FILE_IN_USE: ['A running batch uses the file', 'Wait for the batch, or cancel it.'],
      NEEDS_CONSENT: [
        'The model needs a consent for the media of this request',
        'Show the policy in the response to the user; after the consent, send `consents` with its version.',
      ],
      REFERENCE_REUSED: [
        'The reference was used for another credit, debit or refund',
        'Use a new reference for each credit, debit or refund.',
      ],
    },
    false,
  ),
  ...faults(410, {
    IDEMPOTENT_ANSWER_NOT_KEPT: [
      'The request with this idempotency key ran and was charged once, but its response is not stored; use a new key to run and pay it again',
      'The response was larger than 16 MiB, incomplete, or deleted to store newer ones. Use a new key.',
    ],
    MODEL_RETIRED: ['The model is retired', 'Use the replacement in the message.'],
    VIDEO_CANCELLED: ['The video was cancelled', 'Queue the job again.'],
  }),
  ...faults(413, {
    PAYLOAD_TOO_LARGE: ['The body is too large', 'Send a smaller body.'],
  }),
  ...faults(415, {
    INVALID_CONTENT_TYPE: [
      'The Content-Type is not supported',
      'Send `Content-Type: application/json`.',
    ],
  }),
  ...faults(416, {
    RANGE_NOT_SATISFIABLE: [
      'The range begins after the end of the file',
      'Request bytes below the size in the message.',
    ],
  }),
  ...faults(422, {
    VIDEO_DURATION_TOO_LONG: ['The video is too long', 'Send a shorter video.'],
    VIDEO_DURATION_TOO_SHORT: ['The video is too short', 'Send a longer video.'],
    IMAGE_TOO_LARGE: ['The image is too large', 'Resize the image to the limits in the message.'],
    SUBJECT_NOT_FOUND: [
      'The model found no subject in the image',
      'Send an image with a subject that the model supports, or choose another model.',
    ],
    CONTENT_POLICY_VIOLATION: ['The engine rejected the content', 'Change the content.'],
    VIDEO_REQUEST_REFUSED: ['The engine rejected the request', 'Change the request.'],
    ASR_UPSTREAM_VALIDATION_FAILED: [
      'The transcription engine rejected the media',
      'Send media with an audio track.',
    ],
  }),
  ...faults(429, {
    RATE_LIMIT_EXCEEDED: [
      'The rate limit is reached',
      'Wait until the time in the rate limit headers.',
    ],
    CREDIT_HELD: [
      'Running requests hold the credit for this request; retry after one has ended, or send a smaller max_completion_tokens',
      'Retry after the time in `Retry-After`, or send a smaller `max_completion_tokens`.',
    ],
    FAILED_REQUESTS: ['Too many failed requests', 'Wait 30 seconds, then correct the request.'],
    IDEMPOTENCY_STORAGE_FULL: [
      'The storage of this account for responses with idempotency keys is full',
      'Send the request without `Idempotency-Key`, or wait: responses are deleted after 24 hours.',
    ],
    MODEL_OVERLOADED: ['The model is overloaded', 'Retry after the time in `Retry-After`.'],
    X402_CONCURRENCY_LIMIT: ['Too many concurrent requests', 'Wait until a request has ended.'],
  }),
  ...faults(500, {
    INFERENCE_FAILED: ['The inference failed', 'Retry; nothing was charged.'],
    UNKNOWN_ERROR: [
      'Internal error of the server',
      'Retry. If the error persists, send the request id to the operator.',
    ],
  }),
  ...faults(502, {
    ASR_UPSTREAM_FAILED: ['The transcription engine failed', 'Retry; nothing was charged.'],
  }),
  ...faults(503, {
    MODEL_OFFLINE: ['The model is offline', 'Retry later, or choose another model.'],
    MODEL_AT_CAPACITY: ['The model is at capacity', 'Retry after the time in `Retry-After`.'],
    SERVICE_UNAVAILABLE: ['The service is not available', 'Retry after the time in `Retry-After`.'],
    SHUTTING_DOWN: ['The server is shutting down', 'Retry; another server handles the request.'],
    RPC_NETWORK_UNAVAILABLE: [
      'The network has no healthy node',
      'Retry after the time in `Retry-After`.',
    ],
    RPC_TIMEOUT: [
      'No node responded in time; request less data at once',
      'Request less data at once, or retry after the time in `Retry-After`. Nothing was charged.',
    ],
    RPC_UPSTREAM_FAILED: [
      'No node responded',
      'Retry after the time in `Retry-After`. Nothing was charged.',
    ],
    PAYMENT_PROVIDER_UNAVAILABLE: ['The payment provider did not respond', 'Retry later.'],
  }),
  ...faults(
    503,
    {
      X402_NOT_CONFIGURED: ['Wallet payments are not configured on this server', 'Use an API key.'],
      CHECKOUT_NOT_CONFIGURED: ['This server takes no card payments', 'Use another payment.'],
    },
    false,
  ),
  ...faults(504, {
    REQUEST_TIMEOUT: [
      'The engine did not respond in time',
      'Use `stream: true` for long completions.',
    ],
    SETTLEMENT_TIMEOUT: [
      'The payment is not confirmed yet',
      'Send the same payment header again; do not sign a new payment.',
    ],
  }),
} as const;
