/**
 * Requests to transcription servers and their responses, in the common formats. The verbose format
 * contains the language; a server that does not support it is requested with the short one.
 */
import * as z from 'zod';
import { type Rejects, rejectsAsUnknown } from '../engines/learned-fields.ts';
import { parsedJson } from '../json/json-text.ts';
import type { FileSlice, FormPart } from '../net/multipart-body.ts';

export type Granularity = 'segment' | 'word';

export interface TranscriptionOptions {
  /** ISO 639; without it the engine detects the language. */
  readonly language?: string | undefined;
  readonly temperature?: number | undefined;
  readonly prompt?: string | undefined;
  readonly times: readonly Granularity[];
}
export const NO_OPTIONS: TranscriptionOptions = { times: [] };

/** A time range of speech, in seconds from the start of the media. */
export interface TimeRange {
  readonly start: number;
  readonly end: number;
}
export type TimedWord = z.infer<typeof Word> & TimeRange;
export type TimedSegment = Omit<z.infer<typeof Segment>, 'words'> & TimeRange;

export interface PieceTranscript {
  readonly text: string;
  /** ISO 639-1; empty if the server does not report it. */
  readonly language: string;
  readonly ms: number;
  /** Empty if no times were requested. */
  readonly segments: readonly TimedSegment[];
  readonly words: readonly TimedWord[];
}

const Word = z.object({ word: z.string(), start: z.number(), end: z.number() });
/** Numbers as reported by OpenAI's server, if the engine provides them. */
const Segment = z.object({
  start: z.number(),
  end: z.number(),
  text: z.string(),
  temperature: z.number().optional().catch(undefined),
  avg_logprob: z.number().optional().catch(undefined),
  compression_ratio: z.number().optional().catch(undefined),
  no_speech_prob: z.number().optional().catch(undefined),
  tokens: z.array(z.int()).optional().catch(undefined),
  /** Start of the window in frames of 10 ms. */
  seek: z.int().min(0).optional().catch(undefined),
  words: z.array(Word).optional().catch(undefined),
});

/** A body with an error is rejected: some servers return 200 with an error and an empty text. */
const TranscriptBody = z.object({
  text: z.string(),
  language: z.string().nullish(),
  error: z.null().optional(),
  // A text without usable times is still valid.
  segments: z.array(Segment).optional().catch(undefined),
  words: z.array(Word).optional().catch(undefined),
});

/** The verbose format; without it a transcript has no times. */
const VERBOSE = 'verbose_json';
/** Without these options an engine transcribes the same words, except for its choice among similar ones. */
const HINTS = ['temperature', 'prompt'] as const;

const FRAME_MS = 10;
/** Three times the fastest speech; longer text is a model that repeats itself endlessly. */
const MAX_CHARACTERS_PER_SECOND = 100;
/** Allowance for text that a model finds in a moment of noise. */
const SLACK_CHARACTERS = 200;

export function maxCharactersOf(ms: number): number {
  return (ms / 1_000) * MAX_CHARACTERS_PER_SECOND + SLACK_CHARACTERS;
}

interface SpeechPiece {
  readonly startMs: number;
  readonly endMs: number;
}

export class TranscriptionResponses {
  readonly #codes = new Map<string, string>();
  readonly #options: TranscriptionOptions;

  constructor(options: TranscriptionOptions) {
    this.#options = options;
  }

  get wantsTimes(): Granularity | undefined {
    return this.#options.times.includes('word') ? 'word' : this.#options.times[0];
  }

