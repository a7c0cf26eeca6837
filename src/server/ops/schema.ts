/** The bodies of `/livez` and `/readyz`. */
import { z } from 'zod';

export const LivenessBody = z.strictObject({ status: z.literal('alive') });

const part = z.boolean().describe('Whether this part lets requests through');
const figure = z.int().min(0);

export const ReadinessParts = z.strictObject({
  server: z.strictObject({
    ok: part,
    openRequests: figure,
    unhandledRejections: figure.describe(
      'Failures that a library left behind since the start; the log has their stacks',
    ),
  }),
  database: z.strictObject({ ok: part }),
  journal: z.strictObject({
    ok: part,
    waitingSettles: figure.describe('Settles that wait for the database to come back'),
  }),
  engines: z.strictObject({ ok: part, models: figure, modelsReady: figure }),
  payments: z
    .strictObject({
      ok: part,
      watched: figure.describe('Credits of wallet payments that the chain could still undo'),
      vanished: figure.describe('Those of them that are not on the chain now'),
      reversed: figure.describe('Credits that were taken back, since the beginning'),
    })
    .optional()
    .describe('With payment rails alone'),
});
export type ReadinessParts = z.infer<typeof ReadinessParts>;

export const ReadinessBody = z.strictObject({
  status: z.enum(['ready', 'not ready', 'draining']),
  parts: ReadinessParts,
});
export type ReadinessBody = z.infer<typeof ReadinessBody>;
