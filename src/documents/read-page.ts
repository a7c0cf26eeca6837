/**
 * Converts a fetched web page to Markdown: its article if there is one, else the page without
 * navigation. Readability takes quadratic time or more on deeply nested pages, so it only receives
 * pages of limited depth and size; all others use the linear converter.
 */
import { Readability } from '@mozilla/readability';
// Bundled in one file: loading many modules would cost each worker a tenth of a second of CPU time.
import { parseHTML } from 'linkedom/worker';
import { decodeText, htmlCharset } from './charset.ts';
import { htmlToMarkdown, type Markdown, measureHtml, titleOf } from './html-markdown.ts';
import { ReaderError } from './reader-error.ts';

/** Readability takes 0.4 s at depth 500, 2 s at 1,000 and 29 s at 2,000. */
const MAX_ARTICLE_DEPTH = 128;
const MAX_ARTICLE_ELEMENTS = 30_000;
const MAX_ARTICLE_CHARS = 3_000_000;

/** A shorter "article" is usually a cookie notice; the whole page is used instead. */
const MIN_ARTICLE_CHARS = 200;

const BESIDES = ['nav', 'footer', 'aside', 'form', 'button', 'noscript', 'menu'];

export interface PageOptions {
  readonly url: string;
  readonly charset?: string | undefined;
  readonly maxChars: number;
}

/** The readable part of an HTML page; throws `ReaderError` if there is none. */
export function readPage(bytes: Buffer, options: PageOptions): Markdown {
  const html = decodeText(bytes, options.charset ?? htmlCharset(bytes));
  const page = { baseUrl: options.url, maxChars: options.maxChars };
  const whole = htmlToMarkdown(html, { ...page, without: BESIDES });
  const article = readArticle(html);
  if (article !== undefined) {
    const markdown = htmlToMarkdown(article.content, page);
    if (markdown.text.length >= Math.min(MIN_ARTICLE_CHARS, whole.text.length)) {
      return { ...markdown, title: article.title ?? whole.title };
    }
  }
  if (whole.text === '') throw new ReaderError('contains no text without JavaScript');
  return whole;
}

interface Article {
  readonly title: string | undefined;
  readonly content: string;
}

function readArticle(html: string): Article | undefined {
  if (html.length > MAX_ARTICLE_CHARS) return undefined;
  const { depth, elements } = measureHtml(html);
  if (depth > MAX_ARTICLE_DEPTH || elements > MAX_ARTICLE_ELEMENTS) return undefined;
  try {
    const { document } = parseHTML(html);
    const article = new Readability(document, { maxElemsToParse: MAX_ARTICLE_ELEMENTS }).parse();
    if (typeof article?.content !== 'string') return undefined;
    return { title: titleOf(article.title ?? '') || undefined, content: article.content };
  } catch {
    return undefined; // the page is converted without the article finder
  }
}
