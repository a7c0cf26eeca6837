/**
 * The personas that callers select by `character_slug`, from the configuration and from a folder that
 * is read again on demand.
 */
import type { PersonaSection } from '../../config/config.ts';
import { sha256Hex } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import {
  type CharacterPage,
  type CharacterQuery,
  listCharacters,
  type Persona,
} from './character.ts';
import { type PersonaFile, readPersonaFolder } from './persona-files.ts';

export { characterRoutes } from './character-routes.ts';
export { readPersonaFolder } from './persona-files.ts';

interface PersonasOptions {
  readonly list: readonly PersonaSection[];
  readonly folder?: string | undefined;
  readonly log: Log;
  /** Creation time of personas without one, ISO 8601. */
  readonly startedAt: string;
}

/** Rejects if the folder cannot be read; an invalid file is logged. */
export async function openPersonas(options: PersonasOptions): Promise<Personas> {
  const personas = new Personas(options);
  await personas.load();
  return personas;
}

export class Personas {
  readonly #options: PersonasOptions;
  #bySlug: ReadonlyMap<string, Persona> = new Map();
  /** The last valid version of each file, which stays while a file is invalid. */
  #byFile: ReadonlyMap<string, PersonaSection> = new Map();

  constructor(options: PersonasOptions) {
    this.#options = options;
  }

  list(query: CharacterQuery = {}): CharacterPage {
    return listCharacters([...this.#bySlug.values()], query);
  }

  get(slug: string): Persona | undefined {
    return this.#bySlug.get(slug);
  }

  async reload(): Promise<number> {
    try {
      await this.load();
    } catch (error) {
      // A folder that is missing for a moment must not remove personas of running chats.
      this.#options.log.warn({ cause: reasonOf(error) }, 'The folder of personas cannot be read');
    }
    return this.#bySlug.size;
  }

  async load(): Promise<void> {
    const { folder, list, startedAt, log } = this.#options;
    const files = folder === undefined ? [] : await readPersonaFolder(folder);
    const byFile = new Map<string, PersonaSection>();
    for (const file of files) {
      const persona = file.ok ? file.persona : this.#lastValid(file);
      if (persona !== undefined) byFile.set(file.file, persona);
    }
    const bySlug = new Map<string, Persona>();
    for (const section of [...list, ...byFile.values()]) {
      if (bySlug.has(section.slug)) {
        log.warn(
          { slug: section.slug },
          'A persona is defined twice; the first definition is used',
        );
      } else {
        bySlug.set(section.slug, toPersona(section, startedAt));
      }
    }
    this.#byFile = byFile;
    this.#bySlug = bySlug;
  }

  #lastValid(file: Extract<PersonaFile, { ok: false }>): PersonaSection | undefined {
    this.#options.log.warn({ file: file.file, cause: file.reason }, 'A persona file is not valid');
    return this.#byFile.get(file.file);
  }
}

/** Derived from the slug, so that the id is the same on every server and after every start. */
function idOf(slug: string): string {
  const hex = sha256Hex(`persona:${slug}`);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

function toPersona(section: PersonaSection, startedAt: string): Persona {
  const createdAt = isoOf(section.createdAt ?? startedAt);
  return {
    slug: section.slug,
    prompt: section.prompt,
    isPro: section.pro,
    categories: section.categories,
    character: {
      id: idOf(section.slug),
      slug: section.slug,
      name: section.name,
      description: section.description,
      tags: section.tags,
      adult: section.adult,
      author: section.author,
      createdAt,
      updatedAt: isoOf(section.updatedAt ?? createdAt),
      featured: section.featured,
      photoUrl: section.photoUrl ?? null,
      shareUrl: section.shareUrl ?? null,
      webEnabled: section.webEnabled,
      modelId: section.model,
      stats: { averageRating: 0, imports: 0, ratingCount: 0, ratingSum: 0, userRating: null },
    },
  };
}

function isoOf(time: string): string {
  return new Date(time).toISOString();
}
