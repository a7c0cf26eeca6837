/**
 * HTML to Markdown in one pass over the text, without a tree: depth, unclosed tags and size cost
 * linear time. Headings, lists, tables, links, quotes and code keep their shape; scripts, styles and
 * images are dropped. It serves pages, EPUB chapters, HTML files and the HTML that DOCX becomes.
 */
import { decodeHtml } from './html-entities.ts';
import { MarkdownWriter } from './markdown-writer.ts';

export interface HtmlOptions {
  readonly maxChars: number;
  /** Links become absolute against it; without it only absolute links keep their target. */
  readonly baseUrl?: string;
  /** Elements to leave out besides scripts and the like, as navigation on a page. */
  readonly without?: readonly string[];
}

export interface Markdown {
  readonly text: string;
  readonly title: string | undefined;
  readonly isTruncated: boolean;
}

/** Content of these is text of another kind up to their closing tag. */
const RAW = new Set([
  'script',
  'style',
  'textarea',
  'xmp',
  'iframe',
  'noembed',
  'noframes',
  'title',
]);
const DROPPED = [
  'template',
  'svg',
  'object',
  'select',
  'dialog',
  'canvas',
  'video',
  'audio',
  'math',
];
const PARAGRAPHS = new Set(['p', 'table', 'dl', 'figure', 'fieldset', 'form', 'details']);
const LINES = new Set(
  (
    'div section article main header footer nav aside body dt dd address figcaption caption ' +
    'summary thead tbody tfoot legend option'
  ).split(' '),
);

/** Longer tags are skipped: an attribute of this length carries data, not meaning. */
const MAX_TAG_CHARS = 20_000;

/** Turns HTML into Markdown of at most `maxChars` characters; never throws on bad HTML. */
export function htmlToMarkdown(html: string, options: HtmlOptions): Markdown {
  const writer = new MarkdownWriter(options.maxChars);
  const dropped = new Set([...DROPPED, ...(options.without ?? [])]);
  let title: string | undefined;
  let droppedDepth = 0;
  let at = 0;
  while (at < html.length && !writer.isFull) {
    const tag = html.indexOf('<', at);
    const textEnd = tag === -1 ? html.length : tag;
    if (droppedDepth === 0 && textEnd > at) writer.text(decodeHtml(html.slice(at, textEnd)));
    if (tag === -1) break;
    const found = readTag(html, tag);
    at = found.end;
    if (found.name === '') {
      if (found.isText && droppedDepth === 0) writer.text('<');
      continue;
    }
    if (!found.isClosing && RAW.has(found.name)) {
      const content = rawContent(html, at, found.name);
      at = content.end;
      if (found.name === 'title') title ??= decodeHtml(content.text).replace(/\s+/g, ' ').trim();
      continue;
    }
    if (dropped.has(found.name)) {
      droppedDepth = Math.max(0, droppedDepth + (found.isClosing ? -1 : found.isVoid ? 0 : 1));
    } else if (droppedDepth === 0) {
      applyTag(writer, found, options.baseUrl);
    }
  }
  return { text: writer.toString(), title, isTruncated: writer.isTruncated };
}

/** How deep the elements of a page nest, counted without building anything. */
export function measureHtml(html: string): { depth: number; elements: number } {
  let depth = 0;
  let deepest = 0;
  let elements = 0;
  for (let at = html.indexOf('<'); at !== -1; at = html.indexOf('<', at)) {
    const tag = readTag(html, at);
    at = tag.end;
    if (tag.name === '') continue;
    if (tag.isClosing) depth = Math.max(0, depth - 1);
    else if (RAW.has(tag.name)) at = rawContent(html, at, tag.name).end;
    else if (!tag.isVoid) deepest = Math.max(deepest, ++depth);
    if (!tag.isClosing) elements += 1;
  }
  return { depth: deepest, elements };
}

interface Tag {
  /** Lowercase; empty for a comment, a doctype or a stray `<`. */
  readonly name: string;
  readonly isClosing: boolean;
  readonly isVoid: boolean;
  readonly isText: boolean;
  readonly attributes: string;
  readonly end: number;
}

const VOID = new Set(
  'area base br col embed hr img input link meta param source track wbr'.split(' '),
);

