/**
 * Turns validation issues of a schema into messages for operators: file and line, the value, the allowed
 * values and the most similar one. Messages never contain secrets.
 */
import * as z from 'zod';

import { didYouMean } from '../core/nearest-word.ts';
import type { Path, YamlSource } from './yaml-source.ts';

export interface ConfigProblem {
  /** Path of the file as the operator wrote it, or `environment`. */
  readonly file: string;
  readonly line?: number;
  readonly column?: number;
  /** For example `models[0].price.input`; empty for a problem of the whole file. */
  readonly path: string;
  /** Capital letter, no full stop. */
  readonly message: string;
}

/** Returns for example `farebox.yaml:12:5: models[0].price.input: Must be …`. */
export function formatProblem(problem: ConfigProblem): string {
  const place = [problem.file, problem.line, problem.column].filter((part) => part !== undefined);
  const path = problem.path === '' ? '' : `${problem.path}: `;
  return `${place.join(':')}: ${path}${problem.message}`;
}

/** `['models', 0, 'id']` -> `models[0].id`. */
export function pathText(path: Path): string {
  let text = '';
  for (const key of path) {
    if (typeof key === 'number') text += `[${key}]`;
    else text += text === '' ? key : `.${key}`;
  }
  return text;
}

/** The parts of a JSON schema that messages and the reference page use. */
export interface SchemaNode {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly additionalProperties?: SchemaNode | boolean;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
  readonly required?: readonly string[];
  readonly minItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly format?: string;
  readonly secret?: boolean;
}

/** Returns the JSON schema of the input of `schema`. */
export function schemaTree(schema: z.ZodType): SchemaNode {
  // The type of zod is wider.
  return z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as SchemaNode;
}

/** Returns the schema at a path, or `undefined` if any value is valid there. */
export function schemaAt(root: SchemaNode, path: Path): SchemaNode | undefined {
  let node: SchemaNode | undefined = root;
  for (const key of path) node = node === undefined ? undefined : stepInto(node, key);
  return node;
}

