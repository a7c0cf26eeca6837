/**
 * Media work by the `ffmpeg` and `ffprobe` programs: builds their arguments and parses their
 * output.
 *
 * Every input is opened with one format, from the file protocol only, with a limit of the frame
 * size; subtitles, data and attachments are never mapped.
 */
import * as z from 'zod';
import type { MediaInput } from './container.ts';
import type { MediaFacts } from './media-facts.ts';
import {
  BLACK_LUMA,
  type EncodeTask,
  LUMA_FILTER,
  type ReadTask,
  MAX_FRAME_PIXELS,
  SILENCE_DECIBELS,
  SPEECH_BIT_RATE,
  SPEECH_BYTES_PER_SECOND,
  SPEECH_ENCODERS,
  SPOKEN_RATE,
  type Measured,
  type MediaTool,
  SPEECH_RATE,
  type TaskContext,
  ToolFailure,
  type WriteTask,
  shownVideo,
  toolFailure,
} from './media-task.ts';

/** H.264 if the build has it. */
export type VideoEncoder = 'libx264' | 'mpeg4';

const START = words('-hide_banner -nostdin -loglevel error -progress pipe:1 -nostats');
const BOUND = words(`-max_pixels ${MAX_FRAME_PIXELS}`);
const ENCODERS: Readonly<Record<VideoEncoder, readonly string[]>> = {
  libx264: words('-threads 1 -c:v libx264 -preset veryfast -crf 20'),
  mpeg4: words('-threads 1 -c:v mpeg4 -q:v 3'),
};
/** FFmpeg lists some demuxers under joined names. */
const DEMUXERS: Partial<Record<MediaInput['format'], string>> = {
  mov: 'mov,mp4,m4a,3gp,3g2,mj2',
  matroska: 'matroska,webm',
};

function words(text: string): string[] {
  return text.split(' ');
}

function source({ format, path }: MediaInput): string[] {
  const only = `-protocol_whitelist file -format_whitelist ${DEMUXERS[format] ?? format}`;
  return [...words(`${only} -f ${format} -i`), `file:${path}`];
}

export function probeArguments(input: MediaInput): string[] {
  const entries =
    'format=duration:stream=codec_type,width,height,avg_frame_rate:stream_disposition=attached_pic:stream_side_data=rotation';
  const show = words(`-show_entries ${entries} -of json`);
  return [...words('-hide_banner -loglevel error'), ...source(input), ...show];
}

/** Reads all packets without decoding; the last progress line contains their duration. */
export function measureArguments(input: MediaInput): string[] {
  return [...START, ...source(input), ...words('-map 0:v? -map 0:a? -c copy -f null -')];
}

/** Decodes one kind of stream completely, without output; stops at the first error. */
export function checkArguments(input: MediaInput, stream: 'video' | 'audio'): string[] {
  // `V` selects video streams that are not cover images.
  const [kind, map] = stream === 'video' ? ['v', '0:V:0'] : ['a', '0:a:0'];
  // Strict for the decoder only: minor container errors are accepted.
  const strict = words(`-xerror -err_detect:${kind} explode`);
  return [...START, ...strict, ...BOUND, ...source(input), ...words(`-map ${map} -f null -`)];
}

/** Decodes the first audio stream completely, without output, and continues after errors. */
export function soundArguments(input: MediaInput): string[] {
  return [...START, ...BOUND, ...source(input), ...words('-map 0:a:0 -f null -')];
}

/** Outputs the first frame that is brighter than black, or louder than silence, and stops. */
export function signalArguments(input: MediaInput, stream: 'video' | 'audio'): string[] {
  const above = (key: string, value: number) =>
    `metadata=mode=select:key=lavfi.${key}:value=${value}:function=greater`;
  const shape =
    stream === 'video'
      ? `-map 0:V:0 -vf ${LUMA_FILTER},signalstats,${above('signalstats.YMAX', BLACK_LUMA)} -frames:v 1`
      : `-map 0:a:0 -af astats=metadata=1:reset=1,a${above('astats.Overall.Peak_level', SILENCE_DECIBELS)} -frames:a 1`;
  return [...START, ...BOUND, ...source(input), ...words(`${shape} -f null -`)];
}

export function writeArguments(task: WriteTask, encoder: VideoEncoder): string[] {
  const { video, audio, output, maxSeconds } = task;
  if (video === null) {
    // Timestamps can be closer than the samples are long.
    const most = `-t ${maxSeconds} -fs ${Math.ceil(maxSeconds * SPEECH_BYTES_PER_SECOND)}`;
    const shape = `-map 0:a:0 -vn -sn -dn -ac 1 -ar ${SPEECH_RATE} ${most} -f s16le -y`;
    return [...START, ...(audio === null ? [] : source(audio)), ...words(shape), `file:${output}`];
  }
  const hasOwnInput = audio !== null && audio.path !== video.input.path;
  return [
    ...START,
    ...BOUND,
    ...source(video.input),
    ...(hasOwnInput ? source(audio) : []),
    // ffmpeg rotates frames by itself.
    ...words(`-map 0:v:0 -vf ${video.filter}`),
    ...(audio === null ? [] : words(`-map ${hasOwnInput ? 1 : 0}:a:0 -c:a aac -b:a 128k -ac 2`)),
    ...ENCODERS[encoder],
    // An MP4 that plays while it loads.
    ...words(`-t ${maxSeconds} -movflags +faststart -f mp4 -y`),
    `file:${output}`,
  ];
}

