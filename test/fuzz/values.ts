/**
 * Values for a JSON Schema of the document, valid or almost valid. Values that no schema describes
 * (a model, a URL, an id) come from the fixture.
 */
import fc from 'fast-check';
import type { JsonSchema } from '../../src/http/describe.ts';
import type { OpenApiDocument } from '../../src/http/openapi/openapi.ts';
import { HOSTILE_NUMBERS, hostileText, hostileValue } from './hostile.ts';
import { anyCharacter } from '../support/any-character.ts';

/** Valid values by the name of a member or parameter. */
export type KnownValues = Readonly<Record<string, readonly unknown[]>>;

export interface ValueSource {
  readonly document: OpenApiDocument;
  readonly known: KnownValues;
}

/** Optional members are usually omitted, because otherwise most requests are rejected. */
const PRESENT = 1;
const ABSENT = 9;
/** Arrays up to this maximum use their whole range; longer ones stay short. */
const MAX_WHOLE_ARRAY = 128;
const USUAL_ITEMS = 3;
const MAX_WHOLE_TEXT = 25_000;
const USUAL_CHARS = 24;
const ABSENT_MEMBER = Symbol('absent');

/** A value that is valid for `schema`, as far as the schema describes it. */
export function fitting(schema: JsonSchema, source: ValueSource, name = ''): fc.Arbitrary<unknown> {
  const found = resolved(schema, source.document);
  const plain = bySchema(found, source, name);
  const types = typesOf(found, source.document);
  const known = (source.known[name] ?? []).filter((value) => types.has(typeof value));
  if (known.length === 0) return plain;
  // A random string is rarely valid; each of several types is used.
  return fc.oneof(
    { weight: types.size === 1 ? 9 : 1, arbitrary: fc.constantFrom(...known) },
    { weight: 1, arbitrary: plain },
  );
}

function resolved(schema: JsonSchema, document: OpenApiDocument): JsonSchema {
  const reference = schema['$ref'];
  if (typeof reference !== 'string') return schema;
  const name = reference.slice('#/components/schemas/'.length);
  const found = document.components.schemas[name];
  if (found === undefined) throw new Error(`The document has no schema ${reference}`);
  return found;
}

/** `typeof` names of the types in the schema; empty if it lists values. */
function typesOf(schema: JsonSchema, document: OpenApiDocument): ReadonlySet<string> {
  if ('enum' in schema || 'const' in schema) return new Set();
  const branches = branchesOf(schema) ?? [];
  const inner = branches.flatMap((one) => [...typesOf(resolved(one, document), document)]);
  return new Set(
    [
      ...inner,
      ...[schema['type']].flat().map((one) => (one === 'array' ? 'list' : String(one))),
    ].filter((one) => one !== 'undefined' && one !== 'null'),
  );
}

function branchesOf(schema: JsonSchema): readonly JsonSchema[] | undefined {
  // A list of schemas, by the specification.
  return (schema['anyOf'] ?? schema['oneOf']) as readonly JsonSchema[] | undefined;
}

function bySchema(schema: JsonSchema, source: ValueSource, name: string): fc.Arbitrary<unknown> {
  if ('const' in schema) return fc.constant(schema['const']);
  if (Array.isArray(schema['enum'])) return fc.constantFrom(...(schema['enum'] as unknown[]));
  const branches = branchesOf(schema);
  if (branches !== undefined) {
    return fc.oneof(...branches.map((branch) => fitting(branch, source, name)));
  }
  const { type } = schema;
  if (Array.isArray(type)) {
    const types = type as readonly string[];
    return fc.oneof(...types.map((one) => bySchema({ ...schema, type: one }, source, name)));
  }
  switch (type) {
    case 'object':
      return objects(schema, source);
    case 'array':
      return arrays(schema, source, name);
    case 'string':
      return texts(schema);
    case 'integer':
    case 'number':
      return numbers(schema);
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case undefined:
      return fc.jsonValue({ maxDepth: 2 });
    default:
      throw new Error(`The schema type ${JSON.stringify(type)} is not known to the fuzzer`);
  }
}

function objects(schema: JsonSchema, source: ValueSource): fc.Arbitrary<unknown> {
  // Members of an object schema are schemas, and `required` is a list of names.
  const members = Object.entries((schema['properties'] ?? {}) as Record<string, JsonSchema>);
  const required = new Set((schema['required'] ?? []) as readonly string[]);
  if (members.length === 0) return fc.dictionary(fc.string({ maxLength: 8 }), fc.jsonValue());
  const values = members.map(([name, member]) => {
    const value = fitting(member, source, name);
    if (required.has(name)) return value;
    return fc.oneof(
      { weight: ABSENT, arbitrary: fc.constant(ABSENT_MEMBER) },
      { weight: PRESENT, arbitrary: value },
    );
  });
  return fc.tuple(...values).map((made) =>
    Object.fromEntries(
      members.flatMap(([name], index) => {
        const value = made[index];
        return value === ABSENT_MEMBER ? [] : [[name, value]];
      }),
    ),
  );
}

function arrays(schema: JsonSchema, source: ValueSource, name: string): fc.Arbitrary<unknown> {
  const { minItems: least = 0, maxItems: most = USUAL_ITEMS } = schema as Bounds;
  const item = fitting((schema['items'] ?? {}) as JsonSchema, source, name);
  const usual = fc.array(item, {
    minLength: least,
    maxLength: Math.max(least, Math.min(most, USUAL_ITEMS)),
  });
  if (most > MAX_WHOLE_ARRAY) return usual;
  const whole = fc.array(item, { minLength: most, maxLength: most });
  return fc.oneof({ weight: 9, arbitrary: usual }, { weight: 1, arbitrary: whole });
}

