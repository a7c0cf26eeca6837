/** What an answer says of its charge, in every route that says it. */
import { z } from 'zod';

export const Cost = z
  .strictObject({
    usd: z.number().min(0).describe('USD charged, exact to nine decimals.'),
    diem: z.number().min(0).describe('Daily credit charged.'),
  })
  .meta({ id: 'Cost' });
