/**
 * Entry file of the media process: takes one task and the folder of the media package as arguments,
 * prints lines of JSON (`progress`, then `result` or `error`) and exits. `encode` has raw sound as
 * input and output instead. The process contains only
 * untrusted data and native decoders: no network, no secrets, and no environment except the folder
 * of compiled modules.
 *
 * Reading uses the synchronous functions of the library: the process serves one task, and passing
 * each packet to another thread takes several times as long as decoding it.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import type * as api from 'node-av/api';
import type * as constants from 'node-av/constants';
import type * as lib from 'node-av/lib';
import type { MediaInput } from '../../src/engines/media/container.ts';
import type { MediaFacts } from '../../src/engines/media/media-facts.ts';
import {
  BLACK_LUMA,
  type EncodeTask,
  LUMA_FILTER,
  type ReadTask,
  MAX_FRAME_PIXELS,
  type Measured,
  type MediaTask,
  SPEECH_BIT_RATE,
  SPEECH_BYTES_PER_SECOND,
  SPEECH_ENCODERS,
  SPOKEN_RATE,
  SILENCE_PEAK,
  SPEECH_RATE,
  type VideoSource,
  type WriteTask,
  shownVideo,
} from '../../src/engines/media/media-task.ts';
import { resolveFrom } from '../server/packages.ts';
import type { WorkerLine } from '../../src/engines/media/node-av.ts';

type Av = typeof api & { readonly lib: typeof lib; readonly constants: typeof constants };

/** Nine 32-bit integers: the matrix that rotates a frame for display. */
const DISPLAY_MATRIX_BYTES = 36;
/** Stops files whose packets never advance in time, as ffmpeg does. */
const MAX_PACKETS = 5_000_000;
/** A packet or frame without a timestamp has this value or a lower one. */
const NO_TIME = -(2n ** 62n);
/** Packets or frames per turn of the event loop; their memory is released only between turns. */
const MAX_PIECES_PER_TURN = 256;
/** Seconds of extracted sound between two progress reports. */
const PROGRESS_SECONDS = 10;
const CHECK_THREADS = 2;

/** Filters that rotate a frame upright; the library does not do it. */
const ROTATIONS = { 0: '', 90: 'transpose=clock,', 180: 'hflip,vflip,', 270: 'transpose=cclock,' };

function print(line: WorkerLine): void {
  // Synchronous, because the process may exit right after.
  writeSync(1, `${JSON.stringify(line)}\n`);
}

async function loadAv(folder: string): Promise<Av> {
  resolveFrom({ folder, names: ['node-av'] });
  const [main, lower, constants] = await Promise.all([
    import('node-av/api'),
    import('node-av/lib'),
    import('node-av/constants'),
  ]);
  lower.Log.setLevel(constants.AV_LOG_ERROR);
  return { ...main, lib: lower, constants };
}

async function openInput(av: Av, input: MediaInput): Promise<api.Demuxer> {
  return await av.Demuxer.open(input.path, {
    format: input.format,
    options: { protocol_whitelist: 'file' },
  });
}

/** Clockwise rotation in degrees that a player applies to the frames of a stream. */
function degreesOf(av: Av, stream: lib.Stream): number {
  const matrix = stream.codecpar.getCodedSideData(av.constants.AV_PKT_DATA_DISPLAYMATRIX);
  if (matrix === null || matrix.length < DISPLAY_MATRIX_BYTES) return 0;
  return (Math.atan2(matrix.readInt32LE(4), matrix.readInt32LE(0)) * 180) / Math.PI;
}

/** The first video stream that is not a cover image. Throws if its frames are too large. */
function findVideo(input: api.Demuxer): lib.Stream | undefined {
  for (let index = 0; ; index += 1) {
    const stream = input.video(index);
    if (stream === undefined) return undefined;
    if (stream.attachedPic !== null) continue;
    const { width, height } = stream.codecpar;
    if (width * height > MAX_FRAME_PIXELS) throw new Error(`A frame has ${width}x${height} pixels`);
    return stream;
  }
}

function videoOf(input: api.Demuxer): lib.Stream {
  const stream = findVideo(input);
  if (stream === undefined) throw new Error('The file has no video track');
  return stream;
}

function audioOf(input: api.Demuxer): lib.Stream {
  const stream = input.audio();
  if (stream === undefined) throw new Error('The file has no audio track');
  return stream;
}

function videoFacts(av: Av, stream: lib.Stream, counted: Measured): MediaFacts['video'] {
  const { width, height } = stream.codecpar;
  const { num, den } = stream.avgFrameRate;
  const rate = den > 0 ? num / den : 0;
  return shownVideo({ width, height, rate, degrees: degreesOf(av, stream) }, counted);
}

async function endTurn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

