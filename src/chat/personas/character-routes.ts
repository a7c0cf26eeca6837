/** `GET /characters` and `GET /characters/{slug}`: the personas without their prompts. */
import * as z from 'zod';
import { Fault } from '../../core/faults.ts';
import { type RouteDescription, jsonResponse, listOf } from '../../http/describe.ts';
import { checked, pageHeaders } from '../../http/read-request.ts';
import { type Route, get } from '../../http/route.ts';
import {
  Character,
  type CharacterPage,
  CharacterQuery,
  DEFAULT_LIMIT,
  type Persona,
} from './character.ts';

const EXAMPLE: Character = {
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

const LIST_DESCRIPTION: RouteDescription = {
  tag: 'Characters',
  summary: 'List characters',
  query: CharacterQuery,
  response: jsonResponse(
    'Characters, without their prompts.',
    listOf(Character, 'The characters of this page.'),
    { object: 'list', data: [EXAMPLE] },
    'page',
  ),
};

const GET_DESCRIPTION: RouteDescription = {
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
    { object: 'character', data: EXAMPLE },
  ),
  refusals: ['CHARACTER_NOT_FOUND'],
};

interface ListedPersonas {
  list(query: CharacterQuery): CharacterPage;
  get(slug: string): Persona | undefined;
}

export function characterRoutes(personas: ListedPersonas): Route[] {
  return [
    get('/characters', 'public', LIST_DESCRIPTION, (context) => {
      const query = readQuery(context.query);
      const { data, total } = personas.list(query);
      const { limit = DEFAULT_LIMIT, offset = 0 } = query;
      context.setAll(pageHeaders({ limit, page: Math.floor(offset / limit) + 1 }, total));
      return context.json(200, { object: 'list', data });
    }),
    get('/characters/:slug', 'public', GET_DESCRIPTION, async (context) => {
      const slug = context.parameters['slug'] ?? '';
      const data = personas.get(slug)?.character;
      if (data === undefined) {
        const message = `There is no character "${slug.slice(0, 100)}"`;
        throw new Fault('CHARACTER_NOT_FOUND', { message });
      }
      await context.json(200, { object: 'character', data });
    }),
  ];
}

/** `tags` and `categories` may also be repeated, or written `tags[]`. */
function readQuery(query: URLSearchParams): CharacterQuery {
  const given: Record<string, string> = {};
  for (const [name, value] of query) {
    const key = name.replace(/\[\]$/, '');
    const earlier = key === 'tags' || key === 'categories' ? given[key] : undefined;
    if (value !== '') given[key] = earlier === undefined ? value : `${earlier},${value}`;
  }
  return checked(CharacterQuery, given);
}
