/**
 * From the `model` value of a request to the model that serves it: feature suffixes, lookup,
 * deprecation and rerouting, and the refusals in their words.
 */
import type { ModelType } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { type DeprecationNotice, noticeFor, stageOf } from './deprecation.ts';
import type { CatalogModel } from './model.ts';
import type { FoundVia, ModelIndex } from './model-index.ts';

export interface ResolvedModel {
  readonly ok: true;
  readonly model: CatalogModel;
  readonly via: FoundVia;
  /** `<model>:<parameter>=<value>&…`, decoded; absent when the name had none. */
  readonly suffixes?: Readonly<Record<string, string>>;
  /** For the headers, when the named model is deprecated. */
  readonly deprecation?: DeprecationNotice;
}

export type Resolution =
  | ResolvedModel
  | { readonly ok: false; readonly reason: 'unknown'; readonly nearest: string | undefined }
  | { readonly ok: false; readonly reason: 'wrong-type'; readonly model: CatalogModel }
  | { readonly ok: false; readonly reason: 'retired'; readonly model: CatalogModel };

/** Longest chain of replacements that is followed; a longer one is a circle. */
const REPLACEMENTS = 8;

export function resolveName(
  index: ModelIndex,
  name: string,
  type: ModelType,
  nowMs: number,
): Resolution {
  let found = index.find(name, type);
  let suffixes: Record<string, string> | undefined;
  if (found === undefined) {
    const cut = splitSuffixes(name);
    if (cut !== undefined) {
      found = index.find(cut.name, type);
      suffixes = cut.suffixes;
    }
    if (found === undefined) {
      return { ok: false, reason: 'unknown', nearest: index.nearest(cut?.name ?? name) };
    }
  }
  const { model, via } = found;
  if (model.type !== type) return { ok: false, reason: 'wrong-type', model };
  const served = servedBy(index, model, nowMs);
  if (served === undefined) return { ok: false, reason: 'retired', model };
  const warns = served !== model || stageOf(model, nowMs) !== 'active';
  return {
    ok: true,
    model: served,
    via,
    ...(suffixes === undefined ? {} : { suffixes }),
    ...(warns ? { deprecation: noticeFor(model, served === model ? undefined : served) } : {}),
  };
}

/** The model itself, what replaces it after its removal, or nothing. */
function servedBy(index: ModelIndex, model: CatalogModel, nowMs: number): CatalogModel | undefined {
  let current = model;
  for (let step = 0; step < REPLACEMENTS; step += 1) {
    const stage = stageOf(current, nowMs);
    if (stage === 'active' || stage === 'warned') return current;
    const { autoRemap = false, replacement } = current.deprecation ?? {};
    const next = replacement === undefined || !autoRemap ? undefined : index.get(replacement);
    if (next === undefined) return undefined;
    current = next;
  }
  return undefined;
}

const SUFFIX = /:[A-Za-z_]+=/;

function splitSuffixes(
  name: string,
): { readonly name: string; readonly suffixes: Record<string, string> } | undefined {
  const at = name.search(SUFFIX);
  if (at <= 0) return undefined;
  const suffixes: Record<string, string> = {};
  for (const part of name.slice(at + 1).split('&')) {
    const equals = part.indexOf('=');
    if (equals > 0) suffixes[part.slice(0, equals)] = decode(part.slice(equals + 1));
  }
  return { name: name.slice(0, at), suffixes };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // A stray percent sign is text, not an encoding.
    return text;
  }
}

/** Names in messages are cut: they come from the caller. */
const SHOWN_CHARACTERS = 100;

/** The refusal for a name that no model answers to. */
export function resolutionFault(
  resolution: Extract<Resolution, { ok: false }>,
  name: string,
  type: ModelType,
): Fault {
  const shown = name.slice(0, SHOWN_CHARACTERS);
  if (resolution.reason === 'unknown') {
    const { nearest } = resolution;
    const hint = nearest === undefined ? 'see GET /models' : `did you mean "${nearest}"?`;
    const message = `The model "${shown}" does not exist; ${hint}`;
    return new Fault('MODEL_NOT_FOUND', { message });
  }
  if (resolution.reason === 'wrong-type') {
    const actual = resolution.model.type;
    const message = `The model "${shown}" is of type ${actual}, and this endpoint takes ${type} models`;
    return new Fault('INVALID_MODEL', { message });
  }
  const { warning, date } = noticeFor(resolution.model);
  const next = resolution.model.deprecation?.replacement;
  const advice = next === undefined ? 'choose another from GET /models' : `use "${next}"`;
  const day = (resolution.model.deprecation?.removesAt ?? date).slice(0, 10);
  const message = `The model "${resolution.model.id}" was retired on ${day}; ${advice}`;
  return new Fault('MODEL_RETIRED', { message, cause: warning });
}
