/**
 * Rules for the source tree: layers, public files, import cycles, unused files, tables, the environment,
 * the clock, sizes and names. A failing rule prints every place that breaks it.
 */
import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { basename } from 'node:path';
import { test } from 'node:test';
import { isTestFile, layerProblems } from './tidy/layers.ts';
import {
  ROOT,
  type SourceFile,
  filesBelow,
  importCycles,
  linesMatching,
  reachable,
  readSources,
  readText,
  sizeBytesOf,
} from './tidy/source-tree.ts';

const CODE_FOLDERS = ['src', 'engines', 'test', 'scripts', 'bench', 'examples'];
/** Lines of code, without comments and blank ones. */
const MAX_LINES = 500;
/** A longer file needs an entry in `LONG_FILES`. */
const MANY_LINES = 400;
const MAX_FILE_BYTES = 6_000_000;
/** Prefixes of released tables whose folder has been renamed. */
const TABLE_PREFIXES: Readonly<Record<string, string>> = { db: 'store' };

/** Files between `MANY_LINES` and `MAX_LINES`, with the reason not to split them. */
const LONG_FILES: Readonly<Record<string, string>> = {};

/** Entry files of the browser bundles. */
const BROWSER_ENTRIES = ['src/console/app/main.tsx', 'src/console/reference/main.ts'];

const sources = readSources(CODE_FOLDERS);
const files = filesBelow('');
const program = [...sources.values()].filter(
  ({ path }) => /^(?:src|engines)\//.test(path) && !isTestFile(path),
);
const childEntries = [...sources.values()].flatMap((source) => source.entries);
const inServer = reachable(sources, ['src/main.ts']);

function none(problems: readonly string[], rule: string): void {
  assert.equal(problems.length, 0, `${rule}:\n  ${problems.join('\n  ')}`);
}

function search(among: readonly SourceFile[], pattern: RegExp): string[] {
  return among.flatMap((source) => linesMatching(source.path, source.code, pattern));
}

test('files import only lower layers, and other folders by their public files', () => {
  none(program.flatMap(layerProblems), 'An import breaks the layers');
});

test('imports have no cycles', () => {
  none(importCycles(sources), 'Files import each other');
});

test('a module of a worker thread has no top-level await', () => {
  const workers = [...sources.keys()].filter((path) => /^src\/.*-worker\.ts$/.test(path));
  assert.ok(workers.length > 0);
  const loaded = [...reachable(sources, workers)].flatMap((path) => sources.get(path) ?? []);
  // If the thread is terminated while such a module ends, V8 aborts the process.
  none(search(loaded, /^\S.*\bawait\b/), 'A worker thread waits at the top level');
});

test('every import names a file of the tree', () => {
  const missing = [...sources.values()].flatMap((source) =>
    [...source.imports, ...source.entries]
      .filter((path) => path.endsWith('.ts') && !sources.has(path))
      .map((path) => `${source.path} -> ${path}`),
  );
  none(missing, 'An import names a missing file');
});

test('every source file is used by the program, a script, a test or an example', () => {
  const roots = [...sources.keys()].filter(
    (path) =>
      !/^(?:src|engines)\//.test(path) ||
      /(?:\.test|^engines\/\w+\/(?:main|worker))\.ts$/.test(path),
  );
  const used = reachable(sources, ['src/main.ts', ...BROWSER_ENTRIES, ...childEntries, ...roots]);
  const dead = program.map((source) => source.path).filter((path) => !used.has(path));
  none(dead, 'No file imports these files');
});

test('the name of a table begins with its folder, and only that folder mentions it', () => {
  const problems = program.flatMap((source) =>
    [...source.text.matchAll(/CREATE TABLE (?:IF NOT EXISTS )?(\w+)/g)].flatMap((match) => {
      const table = match[1] ?? '';
      const parts = source.path.split('/').slice(1, -1);
      // `billing/ledger/` has `ledger_…`: the innermost folder that the name fits.
      const folder = parts.findLast((part) => table.startsWith(`${TABLE_PREFIXES[part] ?? part}_`));
      if (folder === undefined)
        return [`${source.path}: ${table} does not begin with the name of its folder`];
      const home = `src/${parts.slice(0, parts.indexOf(folder) + 1).join('/')}/`;
      const others = program.filter((other) => !other.path.startsWith(home));
      return search(others, new RegExp(`\\b${table}\\b`));
    }),
  );
  none(problems, 'A table is mentioned outside its folder');
});

test('only the configuration and the entry files read the environment', () => {
  // A worker of the command line runs the program again, with the same environment.
  const entries = ['src/main.ts', ...childEntries.filter((path) => path.startsWith('src/cli/'))];
  const others = program.filter(
    ({ path }) =>
      // The code samples of the console read the environment of the caller.
      !entries.includes(path) && !/^src\/(?:config\/|console\/app\/code-samples)/.test(path),
  );
  none(search(others, /process\.env\b/), 'The environment is read outside config/');
});

