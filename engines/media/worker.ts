/**
 * Entry file of the library's media process: takes one task and the folder of the library's package
 * as its arguments, works, prints lines of JSON (`progress`, then `result` or `error`) and ends. It
 * holds foreign data and native decoders, and nothing else: no network, no secrets, and of an
 * environment only where compiled modules are.
 *
 * What only reads calls the library synchronously: nobody else waits in this process, and for each
 * packet to go to another thread and back takes several times as long as to decode it.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import type * as api from 'node-av/api';
import type * as constants from 'node-av/constants';
import type * as lib from 'node-av/lib';
import type { MediaInput } from '../../src/engines/media/container.ts';
import type { MediaFacts } from '../../src/engines/media/media-facts.ts';
import {
  type AudioTask,
  type LookTask,
  MAX_FRAME_PIXELS,
  type Measured,
  type MediaTask,
  SPEECH_BYTES_PER_SECOND,
  SPEECH_RATE,
  type ScaleTask,
  type StillTask,
  scaleFilter,
  shownVideo,
  stillFilter,
} from '../../src/engines/media/media-task.ts';
import { resolveFrom } from '../server/packages.ts';
import type { WorkerLine } from '../../src/engines/media/node-av.ts';

type Av = typeof api & { readonly lib: typeof lib; readonly constants: typeof constants };

/** Nine 32-bit integers that turn a frame for display. */
const DISPLAY_MATRIX_BYTES = 36;
/** Like ffmpeg's own bound against packets that go on without time going on. */
const MAX_PACKETS = 5_000_000;
/** Of a packet or a frame that does not say when it is shown: less than any time. */
const NO_TIME = -(2n ** 62n);
/** Packets or frames; what they held is let go of between two turns of the loop only. */
const MAX_PIECES_PER_TURN = 256;
/** Of sound that is taken out, between two words of how far it is. */
const PROGRESS_SECONDS = 10;
/** Of each decoder of a check. */
const CHECK_THREADS = 2;

/** Turns a frame upright; the library does not do it by itself. */
const ROTATIONS = { 0: '', 90: 'transpose=clock,', 180: 'hflip,vflip,', 270: 'transpose=cclock,' };

function print(line: WorkerLine): void {
  // Synchronous: the process may end right after.
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

/** How far a player turns the frames of a stream, clockwise. */
function degreesOf(av: Av, stream: lib.Stream): number {
  const matrix = stream.codecpar.getCodedSideData(av.constants.AV_PKT_DATA_DISPLAYMATRIX);
  if (matrix === null || matrix.length < DISPLAY_MATRIX_BYTES) return 0;
  return (Math.atan2(matrix.readInt32LE(4), matrix.readInt32LE(0)) * 180) / Math.PI;
}

/** The first real video stream: a cover picture is none. A frame of it is not too large. */
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

/** What one step of a packet's times is; nothing where its stream is not known. */
function secondsPerTick(input: api.Demuxer, streamIndex: number): number {
  const { num, den } = input.getStream(streamIndex)?.timeBase ?? { num: 0, den: 1 };
  return num / den;
}

/** Walks through all packets: what the header says about length and rate is only a claim. */
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
      // A stream is asked once: what it says is made anew each time.
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

async function probe(av: Av, task: LookTask): Promise<MediaFacts> {
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
}

/** Decodes the packets of one stream; throws at the first frame that is not as it was written. */
async function strictDecoder(av: Av, stream: lib.Stream): Promise<StrictDecoder> {
  const decoder = await av.Decoder.create(stream, {
    threadCount: CHECK_THREADS,
    exitOnError: true,
    options: { err_detect: 'explode' },
  });
  const { width, height } = stream.codecpar;
  let [low, high, frames] = [Infinity, -Infinity, 0];
  const look = (frame: lib.Frame): void => {
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
        look(frame);
        frame.free();
      }
    },
    measured: () => ({ seconds: Math.max(0, high - low) || 0, frames }),
  };
}

/** Hands every packet to its decoder. The library's own reader takes a damaged file for its end. */
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

async function check(av: Av, task: LookTask): Promise<MediaFacts> {
  const input = await openInput(av, task.input);
  const [video, audio] = [videoOf(input), input.audio()];
  const decoders = new Map<number, StrictDecoder>();
  for (const stream of audio === undefined ? [video] : [video, audio]) {
    decoders.set(stream.index, await strictDecoder(av, stream));
  }
  await decodeWhole(av, input, decoders);
  const all = [...decoders.values()].map(({ measured }) => measured());
  const [decoded = { seconds: 0, frames: 0 }] = all;
  return {
    durationSeconds: Math.max(headerSeconds(input), ...all.map(({ seconds }) => seconds)),
    video: videoFacts(av, video, decoded),
    hasAudio: audio !== undefined,
    decoded,
  };
}

