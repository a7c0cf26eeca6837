/**
 * Argument lists for the `ffmpeg` and `ffprobe` programs, and the reading of what they print.
 *
 * Every input is opened with one format, from the file protocol alone, with a bound on frame size;
 * subtitles, data and attachments are never mapped.
 */
import { z } from 'zod';
import type { MediaInput } from './container.ts';
import {
  type AudioTask,
  MAX_FRAME_PIXELS,
  type MediaFacts,
  SPEECH_RATE,
  type ScaleTask,
  type StillTask,
  quarterTurn,
  scaleFilter,
  stillFilter,
  trueRate,
} from './media-task.ts';

/** What the video encoder is: H.264 where the build has it. */
export type VideoEncoder = 'libx264' | 'mpeg4';

const QUIET = ['-hide_banner', '-nostdin', '-loglevel', 'error'];
const PROGRESS = ['-progress', 'pipe:1', '-nostats'];
/** Container formats are read by these demuxers only; FFmpeg lists some under joined names. */
const DEMUXERS: Partial<Record<MediaInput['format'], string>> = {
  mov: 'mov,mp4,m4a,3gp,3g2,mj2',
  matroska: 'matroska,webm',
};

function source(input: MediaInput): string[] {
  return [
    ['-protocol_whitelist', 'file'],
    ['-format_whitelist', DEMUXERS[input.format] ?? input.format],
    ['-f', input.format],
    ['-i', `file:${input.path}`],
  ].flat();
}

function videoCodec(encoder: VideoEncoder): string[] {
  return encoder === 'libx264'
    ? ['-c:v', 'libx264', '-preset', 'veryfast', '-crf', '20']
    : ['-c:v', 'mpeg4', '-q:v', '3'];
}

/** The rest of an MP4 that plays while it loads. */
function mp4(output: string, seconds: number): string[] {
  return ['-t', String(seconds), '-movflags', '+faststart', '-f', 'mp4', '-y', `file:${output}`];
}

const AUDIO_CODEC = ['-c:a', 'aac', '-b:a', '128k', '-ac', '2'];

export function probeArguments(input: MediaInput): string[] {
  const show =
    '-show_entries format=duration:stream=codec_type,codec_name,width,height,avg_frame_rate,sample_rate,channels:stream_disposition=attached_pic:stream_side_data=rotation';
  return [
    '-hide_banner',
    '-loglevel',
    'error',
    ...source(input),
    ...show.split(' '),
    '-of',
    'json',
  ];
}

/** Walks through all packets without decoding; the last progress line says how long they last. */
export function measureArguments(input: MediaInput): string[] {
  const map = ['-map', '0:v?', '-map', '0:a?', '-c', 'copy', '-f', 'null', '-'];
  return [...QUIET, ...PROGRESS, ...source(input), ...map];
}

/** Decodes one kind of stream to its end and writes nothing; the first error ends it. */
export function checkArguments(input: MediaInput, stream: 'video' | 'audio'): string[] {
  // `V` is the video that is no cover picture.
  const map = stream === 'video' ? '0:V:0' : '0:a:0';
  const kind = stream === 'video' ? 'v' : 'a';
  // Only the decoder is strict: containers may be a little careless.
  const strict = ['-xerror', `-err_detect:${kind}`, 'explode', '-max_pixels'];
  const bound = String(MAX_FRAME_PIXELS);
  return [
    ...QUIET,
    ...PROGRESS,
    ...strict,
    bound,
    ...source(input),
    '-map',
    map,
    '-f',
    'null',
    '-',
  ];
}

export function audioArguments(task: AudioTask): string[] {
  const output = ['-f', 's16le', '-y', `file:${task.output}`];
  const shape = ['-map', '0:a:0', '-vn', '-sn', '-dn', '-ac', '1', '-ar', String(SPEECH_RATE)];
  return [
    ...QUIET,
    ...PROGRESS,
    ...source(task.input),
    ...shape,
    '-t',
    String(task.maxSeconds),
    ...output,
  ];
}

