/** The `media` section: ffmpeg, models of background removal and transcription, and limits of media. */
import * as z from 'zod';

import { Text, whole, group } from './setting-kinds.ts';

const MB = 1_000_000;
/** Disk space reserved for the result of a video job, in MB; a video of 30 seconds is smaller. */
export const VIDEO_RESULT_MB = 200;
/** Default disk space per open job of a caller: its result and its input media. */
const MB_PER_OPEN_JOB = 250;
const MIN_DEFAULT_CALLER_MB = 5_000;

export type MediaSection = z.infer<typeof MediaSection>;
export const MediaSection = group({
  ffmpeg: Text.optional().describe(
    'Path of `ffmpeg`. Default: found in `PATH`, else the package node-av.',
  ),
  ffprobe: Text.optional().describe('Path of `ffprobe`. Default: in the folder of `ffmpeg`.'),
  decodeTimeoutSeconds: whole(120).describe(
    'Timeout for inspecting a file and for decoding its audio, in seconds.',
  ),
  encodeTimeoutSeconds: whole(3_600).describe('Timeout for encoding a video, in seconds.'),
  memoryMb: whole(1_500).describe(
    'Memory limit of a media process, in MB. The server kills a process that exceeds it.',
  ),
  maxDownloadMb: whole(500).describe(
    'Maximum size of media for transcription or upscaling, in MB.',
  ),
  maxStoredMb: whole(20_000).describe(
    'Disk space for media and results of all callers, in MB. Above it requests get 503.',
  ),
  maxStoredMbPerCaller: z
    .int()
    .min(1)
    .optional()
    .describe(
      'Disk space for media and results of one caller, in MB. Above it requests get 429. Default: 250 for each of `video.maxOpenJobs`, at least 5000.',
    ),
  downloadTimeoutSeconds: whole(300).describe(
    'Timeout for downloading one media file from a URL, in seconds.',
  ),
  cutoutModel: z
    .union([z.enum(['person', 'u2netp', 'isnet']), Text.endsWith('.onnx')])
    .default('u2netp')
    .describe(
      'Model of background removal. `person` is built in and finds only people. `u2netp` (5 MB) and `isnet` (179 MB, good with objects and animals) are downloaded at their first use. Or the path of your own U-2-Net or ISNet file (`.onnx`).',
    ),
  maxTranscriptionSeconds: whole(7_200).describe(
    'Maximum duration of transcribed media, in seconds. Longer media is rejected with 422.',
  ),
  speechModel: z
    .discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('whisper'), encoder: Text, decoder: Text, tokens: Text }),
      z.strictObject({ kind: z.literal('moonshine'), encoder: Text, decoder: Text, tokens: Text }),
      z.strictObject({ kind: z.literal('sense-voice'), model: Text, tokens: Text }),
      z.strictObject({ kind: z.literal('zipformer-ctc'), model: Text, tokens: Text }),
    ])
    .optional()
    .describe(
      'Files of your own sherpa-onnx speech model, of the `kind` `whisper`, `moonshine` (with the merged decoder), `sense-voice` or `zipformer-ctc`. Default: Whisper base, which is downloaded.',
    ),
  vadModel: Text.optional().describe(
    'File of a Silero voice detector for your own speech model. Default: detection by loudness.',
  ),
  voiceModel: Text.endsWith('.onnx')
    .optional()
    .describe(
      'Path of your own Piper voice for American English (`.onnx`), with its `.onnx.json` in the same folder. Default: LJ Speech (64 MB), which is downloaded at its first use.',
    ),
});

/** Disk space for media and results of one caller, in MB. */
export function maxCallerMb(section: MediaSection, maxOpenJobs: number): number {
  const byJobs = Math.max(MIN_DEFAULT_CALLER_MB, maxOpenJobs * MB_PER_OPEN_JOB);
  return section.maxStoredMbPerCaller ?? byJobs;
}

/** `maxDownloadMb` in bytes. */
export function maxDownloadBytes(section: MediaSection): number {
  return section.maxDownloadMb * MB;
}