async function listen(av: Av, task: LookTask): Promise<MediaFacts> {
  const input = await openInput(av, task.input);
  const stream = audioOf(input);
  const decoder = await av.Decoder.create(stream, { threadCount: 1, exitOnError: false });
  let [seconds, frames] = [0, 0];
  for (const frame of decoder.framesSync(input.packetsSync(stream.index))) {
    if (frame === null) continue;
    frames += 1;
    if (frames % MAX_PIECES_PER_TURN === 0) await endTurn();
    if (frame.sampleRate > 0) seconds += frame.nbSamples / frame.sampleRate;
    frame.free();
  }
  const decoded = { seconds, frames };
  return { durationSeconds: headerSeconds(input), video: null, hasAudio: true, decoded };
}

async function extractAudio(av: Av, task: AudioTask): Promise<void> {
  const input = await openInput(av, task.input);
  const stream = audioOf(input);
  const decoder = await av.Decoder.create(stream, { threadCount: 1, exitOnError: false });
  const shape = `aresample=${SPEECH_RATE},aformat=sample_fmts=s16:channel_layouts=mono`;
  const filter = av.FilterAPI.create(shape, { threads: 1 });
  const file = openSync(task.output, 'w');
  const maxBytes = Math.floor(task.maxSeconds * SPEECH_RATE) * 2;
  let written = 0;
  let toldSeconds = 0;
  let frames = 0;
  for (const frame of filter.framesSync(decoder.framesSync(input.packetsSync(stream.index)))) {
    if (frame === null) continue;
    frames += 1;
    if (frames % MAX_PIECES_PER_TURN === 0) await endTurn();
    const samples = frame.data?.[0]?.subarray(0, Math.min(frame.nbSamples * 2, maxBytes - written));
    if (samples !== undefined) written += writeSync(file, samples);
    frame.free();
    const seconds = written / SPEECH_BYTES_PER_SECOND;
    if (seconds >= toldSeconds + PROGRESS_SECONDS) {
      toldSeconds = seconds;
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

/** Writes the video of `input` through `chain`, with the sound of `audio`, as MP4. */
async function encode(
  av: Av,
  output: string,
  parts: { input: api.Demuxer; audio: api.Demuxer | undefined; chain: string; seconds: number },
): Promise<void> {
  const { input, audio, chain, seconds } = parts;
  const decoder = await av.Decoder.create(videoOf(input), { threadCount: 1 });
  const filter = av.FilterAPI.create(chain, { threads: 1 });
  const encoder = await videoEncoder(av, { decoder, filter });
  const muxer = await av.Muxer.open(output, { format: 'mp4', options: { movflags: 'faststart' } });
  const onProgress = ({ time }: api.PipelineProgress): void =>
    print({ type: 'progress', seconds: time });
  const video = [decoder, filter, encoder];
  const run =
    audio === undefined
      ? av.pipeline({ video: input }, { video }, muxer, { onProgress })
      : av.pipeline(
          { video: input, audio },
          { video, audio: await audioStages(av, audio, seconds) },
          muxer,
          { onProgress },
        );
  await run.completion;
  await muxer.close();
}

async function scale(av: Av, task: ScaleTask): Promise<void> {
  const input = await openInput(av, task.input);
  const audio = task.hasAudio ? input : undefined;
  const chain = `trim=end=${task.maxSeconds},${ROTATIONS[task.rotation]}${scaleFilter(task)}`;
  await encode(av, task.output, { input, audio, chain, seconds: task.maxSeconds });
}

async function still(av: Av, task: StillTask): Promise<void> {
  const input = await openInput(av, task.input);
  const audio = task.audio === null ? undefined : await openInput(av, task.audio);
  const chain = stillFilter(task);
  await encode(av, task.output, { input, audio, chain, seconds: task.seconds });
}

async function run(av: Av, task: MediaTask): Promise<MediaFacts | void> {
  switch (task.kind) {
    case 'probe':
      return await probe(av, task);
    case 'check':
      return await check(av, task);
    case 'sound':
      return await listen(av, task);
    case 'audio':
      return await extractAudio(av, task);
    case 'scale':
      return await scale(av, task);
    case 'still':
      return await still(av, task);
  }
}

async function main(): Promise<void> {
  // Written by the parent, which is of the same version.
  const [, , given = '', folder = ''] = process.argv;
  const task = JSON.parse(given) as MediaTask;
  const av = await loadAv(folder);
  print({ type: 'result', result: (await run(av, task)) ?? null });
}

main().then(
  // Decoders that are still open would keep the process alive.
  () => process.exit(0),
  (error: unknown) => {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' || code === 'ERR_DLOPEN_FAILED';
    const message = error instanceof Error ? error.message : String(error);
    print({ type: isMissing ? 'missing' : 'error', message });
    process.exit(1);
  },
);