function texts(schema: JsonSchema): fc.Arbitrary<string> {
  const { pattern, minLength: least = 0, maxLength: most = Infinity } = schema as Bounds;
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern));
  const maxLength = Math.max(least, Math.min(most, USUAL_CHARS));
  const usual = fc.oneof(
    { weight: 3, arbitrary: fc.string({ minLength: least, maxLength }) },
    { weight: 1, arbitrary: fc.string({ unit: anyCharacter, minLength: least, maxLength }) },
  );
  if (most > MAX_WHOLE_TEXT) return usual;
  return fc.oneof(
    { weight: 9, arbitrary: usual },
    { weight: 1, arbitrary: fc.constant('y'.repeat(most)) },
  );
}

function numbers(schema: JsonSchema): fc.Arbitrary<number> {
  const { minimum: min = -1_000_000, maximum: max = 1_000_000 } = schema as Bounds;
  const bounds = fc.constantFrom(min, max);
  const small = fc.integer({
    min: Math.ceil(min),
    max: Math.max(Math.ceil(min), Math.min(max, 9)),
  });
  const any =
    schema['type'] === 'integer'
      ? fc.integer({ min, max })
      : fc.double({ min, max, noNaN: true, noDefaultInfinity: true });
  return fc.oneof(
    { weight: 4, arbitrary: min <= 9 ? small : any },
    { weight: 2, arbitrary: any },
    { weight: 1, arbitrary: bounds },
  );
}

/** Keywords of a schema that limit a value. */
interface Bounds {
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
}

interface Change {
  /** Selects a node of the value by an index, modulo the number of nodes. */
  readonly at: number;
  readonly kind: 'replace' | 'remove' | 'add' | 'repeat' | 'nudge' | 'rename' | 'retype';
  readonly name: string;
  readonly value: unknown;
}

const change: fc.Arbitrary<Change> = fc.record({
  at: fc.nat(200),
  kind: fc.constantFrom('replace', 'remove', 'add', 'repeat', 'nudge', 'rename', 'retype'),
  name: hostileText,
  value: hostileValue,
});

/** The value with one to three random changes. */
export function nearly(value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc
    .tuple(value, fc.array(change, { minLength: 1, maxLength: 3 }))
    .map(([made, changes]) => changes.reduce(changed, made));
}

type Path = readonly (string | number)[];

function changed(root: unknown, one: Change): unknown {
  const paths = pathsOf(root);
  const path = paths[one.at % paths.length] ?? [];
  if (one.kind === 'remove' && path.length > 0) return without(root, path);
  return replacedAt(root, path, (value) => changedValue(value, one));
}

function changedValue(value: unknown, one: Change): unknown {
  switch (one.kind) {
    case 'add':
      if (Array.isArray(value)) return [...value, one.value];
      return isObject(value) ? withMember(value, one.name, one.value) : one.value;
    case 'repeat':
      if (Array.isArray(value)) return Array.from({ length: 600 }, () => value).flat();
      return typeof value === 'string' ? value.repeat(50) : [value, value];
    case 'nudge':
      return nudged(value, one.at);
    case 'rename': {
      if (!isObject(value)) return one.value;
      const [first, ...others] = Object.entries(value);
      return first === undefined ? value : Object.fromEntries([[one.name, first[1]], ...others]);
    }
    case 'retype':
      return typeof value === 'string' ? [value] : JSON.stringify(value);
    case 'remove':
    case 'replace':
      return one.value;
  }
}

/** A value one step beyond a possible limit. */
function nudged(value: unknown, by: number): unknown {
  if (typeof value === 'number') {
    return by % 3 === 0
      ? HOSTILE_NUMBERS[by % HOSTILE_NUMBERS.length]
      : value + (by % 3 === 1 ? 1 : -1);
  }
  if (typeof value === 'string') return by % 2 === 0 ? `${value}y` : value.slice(0, -1);
  if (Array.isArray(value)) return by % 2 === 0 ? [...value, value[0]] : value.slice(1);
  if (typeof value === 'boolean') return !value;
  return value;
}

function pathsOf(value: unknown, path: Path = []): Path[] {
  const inner = Array.isArray(value)
    ? value.slice(0, 20).map((item, index): [number, unknown] => [index, item])
    : isObject(value)
      ? Object.entries(value)
      : [];
  // Deeply nested values would take too long here.
  if (path.length > 12) return [path];
  return [path, ...inner.flatMap(([step, item]) => pathsOf(item, [...path, step]))];
}

function replacedAt(value: unknown, path: Path, replace: (value: unknown) => unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return replace(value);
  if (Array.isArray(value)) {
    return value.map((item, index) => (index === step ? replacedAt(item, rest, replace) : item));
  }
  if (!isObject(value)) return value;
  return withMember(value, String(step), replacedAt(value[String(step)], rest, replace));
}

function without(root: unknown, path: Path): unknown {
  const last = path.at(-1);
  return replacedAt(root, path.slice(0, -1), (parent) => {
    if (Array.isArray(parent)) return parent.filter((_, index) => index !== last);
    if (!isObject(parent)) return parent;
    return Object.fromEntries(Object.entries(parent).filter(([name]) => name !== last));
  });
}

/** `fromEntries` creates an own member `__proto__`, as JSON.parse does. */
function withMember(value: Record<string, unknown>, name: string, member: unknown): unknown {
  const others = Object.entries(value).filter(([one]) => one !== name);
  return Object.fromEntries([...others, [name, member]]);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
