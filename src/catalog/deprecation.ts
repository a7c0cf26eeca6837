/**
 * The life of a model that goes: announced, warned, removed (rerouted or refused), and, 30 days
 * later, no longer listed.
 */
import { DAY_MS } from '../core/clock.ts';
import type { CatalogModel } from './model.ts';

/** Versioning, retired entries: listed up to 30 days after the removal. */
const LISTED_AFTER_REMOVAL_MS = 30 * DAY_MS;

export type Stage = 'active' | 'warned' | 'removed' | 'gone';

interface Dates {
  readonly warnsAtMs: number;
  readonly removesAtMs: number;
  readonly leavesListAtMs: number;
}

function datesOf(model: CatalogModel): Dates | undefined {
  const { deprecation } = model;
  if (deprecation === undefined) return undefined;
  const removesAtMs = Date.parse(deprecation.removesAt ?? deprecation.date);
  return {
    warnsAtMs: deprecation.startsAt === undefined ? 0 : Date.parse(deprecation.startsAt),
    removesAtMs,
    leavesListAtMs: removesAtMs + LISTED_AFTER_REMOVAL_MS,
  };
}

/** Where the model stands at a time. */
export function stageOf(model: CatalogModel, nowMs: number): Stage {
  const dates = datesOf(model);
  if (dates === undefined || nowMs < dates.warnsAtMs) return 'active';
  if (nowMs < dates.removesAtMs) return 'warned';
  return nowMs < dates.leavesListAtMs ? 'removed' : 'gone';
}

/** The next time at which a stage changes, or infinity. */
export function nextStageMs(models: Iterable<CatalogModel>, nowMs: number): number {
  let next = Infinity;
  for (const model of models) {
    for (const time of Object.values(datesOf(model) ?? {})) {
      if (time > nowMs && time < next) next = time;
    }
  }
  return next;
}

/** What the answer's headers say about a deprecated model. */
export interface DeprecationNotice {
  /** For `x-<name>-model-deprecation-warning`. ASCII, one line. */
  readonly warning: string;
  /** ISO 8601, for `x-<name>-model-deprecation-date`. */
  readonly date: string;
}

/** The notice for a model that still serves, and, with `servedBy`, for one that no longer does. */
export function noticeFor(model: CatalogModel, servedBy?: CatalogModel): DeprecationNotice {
  const date = model.deprecation?.date ?? '';
  const day = (model.deprecation?.removesAt ?? date).slice(0, 10);
  const next = model.deprecation?.replacement;
  const advice = next === undefined ? 'choose another model' : `use "${next}" instead`;
  const warning =
    servedBy === undefined
      ? `The model "${model.id}" is deprecated and stops on ${day}; ${advice}`
      : `The model "${model.id}" was retired on ${day}; "${servedBy.id}" answered`;
  return { warning, date };
}
