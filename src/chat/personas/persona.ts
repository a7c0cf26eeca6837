/**
 * What a persona is: the character that callers see, the prompt that only the model sees, and the
 * query that finds characters.
 */
import { z } from 'zod';

/** What callers see of a persona (decisions 7, row Characters). */
export const Character = z
  .strictObject({
    id: z.string().describe('Id of the character.'),
    slug: z.string().describe('Value of `character_slug` in a chat request.'),
    name: z.string().describe('Display name.'),
    description: z.string().describe('Description of the character.'),
    tags: z.array(z.string()).describe('Tags to search by.'),
    adult: z.boolean().describe('Whether the character is for adults only.'),
    author: z.string().describe('Author of the character.'),
    createdAt: z.string().describe('ISO 8601, UTC.'),
    updatedAt: z.string().describe('ISO 8601, UTC.'),
    featured: z.boolean().describe('Whether the character is listed first.'),
    photoUrl: z.string().nullable().describe('URL of an image, or null.'),
    shareUrl: z.string().nullable().describe('URL of a page, or null.'),
    webEnabled: z.boolean().describe('Whether the character searches the web.'),
    modelId: z
      .string()
      .describe('Model that the character was written for; a request names its own.'),
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
