/**
 * The operator's own shop as a payment provider. Payers are sent to a page of the shop with a signed
 * query. The shop reports payments by webhooks that are signed as defined by Standard Webhooks. These
 * reports are the only source of the amounts, so each one contains the whole sum of its payment.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import * as z from 'zod';
import type { Config } from '../../config/config.ts';
import { type Clock, HOUR_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, formatUsd, smaller, usdToNano } from '../../core/money.ts';
import { parseJsonObject } from '../../json/json-scan.ts';
import { invalidRequest } from '../../json/validation.ts';
import type { CardPayment } from './card-rows.ts';
import type { CheckoutPage, Notice, PaymentFacts, PaymentProvider } from './provider.ts';

type ShopSettings = NonNullable<Config['payments']['shop']>;

const TOLERANCE_SECONDS = 300;
const PAGE_LIFE_MS = HOUR_MS;
/** Payments of the shop that were not started here. */
const SHOP_PREFIX = 'shop_';
const OWN_PREFIX = 'pay_';

const Usd = z.string().regex(/^\d{1,6}(?:\.\d{1,9})?$/, 'Must be USD as text, such as "25.00"');
const PaymentId = z
  .string()
  .regex(/^[\w.:-]{1,100}$/, 'Must have 1 to 100 letters, digits, . _ : -');

const Report = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('payment.paid'),
    data: z.object({
      payment: PaymentId,
      account: z.string().min(1).max(200).optional(),
      paidUsd: Usd,
      receiptUrl: z
        .url({ protocol: /^https$/ })
        .max(2_000)
        .optional(),
    }),
  }),
  z.object({
    type: z.literal('payment.returned'),
    data: z.object({ payment: PaymentId, returnedUsd: Usd }),
  }),
]);

export function openShop(settings: ShopSettings, clock: Clock): PaymentProvider {
  const maximumNano = usdToNano(settings.maximumUsd);
  return {
    name: 'shop',
    minimumNano: usdToNano(settings.minimumUsd),
    maximumNano,
    canRefund: false,
    chargesCards: 'The payment provider of this service saves no cards',
    openPage: async (payment, returnUrl) => pageOf(settings, clock, payment, returnUrl),
    readWebhook: (body, headers, nowMs) => {
      requireSignature(settings.webhookSecret, body, headers, nowMs);
      const report = Report.safeParse(parseJsonObject(body).body);
      if (!report.success) throw invalidRequest(report.error);
      return noticeOf(String(headers['webhook-id']), report.data, maximumNano, nowMs);
    },
    facts: async (payment) => factsOf(payment, clock.nowMs()),
    refund: async () => ({ state: 'failed', failure: 'The shop pays back itself' }),
    chargeCard: async () => ({ failure: 'The shop saves no cards' }),
    deleteCard: async () => undefined,
    events: async function* none() {},
    payments: async function* none() {},
    close: async () => undefined,
  };
}

/** The page of the shop; its query ends with the signature of the text before it. */
function pageOf(
  { checkoutUrl, webhookSecret }: ShopSettings,
  clock: Clock,
  { id, accountId, amountNano }: CardPayment,
  returnUrl: string,
): CheckoutPage {
  const query = new URLSearchParams({
    payment: id,
    account: accountId,
    amount_usd: formatUsd(amountNano, 2),
    return_url: returnUrl,
    expires: String(Math.floor((clock.nowMs() + PAGE_LIFE_MS) / SECOND_MS)),
  }).toString();
  const signature = createHmac('sha256', keyOf(webhookSecret)).update(query).digest('hex');
  return { reference: id, url: `${checkoutUrl}?${query}&signature=${signature}` };
}

function noticeOf(
  eventId: string,
  { type, data }: z.infer<typeof Report>,
  maximumNano: Nano,
  createdMs: number,
): Notice {
  const isOwn = data.payment.startsWith(OWN_PREFIX);
  const paymentId = isOwn ? data.payment : SHOP_PREFIX + data.payment;
  const notice = { eventId: `${SHOP_PREFIX}${eventId}`, type, createdMs, paymentId };
  if (!('paidUsd' in data)) {
    return { ...notice, report: { returnedNano: usdToNano(data.returnedUsd) } };
  }
  const paidNano = usdToNano(data.paidUsd);
  if (paidNano > maximumNano) {
    throw new Fault('INVALID_REQUEST', {
      message: `A payment must be at most ${formatUsd(maximumNano, 2)} USD`,
    });
  }
  const { account: accountId, receiptUrl } = data;
  return { ...notice, report: { paidNano, receiptUrl, accountId } };
}

/** The row contains the largest reported sums. */
function factsOf(
  { state, paidNano, returnedNano, createdMs }: CardPayment,
  nowMs: number,
): PaymentFacts {
  const isOver = nowMs > createdMs + PAGE_LIFE_MS;
  const unpaid = state === 'open' && isOver ? 'expired' : state;
  return {
    state: paidNano > 0n ? 'paid' : unpaid,
    paidNano,
    returnedNano: smaller(paidNano, returnedNano),
    returnReason: 'Payment returned by the shop',
    refunds: new Map(),
  };
}

function keyOf(secret: string): Buffer {
  return Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
}

/** Throws 400 unless one of the signatures is valid for this body and time. */
function requireSignature(
  secret: string,
  body: Buffer,
  headers: IncomingHttpHeaders,
  nowMs: number,
): void {
  const [id, time] = [String(headers['webhook-id']), String(headers['webhook-timestamp'])];
  const isRecent = Math.abs(nowMs / SECOND_MS - Number(time)) <= TOLERANCE_SECONDS;
  const wanted = createHmac('sha256', keyOf(secret)).update(`${id}.${time}.`).update(body).digest();
  const isSigned = String(headers['webhook-signature'])
    .split(' ')
    .filter((one) => one.startsWith('v1,'))
    .map((one) => Buffer.from(one.slice('v1,'.length), 'base64'))
    .some((given) => given.length === wanted.length && timingSafeEqual(given, wanted));
  if (isRecent && isSigned) return;
  throw new Fault('INVALID_REQUEST', {
    message:
      'The signature in the header webhook-signature is not valid for this body and time; check "payments.shop.webhookSecret"',
  });
}
