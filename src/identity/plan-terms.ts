/**
 * The terms of callers: the plan of the account, and its own prices. Callers whose accounts have the same plan and the same stored prices
 * share one object, so that its compiled prices are made once.
 */
import {
  type CallerPrices,
  DEFAULT_PLANS,
  type PriceRules,
  type ResolvedPlan,
} from '../config/config.ts';
import type { Caller } from './caller.ts';

/** A plan by its name; `undefined` if it no longer exists. */
export type PlanOf = (name: string) => Pick<ResolvedPlan, 'basedOn' | 'prices'> | undefined;

type Terms = Pick<Caller, 'plan' | 'basedOn' | 'prices'>;

/** Beyond it, the objects are made again. */
const MAX_KNOWN = 10_000;

export class PlanTerms {
  readonly #planOf: PlanOf;
  readonly #known = new Map<string, CallerPrices>();

  constructor(planOf: PlanOf = defaultPlan) {
    this.#planOf = planOf;
  }

  /** `stored`: the JSON of the prices of the account. */
  of(plan: string, stored: string | null): Terms {
    const { basedOn, prices: ofPlan } = this.#planOf(plan) ?? GONE;
    const terms = basedOn === plan ? { plan } : { plan, basedOn };
    if (stored === null && ofPlan === undefined) return terms;
    return { ...terms, prices: this.#shared(`${plan} ${stored ?? ''}`, stored, ofPlan) };
  }

  #shared(key: string, stored: string | null, plan: PriceRules | undefined): CallerPrices {
    const known = this.#known.get(key);
    if (known !== undefined && known.plan === plan) return known;
    const prices = { account: readPrices(stored), plan };
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.set(key, prices);
    return prices;
  }
}

/** The default plan of a name, with the list prices. */
function defaultPlan(name: string): ReturnType<PlanOf> {
  const basedOn = DEFAULT_PLANS.find((one) => one === name);
  return basedOn && { basedOn, prices: undefined };
}

/** An account whose plan no longer exists has the terms of `paid`. */
const GONE = { basedOn: 'paid', prices: undefined } as const;

export function readPrices(stored: string | null): PriceRules | undefined {
  return stored === null ? undefined : (JSON.parse(stored) as PriceRules); // written by this folder only
}
