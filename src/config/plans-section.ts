/**
 * The `plans` section: plans of accounts with their own names, limits and prices. The plans
 * `paid`, `pro`, `partner` and `staff` always exist. Prices of one account are in the database.
 */
import * as z from 'zod';

import { divideHalfUp, decimalUsd, usdToNano } from '../core/money.ts';
import { type LimitsSection, type PlanLimits, TIERS } from './limits-section.ts';
import { MODEL_TYPES, type ModelType, PriceSettings, modelId } from './models-section.ts';
import type { RpcSection } from './rpc-section.ts';
import { Usd, count } from './setting-kinds.ts';
import { VideoPricing } from './video-model-section.ts';

/** Plans that exist without configuration. */
export const DEFAULT_PLANS = ['paid', 'pro', 'partner', 'staff'] as const;
export type DefaultPlan = (typeof DEFAULT_PLANS)[number];

export const PlanName = z
  .string()
  .regex(
    /^[a-z][a-z0-9_-]{0,39}$/,
    'Must be 1 to 40 lowercase letters, digits, _ or -, and start with a letter',
  );

const MAX_MODELS = 1_000;
const PERCENT_NANO = 1_000_000_000n;

/** Percent from 0 to 100 with at most 4 decimals, kept as text. */
const Percent = z
  .union([z.number(), z.string()])
  .transform((value, context) => {
    const text = String(value).trim();
    if (/^(?:100(?:\.0{1,4})?|\d{1,2}(?:\.\d{1,4})?)$/.test(text)) return text;
    const message = 'Must be a percentage from 0 to 100 with at most 4 decimals, for example 12.5';
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  })
  .meta({ format: 'percent' });

/** The price of one model, or of all models of a kind. */
export type PriceRule = z.infer<typeof PriceRule>;
const PriceRule = z
  .strictObject({
    discountPercent: Percent.optional().describe('Discount on the list price, in percent.'),
    price: PriceSettings.optional().describe(
      'Prices instead of the list price, with the members of `models[].price`.',
    ),
    videoPricing: VideoPricing.optional().describe(
      'Pricing of a video model instead of its own, with the members of `models[].video.pricing`.',
    ),
  })
  .refine((rule) => Object.values(rule).filter((value) => value !== undefined).length === 1, {
    message: 'Must have either "discountPercent", "price" or "videoPricing"',
  });

/** Prices of a customer that differ from the list prices. */
export type PriceRules = z.infer<typeof PriceRules>;
export const PriceRules = z.strictObject({
  discountPercent: Percent.optional().describe(
    'Discount on the list prices of all models and of RPC credits, in percent.',
  ),
  kinds: z
    .partialRecord(z.enum(MODEL_TYPES), PriceRule)
    .optional()
    .describe('Prices by type of the model, such as `text` or `embedding`.'),
  models: z
    .record(modelId, PriceRule)
    .refine((rules) => Object.keys(rules).length <= MAX_MODELS, {
      message: `Must have at most ${MAX_MODELS} models`,
    })
    .optional()
    .describe('Prices by id of the model.'),
  rpc: z
    .strictObject({
      discountPercent: Percent.optional().describe('Discount on `rpc.usdPerCredit`, in percent.'),
      usdPerCredit: Usd.optional().describe('Price of one RPC credit in USD.'),
    })
    .refine(
      ({ discountPercent, usdPerCredit }) =>
        (discountPercent === undefined) !== (usdPerCredit === undefined),
      { message: 'Must have either "discountPercent" or "usdPerCredit"' },
    )
    .optional()
    .describe('Price of RPC credits.'),
});

const TextLimit = z.strictObject({
  requestsPerMinute: count().optional().describe('Requests per minute.'),
  tokensPerMinute: count().optional().describe('Prompt and completion tokens per minute.'),
});

const Plan = z.strictObject({
  basedOn: z
    .enum(DEFAULT_PLANS)
    .optional()
    .describe(
      'Plan whose limits and models apply where this plan sets none. Default: `paid`; for `pro`, `partner` and `staff` the plan itself.',
    ),
  limits: z
    .strictObject({
      text: z.partialRecord(z.enum(TIERS), TextLimit).optional().describe('Text models, by tier.'),
      image: count().optional().describe('Image models, requests per minute.'),
      audio: count().optional().describe('Audio models, requests per minute.'),
      embedding: count().optional().describe('Embedding models, requests per minute.'),
      videoQueue: count().optional().describe('Queueing videos, requests per minute.'),
      videoRetrieve: count().optional().describe('Retrieving videos, requests per minute.'),
      rpcRequestsPerMinute: count().optional().describe('RPC requests per minute.'),
      rpcCreditsPerDay: count().optional().describe('RPC credits in 24 hours.'),
    })
    .optional()
    .describe('Rate limits that differ from those of `basedOn`.'),
  prices: PriceRules.optional().describe('Prices that differ from the list prices.'),
});

export type PlansSection = z.infer<typeof PlansSection>;
export const PlansSection = z
  .record(PlanName, Plan)
  .refine((plans) => plans['paid']?.prices === undefined, {
    message: 'Must not be set: the plan paid has the list prices',
    path: ['paid', 'prices'],
  })
  .default({});

