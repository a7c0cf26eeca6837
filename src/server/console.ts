/** Composes the sessions of the console and their cookie. */
import type { ConfigInForce } from '../config/config.ts';
import type { Feature } from '../http/route.ts';
import { SessionCookie } from '../http/session-cookie.ts';
import { SignInProviders } from '../identity/identity.ts';
import { sessionsFeature } from '../sessions/sessions.ts';
import type { Wallets } from '../wallet/wallet.ts';
import type { FeatureParts } from './feature-parts.ts';
import { perConfig } from './sale-parts.ts';

/** Returns the cookie with the current service name and public origin. */
export function sessionCookie(config: ConfigInForce, purpose?: string): () => SessionCookie {
  return perConfig(
    config,
    ({ service, publicUrl }) =>
      new SessionCookie({ serviceName: service.name, publicUrl, ...(purpose && { purpose }) }),
  );
}

export function consoleFeature(shared: FeatureParts, { payments }: Wallets): Feature {
  const { config, stores, windows, clock, ids, log } = shared;
  return sessionsFeature({
    config,
    identity: stores.identity,
    providers: new SignInProviders({ config, clock, log }),
    openAccount: (accountId, tx) => stores.ledger.openAccount(accountId, tx),
    windows,
    clock,
    ids,
    log,
    cookie: sessionCookie(config),
    signInCookie: sessionCookie(config, 'sign_in'),
    challenge: () => payments?.requirements.challenge(),
  });
}
