/** The wallet rails of a server without receivers: they say so, and API keys work alone. */
import type { RequestContext } from '../http/request-context.ts';
import { Fault } from '../core/faults.ts';

export function walletsNotConfigured(): Fault {
  return new Fault('X402_NOT_CONFIGURED');
}

/** The 402 of a server that only knows API keys. */
export function keyOnlyDiscovery(
  context: RequestContext,
  publicUrl: string,
  basePath: string,
): Fault {
  const path = context.path;
  const docs = `${publicUrl}/docs`;
  return new Fault('PAYMENT_REQUIRED', {
    body: {
      x402Version: 2,
      error:
        'Payment required: the request has no credentials. Send the header "Authorization: Bearer <API key>"; wallet payments are not configured on this server',
      resource: { url: publicUrl + path, description: 'Paid API', mimeType: 'application/json' },
      accepts: [],
      extensions: {},
      authOptions: {
        apiKey: { header: 'Authorization: Bearer YOUR_API_KEY', getKey: docs, docs },
        x402Wallet: {
          header: 'SIGN-IN-WITH-X',
          legacyHeader: 'X-Sign-In-With-X',
          topUp: `POST ${basePath}/x402/top-up`,
          docs,
        },
      },
    },
  });
}
