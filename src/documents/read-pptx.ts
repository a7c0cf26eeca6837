/**
 * Extracts the text of a PPTX presentation: numbered slides in display order, each with its
 * paragraphs, table rows and speaker notes.
 */
import { relationships } from './ooxml.ts';
import { ReaderError } from './reader-error.ts';
import type { TextSink } from './text-sink.ts';
import { scanXml } from './markup.ts';
import type { ZipArchive } from './zip.ts';

const MAX_SLIDES = 5_000;

export async function readPptx(zip: ZipArchive, part: string, sink: TextSink): Promise<void> {
  const slides = await slidePaths(zip, part);
  for (const [index, path] of slides.entries()) {
    if (sink.isTruncated) break;
    sink.write(`## Slide ${index + 1}\n\n`);
    sink.write(`${readShapes((await zip.readText(path)) ?? '', sink)}\n`);
    const notes = await notesOf(zip, path);
    const text = notes === undefined ? '' : readShapes(notes, sink);
    if (text !== '') sink.write(`Notes:\n${text}\n`);
  }
}

async function slidePaths(zip: ZipArchive, part: string): Promise<string[]> {
  const xml = await zip.readText(part);
  if (xml === undefined) throw new ReaderError('contains no presentation');
  const targets = await relationships(zip, part);
  const paths: string[] = [];
  scanXml(xml, {
    open(name, attribute) {
      // `id` is the slide's own number; the relationship is `r:id`, the second attribute.
      if (name !== 'sldId') return;
      const path = targets.get(attribute('r:id') ?? '')?.path;
      if (path !== undefined) paths.push(path);
    },
    isDone: () => paths.length >= MAX_SLIDES,
  });
  return paths;
}

async function notesOf(zip: ZipArchive, slide: string): Promise<string | undefined> {
  for (const target of (await relationships(zip, slide)).values()) {
    if (target.type === 'notesSlide') return zip.readText(target.path);
  }
  return undefined;
}

/** Writes paragraphs as lines, and the cells of a table row as one line. */
function readShapes(xml: string, sink: TextSink): string {
  let text = '';
  let paragraph = '';
  let row: string[] | undefined;
  let isText = false;
  let isNumber = false; // the slide number is repeated in the notes
  scanXml(xml, {
    open(name, attribute) {
      if (name === 'tr') row = [];
      else if (name === 'tc') row?.push('');
      else if (name === 'br') paragraph += ' ';
      else if (name === 'fld') isNumber = attribute('type') === 'slidenum';
      isText = name === 't';
    },
    text(value) {
      if (isText && !isNumber) paragraph += value;
    },
    close(name) {
      isText = false;
      if (name === 'fld') isNumber = false;
      if (name === 'p') {
        const line = paragraph.trim();
        paragraph = '';
        if (line === '') return;
        if (row === undefined || row.length === 0) text += `${line}\n`;
        else row.push(`${row.pop() ?? ''} ${line}`.trim());
      }
      if (name === 'tr' && row !== undefined) {
        text += `| ${row.join(' | ')} |\n`;
        row = undefined;
      }
    },
    isDone: () => sink.isFull || text.length > MAX_SLIDE_CHARS,
  });
  return text;
}

const MAX_SLIDE_CHARS = 1_000_000;
