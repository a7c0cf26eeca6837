/**
 * From the `model` value of a request to the model that serves it: exact id, trait, alias, tolerant
 * spelling, feature suffixes, deprecation and rerouting, and the refusals in their words.
 *
 * One map holds the exact ids, one map per type holds traits, aliases and the tolerant spellings of
 * all three, so that a lookup costs the same with ten models and with ten thousand. Built whole and
 * never changed; what a name of the catalogue stands for is worked out once.
 */
import type { ModelType } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { percentDecoded } from '../core/percent-decoding.ts';
import type { CatalogModel } from './model.ts';
import { NearestId } from './nearest-id.ts';

export type FoundVia = 'id' | 'trait' | 'alias' | 'tolerant';

interface Found {
  readonly model: CatalogModel;
  readonly via: FoundVia;
}

interface Meaning {
  /** The name without its suffixes. */
  readonly bare: string;
  readonly found: Found | undefined;
  readonly suffixes: Readonly<Record<string, string>> | undefined;
}

export interface ResolvedModel extends Found {
  /** `<model>:<parameter>=<value>&…`, decoded; absent when the name had none. */
  readonly suffixes?: Readonly<Record<string, string>>;
  /** For the headers, when the named model is deprecated. */
  readonly deprecation?: DeprecationNotice;
}

/** Longest chain of replacements that is followed; a longer one is a circle. */
const REPLACEMENTS = 8;

/** Longer names are no names of ours; the limit keeps odd input cheap. */
const NAME_CHARACTERS = 512;
/** Names in messages are cut: they come from the caller. */
const SHOWN_CHARACTERS = 100;

/** Pickers of coding agents show only names that begin so: every text model has such an alias. */
export const CLAUDE_PREFIX = 'claude-';

/** `claude-sonnet-4-5-20250929`, `claude-3-5-haiku-latest`, with a vendor before it or without. */
const CLAUDE = /^(?:[a-z\d.-]{1,40}\/)?claude-[\d.-]{0,9}(opus|sonnet|haiku)(?:[-@.\d]|$)/;

/** The model of a server that comes nearest to each line of that family. */
const CLAUDE_TRAITS: Readonly<Record<string, string>> = {
  opus: 'most_intelligent',
  sonnet: 'default',
  haiku: 'fastest',
};

export class ModelLookup {
  readonly #ids: ReadonlyMap<string, CatalogModel>;
  readonly #names = new Map<ModelType, Map<string, Found>>();
  readonly #tolerant = new Map<ModelType, Map<string, CatalogModel>>();
  readonly #resolved = new Map<ModelType, Map<string, ResolvedModel>>();
  readonly #prefix: string;
  /** A name of the Claude family means that family where it is on offer. */
  readonly #sellsClaude: boolean;
  #nearest: NearestId | undefined;

