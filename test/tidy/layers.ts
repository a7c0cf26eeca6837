/**
 * The layer order and the doors: which file may import which. The drawing is in
 * docs/architecture.md; this is the same as rules.
 */
import type { SourceFile } from './source-tree.ts';

/**
 * From the ground up; a folder may import what stands on a line above its own. `NOUNS` are all the
 * folders that are not named: a new folder is a noun, which is the strictest place to be.
 */
const NOUNS = '(nouns)';
const LAYERS: readonly (readonly string[])[] = [
  ['kernel'],
  ['wire'],
  ['config', 'store', 'net'],
  [NOUNS],
  ['flows'],
  ['api'],
  ['app'],
  ['cli'],
  ['main'],
];

/** Folders whose every file is a door: pure values and protocol shapes. */
const OPEN_FOLDERS = new Set(['kernel', 'wire']);
/**
 * Folders whose files on the first level are doors: each outgoing tool, each flow, each shared
 * part of the API.
 */
const OPEN_LEVEL = new Set(['net', 'flows', 'api', 'cli']);

/** What is wrong with the imports of one file below `src/`. */
export function layerProblems(source: SourceFile): string[] {
  return source.imports.flatMap((target) => problemOf(source.path, target));
}

function problemOf(path: string, target: string): string[] {
  if (!target.startsWith('src/')) return [`${path} imports ${target}, which is outside src/`];
  if (isTestFile(target)) return [`${path} imports ${target}, which only tests may`];
  const from = folderOf(path);
  const to = folderOf(target);
  const fromLayer = layerOf(from);
  const toLayer = layerOf(to);
  if (from === to) return [];
  if (toLayer >= fromLayer) {
    return [`${path} imports ${target}: ${from}/ may not know ${to}/`];
  }
  if (to === 'app') return path.startsWith('src/cli/') ? [] : [`${target} belongs to app.ts`];
  return isDoor(target) ? [] : [`${path} imports ${target}, which is not the door of its folder`];
}

/** Tests, and the peers and clocks that only tests use. */
export function isTestFile(path: string): boolean {
  const name = path.slice(path.lastIndexOf('/') + 1);
  return name.endsWith('.test.ts') || name.startsWith('test-') || path.startsWith('test/');
}

/** `src/ledger/ledger.ts` -> `ledger`; `src/app.ts` and `src/app/` are both `app`. */
function folderOf(path: string): string {
  return (path.split('/')[1] ?? '').replace(/\.ts$/, '');
}

function layerOf(folder: string): number {
  const named = LAYERS.findIndex((layer) => layer.includes(folder));
  return named === -1 ? LAYERS.findIndex((layer) => layer.includes(NOUNS)) : named;
}

function isDoor(path: string): boolean {
  const parts = path.split('/').slice(1);
  const folder = parts[0] ?? '';
  if (OPEN_FOLDERS.has(folder)) return true;
  if (OPEN_LEVEL.has(folder) && parts.length === 2) return true;
  return parts.at(-1) === `${parts.at(-2) ?? ''}.ts`;
}
