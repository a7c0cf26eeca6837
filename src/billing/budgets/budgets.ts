/**
 * What a request counts against beside the cap of its key: the caps of the keys above it, and budgets
 * of its account. A budget of each value of a tag begins with what was spent of the value so far,
 * when the first request with it comes.
 */
import { type Clock, HOUR_MS } from '../../core/clock.ts';
import {
  type BudgetOf,
  type CallerBudgets,
  type Identity,
  budgetsFor,
} from '../../identity/identity.ts';
import type { Store } from '../../db/db.ts';
import type { Ledger, RequestMetadata } from '../ledger/ledger.ts';

import { setBudgetCap } from './manage-budgets.ts';

export {
  type BudgetStores,
  budgetSpending,
  changeBudget,
  createBudget,
  deleteBudget,
} from './manage-budgets.ts';

/** Caps that were seen in the database; past that they are looked up anew. */
const MAX_KNOWN = 10_000;
/** Far less than the time for which the cap of a period that is over is kept. */
const KNOWN_MS = HOUR_MS;

export interface BudgetCapsParts {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly identity: Pick<Identity, 'lockBudget'>;
  readonly clock: Clock;
}

export class BudgetCaps {
  readonly #parts: BudgetCapsParts;
  /** By id, until when. */
  readonly #known = new Map<string, number>();

  constructor(parts: BudgetCapsParts) {
    this.#parts = parts;
  }

  /** Ids of all that a request counts against, each with a row; `undefined` for none. */
  async open(
    caller: CallerBudgets | undefined,
    tags: RequestMetadata | undefined,
  ): Promise<readonly string[] | undefined> {
    if (caller === undefined) return undefined;
    const matched = budgetsFor(caller, tags);
    const nowMs = this.#parts.clock.nowMs();
    const unknown = matched.filter(({ capId }) => (this.#known.get(capId) ?? 0) <= nowMs);
    if (unknown.length > 0) await this.#make(unknown, nowMs);
    const ids = [...caller.parentIds, ...matched.map(({ capId }) => capId)];
    return ids.length === 0 ? undefined : ids;
  }

  async #make(budgets: readonly BudgetOf[], nowMs: number): Promise<void> {
    const { store, ledger, identity } = this.#parts;
    await store.transaction(async (tx) => {
      for (const one of budgets) {
        // A key is remembered for a moment: its budget may be another one by now, or gone.
        const budget = await identity.lockBudget(one.budget, tx);
        if (budget !== undefined) await setBudgetCap(ledger, tx, { ...one, budget });
      }
    });
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    for (const { capId } of budgets) this.#known.set(capId, nowMs + KNOWN_MS);
  }
}