function stepInto(node: SchemaNode, key: string | number): SchemaNode | undefined {
  if (typeof key === 'number' && node.items !== undefined) return node.items;
  const property = node.properties?.[String(key)];
  if (property !== undefined) return property;
  if (typeof node.additionalProperties === 'object') return node.additionalProperties;
  for (const option of node.anyOf ?? []) {
    const found = stepInto(option, key);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Collects the problems and warnings of a file. */
export class Diagnostics {
  readonly source: YamlSource;
  readonly problems: ConfigProblem[];
  readonly warnings: ConfigProblem[] = [];
  readonly #file: string;

  constructor(file: string, source: YamlSource) {
    this.#file = file;
    this.source = source;
    this.problems = source.problems.map(({ path, ...rest }) => ({
      file,
      ...rest,
      path: pathText(path),
    }));
  }

  /** With `key` the position is the one of the key instead of the value. */
  problem(path: Path, message: string, what: 'key' | 'value' = 'value'): void {
    this.problems.push(this.#at(path, message, what));
  }

  warning(path: Path, message: string): void {
    this.warnings.push(this.#at(path, message, 'value'));
  }

  #at(path: Path, message: string, what: 'key' | 'value'): ConfigProblem {
    const position = this.source.positionOf(path, what);
    return { file: this.#file, ...position, path: pathText(path), message };
  }
}

/**
 * Adds a problem for each empty value, except of a section or a list that can be empty: the default of a
 * setting such as `backup.recipient` can turn a protection off.
 */
export function rejectEmptySettings(schema: SchemaNode, diagnostics: Diagnostics): void {
  for (const path of diagnostics.source.emptyPaths) {
    const node = schemaAt(schema, path);
    if (node === undefined || canBeEmpty(node)) continue;
    diagnostics.problem(path, 'The key has no value; write one, or remove the key', 'key');
  }
}

function canBeEmpty(node: SchemaNode): boolean {
  return node.type === 'object' || (node.type === 'array' && node.minItems === undefined);
}

/** Adds the issues of a schema to the diagnostics, in the order of the file. */
export function explainIssues(
  issues: readonly z.core.$ZodIssue[],
  schema: SchemaNode,
  diagnostics: Diagnostics,
): void {
  for (const issue of issues) explain(issue, [], schema, diagnostics);
  diagnostics.problems.sort(
    (a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0),
  );
}

function explain(
  issue: z.core.$ZodIssue,
  base: Path,
  schema: SchemaNode,
  diagnostics: Diagnostics,
): void {
  // Paths of a YAML file contain no symbols.
  const path = [...base, ...(issue.path as Path)];
  if (issue.code === 'unrecognized_keys') {
    const allowed = Object.keys(schemaAt(schema, path)?.properties ?? {});
    for (const key of issue.keys) {
      diagnostics.problem([...path, key], unknownKey(key, allowed), 'key');
    }
    return;
  }
  if (issue.code === 'invalid_union') {
    const deepest = issue.errors
      .flat()
      .toSorted((a, b) => b.path.length - a.path.length)
      .find((inner) => inner.path.length > 0);
    if (deepest !== undefined) {
      explain(deepest, path, schema, diagnostics);
      return;
    }
  }
  if (issue.code === 'invalid_key' || issue.code === 'invalid_element') {
    diagnostics.problem(path, issue.issues[0]?.message ?? issue.message, 'key');
    return;
  }
  const value = valueAt(diagnostics.source.value, path);
  if (value === undefined && path.length > 0) {
    const about = schemaAt(schema, path)?.description;
    const hint = about === undefined ? '' : `: ${firstSentence(about)}`;
    diagnostics.problem(path, `The key "${String(path.at(-1))}" is missing${hint}`);
    return;
  }
  const isHidden = diagnostics.source.environmentTexts.has(value) || isSecret(schema, path);
  diagnostics.problem(path, sentenceOf(issue, value, schemaAt(schema, path), isHidden));
}

/** A longer list of keys is omitted if there is a similar key. */
const LISTED_KEYS = 12;

function unknownKey(key: string, allowed: readonly string[]): string {
  const hint = didYouMean(key, allowed);
  const list = allowed.join(', ');
  if (hint === '') return `Unknown key "${key}". Allowed: ${list}`;
  const problem = `Unknown key "${key}"${hint}`;
  return allowed.length > LISTED_KEYS ? problem : `${problem} Allowed: ${list}`;
}

function sentenceOf(
  issue: z.core.$ZodIssue,
  value: unknown,
  schema: SchemaNode | undefined,
  isHidden: boolean,
): string {
  const shown = shownValue(value, isHidden);
  if (issue.code === 'invalid_value') {
    const allowed = issue.values.map(String);
    const hint = typeof value === 'string' ? didYouMean(value, allowed) : '';
    return `${shown} is not allowed${hint || '.'} Allowed: ${allowed.map((v) => v || '""').join(', ')}`;
  }
  if (issue.code === 'invalid_type' || issue.code === 'invalid_union') {
    return `Must be ${kindOf(schema)}, not ${shown}${quoteHint(schema, value)}`;
  }
  if (issue.code === 'too_small') {
    return `Must ${measure(issue.origin)} at least ${issue.minimum}, not ${shown}`;
  }
  if (issue.code === 'too_big') {
    return `Must ${measure(issue.origin)} at most ${issue.maximum}, not ${shown}`;
  }
  return issue.message;
}

function measure(origin: string): string {
  return origin === 'string' || origin === 'array' ? 'have a length of' : 'be';
}

function quoteHint(schema: SchemaNode | undefined, value: unknown): string {
  const wantsText = schema?.type === 'string';
  return wantsText && typeof value !== 'object' ? '; write it in quotes' : '';
}

const KINDS: Readonly<Record<string, string>> = {
  string: 'a text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a group of keys',
};

function kindOf(schema: SchemaNode | undefined): string {
  if (schema === undefined) return 'something else';
  if (schema.format === 'usd') return 'an amount of USD';
  const options = schema.anyOf ?? [schema];
  const types = options.flatMap((option) => option.type ?? []);
  const kinds = [...new Set(types.map((type) => KINDS[type] ?? type))];
  return kinds.length === 0 ? 'something else' : kinds.join(' or ');
}

/** Describes a value; secrets and values of the environment are hidden. */
function shownValue(value: unknown, isHidden: boolean): string {
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'a group of keys';
  if (isHidden) return 'the given value';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  const short = text.length > 40 ? `${text.slice(0, 37)}…` : text;
  return typeof value === 'string' ? `"${short}"` : short;
}

const SOUNDS_SECRET = /(key|secret|password|token|authorization|mnemonic)$/i;

/**
 * True if the setting at `path` or a parent is marked as a secret, or if its name is the one of a secret
 * and it is not marked otherwise.
 */
export function isSecret(root: SchemaNode, path: Path): boolean {
  const last = path.at(-1);
  if (schemaAt(root, path)?.secret === false) return false;
  if (typeof last === 'string' && SOUNDS_SECRET.test(last)) return true;
  for (let length = 1; length <= path.length; length += 1) {
    const node = schemaAt(root, path.slice(0, length));
    if (node?.secret === true) return true;
  }
  return false;
}

function firstSentence(text: string): string {
  return (text.split(/(?<=\.)\s/)[0] ?? text).replace(/\.$/, '');
}

export function valueAt(value: unknown, path: Path): unknown {
  let found = value;
  for (const key of path) {
    if (found === null || typeof found !== 'object') return undefined;
    found = (found as Record<string | number, unknown>)[key]; // indexing plain parsed data
  }
  return found;
}
