/** Who calls, wired: API keys, wallet tokens, sign-ins and payments, and how many run at once. */
import type { IdentifyParts } from '../api/identify.ts';
import { takePaymentTurn } from '../api/routes/x402/x402.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../kernel/faults.ts';
import { Concurrency } from '../limits/limits.ts';
import type { Shared } from './subject.ts';
import type { Wallets } from './wallets.ts';

export function callersOf(shared: Shared, wallets: Wallets): IdentifyParts {
  const { config, office } = shared;
  const { withStake } = wallets;
  const concurrency = new Concurrency();
  const callerOfKey: (token: string) => Promise<Caller> =
    withStake === undefined
      ? (token) => office.identity.callerOf(token)
      : async (token) => withStake(await office.identity.callerOf(token));
  return {
    callerOfBearer: (token) =>
      wallets.isToken(token) ? wallets.callerOfToken(token) : callerOfKey(token),
    callerOfSignIn: wallets.callerOfSignIn,
    callerOfPayment: async (header, exchange) => {
      // Each payment is a question to the chain, wherever it is sent.
      await takePaymentTurn(shared, exchange, config().payments.routesPerMinute.topUp);
      return wallets.callerOfPayment(header, exchange);
    },
    discovery: wallets.discovery,
    enter: (exchange, caller, route) => {
      wallets.entered(caller, exchange, route);
      const { walletConcurrency, keyConcurrency } = config().limits;
      const limit = caller.kind === 'wallet' ? walletConcurrency : keyConcurrency;
      const leave = concurrency.enter(caller.accountId, limit);
      if (leave === undefined) throw tooManyAtOnce(caller.kind, limit);
      exchange.onClose(leave);
    },
  };
}

function tooManyAtOnce(kind: 'key' | 'wallet', limit: number): Fault {
  return new Fault(kind === 'wallet' ? 'X402_CONCURRENCY_LIMIT' : 'RATE_LIMIT_EXCEEDED', {
    message: `Too many concurrent requests: at most ${limit} run at once`,
    retryAfterSeconds: 1,
  });
}
