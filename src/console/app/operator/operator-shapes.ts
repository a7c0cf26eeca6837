/** Answers of `/admin/…` that several pages read. Amounts are decimal text. */
import type { TopUp } from '../shapes.ts';

export interface Account {
  readonly id: string;
  readonly name: string;
  readonly plan: string;
  readonly disabled: boolean;
  readonly isOperator: boolean;
  readonly limits: Readonly<Record<string, number | null>>;
  readonly createdAt: string;
  readonly balance: {
    readonly usd: string;
    readonly heldUsd: string;
    readonly availableUsd: string;
    readonly debtUsd: string;
    readonly diem: string;
    readonly dailyAllocation: string;
  };
}

export interface RevenueRow {
  readonly date: string;
  readonly model: string;
  readonly requests: number;
  readonly errors: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly usd: string;
  readonly diem: string;
}

export interface AdminTopUp extends TopUp {
  readonly wallet: string;
  readonly amountUsd: string;
  readonly reversals: number;
  readonly isStuck: boolean;
}
