/**
 * Media tasks as data: inputs and results, the same for the ffmpeg program and for the library.
 * This file needs no npm package, so that a process that is started for one task can import it.
 */
import type { SpeechFormat } from '../../config/config.ts';
import type { Clock } from '../../core/clock.ts';
import type { MediaInput } from './container.ts';
import type { MediaFacts } from './media-facts.ts';
import type { RunSandboxed, SandboxLimits, SandboxOutcome } from './sandbox.ts';

export type { SpeechFormat } from '../../config/config.ts';

/** Sample rate of extracted audio in Hz, as speech models expect it. */
export const SPEECH_RATE = 16_000;
/** Signed 16-bit samples, one channel. */
export const SPEECH_BYTES_PER_SECOND = SPEECH_RATE * 2;
/** 8K; larger frames are rejected as decompression bombs. */
export const MAX_FRAME_PIXELS = 33_177_600;

/** A part of a frame is visible above this luma of 255; black in a limited range is 16. */
export const BLACK_LUMA = 24;
/** Frames are scaled down to 32 x 18 parts before their luma is compared. */
export const LUMA_FILTER = 'scale=32:18:flags=area,format=gray';
/** A peak of a thousandth of full scale, in 16-bit samples and in decibels, is not audible. */
export const SILENCE_PEAK = 33;
export const SILENCE_DECIBELS = -60;

/**
 * `check` decodes the first video and the first audio stream completely and stops at any error.
 * `sound` decodes the first audio stream and continues after errors, as players do.
 */
export interface ReadTask {
  readonly kind: 'probe' | 'check' | 'sound';
  readonly input: MediaInput;
}

/**
 * Writes an MP4 with `video` and `audio`, or without `video` raw samples of speech audio (signed
 * 16-bit, 16 kHz, one channel).
 */
export interface WriteTask {
  readonly kind: 'write';
  readonly video: VideoSource | null;
  readonly audio: MediaInput | null;
  readonly output: string;
  /** Content beyond this time is cut off. */
  readonly maxSeconds: number;
}

export interface VideoSource {
  readonly input: MediaInput;
  /** Clockwise rotation that a player would apply; it comes before the filter. */
  readonly rotation: 0 | 90 | 180 | 270;
  /** A filter chain of FFmpeg. */
  readonly filter: string;
}

/** Encodes raw samples (signed 16-bit, one channel) from standard input to standard output. */
export interface EncodeTask {
  readonly kind: 'encode';
  readonly format: SpeechFormat;
  /** Samples per second of the input. */
  readonly rate: number;
}

/** Samples per second of encoded speech, as of OpenAI. */
export const SPOKEN_RATE = 24_000;

/** The encoder and the muxer of FFmpeg for each format, with options that suit a stream. */
export const SPEECH_ENCODERS: Readonly<
  Record<
    SpeechFormat,
    {
      readonly encoder: string;
      readonly samples: 's16' | 's16p' | 'fltp';
      readonly muxer: string;
      readonly options?: Readonly<Record<string, number>>;
    }
  >
> = {
  mp3: { encoder: 'libmp3lame', samples: 's16p', muxer: 'mp3', options: { write_xing: 0 } },
  opus: { encoder: 'libopus', samples: 's16', muxer: 'ogg', options: { page_duration: 200_000 } },
  aac: { encoder: 'aac', samples: 'fltp', muxer: 'adts' },
  flac: { encoder: 'flac', samples: 's16', muxer: 'flac' },
  wav: { encoder: 'pcm_s16le', samples: 's16', muxer: 'wav' },
  pcm: { encoder: 'pcm_s16le', samples: 's16', muxer: 's16le' },
};
/** Bit rate of the formats that have one, in bit/s. */
export const SPEECH_BIT_RATE = 64_000;

export type MediaTask = ReadTask | WriteTask | EncodeTask;

/** A program with its arguments. */
export interface MediaCommand {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** A camera move over an image. */
export interface StillShot {
  readonly width: number;
  readonly height: number;
  readonly seconds: number;
  readonly framesPerSecond: number;
  readonly move: StillMove;
  /** The part of the image that is kept if it does not fit the frame; default: the centre. */
  readonly focus?: FocusPoint | undefined;
}

/** A point in an image, as fractions of its width and height from the top left corner. */
export interface FocusPoint {
  readonly x: number;
  readonly y: number;
}

export type StillMove = 'in' | 'out' | 'left' | 'right' | 'up' | 'down';

export interface TaskContext {
  readonly run: RunSandboxed;
  readonly limits: SandboxLimits;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Receives the seconds of media processed so far. */
  readonly onSeconds: (seconds: number) => void;
}

/** Implementation of the tasks: by programs, or by the library in a process of its own. */
export interface MediaTool {
  readonly name: 'ffmpeg' | 'node-av';
  /** Rejects with a `ToolFailure`, and with the reason of an abort; so does `write`. */
  read(task: ReadTask, context: TaskContext): Promise<MediaFacts>;
  write(task: WriteTask, context: TaskContext): Promise<unknown>;
  /** Throws a `ToolFailure` if the tool is missing. */
  encoder(task: EncodeTask): MediaCommand;
}

/** `unusable` and `too-much` are caused by the media; `missing` by the machine. */
export class ToolFailure extends Error {
  readonly reason: 'unusable' | 'too-much' | 'missing';

