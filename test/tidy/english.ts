/**
 * Words and openings of sentences that hide what a text is about, each with what to write instead. The
 * rules hold for comments, messages, names of tests and pages.
 */
import {
  type Prose,
  proseOfConfiguration,
  proseOfPage,
  proseOfSource,
  proseOfStyles,
} from './prose.ts';

interface Rule {
  readonly pattern: RegExp;
  readonly instead: string;
  /** A sentence that breaks the rule. */
  readonly example: string;
  /** `start`: only the first words of a text. `sentence`: of every sentence. */
  readonly at?: 'start' | 'sentence';
}

/** Openings hide the noun. They are allowed in questions. */
const OPENINGS: readonly Rule[] = [
  {
    at: 'sentence',
    pattern: /What(?:ever)? (?:is|are|was|were)\b/g,
    instead: 'name the thing: "Amount charged for …"',
    example: 'What is charged for it.',
  },
  {
    at: 'start',
    pattern: /What\b(?! (?:is|are|was|were)\b)/g,
    instead: 'name the thing: "Amount charged for …"',
    example: 'What a worker sends.',
  },
  {
    at: 'sentence',
    pattern: /Who(?:se|m)?\b/g,
    instead: 'name the person or program: "A caller that …"',
    example: 'Who asks for it.',
  },
  {
    at: 'sentence',
    pattern: /(?:One|Those|That) (?:that|which|who|whose)\b/g,
    instead: 'repeat the noun: "A node that …"',
    example: 'One that is finer.',
  },
  {
    at: 'start',
    pattern: /Of\b/g,
    instead: 'begin with the noun that this belongs to',
    example: 'Of what it reads.',
  },
  {
    at: 'start',
    pattern: /Its\b/g,
    instead: 'name the owner: "The price of the model"',
    example: 'Its price is missing.',
  },
  {
    at: 'start',
    pattern: /Whether (?:one of|it)\b/g,
    instead: 'state the result: "True if the key …", "Reports whether the key …"',
    example: 'Whether one of several is free.',
  },
  {
    at: 'start',
    pattern: /Where\b/g,
    instead: 'name the place ("Path of …") or write "If"',
    example: 'Where it is kept.',
  },
];

