/** Whether a model is sold to a caller at all: every refusal that does not depend on the request. */
import {
  type CatalogModel,
  type Price,
  requirePlan,
  requirePrice,
  requirePrivacy,
} from './catalog.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';

/** The price of a model for a caller who may use it. Throws 401, 403 or 503. */
export function requireSold(model: CatalogModel, caller: Caller): Price {
  requirePlan(model, caller.plan);
  requirePrivacy(model, caller.modelPrivacy);
  if (caller.models !== undefined && !caller.models.has(model.id)) {
    throw new Fault('MODEL_NOT_ALLOWED', {
      message: `This API key may not use the model "${model.id}"`,
    });
  }
  return requirePrice(model);
}
