/** `POST /admin/accounts/{id}/refund`: pays unused credit of a wallet back in USDC. */
import * as z from 'zod';
import { walletKind } from '../../core/addresses.ts';
import { Fault } from '../../core/faults.ts';
import { sha256Hex } from '../../core/ids.ts';
import { type Nano, decimalUsd, nano, usdToNano } from '../../core/money.ts';
import { type RouteDescription, jsonContent, jsonResponse } from '../../http/describe.ts';
import { readBody } from '../../http/read-request.ts';
import { type Route, post } from '../../http/route.ts';
import { TransactionReference, referenceReused } from '../../http/transaction-reference.ts';
import { walletAccountId, walletOfAccount } from '../../identity/identity.ts';
import {
  type Payments,
  type RefundState,
  requirePayments,
  sumOf,
} from '../../payments/payments.ts';
import type { AccountParts } from '../account-parts.ts';
import { DecimalText } from '../api-key-schema.ts';
import { accountOf } from './operator-accounts.ts';
import { ACCOUNT_PATH } from './operator-accounts-schema.ts';

const ID_DIGITS = 32;

const RefundRequest = z
  .object({
    amountUsd: z
      .union([
        z.literal('all'),
        z.string().regex(/^\d{1,9}(?:\.\d{1,6})?$/, 'Must be an amount such as 4.50, or all'),
      ])
      .describe('USD as decimal text with at most 6 decimals; `all`: the whole final credit.'),
    reference: TransactionReference.describe(
      'Your own id of this refund. A repeated reference with the same account and amount returns the state of the first refund and pays nothing; with another amount it is an error.',
    ),
  })
  .meta({ id: 'RefundRequest' });

export type RefundResponse = z.infer<typeof RefundResponse>;
const RefundResponse = z
  .object({
    success: z.literal(true).describe('The refund was debited from the balance.'),
    data: z
      .object({
        refundId: z.string().describe('Id of the refund, as in the statement.'),
        accountId: z.string().describe('Id of the account.'),
        amountUsd: DecimalText.describe('Amount in USD.'),
        state: z
          .enum(['open', 'sent', 'paid', 'failed'])
          .describe('`open` and `sent` continue in the background; `failed` is credit again.'),
        transaction: z.string().nullable().describe('Transaction on the chain, or null.'),
        failure: z.string().nullable().describe('Reason of a failure, or null.'),
        isRepeat: z.boolean().describe('Whether the reference was used before.'),
      })
      .describe('The refund.'),
  })
  .meta({ id: 'RefundResponse' });

const REFUND: RouteDescription = {
  tag: 'Operator',
  summary: 'Refund a wallet',
  about:
    'Pays credit back to the wallet that paid, in USDC. Credit from a payment that the chain can still revert is kept. `POST /admin/accounts/{id}/card-refund` pays back to cards.',
  parameters: ACCOUNT_PATH,
  request: jsonContent(RefundRequest, { amountUsd: 'all', reference: 'ticket-4711' }),
  response: jsonResponse('The refund.', RefundResponse, {
    success: true,
    data: {
      refundId: 'refund-9c1f0de4',
      accountId: 'wallet:0x857b06519e91e3a54538791bdbb0e22373e36b66',
      amountUsd: '4.5000',
      state: 'paid',
      transaction: '0x5f3e…',
      failure: null,
      isRepeat: false,
    },
  }),
  refusals: [
    'ACCOUNT_NOT_FOUND',
    'REFERENCE_REUSED',
    'INVALID_AMOUNT',
    'INSUFFICIENT_BALANCE',
    'X402_NOT_CONFIGURED',
    'SERVICE_UNAVAILABLE',
  ],
};

export function operatorRefundRoutes(parts: AccountParts, payments: Payments | undefined): Route[] {
  return [
    post('/admin/accounts/:id/refund', 'operator', REFUND, async (context) => {
      const { amountUsd, reference } = readBody(context, RefundRequest);
      const { id: accountId } = await accountOf(parts, context);
      const wallet = walletOfAccount(accountId);
      if (wallet === undefined || walletKind(wallet) === undefined) {
        throw new Fault('INVALID_REQUEST', {
          message:
            'Only a wallet gets USDC back; POST /admin/accounts/{id}/card-refund pays back to cards',
        });
      }
      const { refunds } = requirePayments(payments);
      const refundId = `refund-${sha256Hex(reference).slice(0, ID_DIGITS)}`;
      const { state, isRepeat } = await payOnce(refunds, wallet, refundId, async () =>
        amountUsd === 'all' ? await finalCredit(parts, refunds, accountId) : usdToNano(amountUsd),
      );
      const isSameAmount = amountUsd === 'all' || usdToNano(amountUsd) === state.amountNano;
      if (state.wallet !== wallet || !isSameAmount) {
        throw referenceReused(reference, {
          kind: 'refund',
          amountNano: state.amountNano,
          accountId: walletAccountId(state.wallet),
        });
      }
      const body: RefundResponse = {
        success: true,
        data: {
          refundId,
          accountId,
          amountUsd: decimalUsd(state.amountNano),
          state: state.state,
          transaction: state.transaction ?? null,
          failure: state.failure ?? null,
          isRepeat,
        },
      };
      await context.json(200, body);
    }),
  ];
}

/** Pays a refund, or returns the one that an earlier or concurrent request with the same id has opened. */
async function payOnce(
  refunds: Payments['refunds'],
  wallet: string,
  refundId: string,
  amountOf: () => Promise<Nano>,
): Promise<{ readonly state: RefundState; readonly isRepeat: boolean }> {
  const known = await refunds.find(refundId);
  if (known !== undefined) return { state: known, isRepeat: true };
  try {
    const state = await refunds.refund(wallet, await amountOf(), refundId);
    return { state, isRepeat: false };
  } catch (error) {
    const opened = await refunds.find(refundId);
    // The row of an id exists once, so the money of this request was not debited.
    if (opened !== undefined) return { state: opened, isRepeat: true };
    throw error;
  }
}

/** Credit that no payment backs which the chain can still revert. Throws `INSUFFICIENT_BALANCE`. */
async function finalCredit(
  { stores }: AccountParts,
  refunds: Payments['refunds'],
  accountId: string,
): Promise<Nano> {
  const open = await refunds.openCredits(walletOfAccount(accountId) ?? '');
  const { usdNano } = await stores.ledger.balances(accountId);
  const finalNano = nano(usdNano - sumOf(open));
  if (finalNano > 0n) return finalNano;
  throw new Fault('INSUFFICIENT_BALANCE', { message: 'The wallet has no final credit' });
}
