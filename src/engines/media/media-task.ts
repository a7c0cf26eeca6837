/**
 * The work that media tools do, as data: what the caller asks for and what comes back, the same for
 * the ffmpeg program and for the library. A process that is started for one task has it: it needs no
 * package.
 */
import type { Clock } from '../../core/clock.ts';
import type { MediaInput } from './container.ts';
import type { MediaFacts } from './media-facts.ts';
import type { RunSandboxed, SandboxLimits, SandboxOutcome } from './sandbox.ts';

/** The rate of extracted audio: what every speech model takes. */
export const SPEECH_RATE = 16_000;
/** Signed 16-bit samples, one channel. */
export const SPEECH_BYTES_PER_SECOND = SPEECH_RATE * 2;
/** A frame larger than this is a bomb: 8K, as for images. */
export const MAX_FRAME_PIXELS = 33_177_600;

/**
 * `check` decodes the first video and the first sound to their ends; any error of either ends it.
 * `sound` decodes the first sound and goes on after an error, as players do.
 */
export interface LookTask {
  readonly kind: 'probe' | 'check' | 'sound';
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
  /** What of the picture stays where it does not fit the frame; by default its middle. */
  readonly keep?: Kept | undefined;
}

export type MediaTask = LookTask | AudioTask | ScaleTask | StillTask;

/** A place in a picture: shares of its width and height, from the left and from the top. */
export interface Kept {
  readonly x: number;
  readonly y: number;
}

export type StillMove = 'in' | 'out' | 'left' | 'right' | 'up' | 'down';

/** What happens around one task. */
export interface TaskContext {
  readonly run: RunSandboxed;
  readonly limits: SandboxLimits;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** Gets the seconds of media that are done. */
  readonly onSeconds: (seconds: number) => void;
}

/** A way to do the work: the programs, or the library in a process of ours. */
export interface MediaTool {
  readonly name: 'ffmpeg' | 'node-av';
  /** The facts of a look, `null` of other tasks. Throws `ToolFailure`, and the reason of an abort. */
  run(task: MediaTask, context: TaskContext): Promise<MediaFacts | null>;
}

/** `unusable` and `too-much` are the media's fault; `missing` the machine's. */
export class ToolFailure extends Error {
  readonly reason: 'unusable' | 'too-much' | 'missing';

  constructor(reason: ToolFailure['reason'], detail: string) {
    super(detail);
    this.reason = reason;
  }
}

/** What a process that did not do its work died of. */
export function toolFailure(outcome: SandboxOutcome): ToolFailure {
  if (outcome.ended === 'missing') return new ToolFailure('missing', 'not found');
  if (outcome.ended === 'time' || outcome.ended === 'memory') {
    return new ToolFailure('too-much', `ended by its ${outcome.ended} bound`);
  }
  // A decoder that crashes on foreign bytes did so because of them.
  return new ToolFailure('unusable', outcome.errorText.trim());
}

/** What a walk through the packets, or through the frames, of a video found. */
export interface Measured {
  readonly seconds: number;
  readonly frames: number;
}

/** A count of frames that is off by this share says that the header does not tell the truth. */
const RATE_TOLERANCE = 1.1;

/**
 * A stored video as it is shown: turned by `degrees`, clockwise, at the rate of its header unless
 * the frames that are there say that it is higher. `null` for one without pixels.
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

/** How far a move zooms in. */
const ZOOM = 0.25;
/** The picture is enlarged first: the move is counted in whole pixels and would tremble. */
const OVERSAMPLING = 3;

const MIDDLE: Kept = { x: 0.5, y: 0.5 };

/** The filter chain of a still: cover the frame, then travel over it. */
export function stillFilter(task: StillTask): string {
  const { width, height, framesPerSecond, move } = task;
  const frames = Math.round(task.seconds * framesPerSecond);
  const large = `${width * OVERSAMPLING}:${height * OVERSAMPLING}`;
  const share = `(on/${Math.max(1, frames - 1)})`;
  const [wide, high] = ['(iw-iw/zoom)', '(ih-ih/zoom)'];
  const { x: keptX, y: keptY } = task.keep ?? MIDDLE;
  const middle = { zoom: `${1 + ZOOM}`, x: `${wide}*${keptX}`, y: `${high}*${keptY}` };
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
    `scale=${large}:force_original_aspect_ratio=increase:flags=bicubic:out_range=tv,` +
    // A JPEG has the full range of values: players take a film with those for broken colours.
    `format=yuv420p,crop=${large}:(iw-ow)*${keptX}:(ih-oh)*${keptY},` +
    `zoompan=z='${zoom}':x='${x}':y='${y}':d=${frames}:s=${width}x${height}:fps=${framesPerSecond},` +
    'setsar=1,setparams=range=tv,format=yuv420p'
  );
}

/** The filter chain of an upscale. */
export function scaleFilter({ width, height }: ScaleTask): string {
  return `scale=${width}:${height}:flags=lanczos:out_range=tv,setsar=1,format=yuv420p`;
}
