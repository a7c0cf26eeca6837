/**
 * Who calls: an account by one of its API keys, or a wallet by its signature. What the stages after
 * identification need to know of it, and nothing secret.
 */

import { walletKind } from '../core/addresses.ts';
import type { Nano } from '../core/money.ts';
import type { CallerBudgets } from './budgets.ts';

export const PLANS = ['paid', 'pro', 'partner', 'staff'] as const;
export type Plan = (typeof PLANS)[number];

export type KeyKind = 'INFERENCE' | 'ADMIN';

/** The later, the stricter. */
export const MODEL_PRIVACY = ['ALL', 'PRIVATE_TEXT', 'PRIVATE_ONLY'] as const;
export type ModelPrivacy = (typeof MODEL_PRIVACY)[number];

/** Limits of an account or a key that differ from those of its plan; missing means the plan's. */
export interface LimitOverrides {
  readonly requestsPerMinute?: number;
  readonly tokensPerMinute?: number;
  readonly rpcRequestsPerMinute?: number;
  readonly rpcCreditsPerDay?: number;
}

/** A payment that came with a request: checked, and taken when the request is admitted. */
export interface CallerPayment {
  readonly amountNano: bigint;
  /**
   * The most that its request may spend: what the payer signed. `undefined` if the request also carries a
   * sign-in, a wallet token or an API key of the payer, which spends the credit of the account.
   */
  readonly limitNano: Nano | undefined;
  /**
   * Moves the money and credits it: all of it, or as much as is wanted where the payer signed a ceiling.
   * Throws a Fault; a second call gives the answer of the first.
   */
  take(wanted: Nano): Promise<void>;
  /**
   * Set for an anonymous request that wants to know its price: the error that names the price, thrown in
   * place of taking a payment.
   */
  readonly quote?: (price: Nano) => Promise<Error>;
}

/** A session of the console: who signed in, when, and from where. */
export interface ConsoleSession {
  readonly id: string;
  readonly accountId: string;
  /** The key that it acts as; empty for a wallet. */
  readonly keyId: string;
  readonly wallet?: string;
  readonly createdMs: number;
  readonly expiresMs: number;
  readonly lastUsedMs: number;
  readonly userAgent: string;
  readonly address: string;
  /** What a write of it must show; empty in lists. */
  readonly csrfToken: string;
}

export interface Caller {
  readonly kind: 'key' | 'wallet';
  readonly accountId: string;
  readonly keyId: string;
  readonly keyKind: KeyKind;
  readonly plan: Plan;
  /** Set when the key has a consumption limit: the ledger's cap that its requests count against. */
  readonly capId: string | undefined;
  readonly modelPrivacy: ModelPrivacy;
  /** Ids of the models that the key may use; `undefined` is all. */
  readonly models: ReadonlySet<string> | undefined;
  readonly accountLimits: LimitOverrides;
  readonly keyLimits: LimitOverrides;
  /** The key above it whose limits these are: it counts in the windows of that key. */
  readonly limitKeyId?: string;
  /** The address of a wallet caller, in its display form. */
  readonly wallet?: string;
  /** Its wallet signed this very request: no token stands for it. */
  readonly isSigned?: true;
  readonly payment?: CallerPayment;
  /** Set where its requests count against more than the cap of its key. */
  readonly budgets?: CallerBudgets;
  /** The account is the operator's own: its ADMIN keys run the service. */
  readonly isOperator?: boolean;
  /** The work is of a batch: at its price, outside the limits of a minute, on engines with room. */
  readonly isBatch?: true;
  readonly session?: ConsoleSession;
}

/** The account id of a wallet: EVM addresses in lower case, base58 as it is. */
export function walletAccountId(address: string): string {
  return `wallet:${address.startsWith('0x') ? address.toLowerCase() : address}`;
}

/**
 * The id of an account as operators write it: a wallet also by its address alone, in any spelling. Other
 * text is returned unchanged.
 */
export function accountIdOf(text: string): string {
  const address = walletOfAccount(text) ?? text;
  return walletKind(address) === undefined ? text : walletAccountId(address);
}

export function walletOfAccount(accountId: string): string | undefined {
  return accountId.startsWith('wallet:') ? accountId.slice('wallet:'.length) : undefined;
}

/** The caller that a verified wallet signature, or a token with a cap, stands for. */
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