  constructor(
    models: ReadonlyMap<string, CatalogModel>,
    traits: ReadonlyMap<ModelType, ReadonlyMap<string, CatalogModel>>,
    modelPrefix: string,
  ) {
    this.#ids = models;
    this.#prefix = modelPrefix;
    this.#sellsClaude = [...models.keys()].some((id) => CLAUDE.test(id.toLowerCase()));
    for (const model of models.values()) {
      for (const alias of model.aliases)
        ofType(this.#names, model.type).set(alias, { model, via: 'alias' });
    }
    // Traits are set after aliases: where both exist, the trait answers.
    for (const [type, held] of traits) {
      for (const [trait, model] of held) {
        ofType(this.#names, type).set(trait, { model, via: 'trait' });
      }
    }
    this.#spellings();
  }

  /** The model or what replaces it, though it may be offline; `undefined` when `refuse` says why. */
  resolve(name: string, type: ModelType): ResolvedModel | undefined {
    const known = this.#resolved.get(type)?.get(name);
    if (known !== undefined) return known;
    const { found, suffixes } = this.#find(name, type);
    const served = found?.model.type === type ? this.#servedBy(found.model) : undefined;
    if (found === undefined || served === undefined) return undefined;
    const { model, via } = found;
    const warns = served !== model || model.stage !== 'active';
    const resolved: ResolvedModel = {
      model: served,
      via,
      ...(suffixes === undefined ? {} : { suffixes }),
      ...(warns ? { deprecation: noticeFor(model, served === model ? undefined : served) } : {}),
    };
    // Names of the catalogue are finite; what callers make of them is not.
    if (suffixes === undefined && via !== 'tolerant') {
      ofType(this.#resolved, type).set(name, resolved);
    }
    return resolved;
  }

  /** Whether a name means any model, of whichever type and stage. */
  knows(name: string, type: ModelType): boolean {
    return this.#find(name, type).found !== undefined;
  }

  /** Throws MODEL_NOT_FOUND (404), INVALID_MODEL (400) for the wrong type or MODEL_RETIRED (410). */
  refuse(name: string, type: ModelType): never {
    const { bare, found } = this.#find(name, type);
    if (found === undefined) {
      this.#nearest ??= new NearestId(this.#listedIds());
      return this.refuseUnknown(name, this.#nearest.find(bare));
    }
    if (found.model.type !== type) {
      throw new Fault('INVALID_MODEL', {
        message: `The model "${shownName(name)}" is of type ${found.model.type}, and this endpoint takes ${type} models`,
      });
    }
    const { id, deprecation } = found.model;
    const { replacement, date = '', removesAt = date } = deprecation ?? {};
    const advice =
      replacement === undefined ? 'choose another from GET /models' : `use "${replacement}"`;
    throw new Fault('MODEL_RETIRED', {
      message: `The model "${id}" was retired on ${removesAt.slice(0, 10)}; ${advice}`,
    });
  }

  /** Throws MODEL_NOT_FOUND (404), whatever the name means. */
  refuseUnknown(name: string, nearest?: string): never {
    const hint = nearest === undefined ? 'see GET /models' : `did you mean "${nearest}"?`;
    throw new Fault('MODEL_NOT_FOUND', {
      message: `The model "${shownName(name)}" does not exist; ${hint}`,
    });
  }

  /** What a name means as it is, else without its suffixes. */
  #find(name: string, type: ModelType): Meaning {
    const found = this.#named(name, type);
    const cut = found === undefined ? splitSuffixes(name) : undefined;
    if (cut === undefined) return { bare: name, found, suffixes: undefined };
    return { ...cut, found: this.#named(cut.bare, type) };
  }

  /** Exact id of any type, then trait, alias and tolerant spelling of this type. */
  #named(name: string, type: ModelType): Found | undefined {
    if (name.length > NAME_CHARACTERS) return undefined;
    const exact = this.#ids.get(name);
    if (exact?.type === type) return { model: exact, via: 'id' };
    const named = this.#names.get(type)?.get(name);
    if (named !== undefined) return named;
    const spellings = this.#tolerant.get(type);
    for (const key of this.#keysOf(name)) {
      const model = spellings?.get(key);
      if (model !== undefined) return { model, via: 'tolerant' };
    }
    if (exact !== undefined) return { model: exact, via: 'id' };
    return type === 'text' ? this.#claude(name) : undefined;
  }

  /**
   * What a name that a client of the Messages interface knows by itself stands for, on a server that
   * sells no model of that name.
   */
  #claude(name: string): Found | undefined {
    const family = CLAUDE.exec(name.toLowerCase())?.[1];
    if (family === undefined || this.#sellsClaude) return undefined;
    const trait = CLAUDE_TRAITS[family];
    const held = trait === undefined ? undefined : this.#names.get('text')?.get(trait);
    return held === undefined ? undefined : { model: held.model, via: 'tolerant' };
  }

  /** The model itself, what replaces it after its removal, or nothing. */
  #servedBy(model: CatalogModel): CatalogModel | undefined {
    let current = model;
    for (let step = 0; step < REPLACEMENTS; step += 1) {
      if (current.stage === 'active' || current.stage === 'warned') return current;
      const { autoRemap = false, replacement } = current.deprecation ?? {};
      const next = replacement === undefined || !autoRemap ? undefined : this.#ids.get(replacement);
      if (next === undefined) return undefined;
      current = next;
    }
    return undefined;
  }

  *#listedIds(): Iterable<string> {
    for (const model of this.#ids.values()) if (model.listed) yield model.id;
  }

  /** Whole ids claim their spelling first, then traits and aliases, then ids without a vendor. */
  #spellings(): void {
    const models = [...this.#ids.values()];
    for (const model of models) this.#spell(model.type, normal(model.id), model);
    for (const [type, names] of this.#names) {
      for (const [name, { model }] of names) this.#spell(type, normal(name), model);
    }
    for (const model of models) this.#spell(model.type, normal(withoutVendor(model.id)), model);
  }

  #spell(type: ModelType, key: string, model: CatalogModel): void {
    const keys = ofType(this.#tolerant, type);
    if (!keys.has(key)) keys.set(key, model);
  }

  *#keysOf(name: string): Iterable<string> {
    const whole = normal(name);
    const bare = normal(withoutVendor(name));
    yield whole;
    if (bare !== whole) yield bare;
    for (const prefix of [this.#prefix, CLAUDE_PREFIX]) {
      if (bare.startsWith(prefix)) yield bare.slice(prefix.length);
    }
  }
}

function shownName(name: string): string {
  return name.slice(0, SHOWN_CHARACTERS);
}

function ofType<T>(maps: Map<ModelType, Map<string, T>>, type: ModelType): Map<string, T> {
  const known = maps.get(type) ?? new Map<string, T>();
  maps.set(type, known);
  return known;
}

/** Case, dots, underscores, spaces and colons are all the same dash. */
function normal(name: string): string {
  return name
    .trim()
    .toLowerCase()
    .replace(/[._\s:-]+/g, '-');
}

function withoutVendor(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}

/** What the answer's headers say about a deprecated model. */
export interface DeprecationNotice {
  /** For `x-<name>-model-deprecation-warning`. ASCII, one line. */
  readonly warning: string;
  /** ISO 8601, for `x-<name>-model-deprecation-date`. */
  readonly date: string;
}

/** The notice for a model that still serves, and, with `servedBy`, for one that no longer does. */
function noticeFor(
  { id, deprecation }: CatalogModel,
  servedBy: CatalogModel | undefined,
): DeprecationNotice {
  const { date = '', removesAt = date, replacement } = deprecation ?? {};
  const day = removesAt.slice(0, 10);
  const advice =
    replacement === undefined ? 'choose another model' : `use "${replacement}" instead`;
  const warning =
    servedBy === undefined
      ? `The model "${id}" is deprecated and stops on ${day}; ${advice}`
      : `The model "${id}" was retired on ${day}; "${servedBy.id}" answered`;
  return { warning, date };
}

const SUFFIX = /:[A-Za-z_][A-Za-z0-9_]*=/;

function splitSuffixes(name: string): Omit<Meaning, 'found'> | undefined {
  const at = name.search(SUFFIX);
  if (at <= 0) return undefined;
  const suffixes: Record<string, string> = {};
  for (const part of name.slice(at + 1).split('&')) {
    const equals = part.indexOf('=');
    if (equals > 0) suffixes[part.slice(0, equals)] = percentDecoded(part.slice(equals + 1));
  }
  return { bare: name.slice(0, at), suffixes };
}
