/** `GET /characters` and `GET /characters/{slug}`: the personas on offer, without their prompts. */
import { Fault } from '../../core/faults.ts';
import { CharacterQuery, DEFAULT_LIMIT, type Personas } from '../personas/personas.ts';
import { pageHeaders } from '../../http/read-request.ts';
import { invalidRequest } from '../../json/validation.ts';
import { type Route, get } from '../../http/route.ts';
import { CHARACTERS_DESCRIPTION, CHARACTER_DESCRIPTION } from './describe.ts';

const LISTS = new Set(['categories', 'tags']);

export function characterRoutes(personas: Personas): Route[] {
  return [
    get('/characters', 'public', CHARACTERS_DESCRIPTION, (context) => {
      const query = readQuery(context.query);
      const { data, total } = personas.list(query);
      const { limit = DEFAULT_LIMIT, offset = 0 } = query;
      context.setAll(pageHeaders({ limit, page: Math.floor(offset / limit) + 1 }, total));
      return context.json(200, { object: 'list', data });
    }),
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
  const result = CharacterQuery.safeParse(given);
  if (!result.success) throw invalidRequest(result.error);
  return result.data;
}
