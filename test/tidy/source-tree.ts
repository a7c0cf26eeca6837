/**
 * The files of the checkout, their imports, and their code without comments. Regular expressions are
 * enough to find imports, because the formatter writes them in one form.
 */
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';

export const ROOT = join(import.meta.dirname, '..', '..');

/** Folders that a build, an installation or a running server creates. */
const IGNORED = new Set(['node_modules', 'dist', 'data', '.git']);

export interface SourceFile {
  /** From the root, with forward slashes. */
  readonly path: string;
  readonly text: string;
  /** `text` with spaces in place of comments. */
  readonly code: string;
  /** Paths of imported files of this tree, type imports included. */
  readonly imports: readonly string[];
  /** Paths of its workers and child processes. */
  readonly entries: readonly string[];
}

/** Paths of all files in a folder of the checkout, relative to the root. */
export function filesBelow(folder: string): string[] {
  const found: string[] = [];
  for (const entry of readdirSync(join(ROOT, folder), { withFileTypes: true })) {
    if (IGNORED.has(entry.name)) continue;
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) found.push(...filesBelow(path));
    else if (entry.isFile()) found.push(path);
  }
  return found;
}

/** As `filesBelow`, but empty if the folder does not exist. */
export function filesBelowIfAny(folder: string): string[] {
  return statSync(join(ROOT, folder), { throwIfNoEntry: false }) === undefined
    ? []
    : filesBelow(folder);
}

export function readText(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}

export function sizeBytesOf(path: string): number {
  return statSync(join(ROOT, path)).size;
}

/** TypeScript files of the given folders, by path. */
export function readSources(folders: readonly string[]): ReadonlyMap<string, SourceFile> {
  const paths = folders
    .flatMap(filesBelowIfAny)
    .filter((path) => /\.tsx?$/.test(path) && !path.endsWith('.d.ts'));
  return new Map(paths.map((path) => [path, sourceFile(path)]));
}

function sourceFile(path: string): SourceFile {
  const text = readText(path);
  const code = withoutComments(text);
  return {
    path,
    text,
    code,
    imports: matches(code, IMPORT)
      .filter((specifier) => specifier.startsWith('.'))
      .map((specifier) => posix.join(dirname(path), specifier)),
    entries: entriesOf(code, dirname(path)),
  };
}

const IMPORT = /(?:\bfrom|\bimport|\bimport\()\s*'([^']+)'/g;
/** `siblingUrl(import.meta.url, './name')` and similar calls. */
const SIBLING = /\w+\(import\.meta\.url, '([^']+)'\)/g;
const MODULE_URL = /new URL\(['`]([^'`]+)['`], import\.meta\.url\)/g;

function entriesOf(code: string, folder: string): string[] {
  const siblings = matches(code, SIBLING).map((name) => `${name}.ts`);
  const urls = matches(code, MODULE_URL).filter(
    (url) => url.endsWith('.ts') && !url.includes('${'),
  );
  return [...siblings, ...urls].map((url) => posix.join(folder, url));
}

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].flatMap((match) => match[1] ?? []);
}

const COMMENT_OR_TEXT =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g;

function withoutComments(text: string): string {
  return text.replaceAll(COMMENT_OR_TEXT, (token) =>
    token.startsWith('/') ? token.replaceAll(/[^\n]/g, ' ') : token,
  );
}

/** Paths of `roots` and of all files that they import, directly or indirectly. */
export function reachable(
  sources: ReadonlyMap<string, SourceFile>,
  roots: readonly string[],
): ReadonlySet<string> {
  const seen = new Set<string>();
  const open = [...roots];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    const source = sources.get(path);
    if (source === undefined || seen.has(path)) continue;
    seen.add(path);
    open.push(...source.imports);
  }
  return seen;
}

/** Import cycles, each as `a.ts -> b.ts -> a.ts`. */
export function importCycles(sources: ReadonlyMap<string, SourceFile>): string[] {
  const done = new Set<string>();
  const cycles: string[] = [];
  function visit(path: string, way: readonly string[]): void {
    const start = way.indexOf(path);
    if (start !== -1) {
      cycles.push([...way.slice(start), path].join(' -> '));
      return;
    }
    if (done.has(path)) return;
    for (const next of sources.get(path)?.imports ?? []) visit(next, [...way, path]);
    done.add(path);
  }
  for (const path of sources.keys()) visit(path, []);
  return cycles;
}

/** `path:line` of every match of a pattern in the code of a file. */
export function linesMatching(path: string, text: string, pattern: RegExp): string[] {
  return text
    .split('\n')
    .flatMap((line, index) => (pattern.test(line) ? [`${path}:${index + 1}: ${line.trim()}`] : []));
}
