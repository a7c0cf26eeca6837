/**
 * Models in the form of Anthropic's API: one entry, and the list with its pages. Text models alone,
 * each under its id and, for pickers that show only such names, as `claude-<id>`.
 */
import { type CatalogModel, CLAUDE_PREFIX } from '../catalog/catalog.ts';
import { isoTime, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';

/** Entries of a page when the caller names no number, and the most that one may have. */
const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 1_000;

/** One entry of the list; `GET /models/{id}` answers the same. */
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

interface AnthropicModel {
  readonly type: 'model';
  readonly id: string;
  readonly display_name: string;
  readonly created_at: string;
  /** `null` where the context of the model is not known. */
  readonly max_input_tokens: number | null;
  readonly max_tokens: number | null;
  /** Their words are of other models; ours are in the usual form of the list. */
  readonly capabilities: null;
  readonly lifecycle: 'active' | 'deprecated' | 'retired';
  readonly line: null;
  readonly deprecated_at: string | null;
  readonly retires_at: string | null;
}

/** RFC 3339, whatever part of a date the configuration names. */
function timeOf(date: string | undefined): string | null {
  return date === undefined ? null : isoTime(Date.parse(date));
}

/** A page by `limit`, `after_id` and `before_id`. Throws 400 for what is no number or no entry. */
export function anthropicPage(models: readonly CatalogModel[], query: URLSearchParams): object {
  const all = [...models.map((model) => anthropicModel(model)), ...models.flatMap(aliased)];
  const limit = limitOf(query);
  const after = placeOf(all, query, 'after_id');
  const before = placeOf(all, query, 'before_id');
  const from = after === undefined ? 0 : after + 1;
  const to = before ?? all.length;
  // Backwards the page is the one that ends before the entry.
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

/** The 400 for a query parameter: what was wrong with it, as validation says it. */
export function refusedQuery(name: string, message: string): Fault {
  return new Fault('INVALID_REQUEST', {
    message: `The query parameter "${name}" is not valid: ${message}`,
    details: { _errors: [], [name]: { _errors: [message] } },
    fields: { issues: [{ code: 'invalid_value', path: [name], message }] },
  });
}
