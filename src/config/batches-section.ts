/** The `batches` section: limits of uploaded files and batches, and the price of batches. */
import * as z from 'zod';

import { Usd, count, whole, group } from './setting-kinds.ts';

export type BatchesSection = z.infer<typeof BatchesSection>;
export const BatchesSection = group({
  priceFactor: Usd.default('0.5')
    .refine((factor) => Number(factor) > 0 && Number(factor) <= 10, 'Must be above 0, at most 10')
    .describe(
      'Price of a request in a batch as a factor of the price of the model. Searches and pages keep their price.',
    ),
  concurrency: whole(4, 1_000).describe(
    'Concurrent batch requests of one account in each process. Other accounts share one more. They run only on engines with spare capacity.',
  ),
  maxRequests: whole(50_000, 1_000_000).describe('Maximum number of requests in one batch.'),
  maxFileMb: whole(200, 10_000).describe(
    'Maximum size of an uploaded file in MB. A larger file is rejected with 413.',
  ),
  maxOpenBatches: whole(20).describe(
    'Maximum number of waiting and running batches of one caller. More are rejected with 429.',
  ),
  maxFiles: count()
    .default(1_000)
    .describe('Maximum number of files of one caller. More are rejected with 429.'),
  maxStoredMbPerCaller: whole(2_000).describe(
    'Storage for the files and results of one caller, in MB. Above it uploads are rejected with 429.',
  ),
  maxStoredMb: whole(20_000).describe(
    'Storage for the files and results of all callers, in MB. Above it uploads are rejected with 503.',
  ),
  keepDays: whole(30, 3_650).describe(
    'Days until files, results and batches are deleted. A caller can set a shorter time.',
  ),
});
