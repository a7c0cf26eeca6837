/**
 * Bundles the console and the `/docs` page for the browser: scripts and styles with hashed names, each
 * also compressed. Runs at build time for the package, and at the first request in a checkout. Writes
 * one folder, which `assets.ts` reads.
 */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Metafile } from 'esbuild';

const APP = fileURLToPath(new URL('./app/', import.meta.url));
const REFERENCE = fileURLToPath(new URL('./reference/main.ts', import.meta.url));
/** The first versions that support `light-dark()`. */
const TARGETS = ['chrome123', 'firefox121', 'safari17.5'];
/** Above this size, the best compression takes seconds and saves only 10 %. */
const LARGE_BYTES = 500_000;
const LARGE_QUALITY = 9;
const brotliAsync = promisify(brotliCompress);
const gzipAsync = promisify(gzip);

export interface PageFiles {
  readonly script: string;
  readonly style: string;
}

export interface BundleIndex {
  readonly console: PageFiles;
  readonly reference: PageFiles;
  /** Chunks that the script of the console imports statically. */
  readonly preload: readonly string[];
  readonly icon: string;
  /** All files, without their compressed forms. */
  readonly files: readonly string[];
}

/** Writes the bundle to `folder` atomically. */
export async function writeBundle(folder: string): Promise<void> {
  // A development package, which a published package does not contain.
  const { build, stop } = await import('esbuild');
  const result = await build({
    entryPoints: {
      console: join(APP, 'main.tsx'),
      reference: REFERENCE,
      icon: join(APP, 'icon.svg'),
    },
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
  const most = contents.length > LARGE_BYTES ? LARGE_QUALITY : constants.BROTLI_MAX_QUALITY;
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
  const pageOf = (entry: string): PageFiles => {
    const script = find(entry) ?? '';
    const style = outputs[script]?.cssBundle;
    if (style === undefined) throw new Error(`The bundle has no script and style of ${entry}`);
    return { script: basename(script), style: basename(style) };
  };
  const icon = names.find((name) => name.endsWith('.svg'));
  if (icon === undefined) throw new Error('The bundle has no icon');
  const main = outputs[find('main.tsx') ?? ''];
  const atOnce = main?.imports.filter(({ kind }) => kind === 'import-statement') ?? [];
  return {
    console: pageOf('main.tsx'),
    reference: pageOf('reference/main.ts'),
    preload: atOnce.map(({ path }) => basename(path)),
    icon: basename(icon),
    files: names.map((name) => basename(name)),
  };
}
