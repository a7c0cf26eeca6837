/** The console's side of the server, wired: its sessions and the cookie that they travel in. */
import type { ConfigInForce } from '../config/config.ts';
import type { Feature } from '../http/route.ts';
import { SessionCookie } from '../http/session-cookie.ts';
import { sessionsFeature } from '../sessions/sessions.ts';
import type { Wallets } from '../wallet/wallet.ts';
import type { FeatureParts } from './feature-parts.ts';
import { perConfig } from './sale-parts.ts';

/** The cookie under the name and the public origin that are in force. */
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
