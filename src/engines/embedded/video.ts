/**
 * Starts the embedded video engine: a child process that serves `/v1/videos` with the media tool of
 * this machine.
 */
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import { programUrl } from './program.ts';

export interface VideoSettings {
  /** A folder for this engine only; each start of the child empties it. */
  readonly directory: string;
  readonly ffmpeg?: string | undefined;
  readonly ffprobe?: string | undefined;
  readonly searchPath: string;
}

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
