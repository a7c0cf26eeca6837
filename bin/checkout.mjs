/**
 * Builds the program of a checkout before it starts, because one bundle starts with half of the CPU time
 * of its 740 sources and of the packages that they import first. The name of a build is a hash of the
 * text that it was made from, so a changed source never runs in an earlier build.
 *
 * Each module keeps the URL of its source: workers, child processes and assets are those of `src/`.
 */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** More than one, because a running server imports some modules later. */
const KEPT_BUILDS = 5;
/** Packages that each start loads; their own packages are bundled with them. */
const BUNDLED = ['@fastify/busboy', 'commander', 'find-my-way', 'undici', 'yaml', 'zod'];
const PACKAGES = `${sep}node_modules${sep}`;
/** CommonJS packages call it. */
const REQUIRE = `import { createRequire as __createRequire } from 'node:module';
const require = __createRequire(import.meta.url);`;

/** Returns the path of the built program, or of its source if it cannot be built. */
export async function programOf(root, cache) {
  const builds = join(cache, 'builds');
  try {
    const sources = readSources(root);
    const folder = join(builds, keyOf(root, sources));
    if (!existsSync(folder)) {
      await writeBuild(root, sources, folder);
      removeOld(builds);
    }
    return join(folder, 'main.mjs');
  } catch {
    // esbuild is not installed, the folder is read-only, another start has written the same build,
    // or a source is invalid, which Node reports when it runs the source.
    return join(root, 'src', 'main.ts');
  }
}

/** Reads the bytes of each source, by its path. Strings would enlarge the heap of the server. */
function readSources(root) {
  const names = readdirSync(join(root, 'src'), { recursive: true }).sort();
  const isSource = (name) => /\.(?:ts|json)$/.test(name) && !name.endsWith('.test.ts');
  const paths = names.filter(isSource).map((name) => join(root, 'src', name));
  return new Map(paths.map((path) => [path, readFileSync(path)]));
}

/** The lock file has the versions of esbuild and of the packages, and this file the options. */
function keyOf(root, sources) {
  const hash = createHash('sha256');
  const others = ['tsconfig.json', 'package-lock.json'].map((name) => join(root, name));
  for (const path of [...others, fileURLToPath(import.meta.url)]) hash.update(readFileSync(path));
  for (const [path, bytes] of sources) hash.update(`\0${path}\0`).update(bytes);
  return hash.digest('hex').slice(0, 32);
}

async function writeBuild(root, sources, folder) {
  const unfinished = `${folder}-${process.pid}`;
  const { build, stop } = await import('esbuild');
  try {
    const { outputFiles } = await build({
      absWorkingDir: root,
      entryPoints: ['src/main.ts'],
      outdir: unfinished,
      outExtension: { '.js': '.mjs' },
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'node',
      target: 'node24.12',
      banner: { js: REQUIRE },
      // Node keeps the text of a module in memory, which is mostly comments. Stack traces still have
      // the names of functions, and lines.
      minifyWhitespace: true,
      lineLimit: 100,
      legalComments: 'none',
      logLevel: 'silent',
      write: false,
      plugins: [{ name: 'checkout', setup }],
    });
    mkdirSync(unfinished, { recursive: true });
    for (const { path, contents } of outputFiles) writeFileSync(path, contents, { flush: true });
    renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
    await stop();
  }

  function setup(given) {
    const isBundled = (path) => BUNDLED.some((name) => `${path}/`.startsWith(`${name}/`));
    // A name of a package. esbuild finds what a bundled package imports.
    given.onResolve({ filter: /^[^./]/ }, ({ path, importer }) =>
      sources.has(importer) && !isBundled(path) ? { path, external: true } : undefined,
    );
    given.onLoad({ filter: /./ }, load);
  }

  /** Compiles the text that was hashed, even if a file changes meanwhile. */
  function load({ path }) {
    const bytes = sources.get(path);
    if (bytes === undefined && path.includes(PACKAGES)) return undefined;
    if (bytes === undefined) throw new Error(`${path} is not part of the hash`);
    const url = JSON.stringify(pathToFileURL(path).href);
    const contents = bytes.toString().replaceAll(/\bimport\.meta\.url\b/g, () => url);
    return { contents, loader: 'default' };
  }
}

function removeOld(builds) {
  const folders = readdirSync(builds).map((name) => join(builds, name));
  const times = new Map(folders.map((folder) => [folder, statSync(folder).mtimeMs]));
  const newestFirst = folders.sort((a, b) => times.get(b) - times.get(a));
  for (const folder of newestFirst.slice(KEPT_BUILDS)) rmSync(folder, { recursive: true });
}
