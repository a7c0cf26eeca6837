/**
 * Reads YAML and keeps the position of each value, the exact digits of numbers, and which values come from
 * the environment.
 *
 * `${NAME}` and `${NAME:-default}` are replaced in text values, also within `{ }` and `[ ]`, and `$${` is a
 * literal `${`. Before parsing, the characters of such a token are mapped one by one to a private Unicode
 * range, so that YAML reads them as plain text and positions do not change.
 */
import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
} from 'yaml';

export type Path = readonly (string | number)[];

export interface Position {
  readonly line: number;
  readonly column: number;
}

export interface SourceProblem extends Position {
  readonly path: Path;
  readonly message: string;
}

export interface YamlSource {
  /** The plain value; empty values (`null`) are `undefined`. */
  readonly value: unknown;
  readonly problems: readonly SourceProblem[];
  /** Paths of the empty values. */
  readonly emptyPaths: readonly Path[];
  /** Paths (as `pathKey`) whose text contains a value of the environment. */
  readonly fromEnvironment: ReadonlySet<string>;
  /** Texts that contain a value of the environment; an alias repeats them at other paths. */
  readonly environmentTexts: ReadonlySet<unknown>;
  /** Returns the position of the value or its key, or of the nearest parent if it is missing. */
  positionOf(path: Path, what: 'key' | 'value'): Position;
}

export type Environment = Readonly<Record<string, string | undefined>>;

export function pathKey(path: Path): string {
  return JSON.stringify(path);
}

export function readYaml(text: string, environment: Environment): YamlSource {
  const lines = new LineCounter();
  const document = parseDocument(hideTokens(text.replace(/^\uFEFF/, ' ')), {
    lineCounter: lines,
    prettyErrors: false,
    merge: true,
  });
  const at = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  };
  const problems: SourceProblem[] = [];
  const fromEnvironment = new Set<string>();
  const environmentTexts = new Set<string>();
  const syntax = document.errors[0];
  if (syntax === undefined) {
    const problem = (path: Path, message: string, node: Node): void => {
      problems.push({ path, message, ...at(node.range?.[0] ?? 0) });
    };
    const resolving = { environment, fromEnvironment, environmentTexts, problem };
    resolveScalars(document.contents, [], resolving);
  } else {
    // The following errors are consequences of the first one.
    const message = sentenceOfSyntax(syntax.code, showTokens(syntax.message));
    problems.push({ path: [], message, ...at(syntax.pos[0]) });
  }
  let value: unknown;
  const emptyPaths: Path[] = [];
  try {
    if (problems.length === 0) {
      value = withoutNulls(document.toJS({ maxAliasCount: 1_000 }), [], emptyPaths);
    }
  } catch {
    // Thrown only if `maxAliasCount` is exceeded.
    const message = 'The file must use at most 1,000 aliases (*name)';
    problems.push({ path: [], message, line: 1, column: 1 });
  }
  const positionOf: YamlSource['positionOf'] = (path, what) => at(offsetOf(document, path, what));
  return { value, problems, emptyPaths, fromEnvironment, environmentTexts, positionOf };
}

const SYNTAX: Readonly<Record<string, string>> = {
  TAB_AS_INDENT: 'Tabs cannot indent YAML; use spaces',
  DUPLICATE_KEY: 'The key is duplicated; remove one',
  MULTIPLE_DOCS: 'The file must contain one document; remove the second `---`',
  MISSING_CHAR: 'A comma, a colon or a closing bracket or quote is missing',
  BAD_INDENT: 'A bracket is not closed, or the indentation does not fit the lines above',
};

function sentenceOfSyntax(code: string, message: string): string {
  const detail = message.replace(/\s+/g, ' ').replace(/[.:]$/, '');
  const known = SYNTAX[code];
  return known === undefined ? `Not valid YAML: ${detail}` : `${known} (${detail})`;
}

interface Resolving {
  readonly environment: Environment;
  readonly fromEnvironment: Set<string>;
  readonly environmentTexts: Set<string>;
  problem(path: Path, message: string, node: Node): void;
}

