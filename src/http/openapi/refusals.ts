/** Error codes of a route and of the stages before it, by status, and the schemas of the responses. */
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import type { JsonSchema } from '../describe.ts';
import { takesIdempotencyKey } from '../idempotent.ts';
import type { Route } from '../route.ts';
import { reference } from './error-schemas.ts';

/** Error codes of payments, in top-ups and in headers of inference requests. */
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

/** Error codes of routes that run a model. */
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

/** Error codes of images in requests. */
export const PICTURE_REFUSALS: readonly FaultCode[] = [
  'UNSAFE_URL',
  'FETCH_FAILED',
  'CORRUPTED_IMAGE',
  'IMAGE_TOO_SMALL',
  'IMAGE_TOO_LARGE',
];

/** Error codes of the sign-in of a wallet. */
export const SIGN_IN_REFUSALS = Object.keys(FAULTS).filter((code) =>
  /^X402_(?:INVALID_)?SIGN_IN/.test(code),
) as FaultCode[]; // keys of the catalogue

/** Returns the error codes of a route and of the stages before it. */
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
        'MEMBER_ROLE_REQUIRED',
        'CSRF_CHECK_FAILED',
        // A wallet token is a bearer token, and can be expired.
        'X402_INVALID_SIGN_IN',
        'PAYMENT_REQUIRED',
        'PAYMENT_HEADER_NOT_ACCEPTED',
      ],
    ],
    [takesWallets(route), [...SIGN_IN_REFUSALS, 'X402_NOT_CONFIGURED', 'X402_CONCURRENCY_LIMIT']],
    [paysHere(route), PAYMENT_REFUSALS],
    [auth.startsWith('admin'), ['ADMIN_KEY_REQUIRED']],
    [auth === 'operator', ['ADMIN_KEY_REQUIRED', 'OPERATOR_KEY_REQUIRED']],
    // Methods that can have a body, also if the route reads none.
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
        'IDEMPOTENCY_STORAGE_FULL',
      ],
    ],
  ];
  const codes = stages.flatMap(([isPassed, given]) => (isPassed ? given : []));
  return [...new Set([...(describe?.refusals ?? []), ...codes])];
}

export function takesWallets(route: Route): boolean {
  return route.auth.endsWith('wallet');
}

/** Groups codes by status, in ascending order. */
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

/** Returns the schema of an error response of `route` with one of `codes`. */
export function errorSchema(route: Route, codes: readonly FaultCode[]): JsonSchema {
  const shapes = [narrowed('Error', 'code', codes), reference('OpenAiError')];
  const ofPayments = paysHere(route) ? codes.filter(isOfPayment) : [];
  if (ofPayments.length > 0) shapes.push(narrowed('PaymentRefused', 'error', ofPayments));
  if (codes.includes('PAYMENT_REQUIRED')) shapes.push(...paymentOffers(route));
  return { anyOf: shapes };
}

/** Returns the x402 bodies, which are the same in every error format. */
function paymentOffers(route: Route): JsonSchema[] {
  const offers = [reference('PaymentRequired'), reference('PaymentRequiredV1')];
  return takesWallets(route) ? [...offers, reference('InsufficientCredit')] : offers;
}

/** Adds the bodies of other formats to the error schema of a protocol, for errors before the route is known. */
export function ownError(route: Route, status: number, own: JsonSchema): JsonSchema {
  if (status === 402 && takesWallets(route)) return { anyOf: [own, ...paymentOffers(route)] };
  const isPathRead = status !== 400 || !route.path.includes(':');
  return isPathRead ? own : { anyOf: [own, reference('Error'), reference('OpenAiError')] };
}

function narrowed(name: string, member: string, codes: readonly FaultCode[]): JsonSchema {
  return {
    allOf: [
      reference(name),
      { properties: { [member]: { enum: [...codes], description: 'Error code of this status.' } } },
    ],
  };
}

/** True for error codes of payments; a 503 means that the chain is unreachable. */
function isOfPayment(code: FaultCode): boolean {
  return code === 'SERVICE_UNAVAILABLE' || PAYMENT_REFUSALS.includes(code);
}

/** True if a request of the route can contain a payment. */
export function paysHere(route: Route): boolean {
  return (
    (route.auth === 'key-or-wallet' && route.sells !== undefined) ||
    route.describe?.refusals?.includes('INVALID_PAYMENT') === true
  );
}
