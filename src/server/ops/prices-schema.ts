/** Schema and description of `GET /admin/prices`. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';

export type PricesResponse = z.infer<typeof PricesResponse>;
const PricesResponse = z
  .object({
    object: z.literal('list').describe('Kind of the object.'),
    data: z
      .array(
        z.object({
          model: z.string().describe('Id of the model.'),
          margins: z
            .array(
              z.object({
                engine: z.string().describe('Engine with this cost.'),
                kind: z.string().describe('Name of the price in the settings.'),
                tier: z.string().nullable().describe('Service tier; null for the standard price.'),
                above: z.number().int().describe('Prompt tokens above which both apply.'),
                from: z
                  .string()
                  .nullable()
                  .describe('Time of day from which both apply, UTC; null for the whole day.'),
                sold: z.string().describe('Price in USD; of tokens and characters per million.'),
                cost: z.string().describe('Cost at the supplier in USD, for the same unit.'),
                percent: z
                  .number()
                  .nullable()
                  .describe('Share of the price that remains; null if the price is 0.'),
              }),
            )
            .describe('Each price with its cost.'),
        }),
      )
      .describe('Models with a replica that has a `cost`.'),
  })
  .meta({ id: 'OperatorPrices' });

export const PRICES: RouteDescription = {
  tag: 'Operator',
  summary: 'Prices, costs of suppliers and margins',
  response: jsonResponse('Prices and costs of the configuration in force.', PricesResponse, {
    object: 'list',
    data: [
      {
        model: 'atlas-24b',
        margins: [
          {
            engine: 'rack1',
            kind: 'input',
            tier: null,
            above: 0,
            from: null,
            sold: '0.3000',
            cost: '0.2500',
            percent: 16.6,
          },
        ],
      },
    ],
  }),
};
