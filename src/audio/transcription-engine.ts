/**
 * What is said to a transcription server and what comes back, in the spellings of the field. The
 * verbose form tells the language; a server that does not know it is asked for the short one.
 */
import { parsedJson } from '../json/json-text.ts';
import { z } from 'zod';
import type { FileSlice, FormPart } from '../net/multipart-body.ts';

export type Granularity = 'segment' | 'word';

export interface TranscriptionOptions {
  /** Of the speech, ISO 639; otherwise the engine finds out. */
  readonly language?: string | undefined;
  readonly temperature?: number | undefined;
  readonly prompt?: string | undefined;
  /** Of what the times are asked for. */
  readonly times: readonly Granularity[];
}
export const NO_OPTIONS: TranscriptionOptions = { times: [] };

/** A stretch of speech, in seconds from the start of the media. */
export interface Stretch {
  readonly start: number;
  readonly end: number;
}
export type HeardWord = z.infer<typeof Word> & Stretch;
export type HeardSegment = z.infer<typeof Segment> & Stretch;

export interface Heard {
  readonly text: string;
  /** ISO 639-1, empty when the server does not tell. */
  readonly language: string;
  readonly ms: number;
  /** Empty where no times were asked for. */
  readonly segments: readonly HeardSegment[];
  readonly words: readonly HeardWord[];
}

const Word = z.object({ word: z.string(), start: z.number(), end: z.number() });
/** The figures are those that OpenAI's server tells, where the engine knows them. */
const Segment = z.object({
  start: z.number(),
  end: z.number(),
  text: z.string(),
  temperature: z.number().optional().catch(undefined),
  avg_logprob: z.number().optional().catch(undefined),
  compression_ratio: z.number().optional().catch(undefined),
  no_speech_prob: z.number().optional().catch(undefined),
});

/** Some servers answer 200 with an error beside an empty text. */
const Answer = z.object({
  text: z.string(),
  language: z.string().nullish(),
  error: z.null().optional(),
  // A text without usable times is a text all the same.
  segments: z.array(Segment).optional().catch(undefined),
  words: z.array(Word).optional().catch(undefined),
});

/** Nobody speaks a third as fast; what is longer is a model that repeats itself without end. */
const MAX_CHARACTERS_PER_SECOND = 100;
/** What a model may hear in a moment of noise. */
const SLACK_CHARACTERS = 1_000;

export function mostCharacters(ms: number): number {
  return (ms / 1_000) * MAX_CHARACTERS_PER_SECOND + SLACK_CHARACTERS;
}

interface SpeechPiece {
  readonly startMs: number;
  readonly endMs: number;
}

export class TranscriptionResponses {
  #format: 'verbose_json' | 'json' = 'verbose_json';
  readonly #codes = new Map<string, string>();
  readonly #options: TranscriptionOptions;

  constructor(options: TranscriptionOptions) {
    this.#options = options;
  }

  /** The finest times that are asked for. */
  get wantsTimes(): Granularity | undefined {
    return this.#options.times.includes('word') ? 'word' : this.#options.times[0];
  }

  /** Goes over to the short form; `false` when that was asked for already, or would not do. */
  askForLess(): boolean {
    if (this.wantsTimes !== undefined || this.#format === 'json') return false;
    this.#format = 'json';
    return true;
  }

  /** What is sent for one piece of sound; as a stream where the engine knows such a thing. */
  parts(model: string, sound: FileSlice, asStream = false): FormPart[] {
    const { language, temperature, prompt, times } = this.#options;
    // Segments are what every server gives by itself; few know the field.
    const named = times.includes('word') ? times : [];
    return [
      { name: 'model', data: model },
      { name: 'response_format', data: asStream ? 'json' : this.#format },
      ...(asStream ? [{ name: 'stream', data: 'true' }] : []),
      ...(language === undefined ? [] : [{ name: 'language', data: language }]),
      ...(temperature === undefined ? [] : [{ name: 'temperature', data: String(temperature) }]),
      ...(prompt === undefined ? [] : [{ name: 'prompt', data: prompt }]),
      ...named.map((data) => ({ name: 'timestamp_granularities[]', data })),
      { name: 'file', file: { filename: 'sound.wav', contentType: 'audio/wav' }, data: sound },
    ];
  }

  /** Whether it is the text of `ms` of sound, in each of its forms. Silence has an empty one. */
  isUsable(body: Buffer, ms: number): boolean {
    const answer = Answer.safeParse(parsedJson(String(body))).data;
    if (answer === undefined) return false;
    const most = mostCharacters(ms);
    const { text, segments = [], words = [] } = answer;
    return [[text], segments.map((segment) => segment.text), words.map(({ word }) => word)].every(
      (said) => charactersOf(said) <= most,
    );
  }

  /** What a usable answer says of its piece; `lacks` names the times that it should have and has not. */
  read(body: Buffer, piece: SpeechPiece): Heard & { readonly lacks: Granularity | undefined } {
    const answer = Answer.safeParse(parsedJson(String(body))).data;
    if (answer === undefined) throw new Error('An answer is read that is not usable');
    const text = answer.text.trim();
    const { times } = this.#options;
    const given = { segment: answer.segments, word: answer.words };
    const isMissing = (one: Granularity): boolean => text !== '' && (given[one] ?? []).length === 0;
    return {
      text,
      language: this.#codeOf(answer.language ?? ''),
      ms: piece.endMs - piece.startMs,
      segments: times.includes('segment') ? placed(given.segment ?? [], piece) : [],
      words: times.includes('word') ? placed(given.word ?? [], piece) : [],
      lacks: times.find(isMissing),
    };
  }

  /** `en`, `en-US` and `english` are all `en`. */
  #codeOf(language: string): string {
    const name = language.trim().toLowerCase();
    const code = /^([a-z]{2,3})(?:[-_].*)?$/.exec(name)?.[1];
    if (code !== undefined) return code;
    if (this.#codes.size === 0) nameLanguages(this.#codes);
    return this.#codes.get(name) ?? '';
  }
}

/** One for each stretch at least: a list of empty ones is none of speech either. */
function charactersOf(said: readonly string[]): number {
  return said.reduce((sum, { length }) => sum + Math.max(1, length), 0);
}

/** Times of a piece as times of the media; an engine's times never leave its piece. */
function placed<T extends Stretch>(stretches: readonly T[], { startMs, endMs }: SpeechPiece): T[] {
  const ms = (seconds: number): number =>
    Math.min(Math.max(Math.round(startMs + seconds * 1_000), startMs), endMs);
  return stretches.map((one) => {
    const start = ms(one.start);
    return { ...one, start: start / 1_000, end: Math.max(start, ms(one.end)) / 1_000 };
  });
}

/** English names of all two-letter languages; OpenAI's own server answers with them. */
function nameLanguages(codes: Map<string, string>): void {
  const names = new Intl.DisplayNames(['en'], { type: 'language', fallback: 'none' });
  const letters = 'abcdefghijklmnopqrstuvwxyz';
  for (const first of letters) {
    for (const second of letters) {
      const name = names.of(first + second);
      const key = name?.toLowerCase();
      // Old codes (iw, in) come after the ones that replaced them.
      if (key !== undefined && !codes.has(key)) codes.set(key, first + second);
    }
  }
}
