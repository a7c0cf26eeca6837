/** A JSON Schema as a list that people read: name, kind, whether it is needed, what it means. */
import type { JsonSchema } from '../describe.ts';
import { type Html, html, prose } from './html.ts';

/** Deeper levels are in the document. */
const MAX_DEPTH = 4;
const MAX_SHOWN_VALUES = 24;

export interface SchemaSource {
  readonly schemas: Readonly<Record<string, JsonSchema>>;
}

export function fieldsOf(schema: JsonSchema, source: SchemaSource): Html | undefined {
  return fields(schema, source, 0);
}

function fields(given: JsonSchema, source: SchemaSource, depth: number): Html | undefined {
  const holder = objectOf(given, source);
  if (holder === undefined) return undefined;
  const required = new Set(listOf(holder['required']));
  const rows = Object.entries(childrenOf(holder)).map(([name, child]) =>
    field(name, child, required.has(name), source, depth),
  );
  return rows.length === 0 ? undefined : html`<dl class="fields">${rows}</dl>`;
}

function field(
  name: string,
  given: JsonSchema,
  isRequired: boolean,
  source: SchemaSource,
  depth: number,
): Html {
  const schema = resolve(given, source);
  const description = given['description'] ?? schema['description'];
  const inner = depth < MAX_DEPTH ? innerFields(schema, source, depth + 1) : undefined;
  return html`<div class="field">
    <dt>
      <code>${name}</code
      ><span class="kind">${shownKind(schema, source, isRequired)}${limitsOf(schema)}</span
      >${isRequired && html`<span class="must">required</span>`}
    </dt>
    ${typeof description === 'string' && html`<dd>${prose(description)}</dd>`}${
      inner !== undefined &&
      html`<dd>
        <details>
          <summary>Members</summary>
          ${inner}
        </details>
      </dd>`
    }
  </div>`;
}

/** Members of an object, or of the items of a list, or of the branches of a choice. */
function innerFields(schema: JsonSchema, source: SchemaSource, depth: number): Html | undefined {
  const items = schemaAt(schema, 'items');
  if (items !== undefined) return innerFields(resolve(items, source), source, depth);
  const branches = branchesOf(schema, source).filter((branch) => branch['type'] !== 'null');
  if (branches.length > 1) {
    const shown = branches.flatMap((branch) => innerFields(branch, source, depth) ?? []);
    return shown.length === 0 ? undefined : html`${shown}`;
  }
  const [only] = branches;
  return only === undefined ? fields(schema, source, depth) : innerFields(only, source, depth);
}

/** The one object among the branches of a schema, itself included. */
function objectOf(given: JsonSchema, source: SchemaSource): JsonSchema | undefined {
  const schema = resolve(given, source);
  if (schema['properties'] !== undefined) return schema;
  return branchesOf(schema, source).find((branch) => branch['properties'] !== undefined);
}

function branchesOf(schema: JsonSchema, source: SchemaSource): JsonSchema[] {
  const given = schema['anyOf'] ?? schema['oneOf'];
  // Branches of a choice are schemas.
  return Array.isArray(given) ? given.map((branch) => resolve(branch as JsonSchema, source)) : [];
}

function childrenOf(schema: JsonSchema): Readonly<Record<string, JsonSchema>> {
  return (schema['properties'] ?? {}) as Readonly<Record<string, JsonSchema>>; // by JSON Schema
}

function schemaAt(schema: JsonSchema, key: string): JsonSchema | undefined {
  const value = schema[key];
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as JsonSchema) // by JSON Schema
    : undefined;
}

function listOf(value: unknown): string[] {
  return Array.isArray(value) ? value.map(String) : [];
}

const COMPONENT = '#/components/schemas/';

/** Follows references; a circle cannot arise, since zod's schemas here are trees. */
function resolve(schema: JsonSchema, source: SchemaSource): JsonSchema {
  const reference = schema['$ref'];
  if (typeof reference !== 'string') return schema;
  const found = source.schemas[reference.slice(COMPONENT.length)];
  return found === undefined ? {} : resolve(found, source);
}

/** `string`, `list of integer`, `"a" | "b"`. */
export function kindOf(given: JsonSchema, source: SchemaSource): string {
  const schema = resolve(given, source);
  if (schema['const'] !== undefined) return JSON.stringify(schema['const']);
  const values = schema['enum'];
  if (Array.isArray(values)) {
    const shown = values.slice(0, MAX_SHOWN_VALUES).map((value) => JSON.stringify(value));
    return shown.join(' | ') + (values.length > MAX_SHOWN_VALUES ? ' | …' : '');
  }
  const branches = branchesOf(schema, source);
  if (branches.length > 0) {
    return [...new Set(branches.map((branch) => kindOf(branch, source)))].join(' or ');
  }
  const { type } = schema as { type?: string | string[] }; // by JSON Schema
  if (type === 'array') {
    const items = schemaAt(schema, 'items');
    return `list of ${items === undefined ? 'any' : kindOf(items, source)}`;
  }
  return Array.isArray(type) ? type.join(' or ') : (type ?? 'any');
}

/** What is optional may also be null, which goes without saying. */
function shownKind(schema: JsonSchema, source: SchemaSource, isRequired: boolean): string {
  const kind = kindOf(schema, source);
  return isRequired ? kind : kind.replace(/ or null$/, '');
}

const RANGES = [
  ['minimum', 'maximum', ''],
  ['minLength', 'maxLength', ' characters'],
  ['minItems', 'maxItems', ' items'],
] as const;

function limitsOf(given: JsonSchema): string {
  const branches = given['anyOf'];
  const first = Array.isArray(branches) && branches.length === 2 ? branches[0] : given;
  const schema = first as JsonSchema; // by JSON Schema
  const parts = RANGES.flatMap(([low, high, unit]) => {
    const range = rangeText(bound(schema[low]), bound(schema[high]));
    return range === undefined ? [] : [range + unit];
  });
  const usual = schema['default'];
  if (usual !== undefined) parts.push(`default ${JSON.stringify(usual)}`);
  return parts.length === 0 ? '' : `, ${parts.join(', ')}`;
}

/** zod bounds every whole number by what JavaScript can hold, which says nothing. */
function bound(value: unknown): number | undefined {
  return typeof value === 'number' && Math.abs(value) < Number.MAX_SAFE_INTEGER ? value : undefined;
}

function rangeText(low: number | undefined, high: number | undefined): string | undefined {
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  if (low !== undefined) return `at least ${low}`;
  return high === undefined ? undefined : `at most ${high}`;
}
