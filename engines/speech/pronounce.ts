/**
 * Converts English text to the phonemes of a Piper voice: IPA symbols in the notation of American
 * English that the voices were trained with.
 *
 * Pronunciations come from the CMU Pronouncing Dictionary; those of other words from the rules of
 * `phonemize`. Initialisms are spelled.
 */
import { Fault } from '../../src/core/faults.ts';
import { type NumberWords, SpellOut } from './spell-out.ts';

export interface PronounceParts {
  /** Phonemes of a word in lower case, in ARPAbet. */
  readonly dictionary: Readonly<Record<string, string>>;
  /** IPA of a word that the dictionary does not have. */
  readonly guess: (word: string) => string;
  readonly numbers: NumberWords;
}

/** Text that is spoken at once. */
export interface SpokenPiece {
  readonly phonemes: string;
  /** A pause follows. */
  readonly endsSentence: boolean;
}

/**
 * A longer piece ends before the next word that begins a phrase, or after half of it at a comma: about
 * a second or two of speech at first, so that the first sound comes early, and nine seconds later, which
 * takes about a second of one core.
 */
const FIRST_PIECE_SYMBOLS = 20;
const PIECE_SYMBOLS = 140;
/** The rules take long for a longer word, which is spelled. */
const MAX_WORD_LETTERS = 32;
/** Shorter parts of words are seldom words of their own. */
const LEAST_PART_LETTERS = 3;

const VOWELS: Readonly<Record<string, string>> = {
  AA: 'ɑː',
  AE: 'æ',
  AH: 'ʌ',
  AO: 'ɔː',
  AW: 'aʊ',
  AY: 'aɪ',
  EH: 'ɛ',
  ER: 'ɜː',
  EY: 'eɪ',
  IH: 'ɪ',
  IY: 'iː',
  OW: 'oʊ',
  OY: 'ɔɪ',
  UH: 'ʊ',
  UW: 'uː',
};
const UNSTRESSED: Readonly<Record<string, string>> = { AH: 'ə', ER: 'ɚ', IY: 'i' };
const CONSONANTS: Readonly<Record<string, string>> = {
  CH: 'tʃ',
  DH: 'ð',
  G: 'ɡ',
  HH: 'h',
  JH: 'dʒ',
  NG: 'ŋ',
  R: 'ɹ',
  SH: 'ʃ',
  TH: 'θ',
  Y: 'j',
  ZH: 'ʒ',
};
const STRESS = ['', 'ˈ', 'ˌ'];
const VOWEL = /[aæeiouɑɐɔəɚɛɜɪʊʌ]/u;

/** Words that have no stress in a sentence, with their weak form if it differs. */
const WEAK: Readonly<Record<string, string>> = {
  a: 'ɐ',
  an: 'ɐn',
  and: 'ænd',
  as: 'æz',
  at: 'æt',
  but: 'bʌt',
  by: 'baɪ',
  for: 'fɔːɹ',
  from: 'fɹʌm',
  had: 'hæd',
  has: 'hɐz',
  have: 'hæv',
  he: 'hiː',
  her: 'hɜː',
  his: 'hɪz',
  i: 'aɪ',
  if: 'ɪf',
  in: 'ɪn',
  is: 'ɪz',
  it: 'ɪt',
  its: 'ɪts',
  me: 'miː',
  my: 'maɪ',
  of: 'ʌv',
  on: 'ɔn',
  or: 'ɔːɹ',
  she: 'ʃiː',
  than: 'ðæn',
  that: 'ðæt',
  the: 'ðə',
  their: 'ðɛɹ',
  them: 'ðɛm',
  they: 'ðeɪ',
  this: 'ðɪs',
  to: 'tə',
  was: 'wʌz',
  we: 'wiː',
  were: 'wɜː',
  with: 'wɪð',
  you: 'juː',
  your: 'jʊɹ',
};

const LETTERS: Readonly<Record<string, string>> = Object.fromEntries(
  (
    'A ˈeɪ,B bˈiː,C sˈiː,D dˈiː,E ˈiː,F ˈɛf,G dʒˈiː,H ˈeɪtʃ,I ˈaɪ,J dʒˈeɪ,K kˈeɪ,L ˈɛl,M ˈɛm,N ˈɛn,' +
    'O ˈoʊ,P pˈiː,Q kjˈuː,R ˈɑːɹ,S ˈɛs,T tˈiː,U jˈuː,V vˈiː,W dˈʌbəljˌuː,X ˈɛks,Y wˈaɪ,Z zˈiː'
  )
    .split(',')
    .map((pair) => pair.split(' ')),
);

export class Pronouncer {
  readonly #parts: PronounceParts;
  readonly #spellOut: SpellOut;

  constructor(parts: PronounceParts) {
    this.#parts = parts;
    this.#spellOut = new SpellOut(parts.numbers);
  }

  get numbers(): NumberWords {
    return this.#parts.numbers;
  }

