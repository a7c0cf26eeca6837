/**
 * Wraps the speech models of sherpa-onnx: finds ranges of speech in a file (with Silero if its
 * model is available) and transcribes one range.
 */
import type { FileHandle } from 'node:fs/promises';
import * as z from 'zod';
import { Fault } from '../../src/core/faults.ts';
import type { Turn } from '../../src/core/job-queue.ts';
import { SPEECH_RATE } from '../../src/engines/media/media-task.ts';
import {
  type SpeechRange,
  StepLength,
  firstPart,
  readSamples,
  speechRanges,
} from './speech-ranges.ts';

export interface Sherpa {
  readonly OfflineRecognizer: {
    createAsync(config: object): Promise<NativeRecognizer>;
  };
  readonly Vad: new (config: object, bufferSeconds: number) => NativeVad;
}

interface NativeRecognizer {
  createStream(): { acceptWaveform(wave: { samples: Float32Array; sampleRate: number }): void };
  decodeAsync(stream: object): Promise<unknown>;
  setConfig(config: object): void;
}

interface NativeVad {
  acceptWaveform(samples: Float32Array): void;
  isEmpty(): boolean;
  front(external: boolean): { readonly start: number; readonly samples: Float32Array };
  pop(): void;
  flush(): void;
}

export const SpeechModel = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('whisper'),
    encoder: z.string(),
    decoder: z.string(),
    tokens: z.string(),
  }),
  z.object({
    kind: z.literal('moonshine'),
    encoder: z.string(),
    decoder: z.string(),
    tokens: z.string(),
  }),
  z.object({ kind: z.literal('sense-voice'), model: z.string(), tokens: z.string() }),
  z.object({ kind: z.literal('zipformer-ctc'), model: z.string(), tokens: z.string() }),
]);
export type SpeechModel = z.infer<typeof SpeechModel>;

/** Whisper reads 30 seconds at once; the difference is padding. */
const MAX_RANGE_SECONDS = 28;
const FEATURE_BINS = 80;
/** Window size, in samples, for which Silero was trained. */
const VAD_WINDOW = 512;
const VAD_BUFFER_SECONDS = 60;
/** Windows per read, about a second of audio; the event loop runs between reads. */
const VAD_STEP_WINDOWS = 31;
/** Seconds of audio per turn of speech detection, which is a hundred times as fast as the audio. */
const TURN_SECONDS = 30;

/** Kinds of models without the times of tokens. */
const TIMELESS: ReadonlySet<SpeechModel['kind']> = new Set(['whisper', 'moonshine']);

/** Languages of the multilingual Whisper models. The decoder exits the process for any other. */
const WHISPER_LANGUAGES = new Set(
  (
    'af am ar as az ba be bg bn bo br bs ca cs cy da de el en es et eu fa fi fo fr gl gu ha haw ' +
    'he hi hr ht hu hy id is it ja jw ka kk km kn ko la lb ln lo lt lv mg mi mk ml mn mr ms mt ' +
    'my ne nl nn no oc pa pl ps pt ro ru sa sd si sk sl sn so sq sr su sv sw ta te tg th tk tl ' +
    'tr tt uk ur uz vi yi yo zh'
  ).split(' '),
);

const DecodeResult = z.object({
  text: z.string(),
  lang: z.string().default(''),
  /** A token that begins a word has a space before it. */
  tokens: z.array(z.string()).default([]),
  /** Start of each token in seconds; empty for Whisper and Moonshine. */
  timestamps: z.array(z.number()).default([]),
});

/** Times in seconds from the start of the file. */
export interface Word {
  readonly word: string;
  readonly start: number;
  readonly end: number;
}

/** Text of one range; times in seconds from the start. */
export interface Segment {
  readonly id: number;
  readonly start: number;
  readonly end: number;
  readonly text: string;
  /** ISO 639-1; empty if the model does not report it. */
  readonly language: string;
  readonly words: readonly Word[];
}

/** Turns of one caller, at most one of each kind at a time. */
export interface Turns {
  /** For recordings of at most one step. */
  readonly short: Turn;
  readonly long: Turn;
}

interface RecognizerSettings {
  readonly model: SpeechModel;
  readonly threads: number;
  /** Path of the Silero model; if it is missing, speech is detected by loudness. */
  readonly vadPath: string | undefined;
  /** CPU time of this process so far, in milliseconds. */
  readonly cpuMs: () => number;
}

/** Output of the recognizer: transcription in the spoken language, or translation into English. */
export interface RecognitionOptions {
  /** Empty: the model detects the language. */
  readonly language: string;
  readonly task: 'transcribe' | 'translate';
  readonly needsWords?: boolean;
}

