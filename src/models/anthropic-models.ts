/**
 * Models in the format of Anthropic's API: one entry, and the paginated list. Contains only text
 * models, each also as `claude-<id>`, because some clients show only such names.
 */
import { type CatalogModel, CLAUDE_PREFIX } from '../catalog/catalog.ts';
import { isoTime, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { AnthropicModel } from './schema.ts';

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 1_000;

export function anthropicModel(model: CatalogModel, id = model.id): AnthropicModel {
  const { name, createdSeconds, context, maxCompletionTokens, deprecation, stage } = model;
  const isActive = stage === 'active';
  const removesAt = deprecation?.removesAt ?? deprecation?.date;
  return {
    type: 'model',
    id,
    display_name: name,
    created_at: isoTime(createdSeconds * SECOND_MS),
    max_input_tokens: context || null,
    max_tokens: maxCompletionTokens || null,
    capabilities: null,
    lifecycle: isActive ? 'active' : stage === 'warned' ? 'deprecated' : 'retired',
    line: null,
    deprecated_at: isActive ? null : timeOf(deprecation?.date),
    retires_at: isActive ? null : timeOf(removesAt),
  };
}

/** RFC 3339; the configuration may contain a shorter date. */
function timeOf(date: string | undefined): string | null {
  return date === undefined ? null : isoTime(Date.parse(date));
}

/** A page by `limit`, `after_id` and `before_id`. Throws 400 for invalid values. */
export function anthropicPage(models: readonly CatalogModel[], query: URLSearchParams): object {
  const all = [...models.map((model) => anthropicModel(model)), ...models.flatMap(aliased)];
  const limit = limitOf(query);
  const after = placeOf(all, query, 'after_id');
  const before = placeOf(all, query, 'before_id');
  const from = after === undefined ? 0 : after + 1;
  const to = before ?? all.length;
  // With `before_id` alone, the page ends before that entry.
  const isBackward = after === undefined && before !== undefined;
  const start = isBackward ? Math.max(from, to - limit) : from;
  const end = isBackward ? to : Math.min(to, from + limit);
  const data = all.slice(start, Math.max(start, end));
  return {
    data,
    has_more: isBackward ? start > 0 : end < to,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  };
}

function aliased(model: CatalogModel): AnthropicModel[] {
  if (/^(?:claude|anthropic)/.test(model.id)) return [];
  return [anthropicModel(model, CLAUDE_PREFIX + model.id)];
}

function limitOf(query: URLSearchParams): number {
  const given = query.get('limit');
  const limit = given === null ? DEFAULT_LIMIT : Number(given);
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw refusedQuery('limit', `Must be a whole number from 1 to ${MAX_LIMIT}`);
}

function placeOf(
  all: readonly AnthropicModel[],
  query: URLSearchParams,
  name: string,
): number | undefined {
  const id = query.get(name);
  if (id === null) return undefined;
  const place = all.findIndex((one) => one.id === id);
  if (place !== -1) return place;
  throw refusedQuery(name, 'Must be the id of an entry of the list');
}

/** The 400 for a query parameter, in the format of validation errors. */
export function refusedQuery(name: string, message: string): Fault {
  return new Fault('INVALID_REQUEST', {
    message: `The query parameter "${name}" is not valid: ${message}`,
    details: { _errors: [], [name]: { _errors: [message] } },
    fields: { issues: [{ code: 'invalid_value', path: [name], message }] },
  });
}
