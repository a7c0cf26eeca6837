/** What loading gives: the settings in force, or what is wrong with the file. */
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

export type LoadedConfig =
  | {
      readonly ok: true;
      readonly config: Config;
      readonly warnings: readonly ConfigProblem[];
      /** Files that were read, absolute, the configuration first. */
      readonly sources: readonly string[];
    }
  | {
      readonly ok: false;
      readonly problems: readonly ConfigProblem[];
      readonly sources: readonly string[];
    };