  constructor(reason: ToolFailure['reason'], detail: string) {
    super(detail);
    this.reason = reason;
  }
}

export function toolFailure(outcome: SandboxOutcome): ToolFailure {
  if (outcome.ended === 'missing') return new ToolFailure('missing', 'not found');
  if (outcome.ended === 'time' || outcome.ended === 'memory') {
    return new ToolFailure('too-much', `ended by its ${outcome.ended} bound`);
  }
  // A crash of a decoder is attributed to the untrusted input.
  return new ToolFailure('unusable', outcome.errorText.trim());
}

/** Duration and frame count of all packets, or of all frames, of a video. */
export interface Measured {
  readonly seconds: number;
  readonly frames: number;
}

/** A frame count that exceeds the header's by this factor replaces the header's rate. */
const RATE_TOLERANCE = 1.1;

/**
 * A video as it is displayed: rotated clockwise by `degrees`, with the frame rate of its header, or
 * the measured rate if that is higher. `null` for a video without pixels.
 */
export function shownVideo(
  stored: { width: number; height: number; rate: number; degrees: number },
  counted: Measured,
): MediaFacts['video'] {
  const { width, height, rate, degrees } = stored;
  if (width < 1 || height < 1) return null;
  const turns = ((Math.round(degrees / 90) % 4) + 4) % 4;
  const isUpright = turns % 2 === 0;
  const countedRate = counted.seconds > 0 ? counted.frames / counted.seconds : 0;
  return {
    width: isUpright ? width : height,
    height: isUpright ? height : width,
    framesPerSecond: countedRate > rate * RATE_TOLERANCE ? countedRate : rate,
    rotation: ([0, 90, 180, 270] as const)[turns] ?? 0,
  };
}

const ZOOM = 0.25;
/** The image is enlarged first: positions are whole pixels, so the camera would shake. */
const OVERSAMPLING = 3;

const CENTRE: FocusPoint = { x: 0.5, y: 0.5 };

/** The filter chain of a still image: covers the frame, then moves over it. */
export function stillFilter(shot: StillShot): string {
  const { width, height, framesPerSecond, move, focus = CENTRE } = shot;
  const frames = Math.round(shot.seconds * framesPerSecond);
  const large = `${width * OVERSAMPLING}:${height * OVERSAMPLING}`;
  const share = `(on/${Math.max(1, frames - 1)})`;
  const [wide, high] = ['(iw-iw/zoom)', '(ih-ih/zoom)'];
  const centred = { zoom: `${1 + ZOOM}`, x: `${wide}*${focus.x}`, y: `${high}*${focus.y}` };
  const travels: Record<StillMove, Partial<typeof centred>> = {
    in: { zoom: `1+${ZOOM}*${share}` },
    out: { zoom: `${1 + ZOOM}-${ZOOM}*${share}` },
    left: { x: `${wide}*(1-${share})` },
    right: { x: `${wide}*${share}` },
    up: { y: `${high}*(1-${share})` },
    down: { y: `${high}*${share}` },
  };
  const { zoom, x, y } = { ...centred, ...travels[move] };
  return (
    `scale=${large}:force_original_aspect_ratio=increase:flags=bicubic:out_range=tv,` +
    // A JPEG has full-range colours, which players display wrongly in videos.
    `format=yuv420p,crop=${large}:(iw-ow)*${focus.x}:(ih-oh)*${focus.y},` +
    `zoompan=z='${zoom}':x='${x}':y='${y}':d=${frames}:s=${width}x${height}:fps=${framesPerSecond},` +
    'setsar=1,setparams=range=tv,format=yuv420p'
  );
}

/** The filter chain of an enlarged video; both sides are even numbers of pixels. */
export function scaleFilter(width: number, height: number): string {
  return `scale=${width}:${height}:flags=lanczos:out_range=tv,setsar=1,format=yuv420p`;
}
