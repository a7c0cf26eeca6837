/**
 * Reports a payment of your shop to Farebox, signed as defined by Standard Webhooks, without a package.
 *
 *   export FAREBOX_URL=http://127.0.0.1:8402/api/v1
 *   export SHOP_WEBHOOK_SECRET=whsec_…   # payments.shop.webhookSecret
 *   npx node examples/operator/shop-report.ts order-118 acct_5c1d0e9f8a7b 25.00
 *
 * The same payment can be reported any number of times: it is credited once. Use the id that
 * `POST /billing/checkout` returned if the payment was started there; the account is then known.
 */
import { createHmac, randomUUID } from 'node:crypto';

const { FAREBOX_URL, SHOP_WEBHOOK_SECRET } = process.env;
const [payment, account, paidUsd] = process.argv.slice(2);
if (!FAREBOX_URL || !SHOP_WEBHOOK_SECRET || !payment || !account || !paidUsd) {
  throw new Error('Set FAREBOX_URL and SHOP_WEBHOOK_SECRET; pass a payment, an account and USD');
}

const id = `msg_${randomUUID()}`;
const time = Math.floor(Date.now() / 1_000);
const body = JSON.stringify({ type: 'payment.paid', data: { payment, account, paidUsd } });
const key = Buffer.from(SHOP_WEBHOOK_SECRET.replace(/^whsec_/, ''), 'base64');
const signature = createHmac('sha256', key).update(`${id}.${time}.${body}`).digest('base64');

const response = await fetch(`${FAREBOX_URL}/payments/shop`, {
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': String(time),
    'webhook-signature': `v1,${signature}`,
  },
  body,
});
// After an error or without a response, send the same report again.
console.log(response.status, await response.text());
