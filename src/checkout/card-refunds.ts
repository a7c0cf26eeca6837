/** `POST /admin/accounts/{id}/card-refund`: pays credit of an account back to the cards that paid it. */
import * as z from 'zod';
import { assert } from '../core/assert.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, decimalUsd, nano, usdToNano } from '../core/money.ts';
import { type RouteDescription, jsonContent, jsonResponse } from '../http/describe.ts';
import { readBody } from '../http/read-request.ts';
import { type Route, post } from '../http/route.ts';
import { TransactionReference, referenceReused } from '../http/transaction-reference.ts';
import type { CardPayments, CardRefund } from '../payments/cards/cards.ts';

const Usd = z.string();

const CardRefundRequest = z
  .object({
    amountUsd: z
      .union([
        z.literal('all'),
        z.string().regex(/^\d{1,9}(?:\.\d{1,2})?$/, 'Must be an amount such as 4.50, or all'),
      ])
      .describe(
        'USD as decimal text with at most 2 decimals; `all`: all unused credit from cards.',
      ),
    reference: TransactionReference.describe(
      'Your own id of this refund. A repeated reference with the same account and amount returns the state of the first refund and pays nothing; with another amount it is an error.',
    ),
    allowDebt: z
      .boolean()
      .default(false)
      .describe(
        '`true` also pays credit back that the account has spent; it then owes the rest. Ignored with `all`.',
      ),
  })
  .meta({ id: 'CardRefundRequest' });

export type CardRefundResponse = z.infer<typeof CardRefundResponse>;
const CardRefundResponse = z
  .object({
    success: z.literal(true).describe('The refund was debited from the balance.'),
    data: z
      .object({
        accountId: z.string().describe('Id of the account.'),
        refunds: z
          .array(
            z.object({
              refundId: z.string().describe('Id of the refund, as in the statement.'),
              paymentId: z.string().describe('Id of the card payment.'),
              amountUsd: Usd.describe('Amount in USD.'),
              state: z
                .enum(['open', 'paid', 'failed'])
                .describe('`open` continues in the background; `failed` is credit again.'),
              failure: z.string().nullable().describe('Reason of a failure, or null.'),
            }),
          )
          .describe('One refund for each payment, newest payment first.'),
        isRepeat: z.boolean().describe('Whether the reference was used before.'),
      })
      .describe('The refund.'),
  })
  .meta({ id: 'CardRefundResponse' });

const CARD_REFUND: RouteDescription = {
  tag: 'Operator',
  summary: 'Refund to cards',
  about:
    'Pays unused credit back to the cards that paid it, newest payment first, at most what is left of each payment. A refund that Stripe rejects becomes credit again.',
  parameters: [{ name: 'id', in: 'path', about: 'Id of the account.', example: 'acct_5b2f9c1e' }],
  request: jsonContent(CardRefundRequest, { amountUsd: '4.50', reference: 'ticket-4711' }),
  response: jsonResponse('The refund.', CardRefundResponse, {
    success: true,
    data: {
      accountId: 'acct_5b2f9c1e',
      refunds: [
        {
          refundId: 'refund_9c1f0de49c1f0de49c1f0de49c1f0de4-0',
          paymentId: 'pay_019aa3f1c0de4b7e8c1d2e3f4a5b6c7d',
          amountUsd: '4.5000',
          state: 'paid',
          failure: null,
        },
      ],
      isRepeat: false,
    },
  }),
  refusals: [
    'ACCOUNT_NOT_FOUND',
    'REFERENCE_REUSED',
    'INSUFFICIENT_BALANCE',
    'CHECKOUT_NOT_CONFIGURED',
  ],
};

export interface CardRefundParts {
  readonly hasAccount: (id: string) => Promise<boolean>;
  /** USD of an account that no open request holds. */
  readonly availableNano: (accountId: string) => Promise<Nano>;
}

export function cardRefundRoute(
  cardsOf: () => CardPayments,
  { hasAccount, availableNano }: CardRefundParts,
): Route {
  return post('/admin/accounts/:id/card-refund', 'operator', CARD_REFUND, async (context) => {
    const { amountUsd, reference, allowDebt } = readBody(context, CardRefundRequest);
    const cards = cardsOf();
    const accountId = context.parameters['id'] ?? '';
    if (!(await hasAccount(accountId))) throw new Fault('ACCOUNT_NOT_FOUND');
    const wanted = amountUsd === 'all' ? amountUsd : usdToNano(amountUsd);
    const { refunds, isRepeat } = await refundOnce(cards, reference, async () => {
      const availableNow = await availableNano(accountId);
      const takesSpent = allowDebt && wanted !== 'all';
      return await cards.refund(accountId, wanted, availableNow, { reference, takesSpent });
    });
    requireSame(refunds, { accountId, wanted, reference });
    const data = { accountId, refunds: refunds.map(itemOf), isRepeat };
    await context.json(200, { success: true, data } satisfies CardRefundResponse);
  });
}

/** Pays, or returns the refunds that an earlier or concurrent request with the reference has opened. */
async function refundOnce(
  cards: CardPayments,
  reference: string,
  refund: () => Promise<readonly CardRefund[]>,
): Promise<{ readonly refunds: readonly CardRefund[]; readonly isRepeat: boolean }> {
  const known = await cards.refundsBy(reference);
  if (known.length > 0) return { refunds: known, isRepeat: true };
  try {
    return { refunds: await refund(), isRepeat: false };
  } catch (error) {
    const opened = await cards.refundsBy(reference);
    if (opened.length > 0) return { refunds: opened, isRepeat: true };
    throw error;
  }
}

/** Throws 409 if the refunds of a reference are not those that the request wants. */
function requireSame(
  refunds: readonly CardRefund[],
  of: { readonly accountId: string; readonly wanted: Nano | 'all'; readonly reference: string },
): void {
  const amountNano = nano(refunds.reduce((sum, refund) => sum + refund.amountNano, 0n));
  const [first] = refunds;
  assert(first !== undefined, 'a refund has at least one payment');
  const { accountId } = first;
  if (accountId === of.accountId && (of.wanted === 'all' || of.wanted === amountNano)) return;
  throw referenceReused(of.reference, { kind: 'refund', amountNano, accountId });
}

function itemOf({ id, paymentId, amountNano, state, failure }: CardRefund) {
  const amountUsd = decimalUsd(amountNano);
  return { refundId: id, paymentId, amountUsd, state, failure: failure ?? null };
}
