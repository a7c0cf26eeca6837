/**
 * Numbers within bounds as GBNF. Integer ranges are exact. For fractions the grammar accepts only
 * numbers whose integer part alone proves that they are within the bounds: it excludes some valid
 * numbers near a fractional bound and never accepts an invalid one.
 */

/** JSON parsers cannot distinguish larger integers from their neighbours. */
const LARGEST = 10 ** 15;

interface Bound {
  readonly at: number;
  readonly isExclusive: boolean;
}

/** Returns the expression, without an exponent; `undefined` if no number can match. */
export function numberGrammar(
  schema: Readonly<Record<string, unknown>>,
  isFractional: boolean,
  digits: number,
): string | undefined {
  const low = tighter(bound(schema, 'minimum', false), bound(schema, 'exclusiveMinimum', true), 1);
  const high = tighter(
    bound(schema, 'maximum', false),
    bound(schema, 'exclusiveMaximum', true),
    -1,
  );
  const whole = `( "0" | [1-9] [0-9]{0,${digits - 1}} )`;
  const fraction = `"." [0-9]{1,${digits}}`;
  if (low === undefined && high === undefined) {
    return `"-"? ${whole}${isFractional ? ` ( ${fraction} )?` : ''}`;
  }
  const parts: string[] = [];
  const positive = partOf(low, high, isFractional, digits);
  if (positive !== undefined) parts.push(positive);
  if (low === undefined || low.at < 0) {
    const negative = partOf(mirrored(high), mirrored(low), isFractional, digits);
    if (negative !== undefined) parts.push(`"-" ( ${negative} )`);
  }
  return parts.length === 0 ? undefined : `( ${parts.join(' | ')} )`;
}

function bound(
  schema: Readonly<Record<string, unknown>>,
  keyword: string,
  isExclusive: boolean,
): Bound | undefined {
  const at = schema[keyword];
  return typeof at === 'number' && Number.isFinite(at) ? { at, isExclusive } : undefined;
}

/** The stricter of two bounds; `sign` is 1 for lower bounds and -1 for upper bounds. */
function tighter(
  one: Bound | undefined,
  other: Bound | undefined,
  sign: 1 | -1,
): Bound | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return sign * other.at >= sign * one.at ? other : one;
}

function mirrored(given: Bound | undefined): Bound | undefined {
  return given && { at: -given.at, isExclusive: given.isExclusive };
}

/** The non-negative numbers between the bounds. */
function partOf(
  low: Bound | undefined,
  high: Bound | undefined,
  isFractional: boolean,
  digits: number,
): string | undefined {
  const most = 10 ** Math.min(digits, 15) - 1;
  const from = low === undefined || low.at < 0 ? { at: 0, isExclusive: false } : low;
  // An explicit bound stays reachable, whatever the usual number of digits is.
  let to = high ?? { at: Math.max(most, Math.ceil(from.at) * 10), isExclusive: false };
  if (to.at > LARGEST) to = { at: LARGEST, isExclusive: false };
  if (to.at < 0 || to.at < from.at) return undefined;
  const isOpen = from.isExclusive && Number.isInteger(from.at);
  const first = isOpen ? from.at + 1 : Math.ceil(from.at);
  const isClosed = !(to.isExclusive && Number.isInteger(to.at));
  const last = isClosed ? Math.floor(to.at) : to.at - 1;
  if (!isFractional) return first > last ? undefined : integersBetween(first, last);
  const fraction = `"." [0-9]{1,${digits}}`;
  const parts: string[] = [];
  // Integer parts that any fraction may follow, then the last integer alone, then values just above
  // an exclusive start.
  const lastFree = Number.isInteger(to.at) ? to.at - 1 : Math.floor(to.at) - 1;
  if (first <= lastFree) parts.push(`( ${integersBetween(first, lastFree)} ) ( ${fraction} )?`);
  const alone = Math.max(first, lastFree + 1);
  if (alone <= last) parts.push(integersBetween(alone, last));
  if (isOpen && from.at < to.at && from.at <= lastFree) {
    parts.push(`"${from.at}." [0-9]{0,${digits - 1}} [1-9]`);
  }
  return parts.length === 0 ? undefined : parts.join(' | ');
}

/** The integers from `low` to `high` (both at least 0) as alternatives of digit patterns. */
function integersBetween(low: number, high: number): string {
  const parts: string[] = [];
  let from = low;
  while (from <= high) {
    const length = String(from).length;
    const to = Math.min(high, 10 ** length - 1);
    parts.push(...sameLength(String(from), String(to)));
    from = to + 1;
  }
  return parts.join(' | ');
}

/** The integers between two with the same number of digits. */
function sameLength(low: string, high: string): string[] {
  const [first = '', end = ''] = [low[0], high[0]];
  const [rest, endRest] = [low.slice(1), high.slice(1)];
  if (low === '') return [''];
  if (first === end) {
    const inner = sameLength(rest, endRest).filter((text) => text !== '');
    return [inner.length === 0 ? `"${first}"` : `"${first}" ( ${inner.join(' | ')} )`];
  }
  const parts: string[] = [];
  let [from, to] = [Number(first), Number(end)];
  const free = rest.length === 0 ? '' : ` [0-9]{${rest.length}}`;
  if (/[1-9]/.test(rest)) {
    const inner = sameLength(rest, '9'.repeat(rest.length));
    parts.push(`"${first}" ( ${inner.join(' | ')} )`);
    from += 1;
  }
  if (/[0-8]/.test(endRest)) to -= 1;
  if (from <= to) parts.push(`[${from}-${to}]${free}`);
  if (to < Number(end)) {
    const inner = sameLength('0'.repeat(endRest.length), endRest);
    parts.push(`"${end}" ( ${inner.join(' | ')} )`);
  }
  return parts;
}
