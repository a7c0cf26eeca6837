/** The public part of a persona, the query of `GET /characters`, and the list that it selects. */
import * as z from 'zod';

const time = z.string().describe('ISO 8601, UTC.');

/** The fields and their order: decisions, section 7, row Characters. */
export const Character = z
  .strictObject({
    id: z.string().describe('Id of the character.'),
    slug: z.string().describe('Value of `character_slug` in a chat request.'),
    name: z.string().describe('Display name.'),
    description: z.string().describe('Description of the character.'),
    tags: z.array(z.string()).describe('Tags to search by.'),
    adult: z.boolean().describe('Whether the character is for adults only.'),
    author: z.string().describe('Author of the character.'),
    createdAt: time,
    updatedAt: time,
    featured: z.boolean().describe('Whether the character is listed first.'),
    photoUrl: z.string().nullable().describe('URL of an image, or null.'),
    shareUrl: z.string().nullable().describe('URL of a page, or null.'),
    webEnabled: z.boolean().describe('Whether the character searches the web.'),
    modelId: z.string().describe('Model that it was written for; a request names its own.'),
    stats: z
      .strictObject({
        averageRating: z.number().describe('Average rating.'),
        imports: z.number().describe('Number of imports.'),
        ratingCount: z.number().describe('Number of ratings.'),
        ratingSum: z.number().describe('Sum of the ratings.'),
        userRating: z.number().nullable().describe('Rating of the caller, or null.'),
      })
      .describe('Ratings; zeros if there are none.'),
  })
  .meta({ id: 'Character' });
export type Character = Readonly<z.infer<typeof Character>>;

export interface Persona {
  readonly slug: string;
  /** Precedes the caller's system prompt. */
  readonly prompt: string;
  readonly isPro: boolean;
  readonly categories: readonly string[];
  readonly character: Character;
}

const SORTS = ['featured', 'name', 'createdAt', 'updatedAt', 'imports', 'rating'] as const;
type Sort = (typeof SORTS)[number];

/** Decisions, section 7: `limit` is 1 to 100, 50 if absent. */
export const DEFAULT_LIMIT = 50;

const flag = z.stringbool({ truthy: ['true'], falsy: ['false'] }).optional();
const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max).optional();

export const CharacterQuery = z.object({
  search: z.string().max(1_000).optional().describe('Words that must all occur.'),
  categories: z.string().optional().describe('Categories, separated by commas; any of them.'),
  tags: z.string().optional().describe('Tags, separated by commas; all of them.'),
  modelId: z.string().max(200).optional().describe('Model that the character was written for.'),
  isAdult: flag.describe('`true` for adult characters only, `false` for others.'),
  isPro: flag.describe('`true` for characters of the Pro plan only, `false` for others.'),
  isWebEnabled: flag.describe('`true` for characters that search the web, `false` for others.'),
  sortBy: z.enum(SORTS).optional().describe('Sort key. Default `featured`.'),
  sortOrder: z.enum(['asc', 'desc']).optional().describe('Default `asc` for names, else `desc`.'),
  limit: whole(1, 100).describe('Characters per page. Default 50.'),
  offset: whole(0, 1_000_000).describe('Number of characters to skip. Default 0.'),
});
export type CharacterQuery = Readonly<z.infer<typeof CharacterQuery>>;

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

function matches({ character, isPro, categories }: Persona, query: CharacterQuery): boolean {
  const wantedCategories = listOf(query.categories);
  return (
    (query.isAdult ?? character.adult) === character.adult &&
    (query.isPro ?? isPro) === isPro &&
    (query.isWebEnabled ?? character.webEnabled) === character.webEnabled &&
    (query.modelId ?? character.modelId) === character.modelId &&
    listOf(query.tags).every((tag) => includes(character.tags, tag)) &&
    (wantedCategories.length === 0 || wantedCategories.some((one) => includes(categories, one))) &&
    isFound(character, query.search)
  );
}

function listOf(text = ''): string[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');
}

function isFound({ name, slug, description, author, tags }: Character, search = ''): boolean {
  const text = [name, slug, description, author, ...tags].join('\n').toLowerCase();
  const words = search.toLowerCase().split(/\s+/);
  return words.every((word) => text.includes(word));
}

function includes(list: readonly string[], wanted: string): boolean {
  return list.some((item) => item.toLowerCase() === wanted.toLowerCase());
}

function compare(a: Character, b: Character, sortBy: Sort): number {
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
