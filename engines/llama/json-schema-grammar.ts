/**
 * Writes GBNF grammars: the text that a model may generate for a JSON schema. The grammar accepts
 * only valid JSON of the right shape; `strict-schema.ts` lists the keywords that it ignores
 * (`pattern`, `uniqueItems` and others). Properties come in the order of the schema. All sizes are
 * bounded.
 */
import { isJsonObject } from '../../src/json/json-scan.ts';
import { percentDecoded } from '../../src/core/percent-decoding.ts';
import { Alternatives, alikeCounts, impliedType } from './alternatives.ts';
import { numberGrammar } from './number-grammar.ts';
import { notEnforceable } from './refusal.ts';
import { FORMATS } from './string-formats.ts';

/** Maximum sizes of parts that a schema leaves open. */
export interface GrammarLimits {
  readonly stringLength: number;
  /** Items of an array and additional members of an object. */
  readonly items: number;
  readonly digits: number;
  /** Nesting depth of values that the schema does not describe. */
  readonly freeDepth: number;
  readonly whitespace: string;
}

export const OPEN_LIMITS: GrammarLimits = {
  stringLength: Infinity,
  items: Infinity,
  digits: 15,
  freeDepth: 8,
  whitespace: '| " " | "\\n" [ \\t]{0,24}',
};

/** For a demo model, which would otherwise fill its context with one string. */
export const SHORT_LIMITS: GrammarLimits = {
  stringLength: 48,
  items: 3,
  digits: 3,
  freeDepth: 2,
  whitespace: '" "?',
};

const MAX_RULES = 2_000;
/**
 * Maximum number of schema visits; a schema with several references is visited once for each. Equal
 * rules are stored once.
 */
const MAX_VISITS = 20_000;
const MAX_GRAMMAR_CHARACTERS = 500_000;
/** The library expands repetitions into one copy each. */
const MAX_COPIES = 65_536;
const MAX_DEPTH = 64;
/** Longer repetitions are expensive to expand; a higher maximum is treated as unbounded. */
export const MAX_REPETITION = 512;

type Schema = Readonly<Record<string, unknown>>;

export function grammarForSchema(schema: unknown, limits: GrammarLimits): string {
  const writer = new GrammarWriter(limits);
  return writer.finish(`lead ${writer.visitDocument(schema)}`);
}

/** A grammar for one tool call in the Hermes format, after its opening mark. */
export function grammarForToolCall(
  tools: readonly { readonly name: string; readonly parameters?: unknown }[],
  close: string,
  limits: GrammarLimits,
): string {
  const writer = new GrammarWriter(limits);
  writer.alternatives.follow(tools.length);
  const calls = tools.map((tool) => {
    const schema = tool.parameters ?? { type: 'object', properties: {} };
    const parameters = writer.visitDocument(schema);
    const head = literal(`{"name": ${JSON.stringify(tool.name)}, "arguments": `);
    return `${head} ${parameters} ${literal('}')}`;
  });
  return writer.finish(`lead ( ${calls.join(' | ')} ) "\\n"? ${literal(close)}`);
}

class GrammarWriter {
  readonly #rules = new Map<string, string>();
  readonly #names = new Map<string, string>();
  readonly #references = new Map<string, string>();
  readonly #limits: GrammarLimits;
  #document: unknown;
  #documents = 0;
  #visits = 0;
  #copies = 0;
  readonly alternatives = new Alternatives();

  constructor(limits: GrammarLimits) {
    this.#limits = limits;
  }

