/**
 * The work that media tools do, as data: what the caller asks for and what comes back, the same for
 * the ffmpeg program and for the library.
 */
import { z } from 'zod';
import type { MediaInput } from './container.ts';

/** The rate of extracted audio: what every speech model takes. */
export const SPEECH_RATE = 16_000;
/** Signed 16-bit samples, one channel. */
export const SPEECH_BYTES_PER_SECOND = SPEECH_RATE * 2;
/** A frame larger than this is a bomb: 8K, as for images. */
export const MAX_FRAME_PIXELS = 33_177_600;

export interface ProbeTask {
  readonly kind: 'probe';
  readonly input: MediaInput;
}

/** Decodes the first video and the first sound to their ends; any error of either ends it. */
export interface CheckTask {
  readonly kind: 'check';
  readonly input: MediaInput;
}

/** Writes raw signed 16-bit samples, 16 kHz, one channel. */
export interface AudioTask {
  readonly kind: 'audio';
  readonly input: MediaInput;
  readonly output: string;
  readonly maxSeconds: number;
}

/** Scales a video and writes MP4; audio is kept. */
export interface ScaleTask {
  readonly kind: 'scale';
  readonly input: MediaInput;
  readonly output: string;
  /** Even numbers of pixels, after rotation. */
  readonly width: number;
  readonly height: number;
  /** Clockwise turn that a player would apply. */
  readonly rotation: 0 | 90 | 180 | 270;
  readonly hasAudio: boolean;
  readonly maxSeconds: number;
  /** For the progress fraction. */
  readonly expectedSeconds: number;
}

/** Moves and zooms over an image and writes MP4. */
export interface StillTask {
  readonly kind: 'still';
  readonly input: MediaInput;
  readonly audio: MediaInput | null;
  readonly output: string;
  readonly width: number;
  readonly height: number;
  readonly seconds: number;
  readonly framesPerSecond: number;
  readonly move: StillMove;
}

export type MediaTask = ProbeTask | CheckTask | AudioTask | ScaleTask | StillTask;

export type StillMove = 'in' | 'out' | 'left' | 'right' | 'up' | 'down';

export const MediaFacts = z.object({
  /** The longest of what the header says and what the packets say, in seconds. */
  durationSeconds: z.number().min(0),
  video: z
    .object({
      codec: z.string(),
      /** As shown, after rotation. */
      width: z.int().min(1),
      height: z.int().min(1),
      framesPerSecond: z.number().min(0),
      rotation: z.literal([0, 90, 180, 270]),
    })
    .nullable(),
  audio: z
    .object({ codec: z.string(), sampleRate: z.int().min(0), channels: z.int().min(0) })
    .nullable(),
  /** What decoding the video gave, after a check; a probe decodes nothing. */
  decoded: z.object({ seconds: z.number().min(0), frames: z.int().min(0) }).optional(),
});
export type MediaFacts = z.infer<typeof MediaFacts>;

/** A count of frames that is off by this share says that the header does not tell the truth. */
const RATE_TOLERANCE = 1.1;

/** The rate of a header, unless the frames that are there say that it is higher. */
export function trueRate(headerRate: number, frames: number, seconds: number): number {
  const counted = seconds > 0 ? frames / seconds : 0;
  return counted > headerRate * RATE_TOLERANCE ? counted : headerRate;
}

/** The quarter turn nearest to an angle in degrees, clockwise. */
export function quarterTurn(degrees: number): 0 | 90 | 180 | 270 {
  const turns = ((Math.round(degrees / 90) % 4) + 4) % 4;
  return ([0, 90, 180, 270] as const)[turns] ?? 0;
}

/** The filter that turns frames upright, with a trailing comma. */
export function rotationFilter(rotation: 0 | 90 | 180 | 270): string {
  return { 0: '', 90: 'transpose=clock,', 180: 'hflip,vflip,', 270: 'transpose=cclock,' }[rotation];
}

/** How far a move zooms in. */
const ZOOM = 0.25;
/** The picture is enlarged first: the move is counted in whole pixels and would tremble. */
const OVERSAMPLING = 3;

/** The filter chain of a still: cover the frame, then travel over it. */
export function stillFilter(task: StillTask): string {
  const { width, height, framesPerSecond, move } = task;
  const frames = Math.round(task.seconds * framesPerSecond);
  const large = `${width * OVERSAMPLING}:${height * OVERSAMPLING}`;
  const share = `(on/${Math.max(1, frames - 1)})`;
  const [wide, high] = ['(iw-iw/zoom)', '(ih-ih/zoom)'];
  const middle = { zoom: `${1 + ZOOM}`, x: `${wide}/2`, y: `${high}/2` };
  const travels: Record<StillMove, Partial<typeof middle>> = {
    in: { zoom: `1+${ZOOM}*${share}` },
    out: { zoom: `${1 + ZOOM}-${ZOOM}*${share}` },
    left: { x: `${wide}*(1-${share})` },
    right: { x: `${wide}*${share}` },
    up: { y: `${high}*(1-${share})` },
    down: { y: `${high}*${share}` },
  };
  const { zoom, x, y } = { ...middle, ...travels[move] };
  return (
    `scale=${large}:force_original_aspect_ratio=increase:flags=bicubic,crop=${large},` +
    `zoompan=z='${zoom}':x='${x}':y='${y}':d=${frames}:s=${width}x${height}:fps=${framesPerSecond},` +
    'setsar=1,format=yuv420p'
  );
}

/** The filter chain of an upscale. */
export function scaleFilter(task: ScaleTask, rotation: string): string {
  return `${rotation}scale=${task.width}:${task.height}:flags=lanczos,setsar=1,format=yuv420p`;
}
