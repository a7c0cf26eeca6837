/**
 * The wallet feature: payments with the ledger's postings, the callers of wallet headers, the 402
 * responses and the wallet endpoints. Without rails the endpoints report that, and only API keys work.
 */
import type { Ledger } from '../billing/ledger/ledger.ts';
import type { Windows } from '../billing/limits/limits.ts';
import type { Config, ConfigInForce } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { type Nano, ZERO } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import type { Feature, Route } from '../http/route.ts';
import { retryProof } from '../http/identify.ts';
import type { RequestContext } from '../http/request-context.ts';
import {
  type Caller,
  type CallerPayment,
  type Identity,
  walletCaller,
  walletOfAccount,
} from '../identity/identity.ts';
import {
  type Payments,
  type Resource,
  type Signing,
  type WalletCredit,
  openPayments,
  openSigning,
  paymentNetworks,
  requirePayments,
} from '../payments/payments.ts';
import { Bazaar, type DefaultModel } from './x402/bazaar.ts';
import { StakedCredit } from './staked-credit.ts';
import { openWalletAccounts } from './wallet-accounts.ts';
import { walletPostings } from './wallet-postings.ts';
import {
  SOLD,
  insufficientCredit,
  isVersionOne,
  keyRequired,
  paymentRequired,
  setPaymentResponse,
  withPayment,
} from './x402/offers.ts';
import { walletRoutes } from './x402/x402.ts';

interface WalletStores {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly identity: Pick<Identity, 'boundedWallet' | 'openWalletAccount'>;
}

export interface WalletOptions {
  /** The settings at the start of the server. */
  readonly config: Config;
  readonly stores: WalletStores;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly basePath: string;
}

export type Wallets = Awaited<ReturnType<typeof openWallets>>;

/** Opens payments; `undefined` without rails. Rejects if a required facilitator does not respond. */
export async function openWalletPayments(
  options: WalletOptions,
  live: ConfigInForce = { current: options.config },
): Promise<Payments | undefined> {
  const { config, stores, clock, ids, log, basePath } = options;
  if (paymentNetworks(config.payments).length === 0) return undefined;
  const docsUrl = config.service.docsUrl ?? `${config.publicUrl}/docs`;
  return openPayments({
    store: stores.store,
    clock,
    ids,
    log,
    settings: {
      ...config.payments,
      get minimumBalanceUsd() {
        return Number(live.current.limits.minimumCreditUsd);
      },
    },
    publicUrl: config.publicUrl,
    basePath,
    serviceName: config.service.title,
    tokenPrefix: `${config.service.name}_wallet_`,
    docsUrl,
    keysUrl: docsUrl,
    ...walletPostings(stores),
  });
}

async function signingAlone({
  config,
  stores,
  clock,
  basePath,
}: WalletOptions): Promise<Signing | undefined> {
  const { payments, publicUrl } = config;
  if (!payments.receipts) return undefined;
  const { signingKey: configured } = payments;
  return await openSigning({ store: stores.store, clock, publicUrl, basePath, configured });
}

interface WalletsOptions extends WalletOptions {
  readonly modelOf: DefaultModel;
}

export async function openWallets(options: WalletsOptions, live: ConfigInForce) {
  const { config, stores, clock, basePath, modelOf } = options;
  const { publicUrl } = config;
  await openWalletAccounts(stores);
  const payments = await openWalletPayments(options, live);
  const signing = payments === undefined ? await signingAlone(options) : payments.signing;
  const isStaking = payments !== undefined && config.payments.staking !== undefined;
  const staked = new StakedCredit(stores, async (wallet) => payments?.stakedCredit(wallet));
  const requests = new WeakMap<Caller, WalletRequest>();
  const bazaar = new Bazaar({ basePath, serviceName: config.service.name, modelOf });
  const resourceOf = ({ path, parameters, route }: WalletRequest): Resource => ({
    ...resourceAt(path, route),
    discovered: bazaar.of(route, parameters),
  });
  const withStake = async (caller: Caller): Promise<Caller> => {
    const wallet = walletOfAccount(caller.accountId);
    if (wallet !== undefined) await staked.refresh(wallet, caller.accountId);
    return caller;
  };
  const callerOf = async (wallet: string, capId?: string): Promise<Caller> => {
    const caller = await stores.identity.boundedWallet(walletCaller(wallet, capId));
    return isStaking ? await withStake(caller) : caller;
  };
  return {
    payments,
    signing,
    basePath,
    bazaar,
    /** Prefix of wallet tokens; `undefined` without rails. */
    tokenPrefix: payments?.sessions.prefix,
    /** Refreshes the daily credit for the stake of a caller's wallet; `undefined` without staking. */
    withStake: isStaking ? withStake : undefined,
    callerOfToken: async (token: string): Promise<Caller> => {
      const requireToken = () => requirePayments(payments).sessions.verify(token);
      const { wallet, capId, expiresMs } = await requireToken();
      return { ...(await callerOf(wallet, capId)), tokenExpiresMs: expiresMs, requireToken };
    },
    /** The caller of an authenticated wallet, or of its token with a cap. Throws 401 for an ended token. */
    callerOfWallet: async (wallet: string, capId = ''): Promise<Caller> => {
      if (capId === '') return callerOf(wallet);
      await requirePayments(payments).sessions.requireLive(capId);
      return callerOf(wallet, capId);
    },
    callerOfSignIn: async (header: string, context: RequestContext): Promise<Caller> => {
      const { wallet } = await requirePayments(payments).signIn.verify(
        header,
        context.countedAddress,
      );
      return { ...(await callerOf(wallet)), isSigned: true };
    },
    callerOfPayment: async (header: string, context: RequestContext): Promise<Caller> => {
      const configured = requirePayments(payments);
      const { wallet, payment } = await offeredPayment(configured, header, context, clock);
      return { ...(await callerOf(wallet)), payment };
    },
    /** The caller of an anonymous request of x402 version 1, whose response is its price. */
    callerOfQuote: (context: RequestContext, route: Route): Caller | undefined => {
      if (payments === undefined || !isVersionOne(context) || !isPricedAtOnce(context, route)) {
        return undefined;
      }
      return quotedCaller(context, async (price) => {
        const resource = resourceOf(walletRequest(context, route));
        return paymentRequired(context, payments, resource, 'discovery', price);
      });
    },
    discovery: async (context: RequestContext, route: Route): Promise<Fault> => {
      if (payments === undefined) {
        return keyRequired(publicUrl + context.path, publicUrl, basePath);
      }
      const resource = resourceOf(walletRequest(context, route));
      return paymentRequired(context, payments, resource, 'discovery');
    },
    /** Stores the request of a wallet, so that a 402 can describe its resource. */
    entered: (wallet: Caller, context: RequestContext, route: Route): void => {
      requests.set(wallet, walletRequest(context, route));
    },
    refusal: async (caller: Caller, credit: WalletCredit): Promise<Fault> => {
      const known = requests.get(caller);
      const resource =
        known === undefined ? { path: basePath, description: SOLD } : resourceOf(known);
      const isOld = known?.isVersionOne === true;
      return insufficientCredit(requirePayments(payments), resource, credit, isOld);
    },
  };
}

