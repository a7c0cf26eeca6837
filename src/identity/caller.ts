/** The authenticated caller: an account by an API key, or a wallet. Contains no secrets. */

import { walletKind } from '../core/addresses.ts';
import type { Nano } from '../core/money.ts';
import type { CallerPrices, DefaultPlan, MemberRole } from '../config/config.ts';
import type { CallerBudgets } from './budgets.ts';

/** Name of a plan, as in `Config.resolvedPlans`. */
export type Plan = string;

export type KeyKind = 'INFERENCE' | 'ADMIN';
/** `MEMBER`: the key that a member of the account acts through; no API key. */
export type CallerKind = KeyKind | 'MEMBER';

/** Ordered from least to most strict. */
export const MODEL_PRIVACY = ['ALL', 'PRIVATE_TEXT', 'PRIVATE_ONLY'] as const;
export type ModelPrivacy = (typeof MODEL_PRIVACY)[number];

/** Limits of an account or a key that differ from its plan; missing ones are the plan's. */
export interface LimitOverrides {
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly rpcRequestsPerMinute?: number;
  readonly rpcCreditsPerDay?: number;
}

/** A validated payment that came with a request; taken when the request is admitted. */
export interface CallerPayment {
  readonly amountNano: bigint;
  /**
   * The most that its request may spend: the signed amount. `undefined` if the request also carries
   * a sign-in, a wallet token or an API key of the payer, which gives access to the account's
   * credit.
   */
  readonly limitNano: Nano | undefined;
  /**
   * Transfers and credits the money: all of it, or `wanted` if the payer signed a maximum. Throws a
   * Fault; a second call returns the result of the first.
   */
  take(wanted: Nano): Promise<void>;
  /** For an anonymous request: returns the error that states the price. */
  readonly quote?: (price: Nano) => Promise<Error>;
}

export interface ConsoleSession {
  readonly id: string;
  readonly accountId: string;
  /** The key that it acts as; empty for a wallet. */
  readonly keyId: string;
  readonly wallet?: string;
  /** Address of its member. */
  readonly email?: string;
  readonly createdMs: number;
  readonly expiresMs: number;
  readonly lastUsedMs: number;
  readonly userAgent: string;
  readonly address: string;
  /** Required for writes in the session; empty in lists. */
  readonly csrfToken: string;
}

/** The member of a session; its role limits the routes. */
export interface SessionMember {
  readonly id: string;
  readonly email: string;
  readonly name: string;
  readonly role: MemberRole;
}

export interface Caller {
  readonly kind: 'key' | 'wallet';
  readonly accountId: string;
  readonly keyId: string;
  readonly keyKind: CallerKind;
  readonly plan: Plan;
  /** Set if the plan is not a default one: the default plan that it is based on. */
  readonly basedOn?: DefaultPlan;
  /** The cap that its requests count against; set if the key has a consumption limit. */
  readonly capId: string | undefined;
  readonly modelPrivacy: ModelPrivacy;
  /** Ids of the models that the key may use; `undefined` allows all. */
  readonly models: ReadonlySet<string> | undefined;
  readonly accountLimits: LimitOverrides;
  readonly keyLimits: LimitOverrides;
  /** The parent key whose limits apply: the caller counts in the windows of that key. */
  readonly limitKeyId?: string;
  /** Set if its account or plan has own prices. Callers with equal prices share one object. */
  readonly prices?: CallerPrices;
  readonly wallet?: string;
  /** Set if the wallet signed this request itself; a wallet token does not set it. */
  readonly isSigned?: true;
  /** Set if a wallet token authenticated the request. */
  readonly tokenExpiresMs?: number;
  /** For a request that lasts: throws 401 if its wallet token has expired or was revoked. */
  readonly requireToken?: () => Promise<unknown>;
  readonly payment?: CallerPayment;
  /** Set if its requests count against more than the cap of its key. */
  readonly budgets?: CallerBudgets;
  /** The account is the operator's own: its ADMIN keys manage the service. */
  readonly isOperator?: boolean;
  /** Batch work: at the batch price, without per-minute limits, on spare engine capacity. */
  readonly isBatch?: true;
  readonly session?: ConsoleSession;
  readonly member?: SessionMember;
}

/** Returns the account id of a wallet: EVM addresses in lower case, base58 unchanged. */
export function walletAccountId(address: string): string {
  return `wallet:${address.startsWith('0x') ? address.toLowerCase() : address}`;
}

/** Returns the account id of an id or a wallet address; other text is returned unchanged. */
export function accountIdOf(text: string): string {
  const address = walletOfAccount(text) ?? text;
  return walletKind(address) === undefined ? text : walletAccountId(address);
}

export function walletOfAccount(accountId: string): string | undefined {
  return accountId.startsWith('wallet:') ? accountId.slice('wallet:'.length) : undefined;
}

/** Returns the caller for a verified wallet signature, or for a wallet token with a cap. */
export function walletCaller(address: string, capId?: string): Caller {
  return {
    kind: 'wallet',
    accountId: walletAccountId(address),
    keyId: '',
    keyKind: 'INFERENCE',
    plan: 'paid',
    capId,
    modelPrivacy: 'ALL',
    models: undefined,
    accountLimits: {},
    keyLimits: {},
    wallet: address.startsWith('0x') ? address.toLowerCase() : address,
  };
}

/**
 * Name under which requests with a payment only are counted, apart from those of its wallet: another shop
 * can have obtained the signature. `undefined` for all other requests.
 */
export function paymentOnlyBucket({ accountId, payment }: Caller): string | undefined {
  return payment?.limitNano === undefined ? undefined : `payment ${accountId}`;
}
