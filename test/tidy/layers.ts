/** Checks imports against the layers and the public files of folders (see docs/architecture.md). */
import type { SourceFile } from './source-tree.ts';

/** Every folder of `src/` that `LAYERS` does not name. A feature may not import another one. */
const FEATURES = '(features)';

/** From the lowest layer up; a folder may import the folders on the lines above its own. */
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

/** Folders in which every file is public. */
const OPEN_FOLDERS = new Set(['core', 'json', 'net', 'http']);
/** Folders that compose the program and may import any file. */
const COMPOSING_FOLDERS = new Set(['server', 'cli', 'main']);

/**
 * Public files in addition to the one with its folder's name, which would become an import cycle with them or
 * does not exist.
 */
const PUBLIC_FILES = new Set([
  'src/billing/sale.ts',
  'src/documents/media-files.ts',
  'src/engines/engine-refusal.ts',
  'src/engines/media-engine-fault.ts',
  'src/engines/learned-fields.ts',
  'src/engines/learned-replicas.ts',
  'src/engines/unsold-members.ts',
  'src/engines/usage.ts',
  'src/observability/failure-log.ts',
  'src/observability/metric-list.ts',
  'src/observability/metrics.ts',
]);

/** Files of `src/` that the programs in `engines/` may import, in addition to `core/` and `json/`. */
const FOR_PROGRAMS =
  /^src\/(?:core|json)\/|^src\/engines\/(?:contract|error-meanings|media\/[\w-]+|embedded\/program-contract)\.ts$|^src\/chat\/wire\/chat-schema\.ts$|^src\/net\/guard\.ts$/;

/** Returns the forbidden imports of a file in `src/` or `engines/`, each with the reason. */
export function layerProblems(source: SourceFile): string[] {
  const { path, imports } = source;
  if (!path.startsWith('engines/')) return imports.flatMap((target) => problemOf(path, target));
  const own = path.slice(0, path.lastIndexOf('/') + 1);
  const isAllowed = (target: string): boolean =>
    target.startsWith(own) || target.startsWith('engines/server/') || FOR_PROGRAMS.test(target);
  return imports
    .filter((target) => !isAllowed(target))
    .map(
      (target) =>
        `${path} imports ${target}: a program may import src/core, src/json and its contract`,
    );
}

/** The console derives its types from the response schemas. The imports are types only. */
const CONSOLE_TYPES = 'src/console/app/shapes.ts';

function problemOf(path: string, target: string): string[] {
  if (path === CONSOLE_TYPES) return [];
  if (!target.startsWith('src/')) return [`${path} imports ${target}, which is outside src/`];
  if (isTestFile(target)) return [`${path} imports ${target}, which only tests may import`];
  const from = folderOf(path);
  const to = folderOf(target);
  if (from === to) return [];
  if (layerOf(to) >= layerOf(from)) {
    return [`${path} imports ${target}: ${from}/ may not import ${to}/`];
  }
  if (COMPOSING_FOLDERS.has(from) || isPublic(target)) return [];
  return [`${path} imports ${target}, which is not a public file of its folder`];
}

/** True for tests and for all files in `test/`. */
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