const WORDS: readonly Rule[] = [
  {
    pattern: /\bwhoever\b/gi,
    instead: 'write "the caller", "any client"',
    example: 'it serves whoever comes',
  },
  {
    pattern: /\b(?:the\s+one|one|those)\s+who\b/gi,
    instead: 'write "the caller", "the client", "the account"',
    example: 'the one who pays',
  },
  {
    pattern: /\bnobody(?:'s)?\b/gi,
    instead: 'write "no caller", "no process", or the positive statement',
    example: 'nobody is charged',
  },
  {
    pattern: /\btold\b|\btells\b/gi,
    instead: 'write "is notified", "receives", "returns", "reports"',
    example: 'the caller is told',
  },
  {
    pattern: /\bhears?\b|\bheard\b/gi,
    instead: 'write "receives", "is notified"',
    example: 'the retry hears 410',
  },
  {
    pattern: /\basks?\b(?!-)|\basked\b|\basking\b/gi,
    instead: 'write "requests", "calls", "queries"',
    example: 'a node that is asked',
  },
  {
    pattern: /\banswers?\b|\banswered\b|\banswering\b/gi,
    instead: 'write "response", "responds", "completion" (of a model), "result"',
    example: 'the answer of the engine',
  },
  {
    pattern: /\bsaid\b/gi,
    instead: 'write "reported", "contained", "stated"',
    example: 'as was said by the engine',
  },
  {
    pattern: /\bbeliev(?:es?|ed)\b/gi,
    instead: 'write "trusted", "validated"',
    example: 'a header is believed',
  },
  {
    pattern: /\bheal(?:s|ed|ing)?\b|\bmend(?:s|ed|ing)?\b/gi,
    instead: 'write "fix", "repair", "recover"',
    example: 'it heals by itself',
  },
  { pattern: /\bfilms?\b/gi, instead: 'write "video"', example: 'the film is made' },
  { pattern: /\bpictures?\b/gi, instead: 'write "image"', example: 'the picture is made' },
  {
    pattern: /\bdear(?:er|est)?\b/gi,
    instead: 'write "expensive"; "exceeds the hold"',
    example: 'a request that is too dear',
  },
  {
    pattern: /\banew\b|\bbegun\s+again\b/gi,
    instead: 'write "again", "restarted"',
    example: 'the window is begun anew',
  },
  { pattern: /\blen(?:t|ds?|ding)\b/gi, instead: 'write "leased"', example: 'credit that is lent' },
  { pattern: /\bfreed\b/gi, instead: 'write "released"', example: 'the slot is freed' },
  {
    pattern: /\bdoubt(?:s|ful)?\b/gi,
    instead: 'write "unknown state"',
    example: 'a payment in doubt',
  },
  {
    pattern: /\brefusals?\b/gi,
    instead: 'write "rejection" (of a request), "error response"',
    example: 'the refusal has a code',
  },
  {
    pattern: /\bseams?\b|\bdoors?\b/gi,
    instead: 'write "interface", "entry point"',
    example: 'the door',
  },
  {
    pattern: /\btak(?:es?|en|ing)\s+apart\b|\btook\s+apart\b/gi,
    instead: 'write "parse"',
    example: 'the body is taken apart',
  },
  {
    pattern: /\bin\s+one\s+piece\b|\bwhole\s+(?:answer|response|reply)s?\b/gi,
    instead: 'write "non-streaming response"',
    example: 'a reply in one piece',
  },
  {
    pattern: /\broom\b/gi,
    instead: 'write "capacity", "slot", "space"',
    example: 'room for a job',
  },
  {
    pattern: /\bstand(?:s|ing)?\b(?!-|\s+in\s+for\b)|\bstood\b/gi,
    instead: 'write "is", "contains", "state", "represents"',
    example: 'the name stands in the header',
  },
  {
    pattern: /\blast\s+word\b/gi,
    instead: 'write "final event"',
    example: 'the last word of a stream',
  },
  {
    pattern: /\bforg[eo]t(?:s|ten|ting)?\b/gi,
    instead: 'write "drops", "deletes", "omits"',
    example: 'the key is forgotten',
  },
  {
    pattern: /\blook(?:s|ed|ing)?\s+(?:at|after)\b/gi,
    instead: 'write "reads", "checks", "inspects"',
    example: 'the body is looked at',
  },
  {
    pattern: /\bwish(?:es|ed)?\b/gi,
    instead: 'write "request", "setting"',
    example: 'as you wish',
  },
  { pattern: /\bfor\s+good\b/gi, instead: 'write "permanently"', example: 'it is off for good' },
  {
    pattern: /\bstrangers?\b/gi,
    instead: 'write "anonymous client", "another account"',
    example: 'a stranger calls',
  },
  {
    pattern: /\bjudg(?:es?|ed|ing)\b/gi,
    instead: 'write "decides", "checks"',
    example: 'it is judged',
  },
];

export const RULES: readonly Rule[] = [...OPENINGS, ...WORDS];

/** Files without these words need no parser. */
const ANY_OPENING = /\b(?:What|Who|One|Those|That|Of|Its|Whether|Where)/;
const ANY_WORD = new RegExp(WORDS.map(({ pattern }) => pattern.source).join('|'), 'i');

export interface Finding {
  readonly path: string;
  readonly line: number;
  /** The words that break a rule. */
  readonly words: string;
  readonly instead: string;
}

export function formatFinding({ path, line, words, instead }: Finding): string {
  return `${path}:${line}: "${words}": instead, ${instead}`;
}

/** Places of a file that break a rule, in the order of the lines; none for an unknown format. */
export function findingsIn(path: string, text: string, isTest: boolean): Finding[] {
  if (!ANY_WORD.test(text) && !ANY_OPENING.test(text)) return [];
  const problems = proseOf(path, text, isTest).flatMap(problemsOf);
  return problems
    .toSorted((a, b) => a.at - b.at)
    .map(({ at, words, instead }) => {
      const line = text.slice(0, at).split('\n').length;
      return { path, line, words: words.replaceAll(/\s+/g, ' '), instead };
    });
}

function proseOf(path: string, text: string, isTest: boolean): Prose[] {
  if (/\.(?:tsx?|mjs)$/.test(path)) return proseOfSource(path, text, isTest);
  if (path.endsWith('.md')) return proseOfPage(text);
  if (path.endsWith('.css')) return proseOfStyles(text);
  return /\.(?:ya?ml|sh|service|example)$|(?:^|\/)(?:Dockerfile|Caddyfile)$/.test(path)
    ? proseOfConfiguration(text)
    : [];
}

interface Problem {
  /** Offset in the file. */
  readonly at: number;
  readonly words: string;
  readonly instead: string;
}

const TEXT_START = /^[\s'"]*$/;
const SENTENCE_START = /^[\s'"]*$|[.!]\s+$/;
/** Headings and tables of a page may begin with a clause. */
const PARAGRAPH_START = /\n\n$|\n *(?:[-*]|\d+\.) +$|[.!]\s+$/;
const QUESTION = /^[^.?!]*\?/;

function problemsOf({ kind, start, text }: Prose): Problem[] {
  const found: Problem[] = [];
  if (ANY_WORD.test(text)) {
    for (const { pattern, instead } of WORDS) {
      for (const { index, 0: words } of text.matchAll(pattern)) {
        found.push({ at: start + index, words, instead });
      }
    }
  }
  for (const { at, pattern, instead } of OPENINGS) {
    if (kind === 'page' && at === 'start') continue;
    const before = kind === 'page' ? PARAGRAPH_START : at === 'start' ? TEXT_START : SENTENCE_START;
    for (const { index, 0: words } of text.matchAll(pattern)) {
      if (QUESTION.test(text.slice(index)) || !before.test(text.slice(0, index))) continue;
      found.push({ at: start + index, words, instead });
    }
  }
  return found;
}
