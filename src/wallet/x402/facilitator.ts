/**
 * `/x402/facilitator/{supported,verify,settle}`: the embedded facilitator for others, where the
 * operator exposes it. Whoever may call `settle` spends the operator's gas; nobody gets credit.
 */
import type { FacilitatorFace } from '../../payments/payments.ts';
import { parseJsonBody } from '../../json/validation.ts';
import type { Route } from '../../http/route.ts';
import { FACILITATOR_CALLS, FACILITATOR_SUPPORTED } from './describe.ts';
import { takeTurn } from './route-checks.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

/** A payment is about 2 KB; contract signatures make it longer. */
const BODY = { types: ['application/json'], limitBytes: 64 * 1024 };

export function facilitatorRoutes(parts: WalletRouteParts, face: FacilitatorFace): Route[] {
  const ask = (
    path: keyof typeof FACILITATOR_CALLS,
    answer: (body: unknown) => Promise<unknown>,
  ): Route => ({
    method: 'POST',
    path: `/x402/facilitator/${path}`,
    auth: 'public',
    describe: FACILITATOR_CALLS[path],
    body: BODY,
    handle: async (context) => {
      await takeTurn(parts, `x402-facilitator|${context.address}`, parts.perMinute.facilitator);
      await context.json(200, await answer(parseJsonBody(context.body)));
    },
  });
  return [
    {
      method: 'GET',
      path: '/x402/facilitator/supported',
      auth: 'public',
      describe: FACILITATOR_SUPPORTED,
      handle: (context) => context.json(200, face.supported()),
    },
    ask('verify', (body) => face.verify(body)),
    ask('settle', (body) => face.settle(body)),
  ];
}
