/** `GET /models`, `GET /models/traits`, `GET /models/compatibility_mapping`: public lists. */
import { type Catalog, LIST_TYPES, type ListType } from '../catalog/catalog.ts';
import { MODEL_TYPES, type ModelType } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import { MAPPING_DESCRIPTION, MODELS_DESCRIPTION, TRAITS_DESCRIPTION } from './schema.ts';

export function modelRoutes(catalog: Catalog): Route[] {
  return [
    {
      method: 'GET',
      path: '/models',
      auth: 'public',
      describe: MODELS_DESCRIPTION,
      handle: async (context) => {
        const type = queryType<ListType>(context, LIST_TYPES);
        await context.json(200, catalog.listBody(type, context.callerIfKnown));
      },
    },
    {
      method: 'GET',
      path: '/models/traits',
      auth: 'public',
      describe: TRAITS_DESCRIPTION,
      handle: (context) =>
        context.json(200, catalog.traitsBody(queryType<ModelType>(context, MODEL_TYPES))),
    },
    {
      method: 'GET',
      path: '/models/compatibility_mapping',
      auth: 'public',
      describe: MAPPING_DESCRIPTION,
      handle: (context) =>
        context.json(200, catalog.mappingBody(queryType<ModelType>(context, MODEL_TYPES))),
    },
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
