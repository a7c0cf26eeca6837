/**
 * Bundles the pages of the console: scripts and styles with hashed names, each also packed for
 * transfer. Runs at build time for the package and at the first request in a checkout. Writes one
 * folder that `assets.ts` reads; knows nothing of routes.
 */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Metafile, Plugin } from 'esbuild';
import { DARK, LIGHT } from '../http/docs/style.ts';

const APP = fileURLToPath(new URL('./app/', import.meta.url));
const TARGETS = ['chrome120', 'firefox121', 'safari17'];
const brotliAsync = promisify(brotliCompress);
const gzipAsync = promisify(gzip);

/** What the page of a bundle has to name. */
export interface BundleIndex {
  readonly script: string;
  readonly style: string;
  /** Chunks that the script imports at once. */
  readonly preload: readonly string[];
  readonly icon: string;
  /** Every file, without the endings of its packed forms. */
  readonly files: readonly string[];
}

/** Colours are those of the reference page; the choice of the viewer beats that of the system. */
const tokens: Plugin = {
  name: 'tokens',
  setup: (build) => {
    build.onResolve({ filter: /^tokens\.css$/ }, ({ path }) => ({ path, namespace: 'tokens' }));
    build.onLoad({ filter: /.*/, namespace: 'tokens' }, () => ({
      loader: 'css',
      contents: `:root{color-scheme:light dark;${LIGHT}}
@media (prefers-color-scheme:dark){:root:not([data-theme=light]){${DARK}}}
:root[data-theme=light]{color-scheme:light}
:root[data-theme=dark]{color-scheme:dark;${DARK}}`,
    }));
  },
};

/** Writes the bundle to `folder`, which appears whole or not at all. */
export async function writeBundle(folder: string): Promise<void> {
  // Only a checkout and a build have it.
  const { build, stop } = await import('esbuild');
  const result = await build({
    entryPoints: { console: join(APP, 'main.tsx'), icon: join(APP, 'icon.svg') },
    bundle: true,
    splitting: true,
    minify: true,
    write: false,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: TARGETS,
    jsx: 'automatic',
    jsxImportSource: 'preact',
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    assetNames: '[name]-[hash]',
    outdir: folder,
    absWorkingDir: APP,
    loader: { '.svg': 'copy' },
    legalComments: 'none',
    logLevel: 'silent',
    plugins: [tokens],
    tsconfigRaw: {},
  });
  await stop();
  const making = `${folder}.${process.pid}`;
  await rm(making, { recursive: true, force: true });
  await mkdir(making, { recursive: true });
  for (const { path, contents } of result.outputFiles) {
    await writePacked(join(making, basename(path)), contents);
  }
  await writeFile(join(making, 'index.json'), JSON.stringify(indexOf(result.metafile)));
  await rm(folder, { recursive: true, force: true });
  await rename(making, folder);
}

async function writePacked(path: string, contents: Uint8Array): Promise<void> {
  const { BROTLI_PARAM_QUALITY: quality, BROTLI_PARAM_SIZE_HINT: sizeHint } = constants;
  const most = constants.BROTLI_MAX_QUALITY;
  const [brotli, gzipped] = await Promise.all([
    brotliAsync(contents, { params: { [quality]: most, [sizeHint]: contents.length } }),
    gzipAsync(contents, { level: constants.Z_BEST_COMPRESSION }),
  ]);
  await Promise.all([
    writeFile(path, contents),
    writeFile(`${path}.br`, brotli),
    writeFile(`${path}.gz`, gzipped),
  ]);
}

function indexOf({ outputs }: Metafile): BundleIndex {
  const names = Object.keys(outputs);
  const find = (entry: string): string | undefined =>
    names.find((name) => outputs[name]?.entryPoint?.endsWith(entry) === true);
  const script = find('main.tsx');
  const main = script === undefined ? undefined : outputs[script];
  const icon = names.find((name) => name.endsWith('.svg'));
  if (script === undefined || main?.cssBundle === undefined || icon === undefined) {
    throw new Error('The bundle of the console has no script, style or icon');
  }
  const atOnce = main.imports.filter(({ kind }) => kind === 'import-statement');
  return {
    script: basename(script),
    style: basename(main.cssBundle),
    preload: atOnce.map(({ path }) => basename(path)),
    icon: basename(icon),
    files: names.map((name) => basename(name)),
  };
}
