/** Checks prices: whether a row has the prices that its type of model needs, and the rules of plans. */
import { didYouMean } from '../core/nearest-word.ts';
import type { Diagnostics } from './explain.ts';
import type { ModelSettings, PriceSettings } from './models-section.ts';
import { DEFAULT_PLANS, type PriceRule, type PriceRules } from './plans-section.ts';
import type { FileSettings } from './sections.ts';
import { VideoModelSettings, type VideoPricing } from './video-model-section.ts';
import type { Path } from './yaml-source.ts';

export type AmountName = Exclude<
  keyof PriceSettings,
  'extended' | 'imageRates' | 'serviceTiers' | 'windows'
>;

/** Each type needs one price of each inner list; video has its own price table. */
export const NEEDED_PRICES: Partial<
  Record<ModelSettings['type'], readonly (readonly AmountName[])[]>
> = {
  text: [['input'], ['output']],
  embedding: [['input']],
  asr: [['perSecond']],
  image: [['perImage']],
  inpaint: [['perImage']],
  tts: [['perMillionCharacters']],
  rerank: [['perSearch', 'input']],
  moderation: [['input', 'perRequest']],
};

export function missingPrices(type: ModelSettings['type'], price: PriceSettings): string[] {
  const needed = NEEDED_PRICES[type] ?? [];
  return [...needed, ...(type === 'image' ? imageTokenPrices(price) : [])].flatMap((keys) => {
    if (keys.some((key) => price[key] !== undefined)) return [];
    const wanted = keys.map((key) => `"${key}"`).join(' or ');
    return [`The price of this type of model needs ${wanted}`];
  });
}

/** Tokens of images are charged only if both input and output have a price. */
function imageTokenPrices({ input, output, imageInput, imageOutput }: PriceSettings) {
  const given = [input, output, imageInput, imageOutput];
  if (given.every((usd) => usd === undefined)) return [];
  return [['input'], ['output', 'imageOutput']] satisfies AmountName[][];
}

/** A model that prices of customers can name. */
export interface PricedModel extends Pick<ModelSettings, 'type'> {
  readonly video?: ModelSettings['video'] | undefined;
}

/** A message for each rule that could not be applied. Ids without a model in `modelOf` are skipped. */
export function priceRuleProblems(
  { kinds = {}, models = {} }: PriceRules,
  modelOf: (id: string) => PricedModel | undefined,
): { readonly path: Path; readonly message: string }[] {
  const ofKinds = Object.entries(kinds).map(([type, rule]) => ({
    path: ['kinds', type],
    message: rule && problemOfRule({ type: type as ModelSettings['type'] }, rule), // a key of `kinds`
  }));
  const ofModels = Object.entries(models).map(([id, rule]) => {
    const model = modelOf(id);
    return { path: ['models', id], message: model && problemOfRule(model, rule) };
  });
  return [...ofKinds, ...ofModels].flatMap(({ path, message }) =>
    message === undefined ? [] : [{ path, message }],
  );
}

function problemOfRule(model: PricedModel, rule: PriceRule): string | undefined {
  const { type } = model;
  const { price, videoPricing } = rule;
  if (price !== undefined) {
    if (type !== 'video') return missingPrices(type, price)[0];
    return 'Models of type video have "videoPricing" or "discountPercent"';
  }
  return videoPricing && videoPricingProblem(model, 'videoPricing', videoPricing);
}

/** Whether a pricing fits the durations and resolutions of a video model. */
export function videoPricingProblem(
  { video }: Pick<PricedModel, 'video'>,
  name: string,
  pricing: VideoPricing,
): string | undefined {
  if (video === undefined) return `Only a model of type video can have "${name}"`;
  const parsed = VideoModelSettings.safeParse({ ...video, pricing });
  return parsed.success ? undefined : parsed.error.issues[0]?.message;
}

export function checkPlans(
  { plans, signIn }: FileSettings,
  ids: ReadonlyMap<string, ModelSettings>,
  diagnostics: Diagnostics,
): void {
  const names = new Set([...DEFAULT_PLANS, ...Object.keys(plans)]);
  for (const [name, { prices }] of Object.entries(plans)) {
    if (prices === undefined) continue;
    for (const { path, message } of priceRuleProblems(prices, (id) => ids.get(id))) {
      diagnostics.problem(['plans', name, 'prices', ...path], message);
    }
    for (const id of Object.keys(prices.models ?? {})) {
      if (ids.has(id)) continue;
      // Engines can report further models.
      const message = `No configured model has this id${didYouMean(id, ids.keys())}`;
      diagnostics.warning(['plans', name, 'prices', 'models', id], message);
    }
  }
  for (const [index, { rules }] of signIn.providers.entries()) {
    for (const [at, { plan }] of rules.entries()) {
      if (names.has(plan)) continue;
      const path = ['signIn', 'providers', index, 'rules', at, 'plan'];
      const message = `There is no plan "${plan}"${didYouMean(plan, names)}`;
      diagnostics.problem(path, message);
    }
  }
}
