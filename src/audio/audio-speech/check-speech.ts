/** Limits of plausible speech: its length for its text, and whether it is audible. */
import { SILENCE_PEAK } from '../../engines/media/media.ts';
import type { SpeechRequest } from './schema.ts';

/** Raw samples are 16-bit mono at 24 kHz. */
export const PCM_BYTES_PER_SECOND = 48_000;
/**
 * Four times the usual rate of speech has 60 letters per second; at more than 100, the audio lacks
 * a part of its text.
 */
const MAX_LETTERS_PER_SECOND = 100;
/** The slowest speech has 4 letters per second; longer audio is a model that repeats itself. */
const MAX_SECONDS_PER_LETTER = 1;
const SLACK_SECONDS = 15;
const LETTERS = /[\p{L}\p{N}]/u;

export function charactersIn(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length; at += 1) {
    if ((text.charCodeAt(at) & 0xfc_00) === 0xdc_00) count -= 1;
  }
  return count;
}

/** Limits of the plausible length of a spoken text, in seconds. */
export function secondsOf({ input, speed }: SpeechRequest): { min: number; max: number } {
  let letters = 0;
  for (const character of input) if (LETTERS.test(character)) letters += 1;
  const slowness = 1 / Math.min(1, speed ?? 1);
  const max = (charactersIn(input) * MAX_SECONDS_PER_LETTER + SLACK_SECONDS) * slowness;
  return { min: letters / MAX_LETTERS_PER_SECOND, max };
}

/** Whether a piece of raw samples, which may begin within a sample, is louder than silence. */
export function isAudible(chunk: Buffer, offset: number): boolean {
  for (let at = offset % 2; at + 1 < chunk.length; at += 2) {
    if (Math.abs(chunk.readInt16LE(at)) >= SILENCE_PEAK) return true;
  }
  return false;
}