function recognizerConfig(
  model: SpeechModel,
  threads: number,
  { language, task }: RecognitionOptions,
): object {
  const common = { tokens: model.tokens, numThreads: threads, provider: 'cpu', debug: 0 };
  const featConfig = { sampleRate: SPEECH_RATE, featureDim: FEATURE_BINS };
  switch (model.kind) {
    case 'whisper': {
      const { encoder, decoder } = model;
      const whisper = { encoder, decoder, language, task, tailPaddings: -1 };
      return { featConfig, modelConfig: { ...common, whisper } };
    }
    case 'moonshine': {
      const moonshine = { encoder: model.encoder, mergedDecoder: model.decoder };
      return { featConfig, modelConfig: { ...common, moonshine } };
    }
    case 'sense-voice': {
      const senseVoice = { model: model.model, language, useInverseTextNormalization: 1 };
      return { featConfig, modelConfig: { ...common, senseVoice } };
    }
    case 'zipformer-ctc':
      return { featConfig, modelConfig: { ...common, zipformerCtc: { model: model.model } } };
  }
}

interface Decode {
  readonly ended: Promise<unknown>;
  /** The CPU time of the process that counts as that of this decode. */
  cpuMs: number;
}

const DEFAULT_OPTIONS: RecognitionOptions = { language: '', task: 'transcribe' };

export class Recognizer {
  readonly #sherpa: Sherpa;
  readonly #native: NativeRecognizer;
  readonly #settings: RecognizerSettings;
  readonly #step = new StepLength();
  readonly #decodes = new Set<Decode>();
  /** The CPU time that has been shared among decodes. */
  #sharedMs = 0;
  /** The configuration of the model. */
  #configJson: string;

  private constructor(
    sherpa: Sherpa,
    native: NativeRecognizer,
    settings: RecognizerSettings,
    config: object,
  ) {
    this.#sherpa = sherpa;
    this.#native = native;
    this.#settings = settings;
    this.#configJson = JSON.stringify(config);
  }

  /** Loads the model; rejects if its files are invalid. */
  static async load(sherpa: Sherpa, settings: RecognizerSettings): Promise<Recognizer> {
    const config = recognizerConfig(settings.model, settings.threads, DEFAULT_OPTIONS);
    const native = await sherpa.OfflineRecognizer.createAsync(config);
    return new Recognizer(sherpa, native, settings, config);
  }