/** Rate limits of a plan, with those of its RPC requests if it sets them. */
export interface RatesOfPlan extends PlanLimits {
  readonly rpcRequestsPerMinute?: number | undefined;
  readonly rpcCreditsPerDay?: number | undefined;
}

/** A plan with all settings resolved. */
export interface ResolvedPlan {
  readonly basedOn: DefaultPlan;
  readonly limits: RatesOfPlan;
  readonly prices: PriceRules | undefined;
}

export interface ResolvedPlans {
  /** All plans, the default ones first. */
  readonly byName: ReadonlyMap<string, ResolvedPlan>;
  /** The plan of wallets, and of accounts whose plan no longer exists. */
  readonly paid: ResolvedPlan;
}

export function resolvePlans(plans: PlansSection, limits: LimitsSection): ResolvedPlans {
  const resolved = (name: string, fallback: DefaultPlan): ResolvedPlan => {
    const own = plans[name];
    const basedOn = own?.basedOn ?? fallback;
    return {
      basedOn,
      limits: withOwn(limits.plans[basedOn], own?.limits),
      prices: own?.prices,
    };
  };
  const paid = resolved('paid', 'paid');
  const byName = new Map<string, ResolvedPlan>([['paid', paid]]);
  for (const name of DEFAULT_PLANS) if (name !== 'paid') byName.set(name, resolved(name, name));
  for (const name of Object.keys(plans)) {
    if (!byName.has(name)) byName.set(name, resolved(name, 'paid'));
  }
  return { byName, paid };
}

/** The limits of a plan; of `paid` if the plan no longer exists. */
export function limitsOfPlan({ byName, paid }: ResolvedPlans, name: string): RatesOfPlan {
  return (byName.get(name) ?? paid).limits;
}

function withOwn(base: RatesOfPlan, own: z.infer<typeof Plan>['limits']): RatesOfPlan {
  if (own === undefined) return base;
  const { text = {}, ...others } = own;
  const tiers = TIERS.map((tier) => [tier, set(base.text[tier], text[tier] ?? {})]);
  // One entry for each tier.
  return { ...set(base, others), text: Object.fromEntries(tiers) as PlanLimits['text'] };
}

/** The object with the members of `own` that have a value. */
function set<T extends object>(base: T, own: { readonly [K in keyof T]?: T[K] | undefined }): T {
  const given = Object.entries(own).filter(([, value]) => value !== undefined);
  return { ...base, ...Object.fromEntries(given) };
}

export interface RpcLimits {
  readonly requestsPerMinute: number;
  readonly creditsPerDay: number;
}

/** The limits of RPC requests of a plan; of `paid` if the plan no longer exists. */
export function rpcLimitsOf(
  {
    rpc,
    resolvedPlans: { byName, paid },
  }: { readonly rpc: Omit<RpcSection, 'networks'>; readonly resolvedPlans: ResolvedPlans },
  name: string,
): RpcLimits {
  const { basedOn, limits } = byName.get(name) ?? paid;
  const { requestsPerMinute, staffRequestsPerMinute, creditsPerDay } = rpc;
  const usual = basedOn === 'staff' ? staffRequestsPerMinute : requestsPerMinute;
  return {
    requestsPerMinute: limits.rpcRequestsPerMinute ?? usual,
    creditsPerDay: limits.rpcCreditsPerDay ?? creditsPerDay,
  };
}

/** The factor of a discount, as decimal text: `20` becomes `0.8000`. */
export function discountFactor(percent: string): string {
  return decimalUsd(PERCENT_NANO - usdToNano(percent) / 100n);
}

/** A price after a discount, rounded half up to a nano-USD. */
function discounted(priceNano: bigint, percent: string): bigint {
  return divideHalfUp(priceNano * (100n * PERCENT_NANO - usdToNano(percent)), 100n * PERCENT_NANO);
}

/** The prices of one caller: those of its account, then those of its plan. */
export interface CallerPrices {
  readonly account: PriceRules | undefined;
  readonly plan: PriceRules | undefined;
}

/** Place of the rule that sets a price. */
export type PriceSource = 'account' | 'plan';

/** The first rule for a model: of the account before the plan, and the most specific one of each. */
export function ruleFor(
  { account, plan }: CallerPrices,
  { id, type }: { readonly id: string; readonly type: ModelType },
): { readonly rule: PriceRule; readonly source: PriceSource } | undefined {
  for (const [source, rules] of [
    ['account', account],
    ['plan', plan],
  ] as const) {
    if (rules === undefined) continue;
    const { models, kinds, discountPercent } = rules;
    const own = models !== undefined && Object.hasOwn(models, id) ? models[id] : kinds?.[type];
    if (own !== undefined) return { rule: own, source };
    if (discountPercent !== undefined) return { rule: { discountPercent }, source };
  }
  return undefined;
}

/** The price of an RPC credit for a caller; `listNano` if no rule applies. */
export function creditPrice({ account, plan }: CallerPrices, listNano: bigint): bigint {
  for (const rules of [account, plan]) {
    const rule = rules?.rpc ?? rules;
    if (rule === undefined) continue;
    if ('usdPerCredit' in rule && rule.usdPerCredit !== undefined) {
      return usdToNano(rule.usdPerCredit);
    }
    if (rule.discountPercent !== undefined) return discounted(listNano, rule.discountPercent);
  }
  return listNano;
}
