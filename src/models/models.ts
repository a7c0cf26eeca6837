/**
 * The public lists of models. `GET /models` and `GET /models/{id}` respond to clients of
 * Anthropic's API, which send `anthropic-version`, in the format of that API.
 */
import { type Catalog, LIST_TYPES, type ListType } from '../catalog/catalog.ts';
import { MODEL_TYPES, type ModelType } from '../config/config.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import { anthropicModel, anthropicPage, refusedQuery } from './anthropic-models.ts';
import { codexModels } from './codex-models.ts';
import {
  CODEX_MODELS_DESCRIPTION,
  MAPPING_DESCRIPTION,
  MODEL_DESCRIPTION,
  MODELS_DESCRIPTION,
  TRAITS_DESCRIPTION,
} from './schema.ts';

export function modelRoutes(catalog: Catalog): Route[] {
  return [
    get('/models', 'public', MODELS_DESCRIPTION, async (context) => {
      const type = queryType<ListType>(context, LIST_TYPES);
      const limits = context.callerIfKnown;
      const body = isAnthropic(context)
        ? anthropicPage(catalog.listed('text', limits), context.query)
        : catalog.listBody(type, limits);
      await context.json(200, body);
    }),
    get('/models/traits', 'public', TRAITS_DESCRIPTION, (context) =>
      context.json(200, catalog.traitsBody(queryType<ModelType>(context, MODEL_TYPES))),
    ),
    get('/models/compatibility_mapping', 'public', MAPPING_DESCRIPTION, (context) =>
      context.json(200, catalog.mappingBody(queryType<ModelType>(context, MODEL_TYPES))),
    ),
    get('/models/codex', 'public', CODEX_MODELS_DESCRIPTION, (context) =>
      context.json(200, codexModels(catalog.listed('text', context.callerIfKnown))),
    ),
    get('/models/:id', 'public', MODEL_DESCRIPTION, (context) => answerModel(catalog, context)),
    // Ids such as `meta/llama-3` may contain an unescaped slash.
    get('/models/:vendor/:id', 'public', MODEL_DESCRIPTION, (context) =>
      answerModel(catalog, context),
    ),
  ];
}

async function answerModel(catalog: Catalog, context: RequestContext): Promise<void> {
  const { vendor, id = '' } = context.parameters;
  const name = vendor === undefined ? id : `${vendor}/${id}`;
  const model = catalog.describe(name, context.callerIfKnown);
  const body = isAnthropic(context)
    ? anthropicModel(model)
    : catalog.itemBody(model, context.callerIfKnown);
  await context.json(200, body);
}

function isAnthropic(context: RequestContext): boolean {
  return context.header('anthropic-version') !== undefined;
}

/** The value of `?type=`, by default `text`. Throws 400 for an unknown value. */
function queryType<T extends string>(context: RequestContext, allowed: readonly T[]): T {
  const given = context.query.get('type') ?? 'text';
  const found = allowed.find((type) => type === given);
  if (found !== undefined) return found;
  throw refusedQuery('type', `Must be one of ${allowed.join(', ')}`);
}
