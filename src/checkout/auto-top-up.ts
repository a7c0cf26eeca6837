/** `/billing/auto-top-up`: charges a saved card when the balance falls below a limit. */
import * as z from 'zod';
import { Fault, invalidField } from '../core/faults.ts';
import { type Nano, toUsdNumber, usdToNano } from '../core/money.ts';
import { type RouteDescription, jsonContent, jsonResponse } from '../http/describe.ts';
import { readBody } from '../http/read-request.ts';
import { type Route, get, post, remove } from '../http/route.ts';
import type { CardPayments } from '../payments/cards/cards.ts';
import { AmountUsd } from './schema.ts';

const SetAutoTopUp = z
  .object({
    keepUsd: AmountUsd.describe(
      'The card is charged when the balance is below this amount, in USD.',
    ),
    chargeUsd: AmountUsd.optional().describe(
      'Amount of a charge, in USD; default: `keepUsd`. A charge is larger if the balance would stay below `keepUsd`.',
    ),
    monthlyUsd: AmountUsd.describe('Maximum of all charges in a calendar month (UTC), in USD.'),
  })
  .meta({ id: 'SetAutoTopUpRequest' });

export type AutoTopUpItem = z.infer<typeof AutoTopUpItem>;
export const AutoTopUpItem = z
  .strictObject({
    object: z.literal('auto_top_up').describe('Kind of the object.'),
    card: z.string().nullable().describe('The saved card; null without one.'),
    keepUsd: z.number().nullable().describe('Limit of the balance; null: off.'),
    chargeUsd: z.number().nullable().describe('Amount of a charge; null: off.'),
    monthlyUsd: z.number().nullable().describe('Maximum in a month; null: off.'),
    chargedThisMonthUsd: z.number().describe('Charges of this month (UTC).'),
    problem: z
      .string()
      .nullable()
      .describe(
        'Reason of the last decline, or why the charges have stopped; null if there is none.',
      ),
    stopped: z.boolean().describe('No further charge until the settings or the card change.'),
  })
  .meta({ id: 'AutoTopUp' });

const ITEM: AutoTopUpItem = {
  object: 'auto_top_up',
  card: 'visa •••• 4242',
  keepUsd: 20,
  chargeUsd: 20,
  monthlyUsd: 200,
  chargedThisMonthUsd: 40,
  problem: null,
  stopped: false,
};
const tag = 'Usage and billing';
const refusals = ['CHECKOUT_NOT_CONFIGURED'] as const;

const GET: RouteDescription = {
  tag,
  summary: 'Get the automatic top-up',
  response: jsonResponse(
    'Settings, the saved card and the charges of this month.',
    AutoTopUpItem,
    ITEM,
  ),
  refusals,
};
const SET: RouteDescription = {
  tag,
  summary: 'Set the automatic top-up',
  about:
    'Charges the saved card when the balance is below `keepUsd`: one charge at a time, checked each minute. A declined charge is tried again after 1, 6 and 24 hours; then the charges stop. Each decline is sent to the webhooks of the account as `auto_top_up.failed`. A dispute stops the charges.',
  request: jsonContent(SetAutoTopUp, { keepUsd: 20, monthlyUsd: 200 }),
  response: jsonResponse('The settings.', AutoTopUpItem, ITEM),
  refusals: [...refusals, 'INVALID_REQUEST', 'NO_SAVED_CARD'],
};
const REMOVE: RouteDescription = {
  tag,
  summary: 'End the automatic top-up',
  about: 'Deletes the settings and the saved card.',
  response: jsonResponse('Without a card.', AutoTopUpItem, {
    ...ITEM,
    card: null,
    keepUsd: null,
    chargeUsd: null,
    monthlyUsd: null,
  }),
  refusals: [...refusals, 'NO_SAVED_CARD'],
};

const PATH = '/billing/auto-top-up';

/** `cardsOf` throws 503 without a payment provider. */
export function autoTopUpRoutes(cardsOf: () => CardPayments): Route[] {
  const auth = 'admin-or-wallet';
  return [
    get(PATH, auth, GET, async (context) => {
      await context.json(200, await itemOf(cardsOf(), context.caller.accountId));
    }),
    {
      ...post(PATH, auth, SET, async (context) => {
        const { keepUsd, chargeUsd = keepUsd, monthlyUsd } = readBody(context, SetAutoTopUp);
        if (monthlyUsd < Math.max(keepUsd, chargeUsd)) {
          throw invalidField(['monthlyUsd'], 'Must be at least as large as keepUsd and chargeUsd');
        }
        const { accountId } = context.caller;
        const cards = cardsOf();
        await cards.configureTopUp(accountId, {
          keepNano: usdToNano(keepUsd),
          chargeNano: usdToNano(chargeUsd),
          monthlyNano: usdToNano(monthlyUsd),
        });
        await context.json(200, await itemOf(cards, accountId));
      }),
      method: 'PUT',
    },
    remove(PATH, auth, REMOVE, async (context) => {
      const cards = cardsOf();
      const { accountId } = context.caller;
      const owner = await cards.savedCards.find(accountId);
      if (owner === undefined) throw new Fault('NO_SAVED_CARD');
      await cards.deleteCard(owner);
      await context.json(200, await itemOf(cards, accountId));
    }),
  ];
}

async function itemOf({ savedCards }: CardPayments, accountId: string): Promise<AutoTopUpItem> {
  const owner = await savedCards.find(accountId);
  const usd = (amount: Nano | undefined) => (amount === undefined ? null : toUsdNumber(amount));
  return {
    object: 'auto_top_up',
    card: owner?.label ?? null,
    keepUsd: usd(owner?.keepNano),
    chargeUsd: usd(owner?.chargeNano),
    monthlyUsd: usd(owner?.monthlyNano),
    chargedThisMonthUsd: toUsdNumber(await savedCards.chargedThisMonth(accountId)),
    problem: owner?.problem ?? null,
    stopped: owner?.isStopped ?? false,
  };
}
