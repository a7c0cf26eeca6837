/**
 * Creates, changes and deletes budgets, and reads what is spent of them. A budget and its caps
 * change in one transaction, so that no request sees one without the other.
 */
import { Fault } from '../../core/faults.ts';
import type { Nano } from '../../core/money.ts';
import type { Queryable, Store } from '../../db/db.ts';
import {
  type Budget,
  type BudgetOf,
  type Identity,
  budgetCap,
  isEachValue,
} from '../../identity/identity.ts';
import { type CapSettings, type Ledger, spendingOfCap } from '../ledger/ledger.ts';

const MAX_BUDGETS = 50;

export interface BudgetStores {
  readonly store: Store;
  readonly identity: Identity;
  readonly ledger: Ledger;
}

/** Creates a budget, including what was already spent. Throws `BUDGET_LIMIT_REACHED`. */
export async function createBudget(
  { store, identity, ledger }: BudgetStores,
  wanted: Omit<Budget, 'id' | 'createdMs'>,
): Promise<Budget> {
  const { accountId } = wanted;
  const made = await store.transaction(async (tx) => {
    await identity.lockAccount(accountId, tx);
    if ((await identity.budgets(accountId, tx)).length >= MAX_BUDGETS) {
      throw new Fault('BUDGET_LIMIT_REACHED', {
        message: `An account has ${MAX_BUDGETS} budgets at most; delete one first`,
      });
    }
    const budget = await identity.createBudget(wanted, tx);
    if (!isEachValue(budget)) await setBudgetCap(ledger, tx, budgetCap(budget));
    return budget;
  });
  identity.forget();
  return made;
}

/** Changes the amount of a budget; returns `undefined` if the account has no such budget. */
export async function changeBudget(
  { store, identity, ledger }: BudgetStores,
  of: Pick<Budget, 'id' | 'accountId'>,
  usdLimitNano: Nano,
): Promise<Budget | undefined> {
  const changed = await store.transaction(async (tx) => {
    const before = await identity.lockBudget(of, tx);
    if (before === undefined) return undefined;
    const after = { ...before, usdLimitNano };
    await identity.updateBudget(after, tx);
    await ledger.setBudgetLimit(tx, of.accountId, of.id, usdLimitNano);
    return after;
  });
  identity.forget();
  return changed;
}

/** Deletes a budget; returns `false` if the account has no budget with this id. */
export async function deleteBudget(
  { store, identity, ledger }: BudgetStores,
  of: Pick<Budget, 'id' | 'accountId'>,
): Promise<boolean> {
  const isDeleted = await store.transaction(async (tx) => {
    if ((await identity.lockBudget(of, tx)) === undefined) return false;
    await identity.deleteBudget(of, tx);
    await ledger.dropBudget(tx, of.accountId, of.id);
    return true;
  });
  identity.forget();
  return isDeleted;
}

/** Returns the spending in the running period, for `value` if the budget is per tag value. */
export async function budgetSpending(
  store: Store,
  budget: Budget,
  nowMs: number,
  value = budget.value,
): Promise<Nano | undefined> {
  if (isEachValue(budget) && value === undefined) return undefined;
  const { usdNano } = await spendingOfCap(store, settingsOf(budgetCap(budget, value)), nowMs);
  return usdNano;
}

export function setBudgetCap(ledger: Ledger, tx: Queryable, cap: BudgetOf): Promise<void> {
  return ledger.setCap(tx, settingsOf(cap));
}

function settingsOf({ budget, value, capId }: BudgetOf): CapSettings {
  const { id, accountId, period, usdLimitNano, tag } = budget;
  const counts = tag === undefined ? {} : { tag: { name: tag, value: value ?? '' } };
  return {
    id: capId,
    accountId,
    period,
    usdLimitNano,
    diemLimitNano: undefined,
    counts,
    budgetId: id,
  };
}
