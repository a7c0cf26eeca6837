/** Who may use a model: plan and privacy rules, each with its refusal. */
import type { Plan } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import type { CatalogModel } from './model.ts';

/** What an API key is limited to. */
export type ModelPrivacy = 'ALL' | 'PRIVATE_TEXT' | 'PRIVATE_ONLY';

/** Throws `PRO_ONLY_MODEL` (401) when the plan does not include the model. */
export function requirePlan(model: CatalogModel, plan: Plan): void {
  if (model.requires === undefined || plan !== 'paid') return;
  throw new Fault('PRO_ONLY_MODEL', {
    message: `The model "${model.id}" is only available to Pro users`,
  });
}

/** Whether a key with this limit may use the model. */
export function isWithinPrivacy(model: CatalogModel, privacy: ModelPrivacy): boolean {
  if (privacy === 'ALL' || model.privacy === 'private') return true;
  return privacy === 'PRIVATE_TEXT' && model.type !== 'text';
}

/** Throws `MODEL_NOT_ALLOWED` (403) when the key is limited to private models. */
export function requirePrivacy(model: CatalogModel, privacy: ModelPrivacy): void {
  if (isWithinPrivacy(model, privacy)) return;
  throw new Fault('MODEL_NOT_ALLOWED', {
    message: `The API key is limited to private models and "${model.id}" is not private`,
  });
}
