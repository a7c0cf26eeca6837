/** Composes the sessions of the console and their cookie. */
import type { ConfigInForce } from '../config/config.ts';
import type { Feature } from '../http/route.ts';
import { SessionCookie } from '../http/session-cookie.ts';
import { sessionsFeature } from '../sessions/sessions.ts';
import type { Wallets } from '../wallet/wallet.ts';
import type { FeatureParts } from './feature-parts.ts';
import { perConfig } from './sale-parts.ts';

/** Returns the cookie with the current service name and public origin. */
export function sessionCookie(config: ConfigInForce): () => SessionCookie {
  return perConfig(
    config,
    ({ service, publicUrl }) => new SessionCookie({ serviceName: service.name, publicUrl }),
  );
}

export function consoleFeature(shared: FeatureParts, { payments }: Wallets): Feature {
  const { config, stores, windows, clock } = shared;
  return sessionsFeature({
    config,
    identity: stores.identity,
    windows,
    clock,
    cookie: sessionCookie(config),
    challenge: () => payments?.requirements.challenge(),
  });
}
