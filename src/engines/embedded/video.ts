/**
 * The embedded video engine, as the parent sees it: one child process that speaks OpenAI's
 * `/v1/videos` and works with the media tool of this machine.
 */
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import { programUrl } from './program.ts';

export interface VideoSettings {
  /** A folder of its own; what is in it is deleted at each start of the child. */
  readonly directory: string;
  readonly ffmpeg?: string | undefined;
  readonly ffprobe?: string | undefined;
  /** The `PATH` of the machine. */
  readonly searchPath: string;
}

/** The engine's base is the address of the child + `/v1`. */
export function videoEngine(options: VideoSettings & EngineProcessParts): EngineProcess {
  const { log, clock, ids, onChange, dataFolder, ...settings } = options;
  return new EngineProcess({
    name: 'video',
    entry: programUrl('media/main'),
    settings: () => settings,
    onChange,
    dataFolder,
    log,
    clock,
    ids,
  });
}
