/**
 * A fetched web page to Markdown: the article when there is one, else the page without its
 * navigation. Readability takes quadratic time and worse on deep pages, so it only sees pages of
 * sane depth and size; all others go through the linear converter.
 */
import { Readability } from '@mozilla/readability';
// In one file: its many modules would take each worker a tenth of a second of CPU.
import { parseHTML } from 'linkedom/worker';
import { decodeText, htmlCharset } from './charset.ts';
import { htmlToMarkdown, type Markdown, measureHtml } from './html-markdown.ts';
import { ReaderError } from './reader-error.ts';

/** Measured on two shared cores: depth 500 takes 0.4 s, 1,000 2 s, 2,000 29 s. */
const MAX_ARTICLE_DEPTH = 128;
const MAX_ARTICLE_ELEMENTS = 30_000;
const MAX_ARTICLE_CHARS = 3_000_000;

/** An "article" of less is a cookie notice; the whole page says more. */
const MIN_ARTICLE_CHARS = 200;

const BESIDES = ['nav', 'footer', 'aside', 'form', 'button', 'noscript', 'menu'];

export interface PageOptions {
  readonly url: string;
  readonly charset?: string | undefined;
  readonly maxChars: number;
}

/** The readable part of an HTML page; throws `ReaderError` when there is none. */
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
  if (whole.text === '') throw new ReaderError('holds no text without JavaScript');
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
    const title = article.title?.replace(/\s+/g, ' ').trim();
    return { title: title === '' ? undefined : title, content: article.content };
  } catch {
    return undefined; // a page that breaks the article finder is still a page
  }
}
