/** The form of a commit subject: `area: imperative summary`. */

const MAX_CHARACTERS = 72;
/** Names that a summary may begin with. Words with two capitals or a digit count as names too. */
const NAMES = new Set([
  'Anthropic',
  'Base',
  'Claude',
  'Codex',
  'Docker',
  'Farebox',
  'Kubernetes',
  'Node',
  'Solana',
]);

/** Why a subject has another form, as the end of a sentence; `undefined` if it is right. */
export function subjectProblem(subject: string): string | undefined {
  if (subject.length > MAX_CHARACTERS) {
    return `has ${subject.length} characters; use at most ${MAX_CHARACTERS}`;
  }
  const [, summary] = /^[a-z0-9][a-z0-9 ,/.-]*: (\S.*)$/.exec(subject) ?? [];
  if (summary === undefined) return 'is not "area: summary" with a lower-case area';
  if (/[.!]$/.test(summary)) return 'ends with a full stop; leave it out';
  const first = summary.split(/[\s,']/)[0] ?? '';
  if (/^[A-Z][a-z]+$/.test(first) && !NAMES.has(first)) {
    return `begins its summary with a capital letter; write "${first.toLowerCase()}"`;
  }
  return undefined;
}
