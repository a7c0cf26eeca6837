/** Converts zod schemas to JSON Schemas; schemas with an id become components. */
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import type { JsonSchema } from '../describe.ts';

export class Components {
  readonly #schemas = new Map<string, JsonSchema>();

  /** Returns the JSON Schema of a request (`input`) or a response (`output`). */
  schema(source: z.ZodType | JsonSchema, io: 'input' | 'output'): JsonSchema {
    if (!(source instanceof z.ZodType)) return source;
    const made = z.toJSONSchema(source, jsonSchemaOptions(io));
    const { $schema: _dialect, $defs: definitions = {}, id, ...rest } = made;
    const names = new Map<string, string>();
    for (const [name, definition] of Object.entries(definitions)) {
      names.set(name, this.#nameFor(name, definition, io));
    }
    const root = typeof id === 'string' ? this.#nameFor(id, rest, io) : undefined;
    for (const [name, definition] of Object.entries(definitions)) {
      this.#schemas.set(names.get(name) ?? name, withReferences(definition, names));
    }
    const schema = withReferences(rest, names);
    if (root === undefined) return schema;
    this.#schemas.set(root, schema);
    return { $ref: `#/components/schemas/${root}` };
  }

  /** Adds a component with the given name, and returns a reference to it. */
  define(name: string, schema: JsonSchema): JsonSchema {
    this.#schemas.set(name, schema);
    return { $ref: `#/components/schemas/${name}` };
  }

  all(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Input and output schemas of one id can differ: a member with a default is optional in a request. */
  #nameFor(name: string, definition: unknown, io: 'input' | 'output'): string {
    const known = this.#schemas.get(name);
    if (known === undefined) return name;
    const same = isDeepStrictEqual(known, withReferences(definition, new Map()));
    return same || io === 'output' ? name : `${name}Input`;
  }
}

/** For a schema after a transformation (which drops nulls), zod would return an empty schema; this uses the inner one. */
function jsonSchemaOptions(io: 'input' | 'output'): z.core.ToJSONSchemaParams {
  return {
    target: 'draft-2020-12',
    io,
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      if (!(zodSchema instanceof z.ZodPipe) || !(zodSchema.in instanceof z.ZodTransform)) return;
      const { $schema: _dialect, ...inner } = z.toJSONSchema(
        zodSchema.out as z.ZodType, // classic schemas have classic parts
        jsonSchemaOptions(io),
      );
      Object.assign(jsonSchema, inner);
    },
  };
}

/** Replaces local references by references to components. */
function withReferences(schema: unknown, names: ReadonlyMap<string, string>): JsonSchema {
  const text = JSON.stringify(schema, (key, value: unknown) => {
    if (key !== '$ref' || typeof value !== 'string') return withoutId(value);
    const name = value.replace('#/$defs/', '');
    return `#/components/schemas/${names.get(name) ?? name}`;
  });
  return JSON.parse(text) as JsonSchema; // only values of `$ref` change
}

/** Removes the id, which is the name of the component. */
function withoutId(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || !('type' in value)) return value;
  if (!('id' in value) || typeof value.id !== 'string') return value;
  const { id: _id, ...rest } = value;
  return rest;
}

/** Replaces `svc` in names by the service name, which has only letters and digits. */
export function* named<T>(node: T, serviceName: string): Generator<undefined, T> {
  if (serviceName === 'svc') return node;
  const written = JSON.stringify(node);
  yield;
  const text = written
    .replaceAll('svc_', `${serviceName}_`)
    .replaceAll('x-svc-', `x-${serviceName}-`)
    .replaceAll('SVC_', `${serviceName.toUpperCase()}_`);
  yield;
  return JSON.parse(text) as T; // renaming keeps the shape
}
