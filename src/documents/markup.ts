/**
 * A flat scanner for XML and HTML: no tree and no recursion, so that nesting, unclosed tags and
 * size cost linear time. Entity definitions are rejected, which prevents "billion laughs" attacks.
 * It does not validate.
 */
import { Tokenizer } from 'htmlparser2';
import { ReaderError } from './reader-error.ts';

/** Further attributes of a tag are ignored; no real page needs more. */
const MAX_ATTRIBUTES = 100;
const NO_BREAK_SPACE = 0xa0;

/** In XML, a name also matches an attribute with a prefix. */
export type Attribute = (name: string) => string | undefined;

/** Names have no prefix in XML and are lower case in HTML. Text may arrive in pieces. */
export interface MarkupHandler {
  open?(name: string, attribute: Attribute, isSelfClosing: boolean): void;
  close?(name: string): void;
  text?(text: string): void;
  isDone?(): boolean;
}

/** Calls `open` and `close` for self-closing tags. Throws for a document that defines entities. */
export function scanXml(xml: string, handler: MarkupHandler): void {
  scan(xml, true, handler);
}

export function scanHtml(html: string, handler: MarkupHandler): void {
  scan(html, false, handler);
}

function scan(markup: string, xmlMode: boolean, handler: MarkupHandler): void {
  const attributes: { readonly name: string; value: string }[] = [];
  let name = '';
  let isIgnored = false;
  const nameAt = (start: number, end: number): string => {
    const whole = markup.slice(start, end);
    return xmlMode ? localName(whole) : whole.toLowerCase();
  };
  const attribute: Attribute = (wanted) => {
    const isWanted = (one: { readonly name: string }): boolean =>
      one.name === wanted || (xmlMode && localName(one.name) === wanted);
    return attributes.find(isWanted)?.value;
  };
  const stopWhenDone = (): void => {
    if (handler.isDone?.() === true) tokenizer.pause();
  };
  const opened = (isSelfClosing: boolean): void => {
    handler.open?.(name, attribute, isSelfClosing);
    if (isSelfClosing && xmlMode) handler.close?.(name);
    stopWhenDone();
  };
  const text = (value: string): void => {
    handler.text?.(value);
    stopWhenDone();
  };
  const addToValue = (value: string): void => {
    const last = attributes.at(-1);
    if (last !== undefined && !isIgnored) last.value += value;
  };
  const tokenizer = new Tokenizer(
    { xmlMode, decodeEntities: true },
    {
      onopentagname: (start, end) => {
        name = nameAt(start, end);
        attributes.length = 0;
      },
      onattribname: (start, end) => {
        isIgnored = attributes.length >= MAX_ATTRIBUTES;
        const written = markup.slice(start, end);
        if (!isIgnored)
          attributes.push({ name: xmlMode ? written : written.toLowerCase(), value: '' });
      },
      onattribdata: (start, end) => addToValue(markup.slice(start, end)),
      onattribentity: (code) => addToValue(String.fromCodePoint(code)),
      onattribend: () => undefined,
      onopentagend: () => opened(false),
      onselfclosingtag: () => opened(true),
      onclosetag: (start, end) => {
        handler.close?.(nameAt(start, end));
        stopWhenDone();
      },
      ontext: (start, end) => text(markup.slice(start, end)),
      // A non-breaking space is layout; write a plain space into the prompt.
      ontextentity: (code) =>
        text(code === NO_BREAK_SPACE && !xmlMode ? ' ' : String.fromCodePoint(code)),
      oncdata: (start, end, offset) => {
        if (xmlMode) text(markup.slice(start, end - offset));
      },
      ondeclaration: (start, end) => {
        // No office format defines entities, so this is an attack.
        const isDefining = xmlMode && markup.slice(start, end).includes('[');
        if (isDefining) throw new ReaderError('defines XML entities');
      },
      oncomment: () => undefined,
      onprocessinginstruction: () => undefined,
      onend: () => undefined,
    },
  );
  tokenizer.write(markup);
  tokenizer.end();
}

function localName(name: string): string {
  return name.slice(name.indexOf(':') + 1);
}
