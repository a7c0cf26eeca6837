/**
 * What is said to a transcription server and what comes back, in the spellings of the field. The
 * verbose form tells the language; a server that does not know it is asked for the short one.
 */
import { z } from 'zod';
import type { FileSlice, FormPart } from '../net/multipart-body.ts';

/** What one piece of sound says. */
export interface Heard {
  readonly text: string;
  /** ISO 639-1, empty when the server does not tell. */
  readonly language: string;
  /** Length of the piece. */
  readonly ms: number;
}

/** Some servers answer 200 with an error beside an empty text. */
const Answer = z.object({
  text: z.string(),
  language: z.string().nullish(),
  error: z.null().optional(),
});

/** Nobody speaks a third as fast; what is longer is a model that repeats itself without end. */
const MAX_CHARACTERS_PER_SECOND = 100;
/** What a model may hear in a moment of noise. */
const SLACK_CHARACTERS = 1_000;

export class SpeechAnswers {
  #format: 'verbose_json' | 'json' = 'verbose_json';
  readonly #codes = new Map<string, string>();

  /** Goes over to the short form; `false` when that was asked for already. */
  askForLess(): boolean {
    if (this.#format === 'json') return false;
    this.#format = 'json';
    return true;
  }

  /** What is sent for one piece of sound. */
  parts(model: string, sound: FileSlice): FormPart[] {
    return [
      { name: 'model', data: model },
      { name: 'response_format', data: this.#format },
      { name: 'file', file: { filename: 'sound.wav', contentType: 'audio/wav' }, data: sound },
    ];
  }

  /** Whether it is the text of `ms` of sound. Silence has an empty one. */
  isUsable(body: Buffer, ms: number): boolean {
    const text = parse(body)?.text;
    const most = (ms / 1_000) * MAX_CHARACTERS_PER_SECOND + SLACK_CHARACTERS;
    return text !== undefined && text.length <= most;
  }

  /** The text of a usable answer and the code of its language. */
  read(body: Buffer): { text: string; language: string } {
    const answer = parse(body);
    if (answer === undefined) throw new Error('An answer is read that is not usable');
    return { text: answer.text.trim(), language: this.#codeOf(answer.language ?? '') };
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

function parse(body: Buffer): z.infer<typeof Answer> | undefined {
  try {
    return Answer.safeParse(JSON.parse(body.toString('utf8'))).data;
  } catch {
    // Not JSON: another server may do better.
    return undefined;
  }
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
