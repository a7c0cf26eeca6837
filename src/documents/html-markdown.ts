/**
 * Converts HTML to Markdown in one pass without a tree: nesting, unclosed tags and size cost linear
 * time. Keeps headings, lists, tables, links, quotes and code; drops scripts, styles and images.
 * Used for pages, EPUB chapters, HTML files and the HTML of converted DOCX files.
 */
import { MarkdownWriter } from './markdown-writer.ts';
import { scanHtml } from './markup.ts';

export interface HtmlOptions {
  readonly maxChars: number;
  /** Base of relative links; without it only absolute links keep their target. */
  readonly baseUrl?: string;
  readonly without?: readonly string[];
}

export interface Markdown {
  readonly text: string;
  readonly title: string | undefined;
  readonly isTruncated: boolean;
}

/** Elements whose content is dropped up to the closing tag. */
const DROPPED = (
  'script style textarea xmp iframe noembed noframes template svg object select dialog canvas ' +
  'video audio math'
).split(' ');
const VOID = new Set(
  'area base br col embed hr img input link meta param source track wbr'.split(' '),
);

/** Returns Markdown of at most `maxChars` characters; never throws for invalid HTML. */
export function htmlToMarkdown(html: string, options: HtmlOptions): Markdown {
  const writer = new MarkdownWriter(options.maxChars);
  const dropped = new Set([...DROPPED, ...(options.without ?? [])]);
  let droppedDepth = 0;
  let title = '';
  let titles = 0;
  let isTitle = false;
  scanHtml(html, {
    open(name, attribute, isSelfClosing) {
      if (name === 'title') {
        titles += 1;
        isTitle = !isSelfClosing;
      } else if (dropped.has(name)) {
        if (!isSelfClosing) droppedDepth += 1;
      } else if (droppedDepth === 0) {
        writer.open(name, () => targetOf(attribute('href') ?? '', options.baseUrl));
      }
    },
    close(name) {
      if (name === 'title') isTitle = false;
      else if (dropped.has(name)) droppedDepth = Math.max(0, droppedDepth - 1);
      else if (droppedDepth === 0) writer.close(name);
    },
    text(text) {
      if (isTitle) title += titles === 1 ? text : '';
      else if (droppedDepth === 0) writer.text(text);
    },
    isDone: () => writer.isFull,
  });
  return {
    text: writer.toString(),
    title: titles === 0 ? undefined : titleOf(title),
    isTruncated: writer.isTruncated,
  };
}

/** Longer titles are cut, because the bound of a prompt with pages includes their titles. */
const MAX_TITLE_CHARS = 300;

/** A title on one line. */
export function titleOf(text: string): string {
  return text.replace(/\s+/g, ' ').trim().slice(0, MAX_TITLE_CHARS).toWellFormed();
}

/**
 * Nesting depth and number of elements of a page, counted without building a tree. A closing tag
 * without its opening one is ignored, as parsers do; another one also closes what is inside.
 */
export function measureHtml(html: string): { depth: number; elements: number } {
  const open: string[] = [];
  const openOf = new Map<string, number>();
  const count = (name: string, more: number): void => {
    openOf.set(name, (openOf.get(name) ?? 0) + more);
  };
  let depth = 0;
  let elements = 0;
  scanHtml(html, {
    open(name, _attribute, isSelfClosing) {
      elements += 1;
      if (VOID.has(name) || (isSelfClosing && name.includes(':'))) return;
      count(name, 1);
      depth = Math.max(depth, open.push(name));
    },
    close(name) {
      if ((openOf.get(name) ?? 0) === 0) return;
      let closed: string | undefined;
      do {
        closed = open.pop() ?? name;
        count(closed, -1);
      } while (closed !== name);
    },
  });
  return { depth, elements };
}

const MAX_LINK_CHARS = 500;

function targetOf(written: string, baseUrl: string | undefined): string | undefined {
  const href = written.trim();
  if (href === '' || href.startsWith('#')) return undefined;
  const url = URL.parse(href, baseUrl);
  if (url === null || !/^https?:$/.test(url.protocol)) return undefined;
  if (url.href.length > MAX_LINK_CHARS) return undefined;
  return url.href.replaceAll('(', '%28').replaceAll(')', '%29');
}
