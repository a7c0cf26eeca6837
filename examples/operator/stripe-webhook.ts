/**
 * A Stripe webhook that adds prepaid credit to an account when a card checkout is paid.
 *
 *   export STRIPE_WEBHOOK_SECRET=whsec_…     # from the webhook in Stripe's dashboard
 *   export FAREBOX_ADMIN_KEY=SVC_ADMIN_KEY_… # an ADMIN key of the operator's account
 *   export FAREBOX_URL=http://127.0.0.1:8402/api/v1
 *   PORT=4242 npx node examples/operator/stripe-webhook.ts
 *
 * Create the checkout session in USD, with the account id (`acct_…`) as `client_reference_id`. Stripe
 * repeats an event until it receives 200, and sometimes sends it twice. The event id is the reference
 * of the credit, so an event is credited once.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

const { STRIPE_WEBHOOK_SECRET, FAREBOX_ADMIN_KEY, FAREBOX_URL, PORT = '4242' } = process.env;
if (!STRIPE_WEBHOOK_SECRET || !FAREBOX_ADMIN_KEY || !FAREBOX_URL) {
  throw new Error('Set STRIPE_WEBHOOK_SECRET, FAREBOX_ADMIN_KEY and FAREBOX_URL');
}
const secret = STRIPE_WEBHOOK_SECRET;

/** Older events are rejected as replays. */
const TOLERANCE_SECONDS = 300;
const PAID_EVENTS = new Set([
  'checkout.session.completed',
  // Sent for payments that take days, such as bank debits.
  'checkout.session.async_payment_succeeded',
]);

interface CheckoutEvent {
  readonly id: string;
  readonly type: string;
  readonly data: {
    readonly object: {
      readonly payment_status: string;
      readonly client_reference_id: string | null;
      readonly currency: string;
      /** In cents. */
      readonly amount_total: number;
    };
  };
}

/** Verifies a header `t=…,v1=…`; `v1` is the HMAC-SHA-256 of the time, a dot and the raw body. */
function isSigned(body: string, header: string): boolean {
  const parts = header.split(',').map((part) => part.split('=', 2));
  const time = parts.find(([name]) => name === 't')?.[1] ?? '';
  if (Math.abs(Date.now() / 1_000 - Number(time)) > TOLERANCE_SECONDS) return false;
  const wanted = createHmac('sha256', secret).update(`${time}.${body}`).digest();
  return parts.some(([name, value = '']) => {
    const given = Buffer.from(value, 'hex');
    return name === 'v1' && given.length === wanted.length && timingSafeEqual(given, wanted);
  });
}

/** Adds the credit; repeated calls with the same event have no further effect. */
async function credit(event: CheckoutEvent): Promise<void> {
  const { client_reference_id: account, currency, amount_total: cents } = event.data.object;
  if (account === null) throw new Error(`${event.id} has no client_reference_id`);
  if (currency !== 'usd') throw new Error(`${event.id} is in ${currency}, not in USD`);
  const response = await fetch(
    `${FAREBOX_URL}/admin/accounts/${encodeURIComponent(account)}/credit`,
    {
      method: 'POST',
      headers: {
        authorization: `Bearer ${FAREBOX_ADMIN_KEY}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({
        amountUsd: `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, '0')}`,
        reference: event.id,
        note: 'Card payment',
      }),
    },
  );
  if (!response.ok) throw new Error(`${event.id}: ${response.status} ${await response.text()}`);
}

const server = createServer((request, response) => {
  const handle = async (): Promise<number> => {
    const body = await text(request);
    if (!isSigned(body, String(request.headers['stripe-signature'] ?? ''))) return 400;
    const event = JSON.parse(body) as CheckoutEvent; // verified above
    const isPaid = PAID_EVENTS.has(event.type) && event.data.object.payment_status === 'paid';
    if (isPaid) await credit(event);
    return 200;
  };
  void handle()
    .catch((error: unknown) => {
      // Stripe repeats the event after an error; the reference prevents a second credit.
      console.error(error);
      return 500;
    })
    .then((status) => response.writeHead(status).end());
});
server.listen(Number(PORT), '127.0.0.1', () => console.log('Listening on', server.address()));
