/**
 * Converts a DOCX document to Markdown with mammoth. The archive is first read within limits and
 * passed on uncompressed and without media, so that mammoth never decompresses untrusted data.
 */
import mammoth from 'mammoth';
import { zipSync } from 'fflate';
import { htmlToMarkdown } from './html-markdown.ts';
import { ReaderError } from './reader-error.ts';
import type { TextSink } from './text-sink.ts';
import type { ZipArchive } from './zip.ts';

export async function readDocx(zip: ZipArchive, sink: TextSink): Promise<void> {
  const parts: Record<string, Uint8Array> = {};
  for (const name of zip.names) {
    if (!/\.(xml|rels)$/i.test(name)) continue;
    const content = await zip.read(name);
    if (content === undefined) continue;
    if (content.includes('<!DOCTYPE') || content.includes('<!ENTITY')) {
      throw new ReaderError('defines XML entities');
    }
    parts[name] = content;
  }
  const buffer = Buffer.from(zipSync(parts, { level: 0 }));
  const result = await mammoth.convertToHtml({ buffer }, { externalFileAccess: false });
  sink.writeMarkdown(htmlToMarkdown(result.value, { maxChars: sink.leftChars }));
}
