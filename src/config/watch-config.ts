/**
 * Notices that the configuration changed and hands over the new one, whole and valid, or the
 * problems while the old one goes on. Files are looked at when their folder reports a change, and
 * every few seconds because some file systems report nothing; a text that is the same as when it was
 * loaded is not parsed again.
 */
import { type FSWatcher, watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { Worker } from 'node:worker_threads';

import type { Clock } from '../core/clock.ts';
import { siblingUrl } from '../core/sibling.ts';
import type { ConfigProblem } from './explain.ts';
import {
  type Config,
  type ConfigDifference,
  type ConfigInputs,
  type ConfigSource,
  diffConfig,
  type LoadedConfig,
  sourceOf,
} from './sections.ts';

/** Editors write a file in several steps; they are one change. */
const SETTLE_MS = 200;
const POLL_MS = 5_000;

export interface ConfigWatchOptions {
  /** What is in force, and the files that it came from. */
  readonly current: { readonly config: Config; readonly sources: readonly ConfigSource[] };
  /** Further files to look at, absolute; also one that does not exist yet. */
  readonly files: readonly string[];
  readonly load: () => Promise<LoadedConfig>;
  readonly clock: Clock;
  /** Called with a valid configuration that differs from the last one. */
  readonly onConfig: (config: Config, difference: ConfigDifference) => void;
  /** Called once for each different set of problems. */
  readonly onProblems: (problems: readonly ConfigProblem[]) => void;
}

/** Watches from its construction on; nothing is reported for the state at the start. */
export class ConfigWatch {
  readonly #options: ConfigWatchOptions;
  #current: Config;
  #files: readonly string[];
  /** What was loaded, so that a change between loading and watching is not lost. */
  #digests: ReadonlyMap<string, string | undefined>;
  #reported = '';
  #watchers: FSWatcher[] = [];
  #running: Promise<void> = Promise.resolve();
  #cancelSettle: (() => void) | undefined;
  readonly #stopPolling: () => void;
  #stopped = false;

  constructor(options: ConfigWatchOptions) {
    this.#options = options;
    const { config, sources } = options.current;
    this.#current = config;
    this.#files = filesOf(options.files, sources);
    this.#digests = digestsOf(sources);
    this.#watch();
    this.#stopPolling = options.clock.every(POLL_MS, () => void this.check());
  }

  /** Looks now; `force` reads and checks even when no text changed (SIGHUP). */
  async check(force = false): Promise<void> {
    // One look at a time: a second one waits, and then finds nothing new.
    const looking = this.#running.then(() => this.#look(force));
    // Who asked hears of a look that fails; the next one looks all the same.
    this.#running = looking.catch(() => undefined);
    await looking;
  }

  stop(): void {
    this.#stopped = true;
    this.#stopPolling();
    this.#cancelSettle?.();
    for (const watcher of this.#watchers) watcher.close();
    this.#watchers = [];
  }

  async #look(force: boolean): Promise<void> {
    if (this.#stopped) return;
    const found = await Promise.all(this.#files.map(readSource));
    const isKnown = found.every(({ path, digest }) => this.#digests.get(path) === digest);
    if (isKnown && !force) return;
    const loaded = await this.#options.load();
    if (this.#stopped) return;
    // What is loaded after the look may be newer; then the next look loads it again.
    this.#digests = digestsOf([...loaded.sources, ...found]);
    this.#follow(loaded.sources);
    if (!loaded.ok) {
      this.#report(loaded.problems);
      return;
    }
    this.#reported = '';
    const difference = diffConfig(this.#current, loaded.config);
    if (difference.changed.length === 0) return;
    this.#current = loaded.config;
    this.#options.onConfig(loaded.config, difference);
  }

  #report(problems: readonly ConfigProblem[]): void {
    const text = JSON.stringify(problems);
    if (text === this.#reported) return;
    this.#reported = text;
    this.#options.onProblems(problems);
  }

  /** A new price file is watched from its first mention on. */
  #follow(sources: readonly ConfigSource[]): void {
    const files = filesOf(this.#options.files, sources);
    if (files.join('\n') === this.#files.join('\n')) return;
    this.#files = files;
    for (const watcher of this.#watchers) watcher.close();
    this.#watch();
  }

  #watch(): void {
    const names = new Map<string, Set<string>>();
    for (const file of this.#files) {
      const folder = dirname(file);
      names.set(folder, (names.get(folder) ?? new Set()).add(basename(file)));
    }
    this.#watchers = [...names].flatMap(([folder, files]) => {
      try {
        // Watching the folder survives editors that replace the file.
        const watcher = watch(folder, { persistent: false }, (_event, name) => {
          if (name === null || files.has(name)) this.#settle();
        });
        watcher.on('error', () => watcher.close());
        return [watcher];
      } catch {
        // No folder or no watches left on this system: polling sees the change.
        return [];
      }
    });
  }

  #settle(): void {
    this.#cancelSettle?.();
    this.#cancelSettle = this.#options.clock.after(SETTLE_MS, () => void this.check());
  }
}

function filesOf(files: readonly string[], sources: readonly ConfigSource[]): readonly string[] {
  return [...new Set([...files, ...sources.map(({ path }) => path)])];
}

function digestsOf(sources: readonly ConfigSource[]): ReadonlyMap<string, string | undefined> {
  return new Map(sources.map(({ path, digest }) => [path, digest]));
}

async function readSource(path: string): Promise<ConfigSource> {
  try {
    return sourceOf(path, await readFile(path, 'utf8'));
  } catch {
    // A file that is gone for a moment, or not there yet, is a text of its own.
    return sourceOf(path, undefined);
  }
}

/**
 * As `loadConfig` from the file system, on another thread: parsing a catalogue of thousands of
 * models takes seconds, and a running server must not stand still for it.
 */
export async function reloadConfig(inputs: Omit<ConfigInputs, 'readFile'>): Promise<LoadedConfig> {
  const entry = siblingUrl(import.meta.url, 'load-worker');
  const worker = new Worker(entry, { workerData: inputs, env: {} });
  try {
    return await new Promise<LoadedConfig>((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
      worker.once('exit', () => reject(new Error('The worker ended without an outcome')));
    });
  } catch (error) {
    // Out of memory or threads: the old configuration goes on and the operator reads why.
    const reason = error instanceof Error ? error.message : String(error);
    const problem = { file: 'configuration', path: '', message: `Could not be loaded: ${reason}` };
    return { ok: false, problems: [problem], sources: [] };
  } finally {
    await worker.terminate();
  }
}
