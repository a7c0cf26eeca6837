/**
 * Writes numbers, currency, dates, times, units and abbreviations of English text as words, for a
 * voice. Every expression reads its text once, so that the time is proportional to the length.
 */

/** `number-to-words`, which has no types. */
export interface NumberWords {
  toWords(value: number): string;
  toWordsOrdinal(value: number): string;
}

const MONTHS =
  'January February March April May June July August September October November December'.split(
    ' ',
  );

const ABBREVIATIONS: Readonly<Record<string, string>> = {
  'Mr.': 'mister',
  'Mrs.': 'missus',
  'Ms.': 'miz',
  'Dr.': 'doctor',
  'Prof.': 'professor',
  'Jr.': 'junior',
  'Sr.': 'senior',
  'St.': 'saint',
  'vs.': 'versus',
  'etc.': 'et cetera',
  'e.g.': 'for example',
  'i.e.': 'that is',
  'approx.': 'approximately',
  ...Object.fromEntries(MONTHS.map((month) => [`${month.slice(0, 3)}.`, month])),
  'Sept.': 'September',
};

/** Units that follow a number, in the singular. */
const UNITS: Readonly<Record<string, string>> = {
  mm: 'millimeter',
  cm: 'centimeter',
  m: 'meter',
  km: 'kilometer',
  ft: 'foot',
  mi: 'mile',
  mg: 'milligram',
  g: 'gram',
  kg: 'kilogram',
  lb: 'pound',
  lbs: 'pound',
  ml: 'milliliter',
  l: 'liter',
  ms: 'millisecond',
  s: 'second',
  min: 'minute',
  h: 'hour',
  hz: 'hertz',
  khz: 'kilohertz',
  mhz: 'megahertz',
  ghz: 'gigahertz',
  kb: 'kilobyte',
  mb: 'megabyte',
  gb: 'gigabyte',
  tb: 'terabyte',
  w: 'watt',
  kw: 'kilowatt',
  kwh: 'kilowatt hour',
  v: 'volt',
};

const CURRENCIES: Readonly<Record<string, readonly [string, string]>> = {
  $: ['dollar', 'cent'],
  '£': ['pound', 'penny'],
  '€': ['euro', 'cent'],
};

const SYMBOLS: Readonly<Record<string, string>> = {
  '%': ' percent ',
  '&': ' and ',
  '@': ' at ',
  '+': ' plus ',
  '=': ' equals ',
  '#': ' number ',
  '°': ' degrees ',
  '×': ' times ',
  '/': ' slash ',
  _: ' ',
  '*': ' ',
  '~': ' about ',
};

/** Digits of a number that is read as one; a longer one is read digit by digit. */
const MOST_DIGITS = 15;

/** Whether an amount takes the plural. */
function plural(word: string, amount: string): string {
  if (amount === '1' || word === 'hertz') return word;
  if (word === 'foot') return 'feet';
  return word === 'penny' ? 'pence' : `${word}s`;
}

export class SpellOut {
  readonly #numbers: NumberWords;
  readonly #rules: readonly (readonly [RegExp, (...groups: string[]) => string])[];

