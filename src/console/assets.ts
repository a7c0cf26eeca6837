/**
 * The files of the console and of the reference: those of the build, or in a checkout those that are
 * bundled when the first page is asked for, and kept beside the packages until a source changes.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onDemand } from '../core/on-demand.ts';
import type { BundleIndex } from './bundle.ts';

/** Of the package; a checkout has none. */
const BUILT = fileURLToPath(new URL('./bundle/', import.meta.url));
/** Folders of what the bundle is made of. */
const SOURCES = ['./app/', '../http/docs/page/'];
const PACKAGES = fileURLToPath(new URL('../../node_modules/', import.meta.url));

export interface ConsoleFile {
  readonly type: string;
  readonly plain: Buffer;
  readonly brotli: Buffer;
  readonly gzip: Buffer;
}

export interface ConsoleAssets {
  readonly index: BundleIndex;
  readonly files: ReadonlyMap<string, ConsoleFile>;
}

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};

/** Opens the bundle when it is first asked for. */
export function assetsOnDemand(): () => Promise<ConsoleAssets> {
  return onDemand(openAssets);
}

/** Reads or makes the bundle. Rejects when it can be neither. */
async function openAssets(): Promise<ConsoleAssets> {
  if (existsSync(join(BUILT, 'index.json'))) return readBundle(BUILT);
  const { writeBundle } = await import('./bundle.ts');
  const kept = join(PACKAGES, '.cache', 'farebox', `console-${await sourceHash()}`);
  if (existsSync(join(kept, 'index.json'))) return readBundle(kept);
  try {
    await writeBundle(kept);
    return await readBundle(kept);
  } catch (error) {
    // Another server may have made it meanwhile; and packages may belong to somebody else.
    if (existsSync(join(kept, 'index.json'))) return readBundle(kept);
    if (!isDenied(error)) throw error;
  }
  const folder = await mkdtemp(join(tmpdir(), 'farebox-console-'));
  try {
    await writeBundle(join(folder, 'bundle'));
    return await readBundle(join(folder, 'bundle'));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function isDenied(error: unknown): boolean {
  const code = (error as { code?: string }).code; // of Node's file errors
  return code === 'EACCES' || code === 'EROFS' || code === 'EPERM' || code === 'ENOSPC';
}

async function readBundle(folder: string): Promise<ConsoleAssets> {
  const text = await readFile(join(folder, 'index.json'), 'utf8');
  const index = JSON.parse(text) as BundleIndex; // written by `bundle.ts`
  const files = await Promise.all(
    index.files.map(async (name): Promise<[string, ConsoleFile]> => {
      const path = join(folder, name);
      const [plain, brotli, gzip] = await Promise.all(
        [path, `${path}.br`, `${path}.gz`].map((one) => readFile(one)),
      );
      const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
      return [name, { type, plain: plain ?? EMPTY, brotli: brotli ?? EMPTY, gzip: gzip ?? EMPTY }];
    }),
  );
  return { index, files: new Map(files) };
}

const EMPTY = Buffer.alloc(0);

/** Of every source that the bundle is made of, and of the packages by the lock. */
async function sourceHash(): Promise<string> {
  const hash = createHash('sha256');
  const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
  const folders = SOURCES.map((path) =>
    readdir(here(path), { recursive: true, withFileTypes: true }),
  );
  const paths = (await Promise.all(folders))
    .flat()
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  const others = ['./bundle.ts', '../http/docs/samples.ts', '../../package-lock.json'];
  paths.push(...others.map(here));
  for (const path of paths.sort()) hash.update(path).update(await readFile(path));
  return hash.digest('hex').slice(0, 16);
}
