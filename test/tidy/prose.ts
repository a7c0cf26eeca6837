/**
 * The texts of a file that people read: comments, messages, test names and paragraphs. All else, inline
 * code included, is blank, so that a place in a text is a place in the file.
 */
import {
  type ParserOptions,
  type Span,
  Visitor,
  parseSync,
  rawTransferSupported,
} from 'oxc-parser';

export interface Prose {
  readonly kind: 'comment' | 'message' | 'test name' | 'page';
  /** Offset of the text in its file. */
  readonly start: number;
  /** As long as its part of the file: code, gutters and link targets are spaces. */
  readonly text: string;
}

/** Reads the tree from shared memory, in a third of the time; the option is not in the types of the package. */
const PARSER_OPTIONS: ParserOptions & { readonly experimentalRawTransfer: boolean } = {
  experimentalRawTransfer: rawTransferSupported(),
};
const TEST_FUNCTIONS = new Set(['test', 'it', 'describe', 'suite']);
const TWO_WORDS = /[A-Za-z]{2,}\S* +\S*[A-Za-z]/;

/**
 * Comments of a TypeScript file. For a test also the names of its tests; for another file all strings of
 * two words or more, which are its messages.
 */
export function proseOfSource(path: string, text: string, isTest: boolean): Prose[] {
  const { program, comments, errors } = parseSync(path, text, PARSER_OPTIONS);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message ?? ''}`);
  const found: Prose[] = [];
  for (const { type, start, end } of comments) {
    const previous = found.at(-1);
    const gap =
      previous === undefined ? '' : text.slice(previous.start + previous.text.length, start);
    const comment = blankGutters(text.slice(start, end));
    if (type === 'Line' && previous !== undefined && /^\n[ \t]*$/.test(gap)) {
      // The next line of the same comment.
      found[found.length - 1] = { ...previous, text: previous.text + gap + comment };
    } else {
      found.push({ kind: 'comment', start, text: comment });
    }
  }
  const add = (kind: Prose['kind'], { start, end }: Span): void => {
    if (TWO_WORDS.test(text.slice(start, end)))
      found.push({ kind, start, text: text.slice(start, end) });
  };
  const visitor = isTest
    ? new Visitor({
        CallExpression({ callee, arguments: [name] }) {
          const called = callee.type === 'MemberExpression' ? callee.property : callee;
          if (called.type !== 'Identifier' || !TEST_FUNCTIONS.has(called.name)) return;
          if (name?.type === 'Literal' || name?.type === 'TemplateLiteral') add('test name', name);
        },
      })
    : new Visitor({
        Literal(node) {
          if (typeof node.value === 'string') add('message', node);
        },
        // The span includes the delimiters: "`" or "}" before it, "`" or "${" behind it.
        TemplateElement: ({ start, end, tail }) =>
          add('message', { start: start + 1, end: end - (tail ? 1 : 2) }),
        JSXText: (node) => add('message', node),
      });
  visitor.visit(program);
  return found.map((prose) => ({ ...prose, text: blankCode(prose.text) }));
}

/** A Markdown page without its code blocks and link targets. */
export function proseOfPage(text: string): Prose[] {
  const bare = text
    .replaceAll(/^( *)```[\s\S]*?^\1```/gm, blank)
    .replaceAll(/<!--[\s\S]*?-->|\]\([^)]*\)/g, blank);
  return [{ kind: 'page', start: 0, text: blankCode(bare) }];
}

/** The comments of YAML, shell and similar files. */
export function proseOfConfiguration(text: string): Prose[] {
  return [...text.matchAll(/(?<=^|[ \t])#[ \t].*(?:\n[ \t]*#.*)*/gm)].map((match) => ({
    kind: 'comment',
    start: match.index,
    text: blankCode(match[0].replaceAll('#', ' ')),
  }));
}

/** The comments of a style sheet. */
export function proseOfStyles(text: string): Prose[] {
  return [...text.matchAll(/\/\*[\s\S]*?\*\//g)].map((match) => ({
    kind: 'comment',
    start: match.index,
    text: blankCode(blankGutters(match[0])),
  }));
}

function blankGutters(comment: string): string {
  return comment.replaceAll(/^\/\*+|\*+\/$|^\s*\*(?!\/)|^\/\/+/gm, blank);
}

function blankCode(text: string): string {
  return text.replaceAll(/\\?`[^`]*`/g, (code) =>
    'x'.padEnd(code.length - 1).padStart(code.length),
  );
}

function blank(text: string): string {
  return text.replaceAll(/[^\n]/g, ' ');
}
