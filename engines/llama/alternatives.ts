/**
 * How many alternatives of a schema the engine has to follow at once. Those whose values begin alike
 * are followed side by side until a character tells them apart, and what nests in them multiplies.
 * Reads schemas only; `json-schema-grammar.ts` writes the grammar.
 */
import { isJsonObject } from '../../src/json/json-scan.ts';
import { notEnforceable } from './refusal.ts';

type Schema = Readonly<Record<string, unknown>>;

/** Follows `$ref` and joins `allOf`; gives back what is no schema of an object as it is. */
type Flatten = (schema: unknown) => unknown;

/**
 * Alternatives that may be open at one place. The library follows all of them with each character, and
 * compares each with each, on the one thread that all answers of the engine share.
 */
const MAX_OPEN = 1_000;
/** Schemas that are looked at to find how one begins; beyond them it may begin in any way. */
const MAX_LOOKED_AT = 64;
/** Members of an object that are looked at to tell it from others. */
const MAX_MEMBERS = 16;
const ANY = '*';
const OBJECT = '{';

/** A reference that the visit is inside of. */
interface Inside {
  readonly key: string;
  /** Alternatives that were open where it was met. */
  readonly open: number;
  /** References that it was seen to lead to, itself among them. */
  readonly leadsTo: Set<string>;
}

/** Counts them while a schema is visited. Each method throws a refusal when there are too many. */
export class Alternatives {
  /** Where the visit is, inside the last reference of `#inside`, and the most of them so far. */
  #open = 1;
  #most = 1;
  readonly #inside: Inside[] = [];
  readonly #visited = new Map<string, Pick<Inside, 'leadsTo'> & { readonly most: number }>();

  /** So many begin here beside each other. */
  follow(count: number): void {
    this.#most = Math.max(this.#most, this.#open * count);
    if (this.#most <= MAX_OPEN) return;
    throw notEnforceable(
      `more than ${MAX_OPEN} alternatives are open at one place; list fewer, or let them begin with different members`,
    );
  }

  /** Visits a choice that so many, itself included, begin as. */
  beside<T>(count: number, visit: () => T): T {
    this.follow(count);
    const open = this.#open;
    this.#open *= count;
    const visited = visit();
    this.#open = open;
    return visited;
  }

  /** Visits what a reference leads to, when it is met for the first time. */
  inside<T>(key: string, visit: () => T): T {
    const [open, outer] = [this.#open, this.#most];
    const leadsTo = new Set([key]);
    this.#inside.push({ key, open, leadsTo });
    [this.#open, this.#most] = [1, 1];
    const visited = visit();
    const most = this.#most;
    this.#inside.pop();
    this.#visited.set(key, { most, leadsTo });
    [this.#open, this.#most] = [open, outer];
    this.follow(most);
    return visited;
  }

  /** A reference is met again: the visit may be inside of it, or of one that it leads to. */
  again(key: string): void {
    const { most, leadsTo } = this.#visited.get(key) ?? { most: 1, leadsTo: [key] };
    for (const target of leadsTo) {
      const at = this.#inside.findIndex((one) => one.key === target);
      if (at < 0) continue;
      const within = this.#inside.slice(at + 1);
      for (const one of within) one.leadsTo.add(target);
      // Each time around, as many again: an array of arrays, of which two kinds begin alike.
      if (this.#open > 1 || within.some(({ open }) => open > 1)) this.follow(Infinity);
    }
    this.follow(most);
  }
}

/** For each choice, how many of them, itself included, begin as it does. */
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
      // All that go on from it, and those that end where it goes on.
      const [, ...shorter] = prefixesOf(head);
      const before = shorter.reduce((sum, prefix) => sum + (exact.get(prefix) ?? 0), 0);
      return (counts.get(head) ?? 0) + before;
    });
    return Math.min(choices.length, Math.max(1, ...alike) + any);
  });
}

/** `{` `a` `1` as one text with zeros between, the longest first: itself and what it begins with. */
function prefixesOf(head: string): string[] {
  const parts = head.split('\0');
  return parts.map((_, at) => parts.slice(0, parts.length - at).join('\0'));
}

/** The ways in which values of a schema begin; of an object with its first members. */
function headsOf(schema: unknown, flatten: Flatten): readonly string[] {
  const heads: string[] = [];
  const left = [schema];
  for (let looked = 0; left.length > 0; looked += 1) {
    if (looked >= MAX_LOOKED_AT) return [ANY];
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

/** By the required members that it opens with: their names, and the values of those that are fixed. */
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

/** Nothing nests in it. */
function isScalar(schema: unknown): boolean {
  const type = isJsonObject(schema) ? schema['type'] : undefined;
  return typeof type === 'string' && type !== 'object' && type !== 'array';
}

function fixedValues(schema: Schema): readonly unknown[] | undefined {
  if ('const' in schema) return [schema['const']];
  return Array.isArray(schema['enum']) ? schema['enum'] : undefined;
}

/** The type that the keywords of a schema speak of, where it names none. */
export function impliedType(schema: Schema): string | undefined {
  if ('properties' in schema || 'additionalProperties' in schema) return 'object';
  if ('items' in schema || 'prefixItems' in schema) return 'array';
  return undefined;
}
