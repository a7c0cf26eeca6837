/** Models and images of the engine tests, from `test/fixtures/engines`; its README lists their origin. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The token table of the toy speech model. */
export const TOY_SPEECH_TOKENS = '<blk> 0\n▁a 1\n▁b 2\n';
/** Frequencies that the toy speech model recognizes, in Hz; silence is no token. */
const TOY_SPEECH_TONES: Readonly<Record<string, number>> = { a: 440, b: 2000 };
const SPEECH_RATE = 16_000;

/** Raw samples: tones of half a second (`a`, `b`) and a second of silence (space). */
export function toneSamples(letters: string, noise = 0): Buffer {
  const parts = letters.split('').map((letter) => {
    const hertz = TOY_SPEECH_TONES[letter] ?? 0;
    const samples = Buffer.alloc(hertz === 0 ? 2 * SPEECH_RATE : SPEECH_RATE);
    for (let i = 0; i < samples.length / 2; i += 1) {
      const hiss = noise * (((i * 7_919) % 1_000) - 500);
      const tone = 12_000 * Math.sin((i * hertz * 2 * Math.PI) / SPEECH_RATE);
      samples.writeInt16LE(Math.round(tone + hiss), i * 2);
    }
    return samples;
  });
  return Buffer.concat(parts);
}

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
