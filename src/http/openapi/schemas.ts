/**
 * JSON Schemas of the document, made from zod. Schemas with an id become components, once; what
 * the wire calls `svc` gets the service's own name.
 */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { JsonSchema } from '../describe.ts';

export class Components {
  readonly #schemas = new Map<string, JsonSchema>();

  /** The JSON Schema of a request (`input`) or of an answer (`output`). */
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

  /** Puts a schema in under a name of its own. */
  define(name: string, schema: JsonSchema): JsonSchema {
    this.#schemas.set(name, schema);
    return { $ref: `#/components/schemas/${name}` };
  }

  all(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** What is asked and what is answered can differ under one id: defaults are optional to send. */
  #nameFor(name: string, definition: unknown, io: 'input' | 'output'): string {
    const known = this.#schemas.get(name);
    if (known === undefined) return name;
    const same = isDeepStrictEqual(known, withReferences(definition, new Map()));
    return same || io === 'output' ? name : `${name}Input`;
  }
}

/** A transformation before a schema (nulls dropped) hides it; what follows is what is taken. */
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

/** The schema with its local references pointing into the components. */
function withReferences(node: unknown, names: ReadonlyMap<string, string>): JsonSchema {
  // A JSON Schema stays one: only texts under `$ref` change.
  return rewrite(node, names) as JsonSchema;
}

function rewrite(node: unknown, names: ReadonlyMap<string, string>): unknown {
  if (Array.isArray(node)) return node.map((item) => rewrite(item, names));
  if (typeof node !== 'object' || node === null) return node;
  const members = Object.entries(node).flatMap(([key, value]): [string, unknown][] => {
    if (key === 'id' && typeof value === 'string' && 'type' in node) return [];
    if (key !== '$ref' || typeof value !== 'string') return [[key, rewrite(value, names)]];
    const name = value.replace('#/$defs/', '');
    return [[key, `#/components/schemas/${names.get(name) ?? name}`]];
  });
  return Object.fromEntries(members);
}

/** Members and texts of the wire's `svc` under the service's own name. */
export function named<T>(node: T, serviceName: string): T {
  if (serviceName === 'svc') return node;
  const rename = (text: string): string =>
    text
      .replaceAll('svc_', `${serviceName}_`)
      .replaceAll('x-svc-', `x-${serviceName}-`)
      .replaceAll('SVC_', `${serviceName.toUpperCase()}_`);
  const walk = (value: unknown): unknown => {
    if (typeof value === 'string') return rename(value);
    if (Array.isArray(value)) return value.map(walk);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [rename(key), walk(item)]),
    );
  };
  return walk(node) as T; // renaming keeps the shape
}
