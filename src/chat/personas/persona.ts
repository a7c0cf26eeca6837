/**
 * What a persona is: the character that callers see, the prompt that only the model sees, and the
 * query that finds characters.
 */
import { z } from 'zod';

/** What callers see of a persona (decisions 7, row Characters). */
export const Character = z
  .strictObject({
    id: z.string().describe('Id of the character.'),
    slug: z.string().describe('For `character_slug` of a chat request.'),
    name: z.string().describe('Name for people.'),
    description: z.string().describe('Who it is.'),
    tags: z.array(z.string()).describe('What it is about, to search by.'),
    adult: z.boolean().describe('Whether it is for adults only.'),
    author: z.string().describe('Who wrote it.'),
    createdAt: z.string().describe('ISO 8601, UTC.'),
    updatedAt: z.string().describe('ISO 8601, UTC.'),
    featured: z.boolean().describe('Whether the operator shows it first.'),
    photoUrl: z.string().nullable().describe('A picture of it; null without one.'),
    shareUrl: z.string().nullable().describe('Its page; null without one.'),
    webEnabled: z.boolean().describe('Whether it searches the web.'),
    modelId: z.string().describe('The model that it was made for; a request names its own.'),
    stats: z
      .strictObject({
        averageRating: z.number().describe('Average of the ratings.'),
        imports: z.number().describe('How often it was taken over.'),
        ratingCount: z.number().describe('How many ratings.'),
        ratingSum: z.number().describe('Their sum.'),
        userRating: z.number().nullable().describe('Your own rating; null without one.'),
      })
      .describe('What callers think of it; zeros where nobody rates.'),
  })
  .meta({ id: 'Character' });
export type Character = Readonly<z.infer<typeof Character>>;

export interface Persona {
  readonly slug: string;
  /** Goes before the caller's own system prompt. */
  readonly prompt: string;
  readonly isPro: boolean;
  readonly categories: readonly string[];
  readonly character: Character;
}

export const CHARACTER_SORTS = [
  'featured',
  'name',
  'createdAt',
  'updatedAt',
  'imports',
  'rating',
] as const;

const flag = z.enum(['true', 'false']).transform((text) => text === 'true');

/** A list comes as several members of one name, or with commas. */
const words = z.array(z.string()).transform((given) =>
  given
    .flatMap((text) => text.split(','))
    .map((text) => text.trim())
    .filter((text) => text !== ''),
);

const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

export const CharacterQuery = z.object({
  search: z.string().max(1_000).optional(),
  /** Any of them. */
  categories: words.optional(),
  /** All of them. */
  tags: words.optional(),
  modelId: z.string().max(200).optional(),
  isAdult: flag.optional(),
  isPro: flag.optional(),
  isWebEnabled: flag.optional(),
  sortBy: z.enum(CHARACTER_SORTS).optional(),
  sortOrder: z.enum(['asc', 'desc']).optional(),
  limit: whole(1, 100).optional(),
  offset: whole(0, 1_000_000).optional(),
});
export type CharacterQuery = Readonly<z.infer<typeof CharacterQuery>>;
