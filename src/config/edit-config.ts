/**
 * Edits the text of a configuration file: replaces one section and keeps everything else byte for byte, and within the
 * section the comments and the values that do not change. Secrets leave this module masked only, and a masked value
 * that comes back means the secret that is in the file.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  type Pair,
  parseDocument,
  type Node,
  visit,
  YAMLMap,
} from 'yaml';

import { MASK, masked } from './effective-config.ts';
import { type SchemaNode, schemaTree } from './explain.ts';
import { fileSchema } from './sections.ts';
import { hideTokens, keyText, type Path, showTokens } from './yaml-source.ts';

let tree: SchemaNode | undefined;

/** JSON schema of the file, made once: it takes as long as many requests. */
function fileTree(): SchemaNode {
  return (tree ??= schemaTree(fileSchema()));
}

/** Names of the sections that the file has. */
export function sectionsIn(text: string): ReadonlySet<string> {
  const { contents } = parsed(text);
  return new Set(isMap(contents) ? contents.items.map(({ key }) => keyText(key)) : []);
}

/** JSON schema of the input of a section. */
export function sectionSchema(name: string): SchemaNode {
  return fileTree().properties?.[name] ?? {};
}

/** The value of a section in the file, without defaults; `undefined` if the file does not have it. */
export function readSection(text: string, name: string): unknown {
  const document = parsed(text);
  return maskedValue(sectionOf(document, name)?.value, [name], fileTree(), document);
}

/**
 * Returns the text with another value of the section; `undefined` removes the section. Throws an Error with a message
 * for the operator if the file is not valid YAML, or the value has a mask where the file has no secret.
 */
export function editSection(text: string, name: string, value: unknown): string {
  const document = parsed(text);
  if (document.contents !== null && !isMap(document.contents)) {
    throw new Error('The file must contain sections');
  }
  const pair = sectionOf(document, name);
  const root = fileTree();
  const before = maskedValue(pair?.value, [name], root, document);
  if (isDeepStrictEqual(before, value)) return text;
  if (value === undefined) return pair === undefined ? text : withSection(text, pair, '');
  const node = merged(document, pair?.value, before, value);
  const made = pair ?? document.createPair(hideTokens(name), null);
  const section = sectionText(name, isNode(node) ? node : document.createNode(node));
  if (pair !== undefined) return withSection(text, made, section);
  const separator = text === '' || text.endsWith('\n') ? '' : '\n';
  return `${text}${separator}${text.trim() === '' ? '' : '\n'}${section}`;
}

/** The text with masks in place of secrets, for a comparison on a screen. */
export function maskedText(text: string): string {
  const document = parsed(text);
  const root = fileTree();
  const changes: { readonly start: number; readonly end: number; readonly by: string }[] = [];
  visit(document, {
    Scalar(_key, node, parents) {
      const { value, range } = node;
      const pair = parents.at(-1);
      if (typeof value !== 'string' || !range || (isPair(pair) && pair.key === node)) return;
      const shown = masked(showTokens(value), pathOf(parents, node), root);
      if (shown === showTokens(value)) return;
      changes.push({ start: range[0], end: range[1], by: JSON.stringify(shown) });
    },
  });
  let result = text;
  for (const { start, end, by } of changes.toReversed()) {
    result = result.slice(0, start) + by + result.slice(end);
  }
  return result;
}

function parsed(text: string): Document.Parsed {
  const document = parseDocument(hideTokens(text), { prettyErrors: false, merge: true });
  const [error] = document.errors;
  if (error !== undefined)
    throw new Error(`The file is not valid YAML: ${showTokens(error.message)}`);
  return document;
}

function sectionOf(document: Document.Parsed, name: string): Pair | undefined {
  const { contents } = document;
  return isMap(contents) ? contents.items.find(({ key }) => keyText(key) === name) : undefined;
}

function pathOf(parents: readonly unknown[], node: Node): Path {
  const path: (string | number)[] = [];
  const chain = [...parents, node];
  for (const [at, parent] of chain.entries()) {
    if (isPair(parent)) path.push(keyText(parent.key));
    else if (isSeq(parent)) path.push(parent.items.indexOf(chain[at + 1]));
  }
  return path;
}

