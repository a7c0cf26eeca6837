/**
 * The files of the console and of `/docs`. A package contains them. A checkout bundles them at the
 * first request and caches them beside the packages until a source changes.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Clock, DAY_MS } from '../core/clock.ts';
import { onDemand } from '../core/on-demand.ts';
import type { BundleIndex } from './bundle.ts';

/** Exists only in a package. */
const BUILT = fileURLToPath(new URL('./bundle/', import.meta.url));
const SOURCES = ['./app/', './reference/'];
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
  /** Reads a file of an earlier build, for tabs that were opened before an upgrade. */
  readonly earlier: (name: string) => Promise<ConsoleFile | undefined>;
}

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};

/** File names of `bundle.ts`: a word and a hash of the contents. */
const FILE_NAME = /^[a-z][a-z-]{0,40}-[A-Z0-9]{8}\.(?:js|css|svg)$/;
const PACKED = ['', '.br', '.gz'] as const;
/** Retention of files after their last use in a current build. */
const KEPT_MS = 30 * DAY_MS;

/** Opens the bundle at the first call. `keepIn`: the folder for files of earlier builds. */
export function assetsOnDemand(keepIn: string, clock: Clock): () => Promise<ConsoleAssets> {
  return onDemand(async () => {
    const bundle = await openBundle();
    try {
      await keepFiles(bundle, keepIn, clock);
    } catch {
      // For example a full disk, or another process that deletes the same file. Only tabs of earlier
      // builds need these files.
    }
    return { ...bundle, earlier: (name) => readEarlier(keepIn, name) };
  });
}

type Bundle = Pick<ConsoleAssets, 'index' | 'files'>;

/** Copies the files of this build to `folder` and deletes files that were not used for `KEPT_MS`. */
async function keepFiles({ files }: Bundle, folder: string, clock: Clock): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const [name, { plain, brotli, gzip }] of files) {
    const bytes = [plain, brotli, gzip];
    await Promise.all(
      PACKED.map((ending, at) => writeFile(join(folder, name + ending), bytes[at] ?? EMPTY)),
    );
  }
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    if (clock.nowMs() - (await stat(path)).mtimeMs > KEPT_MS) await rm(path, { force: true });
  }
}

async function readEarlier(folder: string, name: string): Promise<ConsoleFile | undefined> {
  if (!FILE_NAME.test(name)) return undefined;
  try {
    return await readConsoleFile(folder, name);
  } catch {
    // No recent build contained the file.
    return undefined;
  }
}

async function openBundle(): Promise<Bundle> {
  if (existsSync(join(BUILT, 'index.json'))) return readBundle(BUILT);
  const { writeBundle } = await import('./bundle.ts');
  const kept = join(PACKAGES, '.cache', 'farebox', `console-${await sourceHash()}`);
  if (existsSync(join(kept, 'index.json'))) return readBundle(kept);
  try {
    await writeBundle(kept);
    return await readBundle(kept);
  } catch (error) {
    // Another server may have made it at the same time, or the folder is not writable.
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
  const code = (error as { code?: string }).code; // file errors of Node have one
  return code === 'EACCES' || code === 'EROFS' || code === 'EPERM' || code === 'ENOSPC';
}

async function readBundle(folder: string): Promise<Bundle> {
  const text = await readFile(join(folder, 'index.json'), 'utf8');
  const index = JSON.parse(text) as BundleIndex; // written by `bundle.ts`
  const files = await Promise.all(
    index.files.map(async (name): Promise<[string, ConsoleFile]> => [
      name,
      await readConsoleFile(folder, name),
    ]),
  );
  return { index, files: new Map(files) };
}

async function readConsoleFile(folder: string, name: string): Promise<ConsoleFile> {
  const [plain, brotli, gzip] = await Promise.all(
    PACKED.map((ending) => readFile(join(folder, name + ending))),
  );
  const type = TYPES[name.slice(name.lastIndexOf('.') + 1)] ?? 'application/octet-stream';
  return { type, plain: plain ?? EMPTY, brotli: brotli ?? EMPTY, gzip: gzip ?? EMPTY };
}

const EMPTY = Buffer.alloc(0);

/** A hash of all sources of the bundle and of the package lock. */
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
  const others = ['./bundle.ts', '../../package-lock.json'];
  paths.push(...others.map(here));
  for (const path of paths.sort()) hash.update(path).update(await readFile(path));
  return hash.digest('hex').slice(0, 16);
}
