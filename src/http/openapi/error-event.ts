/** The last event of a streamed answer that failed after its status had left. */
import { z } from 'zod';

export const ErrorEvent = z.strictObject({
  type: z.literal('error').describe('What the event is.'),
  error: z
    .looseObject({ message: z.string().describe('A sentence for people.') })
    .describe('What went wrong; nothing was charged.'),
});
