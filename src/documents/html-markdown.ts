/**
 * HTML to Markdown in one pass over the text, without a tree: depth, unclosed tags and size cost
 * linear time. Headings, lists, tables, links, quotes and code keep their shape; scripts, styles and
 * images are dropped. It serves pages, EPUB chapters, HTML files and the HTML that DOCX becomes.
 */
import { MarkdownWriter } from './markdown-writer.ts';
import { scanHtml } from './markup.ts';

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

/** What they hold is no text of the page, up to their closing tag. */
const DROPPED = (
  'script style textarea xmp iframe noembed noframes template svg object select dialog canvas ' +
  'video audio math'
).split(' ');
const VOID = new Set(
  'area base br col embed hr img input link meta param source track wbr'.split(' '),
);

/** Turns HTML into Markdown of at most `maxChars` characters; never throws on bad HTML. */
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
    title: titles === 0 ? undefined : title.replace(/\s+/g, ' ').trim(),
    isTruncated: writer.isTruncated,
  };
}

/** How deep the elements of a page nest, counted without building anything. */
export function measureHtml(html: string): { depth: number; elements: number } {
  let open = 0;
  let depth = 0;
  let elements = 0;
  scanHtml(html, {
    open(name, _attribute, isSelfClosing) {
      elements += 1;
      if (!VOID.has(name) && !(isSelfClosing && name.includes(':')))
        depth = Math.max(depth, ++open);
    },
    close() {
      open = Math.max(0, open - 1);
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
