/** What the wallet endpoints are built from. */
import type { Clock } from '../../core/clock.ts';
import type { Ledger } from '../../billing/ledger/ledger.ts';
import type { Windows } from '../../billing/limits/limits.ts';
import type { Payments, Resource } from '../../payments/payments.ts';
import type { Store } from '../../db/db.ts';

export interface WalletRouteParts {
  /** `undefined` on a server without rails: the routes then say so. */
  readonly payments: Payments | undefined;
  readonly ledger: Ledger;
  readonly store: Store;
  readonly windows: Windows;
  readonly clock: Clock;
  /** Requests a minute that each route takes from one address or wallet. */
  readonly perMinute: Readonly<
    Record<'topUp' | 'balance' | 'transactions' | 'token' | 'facilitator', number>
  >;
  /** Path of the API, `/api/v1`. */
  readonly basePath: string;
  /** What wallets can buy here, for the manifest. */
  readonly resources: () => readonly Resource[];
}