/** Restores the digits of numbers and replaces variables in texts, in `node` and its children. */
function resolveScalars(node: unknown, path: Path, resolving: Resolving): void {
  if (isMap(node)) {
    for (const { key, value } of node.items) {
      if (isCollection(key)) {
        const message = 'A key must be a text; inside { } write "${NAME}" in quotes';
        resolving.problem(path, message, key);
      } else if (isScalar(key)) {
        if (typeof key.value === 'number') key.value = exactNumber(key.value, key.source);
        else if (typeof key.value === 'string') key.value = showTokens(key.value);
      }
      resolveScalars(value, [...path, keyText(key)], resolving);
    }
  } else if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) {
      resolveScalars(item, [...path, index], resolving);
    }
  } else if (isScalar(node) && typeof node.value === 'number') {
    node.value = exactNumber(node.value, node.source);
  } else if (isScalar(node) && typeof node.value === 'string') {
    const resolved = substitute(node.value, resolving.environment);
    node.value = resolved.text;
    if (resolved.used) {
      resolving.fromEnvironment.add(pathKey(path));
      resolving.environmentTexts.add(resolved.text);
    }
    for (const message of resolved.problems) resolving.problem(path, message, node);
  }
}

export function keyText(key: unknown): string {
  return showTokens(String(isScalar(key) ? key.value : key));
}

/** Returns the number, or its source text if the number is not exact (`0x…`, long decimals). */
function exactNumber(value: number, source = String(value)): number | string {
  return canonical(source) === canonical(String(value)) ? value : source;
}

/** Normalizes a decimal to sign, digits and power of ten, for comparisons. */
function canonical(decimal: string): string | undefined {
  const match = /^([-+]?)(\d*)\.?(\d*)(?:[eE]([-+]?\d+))?$/.exec(decimal);
  if (match === null) return undefined;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = match;
  const digits = (whole + fraction).replace(/^0+/, '');
  const trimmed = digits.replace(/0+$/, '');
  if (trimmed === '') return '0';
  const power = Number(exponent) - fraction.length + (digits.length - trimmed.length);
  return `${sign === '-' ? '-' : ''}${trimmed}e${power}`;
}

const TOKEN = /\$?\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}\n]*)?\}/g;
const HIDDEN = /[\uE020-\uE07E]/g;
const PRIVATE = 0xe000;

/** Maps the characters of tokens to the private range. */
export function hideTokens(text: string): string {
  return text.replace(TOKEN, (token) => token.replace(/[ -~]/g, (unit) => moved(unit, PRIVATE)));
}

export function showTokens(text: string): string {
  return text.replace(HIDDEN, (unit) => moved(unit, -PRIVATE));
}

function moved(unit: string, by: number): string {
  return String.fromCharCode(unit.charCodeAt(0) + by);
}

function substitute(hidden: string, environment: Environment) {
  const problems: string[] = [];
  let used = false;
  const unknown = hidden.replace(HIDDEN, '').match(/\$\{[^}]*\}?/);
  if (unknown !== null) {
    problems.push(
      `"${unknown[0]}" is not a variable; write \${NAME} or \${NAME:-default}, or $\${ for a literal \${`,
    );
  }
  const text = showTokens(hidden).replace(TOKEN, (token) => {
    if (token.startsWith('$$')) return token.slice(1);
    const [name = '', ...rest] = token.slice(2, -1).split(':-');
    const value = environment[name];
    used = true;
    if (value !== undefined && value !== '') return value;
    if (rest.length > 0) return rest.join(':-');
    problems.push(
      `The environment variable ${name} is not set; set it, or write \${${name}:-default}`,
    );
    return '';
  });
  return { text, used, problems };
}

/** Replaces `null` (`key:` without a value) by `undefined`, and adds its path to `emptyPaths`. */
function withoutNulls(value: unknown, path: Path, emptyPaths: Path[]): unknown {
  if (value === null || value === undefined) {
    emptyPaths.push(path);
    return undefined;
  }
  if (Array.isArray(value)) {
    return value.map((item, index) => withoutNulls(item, [...path, index], emptyPaths));
  }
  if (typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, entry]) => [
      key,
      withoutNulls(entry, [...path, key], emptyPaths),
    ]),
  );
}

function offsetOf(document: Document.Parsed, path: Path, what: 'key' | 'value'): number {
  let node: Node | null = document.contents;
  let offset = node?.range?.[0] ?? 0;
  for (const [index, key] of path.entries()) {
    if (isAlias(node)) node = node.resolve(document) ?? null;
    if (isMap(node)) {
      const pair = node.items.find((item) => keyText(item.key) === String(key));
      if (pair === undefined) return offset;
      const wantsKey = what === 'key' && index === path.length - 1;
      const next: unknown = wantsKey ? pair.key : (pair.value ?? pair.key);
      node = isNode(next) ? next : null;
    } else if (isSeq(node)) {
      const next = node.items[Number(key)];
      node = isNode(next) ? next : null;
    } else return offset;
    offset = node?.range?.[0] ?? offset;
  }
  return offset;
}
