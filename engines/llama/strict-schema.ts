/**
 * Checks whether a grammar enforces all of a JSON schema. A caller that sets `strict` relies on
 * every keyword, so a schema with an unenforced keyword is rejected before generation.
 *
 * Invariant: if a schema passes, every text that its grammar accepts is valid for the schema. The
 * grammar may accept less: fewer dates, no additional members.
 */
import { isJsonObject } from '../../src/json/json-scan.ts';
import { isDeepStrictEqual } from 'node:util';
import type { Fault } from '../../src/core/faults.ts';
import { impliedType } from './alternatives.ts';
import { MAX_REPETITION, mergeSchemas, schemaAt } from './json-schema-grammar.ts';
import { ENFORCED_FORMATS } from './string-formats.ts';
import { numberGrammar } from './number-grammar.ts';
import { refusal } from './refusal.ts';

type Schema = Readonly<Record<string, unknown>>;

/** Keywords that constrain a value and that the grammar does not support. */
const UNENFORCED = new Set(
  (
    'pattern multipleOf contains minContains maxContains minProperties maxProperties ' +
    'patternProperties propertyNames dependentRequired dependentSchemas dependencies if then else ' +
    'not unevaluatedItems unevaluatedProperties additionalItems $dynamicRef $recursiveRef'
  ).split(' '),
);
const ANNOTATIONS = new Set(
  (
    '$schema $id $anchor $comment $defs definitions title description default examples deprecated ' +
    'readOnly writeOnly contentEncoding contentMediaType'
  ).split(' '),
);
/** Keywords that apply to one type only and are ignored for other types. */
const KEYWORDS_OF: Readonly<Record<string, readonly string[]>> = {
  string: ['minLength', 'maxLength', 'format'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems', 'uniqueItems'],
  object: ['properties', 'required', 'additionalProperties'],
};
const MAX_SCHEMAS = 10_000;
const MAX_COMPARISONS = 50_000;

/** Throws an error response that names the first unenforced keyword and its path. */
export function refuseUnenforceable(schema: unknown): void {
  new StrictCheck(schema).visit(schema, '');
}

class StrictCheck {
  readonly #document: unknown;
  readonly #seen = new Set<unknown>();
  #comparisons = 0;

  constructor(document: unknown) {
    this.#document = document;
  }

  visit(schema: unknown, path: string): void {
    if (!isJsonObject(schema) || this.#seen.has(schema)) return;
    this.#seen.add(schema);
    if (this.#seen.size > MAX_SCHEMAS) throw unenforced(path, 'the schema is too large');
    for (const keyword of Object.keys(schema)) {
      if (UNENFORCED.has(keyword)) throw unenforced(path, `"${keyword}" is not enforced`);
    }
    for (const alone of ['$ref', 'const', 'enum']) {
      if (alone in schema) return this.#visitAlone(schema, alone, path);
    }
    for (const choice of ['anyOf', 'oneOf'] as const) {
      const parts = schema[choice];
      if (Array.isArray(parts)) return this.#visitChoice(schema, choice, parts, path);
    }
    if (Array.isArray(schema['allOf'])) return this.#visitAll(schema, schema['allOf'], path);
    this.#visitTyped(schema, path);
  }

  /** The grammar ignores all other keywords beside this one. */
  #visitAlone(schema: Schema, keyword: string, path: string): void {
    for (const other of Object.keys(schema)) {
      if (other === keyword || ANNOTATIONS.has(other)) continue;
      const isType = other === 'type' && keyword !== '$ref';
      const values = keyword === 'const' ? [schema['const']] : schema[keyword];
      if (isType && Array.isArray(values) && values.every((one) => hasType(one, schema['type']))) {
        continue;
      }
      throw unenforced(path, `"${other}" beside "${keyword}" is not enforced`);
    }
    if (keyword === '$ref') this.visit(this.#resolve(schema), `${path}/$ref`);
  }

  #visitChoice(schema: Schema, keyword: 'anyOf' | 'oneOf', parts: unknown[], path: string): void {
    const { [keyword]: _parts, ...common } = schema;
    for (const [index, part] of parts.entries()) {
      const at = `${path}/${keyword}/${index}`;
      this.#requireIndependent(common, part, at);
      this.visit(mergeSchemas(common, part), at);
    }
    if (keyword === 'anyOf') return;
    const resolved = parts.map((part) => this.#resolve(part));
    for (const [index, part] of resolved.entries()) {
      if (resolved.slice(index + 1).every((other) => areDisjoint(part, other, this.#isEqual)))
        continue;
      throw unenforced(path, 'the choices of "oneOf" may overlap; use "anyOf"');
    }
  }

  #visitAll(schema: Schema, parts: unknown[], path: string): void {
    const { allOf: _parts, ...common } = schema;
    const resolved = parts.map((part) => this.#resolve(part));
    for (const [index, part] of resolved.entries()) {
      const at = `${path}/allOf/${index}`;
      for (const other of [common, ...resolved.slice(0, index)])
        this.#requireIndependent(other, part, at);
    }
    this.visit(resolved.reduce<Schema>(mergeSchemas, common), path);
  }

  /** Throws if schemas merged by `allOf` constrain the same value differently. */
  #requireIndependent(left: unknown, right: unknown, path: string): void {
    if (!isJsonObject(left) || !isJsonObject(right)) return;
    for (const keyword of Object.keys(right)) {
      if (!(keyword in left) || ANNOTATIONS.has(keyword) || keyword === 'required') continue;
      const [one, other] = [left[keyword], right[keyword]];
      if (keyword === 'properties' && isJsonObject(one) && isJsonObject(other)) {
        const shared = Object.keys(other).filter((name) => name in one);
        if (shared.every((name) => this.#isEqual(one[name], other[name]))) continue;
      } else if (this.#isEqual(one, other)) continue;
      throw unenforced(path, `"${keyword}" is in both of two merged schemas`);
    }
    for (const [closed, open] of [
      [left, right],
      [right, left],
    ] as const) {
      const allowed = closed['additionalProperties'];
      if (allowed === undefined || allowed === true) continue;
      const known = isJsonObject(closed['properties']) ? closed['properties'] : {};
      const named = isJsonObject(open['properties']) ? Object.keys(open['properties']) : [];
      if (named.every((name) => name in known)) continue;
      throw unenforced(
        path,
        '"additionalProperties" closes a schema that is merged with further properties',
      );
    }
  }

  readonly #isEqual: IsEqual = (one, other) => {
    this.#comparisons += 1;
    if (this.#comparisons > MAX_COMPARISONS) throw unenforced('', 'the schema is too large');
    return isDeepStrictEqual(one, other);
  };

  #visitTyped(schema: Schema, path: string): void {
    const type = schema['type'];
    const types: readonly unknown[] = Array.isArray(type) ? type : [type ?? impliedType(schema)];
    if (types.includes(undefined)) {
      const named = Object.values(KEYWORDS_OF).flat();
      const unused = named.find((keyword) => keyword in schema);
      if (unused !== undefined) throw unenforced(path, `"${unused}" needs a "type"`);
    }
    if (types.includes('string')) refuseString(schema, path);
    for (const one of ['integer', 'number']) {
      if (types.includes(one) && numberGrammar(schema, one === 'number', 1) === undefined) {
        throw unenforced(path, 'no whole number is within the bounds');
      }
    }
    if (types.includes('array')) this.#visitArray(schema, path);
    if (types.includes('object')) this.#visitObject(schema, path);
  }

  #visitArray(schema: Schema, path: string): void {
    const { prefixItems, items, minItems, maxItems, uniqueItems } = schema;
    refuseLong(minItems, 'minItems', path);
    refuseLong(maxItems, 'maxItems', path);
    if (uniqueItems === true && maxItems !== 0 && maxItems !== 1) {
      throw unenforced(path, '"uniqueItems" is not enforced');
    }
    if (Array.isArray(prefixItems) && prefixItems.length > 0) {
      const { length } = prefixItems;
      const isWithin = Number(minItems ?? 0) <= length && Number(maxItems ?? length) >= length;
      if (!isWithin)
        throw unenforced(path, 'the bounds of the array do not match its "prefixItems"');
      for (const [at, item] of prefixItems.entries()) this.visit(item, `${path}/prefixItems/${at}`);
    }
    this.visit(items, `${path}/items`);
  }

  #visitObject(schema: Schema, path: string): void {
    const { properties, required, additionalProperties } = schema;
    const known = isJsonObject(properties) ? properties : {};
    const unknown = Array.isArray(required)
      ? required.find((name) => !(String(name) in known))
      : undefined;
    if (unknown !== undefined) {
      throw unenforced(
        path,
        `"required" contains ${JSON.stringify(unknown)}, which is not a property`,
      );
    }
    for (const [name, value] of Object.entries(known)) {
      this.visit(value, `${path}/properties/${name}`);
    }
    this.visit(additionalProperties, `${path}/additionalProperties`);
  }

  #resolve(schema: unknown): unknown {
    const reference = isJsonObject(schema) ? schema['$ref'] : undefined;
    if (typeof reference !== 'string' || !reference.startsWith('#')) return schema;
    // An unresolvable reference is rejected by the grammar writer.
    return schemaAt(this.#document, reference);
  }
}

function refuseString(schema: Schema, path: string): void {
  const { format, minLength, maxLength } = schema;
  refuseLong(minLength, 'minLength', path);
  refuseLong(maxLength, 'maxLength', path);
  if (format === undefined) return;
  if (typeof format !== 'string' || !ENFORCED_FORMATS.has(format)) {
    throw unenforced(path, `"format": ${JSON.stringify(format)} is not enforced`);
  }
  if (minLength !== undefined || maxLength !== undefined) {
    throw unenforced(path, 'a length beside "format" is not enforced');
  }
}

function refuseLong(bound: unknown, keyword: string, path: string): void {
  if (typeof bound !== 'number' || bound <= MAX_REPETITION) return;
  throw unenforced(path, `"${keyword}" above ${MAX_REPETITION} is not enforced`);
}

type IsEqual = (one: unknown, other: unknown) => boolean;

/** Whether no value is valid for both schemas: their types differ, or a fixed member does. */
function areDisjoint(one: unknown, other: unknown, isEqual: IsEqual): boolean {
  if (!isJsonObject(one) || !isJsonObject(other)) return false;
  const [left, right] = [valuesOf(one), valuesOf(other)];
  if (left !== undefined && right !== undefined) {
    return !left.some((value) => right.some((same) => isEqual(value, same)));
  }
  const [types, others] = [typesOf(one), typesOf(other)];
  const shared = types?.filter((type) => others?.includes(type)) ?? [];
  if (types !== undefined && others !== undefined && shared.length === 0) return true;
  const [members, same] = [one['properties'], other['properties']];
  if (!isJsonObject(members) || !isJsonObject(same) || shared.join() !== 'object') return false;
  const always = (schema: Schema, name: string) =>
    Array.isArray(schema['required']) && schema['required'].includes(name);
  return Object.keys(members).some(
    (name) =>
      name in same &&
      always(one, name) &&
      always(other, name) &&
      areDisjoint(members[name], same[name], isEqual),
  );
}

function valuesOf(schema: Schema): readonly unknown[] | undefined {
  if ('const' in schema) return [schema['const']];
  return Array.isArray(schema['enum']) ? schema['enum'] : undefined;
}

/** The types that a schema allows; `integer` counts as `number`. */
function typesOf(schema: Schema): readonly string[] | undefined {
  const values = valuesOf(schema);
  const type = schema['type'] ?? values?.map(typeName) ?? impliedType(schema);
  if (type === undefined) return undefined;
  const types: readonly unknown[] = [type].flat();
  return types.flatMap((one) =>
    one === 'integer' ? 'number' : typeof one === 'string' ? one : [],
  );
}

function typeName(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function hasType(value: unknown, type: unknown): boolean {
  const types: readonly unknown[] = Array.isArray(type) ? type : [type];
  return types.includes(typeName(value)) || (types.includes('integer') && Number.isInteger(value));
}

function unenforced(path: string, why: string): Fault {
  const where = path === '' ? 'the schema' : path;
  const message = `The strict JSON schema cannot be enforced by this model, at ${where}: ${why}; change the schema, or omit "strict"`;
  return refusal('invalid_request', message, 'schema');
}
