/** Which row of the limit tables holds for a model and a plan. */
import type { LimitsSection, ModelType, Plan, PlanLimits } from '../config/config.ts';
import { unreachable } from '../core/assert.ts';
import type { CatalogModel } from './model.ts';

/** Per minute, per caller and model; 0 tokens means that tokens are not limited. */
export interface ModelRate {
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
}

/** The limits of a model on a plan; what the model itself sets wins over its tier. */
export function rateFor(model: CatalogModel, plan: Plan, limits: LimitsSection): ModelRate {
  const own = model.limits;
  const table = limits.plans[plan];
  const base = model.type === 'text' ? table.text[model.tier] : otherRate(model.type, table);
  return {
    requestsPerMinute: own?.requestsPerMinute ?? base.requestsPerMinute,
    tokensPerMinute: own?.tokensPerMinute ?? base.tokensPerMinute,
  };
}

function otherRate(type: Exclude<ModelType, 'text'>, table: PlanLimits): ModelRate {
  return { requestsPerMinute: requestsOf(type, table), tokensPerMinute: 0 };
}

function requestsOf(type: Exclude<ModelType, 'text'>, table: PlanLimits): number {
  switch (type) {
    case 'embedding':
      return table.embedding;
    case 'image':
    case 'upscale':
    case 'inpaint':
      return table.image;
    case 'asr':
    case 'tts':
    case 'music':
      return table.audio;
    case 'video':
      return table.videoQueue;
    default:
      return unreachable(type);
  }
}
