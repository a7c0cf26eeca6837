/**
 * A flat scan over XML or HTML: no tree and no recursion, so that depth, unclosed tags and size cost
 * linear time, and no entities of a document's own, so that "billion laughs" cost nothing. It reads
 * what programs and people write and does not validate.
 */
import { Tokenizer } from 'htmlparser2';
import { ReaderError } from './reader-error.ts';

/** The first ones of a tag: no page has more that mean something. */
const MAX_ATTRIBUTES = 100;
const NO_BREAK_SPACE = 0xa0;

/** Of XML, a name finds also an attribute that has a prefix before it. */
export type Attribute = (name: string) => string | undefined;

/** Names are without prefix in XML, and in lower case in HTML. Text comes in pieces. */
export interface MarkupHandler {
  open?(name: string, attribute: Attribute, isSelfClosing: boolean): void;
  close?(name: string): void;
  text?(text: string): void;
  isDone?(): boolean;
}

/** Tags that close themselves open and close. Throws for a document that defines entities. */
export function scanXml(xml: string, handler: MarkupHandler): void {
  scan(xml, true, handler);
}

export function scanHtml(html: string, handler: MarkupHandler): void {
  scan(html, false, handler);
}

function scan(markup: string, xmlMode: boolean, handler: MarkupHandler): void {
  const attributes: { readonly name: string; value: string }[] = [];
  let name = '';
  let isLeftOut = false;
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
    if (last !== undefined && !isLeftOut) last.value += value;
  };
  const tokenizer = new Tokenizer(
    { xmlMode, decodeEntities: true },
    {
      onopentagname: (start, end) => {
        name = nameAt(start, end);
        attributes.length = 0;
      },
      onattribname: (start, end) => {
        isLeftOut = attributes.length >= MAX_ATTRIBUTES;
        const written = markup.slice(start, end);
        if (!isLeftOut)
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
      // Pages write it for layout; in a prompt it is a space.
      ontextentity: (code) =>
        text(code === NO_BREAK_SPACE && !xmlMode ? ' ' : String.fromCodePoint(code)),
      oncdata: (start, end, offset) => {
        if (xmlMode) text(markup.slice(start, end - offset));
      },
      ondeclaration: (start, end) => {
        // No office format defines entities, so it is an attack.
        const isDefining = xmlMode && markup.slice(start, end).includes('[');
        if (isDefining) throw new ReaderError('defines XML entities of its own');
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
