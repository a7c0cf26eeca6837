/**
 * Media work: where ffmpeg is, what background removal and transcription run, and how much foreign
 * media is taken.
 */
import { z } from 'zod';

import { Text, whole, group } from './setting-kinds.ts';

const MB = 1_000_000;
/** Disk that is set aside for the result of a video job; a video of half a minute is smaller. */
export const VIDEO_RESULT_MB = 200;
/** Of the default for one caller: its result, and media that it starts from. */
const MB_PER_OPEN_JOB = 250;
const MIN_DEFAULT_CALLER_MB = 5_000;

export type MediaSection = z.infer<typeof MediaSection>;
export const MediaSection = group({
  ffmpeg: Text.optional().describe(
    'Path of `ffmpeg`. Default: found on the search path, else the package node-av.',
  ),
  ffprobe: Text.optional().describe('Path of `ffprobe`. Default: beside `ffmpeg`.'),
  decodeTimeoutSeconds: whole(120).describe(
    'Limit for looking at a file and for taking its sound.',
  ),
  encodeTimeoutSeconds: whole(3_600).describe('Limit for writing a video.'),
  memoryMb: whole(1_500).describe('Memory of one media process; more ends it.'),
  maxDownloadMb: whole(500).describe(
    'Largest media that is fetched for transcription or upscaling.',
  ),
  maxStoredMb: whole(20_000).describe(
    'Disk that media of callers and results may take altogether; more is 503.',
  ),
  maxStoredMbPerCaller: z
    .int()
    .min(1)
    .optional()
    .describe(
      'Disk that the media and results of one caller may take; more is 429. Default: 250 for each of `video.maxOpenJobs`, at least 5000.',
    ),
  downloadTimeoutSeconds: whole(300).describe(
    'Limit for fetching one media file that a caller names by URL.',
  ),
  cutoutModel: z
    .union([z.enum(['person', 'u2netp', 'isnet']), Text.endsWith('.onnx')])
    .default('u2netp')
    .describe(
      'Background removal: `person` is in the box and cuts out people only; `u2netp` (5 MB) and `isnet` (179 MB) are fetched on first use; or the path of a U-2-Net or ISNet file (`.onnx`) of your own. ISNet cuts out things and animals well.',
    ),
  maxTranscriptionSeconds: whole(7_200).describe(
    'Longest media that is transcribed; longer is 422.',
  ),
  speechModel: z
    .discriminatedUnion('kind', [
      z.strictObject({ kind: z.literal('whisper'), encoder: Text, decoder: Text, tokens: Text }),
      z.strictObject({ kind: z.literal('sense-voice'), model: Text, tokens: Text }),
      z.strictObject({ kind: z.literal('zipformer-ctc'), model: Text, tokens: Text }),
    ])
    .optional()
    .describe('Files of a sherpa-onnx speech model of your own. Default: Whisper base is fetched.'),
  vadModel: Text.optional().describe(
    'File of a Silero voice detector beside your own speech model. Default: by loudness.',
  ),
});

/** Disk in MB that the media and results of one caller may take. */
export function maxCallerMb(section: MediaSection, maxOpenJobs: number): number {
  const byJobs = Math.max(MIN_DEFAULT_CALLER_MB, maxOpenJobs * MB_PER_OPEN_JOB);
  return section.maxStoredMbPerCaller ?? byJobs;
}

/** `maxDownloadMb` in bytes. */
export function maxDownloadBytes(section: MediaSection): number {
  return section.maxDownloadMb * MB;
}