/** The plain value of a node with masks; variables stay as they are written. */
function maskedValue(node: unknown, path: Path, root: SchemaNode, document: Document): unknown {
  if (isAlias(node)) return maskedValue(node.resolve(document), path, root, document);
  if (isMap(node)) {
    return Object.fromEntries(
      node.items.map(({ key, value }) => {
        const name = keyText(key);
        return [name, maskedValue(value, [...path, name], root, document)];
      }),
    );
  }
  if (isSeq(node)) {
    return node.items.map((item, at) => maskedValue(item, [...path, at], root, document));
  }
  if (!isScalar(node)) return undefined;
  const { value } = node;
  return typeof value === 'string' ? masked(showTokens(value), path, root) : (value ?? undefined);
}

/** Changes `node`, whose masked value is `before`, to `next`; keeps parts that are equal. */
function merged(document: Document, node: unknown, before: unknown, next: unknown): unknown {
  if (isDeepStrictEqual(before, next) && node !== undefined) return node;
  if (isAlias(node)) return merged(document, undefined, undefined, next);
  if (isMap(node) && isRecord(before) && isRecord(next)) {
    node.items = node.items.filter(({ key }) => Object.hasOwn(next, keyText(key)));
    for (const [name, value] of Object.entries(next)) {
      const pair = node.items.find(({ key }) => keyText(key) === name);
      if (pair === undefined) node.items.push(newPair(document, name, value));
      else pair.value = merged(document, pair.value, before[name], value);
    }
    return node;
  }
  if (isSeq(node) && Array.isArray(before) && Array.isArray(next)) {
    const { items } = node;
    const partners = partnersOf(before, next);
    node.items = next.map((item: unknown, at) => {
      const from = partners[at];
      return from === undefined
        ? newNode(document, item)
        : merged(document, items[from], before[from], item);
    });
    return node;
  }
  const made = newNode(document, next);
  if (isScalar(node) && isScalar(made)) made.comment = node.comment ?? null;
  return made;
}

/** For each new item, the index of the old one that it continues: the equal one, or that of its id or place. */
function partnersOf(before: readonly unknown[], next: readonly unknown[]): (number | undefined)[] {
  const free = new Set(before.keys());
  const take = (wanted: (old: unknown, at: number) => boolean): number | undefined => {
    const at = [...free].find((index) => wanted(before[index], index));
    if (at !== undefined) free.delete(at);
    return at;
  };
  const equal = next.map((item) => take((old) => isDeepStrictEqual(old, item)));
  return next.map((item, at) => {
    if (equal[at] !== undefined) return equal[at];
    const id = idOf(item);
    if (id !== undefined) return take((old) => idOf(old) === id);
    return before.length === next.length ? take((_old, index) => index === at) : undefined;
  });
}

function idOf(item: unknown): unknown {
  return isRecord(item) ? (item['id'] ?? item['name'] ?? item['slug']) : undefined;
}

function newPair(document: Document, name: string, value: unknown): Pair {
  return document.createPair(hideTokens(name), newNode(document, value));
}

function newNode(document: Document, value: unknown): Node {
  if (JSON.stringify(value)?.includes(MASK) === true) {
    throw new Error(
      `Enter the secret again: "${MASK}" is the mask of a secret that is not at this place`,
    );
  }
  const hidden: unknown = JSON.parse(JSON.stringify(value), (_key, entry: unknown) =>
    typeof entry === 'string' ? hideTokens(entry) : entry,
  );
  return document.createNode(hidden);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function sectionText(name: string, value: Node): string {
  const document = parseDocument('{}');
  const map = new YAMLMap();
  map.items.push(document.createPair(name, null));
  const [pair] = map.items;
  if (pair !== undefined) pair.value = value;
  document.contents = map as unknown as typeof document.contents; // a parsed document has other types
  return showTokens(document.toString({ lineWidth: 0 }));
}

/** Replaces the text of the pair; comments before its key stay. */
function withSection(text: string, { key, value }: Pair, by: string): string {
  const start = isNode(key) ? (key.range?.[0] ?? 0) : 0;
  const end = isNode(value) && value.range ? value.range[2] : text.length;
  const rest = text.slice(end);
  return text.slice(0, start) + by + (by === '' ? rest.replace(/^\n/, '') : rest);
}
