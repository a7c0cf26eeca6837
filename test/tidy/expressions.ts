/** Finds the regular expressions of a source file, and checks that they take linear time. */
import { createRequire } from 'node:module';
import { Visitor, parseSync } from 'oxc-parser';

type CheckSync = typeof import('recheck').checkSync;

/** The JavaScript backend; the main entry starts native programs. */
const { checkSync } = createRequire(import.meta.url)('recheck/lib/browser.js') as {
  readonly checkSync: CheckSync; // this entry has the same functions as the package
};

export interface Expression {
  /** `path:line`. */
  readonly place: string;
  readonly pattern: string;
  readonly flags: string;
}

/** Returns the literals of a file, and the places (`path:line`) that build an expression from a string. */
export function expressionsOf(path: string, text: string) {
  const literals: Expression[] = [];
  const made: string[] = [];
  const placeOf = (start: number): string => `${path}:${text.slice(0, start).split('\n').length}`;
  const { program, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message ?? ''}`);
  const noteMade = (node: { readonly callee: object; readonly start: number }): void => {
    if ('name' in node.callee && node.callee.name === 'RegExp') made.push(placeOf(node.start));
  };
  new Visitor({
    Literal(node) {
      if (!('regex' in node)) return;
      literals.push({ place: placeOf(node.start), ...node.regex });
    },
    NewExpression: noteMade,
    CallExpression: noteMade,
  }).visit(program);
  return { literals, made };
}

/** Maximum time to check one expression. */
const CHECK_TIMEOUT_MS = 60_000;

/** Returns why an expression is not safe; `undefined` if it takes linear time. */
export function timeProblem({ place, pattern, flags }: Expression): string | undefined {
  if (isBounded(pattern)) return undefined;
  const found = checkSync(pattern, flags, { timeout: CHECK_TIMEOUT_MS });
  if (found.status === 'safe') return undefined;
  const why =
    found.status === 'vulnerable'
      ? `${found.complexity.summary}, by ${JSON.stringify(found.attack.string).slice(0, 100)}`
      : `not decided (${found.error.kind}); simplify it`;
  return `${place}: /${pattern}/${flags}: ${why}`;
}

/** Maximum number of ways to match from one position, as the product of all repetitions. */
const MAX_WAYS = 10_000;
const ESCAPE = /\\(?:[pPu]\{[^}]*\}|[\s\S])/g;
const CLASS = /\[[^\]]*\]/g;
const GROUP_START = /\(\?(?:<?[=!]|:|<\w+>)/g;
const UNBOUNDED_OR_GROUP = /[*+]|\{\d+,\}|\)\{/;
const REPETITION = /\{(?:\d+,)?(\d+)\}|\?/g;

/**
 * True if an expression has no unbounded repetition and no repeated group. It tries at most `MAX_WAYS`
 * matches from each position, so its time is linear and the slow check is not needed.
 */
function isBounded(pattern: string): boolean {
  const bare = pattern.replace(ESCAPE, 'e').replace(CLASS, 'e').replace(GROUP_START, '(');
  if (UNBOUNDED_OR_GROUP.test(bare)) return false;
  let ways = 1;
  for (const [, most = '2'] of bare.matchAll(REPETITION)) ways *= Number(most);
  return ways <= MAX_WAYS;
}
