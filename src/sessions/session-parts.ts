/** The services that the session routes use. */
import type { Windows } from '../billing/limits/limits.ts';
import type { ConfigInForce } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Queryable } from '../db/db.ts';
import type { SessionCookie } from '../http/session-cookie.ts';
import type { Identity, SignInProviders } from '../identity/identity.ts';
import type { ConsoleResponse } from './sessions-schema.ts';

export interface SessionsOptions {
  readonly config: ConfigInForce;
  readonly identity: Identity;
  readonly providers: SignInProviders;
  /** Opens the balance of an account that a sign-in creates. */
  readonly openAccount: (accountId: string, tx: Queryable) => Promise<void>;
  readonly windows: Windows;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly cookie: () => SessionCookie;
  /** Binds a sign-in at a provider to the browser that has started it. */
  readonly signInCookie: () => SessionCookie;
  /** The message for wallets; `undefined` without payment methods. */
  readonly challenge: () => ConsoleResponse['wallet'] | undefined;
}
