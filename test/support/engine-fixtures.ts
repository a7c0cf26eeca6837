/** Models and images of the engine tests, from `test/fixtures/engines`; its README lists their origin. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The token table of the toy speech model. */
export const TOY_SPEECH_TOKENS = '<blk> 0\n▁a 1\n▁b 2\n';
/** Frequencies that the toy speech model recognizes, in Hz; silence is no token. */
export const TOY_SPEECH_TONES = { a: 440, b: 2000 } as const;

export function engineFixture(name: string): string {
  return fileURLToPath(new URL(`../fixtures/engines/${name}`, import.meta.url));
}

/** A cutout model that keeps bright pixels. */
export function toyCutoutModel(side: 320 | 1024 = 320): Buffer {
  return readFileSync(engineFixture(`toy-cutout-${side}.onnx`));
}

export function toySpeechModel(): Buffer {
  return readFileSync(engineFixture('toy-speech.onnx'));
}

/** Configuration of the toy voice: the symbols of English phonemes, in any order. */
export const TOY_VOICE_CONFIG = {
  audio: { sample_rate: 22_050 },
  inference: { noise_scale: 0.667, length_scale: 1, noise_w: 0.8 },
  phoneme_id_map: Object.fromEntries(
    "_^$ !',.:;?abdefhijklmnoprstuvwzæðŋɐɑɔəɚɛɜɡɪɹɾʃʊʌʒˈˌːθ"
      .split('')
      .map((symbol, id) => [symbol, [id]]),
  ),
};

/** A voice that plays a tone for each phoneme. */
export function toyVoiceModel(): Buffer {
  return readFileSync(engineFixture('toy-voice.onnx'));
}

/** A drawn person before a wall. */
export function portraitSvg(): string {
  return readFileSync(engineFixture('portrait.svg'), 'utf8');
}

/** The expected mask of the portrait: the person white, the rest black. */
export function portraitMaskSvg(): string {
  return readFileSync(engineFixture('portrait-mask.svg'), 'utf8');
}
