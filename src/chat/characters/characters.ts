/** `GET /characters` and `GET /characters/{slug}`: the personas on offer, without their prompts. */
import { z } from 'zod';
import { Fault } from '../../core/faults.ts';
import { CHARACTER_SORTS, type CharacterQuery, type Personas } from '../personas/personas.ts';
import { invalidRequest } from '../../json/validation.ts';
import { type Route, get } from '../../http/route.ts';
import { CHARACTERS_DESCRIPTION, CHARACTER_DESCRIPTION } from './describe.ts';

const flag = z.enum(['true', 'false']).transform((text) => text === 'true');

/** A list comes as several members of one name, or with commas. */
const words = z
  .array(z.string())
  .transform((given) => given.flatMap((text) => text.split(',')).map((text) => text.trim()))
  .transform((given) => given.filter((text) => text !== ''));

const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

/** decisions.md 7, row Characters. */
const Query = z.object({
  search: z.string().max(1_000).optional(),
  categories: words.optional(),
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

const LISTS = new Set(['categories', 'tags']);

export function characterRoutes(personas: Personas): Route[] {
  return [
    get('/characters', 'public', CHARACTERS_DESCRIPTION, (context) =>
      context.json(200, personas.list(readQuery(context.query))),
    ),
    get('/characters/:slug', 'public', CHARACTER_DESCRIPTION, async (context) => {
      const slug = context.parameters['slug'] ?? '';
      const persona = personas.get(slug);
      if (persona === undefined) {
        throw new Fault('CHARACTER_NOT_FOUND', {
          message: `There is no character "${slug.slice(0, 100)}"`,
        });
      }
      await context.json(200, { object: 'character', data: persona.character });
    }),
  ];
}

function readQuery(query: URLSearchParams): CharacterQuery {
  const given: Record<string, string | string[]> = {};
  for (const [name, value] of query) {
    const key = name.replace(/\[\]$/, '');
    if (value === '') continue;
    if (LISTS.has(key)) given[key] = query.getAll(name);
    else given[key] = value;
  }
  const result = Query.safeParse(given);
  if (!result.success) throw invalidRequest(result.error);
  // Members that were not asked for are absent: exact optional types want no `undefined`.
  const asked = Object.entries(result.data).filter(([, value]) => value !== undefined);
  return Object.fromEntries(asked);
}
