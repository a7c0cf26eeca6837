/**
 * The wallet endpoints: top-up, balance, transactions, tokens, the exposed facilitator and the
 * manifest.
 */
import { Fault } from '../../core/faults.ts';
import { type Nano, formatUsd, toUsdNumber } from '../../core/money.ts';
import { paymentHeader, retryProof } from '../../http/identify.ts';
import type { RequestContext } from '../../http/request-context.ts';
import type { Route } from '../../http/route.ts';
import { parseJsonBody } from '../../json/validation.ts';
import type {
  ExposedFacilitator,
  OfferKind,
  Payments,
  Resource,
  TopUpReceipt,
} from '../../payments/payments.ts';
import { FACILITATOR_CALLS, FACILITATOR_SUPPORTED, TOP_UP, WALLET_BALANCE } from './describe.ts';
import {
  limitPayments,
  limitRequests,
  requireConfigured,
  requireOwnWallet,
} from './route-checks.ts';
import type { WalletRouteOptions } from './route-checks.ts';
import { discoveryRoute } from './discovery.ts';
import { manifestRoute } from './manifest.ts';
import { recentBlockRoute } from './recent-block.ts';
import { signingKeyRoutes } from './signing-keys.ts';
import { tokenRoutes } from './token.ts';
import { transactionsRoute } from './transactions.ts';

export { limitPayments, requireConfigured } from './route-checks.ts';

const TOP_UP_PATH = '/x402/top-up';
/** What clients of version 1 read in place of `PAYMENT-RESPONSE`. */
const X_PAYMENT_RESPONSE = 'X-PAYMENT-RESPONSE';
/** A payment is about 2 KB; contract signatures make it longer. */
const FACILITATOR_BODY = { types: ['application/json'], limitBytes: 64 * 1024 };

export function walletRoutes(options: WalletRouteOptions): Route[] {
  const { payments, signing } = options;
  const routes = [
    topUpRoute(options),
    balanceRoute(options),
    transactionsRoute(options),
    ...tokenRoutes(options),
    recentBlockRoute(options),
    ...(signing === undefined ? [] : signingKeyRoutes(signing)),
  ];
  if (payments === undefined) return routes;
  const { facilitator } = payments;
  if (facilitator !== undefined) routes.push(...facilitatorRoutes(options, facilitator));
  return [...routes, discoveryRoute(options, payments), manifestRoute(options, payments)];
}

/**
 * Without a payment header the requirements (402), with one the credit. No account and no sign-in is
 * needed: the signed payment says whose credit it is.
 */
function topUpRoute(options: WalletRouteOptions): Route {
  return {
    method: 'POST',
    path: TOP_UP_PATH,
    auth: 'public',
    describe: TOP_UP,
    handle: async (context) => {
      await limitPayments(options, context, options.perMinute.topUp);
      const payments = requireConfigured(options.payments);
      const header = paymentHeader(context);
      if (header === undefined) {
        const resource = { path: options.basePath + TOP_UP_PATH, description: 'Wallet credit' };
        throw await paymentRequired(context, payments, resource, 'topUp');
      }
      const receipt = await payments.topUp(header, retryProof(context));
      setPaymentResponse(context, receipt.responseHeader);
      await context.json(200, topUpBody(receipt));
    },
  };
}

/** The 200 body of a top-up; one that is only shown again says so in place of the balance. */
export function topUpBody(receipt: TopUpReceipt): Readonly<Record<string, unknown>> {
  return {
    success: true,
    data: {
      walletAddress: receipt.wallet,
      amountCredited: toUsdNumber(receipt.amountNano),
      ...(receipt.newBalanceNano === undefined
        ? { alreadyCredited: true }
        : { newBalance: toUsdNumber(receipt.newBalanceNano) }),
      paymentId: receipt.paymentId,
    },
  };
}

/** The 402 of an offer, in the layout of version 1 for clients that ask for it. */
export async function paymentRequired(
  context: RequestContext,
  payments: Payments,
  resource: Resource,
  kind: OfferKind,
): Promise<Fault> {
  const { requirements } = payments;
  const answer = await requirements[kind](resource);
  const wantsFirst = context.query.get('x402Version') === '1';
  return new Fault('PAYMENT_REQUIRED', {
    body: wantsFirst ? requirements.versionOne(resource, kind) : answer.body,
    headers: { 'PAYMENT-REQUIRED': answer.header },
  });
}

/** Tells clients of both versions what came of a payment. */
export function setPaymentResponse(context: RequestContext, value: string): void {
  context.set('PAYMENT-RESPONSE', value);
  context.set(X_PAYMENT_RESPONSE, value);
}

function balanceRoute(options: WalletRouteOptions): Route {
  return {
    method: 'GET',
    path: '/x402/balance/:wallet',
    auth: 'wallet',
    about: 'Wallet balance',
    describe: WALLET_BALANCE,
    handle: async (context) => {
      const wallet = requireOwnWallet(context);
      await limitRequests(options, `x402-balance|${wallet}`, options.perMinute.balance);
      const payments = requireConfigured(options.payments);
      const { usdNano, diemNano } = await options.ledger.balances(context.caller.accountId);
      const staked = await payments.stakedCredit(wallet);
      const isLinked = diemNano > 0n || (staked !== undefined && staked.credit > 0n);
      const daily = isLinked ? diemNano : undefined;
      await context.json(200, balanceBody(wallet, usdNano, payments.amounts, daily));
    },
  };
}

/** The 200 body of `GET /x402/balance/{walletAddress}`. `daily` only for linked staking accounts. */
export function balanceBody(
  wallet: string,
  balance: Nano,
  amounts: Payments['amounts'],
  daily?: Nano,
): Readonly<Record<string, unknown>> {
  return {
    success: true,
    data: {
      walletAddress: wallet,
      balanceUsd: Number(formatUsd(balance, 6)),
      canConsume: balance + (daily ?? 0n) >= amounts.minimumBalance,
      minimumTopUpUsd: toUsdNumber(amounts.minimumTopUp),
      suggestedTopUpUsd: toUsdNumber(amounts.suggestedTopUp),
      ...(daily === undefined ? {} : { diemBalanceUsd: Number(formatUsd(daily, 6)) }),
    },
  };
}

/** The embedded facilitator for others. Whoever may call `settle` spends the operator's gas; nobody gets credit. */
function facilitatorRoutes(options: WalletRouteOptions, facilitator: ExposedFacilitator): Route[] {
  const call = (name: keyof typeof FACILITATOR_CALLS): Route => ({
    method: 'POST',
    path: `/x402/facilitator/${name}`,
    auth: 'public',
    describe: FACILITATOR_CALLS[name],
    body: FACILITATOR_BODY,
    handle: async (context) => {
      const bucket = `x402-facilitator|${context.address}`;
      await limitRequests(options, bucket, options.perMinute.facilitator);
      await context.json(200, await facilitator[name](parseJsonBody(context.body)));
    },
  });
  const supported: Route = {
    method: 'GET',
    path: '/x402/facilitator/supported',
    auth: 'public',
    describe: FACILITATOR_SUPPORTED,
    handle: (context) => context.json(200, facilitator.supported()),
  };
  return [supported, call('verify'), call('settle')];
}
