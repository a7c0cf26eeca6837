/**
 * How processes share a database, and how long rows that grow are kept.
 */
import { z } from 'zod';

import { whole } from './setting-kinds.ts';

export const ClusterSection = z
  .strictObject({
    workers: whole(1, 256).describe(
      'Processes of `farebox serve` on this machine; more than 1 needs PostgreSQL.',
    ),
    connections: whole(8, 1_000).describe('Connections of one process to PostgreSQL.'),
    replyTimeoutSeconds: z
      .number()
      .min(0.2)
      .max(60)
      .default(5)
      .describe('A reply of PostgreSQL that takes longer means that it is lost.'),
    deadAfterSeconds: z
      .number()
      .min(1)
      .max(600)
      .default(30)
      .describe('A process that gave no sign for so long is dead; its holds are given back.'),
  })
  .prefault({});

export const RetentionSection = z
  .strictObject({
    usageDays: days(400).describe('Receipts (usage records). Day totals are kept.'),
    postingDays: days(800).describe('Postings. Their sums are carried, so balances stay proven.'),
    limitLogDays: days(30).describe('The log of refusals by a limit.'),
  })
  .prefault({})
  .describe('Days that rows are kept; 0 keeps them for ever.');

function days(value: number) {
  return z.number().int().min(0).max(36_500).default(value);
}
