/** Whether a caller may use a model: plan, privacy and the list of its key, each with its refusal. */
import {
  type Catalog,
  type CatalogModel,
  type Price,
  type ResolvedModel,
  requirePlan,
  requirePrice,
  requirePrivacy,
} from './catalog.ts';
import type { ModelType } from '../config/config.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';

/** Throws PRO_ONLY_MODEL (401) or MODEL_NOT_ALLOWED (403). */
export function requireAccess(model: CatalogModel, caller: Caller): void {
  requirePlan(model, caller.plan);
  requirePrivacy(model, caller.modelPrivacy);
  if (caller.models === undefined || caller.models.has(model.id)) return;
  throw new Fault('MODEL_NOT_ALLOWED', {
    message: `This API key may not use the model "${model.id}"`,
  });
}

/** The price of a model for a caller who may use it. Throws 401, 403 or 503. */
export function requireSold(model: CatalogModel, caller: Caller): Price {
  requireAccess(model, caller);
  return requirePrice(model);
}

/** The named model, or the default of its type where a request names none. Throws 404, 410, 503. */
export function requireModel(
  catalog: Catalog,
  type: ModelType,
  wanted: { readonly name: string | undefined; readonly work: string },
): ResolvedModel {
  if (wanted.name !== undefined) return catalog.require(wanted.name, type);
  const holder = catalog.holderOf('default', type);
  if (holder !== undefined) return catalog.require(holder.id, type);
  throw new Fault('MODEL_OFFLINE', {
    message: `No engine for ${wanted.work} is running on this server`,
    retryAfterSeconds: 30,
  });
}