  /**
   * Faults: INVALID_REQUEST for a task or times that the model does not support, or a language that
   * would crash its decoder.
   */
  requireSupported({ language, task, needsWords }: RecognitionOptions): void {
    if (needsWords === true && TIMELESS.has(this.#settings.model.kind)) {
      const message =
        'timestamp_granularities[]: The model has no times of words: request segment, or configure a model of the kind sense-voice or zipformer-ctc';
      throw new Fault('INVALID_REQUEST', { message });
    }
    if (task === 'translate' && this.#settings.model.kind !== 'whisper') {
      const message = 'The model transcribes speech and does not translate it';
      throw new Fault('INVALID_REQUEST', { message });
    }
    if (language === '' || this.#settings.model.kind !== 'whisper') return;
    if (WHISPER_LANGUAGES.has(language)) return;
    const message = `language: The model does not support "${language}"`;
    throw new Fault('INVALID_REQUEST', { message });
  }

  /**
   * Transcribes a file of raw samples and calls `onSegment` with each segment. Each step has less
   * than 2 seconds of work and runs in a turn, so that long files share the time. A file of at most
   * one step does not wait for the step of a long one. Rejects with the abort reason at the next
   * turn.
   */
  async recognizeFile(
    file: FileHandle,
    options: RecognitionOptions,
    turns: Turns,
    onSegment?: (segment: Segment) => void,
  ): Promise<Segment[]> {
    const samples = Math.floor((await file.stat()).size / 2);
    const turn = samples / SPEECH_RATE <= this.#step.seconds ? turns.short : turns.long;
    const { vadPath } = this.#settings;
    const ranges =
      vadPath === undefined
        ? await speechRanges(file, samples, MAX_RANGE_SECONDS)
        : this.#sileroRanges(file, samples, vadPath, turn);
    const segments: Segment[] = [];
    for await (const range of ranges) {
      let rest = range;
      while (rest.start < rest.end) {
        const { start, end } = rest;
        const { part, ...recognised } = await turn(async () => {
          const next = await firstPart(file, { start, end }, this.#step.seconds);
          return { part: next, ...(await this.#recognize(file, next, options)) };
        });
        rest = { start: part.end, end };
        if (recognised.text === '') continue;
        const segment = { id: segments.length, ...secondsOf(part), ...recognised };
        segments.push(segment);
        onSegment?.(segment);
      }
    }
    return segments;
  }

  async #recognize(
    file: FileHandle,
    range: SpeechRange,
    options: RecognitionOptions,
  ): Promise<Pick<Segment, 'text' | 'language' | 'words'>> {
    const samples = await readSamples(file, range);
    const result = DecodeResult.parse(await this.#decode(samples, options));
    // SenseVoice returns the language as `<|en|>`.
    const found = result.lang.replaceAll(/[<|>]/g, '');
    const words = wordsOf(result, secondsOf(range));
    return { text: result.text.trim(), language: found || options.language, words };
  }

  async #decode(samples: Float32Array, options: RecognitionOptions): Promise<unknown> {
    const { model, threads } = this.#settings;
    const stream = this.#native.createStream();
    stream.acceptWaveform({ samples, sampleRate: SPEECH_RATE });
    const config = recognizerConfig(model, threads, options);
    const configJson = JSON.stringify(config);
    // All decodes share one configuration, which must not change while one of them reads it.
    while (configJson !== this.#configJson && this.#decodes.size > 0) {
      await Promise.allSettled([...this.#decodes].map(({ ended }) => ended));
    }
    if (configJson !== this.#configJson) this.#native.setConfig(config);
    this.#configJson = configJson;
    this.#shareCpuTime();
    const decode: Decode = { ended: this.#native.decodeAsync(stream), cpuMs: 0 };
    this.#decodes.add(decode);
    try {
      return await decode.ended;
    } finally {
      this.#shareCpuTime();
      this.#decodes.delete(decode);
      this.#step.record(samples.length / SPEECH_RATE, decode.cpuMs / threads);
    }
  }

  /** Adds the CPU time since the last call to the decodes that have run since then, in equal parts. */
  #shareCpuTime(): void {
    const nowMs = this.#settings.cpuMs();
    const eachMs = (nowMs - this.#sharedMs) / this.#decodes.size;
    for (const decode of this.#decodes) decode.cpuMs += eachMs;
    this.#sharedMs = nowMs;
  }

  async *#sileroRanges(
    file: FileHandle,
    samples: number,
    model: string,
    turn: Turn,
  ): AsyncGenerator<SpeechRange> {
    const sileroVad = {
      model,
      threshold: 0.5,
      minSilenceDuration: 0.5,
      minSpeechDuration: 0.25,
      windowSize: VAD_WINDOW,
      maxSpeechDuration: MAX_RANGE_SECONDS,
    };
    const config = { sileroVad, sampleRate: SPEECH_RATE, numThreads: 1, provider: 'cpu', debug: 0 };
    const vad = new this.#sherpa.Vad(config, VAD_BUFFER_SECONDS);
    const found: SpeechRange[] = [];
    const take = (): void => {
      for (; !vad.isEmpty(); vad.pop()) {
        const { start, samples: speech } = vad.front(false);
        found.push({ start, end: Math.min(start + speech.length, samples) });
      }
    };
    const step = VAD_WINDOW * VAD_STEP_WINDOWS;
    const stepsInTurn = Math.floor((TURN_SECONDS * SPEECH_RATE) / step);
    for (let from = 0; from < samples; from += step * stepsInTurn) {
      const to = Math.min(from + step * stepsInTurn, samples);
      await turn(async () => {
        for (let start = from; start < to; start += step) {
          const second = await readSamples(file, { start, end: Math.min(start + step, to) });
          for (let at = 0; at + VAD_WINDOW <= second.length; at += VAD_WINDOW) {
            vad.acceptWaveform(second.subarray(at, at + VAD_WINDOW));
          }
          take();
        }
        if (to === samples) vad.flush();
        take();
      });
      yield* found.splice(0);
    }
  }
}

function secondsOf({ start, end }: SpeechRange): { start: number; end: number } {
  return { start: start / SPEECH_RATE, end: end / SPEECH_RATE };
}

/** Scripts without spaces, of which each token is a word. */
const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/** The models report where a token begins: a word ends where the next one begins. */
function wordsOf(
  { tokens, timestamps }: Pick<z.infer<typeof DecodeResult>, 'tokens' | 'timestamps'>,
  range: { readonly start: number; readonly end: number },
): Word[] {
  const words: { word: string; start: number; end: number }[] = [];
  for (const [index, token] of tokens.entries()) {
    const at = timestamps[index];
    const text = token.replaceAll('▁', ' ');
    if (at === undefined || text.trim() === '') continue;
    const last = words.at(-1);
    const begins = text.startsWith(' ') || UNSPACED.test(text);
    if (last !== undefined && !begins) last.word += text;
    else {
      const start = Math.min(range.start + at, range.end);
      if (last !== undefined) last.end = start;
      words.push({ word: text.trim(), start, end: range.end });
    }
  }
  return words;
}
