/** The storage of an account as its owner and the operator see it. */
import { z } from 'zod';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';

export type StorageItem = z.infer<typeof StorageItem>;
export const StorageItem = z
  .object({
    keptResponses: z
      .object({
        usedBytes: z.number().int().describe('Bytes in use.'),
        limitBytes: z
          .number()
          .int()
          .describe(
            'Most bytes; it grows with what was charged for the responses. Above it the oldest responses are dropped.',
          ),
      })
      .describe('Responses that are kept for 24 hours under an `Idempotency-Key`.'),
  })
  .describe('Storage of the account.');

export const STORAGE: StorageItem = {
  keptResponses: { usedBytes: 48_640, limitBytes: 38_554_432 },
};

/** Where the storage of accounts is counted. */
export type AccountsStorage = Pick<Idempotency, 'storageOf'>;

export async function storageOf(
  { idempotency }: { readonly idempotency: AccountsStorage },
  accountId: string,
): Promise<StorageItem> {
  const { bytes, limitBytes } = await idempotency.storageOf(accountId);
  return { keptResponses: { usedBytes: bytes, limitBytes } };
}
