/**
 * Finds the model for the `model` value of a request: exact id, trait, alias, tolerant spelling,
 * feature suffixes, deprecation and rerouting. Also throws the errors for names that cannot be
 * served.
 *
 * One map contains the exact ids, and one map per type contains traits, aliases and their tolerant
 * spellings, so that the cost of a lookup does not depend on the number of models. The maps are
 * immutable, and results for names of the catalog are cached.
 */
import type { ModelType } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { percentDecoded } from '../core/percent-decoding.ts';
import type { CatalogModel } from './model.ts';
import { NearestId } from './nearest-id.ts';

type FoundVia = 'id' | 'trait' | 'alias' | 'tolerant';

interface Found {
  readonly model: CatalogModel;
  readonly via: FoundVia;
}

interface Meaning {
  readonly bare: string;
  readonly found: Found | undefined;
  readonly suffixes: Readonly<Record<string, string>> | undefined;
}

export interface ResolvedModel extends Found {
  /** `<model>:<parameter>=<value>&…`, decoded; missing if the name had none. */
  readonly suffixes?: Readonly<Record<string, string>>;
  readonly deprecation?: DeprecationNotice;
}

/** Maximum length of a chain of replacements; a longer one is treated as a cycle. */
const REPLACEMENTS = 8;

/** Longer names match no model, so that invalid input stays cheap. */
const NAME_CHARACTERS = 512;
/** Names in messages are truncated, because callers control them. */
const SHOWN_CHARACTERS = 100;

/** Coding agents only list names with this prefix, so every text model has such an alias. */
export const CLAUDE_PREFIX = 'claude-';

/** `claude-sonnet-4-5-20250929`, `claude-3-5-haiku-latest`, with or without a vendor prefix. */
const CLAUDE = /^(?:[a-z\d.-]{1,40}\/)?claude-[\d.-]{0,9}(opus|sonnet|haiku)(?:[-@.\d]|$)/;

/** The trait whose model replaces each Claude model line. */
const CLAUDE_TRAITS: Readonly<Record<string, string>> = {
  opus: 'most_intelligent',
  sonnet: 'default',
  haiku: 'fastest',
};

export class ModelLookup {
  readonly #ids: ReadonlyMap<string, CatalogModel>;
  readonly #names = new Map<ModelType, Map<string, Found>>();
  readonly #tolerant = new Map<ModelType, Map<string, CatalogModel>>();
  /** Results for names of the catalog, by type and name. */
  readonly #resolved = new Map<ModelType, Map<string, ResolvedModel>>();
  readonly #prefix: string;
  /** Whether a Claude model is on offer; Claude names then only match it. */
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
    // Traits are set after aliases: a trait overrides an alias of the same name.
    for (const [type, held] of traits) {
      for (const [trait, model] of held) {
        ofType(this.#names, type).set(trait, { model, via: 'trait' });
      }
    }
    this.#spellings();
  }

  /** The model or its replacement, even if offline; `undefined` if `refuse` would throw. */
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
    // Only names of the catalog are cached, because callers can invent any number of others.
    if (suffixes === undefined && via !== 'tolerant') {
      ofType(this.#resolved, type).set(name, resolved);
    }
    return resolved;
  }

  /** Whether a name matches any model, of any type and stage. */
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
        message: `The model "${shownName(name)}" is of type ${found.model.type}, and this endpoint accepts ${type} models`,
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
   * The substitute for a built-in model name of Messages API clients, on a server without a model
   * of that name.
   */
  #claude(name: string): Found | undefined {
    const family = CLAUDE.exec(name.toLowerCase())?.[1];
    if (family === undefined || this.#sellsClaude) return undefined;
    const trait = CLAUDE_TRAITS[family];
    const held = trait === undefined ? undefined : this.#names.get('text')?.get(trait);
    return held === undefined ? undefined : { model: held.model, via: 'tolerant' };
  }

  /** The model itself, its replacement after its removal, or `undefined`. */
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

/** Lower case; dots, underscores, spaces and colons become dashes. */
function normal(name: string): string {
  return name
    .trim()
    .toLowerCase()
    .replace(/[._\s:-]+/g, '-');
}

function withoutVendor(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}

export interface DeprecationNotice {
  /** For `x-<name>-model-deprecation-warning`. ASCII, one line. */
  readonly warning: string;
  /** ISO 8601, for `x-<name>-model-deprecation-date`. */
  readonly date: string;
}

/** The notice for a deprecated model that still serves or, with `servedBy`, for a replaced one. */
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
