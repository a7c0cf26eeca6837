/** Schemas and description of `GET /admin/prices`. */
import * as z from 'zod';
import { MODEL_TYPES, PlanName } from '../../config/config.ts';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';

const MAX_ID_CHARS = 200;

export const PricesQuery = z.object({
  account: z
    .string()
    .min(1)
    .max(MAX_ID_CHARS)
    .optional()
    .describe('Id or wallet address of an account: all prices of this customer.'),
  plan: PlanName.optional().describe('Name of a plan: all prices of accounts without own prices.'),
});

export type PricesResponse = z.infer<typeof PricesResponse>;
const PricesResponse = z
  .object({
    object: z.literal('list').describe('Kind of the object.'),
    plans: z.array(PlanName).describe('Names of all plans.'),
    data: z
      .array(
        z.object({
          model: z.string().describe('Id of the model; `rpc` for RPC credits.'),
          type: z.enum([...MODEL_TYPES, 'rpc']).describe('Type of the model.'),
          source: z
            .enum(['account', 'plan'])
            .nullable()
            .describe('Place of the rule that sets the prices of the customer; null: list prices.'),
          margins: z
            .array(
              z.object({
                engine: z
                  .string()
                  .nullable()
                  .describe('Engine with this cost; null without costs.'),
                kind: z.string().describe('Name of the price in the settings.'),
                tier: z.string().nullable().describe('Service tier; null for the standard price.'),
                above: z.number().int().describe('Prompt tokens above which both apply.'),
                from: z
                  .string()
                  .nullable()
                  .describe('Time of day from which both apply, UTC; null for the whole day.'),
                list: z
                  .string()
                  .nullable()
                  .describe('List price in USD; null if the list has no such price.'),
                sold: z.string().describe('Price in USD; of tokens and characters per million.'),
                cost: z
                  .string()
                  .nullable()
                  .describe('Cost at the supplier in USD, for the same unit; null if unknown.'),
                percent: z
                  .number()
                  .nullable()
                  .describe(
                    'Share of the price that remains; null if the price is 0 or the cost unknown.',
                  ),
              }),
            )
            .describe('Each price with its list price and cost.'),
        }),
      )
      .describe('Models with a replica that has a `cost`; for a customer all sold models.'),
  })
  .meta({ id: 'OperatorPrices' });

export const PRICES: RouteDescription = {
  tag: 'Operator',
  summary: 'Prices, costs of suppliers and margins',
  about: 'With `account` or `plan`, the prices of this customer beside the list prices.',
  query: PricesQuery,
  response: jsonResponse('Prices and costs of the configuration in force.', PricesResponse, {
    object: 'list',
    plans: ['paid', 'pro', 'partner', 'staff'],
    data: [
      {
        model: 'atlas-24b',
        type: 'text',
        source: null,
        margins: [
          {
            engine: 'rack1',
            kind: 'input',
            tier: null,
            above: 0,
            from: null,
            list: '0.3000',
            sold: '0.3000',
            cost: '0.2500',
            percent: 16.6,
          },
        ],
      },
    ],
  }),
  refusals: ['ACCOUNT_NOT_FOUND'],
};
