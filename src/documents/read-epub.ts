/** The text of an EPUB book: the chapters of its spine, in reading order, as Markdown. */
import { percentDecoded } from '../core/percent-decoding.ts';
import { htmlToMarkdown } from './html-markdown.ts';
import { resolvePath } from './ooxml.ts';
import { ReaderError } from './reader-error.ts';
import type { TextSink } from './text-sink.ts';
import { scanXml } from './markup.ts';
import type { ZipArchive } from './zip.ts';

export async function readEpub(zip: ZipArchive, sink: TextSink): Promise<void> {
  const packagePath = await findPackage(zip);
  const folder = packagePath.slice(0, packagePath.lastIndexOf('/') + 1);
  const items = new Map<string, string>();
  const spine: string[] = [];
  let title = '';
  let isTitle = false;
  scanXml((await zip.readText(packagePath)) ?? '', {
    open(name, attribute) {
      isTitle = name === 'title' && title === '';
      if (name === 'item') items.set(attribute('id') ?? '', attribute('href') ?? '');
      if (name === 'itemref') spine.push(attribute('idref') ?? '');
    },
    text(text) {
      if (isTitle) title += text;
    },
    close() {
      isTitle = false;
    },
  });
  if (title.trim() !== '') sink.write(`# ${title.trim()}\n\n`);
  for (const id of spine) {
    if (sink.isTruncated) break;
    const html = await chapter(zip, folder, items.get(id));
    const { text, isTruncated } = htmlToMarkdown(html, { maxChars: sink.leftChars });
    sink.writeMarkdown({ text: text && `${text}\n\n`, isTruncated });
  }
}

async function findPackage(zip: ZipArchive): Promise<string> {
  let path: string | undefined;
  scanXml((await zip.readText('META-INF/container.xml')) ?? '', {
    open(name, attribute) {
      if (name === 'rootfile') path ??= attribute('full-path');
    },
  });
  if (path === undefined) throw new ReaderError('contains no book');
  return resolvePath('', path);
}

async function chapter(zip: ZipArchive, folder: string, href = ''): Promise<string> {
  const bare = href.split('#')[0] ?? '';
  const path = resolvePath(folder, bare);
  const found = zip.has(path) ? path : resolvePath(folder, percentDecoded(bare));
  return (await zip.readText(found)) ?? '';
}
