/** Files of callers and the batches that are made of them: what they may take, and at what price. */
import { z } from 'zod';

import { Usd, count, whole, group } from './setting-kinds.ts';

export type BatchesSection = z.infer<typeof BatchesSection>;
export const BatchesSection = group({
  priceFactor: Usd.default('0.5')
    .refine((factor) => Number(factor) > 0 && Number(factor) <= 10, 'Must be above 0, at most 10')
    .describe(
      "Price of a request in a batch, as a share of the model's price: `0.5` is half. What others charge for (searches, pages) keeps its price.",
    ),
  concurrency: whole(4, 1_000).describe(
    'Requests of batches that one process runs at once, on engines with spare capacity.',
  ),
  maxRequests: whole(50_000, 1_000_000).describe('Requests of one batch.'),
  maxFileMb: whole(200, 10_000).describe('Largest file that is taken: 413.'),
  maxOpenBatches: whole(20).describe('Batches of one caller that may wait or run at once: 429.'),
  maxFiles: count().default(1_000).describe('Files of one caller: 429.'),
  maxStoredMbPerCaller: whole(2_000).describe(
    'Storage in the database for the files and results of one caller: 429.',
  ),
  maxStoredMb: whole(20_000).describe('Storage for those of all callers together: 503.'),
  keepDays: whole(30, 3_650).describe(
    'Files, results and batches are deleted after this time, unless their caller names a shorter one.',
  ),
});