/** Duration of one time unit of a packet in seconds; 0 if its stream is unknown. */
function secondsPerTick(input: api.Demuxer, streamIndex: number): number {
  const { num, den } = input.getStream(streamIndex)?.timeBase ?? { num: 0, den: 1 };
  return num / den;
}

/** Reads all packets, because the duration and frame rate in the header cannot be trusted. */
async function measure(input: api.Demuxer, videoIndex: number | undefined): Promise<Measured> {
  const spans = new Map<number, { unit: number; low: number; high: number }>();
  let packets = 0;
  let frames = 0;
  for (const packet of input.packetsSync()) {
    if (packet === null) continue;
    packets += 1;
    if (packets % MAX_PIECES_PER_TURN === 0) await endTurn();
    if (packet.streamIndex === videoIndex) frames += 1;
    if (packets > MAX_PACKETS) throw new Error('The file has too many packets');
    if (packet.pts > NO_TIME) {
      const known = spans.get(packet.streamIndex);
      // Cached: the library builds the stream description at each access.
      const unit = known?.unit ?? secondsPerTick(input, packet.streamIndex);
      const at = Number(packet.pts) * unit;
      const { low, high } = known ?? { low: at, high: at };
      const end = at + Number(packet.duration) * unit;
      spans.set(packet.streamIndex, { unit, low: Math.min(low, at), high: Math.max(high, end) });
    }
    packet.free();
  }
  const seconds = Math.max(0, ...[...spans.values()].map(({ low, high }) => high - low));
  return { seconds, frames };
}

async function probe(av: Av, task: ReadTask): Promise<MediaFacts> {
  const input = await openInput(av, task.input);
  const video = findVideo(input);
  const counted = await measure(input, video?.index);
  return {
    durationSeconds: Math.max(headerSeconds(input), counted.seconds),
    video: video === undefined ? null : videoFacts(av, video, counted),
    hasAudio: input.audio() !== undefined,
  };
}

function headerSeconds({ duration }: api.Demuxer): number {
  return Number.isFinite(duration) ? Math.max(duration, 0) : 0;
}

interface StrictDecoder {
  /** `null` after the last packet. */
  readonly take: (packet: lib.Packet | null) => void;
  readonly measured: () => Measured;
  /** Whether no frame so far is visible or audible. */
  readonly lacksSignal: () => boolean;
}

/** Looks for a visible or audible frame, and stops at the first one. */
function signalSearch(av: Av, kind: 'video' | 'audio') {
  const shape = kind === 'video' ? LUMA_FILTER : 'aformat=sample_fmts=s16:channel_layouts=mono';
  let filter: api.FilterAPI | undefined = av.FilterAPI.create(shape, { threads: 1 });
  const hasSignal = ({ data, width, height, linesize, nbSamples }: lib.Frame): boolean => {
    const bytes = data?.[0];
    if (bytes === undefined) return false;
    if (kind === 'video') {
      const stride = linesize[0] ?? width;
      for (let row = 0; row < height; row += 1) {
        const line = bytes.subarray(row * stride, row * stride + width);
        if (line.some((luma) => luma > BLACK_LUMA)) return true;
      }
      return false;
    }
    for (let at = 0; at < nbSamples; at += 1) {
      if (Math.abs(bytes.readInt16LE(at * 2)) >= SILENCE_PEAK) return true;
    }
    return false;
  };
  return {
    inspect: (frame: lib.Frame): void => {
      for (const copy of filter?.processAllSync(frame) ?? []) {
        if (filter !== undefined && hasSignal(copy)) {
          filter.close();
          filter = undefined;
        }
        copy.free();
      }
    },
    lacksSignal: () => filter !== undefined,
  };
}

/** Decodes the packets of one stream; throws at the first damaged frame. */
async function strictDecoder(av: Av, stream: lib.Stream): Promise<StrictDecoder> {
  const decoder = await av.Decoder.create(stream, {
    threadCount: CHECK_THREADS,
    exitOnError: true,
    options: { err_detect: 'explode' },
  });
  const { width, height } = stream.codecpar;
  let [low, high, frames] = [Infinity, -Infinity, 0];
  const signal = signalSearch(av, width > 0 ? 'video' : 'audio');
  const inspect = (frame: lib.Frame): void => {
    frames += 1;
    const isMarked = frame.hasFlags(av.constants.AV_FRAME_FLAG_CORRUPT);
    if (isMarked || frame.decodeErrorFlags !== 0) throw new Error(`Frame ${frames} is damaged`);
    if (frame.width !== width || frame.height !== height) {
      throw new Error(`Frame ${frames} has another size than its track`);
    }
    const { pts, duration, timeBase } = frame;
    if (pts <= NO_TIME) return;
    const unit = timeBase.num / timeBase.den;
    low = Math.min(low, Number(pts) * unit);
    high = Math.max(high, (Number(pts) + Number(duration)) * unit);
  };
  return {
    take: (packet) => {
      for (const frame of decoder.decodeAllSync(packet)) {
        inspect(frame);
        signal.inspect(frame);
        frame.free();
      }
    },
    measured: () => ({ seconds: Math.max(0, high - low) || 0, frames }),
    lacksSignal: signal.lacksSignal,
  };
}

