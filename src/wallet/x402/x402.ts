/** The wallet endpoints: top-up, balance, transactions, tokens, the exposed facilitator and the manifest. */
import { limitRequests } from '../../http/limit-requests.ts';
import { parseJsonBody } from '../../json/json-scan.ts';
import { type Nano, formatUsd, toUsdNumber } from '../../core/money.ts';
import { paymentCredential, paymentHeader, retryProof } from '../../http/identify.ts';
import { type Route, get } from '../../http/route.ts';
import {
  type ExposedFacilitator,
  type Payments,
  type TopUpReceipt,
  requirePayments,
} from '../../payments/payments.ts';
import { FACILITATOR_CALLS, FACILITATOR_SUPPORTED, TOP_UP, WALLET_BALANCE } from './describe.ts';
import { limitPayments, requireOwnWallet } from './route-checks.ts';
import type { WalletRouteOptions } from './route-checks.ts';
import { discoveryRoute } from './discovery.ts';
import { manifestRoute } from './manifest.ts';
import { paymentRequired, setPaymentResponse, withPayment } from './offers.ts';
import { recentBlockRoute } from './recent-block.ts';
import { signingKeyRoutes } from './signing-keys.ts';
import { tokenRoutes } from './token.ts';
import { transactionsRoute } from './transactions.ts';

export { limitPayments } from './route-checks.ts';

const TOP_UP_PATH = '/x402/top-up';
/** A payment has about 2 KB, with a contract signature more. */
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

/** Without a payment header returns the 402. Needs no sign-in, because the signed payment contains the wallet. */
function topUpRoute(options: WalletRouteOptions): Route {
  return {
    method: 'POST',
    path: TOP_UP_PATH,
    auth: 'public',
    describe: TOP_UP,
    handle: async (context) => {
      await limitPayments(options, context, options.perMinute.topUp);
      const payments = requirePayments(options.payments);
      const header = paymentHeader(context) ?? paymentCredential(context);
      const resource = { path: options.basePath + TOP_UP_PATH, description: 'Wallet credit' };
      if (header === undefined) throw await paymentRequired(context, payments, resource, 'topUp');
      const request = { context, payments, resource, kind: 'topUp', header } as const;
      const receipt = await withPayment(request, (payment) =>
        payments.headers.topUp(payment, retryProof(context)),
      );
      setPaymentResponse(context, receipt.responseHeader, options.clock.nowMs());
      await context.json(200, topUpBody(receipt));
    },
  };
}

/** The 200 body of a top-up; for a repeated payment without the balance. */
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
      const payments = requirePayments(options.payments);
      const { usdNano, diemNano } = await options.ledger.balances(context.caller.accountId);
      const staked = await payments.stakedCredit(wallet);
      const isLinked = diemNano > 0n || (staked !== undefined && staked.credit > 0n);
      const daily = isLinked ? diemNano : undefined;
      await context.json(200, balanceBody(wallet, usdNano, payments.amounts, daily));
    },
  };
}

/** The 200 body of `GET /x402/balance/{walletAddress}`; `daily` is for linked staking accounts only. */
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

/** The embedded facilitator for other servers. `settle` spends the operator's gas and credits no account. */
function facilitatorRoutes(options: WalletRouteOptions, facilitator: ExposedFacilitator): Route[] {
  const call = (name: keyof typeof FACILITATOR_CALLS): Route => ({
    method: 'POST',
    path: `/x402/facilitator/${name}`,
    auth: 'public',
    describe: FACILITATOR_CALLS[name],
    body: FACILITATOR_BODY,
    handle: async (context) => {
      const bucket = `x402-facilitator|${context.countedAddress}`;
      await limitRequests(options, bucket, options.perMinute.facilitator);
      const body = parseJsonBody(context.body);
      await context.json(200, await facilitator.call(name, body, context.signal));
    },
  });
  const supported: Route = get(
    '/x402/facilitator/supported',
    'public',
    FACILITATOR_SUPPORTED,
    (context) => context.json(200, facilitator.supported()),
  );
  return [supported, call('verify'), call('settle')];
}
