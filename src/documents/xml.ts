/**
 * A flat scan over XML: no tree, no recursion, no entities of its own, so depth and "billion
 * laughs" cost nothing. It reads what stores programs write and does not validate.
 */
import { ReaderError } from './reader-error.ts';

/** Attributes of a longer tag are not looked at: no stores program writes one. */
const MAX_TAG_CHARS = 65_536;

export interface XmlHandler {
  /** `name` is without prefix; `attribute` takes a local or a full name. */
  open?(name: string, attribute: (name: string) => string | undefined): void;
  close?(name: string): void;
  text?(text: string): void;
  /** Ends the scan early. */
  isDone?(): boolean;
}

/** Walks through `xml`, telling `handler` what it meets; self-closing tags open and close. */
export function scanXml(xml: string, handler: XmlHandler): void {
  let at = 0;
  while (at < xml.length && handler.isDone?.() !== true) {
    const tag = xml.indexOf('<', at);
    const textEnd = tag === -1 ? xml.length : tag;
    if (textEnd > at) handler.text?.(decodeEntities(xml.slice(at, textEnd)));
    if (tag === -1) return;
    at = scanMarkup(xml, tag, handler);
  }
}

function scanMarkup(xml: string, tag: number, handler: XmlHandler): number {
  if (xml.startsWith('<!--', tag)) return after(xml, '-->', tag + 4);
  if (xml.startsWith('<![CDATA[', tag)) {
    const end = xml.indexOf(']]>', tag + 9);
    handler.text?.(xml.slice(tag + 9, end === -1 ? xml.length : end));
    return end === -1 ? xml.length : end + 3;
  }
  if (xml.startsWith('<?', tag)) return after(xml, '?>', tag + 2);
  const end = xml.indexOf('>', tag);
  if (end === -1) return xml.length;
  if (xml.startsWith('<!', tag)) {
    // A document type can define entities; no stores format has one, so it is an attack.
    if (xml.slice(tag, end).includes('[')) throw new ReaderError('defines XML entities of its own');
    return end + 1;
  }
  if (xml[tag + 1] === '/') handler.close?.(localName(xml.slice(tag + 2, end).trim()));
  else openTag(xml.slice(tag + 1, end), handler);
  return end + 1;
}

function openTag(tag: string, handler: XmlHandler): void {
  const isClosed = tag.endsWith('/');
  const body = isClosed ? tag.slice(0, -1) : tag;
  const space = body.search(/\s/);
  const name = localName(space === -1 ? body : body.slice(0, space));
  handler.open?.(name, (wanted) => attributeOf(body, wanted));
  if (isClosed) handler.close?.(name);
}

function attributeOf(tag: string, wanted: string): string | undefined {
  if (tag.length > MAX_TAG_CHARS) return undefined;
  for (const match of tag.matchAll(/([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')/g)) {
    const name = match[1] ?? '';
    if (name === wanted || localName(name) === wanted)
      return decodeEntities(match[2] ?? match[3] ?? '');
  }
  return undefined;
}

function localName(name: string): string {
  return name.slice(name.indexOf(':') + 1);
}

function after(xml: string, mark: string, from: number): number {
  const end = xml.indexOf(mark, from);
  return end === -1 ? xml.length : end + mark.length;
}

const ENTITIES: Readonly<Record<string, string>> = {
  lt: '<',
  gt: '>',
  amp: '&',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
};

/** Replaces the five entities of XML, `nbsp`, and character numbers; others stay as written. */
export function decodeEntities(text: string): string {
  if (!text.includes('&')) return text;
  return text.replace(/&(#\d{1,7}|#[xX][\da-fA-F]{1,6}|\w{1,8});/g, (whole, name: string) =>
    name.startsWith('#') ? characterOf(name.slice(1)) : (ENTITIES[name] ?? whole),
  );
}

/** The character of a numeric reference such as `65` or `x41`; the replacement mark if there is none. */
export function characterOf(number: string): string {
  const code = /^x/i.test(number) ? Number.parseInt(number.slice(1), 16) : Number(number);
  const isValid = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
  return isValid ? String.fromCodePoint(code) : '\ufffd';
}