/** Decodes every packet. The library's own reader treats damage as the end of the file. */
async function decodeWhole(
  av: Av,
  input: api.Demuxer,
  decoders: ReadonlyMap<number, StrictDecoder>,
): Promise<void> {
  const context = input.getFormatContext();
  const packet = new av.lib.Packet();
  packet.alloc();
  for (let packets = 1; ; packets += 1) {
    const code = context.readFrameSync(packet);
    if (code === av.constants.AVERROR_EOF) break;
    av.lib.FFmpegError.throwIfError(code, 'The file cannot be read to its end');
    decoders.get(packet.streamIndex)?.take(packet);
    packet.unref();
    if (packets % MAX_PIECES_PER_TURN === 0) await endTurn();
  }
  for (const decoder of decoders.values()) decoder.take(null);
}

async function check(av: Av, task: ReadTask): Promise<MediaFacts> {
  const input = await openInput(av, task.input);
  const [video, audio] = [videoOf(input), input.audio()];
  const decoders = new Map<number, StrictDecoder>();
  for (const stream of audio === undefined ? [video] : [video, audio]) {
    decoders.set(stream.index, await strictDecoder(av, stream));
  }
  await decodeWhole(av, input, decoders);
  const all = [...decoders.values()].map(({ measured }) => measured());
  const [isBlack, isSilent] = [...decoders.values()].map(({ lacksSignal }) => lacksSignal());
  const [decoded = { seconds: 0, frames: 0 }] = all;
  return {
    durationSeconds: Math.max(headerSeconds(input), ...all.map(({ seconds }) => seconds)),
    video: videoFacts(av, video, decoded),
    hasAudio: audio !== undefined,
    decoded,
    isBlack,
    isSilent,
  };
}

async function checkSound(av: Av, task: ReadTask): Promise<MediaFacts> {
  const input = await openInput(av, task.input);
  const stream = audioOf(input);
  const decoder = await av.Decoder.create(stream, { threadCount: 1, exitOnError: false });
  const signal = signalSearch(av, 'audio');
  let [seconds, frames] = [0, 0];
  for (const frame of decoder.framesSync(input.packetsSync(stream.index))) {
    if (frame === null) continue;
    frames += 1;
    if (frames % MAX_PIECES_PER_TURN === 0) await endTurn();
    if (frame.sampleRate > 0) seconds += frame.nbSamples / frame.sampleRate;
    signal.inspect(frame);
    frame.free();
  }
  return {
    durationSeconds: headerSeconds(input),
    video: null,
    hasAudio: true,
    decoded: { seconds, frames },
    isSilent: signal.lacksSignal(),
  };
}

async function writeSamples(av: Av, audio: MediaInput, task: WriteTask): Promise<void> {
  const input = await openInput(av, audio);
  const stream = audioOf(input);
  const decoder = await av.Decoder.create(stream, { threadCount: 1, exitOnError: false });
  const shape = `aresample=${SPEECH_RATE},aformat=sample_fmts=s16:channel_layouts=mono`;
  const filter = av.FilterAPI.create(shape, { threads: 1 });
  const file = openSync(task.output, 'w');
  const maxBytes = Math.floor(task.maxSeconds * SPEECH_RATE) * 2;
  let written = 0;
  let reportedSeconds = 0;
  let frames = 0;
  for (const frame of filter.framesSync(decoder.framesSync(input.packetsSync(stream.index)))) {
    if (frame === null) continue;
    frames += 1;
    if (frames % MAX_PIECES_PER_TURN === 0) await endTurn();
    const samples = frame.data?.[0]?.subarray(0, Math.min(frame.nbSamples * 2, maxBytes - written));
    if (samples !== undefined) written += writeSync(file, samples);
    frame.free();
    const seconds = written / SPEECH_BYTES_PER_SECOND;
    if (seconds >= reportedSeconds + PROGRESS_SECONDS) {
      reportedSeconds = seconds;
      print({ type: 'progress', seconds });
    }
    if (written >= maxBytes) break;
  }
  closeSync(file);
}

