/** Entry file of the transcription child: loads the native package and starts the server. */
import { rm } from 'node:fs/promises';
import { z } from 'zod';
import { systemClock } from '../../core/clock.ts';
import { childLog, serveLocal } from '../local/local-server.ts';
import { optionalPackage } from '../local/optional-package.ts';
import { Media } from '../media/media.ts';
import { type Sherpa, SpeechModel } from './recognizer.ts';
import { TranscriptionService } from './transcription-service.ts';

const TranscriptionSettings = z.object({
  directory: z.string(),
  threads: z.int().min(1),
  maxSeconds: z.number().min(1),
  ffmpeg: z.string().optional(),
  ffprobe: z.string().optional(),
  searchPath: z.string(),
  model: SpeechModel.optional(),
  vadPath: z.string().optional(),
});

serveLocal(async (given, report) => {
  const settings = TranscriptionSettings.parse(given);
  const { directory, threads, maxSeconds, model, vadPath, ...programs } = settings;
  const loaded = await optionalPackage<{ default: Sherpa }>('sherpa-onnx-node', 'Transcription');
  await rm(directory, { recursive: true, force: true });
  const media = await Media.open({ ...programs, log: childLog(), clock: systemClock() });
  const service = new TranscriptionService({
    sherpa: loaded.default,
    media,
    directory,
    threads,
    maxSeconds,
    report,
  });
  if (model !== undefined) await service.load(model, vadPath);
  return service;
});
