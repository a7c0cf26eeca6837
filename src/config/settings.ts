/** What loading gives: the settings in force, or what is wrong with the file; and what was read. */
import { hash } from 'node:crypto';
import type { ConfigProblem } from './explain.ts';
import type { FileSettings } from './sections.ts';

/** The settings in force. */
export interface Config extends Readonly<Omit<FileSettings, 'database' | 'data' | 'priceFile'>> {
  /** `sqlite:<absolute file>` or `postgres://…`. */
  readonly databaseUrl: string;
  /** Absolute. */
  readonly dataFolder: string;
  /** The `PATH` of the machine, where programs such as ffmpeg are looked for. */
  readonly searchPath: string;
  /** `service.publicUrl`, or the address to listen on. No trailing slash. */
  readonly publicUrl: string;
}

/** A file that was asked for. */
export interface ConfigSource {
  /** Absolute. */
  readonly path: string;
  /** Of its text; `undefined` when there was none to read. */
  readonly digest: string | undefined;
}

/** The file as it was when it was read; the digest says later whether its text is another. */
export function sourceOf(path: string, text: string | undefined): ConfigSource {
  return { path, digest: text === undefined ? undefined : hash('sha256', text) };
}

export type LoadedConfig =
  | {
      readonly ok: true;
      readonly config: Config;
      readonly warnings: readonly ConfigProblem[];
      /** Files that were read, the configuration first. */
      readonly sources: readonly ConfigSource[];
    }
  | {
      readonly ok: false;
      readonly problems: readonly ConfigProblem[];
      readonly sources: readonly ConfigSource[];
    };
