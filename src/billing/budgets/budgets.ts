/**
 * Finds the caps that a request counts against in addition to the cap of its key: the caps of its
 * parent keys and the budgets of its account. A budget for each value of a tag gets a cap when the
 * first request with a new value arrives; the cap starts with the amount already spent for that
 * value. The number of such caps is bounded, so that a caller that invents tag values cannot grow
 * the database without limit.
 *
 * Also creates, changes and deletes budgets. A budget and its caps change in one transaction, so
 * that no request sees one without the other.
 */
import { type Clock, HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Nano } from '../../core/money.ts';
import {
  type Budget,
  type BudgetOf,
  type CallerBudgets,
  type Identity,
  budgetCap,
  budgetsFor,
  isEachValue,
} from '../../identity/identity.ts';
import type { Queryable, Store } from '../../db/db.ts';
import {
  type CapSettings,
  type Ledger,
  type RequestMetadata,
  cappedSpending,
  countBudgetCaps,
  spendingOfCap,
} from '../ledger/ledger.ts';

/** Maximum number of caps that this process remembers as existing in the database. */
const MAX_KNOWN = 10_000;
/** Maximum values with a cap per budget: of the last two periods, or in total for LIFETIME. */
const MAX_VALUES = 100_000;
/** A count is reused for this long, and for this many new values per process. */
const COUNTED_MS = 10 * MINUTE_MS;
const COUNTED_VALUES = 1_000;
/** Must be well below the time for which the cap of an ended period is kept (one day). */
const KNOWN_MS = HOUR_MS;

export interface BudgetCapsParts {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly identity: Pick<Identity, 'lockBudget'>;
  readonly clock: Clock;
  readonly maxValues?: number;
  readonly countedValues?: number;
}

interface CountedValues {
  readonly found: number;
  added: number;
  readonly untilMs: number;
}

export class BudgetCaps {
  readonly #parts: BudgetCapsParts;
  /** By cap id: the monotonic time until which the cap is known to exist. */
  readonly #known = new Map<string, number>();
  readonly #counted = new Map<string, CountedValues>();

  constructor(parts: BudgetCapsParts) {
    this.#parts = parts;
  }

  /**
   * Returns the ids of all caps that a request counts against, and creates missing rows;
   * `undefined` if there are none. Throws `BUDGET_LIMIT_REACHED` if a budget has too many values.
   */
  async open(
    caller: CallerBudgets | undefined,
    tags: RequestMetadata | undefined,
  ): Promise<readonly string[] | undefined> {
    if (caller === undefined) return undefined;
    const matched = budgetsFor(caller, tags);
    const atMs = this.#parts.clock.monotonicMs();
    const unknown = matched.filter(({ capId }) => (this.#known.get(capId) ?? -1) <= atMs);
    if (unknown.length > 0) await this.#make(unknown, atMs);
    const ids = [...caller.parentIds, ...matched.map(({ capId }) => capId)];
    return ids.length === 0 ? undefined : ids;
  }

  async #make(budgets: readonly BudgetOf[], atMs: number): Promise<void> {
    const { store, ledger, identity } = this.#parts;
    await store.transaction(async (tx) => {
      for (const one of budgets) {
        // The cached key may list a budget that was changed or deleted since.
        const budget = await identity.lockBudget(one.budget, tx);
        if (budget === undefined) continue;
        if (isEachValue(budget)) await this.#requireCapacity(tx, one, atMs);
        await setBudgetCap(ledger, tx, { ...one, budget });
      }
    });
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    for (const { capId } of budgets) this.#known.set(capId, atMs + KNOWN_MS);
  }

  async #requireCapacity(tx: Queryable, { budget, capId }: BudgetOf, atMs: number): Promise<void> {
    const { maxValues = MAX_VALUES, countedValues = COUNTED_VALUES } = this.#parts;
    const known = this.#counted.get(budget.id);
    const isFresh = known !== undefined && known.untilMs > atMs && known.added < countedValues;
    const counted = isFresh ? known : await this.#count(tx, budget, atMs);
    counted.added += 1;
    const hasCapacity = counted.found + counted.added <= maxValues;
    if (hasCapacity || (await cappedSpending(tx, [capId], this.#parts.clock.nowMs())).has(capId))
      return;
    throw new Fault('BUDGET_LIMIT_REACHED', {
      message: `The budget ${budget.id} counts ${maxValues} values of the tag ${budget.tag ?? ''}, and no more are allowed: use one of those values, or delete and create the budget again to remove the values that have spent nothing`,
    });
  }

  async #count(
    tx: Queryable,
    { id, accountId }: BudgetOf['budget'],
    atMs: number,
  ): Promise<CountedValues> {
    if (this.#counted.size >= MAX_KNOWN) this.#counted.clear();
    const found = await countBudgetCaps(tx, accountId, id);
    const counted = { found, added: 0, untilMs: atMs + COUNTED_MS };
    this.#counted.set(id, counted);
    return counted;
  }
}

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

function setBudgetCap(ledger: Ledger, tx: Queryable, cap: BudgetOf): Promise<void> {
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
