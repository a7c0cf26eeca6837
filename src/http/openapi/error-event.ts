/** Final event of a stream that failed after its status was sent. */
import * as z from 'zod';

export const ErrorEvent = z.strictObject({
  type: z.literal('error').describe('Type of the event.'),
  error: z
    .looseObject({ message: z.string().describe('Error message.') })
    .describe('Error after which nothing was charged.'),
});
