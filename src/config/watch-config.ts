/**
 * Reloads the configuration when its files change, and reports either the new configuration or its problems.
 * It compares the files when the file system reports a change, and every 5 seconds, because some file
 * systems report none.
 */
import { type FSWatcher, watch } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, dirname } from 'node:path';

import type { Clock } from '../core/clock.ts';
import { reasonOf } from '../core/log.ts';
import { siblingUrl } from '../core/sibling.ts';
import { workerResult } from '../core/worker-result.ts';
import type { ConfigProblem } from './explain.ts';
import {
  type Config,
  type ConfigDifference,
  type ConfigInputs,
  type ConfigSource,
  diffConfig,
  type LoadedConfig,
  settingsInForce,
  sourceOf,
} from './sections.ts';

/** Editors write a file in several steps, which count as one change. */
const SETTLE_MS = 200;
const POLL_MS = 5_000;

export interface ConfigWatchOptions {
  /** The current configuration and its files. */
  readonly current: { readonly config: Config; readonly sources: readonly ConfigSource[] };
  /** Absolute paths of further files to watch; they need not exist. */
  readonly files: readonly string[];
  readonly load: () => Promise<LoadedConfig>;
  readonly clock: Clock;
  /** Called with a valid configuration that differs from the previous one. */
  readonly onConfig: (config: Config, difference: ConfigDifference) => void;
  /** Called once for each new set of problems. */
  readonly onProblems: (problems: readonly ConfigProblem[]) => void;
}

/** Starts to watch when it is constructed. */
export class ConfigWatch {
  readonly #options: ConfigWatchOptions;
  /** The settings in force, with sections of the start that need a restart. */
  #current: Config;
  #files: readonly string[];
  /** Digests of the loaded files, by path. */
  #digests: ReadonlyMap<string, string | undefined>;
  /** Whether the settings in force are those of a file. */
  #hasFile: boolean;
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
    this.#hasFile = sources.length > 0;
    this.#watch();
    this.#stopPolling = options.clock.every(POLL_MS, () => void this.check());
  }

  /** Compares the files now; `force` reloads them even if they are unchanged (SIGHUP). */
  async check(force = false): Promise<void> {
    // Concurrent checks run one after the other.
    const check = this.#running.then(() => this.#checkNow(force));
    // A failure is thrown to the caller of this check only.
    this.#running = check.catch(() => undefined);
    await check;
  }

  stop(): void {
    this.#stopped = true;
    this.#stopPolling();
    this.#cancelSettle?.();
    for (const watcher of this.#watchers) watcher.close();
    this.#watchers = [];
  }

  async #checkNow(force: boolean): Promise<void> {
    if (this.#stopped) return;
    const found = await Promise.all(this.#files.map(readSource));
    const isKnown = found.every(({ path, digest }) => this.#digests.get(path) === digest);
    if (isKnown && !force) return;
    const loaded = await this.#options.load();
    if (this.#stopped) return;
    // No file could be read, for example without memory for the worker: the next check tries again.
    if (!loaded.ok && loaded.sources.length === 0) return this.#report(loaded.problems);
    // The loaded text may be newer than `found`; then the next check loads it again.
    this.#digests = digestsOf([...loaded.sources, ...found]);
    this.#follow(loaded.sources);
    if (!loaded.ok) return this.#report(loaded.problems);
    // The disk of the file may be away. The defaults would remove all models.
    if (this.#hasFile && loaded.sources.length === 0) return this.#report([this.#missing()]);
    this.#hasFile = loaded.sources.length > 0;
    this.#reported = '';
    const difference = diffConfig(this.#current, loaded.config);
    if (difference.changed.length === 0) return;
    this.#current = settingsInForce(this.#current, loaded.config);
    this.#options.onConfig(loaded.config, difference);
  }

  #missing(): ConfigProblem {
    const [file = ''] = this.#options.files;
    const message = 'The file does not exist any more; an empty file removes all settings';
    return { file: basename(file), path: '', message };
  }

  #report(problems: readonly ConfigProblem[]): void {
    const text = JSON.stringify(problems);
    if (text === this.#reported) return;
    this.#reported = text;
    this.#options.onProblems(problems);
  }

  /** Watches the files of the new configuration. */
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
        // Watches the folder, because editors replace the file.
        const watcher = watch(folder, { persistent: false }, (_event, name) => {
          if (name === null || files.has(name)) this.#settle();
        });
        watcher.on('error', () => watcher.close());
        return [watcher];
      } catch {
        // The folder is missing, or the system has no watches left: polling finds the change.
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
    // A missing file counts as another text.
    return sourceOf(path, undefined);
  }
}

/**
 * Loads the configuration in a worker thread, because parsing thousands of models takes seconds and would
 * block the event loop.
 */
export async function reloadConfig(inputs: Omit<ConfigInputs, 'readFile'>): Promise<LoadedConfig> {
  try {
    return await workerResult<LoadedConfig>(siblingUrl(import.meta.url, 'load-worker'), inputs);
  } catch (error) {
    // Out of memory or threads: the old configuration stays in use.
    const problem = {
      file: 'configuration',
      path: '',
      message: `Could not be loaded: ${reasonOf(error)}`,
    };
    return { ok: false, problems: [problem], sources: [] };
  }
}
