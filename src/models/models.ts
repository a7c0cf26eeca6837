/** `GET /models`, `GET /models/traits`, `GET /models/compatibility_mapping`: public lists. */
import { type Catalog, LIST_TYPES, type ListType } from '../catalog/catalog.ts';
import { MODEL_TYPES, type ModelType } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import { MAPPING_DESCRIPTION, MODELS_DESCRIPTION, TRAITS_DESCRIPTION } from './schema.ts';

export function modelRoutes(catalog: Catalog): Route[] {
  return [
    get('/models', 'public', MODELS_DESCRIPTION, async (context) => {
      const type = queryType<ListType>(context, LIST_TYPES);
      await context.json(200, catalog.listBody(type, context.callerIfKnown));
    }),
    get('/models/traits', 'public', TRAITS_DESCRIPTION, (context) =>
      context.json(200, catalog.traitsBody(queryType<ModelType>(context, MODEL_TYPES))),
    ),
    get('/models/compatibility_mapping', 'public', MAPPING_DESCRIPTION, (context) =>
      context.json(200, catalog.mappingBody(queryType<ModelType>(context, MODEL_TYPES))),
    ),
  ];
}

/** `?type=`, `text` when absent; another value is a 400 that names the allowed ones. */
function queryType<T extends string>(context: RequestContext, allowed: readonly T[]): T {
  const given = context.query.get('type') ?? 'text';
  const found = allowed.find((type) => type === given);
  if (found !== undefined) return found;
  const message = `Must be one of ${allowed.join(', ')}`;
  throw new Fault('INVALID_REQUEST', {
    message: `The query parameter "type" is not valid: ${message}`,
    details: { _errors: [], type: { _errors: [message] } },
    fields: { issues: [{ code: 'invalid_value', path: ['type'], message }] },
  });
}