function videoEncoder(
  av: Av,
  stages: { decoder: api.Decoder; filter: api.FilterAPI },
): Promise<api.Encoder> {
  const options = { ...stages, threadCount: 1 };
  if (av.lib.Codec.findEncoderByName(av.constants.FF_ENCODER_LIBX264) !== null) {
    return av.Encoder.create(av.constants.FF_ENCODER_LIBX264, {
      ...options,
      options: { preset: 'veryfast', crf: 20 },
    });
  }
  return av.Encoder.create(av.constants.FF_ENCODER_MPEG4, { ...options, bitrate: '8M' });
}

async function audioStages(
  av: Av,
  input: api.Demuxer,
  seconds: number,
): Promise<[api.Decoder, api.FilterAPI, api.Encoder]> {
  const decoder = await av.Decoder.create(audioOf(input), { threadCount: 1 });
  const shape = `atrim=0:${seconds},aformat=sample_fmts=fltp:sample_rates=48000:channel_layouts=stereo`;
  const filter = av.FilterAPI.create(shape, { threads: 1 });
  const encoder = await av.Encoder.create(av.constants.FF_ENCODER_AAC, {
    decoder,
    filter,
    bitrate: '128k',
  });
  return [decoder, filter, encoder];
}

/** Writes an MP4 with the first video of `source`, and with the sound of the task if it has one. */
async function writeVideo(av: Av, source: VideoSource, task: WriteTask): Promise<void> {
  const { output, maxSeconds } = task;
  const input = await openInput(av, source.input);
  const isSameInput = task.audio?.path === source.input.path;
  const audio = task.audio && (isSameInput ? input : await openInput(av, task.audio));
  const chain = `trim=end=${maxSeconds},${ROTATIONS[source.rotation]}${source.filter}`;
  const decoder = await av.Decoder.create(videoOf(input), { threadCount: 1 });
  const filter = av.FilterAPI.create(chain, { threads: 1 });
  const encoder = await videoEncoder(av, { decoder, filter });
  const muxer = await av.Muxer.open(output, { format: 'mp4', options: { movflags: 'faststart' } });
  const onProgress = ({ time }: api.PipelineProgress): void =>
    print({ type: 'progress', seconds: time });
  const video = [decoder, filter, encoder];
  const run =
    audio === null
      ? av.pipeline({ video: input }, { video }, muxer, { onProgress })
      : av.pipeline(
          { video: input, audio },
          { video, audio: await audioStages(av, audio, maxSeconds) },
          muxer,
          { onProgress },
        );
  await run.completion;
  await muxer.close();
}

/** Writes each packet to standard output as soon as it is encoded. */
async function encode(av: Av, { format, rate }: EncodeTask): Promise<void> {
  const { encoder: name, samples, muxer: container, options } = SPEECH_ENCODERS[format];
  const input = await av.Demuxer.open(process.stdin, {
    format: 's16le',
    bufferSize: 4_096,
    options: { sample_rate: rate, ch_layout: 'mono', probesize: 32, analyzeduration: 0 },
  });
  const decoder = await av.Decoder.create(audioOf(input), { threadCount: 1 });
  const shape = `aresample=${SPOKEN_RATE},aformat=sample_fmts=${samples}:sample_rates=${SPOKEN_RATE}:channel_layouts=mono`;
  const filter = av.FilterAPI.create(shape, { threads: 1 });
  // A plain name: the library has types for known names only.
  const codec = name as Parameters<typeof av.Encoder.create>[0];
  const encoder = await av.Encoder.create(codec, { decoder, filter, bitrate: SPEECH_BIT_RATE });
  const write = (bytes: Buffer): number => {
    for (let at = 0; at < bytes.length;) at += writeSync(1, bytes, at);
    return bytes.length;
  };
  const muxer = await av.Muxer.open(
    { write },
    { format: container, options: { flush_packets: 1, ...options } },
  );
  await av.pipeline(input, decoder, filter, encoder, muxer).completion;
  await muxer.close();
}

async function run(av: Av, task: Exclude<MediaTask, EncodeTask>): Promise<MediaFacts | null> {
  if (task.kind !== 'write') return await READERS[task.kind](av, task);
  if (task.video !== null) await writeVideo(av, task.video, task);
  else if (task.audio !== null) await writeSamples(av, task.audio, task);
  return null;
}

const READERS = { probe, check, sound: checkSound };

async function main(): Promise<void> {
  const [, , given = '', folder = ''] = process.argv;
  // Written by the parent process, which has the same version.
  const task = JSON.parse(given) as MediaTask;
  const av = await loadAv(folder);
  if (task.kind === 'encode') return await encode(av, task);
  print({ type: 'result', result: await run(av, task) });
}

main().then(
  // Open decoders would keep the process alive.
  () => process.exit(0),
  (error: unknown) => {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' || code === 'ERR_DLOPEN_FAILED';
    const message = error instanceof Error ? error.message : String(error);
    print({ type: isMissing ? 'missing' : 'error', message });
    process.exit(1);
  },
);