export function scaleArguments(task: ScaleTask, encoder: VideoEncoder): string[] {
  return [
    ...QUIET,
    ...PROGRESS,
    '-max_pixels',
    String(MAX_FRAME_PIXELS),
    ...source(task.input),
    '-map',
    '0:v:0',
    ...(task.hasAudio ? ['-map', '0:a:0'] : []),
    // The program turns frames upright by itself.
    '-vf',
    scaleFilter(task, ''),
    '-threads',
    '1',
    ...videoCodec(encoder),
    ...(task.hasAudio ? AUDIO_CODEC : []),
    ...mp4(task.output, task.maxSeconds),
  ];
}

export function stillArguments(task: StillTask, encoder: VideoEncoder): string[] {
  return [
    ...QUIET,
    ...PROGRESS,
    '-max_pixels',
    String(MAX_FRAME_PIXELS),
    ...source(task.input),
    ...(task.audio === null ? [] : source(task.audio)),
    '-filter_complex',
    `[0:v:0]${stillFilter(task)}[v]`,
    '-map',
    '[v]',
    ...(task.audio === null ? [] : ['-map', '1:a:0', ...AUDIO_CODEC]),
    '-threads',
    '1',
    ...videoCodec(encoder),
    ...mp4(task.output, task.seconds),
  ];
}

/** Seconds of output so far, of a line that `-progress` prints; `undefined` for the other lines. */
export function progressSeconds(line: string): number | undefined {
  const match = /^out_time_(?:us|ms)=(\d+)$/.exec(line);
  return match === null ? undefined : Number(match[1]) / 1e6;
}

/** Frames of output so far, of a line that `-progress` prints. */
export function progressFrames(line: string): number | undefined {
  const match = /^frame=\s*(\d+)$/.exec(line);
  return match === null ? undefined : Number(match[1]);
}

/** What the walk through all packets found. */
export interface Measured {
  readonly seconds: number;
  readonly frames: number;
}

const ProbeStream = z.object({
  codec_type: z.string().optional(),
  codec_name: z.string().default('unknown'),
  width: z.number().optional(),
  height: z.number().optional(),
  avg_frame_rate: z.string().optional(),
  sample_rate: z.string().optional(),
  channels: z.number().optional(),
  disposition: z.object({ attached_pic: z.number().optional() }).optional(),
  side_data_list: z.array(z.object({ rotation: z.number().optional() })).optional(),
});

const ProbeAnswer = z.object({
  streams: z.array(ProbeStream).default([]),
  format: z.object({ duration: z.string().optional() }).default({}),
});

function rate(text: string | undefined): number {
  const [over = 0, under = 1] = (text ?? '').split('/').map(Number);
  const value = over / under;
  return Number.isFinite(value) ? value : 0;
}

function videoFacts(stream: z.infer<typeof ProbeStream>, measured: Measured): MediaFacts['video'] {
  const { width = 0, height = 0 } = stream;
  if (width < 1 || height < 1) return null;
  const turn = stream.side_data_list?.find((data) => data.rotation !== undefined)?.rotation ?? 0;
  // ffprobe counts counter-clockwise.
  const rotation = quarterTurn(-turn);
  const isUpright = rotation % 180 === 0;
  return {
    codec: stream.codec_name,
    width: isUpright ? width : height,
    height: isUpright ? height : width,
    framesPerSecond: trueRate(rate(stream.avg_frame_rate), measured.frames, measured.seconds),
    rotation,
  };
}

/** The facts in ffprobe's JSON; throws when it is something else. */
export function readProbe(json: string, measured: Measured): MediaFacts {
  const { streams, format } = ProbeAnswer.parse(JSON.parse(json));
  const of = (type: string): z.infer<typeof ProbeStream> | undefined =>
    streams.find((s) => s.codec_type === type && s.disposition?.attached_pic !== 1);
  const video = of('video');
  const audio = of('audio');
  const header = Number(format.duration ?? 0);
  return {
    durationSeconds: Math.max(Number.isFinite(header) ? header : 0, measured.seconds, 0),
    video: video === undefined ? null : videoFacts(video, measured),
    audio:
      audio === undefined
        ? null
        : {
            codec: audio.codec_name,
            sampleRate: Number(audio.sample_rate ?? 0),
            channels: audio.channels ?? 0,
          },
  };
}
