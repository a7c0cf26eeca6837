/** Runs a Piper voice (a VITS model): phonemes in, samples out. */
import { readFile } from 'node:fs/promises';
import * as z from 'zod';
import { onnxOptions } from '../server/onnx-options.ts';

export type VoiceFiles = z.infer<typeof VoiceFiles>;
export const VoiceFiles = z.object({
  /** Path of the ONNX file. */
  model: z.string(),
  /** Path of its `.onnx.json`. */
  config: z.string(),
});

const VoiceConfig = z.object({
  audio: z.object({ sample_rate: z.int().min(8_000).max(48_000) }),
  inference: z.object({ noise_scale: z.number(), length_scale: z.number(), noise_w: z.number() }),
  phoneme_id_map: z.record(z.string(), z.array(z.int().min(0))),
});

/** `onnxruntime-node`, which is a package of another engine. */
export interface Onnx {
  readonly InferenceSession: { create(path: string, options: object): Promise<Session> };
  readonly Tensor: new (
    type: 'int64' | 'float32',
    data: BigInt64Array | Float32Array,
    dimensions: readonly number[],
  ) => object;
}

interface Session {
  readonly inputNames: readonly string[];
  run(
    feeds: Readonly<Record<string, object>>,
  ): Promise<{ readonly output: { data: Float32Array } }>;
}

const MAX_SAMPLE = 32_767;
/** Factor of the random variation that a voice is trained with: a steadier voice is understood better. */
const VARIATION = 0.6;

export class Voice {
  readonly #ort: Onnx;
  readonly #session: Session;
  readonly #config: z.infer<typeof VoiceConfig>;

  private constructor(ort: Onnx, session: Session, config: z.infer<typeof VoiceConfig>) {
    this.#ort = ort;
    this.#session = session;
    this.#config = config;
  }

  /** Loads a voice; rejects if its files are invalid. */
  static async load(ort: Onnx, files: VoiceFiles, threads: number): Promise<Voice> {
    const config = VoiceConfig.parse(JSON.parse(await readFile(files.config, 'utf8')));
    const session = await ort.InferenceSession.create(files.model, onnxOptions(threads));
    return new Voice(ort, session, config);
  }

  /** Samples per second. */
  get rate(): number {
    return this.#config.audio.sample_rate;
  }

  /** Signed 16-bit samples of one channel, with `pauseSeconds` of silence after them. */
  async speak(phonemes: string, speed: number, pauseSeconds: number): Promise<Buffer> {
    const { Tensor } = this.#ort;
    const ids = this.#idsOf(phonemes);
    const { noise_scale: noise, length_scale: length, noise_w: width } = this.#config.inference;
    const feeds: Record<string, object> = {
      input: new Tensor('int64', BigInt64Array.from(ids, BigInt), [1, ids.length]),
      input_lengths: new Tensor('int64', BigInt64Array.of(BigInt(ids.length)), [1]),
      scales: new Tensor(
        'float32',
        Float32Array.of(noise * VARIATION, length / speed, width * VARIATION),
        [3],
      ),
    };
    // A model with several speakers: the first one.
    if (this.#session.inputNames.includes('sid')) {
      feeds['sid'] = new Tensor('int64', BigInt64Array.of(0n), [1]);
    }
    const { data: samples } = (await this.#session.run(feeds)).output;
    const pcm = Buffer.alloc((samples.length + Math.round(pauseSeconds * this.rate)) * 2);
    for (const [at, sample] of samples.entries()) {
      pcm.writeInt16LE(Math.round(Math.max(-1, Math.min(sample, 1)) * MAX_SAMPLE), at * 2);
    }
    return pcm;
  }

  /** A padding symbol follows each symbol; symbols that the voice does not know are left out. */
  #idsOf(phonemes: string): number[] {
    const map = this.#config.phoneme_id_map;
    const [start = [], pad = [], end = []] = [map['^'], map['_'], map['$']];
    const ids = [...start, ...pad];
    for (const symbol of phonemes) {
      const found = map[symbol];
      if (found !== undefined) ids.push(...found, ...pad);
    }
    return [...ids, ...end];
  }
}