  /**
   * The pieces of a text in order. Faults: INVALID_REQUEST for letters of another script, which
   * would be left out.
   */
  pieces(text: string): SpokenPiece[] {
    const latin = text.normalize('NFKD').replaceAll(/\p{M}/gu, '').replaceAll(/[‘’]/g, "'");
    if (/(?!\p{Script=Latin})\p{L}/u.test(latin)) {
      const message = 'input: The voice reads English, and the text has letters of another script';
      throw new Fault('INVALID_REQUEST', { message });
    }
    const pieces: SpokenPiece[] = [];
    // An empty line ends a sentence.
    for (const line of this.#spellOut.read(latin).split('\n')) this.#addLine(line, pieces);
    return pieces;
  }

  #addLine(line: string, pieces: SpokenPiece[]): void {
    const isShouted = line === line.toUpperCase();
    let phonemes = '';
    const end = (endsSentence: boolean): void => {
      if (VOWEL.test(phonemes)) pieces.push({ phonemes: phonemes.trim(), endsSentence });
      phonemes = '';
    };
    for (const [token] of line.matchAll(/[A-Za-z]+(?:'[A-Za-z]+)*|[.!?]+|[,;:()—–]/g)) {
      const most = pieces.length === 0 ? FIRST_PIECE_SYMBOLS : PIECE_SYMBOLS;
      if (/^[A-Za-z]/.test(token)) {
        const isPhraseStart = Object.hasOwn(WEAK, token.toLowerCase());
        if (phonemes.length > (isPhraseStart ? most : most * 2)) end(false);
        phonemes += ` ${this.#token(token, isShouted)}`;
      } else if (/^[.!?]/.test(token)) {
        phonemes += token.at(-1) ?? '';
        end(true);
      } else if (phonemes !== '') {
        phonemes += /[;:]/.test(token) ? token : ',';
        if (phonemes.length > most / 2) end(false);
      }
    }
    end(true);
  }

  #token(token: string, isShouted: boolean): string {
    const { dictionary } = this.#parts;
    const isCapital = token.length > 1 && !isShouted && token === token.toUpperCase();
    const isWord = token.length > 3 && Object.hasOwn(dictionary, token.toLowerCase());
    if (isCapital && !isWord && !token.includes("'")) return this.#spell(token);
    if (Object.hasOwn(dictionary, token.toLowerCase())) return this.#word(token.toLowerCase());
    // OpenAI, JavaScript, GPUs
    const parts = token.split(/(?<=[a-z])(?=[A-Z])|(?<=[A-Z]{2})(?=[a-z])/);
    if (parts.length === 1) return this.#word(token.toLowerCase());
    return parts.map((part) => (part === 's' ? 'z' : this.#token(part, isShouted))).join(' ');
  }

  #spell(letters: string): string {
    return letters
      .toUpperCase()
      .split('')
      .map((letter) => LETTERS[letter] ?? '')
      .join('');
  }

  #word(word: string): string {
    const { dictionary } = this.#parts;
    const weak = Object.hasOwn(WEAK, word) ? WEAK[word] : undefined;
    if (weak !== undefined) return weak;
    const arpabet = Object.hasOwn(dictionary, word) ? dictionary[word] : undefined;
    if (arpabet !== undefined) return flapped(ipaOf(arpabet));
    if (word.endsWith("'s")) {
      const base = this.#word(word.slice(0, -2));
      return base + (/(?:[szʃʒ])$/u.test(base) ? 'ɪz' : /[ptkfθ]$/u.test(base) ? 's' : 'z');
    }
    const letters = word.replaceAll("'", '');
    const compound = this.#compound(letters);
    if (compound !== undefined) return compound;
    const isSpelled = letters.length > MAX_WORD_LETTERS || !/[aeiouy]/.test(letters);
    return isSpelled ? this.#spell(letters) : flapped(voiceIpa(this.#parts.guess(letters)));
  }

  /** `paywall`, from two words of the dictionary of nearly the same length. */
  #compound(word: string): string | undefined {
    const { dictionary } = this.#parts;
    const middle = word.length >> 1;
    if (word.length > MAX_WORD_LETTERS) return undefined;
    for (let shift = 0; middle + shift <= word.length - LEAST_PART_LETTERS; shift += 1) {
      for (const at of [middle + shift, middle - shift]) {
        const [first, second] = [word.slice(0, at), word.slice(at)];
        const isCompound = Object.hasOwn(dictionary, first) && Object.hasOwn(dictionary, second);
        if (isCompound && at >= LEAST_PART_LETTERS) {
          return this.#word(first) + this.#word(second).replace('ˈ', 'ˌ');
        }
      }
    }
    return undefined;
  }
}

function ipaOf(arpabet: string): string {
  return arpabet
    .split(' ')
    .map((sound) => {
      const name = sound.replace(/\d/, '');
      const stress = Number(/\d/.exec(sound)?.[0] ?? 0);
      const vowel = (stress === 0 ? UNSTRESSED[name] : undefined) ?? VOWELS[name];
      if (vowel !== undefined) return `${STRESS[stress] ?? ''}${vowel}`;
      return CONSONANTS[name] ?? name.toLowerCase();
    })
    .join('');
}

/** The IPA of `phonemize` in the notation of the voices: the stress mark is before the vowel. */
function voiceIpa(ipa: string): string {
  const symbols = ipa
    .replaceAll('ɫ', 'l')
    .replaceAll('ɔ', 'ɔː')
    .replaceAll('ɔːɪ', 'ɔɪ')
    .replaceAll('ɑ', 'ɑː')
    .replaceAll('u', 'uː')
    .replaceAll(/([ˈˌ])([^aæeiouɑɔəɛɜɝɪʊʌ]*)/gu, '$2$1')
    .replaceAll('ˈɝ', 'ˈɜː')
    .replaceAll('ɝ', 'ɚ')
    .replaceAll(/([ˈˌ])i/gu, '$1iː');
  return symbols.includes('ˈ') ? symbols : symbols.replace(VOWEL, (vowel) => `ˈ${vowel}`);
}

/** American English flaps a T between a vowel and an unstressed vowel, as in water. */
function flapped(ipa: string): string {
  return ipa.replaceAll(/(?<=[aæeiouɑɔəɛɪʊʌː]|ɹ)t(?=[əɚi])(?!iː)/gu, 'ɾ');
}
