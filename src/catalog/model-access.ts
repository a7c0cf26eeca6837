/** Whether a caller may use a model: plan, privacy and the list of its key, each with its refusal. */
import type { Caller, ModelPrivacy } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { CatalogModel } from './model.ts';
import { type Price, requirePrice } from './pricing.ts';

/** Throws `PRO_ONLY_MODEL` (401) or `MODEL_NOT_ALLOWED` (403). */
export function requireAccess(
  model: CatalogModel,
  caller: Pick<Caller, 'plan' | 'modelPrivacy' | 'models'>,
): void {
  if (model.requires !== undefined && caller.plan === 'paid') {
    throw new Fault('PRO_ONLY_MODEL', {
      message: `The model "${model.id}" is only available to Pro users`,
    });
  }
  if (!isWithinPrivacy(model, caller.modelPrivacy)) {
    throw new Fault('MODEL_NOT_ALLOWED', {
      message: `The API key is limited to private models and "${model.id}" is not private`,
    });
  }
  if (caller.models?.has(model.id) === false) {
    throw new Fault('MODEL_NOT_ALLOWED', {
      message: `This API key may not use the model "${model.id}"`,
    });
  }
}

/** Whether a key with this limit may use the model. */
export function isWithinPrivacy(model: CatalogModel, privacy: ModelPrivacy): boolean {
  if (privacy === 'ALL' || model.privacy === 'private') return true;
  return privacy === 'PRIVATE_TEXT' && model.type !== 'text';
}

/** The price of a model for a caller who may use it. Throws 401, 403 or 503. */
export function requireSold(model: CatalogModel, caller: Caller): Price {
  requireAccess(model, caller);
  return requirePrice(model);
}