  finish(root: string): string {
    // Excludes unpaired surrogates.
    const escaped = String.raw`"u" ( [0-9a-ceA-CEfF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2} )`;
    const char = String.raw`[^"\\\x7F\x00-\x1F] | "\\" ( ["\\/bfnrt] | ${escaped} )`;
    const fixed = { root, lead: '[ \\t\\n]{0,4}', ws: this.#limits.whitespace, char };
    const rules = [...this.#rules, ...Object.entries(fixed)];
    const grammar = rules.map(([name, text]) => `${name} ::= ${text}`).join('\n');
    if (grammar.length > MAX_GRAMMAR_CHARACTERS) throw notEnforceable('too large');
    return grammar;
  }

  /** Returns the expression of a schema that is the root document of its `$ref`s. */
  visitDocument(schema: unknown): string {
    this.#document = schema;
    this.#documents += 1;
    return this.visit(schema, 0);
  }

  /** Returns the expression of a schema; a large one becomes a rule of its own. */
  visit(schema: unknown, depth: number): string {
    if (depth > MAX_DEPTH) throw notEnforceable('nested too deeply');
    this.#visits += 1;
    if (this.#visits > MAX_VISITS) throw notEnforceable('too large');
    if (!isJsonObject(schema)) {
      if (schema === false) throw notEnforceable('`false` allows no value');
      return this.#anyValue(0);
    }
    const reference = schema['$ref'];
    if (typeof reference === 'string') return this.#reference(reference, depth);
    if ('const' in schema) return literal(JSON.stringify(schema['const']));
    const listed = schema['enum'];
    if (Array.isArray(listed)) return this.#either(listed.map((v) => literal(JSON.stringify(v))));
    const keyword = Array.isArray(schema['anyOf']) ? 'anyOf' : 'oneOf';
    // The other one of both stays, and is merged into each choice.
    const { [keyword]: choices, ...common } = schema;
    if (Array.isArray(choices)) {
      this.alternatives.follow(choices.length);
      const merged = choices.map((choice) => mergeSchemas(common, choice));
      const counts = alikeCounts(merged, (one) => this.#flatten(one));
      const expressions = merged.map((choice, at) =>
        this.alternatives.beside(counts[at] ?? 1, () => this.visit(choice, depth + 1)),
      );
      return this.#either(expressions);
    }
    if (Array.isArray(schema['allOf'])) return this.visit(this.#merged(schema), depth + 1);
    return this.#typed(schema, depth);
  }

  #typed(schema: Schema, depth: number): string {
    const type = schema['type'] ?? impliedType(schema);
    if (Array.isArray(type)) {
      const types = new Set<unknown>(type);
      return this.#either([...types].map((one) => this.#typed({ ...schema, type: one }, depth)));
    }
    switch (typeof type === 'string' ? type : 'any') {
      case 'object':
        return this.#object(schema, depth);
      case 'array':
        return this.#array(schema, depth);
      case 'string':
        return this.#string(schema);
      case 'integer':
        return this.#number(schema, false);
      case 'number':
        return this.#number(schema, true);
      case 'boolean':
        return '( "true" | "false" )';
      case 'null':
        return '"null"';
      default:
        return this.#anyValue(0);
    }
  }

  #object(schema: Schema, depth: number): string {
    const properties = isJsonObject(schema['properties'])
      ? Object.entries(schema['properties'])
      : [];
    const required = new Set(Array.isArray(schema['required']) ? schema['required'] : []);
    const extra = schema['additionalProperties'];
    const members = properties.map(([key, value]) => ({
      text: `${literal(`${JSON.stringify(key)}:`)} ws ${this.visit(value, depth + 1)}`,
      isRequired: required.has(key),
    }));
    this.alternatives.follow(members.filter(({ isRequired }) => !isRequired).length);
    if (members.length === 0) {
      if (extra === false || 'properties' in schema) return literal('{}');
      const value = isJsonObject(extra) ? this.visit(extra, depth + 1) : this.#anyValue(depth + 1);
      return this.#freeObject(value);
    }
    return this.#rule(`"{" ws ${this.#members(members)} ws "}"`);
  }

  #freeObject(value: string): string {
    const member = this.#rule(`${this.#string({})} ":" ws ${value}`);
    return this.#rule(`"{" ws ( ${several(member, 1, this.#limits.items)} )? ws "}"`);
  }

  /** Places the commas: they separate members, and any optional member may be missing. */
  #members(members: readonly { text: string; isRequired: boolean }[]): string {
    const anchor = members.findIndex((member) => member.isRequired);
    if (anchor >= 0) {
      return members
        .map(({ text, isRequired }, index) => {
          if (index < anchor) return `( ${text} "," ws )?`;
          if (index === anchor) return text;
          return isRequired ? `"," ws ${text}` : `( "," ws ${text} )?`;
        })
        .join(' ');
    }
    let tail = '';
    const starts: string[] = [];
    for (const { text } of members.toReversed()) {
      const member = this.#rule(text);
      starts.unshift(`${member} ${tail}`);
      tail = this.#rule(`( "," ws ${member} )? ${tail}`);
    }
    return `( ${starts.join(' | ')} )?`;
  }

  #array(schema: Schema, depth: number): string {
    const fixed = Array.isArray(schema['prefixItems']) ? schema['prefixItems'] : [];
    if (fixed.length > 0) {
      const items = fixed.map((item) => this.visit(item, depth + 1));
      return this.#rule(`"[" ws ${items.join(' "," ws ')} ws "]"`);
    }
    const { items } = schema;
    const item = items === undefined ? this.#anyValue(depth + 1) : this.visit(items, depth + 1);
    const low = count(schema['minItems']) ?? 0;
    const high = count(schema['maxItems']) ?? Math.max(low, this.#limits.items);
    if (high === 0) return literal('[]');
    const list = several(this.#rule(item), low, high);
    return this.#repeating(low, high, `"[" ws ${low > 0 ? list : `( ${list} )?`} ws "]"`);
  }

  #string(schema: Schema): string {
    const format = FORMATS.get(String(schema['format']));
    if (format !== undefined) return this.#rule(`"\\"" ${format} "\\""`);
    const low = count(schema['minLength']) ?? 0;
    const high = count(schema['maxLength']) ?? Math.max(low, this.#limits.stringLength);
    return this.#repeating(low, high, `"\\"" char${repeat(low, high)} "\\""`);
  }

  #number(schema: Schema, isFractional: boolean): string {
    const { digits } = this.#limits;
    const bounded = numberGrammar(schema, isFractional, digits);
    const number = bounded ?? numberGrammar({}, isFractional, digits) ?? '"0"';
    const hasExponent = isFractional && this.#limits !== SHORT_LIMITS && !hasBounds(schema);
    return this.#rule(hasExponent ? `${number} ( [eE] [-+]? [0-9]{1,3} )?` : number);
  }

  #anyValue(depth: number): string {
    const scalars = `${this.#string({})} | ${this.#number({}, true)} | "true" | "false" | "null"`;
    if (depth >= this.#limits.freeDepth) return this.#rule(scalars);
    const inner = this.#anyValue(depth + 1);
    const list = this.#rule(`"[" ws ( ${several(inner, 1, this.#limits.items)} )? ws "]"`);
    return this.#rule(`${scalars} | ${list} | ${this.#freeObject(inner)}`);
  }

  #reference(reference: string, depth: number): string {
    const key = `${this.#documents} ${reference}`;
    const known = this.#references.get(key);
    if (known !== undefined) {
      this.alternatives.again(key);
      return known;
    }
    const name = `ref-${this.#references.size}`;
    this.#references.set(key, name);
    const text = this.alternatives.inside(key, () =>
      this.visit(this.#targetOf(reference), depth + 1),
    );
    this.#rules.set(name, text);
    return name;
  }

  #merged(schema: Schema): Schema {
    const { allOf, ...rest } = schema;
    const parts: unknown[] = Array.isArray(allOf) ? allOf : [];
    return parts.map((part) => this.#resolve(part)).reduce(mergeSchemas, rest);
  }

  #flatten(schema: unknown): unknown {
    const here = this.#resolve(schema);
    return isJsonObject(here) && Array.isArray(here['allOf']) ? this.#merged(here) : here;
  }