  /** The options that an engine may reject; the request is then repeated without them. */
  optionalFields(asStream: boolean): [string, Rejects][] {
    const hints = HINTS.filter((name) => this.#options[name] !== undefined);
    const named: [string, Rejects][] = hints.map((name) => [name, rejectsAsUnknown(name)]);
    if (asStream) named.push(['stream', (text) => text.search(/\bstream\b/i)]);
    // Servers reject the format in many ways: any rejection may be of it, unless it names a field.
    else if (this.wantsTimes === undefined) named.push([VERBOSE, (text) => text.length]);
    return named;
  }

  parts(
    model: string,
    sound: FileSlice,
    asStream: boolean,
    isOmitted: (field: string) => boolean,
  ): FormPart[] {
    const { language, temperature, prompt, times } = this.#options;
    // All servers return segments by default; few support the field.
    const named = times.includes('word') ? times : [];
    const isShort = asStream || (this.wantsTimes === undefined && isOmitted(VERBOSE));
    const optional = {
      ...(asStream && { stream: 'true' }),
      ...(temperature !== undefined && { temperature: String(temperature) }),
      ...(prompt !== undefined && { prompt }),
    };
    return [
      { name: 'model', data: model },
      { name: 'response_format', data: isShort ? 'json' : VERBOSE },
      ...(language === undefined ? [] : [{ name: 'language', data: language }]),
      ...Object.entries(optional).flatMap(([name, data]) =>
        isOmitted(name) ? [] : [{ name, data }],
      ),
      ...named.map((data) => ({ name: 'timestamp_granularities[]', data })),
      { name: 'file', file: { filename: 'sound.wav', contentType: 'audio/wav' }, data: sound },
    ];
  }

  /** Whether the body is a plausible transcript of `ms` of sound; empty for silence. */
  isUsable(body: Buffer, ms: number): boolean {
    const transcript = TranscriptBody.safeParse(parsedJson(String(body))).data;
    if (transcript === undefined) return false;
    const limit = maxCharactersOf(ms);
    const { text, segments = [], words = segments.flatMap((one) => one.words ?? []) } = transcript;
    return [[text], segments.map((segment) => segment.text), words.map(({ word }) => word)].every(
      (texts) => countCharacters(texts) <= limit,
    );
  }

  /** Parses a usable response; `lacks` is the requested granularity that is missing. */
  read(
    body: Buffer,
    piece: SpeechPiece,
  ): PieceTranscript & { readonly lacks: Granularity | undefined } {
    const transcript = TranscriptBody.parse(parsedJson(String(body)));
    const text = transcript.text.trim();
    const { times } = this.#options;
    const { segments: segment, words = wordsWithin(segment) } = transcript;
    const given = { segment: segment?.map(({ words: _words, ...one }) => one), word: words };
    const isMissing = (one: Granularity): boolean => text !== '' && (given[one] ?? []).length === 0;
    return {
      text,
      language: this.#codeOf(transcript.language ?? ''),
      ms: piece.endMs - piece.startMs,
      segments: times.includes('segment')
        ? soughtIn(shifted(given.segment ?? [], piece), piece)
        : [],
      words: times.includes('word') ? shifted(given.word ?? [], piece) : [],
      lacks: times.find(isMissing),
    };
  }

  /** `en`, `en-US` and `english` are all `en`. */
  #codeOf(language: string): string {
    const name = language.trim().toLowerCase();
    const code = /^([a-z]{2,3})(?:[-_].*)?$/.exec(name)?.[1];
    if (code !== undefined || name === '') return code ?? '';
    let found = this.#codes.get(name);
    if (found === undefined) {
      found = codeOfName(name);
      this.#codes.set(name, found);
    }
    return found;
  }
}

/** Counts at least one character per entry, so that a list of empty entries is not silence. */
function countCharacters(texts: readonly string[]): number {
  return texts.reduce((sum, { length }) => sum + Math.max(1, length), 0);
}

/**
 * The words of segments, which some servers report there. Those of whisper.cpp are tokens, of which
 * the first of a word begins with a space.
 */
function wordsWithin(segments: readonly z.infer<typeof Segment>[] = []): TimedWord[] {
  return segments.flatMap(({ words = [] }) => {
    const areTokens = words.some(({ word }) => word.startsWith(' '));
    const joined: TimedWord[] = [];
    for (const one of words) {
      const last = areTokens && !one.word.startsWith(' ') ? joined.pop() : undefined;
      const text = (last?.word ?? '') + one.word.trim();
      joined.push({ word: text, start: last?.start ?? one.start, end: one.end });
    }
    return joined;
  });
}

/** Converts times within a piece to times of the media, clamped to the piece. */
function shifted<T extends TimeRange>(ranges: readonly T[], { startMs, endMs }: SpeechPiece): T[] {
  const ms = (seconds: number): number =>
    Math.min(Math.max(Math.round(startMs + seconds * 1_000), startMs), endMs);
  return ranges.map((one) => {
    const start = ms(one.start);
    return { ...one, start: start / 1_000, end: Math.max(start, ms(one.end)) / 1_000 };
  });
}

/** Converts frames within a piece to frames of the media. */
function soughtIn(segments: readonly TimedSegment[], { startMs }: SpeechPiece): TimedSegment[] {
  const startFrame = Math.round(startMs / FRAME_MS);
  return segments.map((one) =>
    one.seek === undefined ? one : { ...one, seek: one.seek + startFrame },
  );
}

/** The code of an English name, which OpenAI's server returns; empty if it is unknown. */
function codeOfName(name: string): string {
  const names = new Intl.DisplayNames(['en'], { type: 'language', fallback: 'none' });
  const letters = 'abcdefghijklmnopqrstuvwxyz';
  for (const first of letters) {
    for (const second of letters) {
      // Old codes (iw, in) come after the codes that replaced them.
      if (names.of(first + second)?.toLowerCase() === name) return first + second;
    }
  }
  return '';
}
