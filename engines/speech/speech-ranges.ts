/**
 * Finds speech in a file of raw samples by loudness: frames above the noise floor of the recording
 * are speech, short pauses are included, and no range is longer than the model accepts. Used if no
 * trained detector is available. The file is read in windows.
 */
import type { FileHandle } from 'node:fs/promises';
import { SPEECH_RATE } from '../../src/engines/media/media-task.ts';
import { quietestCut } from '../../src/engines/media/wav.ts';

/** Samples from `start` (inclusive) to `end` (exclusive). */
export interface SpeechRange {
  readonly start: number;
  readonly end: number;
}

/** 20 ms. */
const FRAME_SAMPLES = SPEECH_RATE / 50;
const FRAMES_PER_READ = 5_000;
/** Level (of full scale) below which a frame is always silence. */
const LEAST_LEVEL = 0.003;
/** The noise floor is the level below which this share of the frames lies. */
const FLOOR_SHARE = 0.1;
const OVER_FLOOR = 3;
/** Without any pause, the floor is speech: frames above this share of the peak still count. */
const OF_PEAK = 0.1;
/** 1.2 s: slow speakers pause for a second within a sentence, whose words need their context. */
const PAUSE_FRAMES = 60;
const LEAST_SPEECH_FRAMES = 5;
const MARGIN_FRAMES = 10;
const SAMPLE_BYTES = 2;
/** Shorter steps have more wrong words: with Moonshine 2 of 220, 4 at 500 ms, 14 at 300 ms. */
const STEP_MS = 1_000;
/** Models need the context of some words. Also the length of a step before any was measured. */
const LEAST_STEP_SECONDS = 5;
const LEAST_RECORDED_SECONDS = 2;

/** Root mean square of each frame, from 0 to 1. */
async function frameLevels(file: FileHandle, samples: number): Promise<Float32Array> {
  const levels = new Float32Array(Math.ceil(samples / FRAME_SAMPLES));
  const buffer = Buffer.alloc(FRAME_SAMPLES * FRAMES_PER_READ * 2);
  for (let from = 0; from < levels.length; from += FRAMES_PER_READ) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, from * FRAME_SAMPLES * 2);
    const got = Math.floor(bytesRead / 2);
    for (let frame = 0; frame * FRAME_SAMPLES < got; frame += 1) {
      const start = frame * FRAME_SAMPLES;
      const end = Math.min(start + FRAME_SAMPLES, got);
      let sum = 0;
      for (let i = start; i < end; i += 1) sum += (buffer.readInt16LE(i * 2) / 32_768) ** 2;
      levels[from + frame] = Math.sqrt(sum / (end - start));
    }
  }
  return levels;
}

function threshold(levels: Float32Array): number {
  const sorted = levels.toSorted();
  const floor = sorted[Math.floor(sorted.length * FLOOR_SHARE)] ?? 0;
  const peak = sorted.at(-1) ?? 0;
  return Math.max(LEAST_LEVEL, Math.min(floor * OVER_FLOOR, peak * OF_PEAK));
}

function loudRuns(levels: Float32Array, level: number): SpeechRange[] {
  const runs: { start: number; end: number }[] = [];
  for (let frame = 0; frame < levels.length; frame += 1) {
    if ((levels[frame] ?? 0) < level) continue;
    const last = runs.at(-1);
    if (last !== undefined && frame - last.end <= PAUSE_FRAMES) last.end = frame + 1;
    else runs.push({ start: frame, end: frame + 1 });
  }
  return runs.filter(({ start, end }) => end - start >= LEAST_SPEECH_FRAMES);
}

/** Cuts a run at its quietest frames until no part is longer than `most`. */
function split(levels: Float32Array, run: SpeechRange, most: number): SpeechRange[] {
  const parts: SpeechRange[] = [];
  let { start } = run;
  while (run.end - start > most) {
    // Search the second half of the allowed length, so that parts stay long.
    let cut = start + most;
    for (let frame = start + Math.floor(most / 2); frame < start + most; frame += 1) {
      if ((levels[frame] ?? 0) <= (levels[cut] ?? Infinity)) cut = frame;
    }
    parts.push({ start, end: cut });
    start = cut;
  }
  parts.push({ start, end: run.end });
  return parts;
}

/** Ranges of speech in a file of `samples` signed 16-bit samples, none longer than `maxSeconds`. */
export async function speechRanges(
  file: FileHandle,
  samples: number,
  maxSeconds: number,
): Promise<SpeechRange[]> {
  const levels = await frameLevels(file, samples);
  const most = (maxSeconds * SPEECH_RATE) / FRAME_SAMPLES - 2 * MARGIN_FRAMES;
  const parts = loudRuns(levels, threshold(levels)).flatMap((run) => split(levels, run, most));
  return parts.map(({ start, end }, index) => {
    // A margin keeps quiet beginnings; it does not reach into the neighbouring range.
    const before = parts[index - 1]?.end ?? 0;
    const after = parts[index + 1]?.start ?? levels.length;
    return {
      start: Math.max(start - MARGIN_FRAMES, before) * FRAME_SAMPLES,
      end: Math.min(Math.min(end + MARGIN_FRAMES, after) * FRAME_SAMPLES, samples),
    };
  });
}

/** Reads one range of the file as samples from -1 to 1. */
export async function readSamples(file: FileHandle, range: SpeechRange): Promise<Float32Array> {
  const bytes = await readRange(file, range);
  const samples = new Float32Array(bytes.length / SAMPLE_BYTES);
  for (let i = 0; i < samples.length; i += 1) samples[i] = bytes.readInt16LE(i * 2) / 32_768;
  return samples;
}

/** The first part of a range: at most `maxSeconds`, cut at the quietest position of its second half. */
export async function firstPart(
  file: FileHandle,
  { start, end }: SpeechRange,
  maxSeconds: number,
): Promise<SpeechRange> {
  const most = Math.floor(maxSeconds * SPEECH_RATE);
  if (end - start <= most) return { start, end };
  const bytes = await readRange(file, { start, end: start + most });
  return { start, end: start + quietestCut(bytes, Math.floor(most / 2)) };
}

async function readRange(file: FileHandle, { start, end }: SpeechRange): Promise<Buffer> {
  const bytes = Buffer.alloc((end - start) * SAMPLE_BYTES);
  const { bytesRead } = await file.read(bytes, 0, bytes.length, start * SAMPLE_BYTES);
  return bytes.subarray(0, bytesRead - (bytesRead % SAMPLE_BYTES));
}

/**
 * The length of a range whose recognition takes about `STEP_MS` of CPU time on each core, from the
 * time that previous ranges took. The limit of a step is 2 seconds: the margin is for ranges with
 * more words.
 */
export class StepLength {
  #msPerSecond = Infinity;

  get seconds(): number {
    return Math.max(LEAST_STEP_SECONDS, STEP_MS / this.#msPerSecond);
  }

  /** The fixed cost of a short range says nothing about a long one. */
  record(seconds: number, cpuMs: number): void {
    if (seconds < LEAST_RECORDED_SECONDS) return;
    const msPerSecond = cpuMs / seconds;
    const before = this.#msPerSecond === Infinity ? msPerSecond : this.#msPerSecond;
    this.#msPerSecond = (before + msPerSecond) / 2;
  }
}
