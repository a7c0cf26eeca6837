/** Filter, order and page of `GET /characters`, over the personas in memory. */
import type { Character, CharacterQuery, Persona } from './persona.ts';

/** Decisions 7: `limit` 1 to 100, 50 when absent. */
export const DEFAULT_LIMIT = 50;

export interface CharacterPage {
  readonly data: readonly Character[];
  readonly total: number;
}

export function listCharacters(personas: readonly Persona[], query: CharacterQuery): CharacterPage {
  const { sortBy = 'featured', limit = DEFAULT_LIMIT, offset = 0 } = query;
  const order = query.sortOrder ?? (sortBy === 'name' ? 'asc' : 'desc');
  const sign = order === 'asc' ? 1 : -1;
  const found = personas
    .filter((persona) => matches(persona, query))
    .map((persona) => persona.character)
    .toSorted((a, b) => sign * compare(a, b, sortBy) || compare(a, b, 'name') || bySlug(a, b));
  return { data: found.slice(offset, offset + limit), total: found.length };
}

function matches(persona: Persona, query: CharacterQuery): boolean {
  const { character } = persona;
  const { isAdult, isPro, isWebEnabled, modelId, tags = [], categories = [] } = query;
  if (isAdult !== undefined && character.adult !== isAdult) return false;
  if (isPro !== undefined && persona.isPro !== isPro) return false;
  if (isWebEnabled !== undefined && character.webEnabled !== isWebEnabled) return false;
  if (modelId !== undefined && character.modelId !== modelId) return false;
  if (!tags.every((tag) => includes(character.tags, tag))) return false;
  if (categories.length > 0 && !categories.some((one) => includes(persona.categories, one))) {
    return false;
  }
  return isFound(character, query.search);
}

/** Every word must stand somewhere in name, slug, description, author or tags. */
function isFound(character: Character, search: string | undefined): boolean {
  const words = (search ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const { name, slug, description, author, tags } = character;
  const text = [name, slug, description, author, ...tags].join('\n').toLowerCase();
  return words.every((word) => text.includes(word));
}

function includes(list: readonly string[], wanted: string): boolean {
  return list.some((item) => item.toLowerCase() === wanted.toLowerCase());
}

function compare(
  a: Character,
  b: Character,
  sortBy: NonNullable<CharacterQuery['sortBy']>,
): number {
  switch (sortBy) {
    case 'name':
      return a.name.localeCompare(b.name, 'en');
    case 'featured':
      return Number(a.featured) - Number(b.featured);
    case 'createdAt':
    case 'updatedAt':
      return Date.parse(a[sortBy]) - Date.parse(b[sortBy]);
    case 'imports':
      return a.stats.imports - b.stats.imports;
    case 'rating':
      return a.stats.averageRating - b.stats.averageRating;
  }
}

function bySlug(a: Character, b: Character): number {
  return a.slug < b.slug ? -1 : 1;
}
