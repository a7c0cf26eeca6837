/**
 * Wallets, wired: payments with the ledger's postings, who a wallet header stands for, the
 * 402 answers, and the wallet endpoints. Without rails the wallet side says so and API keys work
 * alone.
 */
import type { RequestContext } from '../http/request-context.ts';
import { retryProof } from '../http/identify.ts';
import { setPaymentResponse, walletRoutes } from './x402/x402.ts';
import type { Ledger } from '../billing/ledger/ledger.ts';
import type { Windows } from '../billing/limits/limits.ts';
import { type Config, serviceWords } from '../config/config.ts';
import { type Caller, walletCaller, walletOfAccount } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { Store } from '../db/db.ts';
import {
  type PaymentRequiredAnswer,
  type Payments,
  type Resource,
  openPayments,
} from '../payments/payments.ts';
import { keyOnlyDiscovery, walletsNotConfigured } from './no-wallets.ts';
import { StakedCredit } from './staked-credit.ts';
import type { Feature, Route } from '../http/route.ts';
import { walletPostings } from './wallet-postings.ts';

interface WalletStores {
  readonly store: Store;
  readonly ledger: Ledger;
}

/** What the wallet routes are built from. */
export interface WalletFeatureParts {
  readonly config: () => Config;
  readonly stores: WalletStores;
  readonly windows: Windows;
  readonly clock: Clock;
}

export interface WalletParts {
  readonly config: Config;
  readonly stores: WalletStores;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly basePath: string;
}

/** What the stages of a request ask about wallets. */
export interface Wallets {
  /** `undefined` without rails. */
  readonly payments: Payments | undefined;
  readonly basePath: string;
  isToken(token: string): boolean;
  callerOfToken(token: string): Promise<Caller>;
  /** Gives the key of a wallet's account the daily credit of its stake; `undefined` without staking. */
  readonly withStake: ((caller: Caller) => Promise<Caller>) | undefined;
  readonly callerOfSignIn: (header: string) => Promise<Caller>;
  readonly callerOfPayment: (header: string, context: RequestContext) => Promise<Caller>;
  readonly discovery: (context: RequestContext, route: Route) => Fault;
  /** Told what a wallet asks for, so that a refusal can name it. */
  readonly entered: (caller: Caller, context: RequestContext, route: Route) => void;
  readonly refusal: (caller: Caller, credit: WalletCredit) => Fault;
}

interface WalletCredit {
  readonly balance: Nano;
  readonly needed: Nano;
}

/** The payments of a configuration; `undefined` without rails. Rejects when a facilitator that must answer does not. */
export async function openWalletPayments(parts: WalletParts): Promise<Payments | undefined> {
  const { config, stores, clock, ids, log } = parts;
  if (config.payments.base === undefined && config.payments.solana === undefined) return undefined;
  const docsUrl = config.service.docsUrl ?? `${config.publicUrl}/docs`;
  return openPayments({
    store: stores.store,
    clock,
    ids,
    log,
    settings: { ...config.payments, minimumBalanceUsd: Number(config.limits.minimumCreditUsd) },
    publicUrl: config.publicUrl,
    basePath: parts.basePath,
    serviceName: config.service.title,
    tokenPrefix: `${serviceWords(config.service.name).name}_wallet_`,
    docsUrl,
    keysUrl: docsUrl,
    ...walletPostings(stores.ledger),
  });
}

export async function openWallets(parts: WalletParts): Promise<Wallets> {
  const payments = await openWalletPayments(parts);
  return payments === undefined ? noWallets(parts) : someWallets(parts, payments);
}

function noWallets({ config, basePath }: WalletParts): Wallets {
  const refuse = async (): Promise<never> => {
    throw walletsNotConfigured();
  };
  return {
    payments: undefined,
    basePath,
    isToken: () => false,
    callerOfToken: refuse,
    withStake: undefined,
    callerOfSignIn: refuse,
    callerOfPayment: refuse,
    discovery: (context) => keyOnlyDiscovery(context, config.publicUrl, basePath),
    entered: () => undefined,
    refusal: walletsNotConfigured,
  };
}

