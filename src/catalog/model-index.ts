/**
 * Finds the model that a caller means. One map holds the exact ids, one map per type holds traits,
 * aliases and the tolerant spellings of all three, so that a lookup costs the same with ten
 * models and with ten thousand. Built whole and never changed.
 */
import type { ModelType } from '../config/config.ts';
import type { CatalogModel } from './model.ts';
import { NearestId } from './nearest-id.ts';

export type FoundVia = 'id' | 'trait' | 'alias' | 'tolerant';

export interface Found {
  readonly model: CatalogModel;
  readonly via: FoundVia;
}

/** Longer names are no names of ours; the limit keeps odd input cheap. */
const NAME_CHARACTERS = 512;

export class ModelIndex {
  readonly #ids = new Map<string, CatalogModel>();
  readonly #names = new Map<ModelType, Map<string, Found>>();
  readonly #tolerant = new Map<ModelType, Map<string, CatalogModel>>();
  readonly #prefix: string;
  #nearest: NearestId | undefined;

  constructor(
    models: Iterable<CatalogModel>,
    traits: ReadonlyMap<ModelType, ReadonlyMap<string, CatalogModel>>,
    modelPrefix: string,
  ) {
    this.#prefix = modelPrefix;
    for (const model of models) this.#ids.set(model.id, model);
    for (const model of this.#ids.values()) {
      for (const alias of model.aliases) this.#name(model.type, alias, { model, via: 'alias' });
    }
    // Traits are set after aliases: where both exist, the trait answers.
    for (const [type, held] of traits) {
      for (const [trait, model] of held) this.#name(type, trait, { model, via: 'trait' });
    }
    this.#spellings();
  }

  get(id: string): CatalogModel | undefined {
    return this.#ids.get(id);
  }

  /** Exact id of any type, then trait, alias and tolerant spelling of this type. */
  find(name: string, type: ModelType): Found | undefined {
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
    return exact === undefined ? undefined : { model: exact, via: 'id' };
  }

  /** The closest id, for messages. */
  nearest(name: string): string | undefined {
    this.#nearest ??= new NearestId(this.#listedIds());
    return this.#nearest.find(name);
  }

  *#listedIds(): Iterable<string> {
    for (const model of this.#ids.values()) if (model.listed) yield model.id;
  }

  #name(type: ModelType, name: string, found: Found): void {
    const names = this.#names.get(type) ?? new Map<string, Found>();
    names.set(name, found);
    this.#names.set(type, names);
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
    const keys = this.#tolerant.get(type) ?? new Map<string, CatalogModel>();
    if (!keys.has(key)) keys.set(key, model);
    this.#tolerant.set(type, keys);
  }

  *#keysOf(name: string): Iterable<string> {
    const whole = normal(name);
    const bare = normal(withoutVendor(name));
    yield whole;
    if (bare !== whole) yield bare;
    if (bare.startsWith(this.#prefix)) yield bare.slice(this.#prefix.length);
  }
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