test('time, randomness and timers come from an injected clock and injected ids', () => {
  const forbidden =
    /\bDate\.now\(|\bnew Date\(\)|\bperformance\.now\(|\bset(?:Timeout|Interval)\(|\bMath\.random\(|\brandom(?:UUID|Bytes|FillSync|Int)\b|'node:timers/;
  const bound = program.filter(
    ({ path }) => inServer.has(path) && !/^src\/(?:core|net)\//.test(path),
  );
  none(search(bound, forbidden), 'Take a Clock or Ids instead');
});

test('a file has at most 400 lines of code', () => {
  const problems = program.flatMap(({ path, code }) => {
    const lines = code.split('\n').filter((line) => line.trim() !== '').length;
    if (lines <= MANY_LINES) return [];
    if (lines <= MAX_LINES && LONG_FILES[path] !== undefined) return [];
    return [`${path}: ${lines} lines`];
  });
  const gone = Object.keys(LONG_FILES).filter((path) => !sources.has(path));
  none(problems, `More than ${MANY_LINES} lines: split the file`);
  none(gone, 'LONG_FILES names files that do not exist');
});

test('every source file begins with a comment about its responsibility', () => {
  const silent = [...sources.values()].filter(
    ({ path, text }) => !path.endsWith('.test.ts') && !/^(?:#!.*\n)?\/\*\*/.test(text),
  );
  none(
    silent.map(({ path }) => path),
    'The file does not begin with a comment',
  );
});

test('file names are specific and in kebab-case', () => {
  const drawer = /^(?:index|utils?|helpers?|common|misc|shared|types|managers?|services?)(?:\.|$)/;
  const problems = [...sources.keys()].filter(
    (path) =>
      path.split('/').some((part) => drawer.test(part)) ||
      !/^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.test)?\.tsx?$/.test(basename(path)),
  );
  none(problems, 'The name is too general');
});

test('exports are named', () => {
  none(search(program, /^export (?:\*|default)/), 'Use named exports');
});

test('a test is never skipped or run alone', () => {
  const tests = [...sources.values()].filter(({ path }) => isTestFile(path));
  const pattern =
    /\b(?:test|it|describe|suite)\.(?:only|skip|todo)\(|\b(?:only|skip|todo): (?!undefined)/;
  none(search(tests, pattern), 'A test that cannot run must fail with the reason');
});

test('no file is too large for a source tree', () => {
  const large = files.filter((path) => sizeBytesOf(path) > MAX_FILE_BYTES);
  none(large, `Larger than ${MAX_FILE_BYTES} bytes`);
});

test('no text contains a reminder, a machine path or a private registry', () => {
  // Written in pieces, so that this file does not break its own rule.
  const words = ['TO,DO', 'FIX,ME', 'X,XX', 'not ,implemented'].map(joined).join('|');
  const places = ['/wo,rk/', '/ho,me/[a-z]', 'registry\\.npm,js', 'npm,mirror']
    .map(joined)
    .join('|');
  const pattern = new RegExp(`\\b(?:${words})\\b|${places}`);
  const texts = files.filter(
    (path) =>
      /\.(?:ts|mjs|js|md|json|ya?ml|html|css|sh)$|^[^.]+$/.test(basename(path)) && !isData(path),
  );
  none(
    texts.flatMap((path) => linesMatching(path, readText(path), pattern)),
    'Remove it',
  );
});

function joined(pieces: string): string {
  return pieces.replaceAll(',', '');
}

/** Files that contain public addresses of downloads. */
const PUBLIC_ADDRESSES = new Set([
  '.github/workflows/release.yml',
  'src/config/download-settings.ts',
]);

/** True for documents and data of others. */
function isData(path: string): boolean {
  if (PUBLIC_ADDRESSES.has(path)) return true;
  return (
    basename(path) === 'package-lock.json' ||
    path.startsWith('assets/') ||
    /\/fixtures\//.test(path)
  );
}

test('the lock files have a checksum for every package and name no registry', () => {
  const engines = globSync('engines/*/package-lock.json', { cwd: ROOT });
  const locks = ['package-lock.json', ...engines, 'test/package-lock.json'];
  const unsafe = locks.flatMap((file) => {
    // npm's own file format.
    const { packages } = JSON.parse(readText(file)) as {
      packages: Record<string, { integrity?: string; resolved?: string }>;
    };
    return Object.entries(packages)
      .filter(([path, { integrity, resolved }]) => path !== '' && (!integrity || resolved))
      .map(([path]) => `${file}: ${path}`);
  });
  none(unsafe, 'A package has no checksum, or names a registry');
});

test('tests use the same version of a package as the source', () => {
  const versionsIn = (file: string): Record<string, { version?: string }> =>
    (JSON.parse(readText(file)) as { packages: Record<string, { version?: string }> }).packages;
  const [own, tests] = [versionsIn('package-lock.json'), versionsIn('test/package-lock.json')];
  const used = [...sources.values()]
    .filter(({ path }) => path.startsWith('test/'))
    .flatMap(({ code }) => [...code.matchAll(/(?:from|import\()\s*'((?:@[\w.-]+\/)?[\w.-]+)/g)])
    .map(([, name]) => `node_modules/${name}`);
  const differing = [...new Set(used)].filter(
    (path) => own[path] && tests[path] && own[path].version !== tests[path].version,
  );
  none(
    differing,
    'test/ resolves another version of a package: add the version to test/package.json',
  );
});
