/**
 * Builds the program of a checkout before it starts, because one bundle starts with two thirds of
 * the CPU time of its 740 sources. The name of a build is a hash of the text that it was made from,
 * so a changed source never runs in an earlier build. The bundle does not contain packages.
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
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

/** More than one, because a running server imports some modules later. */
const KEPT_BUILDS = 5;

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

/** The lock file has the version of esbuild, and this file its options. */
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
      packages: 'external',
      format: 'esm',
      platform: 'node',
      target: 'node24.12',
      logLevel: 'silent',
      write: false,
      plugins: [{ name: 'sources', setup: (given) => given.onLoad({ filter: /./ }, load) }],
    });
    mkdirSync(unfinished, { recursive: true });
    for (const { path, contents } of outputFiles) writeFileSync(path, contents, { flush: true });
    renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
    await stop();
  }

  /** Compiles the text that was hashed, even if a file changes meanwhile. */
  function load({ path }) {
    const bytes = sources.get(path);
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
