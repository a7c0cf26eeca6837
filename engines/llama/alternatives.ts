/**
 * Counts how many alternatives of a schema the grammar engine has to track at once. Alternatives
 * that start with the same text stay open until a character differs, and nested alternatives
 * multiply. This file reads schemas only; `json-schema-grammar.ts` writes the grammar.
 */
import { isJsonObject } from '../../src/json/json-scan.ts';
import { notEnforceable } from './refusal.ts';

type Schema = Readonly<Record<string, unknown>>;

/** Resolves `$ref` and merges `allOf`; returns other values unchanged. */
type Flatten = (schema: unknown) => unknown;

/**
 * Maximum number of alternatives that may be open at one position. The library compares every pair
 * of them for each character, on the thread that all responses of the engine share.
 */
const MAX_OPEN = 1_000;
/** Maximum number of schemas read to find the starts of one; beyond it, any start is assumed. */
const MAX_SCHEMAS_READ = 64;
/** Maximum number of members of an object that are read to tell it from others. */
const MAX_MEMBERS = 16;
const ANY = '*';
const OBJECT = '{';

interface VisitedReference {
  readonly key: string;
  /** Number of open alternatives where the reference occurs. */
  readonly open: number;
  /** References reachable from this one, itself included. */
  readonly leadsTo: Set<string>;
}

/**
 * Counts open alternatives during the visit of a schema. Each method throws an error response if
 * there are more than `MAX_OPEN`.
 */
export class Alternatives {
  /**
   * Open alternatives at the current position, within the innermost reference of `#references`, and the
   * maximum so far.
   */
  #open = 1;
  #most = 1;
  readonly #references: VisitedReference[] = [];
  readonly #visited = new Map<
    string,
    Pick<VisitedReference, 'leadsTo'> & { readonly most: number }
  >();

  /** Records `count` alternatives that start at this position. */
  follow(count: number): void {
    this.#most = Math.max(this.#most, this.#open * count);
    if (this.#most <= MAX_OPEN) return;
    throw notEnforceable(
      `more than ${MAX_OPEN} alternatives are open at one position: list fewer, or start them with different members`,
    );
  }

  /** Visits a choice that shares its start with `count` choices, itself included. */
  beside<T>(count: number, visit: () => T): T {
    this.follow(count);
    const open = this.#open;
    this.#open *= count;
    const visited = visit();
    this.#open = open;
    return visited;
  }

  /** Visits the target of a reference at its first occurrence. */
  inside<T>(key: string, visit: () => T): T {
    const [open, outer] = [this.#open, this.#most];
    const leadsTo = new Set([key]);
    this.#references.push({ key, open, leadsTo });
    [this.#open, this.#most] = [1, 1];
    const visited = visit();
    const most = this.#most;
    this.#references.pop();
    this.#visited.set(key, { most, leadsTo });
    [this.#open, this.#most] = [open, outer];
    this.follow(most);
    return visited;
  }

  /** Records a further occurrence of a reference, possibly inside its own target (recursion). */
  again(key: string): void {
    const { most, leadsTo } = this.#visited.get(key) ?? { most: 1, leadsTo: [key] };
    for (const target of leadsTo) {
      const at = this.#references.findIndex((one) => one.key === target);
      if (at < 0) continue;
      const within = this.#references.slice(at + 1);
      for (const one of within) one.leadsTo.add(target);
      // Recursion multiplies the open alternatives without limit: for example an array of arrays
      // with two item types that start alike.
      if (this.#open > 1 || within.some(({ open }) => open > 1)) this.follow(Infinity);
    }
    this.follow(most);
  }
}

/** For each choice, the number of choices (itself included) that start the same way. */
export function alikeCounts(choices: readonly unknown[], flatten: Flatten): number[] {
  const heads = choices.map((choice) => [...new Set(headsOf(choice, flatten))]);
  const counts = new Map<string, number>();
  for (const head of heads.flat()) {
    for (const prefix of prefixesOf(head)) counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
  }
  const exact = new Map<string, number>();
  for (const head of heads.flat()) exact.set(head, (exact.get(head) ?? 0) + 1);
  const any = exact.get(ANY) ?? 0;
  return heads.map((own) => {
    if (own.includes(ANY)) return choices.length;
    const alike = own.map((head) => {
      // Counts the heads that extend this one, and the heads that are a prefix of it.
      const [, ...shorter] = prefixesOf(head);
      const before = shorter.reduce((sum, prefix) => sum + (exact.get(prefix) ?? 0), 0);
      return (counts.get(head) ?? 0) + before;
    });
    return Math.min(choices.length, Math.max(1, ...alike) + any);
  });
}

/** All prefixes of a head, the longest first. NUL characters separate the parts of a head. */
function prefixesOf(head: string): string[] {
  const parts = head.split('\0');
  return parts.map((_, at) => parts.slice(0, parts.length - at).join('\0'));
}

/** The possible starts of values of a schema; for an object, including its first members. */
function headsOf(schema: unknown, flatten: Flatten): readonly string[] {
  const heads: string[] = [];
  const left = [schema];
  for (let read = 0; left.length > 0; read += 1) {
    if (read >= MAX_SCHEMAS_READ) return [ANY];
    const one = flatten(left.pop());
    if (!isJsonObject(one)) return [ANY];
    const choices = one['anyOf'] ?? one['oneOf'];
    if (Array.isArray(choices)) left.push(...choices);
    else heads.push(...headsOfOne(one));
  }
  return heads;
}

function headsOfOne(schema: Schema): readonly string[] {
  const values = fixedValues(schema);
  if (values !== undefined) return values.map((value) => JSON.stringify(value)[0] ?? ANY);
  const types = [schema['type'] ?? impliedType(schema)].flat();
  return types.flatMap((type) => {
    if (type === 'object') return headsOfObject(schema);
    if (type === 'array') return ['['];
    if (type === 'string') return ['"'];
    if (type === 'integer' || type === 'number') return ['0'];
    return type === 'boolean' || type === 'null' ? [type] : [ANY];
  });
}

/** Starts by the leading required members: their names, and their values where these are fixed. */
function headsOfObject({ properties, required }: Schema): readonly string[] {
  let heads = [OBJECT];
  const needed = new Set(Array.isArray(required) ? required : []);
  const members = isJsonObject(properties) ? Object.entries(properties) : [];
  for (const [key, value] of members.slice(0, MAX_MEMBERS)) {
    if (!needed.has(key)) break;
    heads = heads.map((head) => `${head}\0${JSON.stringify(key)}`);
    const values = isJsonObject(value) ? fixedValues(value) : undefined;
    if (values === undefined) {
      if (isScalar(value)) continue;
      break;
    }
    heads = heads.flatMap((head) => values.map((one) => `${head}\0${JSON.stringify(one)}`));
    if (values.length > 1) break;
  }
  return heads;
}

/** Whether values of the schema contain no other values. */
function isScalar(schema: unknown): boolean {
  const type = isJsonObject(schema) ? schema['type'] : undefined;
  return typeof type === 'string' && type !== 'object' && type !== 'array';
}

function fixedValues(schema: Schema): readonly unknown[] | undefined {
  if ('const' in schema) return [schema['const']];
  return Array.isArray(schema['enum']) ? schema['enum'] : undefined;
}

/** The type that the keywords of a schema imply if it has no `type`. */
export function impliedType(schema: Schema): string | undefined {
  if ('properties' in schema || 'additionalProperties' in schema) return 'object';
  if ('items' in schema || 'prefixItems' in schema) return 'array';
  return undefined;
}
