/**
 * What a request counts against beside the cap of its key: the caps of the keys above it, and budgets
 * of its account. A budget of each value of a tag begins with what was spent of the value so far,
 * when the first request with it comes; there are so many of them at most, so that a caller who makes up
 * values does not grow the database without an end.
 */
import { type Clock, HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import {
  type BudgetOf,
  type CallerBudgets,
  type Identity,
  budgetsFor,
  isEachValue,
} from '../../identity/identity.ts';
import type { Queryable, Store } from '../../db/db.ts';
import {
  type Ledger,
  type RequestMetadata,
  cappedSpending,
  countBudgetCaps,
} from '../ledger/ledger.ts';
import { setBudgetCap } from './manage-budgets.ts';

export { budgetSpending, changeBudget, createBudget, deleteBudget } from './manage-budgets.ts';

/** Caps that were seen in the database; past that they are looked up anew. */
const MAX_KNOWN = 10_000;
/** Values of one budget that have caps: of two periods, or for LIFETIME of all time. */
const MAX_VALUES = 100_000;
/** How long, and how many, a process counts on from what it found: each can pass the bound by so many. */
const COUNTED_MS = 10 * MINUTE_MS;
const COUNTED_VALUES = 1_000;
/** Far less than the time for which the cap of a period that is over is kept. */
const KNOWN_MS = HOUR_MS;

export interface BudgetCapsParts {
  readonly store: Store;
  readonly ledger: Ledger;
  readonly identity: Pick<Identity, 'lockBudget'>;
  readonly clock: Clock;
  /** Values of a budget that have caps, at most; tests want few. */
  readonly maxValues?: number;
  /** Values that are added before they are counted anew; tests want few. */
  readonly countedValues?: number;
}

/** How many values of a budget have caps, about. */
interface CountedValues {
  readonly found: number;
  added: number;
  readonly untilMs: number;
}

export class BudgetCaps {
  readonly #parts: BudgetCapsParts;
  /** By id, until which time of the monotonic clock. */
  readonly #known = new Map<string, number>();
  /** By id of the budget. */
  readonly #counted = new Map<string, CountedValues>();

  constructor(parts: BudgetCapsParts) {
    this.#parts = parts;
  }

  /**
   * Ids of all that a request counts against, each with a row; `undefined` for none. Throws
   * `BUDGET_LIMIT_REACHED` for one value too many.
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
        // A key is remembered for a moment: its budget may be another one by now, or gone.
        const budget = await identity.lockBudget(one.budget, tx);
        if (budget === undefined) continue;
        if (isEachValue(budget)) await this.#requireRoom(tx, one, atMs);
        await setBudgetCap(ledger, tx, { ...one, budget });
      }
    });
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    for (const { capId } of budgets) this.#known.set(capId, atMs + KNOWN_MS);
  }

  async #requireRoom(tx: Queryable, { budget, capId }: BudgetOf, atMs: number): Promise<void> {
    const { maxValues = MAX_VALUES, countedValues = COUNTED_VALUES } = this.#parts;
    const known = this.#counted.get(budget.id);
    const isFresh = known !== undefined && known.untilMs > atMs && known.added < countedValues;
    const counted = isFresh ? known : await this.#count(tx, budget, atMs);
    counted.added += 1;
    const hasRoom = counted.found + counted.added <= maxValues;
    if (hasRoom || (await cappedSpending(tx, [capId], this.#parts.clock.nowMs())).has(capId))
      return;
    throw new Fault('BUDGET_LIMIT_REACHED', {
      message: `The budget ${budget.id} counts ${maxValues} values of the tag ${budget.tag ?? ''}, and has room for no other one: send one of those, or delete the budget and make it again, without the values that have spent nothing`,
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