  #resolve(schema: unknown): unknown {
    const reference = isJsonObject(schema) ? schema['$ref'] : undefined;
    return typeof reference === 'string' ? this.#targetOf(reference) : schema;
  }

  #targetOf(reference: string): unknown {
    if (!reference.startsWith('#'))
      throw notEnforceable(`$ref ${reference} is not inside the schema`);
    const target = schemaAt(this.#document, reference);
    if (target === undefined) throw notEnforceable(`$ref ${reference} has no target`);
    return target;
  }

  #either(choices: readonly string[]): string {
    if (choices.length === 0) throw notEnforceable('a list of choices is empty');
    this.alternatives.follow(choices.length);
    return this.#rule(choices.join(' | '));
  }

  /** A rule that repeats an expression; equal repetitions share one rule. */
  #repeating(low: number, high: number, text: string): string {
    if (!this.#names.has(text)) {
      this.#copies += Math.min(high > MAX_REPETITION ? low : high, MAX_REPETITION);
      if (this.#copies > MAX_COPIES) {
        throw notEnforceable(
          `its lengths sum up to more than ${MAX_COPIES}: omit minLength, maxLength, minItems and maxItems where possible`,
        );
      }
    }
    return this.#rule(text);
  }

  #rule(text: string): string {
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    const name = `r${this.#rules.size}`;
    if (this.#rules.size >= MAX_RULES) throw notEnforceable('too large');
    this.#rules.set(name, text);
    this.#names.set(text, name);
    return name;
  }
}

function hasBounds(schema: Schema): boolean {
  const keywords = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'];
  return keywords.some((keyword) => typeof schema[keyword] === 'number');
}

/** Resolves a `$ref` in a document (RFC 6901 fragment); `undefined` without a target. */
export function schemaAt(document: unknown, reference: string): unknown {
  let target = document;
  for (const step of reference.slice(1).split('/').filter(Boolean)) {
    // Array indexes work as object keys here.
    if (typeof target !== 'object' || target === null) return undefined;
    const key = percentDecoded(step).replaceAll('~1', '/').replaceAll('~0', '~');
    target = Object.hasOwn(target, key) ? (target as Schema)[key] : undefined;
  }
  return target;
}

/** Merges two schemas as `allOf` does, for the keywords that the grammar supports. */
export function mergeSchemas(left: Schema, right: unknown): Schema {
  if (!isJsonObject(right)) return left;
  const merged: Record<string, unknown> = { ...left, ...right };
  if (isJsonObject(left['properties']) && isJsonObject(right['properties'])) {
    merged['properties'] = { ...left['properties'], ...right['properties'] };
  }
  if (Array.isArray(left['required']) && Array.isArray(right['required'])) {
    merged['required'] = [...left['required'], ...right['required']];
  }
  return merged;
}

function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : undefined;
}

function repeat(low: number, high: number): string {
  const from = Math.min(low, MAX_REPETITION);
  if (high > MAX_REPETITION) return from === 0 ? '*' : `{${from},}`;
  return `{${from},${Math.max(high, from)}}`;
}

/** Comma-separated items, at least one; the limits count every item. */
function several(item: string, low: number, high: number): string {
  return `${item} ( "," ws ${item} )${repeat(Math.max(low - 1, 0), high - 1)}`;
}

/** A GBNF literal; its escapes are those of JSON. */
function literal(text: string): string {
  return JSON.stringify(text);
}
