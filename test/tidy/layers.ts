/**
 * The layer order and the public files: which file may import which. The drawing is in
 * docs/architecture.md; this is the same as rules.
 */
import type { SourceFile } from './source-tree.ts';

/** Features: what callers use by URL. None knows another; a new folder of `src/` is one. */
const FEATURES = '(features)';

/** From the ground up; a folder may import what stands on a line above its own. */
const LAYERS: readonly (readonly string[])[] = [
  ['core'],
  ['net', 'config', 'db', 'json'],
  ['observability'],
  ['payments', 'identity'],
  ['billing', 'catalog'],
  ['http', 'engines'],
  ['documents'],
  [FEATURES],
  ['server'],
  ['cli'],
  ['main'],
];

/** Folders whose every file is public: values, byte readers, the parts of a request. */
const OPEN_FOLDERS = new Set(['core', 'json', 'net', 'http']);
/** Folders that only the composition of the program enters, by any file. */
const COMPOSING_FOLDERS = new Set(['server', 'cli', 'main']);

/**
 * Public files beside the one that has its folder's name: what would make that one a list of
 * strangers, or a circle, if it passed them on.
 */
const PUBLIC_FILES = new Set([
  'src/billing/sale.ts',
  'src/documents/media-files.ts',
  'src/engines/engine-refusal.ts',
  'src/engines/media-engine-fault.ts',
  'src/engines/learned-replicas.ts',
  'src/engines/usage.ts',
]);

/** What programs of `engines/` may import from `src/`, beside its open ground folders. */
const FOR_PROGRAMS =
  /^src\/(?:core|json)\/|^src\/engines\/(?:contract|media\/[\w-]+|embedded\/(?:llama-models|sentences|video))\.ts$/;

/** What is wrong with the imports of one file below `src/` or `engines/`. */
export function layerProblems(source: SourceFile): string[] {
  const { path, imports } = source;
  if (!path.startsWith('engines/')) return imports.flatMap((target) => problemOf(path, target));
  const own = path.slice(0, path.lastIndexOf('/') + 1);
  const isAllowed = (target: string): boolean =>
    target.startsWith(own) || target.startsWith('engines/server/') || FOR_PROGRAMS.test(target);
  return imports
    .filter((target) => !isAllowed(target))
    .map(
      (target) => `${path} imports ${target}: a program knows src/core, src/json and its contract`,
    );
}

function problemOf(path: string, target: string): string[] {
  if (!target.startsWith('src/')) return [`${path} imports ${target}, which is outside src/`];
  if (isTestFile(target)) return [`${path} imports ${target}, which only tests may`];
  const from = folderOf(path);
  const to = folderOf(target);
  if (from === to) return [];
  if (layerOf(to) >= layerOf(from)) {
    return [`${path} imports ${target}: ${from}/ may not know ${to}/`];
  }
  if (COMPOSING_FOLDERS.has(from) || isPublic(target)) return [];
  return [`${path} imports ${target}, which is no public file of its folder`];
}

/** Tests, and the peers and clocks that only tests use. */
export function isTestFile(path: string): boolean {
  return path.endsWith('.test.ts') || path.startsWith('test/');
}

/** `src/billing/ledger/ledger.ts` -> `billing`. */
function folderOf(path: string): string {
  return (path.split('/')[1] ?? '').replace(/\.ts$/, '');
}

function layerOf(folder: string): number {
  const named = LAYERS.findIndex((layer) => layer.includes(folder));
  return named === -1 ? LAYERS.findIndex((layer) => layer.includes(FEATURES)) : named;
}

function isPublic(path: string): boolean {
  const parts = path.split('/').slice(1);
  if (OPEN_FOLDERS.has(parts[0] ?? '') || PUBLIC_FILES.has(path)) return true;
  return parts.at(-1) === `${parts.at(-2) ?? ''}.ts`;
}
