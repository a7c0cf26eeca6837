/** A JSON Schema as a list that people read: name, kind, whether it is needed, what it means. */
import type { JsonSchema } from '../describe.ts';
import { type Html, html, prose } from './html.ts';

/** Deeper levels are in the document. */
const MAX_DEPTH = 4;
const MAX_SHOWN_VALUES = 24;

/** The components that schemas refer to. */
export interface SchemaSource {
  readonly schemas: Readonly<Record<string, JsonSchema>>;
}

/** What is read of a schema, by JSON Schema. */
interface Schema {
  readonly $ref?: string;
  readonly description?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
}

export function fieldsOf(schema: Schema, source: SchemaSource, depth = 0): Html | undefined {
  const holder = [resolve(schema, source), ...branchesOf(schema, source)].find(
    ({ properties }) => properties !== undefined,
  );
  const rows = Object.entries(holder?.properties ?? {}).map(([name, child]) =>
    field(name, child, holder?.required?.includes(name) === true, source, depth),
  );
  return rows.length === 0 ? undefined : html`<dl class="fields">${rows}</dl>`;
}

function field(
  name: string,
  given: Schema,
  isRequired: boolean,
  source: SchemaSource,
  depth: number,
): Html {
  const schema = resolve(given, source);
  const description = given.description ?? schema.description;
  const inner = depth < MAX_DEPTH ? innerFields(schema, source, depth + 1) : undefined;
  // What is optional may also be null, which goes without saying.
  const kind = kindOf(schema, source).replace(isRequired ? /$/ : / or null$/, '');
  return html`<div class="field">
    <dt>
      <code>${name}</code
      ><span class="kind">${kind}${limitsOf(schema)}</span
      >${isRequired && html`<span class="must">required</span>`}
    </dt>
    ${description !== undefined && html`<dd>${prose(description)}</dd>`}${
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
function innerFields(schema: Schema, source: SchemaSource, depth: number): Html | undefined {
  if (schema.items !== undefined) return innerFields(resolve(schema.items, source), source, depth);
  const branches = branchesOf(schema, source).filter((branch) => branch.type !== 'null');
  if (branches.length > 1) {
    const shown = branches.flatMap((branch) => innerFields(branch, source, depth) ?? []);
    return shown.length === 0 ? undefined : html`${shown}`;
  }
  const [only] = branches;
  return only === undefined ? fieldsOf(schema, source, depth) : innerFields(only, source, depth);
}

function branchesOf(schema: Schema, source: SchemaSource): Schema[] {
  const { anyOf, oneOf } = resolve(schema, source);
  return (anyOf ?? oneOf ?? []).map((branch) => resolve(branch, source));
}

const COMPONENT = '#/components/schemas/';

/** Follows references; a circle cannot arise, since zod's schemas here are trees. */
export function resolve(schema: Schema, source: SchemaSource): Schema {
  if (schema.$ref === undefined) return schema;
  return resolve(source.schemas[schema.$ref.slice(COMPONENT.length)] ?? {}, source);
}

/** `string`, `list of integer`, `"a" | "b"`. */
export function kindOf(given: Schema, source: SchemaSource): string {
  const schema = resolve(given, source);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) {
    const shown = schema.enum.slice(0, MAX_SHOWN_VALUES).map((value) => JSON.stringify(value));
    return shown.join(' | ') + (schema.enum.length > MAX_SHOWN_VALUES ? ' | …' : '');
  }
  const branches = branchesOf(schema, source).map((branch) => kindOf(branch, source));
  if (branches.length > 0) return [...new Set(branches)].join(' or ');
  const { type = 'any', items } = schema;
  if (type === 'array') return `list of ${items === undefined ? 'any' : kindOf(items, source)}`;
  return [type].flat().join(' or ');
}

const RANGES = [
  ['minimum', 'maximum', ''],
  ['minLength', 'maxLength', ' characters'],
  ['minItems', 'maxItems', ' items'],
] as const;

function limitsOf(given: Schema): string {
  const schema = (given.anyOf?.length === 2 ? given.anyOf[0] : undefined) ?? given;
  const parts = RANGES.flatMap(([low, high, unit]) => {
    const range = rangeText(bound(schema[low]), bound(schema[high]));
    return range === undefined ? [] : [range + unit];
  });
  if (schema.default !== undefined) parts.push(`default ${JSON.stringify(schema.default)}`);
  return parts.length === 0 ? '' : `, ${parts.join(', ')}`;
}

/** zod bounds every whole number by what JavaScript can hold, which says nothing. */
function bound(value: number | undefined): number | undefined {
  return Math.abs(value ?? Infinity) < Number.MAX_SAFE_INTEGER ? value : undefined;
}

function rangeText(low: number | undefined, high: number | undefined): string | undefined {
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  if (low !== undefined) return `at least ${low}`;
  return high === undefined ? undefined : `at most ${high}`;
}
