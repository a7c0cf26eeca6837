/** Answers of the API that several pages read, as the reference describes them. */

export interface Cost {
  readonly usd: number;
  readonly diem: number;
}

export interface Session {
  readonly id: string;
  readonly kind: 'key' | 'wallet';
  readonly accountId: string;
  readonly keyId: string | null;
  readonly keyKind: 'INFERENCE' | 'ADMIN';
  readonly keyDescription: string | null;
  readonly wallet: string | null;
  readonly plan: string;
  readonly isOperator: boolean;
  readonly csrfToken: string;
  readonly createdAt: string;
  readonly expiresAt: string;
}

export interface SignInChallenge {
  readonly info: {
    readonly domain: string;
    readonly uri: string;
    readonly version: string;
    readonly nonce: string;
    readonly issuedAt: string;
    readonly expirationTime?: string;
    readonly statement?: string;
  };
  readonly supportedChains: readonly { readonly chainId: string; readonly type: string }[];
}

export interface Balance {
  readonly canConsume: boolean;
  readonly balances: Cost;
  readonly diemEpochAllocation: number;
  readonly held: Cost;
  readonly available: Cost;
}

export interface Sums {
  readonly requests: number;
  readonly errors: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cost: Cost;
}

export interface DayRow extends Sums {
  readonly date: string;
  readonly model: string;
}

export interface Days {
  readonly from: string;
  readonly to: string;
  readonly totals: Sums;
  readonly data: readonly DayRow[];
}

export interface Receipt {
  readonly requestId: string;
  readonly createdAt: string;
  readonly apiKeyId: string | null;
  readonly kind: string;
  readonly model: string;
  readonly status: 'completed' | 'aborted' | 'failed' | 'expired';
  readonly router: string | null;
  readonly attempts: number;
  readonly tokens: {
    readonly prompt: number;
    readonly completion: number;
    readonly cached: number;
    readonly cacheWrite: number;
    readonly reasoning: number;
    readonly countedBy: string;
  };
  readonly priceVersion: string;
  readonly cost: Cost;
  readonly reserved?: number | null;
  readonly latencyMs: number;
  readonly firstTokenMs: number | null;
  readonly extras: Readonly<Record<string, unknown>>;
  /** Tags. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly unitPrices?: {
    readonly version: string;
    readonly model: string;
    readonly prices: Readonly<Record<string, unknown>>;
  } | null;
}

export interface Page<T> {
  readonly data: readonly T[];
  readonly nextCursor: string | null;
}

export interface ApiKey {
  readonly id: string;
  readonly apiKeyType: 'INFERENCE' | 'ADMIN';
  readonly description: string;
  /** The key that made it. */
  readonly parentId: string | null;
  readonly createdAt: string;
  readonly expiresAt: string | null;
  readonly lastUsedAt: string | null;
  readonly last6Chars: string;
  readonly consumptionLimits: { readonly usd: number | null; readonly diem: number | null };
  readonly limitPeriod: 'EPOCH' | 'WEEK' | 'MONTH' | 'LIFETIME';
  readonly modelPrivacy: 'ALL' | 'PRIVATE_TEXT' | 'PRIVATE_ONLY';
  readonly models: readonly string[] | null;
  readonly usage: { readonly trailingSevenDays: { readonly usd: string; readonly diem: string } };
  readonly currentPeriodUsage: { readonly usd: string; readonly diem: string };
}

export interface Budget {
  readonly id: string;
  readonly tag: string | null;
  /** Null: each value of the tag has the budget for itself. */
  readonly value: string | null;
  readonly period: ApiKey['limitPeriod'];
  readonly usd: number;
  /** Null where each value has the budget for itself. */
  readonly spentUsd: number | null;
  readonly createdAt: string;
}

export interface TagRow extends Sums {
  readonly tag: string;
  readonly value: string;
}

export interface TagSums {
  readonly from: string;
  readonly to: string;
  readonly data: readonly TagRow[];
}

export interface Amount {
  readonly usd: number;
  readonly diem: number;
}

export interface Model {
  readonly id: string;
  readonly created: number;
  readonly type: string;
  readonly context_length?: number;
  readonly model_spec: {
    readonly name: string;
    readonly description: string;
    readonly privacy: string;
    readonly offline: boolean;
    readonly traits: readonly string[];
    readonly regionRestrictions: readonly string[];
    readonly deprecation?: { readonly date: string; readonly replacementModelId?: string };
    readonly pricing?: Readonly<Record<string, Amount | object>>;
    readonly maxCompletionTokens?: number;
    readonly capabilities?: Readonly<Record<string, unknown>>;
    readonly constraints?: Readonly<Record<string, unknown>>;
    readonly embeddingDimensions?: number;
    readonly maxInputTokens?: number;
  };
}

export interface TopUp {
  readonly paymentId: string;
  readonly network: string;
  readonly amountUsd: number | string;
  readonly state: 'open' | 'sent' | 'credited' | 'failed';
  readonly transaction: string | null;
  readonly explorerUrl: string | null;
  readonly failure: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** As OpenAI has it; times are Unix seconds. */
export interface Batch {
  readonly id: string;
  readonly endpoint: string;
  readonly status: string;
  readonly errors: {
    readonly data: readonly {
      readonly message: string;
      readonly param: string | null;
      readonly line: number | null;
    }[];
  } | null;
  readonly input_file_id: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly created_at: number;
  readonly in_progress_at: number | null;
  readonly expires_at: number;
  readonly completed_at: number | null;
  readonly failed_at: number | null;
  readonly expired_at: number | null;
  readonly cancelled_at: number | null;
  readonly request_counts: {
    readonly total: number;
    readonly completed: number;
    readonly failed: number;
  };
  readonly usage?: { readonly input_tokens: number; readonly output_tokens: number };
  readonly cost?: Cost;
  readonly metadata: Readonly<Record<string, string>> | null;
}

export interface StoredFile {
  readonly id: string;
  readonly bytes: number;
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly filename: string;
  readonly purpose: 'batch' | 'batch_output';
}

export interface Thresholds {
  readonly balanceUsd: number | null;
  readonly keyLimitPercent: number | null;
  readonly budgetPercent: number | null;
  readonly dailySpendUsd: number | null;
}

export interface Webhook {
  readonly id: string;
  readonly url: string;
  readonly thresholds: Thresholds;
  readonly paused: boolean;
  readonly createdAt: string;
}

export interface Delivery {
  readonly id: string;
  readonly event: string;
  readonly status: 'pending' | 'delivered' | 'failed';
  readonly attempts: number;
  readonly nextAttemptAt: string | null;
  readonly responseStatus: number | null;
  readonly error: string | null;
  readonly createdAt: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** A webhook whose secret is shown once. */
export type SecretWebhook = Webhook & {
  readonly secret: string;
  readonly previousSecretUntil?: string;
};
