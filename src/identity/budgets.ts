/**
 * Budgets of an account: how much may be spent per day, week or month in total, for one tag value,
 * or for each value of a tag (such as each end user). Budgets apply to the keys and the wallet of
 * the account. Also finds which budgets, and which caps of parent keys, a request counts against.
 */
import { sha256Hex } from '../core/ids.ts';
import { type Nano, nano } from '../core/money.ts';
import type { Row } from '../db/db.ts';

/** EPOCH is a day, WEEK begins on Monday; all begin at 00:00 UTC. */
export const LIMIT_PERIODS = ['EPOCH', 'WEEK', 'MONTH', 'LIFETIME'] as const;
export type LimitPeriod = (typeof LIMIT_PERIODS)[number];

export interface Budget {
  readonly id: string;
  readonly accountId: string;
  /** Without a tag it counts every charge of the account. */
  readonly tag: string | undefined;
  /** Without a value each value of the tag has the whole amount. */
  readonly value: string | undefined;
  readonly period: LimitPeriod;
  readonly usdLimitNano: Nano;
  readonly createdMs: number;
}

/** Budgets of a key or wallet, in addition to the key's own cap. */
export interface CallerBudgets {
  readonly parentIds: readonly string[];
  readonly budgets: readonly Budget[];
}

export interface BudgetOf {
  readonly budget: Budget;
  readonly value: string | undefined;
  readonly capId: string;
}

export const BUDGET_COLUMNS = 'id, account_id, tag, value, period, usd_nano, created_ms';

export function budgetOf(row: Row): Budget {
  const optional = (name: string): string | undefined =>
    row[name] === null ? undefined : String(row[name]);
  return {
    id: String(row['id']),
    accountId: String(row['account_id']),
    tag: optional('tag'),
    value: optional('value'),
    period: String(row['period']) as LimitPeriod, // written by this folder only
    usdLimitNano: nano(row['usd_nano'] as bigint),
    createdMs: Number(row['created_ms']),
  };
}

export function isEachValue({ tag, value }: Pick<Budget, 'tag' | 'value'>): boolean {
  return tag !== undefined && value === undefined;
}

export function budgetCap(budget: Budget, value: string | undefined = budget.value): BudgetOf {
  const capId = isEachValue(budget)
    ? `${budget.id}:${sha256Hex(value ?? '').slice(0, VALUE_HEX)}`
    : budget.id;
  return { budget, value, capId };
}

const VALUE_HEX = 32;

export function budgetsFor(
  { budgets }: CallerBudgets,
  tags: Readonly<Record<string, string>> = {},
): BudgetOf[] {
  const matched: BudgetOf[] = [];
  for (const budget of budgets) {
    const { tag, value } = budget;
    const given = tag !== undefined && Object.hasOwn(tags, tag) ? tags[tag] : undefined;
    if (tag !== undefined && (given === undefined || (value !== undefined && given !== value))) {
      continue;
    }
    matched.push(budgetCap(budget, given));
  }
  return matched;
}
