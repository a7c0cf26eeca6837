/**
 * Character references of HTML: all numeric ones, and the names that pages really use. An unknown
 * name stays as it was written, which a reader understands.
 */
import { characterOf } from './xml.ts';

const NAMED: Readonly<Record<string, string>> = Object.fromEntries(
  (
    'amp=& lt=< gt=> quot=" apos=\' shy=\u00ad ensp=\u2002 emsp=\u2003 thinsp=\u2009 zwnj=\u200c ' +
    'zwj=\u200d iexcl=¡ cent=¢ pound=£ curren=¤ yen=¥ brvbar=¦ sect=§ uml=¨ copy=© ordf=ª laquo=« ' +
    'not=¬ reg=® macr=¯ deg=° plusmn=± sup2=² sup3=³ acute=´ micro=µ para=¶ middot=· cedil=¸ sup1=¹ ' +
    'ordm=º raquo=» frac14=¼ frac12=½ frac34=¾ iquest=¿ times=× divide=÷ hellip=… mdash=— ndash=– ' +
    'lsquo=‘ rsquo=’ sbquo=‚ ldquo=“ rdquo=” bdquo=„ bull=• prime=′ Prime=″ lsaquo=‹ rsaquo=› euro=€ ' +
    'trade=™ larr=← uarr=↑ rarr=→ darr=↓ harr=↔ rArr=⇒ hArr=⇔ minus=− lowast=∗ radic=√ infin=∞ asymp=≈ ' +
    'ne=≠ le=≤ ge=≥ sum=∑ prod=∏ int=∫ part=∂ nabla=∇ isin=∈ notin=∉ cap=∩ cup=∪ sub=⊂ sup=⊃ forall=∀ ' +
    'exist=∃ empty=∅ and=∧ or=∨ check=✓ dagger=† Dagger=‡ permil=‰ szlig=ß aelig=æ AElig=Æ oelig=œ ' +
    'OElig=Œ oslash=ø Oslash=Ø aring=å Aring=Å eth=ð ETH=Ð thorn=þ THORN=Þ scaron=š Scaron=Š ' +
    'alpha=α beta=β gamma=γ delta=δ epsilon=ε zeta=ζ eta=η theta=θ iota=ι kappa=κ lambda=λ mu=μ nu=ν ' +
    'xi=ξ omicron=ο pi=π rho=ρ sigma=σ sigmaf=ς tau=τ upsilon=υ phi=φ chi=χ psi=ψ omega=ω ' +
    'Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Phi=Φ Psi=Ψ Omega=Ω'
  )
    .split(' ')
    .map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]),
);

/** Letters with a mark are named after both: `eacute`, `Uuml`, `ntilde`. */
const MARKS: Readonly<Record<string, string>> = {
  acute: '\u0301',
  grave: '\u0300',
  circ: '\u0302',
  uml: '\u0308',
  tilde: '\u0303',
  cedil: '\u0327',
  caron: '\u030c',
};

/** `text` with its character references replaced. */
export function decodeHtml(text: string): string {
  if (!text.includes('&')) return text;
  return text.replace(
    /&(?:#(\d{1,7}|[xX][\da-fA-F]{1,6})|([A-Za-z][A-Za-z\d]{1,9}));?/g,
    (whole, number: string | undefined, name: string | undefined) =>
      number === undefined ? namedCharacter(name ?? '', whole) : characterOf(number),
  );
}

function namedCharacter(name: string, whole: string): string {
  if (name === 'nbsp') return ' ';
  const known = Object.hasOwn(NAMED, name) ? NAMED[name] : undefined;
  if (known !== undefined) return known;
  const mark = Object.hasOwn(MARKS, name.slice(1)) ? MARKS[name.slice(1)] : undefined;
  return mark === undefined ? whole : `${name[0] ?? ''}${mark}`.normalize('NFC');
}