  constructor(numbers: NumberWords) {
    this.#numbers = numbers;
    const cardinal = (digits: string): string => this.#cardinal(digits);
    const number = (text: string): string => this.#number(text);
    const ordinal = (digits: string): string => this.#ordinal(digits);
    this.#rules = [
      [/\bhttps?:\/\//gi, () => ''],
      [
        /\b(?:Mrs?|Ms|Dr|Prof|[JS]r|St|vs|etc|e\.g|i\.e|approx|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\./g,
        (short) => ABBREVIATIONS[short] ?? short,
      ],
      [/\bNo\. ?(?=\d)/g, () => 'number '],
      // 2024-03-05
      [
        /\b(\d{4})-(\d\d)-(\d\d)\b/g,
        (all, year, month, day) => {
          const name = MONTHS[Number(month) - 1];
          return name === undefined ? all : `${name} ${ordinal(day)}, ${this.#year(year)}`;
        },
      ],
      // March 5, 2024
      [
        /\b(January|February|March|April|May|June|July|August|September|October|November|December) (\d\d?)\b(?!:|\.\d)/g,
        (_all, month, day) => `${month} ${ordinal(day)}`,
      ],
      // $1,250.75, $3 million
      [
        /([$£€]) ?(\d[\d,]*)(?:\.(\d+))?(?: (thousand|million|billion|trillion)\b)?/g,
        (_all, sign, whole, part, scale) => this.#money(sign, whole, part, scale),
      ],
      // 10:30
      [
        /\b(\d\d?):([0-5]\d)\b/g,
        (_all, hours, minutes) => `${cardinal(hours)} ${this.#minutes(minutes)}`,
      ],
      [/\b(\d{1,9})(?:st|nd|rd|th)\b/gi, (_all, digits) => ordinal(digits)],
      // the 1990s
      [
        /\b(\d{2,4})'?s\b/g,
        (_all, digits) => {
          const words = digits.length === 4 ? this.#year(digits) : cardinal(digits);
          return words.endsWith('y') ? `${words.slice(0, -1)}ies` : `${words}s`;
        },
      ],
      [/\b1\/2\b/g, () => 'one half'],
      [/\b1\/4\b/g, () => 'one quarter'],
      [/\b3\/4\b/g, () => 'three quarters'],
      [/\b(\d+)\/(\d+)\b/g, (_all, top, bottom) => `${cardinal(top)} over ${cardinal(bottom)}`],
      [/(\d) ?[-–] ?(?=\d)/g, (_all, digit) => `${digit} to `],
      [/(^|[\s(])[-−](?=\d)/g, (_all, before) => `${before}minus `],
      // 5 km, 24GB
      [
        /(\d{1,3}) ?(mm|cm|km|mg|kg|lbs?|ml|ms|min|[kKMG]?[Hh]z|[kKMGT][Bb]|k[Ww]h?|ft|mi|[mglshVW])\b(?!')/g,
        (_all, digits, unit) => `${digits} ${plural(UNITS[unit.toLowerCase()] ?? unit, digits)}`,
      ],
      [/\b(1[1-9]\d\d|20\d\d)\b(?![,.]?\d)/g, (_all, digits) => this.#year(digits)],
      [/(\d)(?=[A-Za-z])/g, (_all, digit) => `${digit} `],
      [/([A-Za-z])(?=\d)/g, (_all, letter) => `${letter} `],
      [/\d[\d,]*(?:\.\d+)*/g, (all) => ` ${number(all)} `],
      [/([A-Za-z])\.(?=[a-z])/g, (_all, letter) => `${letter} dot `],
      [/[%&@+=#°×/_*~]/g, (symbol) => SYMBOLS[symbol] ?? ' '],
    ];
  }

  /** The text with words for everything that has a name. */
  read(text: string): string {
    return this.#rules.reduce((out, [pattern, words]) => out.replace(pattern, words), text);
  }

  #cardinal(digits: string): string {
    if (digits.length > MOST_DIGITS || (digits.startsWith('0') && digits.length > 1)) {
      return this.#digits(digits);
    }
    return this.#numbers.toWords(Number(digits)).replaceAll(',', '');
  }

  #digits(digits: string): string {
    return digits
      .split('')
      .map((digit) => this.#numbers.toWords(Number(digit)))
      .join(' ');
  }

  #ordinal(digits: string): string {
    return this.#numbers.toWordsOrdinal(Number(digits)).replaceAll(',', '');
  }

  #number(text: string): string {
    const ending = text.endsWith(',') ? ',' : '';
    const [whole = '', ...parts] = text.replaceAll(',', '').split('.');
    const rest = parts.map((part) => ` point ${this.#digits(part)}`).join('');
    return this.#cardinal(whole) + rest + ending;
  }

  #money(sign: string, given: string, part: string | undefined, scale: string | undefined): string {
    const [unit, small] = CURRENCIES[sign] ?? ['', ''];
    const ending = given.endsWith(',') && part === undefined ? ',' : '';
    const whole = given.replaceAll(',', '');
    const words = this.#cardinal(whole);
    if (scale !== undefined) {
      const rest = part === undefined ? '' : ` point ${this.#digits(part)}`;
      return `${words}${rest} ${scale} ${unit}s`;
    }
    if (part === undefined) return `${words} ${plural(unit, whole)}${ending}`;
    if (part.length !== 2) return `${words} point ${this.#digits(part)} ${unit}s`;
    const cents = part === '00' ? '' : ` and ${this.#cardinal(String(Number(part)))}`;
    if (cents === '') return `${words} ${plural(unit, whole)}`;
    return `${words} ${plural(unit, whole)}${cents} ${plural(small, String(Number(part)))}`;
  }

  #minutes(minutes: string): string {
    if (minutes === '00') return '';
    return minutes.startsWith('0')
      ? `oh ${this.#cardinal(minutes.slice(1))}`
      : this.#cardinal(minutes);
  }

  /** 1905 is nineteen oh five, 2005 two thousand five, 2024 twenty twenty-four. */
  #year(digits: string): string {
    const [century, rest] = [digits.slice(0, 2), digits.slice(2)];
    if (digits.startsWith('200') || digits.endsWith('000')) return this.#cardinal(digits);
    if (rest === '00') return `${this.#cardinal(century)} hundred`;
    const tail = rest.startsWith('0')
      ? `oh ${this.#cardinal(rest.slice(1))}`
      : this.#cardinal(rest);
    return `${this.#cardinal(century)} ${tail}`;
  }
}