/** The verified payment of a request, which is taken once, when the request is admitted. */
async function offeredPayment(
  payments: Payments,
  header: string,
  context: RequestContext,
  clock: Clock,
): Promise<{ readonly wallet: string; readonly payment: CallerPayment }> {
  const resource = { path: context.path, description: SOLD };
  const request = { context, payments, resource, kind: 'discovery', header } as const;
  const offered = await withPayment(request, (payment) =>
    payments.headers.offer(payment, retryProof(context)),
  );
  let taken: Promise<void> | undefined;
  const take = async (wanted: Nano): Promise<void> => {
    const response = await withPayment(request, () => offered.take(wanted));
    setPaymentResponse(context, response, clock.nowMs());
  };
  const payment = {
    amountNano: offered.amountNano,
    limitNano: offered.signedNano,
    take: (wanted: Nano) => (taken ??= take(wanted)),
  };
  return { wallet: offered.wallet, payment };
}

interface WalletRequest {
  readonly path: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly route: Route;
  readonly isVersionOne: boolean;
}

function walletRequest(context: RequestContext, route: Route): WalletRequest {
  const { path, parameters } = context;
  return { path, parameters, route, isVersionOne: isVersionOne(context) };
}

/** Whether the JSON body determines the price; a form would have to be parsed and measured first. */
function isPricedAtOnce({ headers }: RequestContext, route: Route): boolean {
  const isJson = headers['content-type']?.toLowerCase().startsWith('application/json') === true;
  return route.sells !== undefined && route.auth === 'key-or-wallet' && isJson;
}

/** A caller without an account, whose response is its price. */
function quotedCaller(
  { countedAddress }: RequestContext,
  quote: (price: Nano) => Promise<Fault>,
): Caller {
  const take = () => Promise.reject(new Error('A quoted request has no payment'));
  const payment = { amountNano: ZERO, limitNano: undefined, take, quote };
  return { ...walletCaller(''), accountId: `quote:${countedAddress}`, payment };
}

function resourceAt(path: string, { about, describe }: Route): Resource {
  const tags = describe === undefined ? {} : { tags: [describe.tag] };
  return { path, description: about ?? describe?.summary ?? SOLD, ...tags };
}

export interface WalletFeatureOptions {
  readonly config: ConfigInForce;
  readonly stores: WalletStores;
  readonly windows: Windows;
  readonly clock: Clock;
}

interface SoldResources {
  readonly routes: () => readonly Route[];
  /** Paid tools of the MCP server. */
  readonly paidTools: () => Promise<readonly Resource[]>;
}

/** The wallet endpoints and the background work of payments. */
export function walletsFeature(
  options: WalletFeatureOptions,
  { payments, signing, basePath, bazaar }: Wallets,
  { routes, paidTools }: SoldResources,
): Feature {
  const { ledger, store } = options.stores;
  return {
    routes: walletRoutes({
      ...options,
      payments,
      signing,
      ledger,
      store,
      perMinute: options.config.current.payments.routesPerMinute,
      basePath,
      resources: () => sellable(routes(), basePath, bazaar),
      paidTools,
    }),
    // A SQLite file has one server.
    start: () => payments?.start({ alone: store.dialect === 'sqlite' }),
    perProcessJob: async () => signing?.keys.refresh(),
    leaderJob: () => ledger.collectDebts(),
    close: async () => payments?.stop(),
  };
}

/** Examples of the path parameters. */
function exampleOf({ describe }: Route): Readonly<Record<string, string>> {
  const parameters = describe?.parameters?.filter((one) => one.in === 'path') ?? [];
  return Object.fromEntries(parameters.map(({ name, example }) => [name, example ?? name]));
}

function sellable(routes: readonly Route[], basePath: string, bazaar: Bazaar): Resource[] {
  return routes
    .filter((route) => route.auth === 'key-or-wallet' && route.sells !== undefined)
    .map((route) => ({
      ...resourceAt(basePath + route.path.replaceAll(/:(\w+)/g, '{$1}'), route),
      discovered: bazaar.of(route, exampleOf(route)),
    }));
}
