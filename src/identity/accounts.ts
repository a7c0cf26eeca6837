/** Accounts as their rows contain them. */
import type { Row } from '../db/db.ts';
import type { LimitOverrides, Plan } from './caller.ts';

export const ACCOUNT_COLUMNS = 'id, name, plan, disabled, is_operator, limits, created_ms';

export interface Account {
  readonly id: string;
  readonly name: string;
  readonly plan: Plan;
  readonly disabled: boolean;
  /** True if the account belongs to the operator: its ADMIN keys manage the service. */
  readonly isOperator: boolean;
  readonly limits: LimitOverrides;
  readonly createdMs: number;
}

export function rulesOf(row: Row): Pick<Account, 'plan' | 'limits'> {
  return {
    plan: String(row['plan']) as Plan, // written by this folder only
    limits: JSON.parse(String(row['limits'] ?? '{}')) as LimitOverrides, // the same
  };
}

export function accountOf(row: Row): Account {
  return {
    id: String(row['id']),
    name: String(row['name']),
    disabled: row['disabled'] !== 0n,
    isOperator: row['is_operator'] === 1n,
    createdMs: Number(row['created_ms']),
    ...rulesOf(row),
  };
}
