/**
 * The embedded video engine, as the parent sees it: one child process that speaks OpenAI's
 * `/v1/videos` and works with the media tool of this machine.
 */
import type { Clock } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { type LocalAddress, LocalChild, entryBeside } from '../local/local-child.ts';

export interface VideoEngineOptions {
  /** A folder of its own; what is in it is deleted at each start of the child. */
  readonly directory: string;
  readonly ffmpeg?: string | undefined;
  readonly ffprobe?: string | undefined;
  /** The `PATH` of the machine. */
  readonly searchPath: string;
  readonly log: Log;
  readonly clock: Clock;
  readonly ids: Ids;
}

export class VideoEngine {
  readonly #child: LocalChild;

  constructor(options: VideoEngineOptions) {
    const { log, clock, ids, ...settings } = options;
    this.#child = new LocalChild({
      name: 'video',
      entry: entryBeside(import.meta.url, 'video-process'),
      settings: () => settings,
      log,
      clock,
      ids,
    });
  }

  /** Starts the child when it does not run; the engine's base is `url` + `/v1`. */
  async address(): Promise<LocalAddress> {
    return await this.#child.address();
  }

  /** The child's process id, `undefined` while it does not run. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  async close(): Promise<void> {
    await this.#child.close();
  }
}
