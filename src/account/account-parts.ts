/** The services that the account routes use, and response members that several routes share. */
import * as z from 'zod';
import type { Idempotency } from '../billing/idempotency/idempotency.ts';
import type { Ledger } from '../billing/ledger/ledger.ts';
import type { LimitLog, Windows } from '../billing/limits/limits.ts';
import type { LimitOf } from '../billing/sale.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { ConfigInForce } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { usdToNano } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import type { FailureLog } from '../observability/failure-log.ts';
import type { Caller, Identity } from '../identity/identity.ts';

/** Limits of endpoints without a model. */
export interface EndpointLimits {
  of(caller: Caller): readonly LimitOf[];
  /** The RPC credits of 24 hours; `undefined` if RPC is not offered. */
  credits(
    caller: Caller,
  ): Promise<
    { readonly endpoint: string; readonly amount: number; readonly used: number } | undefined
  >;
}

export interface AccountParts {
  readonly config: ConfigInForce;
  readonly stores: { readonly store: Store; readonly identity: Identity; readonly ledger: Ledger };
  readonly catalog: Catalog;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  readonly failureLog: Pick<FailureLog, 'find' | 'flush'>;
  readonly endpointLimits: EndpointLimits;
  readonly idempotency: Pick<Idempotency, 'storageOf'>;
  readonly clock: Clock;
  /** Queues an e-mail to a person that is invited; `undefined` without a mail server. */
  readonly mail?:
    | ((mail: {
        readonly address: string;
        readonly accountId: string;
        readonly event: 'member.invited';
        readonly subject: string;
        readonly data: Readonly<Record<string, unknown>>;
      }) => Promise<void>)
    | undefined;
}

/** Whether the credit is enough for a priced request. */
export function isEnough(amountNano: bigint, { config }: AccountParts): boolean {
  return amountNano >= usdToNano(config.current.limits.minimumCreditUsd);
}

/** The expiry of the wallet token, or of the key, which ends no later than its parent keys. */
export async function keyExpiryMs(
  { stores: { identity } }: AccountParts,
  { keyId, tokenExpiresMs }: Caller,
): Promise<number | undefined> {
  return keyId === '' ? tokenExpiresMs : (await identity.keys.bounded(keyId)).expiresMs;
}

/** The request id in a request id or in the id of a response object. */
export function requestIdOf(id: string): string {
  return id.replace(/^(?:(?:chat)?cmpl-|msg_|resp_)/, '');
}

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
            'Maximum, which grows with the charges of the responses. Above it the oldest responses are deleted.',
          ),
      })
      .describe('Responses that are stored for 24 hours under an `Idempotency-Key`.'),
  })
  .describe('Storage of the account.');

export const STORAGE: StorageItem = {
  keptResponses: { usedBytes: 48_640, limitBytes: 38_554_432 },
};

export async function storageOf(
  { idempotency }: AccountParts,
  accountId: string,
): Promise<StorageItem> {
  const { bytes, limitBytes } = await idempotency.storageOf(accountId);
  return { keptResponses: { usedBytes: bytes, limitBytes } };
}