export function encodeArguments({ format, rate }: EncodeTask): string[] {
  const { encoder, samples, muxer, options = {} } = SPEECH_ENCODERS[format];
  const muxed = Object.entries(options).map(([name, value]) => `-${name} ${value}`);
  return words(
    [
      `-hide_banner -nostdin -loglevel error -probesize 32 -f s16le -ar ${rate} -ac 1 -i pipe:0`,
      `-c:a ${encoder} -sample_fmt ${samples} -ar ${SPOKEN_RATE} -b:a ${SPEECH_BIT_RATE}`,
      ...muxed,
      `-flush_packets 1 -f ${muxer} pipe:1`,
    ].join(' '),
  );
}

/** Seconds of output so far from a line of `-progress`; `undefined` for other lines. */
function progressSeconds(line: string): number | undefined {
  const match = /^out_time_(?:us|ms)=(\d+)$/.exec(line);
  return match === null ? undefined : Number(match[1]) / 1e6;
}

const ProbeStream = z.object({
  codec_type: z.string().optional(),
  width: z.number().default(0),
  height: z.number().default(0),
  avg_frame_rate: z.string().default(''),
  disposition: z.object({ attached_pic: z.number().optional() }).optional(),
  side_data_list: z.array(z.object({ rotation: z.number().optional() })).default([]),
});

const ProbeResponse = z.object({
  streams: z.array(ProbeStream).default([]),
  format: z.object({ duration: z.string().optional() }).default({}),
});

function videoFacts(stream: z.infer<typeof ProbeStream>, measured: Measured): MediaFacts['video'] {
  const { width, height } = stream;
  const [over = 0, under = 1] = stream.avg_frame_rate.split('/').map(Number);
  const rate = Number.isFinite(over / under) ? over / under : 0;
  const turned = stream.side_data_list.find((data) => data.rotation !== undefined)?.rotation ?? 0;
  // ffprobe counts counter-clockwise.
  return shownVideo({ width, height, rate, degrees: -turned }, measured);
}

export function readProbe(json: string, measured: Measured): MediaFacts {
  const { streams, format } = ProbeResponse.parse(JSON.parse(json));
  const of = (type: string): z.infer<typeof ProbeStream> | undefined =>
    streams.find((s) => s.codec_type === type && s.disposition?.attached_pic !== 1);
  const video = of('video');
  const header = Number(format.duration ?? 0);
  return {
    durationSeconds: Math.max(Number.isFinite(header) ? header : 0, measured.seconds, 0),
    video: video === undefined ? null : videoFacts(video, measured),
    hasAudio: of('audio') !== undefined,
  };
}

const MAX_OUTPUT_CHARACTERS = 1_000_000;

/** The tool that uses these programs; `paths` are absolute. */
export function ffmpegTool(
  paths: { readonly ffmpeg: string; readonly ffprobe: string },
  encoder: VideoEncoder,
): MediaTool {
  return {
    name: 'ffmpeg',
    read: (task, context) => read(paths, task, context),
    write: (task, context) => program(paths.ffmpeg, writeArguments(task, encoder), context),
    encoder: (task) => ({ command: paths.ffmpeg, args: encodeArguments(task) }),
  };
}

async function read(
  { ffmpeg, ffprobe }: { readonly ffmpeg: string; readonly ffprobe: string },
  { kind, input }: ReadTask,
  context: TaskContext,
): Promise<MediaFacts> {
  const { output } = await program(ffprobe, probeArguments(input), context);
  const { measured } = await program(ffmpeg, measureArguments(input), context);
  const facts = readFacts(output, measured);
  if (kind === 'probe') return facts;
  if (kind === 'sound') {
    const { measured: sound } = await program(ffmpeg, soundArguments(input), context);
    return { ...facts, decoded: sound, isSilent: await lacks(ffmpeg, input, 'audio', context) };
  }
  const { measured: decoded } = await program(ffmpeg, checkArguments(input, 'video'), context);
  const isBlack = await lacks(ffmpeg, input, 'video', context);
  if (!facts.hasAudio) return { ...facts, decoded, isBlack };
  await program(ffmpeg, checkArguments(input, 'audio'), context);
  return { ...facts, decoded, isBlack, isSilent: await lacks(ffmpeg, input, 'audio', context) };
}

/** Whether a stream has no visible frame, or no audible one. */
async function lacks(
  ffmpeg: string,
  input: MediaInput,
  stream: 'video' | 'audio',
  context: TaskContext,
): Promise<boolean> {
  const { measured } = await program(ffmpeg, signalArguments(input, stream), context);
  return stream === 'video' ? measured.frames === 0 : measured.seconds === 0;
}

function readFacts(output: string, measured: Measured): MediaFacts {
  try {
    return readProbe(output, measured);
  } catch (error) {
    // Not the JSON that ffprobe prints for media.
    throw new ToolFailure('unusable', String(error));
  }
}

async function program(
  command: string,
  args: readonly string[],
  context: TaskContext,
): Promise<{ output: string; measured: Measured }> {
  let output = '';
  let seconds = 0;
  let frames = 0;
  const outcome = await context.run({
    command,
    args,
    ...context,
    onLine: (line) => {
      if (output.length < MAX_OUTPUT_CHARACTERS) output += `${line}\n`;
      frames = Number(/^frame=\s*(\d+)$/.exec(line)?.[1] ?? frames);
      const done = progressSeconds(line);
      if (done === undefined) return;
      seconds = done;
      context.onSeconds(done);
    },
  });
  if (outcome.ended !== 'exit' || outcome.code !== 0) throw toolFailure(outcome);
  return { output, measured: { seconds, frames } };
}