function someWallets(parts: WalletParts, payments: Payments): Wallets {
  const staked = new StakedCredit(parts.stores.ledger, (wallet) => payments.stakedCredit(wallet));
  const isStaking = parts.config.payments.staking !== undefined;
  const asked = new WeakMap<Caller, Resource>();
  const withStake = async (caller: Caller): Promise<Caller> => {
    const wallet = walletOfAccount(caller.accountId);
    if (wallet !== undefined) await staked.refresh(wallet, caller.accountId);
    return caller;
  };
  const callerOf = async (wallet: string, capId?: string): Promise<Caller> => {
    const caller = walletCaller(wallet, capId);
    return isStaking ? await withStake(caller) : caller;
  };
  return {
    payments,
    basePath: parts.basePath,
    isToken: (token) => payments.isWalletToken(token),
    withStake: isStaking ? withStake : undefined,
    callerOfToken: async (token) => {
      const { wallet, capId } = await payments.verifyToken(token);
      return callerOf(wallet, capId);
    },
    callerOfSignIn: async (header) => callerOf((await payments.signIn(header)).wallet),
    callerOfPayment: async (header, context) => {
      const offered = await payments.offer(header, retryProof(context));
      let taken: Promise<void> | undefined;
      const take = async (): Promise<void> => {
        const { responseHeader } = await offered.take();
        setPaymentResponse(context, responseHeader);
      };
      const payment = { amountNano: offered.amountNano, take: () => (taken ??= take()) };
      return { ...(await callerOf(offered.wallet)), payment };
    },
    discovery: (context, route) => {
      const resource = resourceOf(context, route);
      const answer = payments.discovery(resource);
      const wantsFirst = context.query.get('x402Version') === '1';
      return required(answer, wantsFirst ? payments.versionOne(resource) : answer.body);
    },
    entered: (caller, context, route) => {
      if (caller.kind === 'wallet') asked.set(caller, resourceOf(context, route));
    },
    refusal: (caller, credit) => {
      const resource = asked.get(caller) ?? { path: parts.basePath, description: 'Paid API' };
      const answer = payments.insufficientCredit(resource, credit);
      return required(answer, answer.body);
    },
  };
}

function required(answer: PaymentRequiredAnswer, body: unknown): Fault {
  return new Fault('PAYMENT_REQUIRED', {
    body,
    headers: { 'PAYMENT-REQUIRED': answer.header },
  });
}

/** Paths go into a header whose size is bounded. */
const MAX_PATH_CHARS = 200;

function resourceOf(context: RequestContext, route: Route): Resource {
  return { path: context.path.slice(0, MAX_PATH_CHARS), description: route.about ?? 'Paid API' };
}

/** The wallet endpoints and the background work of payments. */
export function walletsFeature(
  parts: WalletFeatureParts,
  wallets: Wallets,
  allRoutes: () => readonly Route[],
): Feature {
  const { payments, basePath } = wallets;
  const { ledger, store } = parts.stores;
  return {
    routes: walletRoutes({
      payments,
      ledger,
      store,
      windows: parts.windows,
      clock: parts.clock,
      perMinute: parts.config().payments.routesPerMinute,
      basePath,
      resources: () => sellable(allRoutes(), basePath),
    }),
    // A file is locked by its one server; a parts database has others.
    start: () => payments?.start({ alone: store.dialect === 'sqlite' }),
    onceAMinute: () => ledger.collectDebts(),
    close: async () => payments?.stop(),
  };
}

function sellable(routes: readonly Route[], basePath: string): Resource[] {
  return routes
    .filter((route) => route.auth === 'key-or-wallet')
    .map((route) => ({
      path: basePath + route.path.replaceAll(/:(\w+)/g, '{$1}'),
      description: route.about ?? 'Paid API',
    }));
}
