/** Charge of a request, in all responses that contain it. */
import * as z from 'zod';

export const Cost = z
  .strictObject({
    usd: z.number().min(0).describe('Charge in USD, exact to nine decimals.'),
    diem: z.number().min(0).describe('Charge to the daily credit.'),
  })
  .meta({ id: 'Cost' });
