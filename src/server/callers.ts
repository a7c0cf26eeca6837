/** Who calls, wired: API keys, wallet tokens, sign-ins and payments, and how many run at once. */
import type { IdentifyParts } from '../http/identify.ts';
import { limitPayments } from '../wallet/x402/x402.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { Concurrency } from '../billing/limits/limits.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { Wallets } from '../wallet/wallet.ts';

export function callersOf(shared: FeatureParts, wallets: Wallets): IdentifyParts {
  const { config, stores } = shared;
  const { withStake } = wallets;
  const concurrency = new Concurrency();
  const callerOfKey: (token: string) => Promise<Caller> =
    withStake === undefined
      ? (token) => stores.identity.callerOf(token)
      : async (token) => withStake(await stores.identity.callerOf(token));
  return {
    callerOfBearer: (token) =>
      wallets.isToken(token) ? wallets.callerOfToken(token) : callerOfKey(token),
    callerOfSignIn: wallets.callerOfSignIn,
    callerOfPayment: async (header, context) => {
      // Each payment is a question to the chain, wherever it is sent.
      await limitPayments(shared, context, config().payments.routesPerMinute.topUp);
      return wallets.callerOfPayment(header, context);
    },
    discovery: wallets.discovery,
    enter: (context, caller, route) => {
      wallets.entered(caller, context, route);
      const { walletConcurrency, keyConcurrency } = config().limits;
      const limit = caller.kind === 'wallet' ? walletConcurrency : keyConcurrency;
      const leave = concurrency.enter(caller.accountId, limit);
      if (leave === undefined) throw tooManyAtOnce(caller.kind, limit);
      context.onClose(leave);
    },
  };
}

function tooManyAtOnce(kind: 'key' | 'wallet', limit: number): Fault {
  return new Fault(kind === 'wallet' ? 'X402_CONCURRENCY_LIMIT' : 'RATE_LIMIT_EXCEEDED', {
    message: `Too many concurrent requests: at most ${limit} run at once`,
    retryAfterSeconds: 1,
  });
}