function readTag(html: string, at: number): Tag {
  const nothing = { name: '', isClosing: false, isVoid: true, isText: false, attributes: '' };
  if (html.startsWith('<!--', at)) return { ...nothing, end: after(html, '-->', at + 4) };
  const head = html.slice(at, at + 64);
  const match = /^<(\/?)([a-zA-Z][a-zA-Z0-9:-]*)/.exec(head);
  if (match === null) {
    const isMarkup = head.startsWith('<!') || head.startsWith('<?') || head.startsWith('</');
    return isMarkup
      ? { ...nothing, end: after(html, '>', at) }
      : { ...nothing, isText: true, end: at + 1 };
  }
  const name = (match[2] ?? '').toLowerCase();
  const start = at + match[0].length;
  const end = tagEnd(html, start);
  const attributes = end - start > MAX_TAG_CHARS ? '' : html.slice(start, end - 1);
  const isVoid = VOID.has(name) || (attributes.endsWith('/') && name.includes(':'));
  return { name, isClosing: match[1] === '/', isVoid, isText: false, attributes, end };
}

/** The place after the `>` that ends a tag; a `>` within quotes does not. */
function tagEnd(html: string, start: number): number {
  let quote = '';
  for (let at = start; at < html.length; at++) {
    const char = html[at];
    if (quote !== '') {
      if (char === quote) quote = '';
    } else if (char === '>') {
      return at + 1;
    } else if ((char === '"' || char === "'") && html[at - 1] === '=') {
      quote = char;
    }
  }
  return html.length;
}

function rawContent(html: string, start: number, name: string): { text: string; end: number } {
  const closing = new RegExp(`</${name}`, 'gi');
  closing.lastIndex = start;
  const match = closing.exec(html);
  if (match === null) return { text: html.slice(start), end: html.length };
  return { text: html.slice(start, match.index), end: after(html, '>', match.index) };
}

function after(html: string, mark: string, from: number): number {
  const end = html.indexOf(mark, from);
  return end === -1 ? html.length : end + mark.length;
}

function applyTag(writer: MarkdownWriter, tag: Tag, baseUrl: string | undefined): void {
  const { name, isClosing } = tag;
  if (/^h[1-6]$/.test(name)) {
    writer.breakLines(2);
    if (!isClosing) writer.mark(`${'#'.repeat(Number(name[1]))} `);
    return;
  }
  if (PARAGRAPHS.has(name)) writer.breakLines(2);
  else if (LINES.has(name)) writer.breakLines(1);
  switch (name) {
    case 'br':
      return writer.breakLines(1);
    case 'hr':
      writer.breakLines(2);
      writer.mark('---');
      return writer.breakLines(2);
    case 'pre':
      return isClosing ? writer.closeCode() : writer.openCode();
    case 'code':
      return writer.inlineCode();
    case 'blockquote':
      return isClosing ? writer.closeQuote() : writer.openQuote();
    case 'ul':
    case 'ol':
      return isClosing ? writer.closeList() : writer.openList(name === 'ol');
    case 'li':
      return isClosing ? undefined : writer.openItem();
    case 'table':
      return isClosing ? writer.closeTable() : writer.openTable();
    case 'tr':
      return isClosing ? writer.closeRow() : writer.openRow();
    case 'td':
    case 'th':
      return isClosing ? undefined : writer.openCell();
    case 'a':
      return isClosing ? writer.closeLink() : writer.openLink(hrefOf(tag.attributes, baseUrl));
    default:
      return undefined;
  }
}

const MAX_LINK_CHARS = 500;

function hrefOf(attributes: string, baseUrl: string | undefined): string | undefined {
  const match = /(?:^|\s)href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))/i.exec(attributes);
  const href = decodeHtml(match?.[1] ?? match?.[2] ?? match?.[3] ?? '').trim();
  if (href === '' || href.startsWith('#')) return undefined;
  if (!URL.canParse(href, baseUrl)) return undefined;
  const url = new URL(href, baseUrl);
  if (!/^https?:$/.test(url.protocol) || url.href.length > MAX_LINK_CHARS) return undefined;
  return url.href.replaceAll('(', '%28').replaceAll(')', '%29');
}
