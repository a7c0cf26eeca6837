/**
 * Builds `dist/`, which an installed package runs: the program bundled with its JavaScript packages, all
 * other files of `src/`, the licenses of the bundled packages, and the revision that the server reports.
 *
 * URLs relative to a module are the same in `src/` and in `dist/`: the build replaces `import.meta.url`
 * by the module's path in `dist/`, and each process and worker has an entry file at its path.
 */
import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  globSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { type Metafile, type Plugin, build } from 'esbuild';
import { writeBundle } from '../src/console/bundle.ts';
import { ENGINE_SETS, enginePackages } from '../src/engines/embedded/packages.ts';

const ROOT = join(import.meta.dirname, '..');
const SRC = join(ROOT, 'src');
const ENGINES = join(ROOT, 'engines');
const DIST = join(ROOT, 'dist');
const BUNDLE = join(DIST, 'bundle');
/** Browser code, which has its own bundle. */
const BROWSER_FOLDER = join(SRC, 'console', 'app');
/** The program, its child processes and its workers. */
const ENTRIES = ['src/main.ts', 'src/**/*-{process,worker}.ts', 'engines/*/{main,worker}.ts'];
/** Packages that each engine installs in its own folder. */
const EXTERNAL: readonly string[] = ENGINE_SETS.flatMap(enginePackages);
/** Defines the globals that CommonJS packages use. */
const BANNER = `import { createRequire as __createRequire } from 'node:module';
const require = __createRequire(import.meta.url);
const __filename = import.meta.filename;
const __dirname = import.meta.dirname;`;

rmSync(DIST, { recursive: true, force: true });
const entries = globSync(ENTRIES, { cwd: ROOT });
const { metafile } = await build({
  absWorkingDir: ROOT,
  entryPoints: Object.fromEntries(entries.map((entry) => [bundleOf(entry), entry])),
  outdir: BUNDLE,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node24.12',
  banner: { js: BANNER },
  external: [...EXTERNAL, ...EXTERNAL.map((name) => `${name}/*`), 'pg-native', 'canvas', 'esbuild'],
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
  plugins: [rewrittenImports()],
});
for (const entry of entries) writeEntry(entry);
copyAssets(SRC);
await writeBundle(join(DIST, 'console', 'bundle'));
copyPrebuilds();
writeFileSync(join(DIST, 'LICENSES.txt'), licences(metafile));
writeFileSync(join(DIST, 'build.json'), `${JSON.stringify({ revision: revision() })}\n`);

/** `engines/llama/main.ts` -> `programs.llama.main`, one flat folder. */
function bundleOf(entry: string): string {
  return builtName(join(ROOT, entry)).replace(/\.js$/, '').replaceAll('/', '.');
}

/** `src/a/b.ts` -> `a/b.js`, `engines/a/b.ts` -> `programs/a/b.js` */
function builtName(source: string): string {
  const name = source.startsWith(SRC)
    ? relative(SRC, source)
    : join('programs', relative(ENGINES, source));
  return name.replace(/\.ts$/, '.js').replaceAll(sep, '/');
}

/**
 * Replaces `import.meta.url`: all bundles are in one folder, so the same relative URL is right in each.
 */
function rewrittenImports(): Plugin {
  return {
    name: 'rewritten-imports',
    setup(given) {
      given.onLoad({ filter: /\.ts$/ }, ({ path }) => {
        if (![SRC, ENGINES].some((folder) => path.startsWith(folder + sep))) return undefined;
        const address = `new URL('../${builtName(path)}', import.meta.url).href`;
        const contents = readFileSync(path, 'utf8').replaceAll(/\bimport\.meta\.url\b/g, address);
        return { contents, loader: 'ts' };
      });
    },
  };
}

/** Writes the entry file at the path that `siblingUrl` returns for a process or a worker. */
function writeEntry(entry: string): void {
  const target = join(DIST, builtName(join(ROOT, entry)));
  const up = relative(dirname(target), join(BUNDLE, `${bundleOf(entry)}.js`)).replaceAll(sep, '/');
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, `import '${up.startsWith('.') ? up : `./${up}`}';\n`);
}

/** Copies data files to the same relative path. */
function copyAssets(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (path === BROWSER_FOLDER) continue;
    if (entry.isDirectory()) copyAssets(path);
    else if (!entry.name.endsWith('.ts')) {
      const target = join(DIST, relative(SRC, path));
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(path, target);
    }
  }
}

/** secp256k1 loads its native binary from its own folder, or runs without it. */
function copyPrebuilds(): void {
  const source = join(ROOT, 'node_modules/secp256k1/prebuilds');
  cpSync(source, join(BUNDLE, 'prebuilds'), { recursive: true });
}

/** Returns the license texts of all bundled packages. */
function licences({ inputs }: Metafile): string {
  const folders = new Set(
    Object.keys(inputs).flatMap((path) => {
      const found = /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path);
      return found === null ? [] : [found[0]];
    }),
  );
  const texts = [...folders].sort().map((folder) => {
    const path = join(ROOT, folder);
    // npm's own file.
    const about = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as {
      name: string;
      version: string;
      license?: string;
    };
    const file = readdirSync(path).find((name) => /^(?:licen[cs]e|copying)/i.test(name));
    const text = file === undefined ? '' : readFileSync(join(path, file), 'utf8').trim();
    return `${about.name} ${about.version} (${about.license ?? 'see below'})\n\n${text}`;
  });
  return `${texts.join(`\n\n${'-'.repeat(80)}\n\n`)}\n`;
}

/** Returns `YYYYMMDD.HHMMSS` in UTC, from `SOURCE_DATE_EPOCH`, the last commit or the current time. */
function revision(): string {
  const given = process.env['SOURCE_DATE_EPOCH'] ?? commitSeconds();
  const date = given === undefined ? new Date() : new Date(Number(given) * 1_000);
  const [day = '', time = ''] = date.toISOString().slice(0, 19).split('T');
  return `${day.replaceAll('-', '')}.${time.replaceAll(':', '')}`;
}

function commitSeconds(): string | undefined {
  try {
    const text = execFileSync('git', ['log', '-1', '--format=%ct'], {
      cwd: ROOT,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return text.trim() || undefined;
  } catch {
    // An unpacked archive has no git history.
    return undefined;
  }
}
