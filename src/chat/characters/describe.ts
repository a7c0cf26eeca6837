/** What the routes of personas say of themselves. */
import { z } from 'zod';
import { Character, CHARACTER_SORTS } from '../personas/personas.ts';
import {
  type ParameterDescription,
  type RouteDescription,
  jsonResponse,
  listOf,
} from '../../http/describe.ts';

const CHARACTER = {
  id: 'c1',
  slug: 'harbour-pilot',
  name: 'Harbour pilot',
  description: 'Knows every tide.',
  tags: ['sea'],
  adult: false,
  author: 'operator',
  createdAt: '2026-11-21T04:00:00.000Z',
  updatedAt: '2026-11-21T04:00:00.000Z',
  featured: true,
  photoUrl: null,
  shareUrl: null,
  webEnabled: true,
  modelId: 'atlas-24b',
  stats: { averageRating: 0, imports: 0, ratingCount: 0, ratingSum: 0, userRating: null },
};

const flag = z.enum(['true', 'false']);

function query(name: string, about: string, schema: z.ZodType): ParameterDescription {
  return { name, in: 'query', about, schema };
}

export const CHARACTERS_DESCRIPTION: RouteDescription = {
  tag: 'Characters',
  summary: 'List characters',
  parameters: [
    query('search', 'Words that must all be found.', z.string().max(1_000)),
    query('categories', 'One of these; commas between them.', z.string()),
    query('tags', 'All of these; commas between them.', z.string()),
    query('modelId', 'Made for this model.', z.string().max(200)),
    query('isAdult', 'Only adult ones, or only others.', flag),
    query('isPro', 'Only those of the pro plan, or only others.', flag),
    query('isWebEnabled', 'Only those that search the web, or only others.', flag),
    query('sortBy', '`featured` when absent.', z.enum(CHARACTER_SORTS)),
    query('sortOrder', '`asc` for names, else `desc`.', z.enum(['asc', 'desc'])),
    query('limit', '50 when absent.', z.int().min(1).max(100)),
    query('offset', 'How many to leave out.', z.int().min(0).max(1_000_000)),
  ],
  response: jsonResponse(
    'Characters, without their prompts.',
    listOf(Character, 'The characters of this page.'),
    { object: 'list', data: [CHARACTER] },
    'page',
  ),
};

export const CHARACTER_DESCRIPTION: RouteDescription = {
  tag: 'Characters',
  summary: 'Get a character',
  parameters: [
    { name: 'slug', in: 'path', about: 'Slug of the character.', example: 'harbour-pilot' },
  ],
  response: jsonResponse(
    'The character, without its prompt.',
    z.strictObject({
      object: z.literal('character').describe('Kind of the object.'),
      data: Character,
    }),
    { object: 'character', data: CHARACTER },
  ),
  refusals: ['CHARACTER_NOT_FOUND'],
};
