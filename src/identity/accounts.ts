/** Accounts as their rows contain them. */
import type { Row } from '../db/db.ts';
import type { PriceRules } from '../config/config.ts';
import type { LimitOverrides, Plan } from './caller.ts';
import { readPrices } from './plan-terms.ts';

export const ACCOUNT_COLUMNS = 'id, name, plan, disabled, is_operator, limits, prices, created_ms';

export interface Account {
  readonly id: string;
  readonly name: string;
  readonly plan: Plan;
  readonly disabled: boolean;
  /** True if the account belongs to the operator: its ADMIN keys manage the service. */
  readonly isOperator: boolean;
  readonly limits: LimitOverrides;
  /** `undefined` for those of the plan. */
  readonly prices?: PriceRules | undefined;
  readonly createdMs: number;
}

export function rulesOf(row: Row): Pick<Account, 'plan' | 'limits'> {
  return {
    plan: String(row['plan']),
    limits: JSON.parse(String(row['limits'] ?? '{}')) as LimitOverrides, // the same
  };
}

/** The JSON of the column `prices`. */
export function storedPrices({ prices = null }: Row): string | null {
  return prices === null ? null : String(prices);
}

export function accountOf(row: Row): Account {
  return {
    id: String(row['id']),
    name: String(row['name']),
    disabled: row['disabled'] !== 0n,
    isOperator: row['is_operator'] === 1n,
    createdMs: Number(row['created_ms']),
    prices: readPrices(storedPrices(row)),
    ...rulesOf(row),
  };
}

export interface AccountFinder {
  findAccount(id: string): Promise<Account | undefined>;
}

/** The names of accounts by id. Ids without an account are left out. */
export async function accountNames(
  identity: AccountFinder,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const accounts = await Promise.all(
    [...new Set(ids)].filter((id) => id !== '').map((id) => identity.findAccount(id)),
  );
  return new Map(accounts.flatMap((one) => (one === undefined ? [] : [[one.id, one.name]])));
}
