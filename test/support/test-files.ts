/**
 * Small real files for tests, written byte by byte: ZIP archives with any claims about their sizes,
 * the stores formats on top of them, and PDF.
 */
import { deflateRawSync, deflateSync } from 'node:zlib';

export interface ZipMember {
  readonly name: string;
  /** Text or bytes to pack. */
  readonly content?: string | Uint8Array;
  /** Already deflated data, for bombs. */
  readonly deflated?: Uint8Array;
  /** Claimed unpacked size. Default: the real size. */
  readonly claimedBytes?: number;
}

/** A ZIP archive with zero checksums, which the readers of this project ignore. */
export function zipFile(members: readonly ZipMember[]): Buffer {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const member of members) {
    const content = Buffer.from(member.content ?? '');
    const data = Buffer.from(member.deflated ?? deflateRawSync(content));
    const name = Buffer.from(member.name);
    const size = member.claimedBytes ?? content.length;
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(20, 4);
    local.writeUInt16LE(8, 8);
    local.writeUInt32LE(data.length, 18);
    local.writeUInt32LE(size, 22);
    local.writeUInt16LE(name.length, 26);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50, 0);
    entry.writeUInt16LE(20, 6);
    entry.writeUInt16LE(8, 10);
    entry.writeUInt32LE(data.length, 20);
    entry.writeUInt32LE(size, 24);
    entry.writeUInt16LE(name.length, 28);
    entry.writeUInt32LE(offset, 42);
    locals.push(local, name, data);
    directory.push(entry, name);
    offset += local.length + name.length + data.length;
  }
  const directoryBytes = directory.reduce((sum, piece) => sum + piece.length, 0);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(members.length, 8);
  end.writeUInt16LE(members.length, 10);
  end.writeUInt32LE(directoryBytes, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, ...directory, end]);
}

const TYPES = 'http://schemas.openxmlformats.org/officeDocument/2006/relationships';
const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>';

interface Link {
  readonly id: string;
  readonly type: string;
  readonly target: string;
}

function relations(name: string, links: readonly Link[]): ZipMember {
  const rows = links.map(
    ({ id, type, target }) =>
      `<Relationship Id="${id}" Type="${TYPES}/${type}" Target="${target}"/>`,
  );
  return {
    name,
    content: `${XML}<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">${rows.join('')}</Relationships>`,
  };
}

function contentTypes(part: string, type: string): ZipMember {
  return {
    name: '[Content_Types].xml',
    content: `${XML}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/${part}" ContentType="application/vnd.openxmlformats-officedocument.${type}+xml"/></Types>`,
  };
}

/** A Word document whose body is the given WordprocessingML. */
export function docxFile(body: string, document?: ZipMember): Buffer {
  return zipFile([
    contentTypes('word/document.xml', 'wordprocessingml.document.main'),
    relations('_rels/.rels', [{ id: 'rId1', type: 'officeDocument', target: 'word/document.xml' }]),
    document ?? {
      name: 'word/document.xml',
      content: `${XML}<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>${body}</w:body></w:document>`,
    },
    { name: 'word/media/picture.png', content: Buffer.alloc(2_000, 7) },
  ]);
}

/** A paragraph of a Word document. */
export function docxParagraph(text: string, style?: string): string {
  const properties = style === undefined ? '' : `<w:pPr><w:pStyle w:val="${style}"/></w:pPr>`;
  return `<w:p>${properties}<w:r><w:t xml:space="preserve">${text}</w:t></w:r></w:p>`;
}

export interface Slide {
  readonly shapes: string;
  readonly notes?: string;
}

/** A presentation; slides are shown in the given order but stored in the reverse one. */
export function pptxFile(slides: readonly Slide[]): Buffer {
  const ns = `xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" xmlns:r="${TYPES}"`;
  const fileOf = (index: number): number => slides.length - index;
  const ids = slides.map(
    (_slide, index) => `<p:sldId id="${256 + index}" r:id="rId${index + 1}"/>`,
  );
  const members: ZipMember[] = [
    contentTypes('ppt/presentation.xml', 'presentationml.presentation.main'),
    relations('_rels/.rels', [
      { id: 'rId1', type: 'officeDocument', target: 'ppt/presentation.xml' },
    ]),
    {
      name: 'ppt/presentation.xml',
      content: `${XML}<p:presentation ${ns}><p:sldIdLst>${ids.join('')}</p:sldIdLst></p:presentation>`,
    },
    relations(
      'ppt/_rels/presentation.xml.rels',
      slides.map((_slide, index) => ({
        id: `rId${index + 1}`,
        type: 'slide',
        target: `slides/slide${fileOf(index)}.xml`,
      })),
    ),
  ];
  for (const [index, slide] of slides.entries()) {
    const file = fileOf(index);
    const wrap = (kind: string, shapes: string): string =>
      `${XML}<p:${kind} ${ns}><p:cSld><p:spTree>${shapes}</p:spTree></p:cSld></p:${kind}>`;
    members.push({ name: `ppt/slides/slide${file}.xml`, content: wrap('sld', slide.shapes) });
    if (slide.notes === undefined) continue;
    const target = `../notesSlides/notesSlide${file}.xml`;
    members.push(
      relations(`ppt/slides/_rels/slide${file}.xml.rels`, [
        { id: 'rId1', type: 'notesSlide', target },
      ]),
      { name: `ppt/notesSlides/notesSlide${file}.xml`, content: wrap('notes', slide.notes) },
    );
  }
  return zipFile(members);
}

/** A text box of a slide, one paragraph per text. */
export function pptxShape(...paragraphs: string[]): string {
  const body = paragraphs.map((text) => `<a:p><a:r><a:t>${text}</a:t></a:r></a:p>`).join('');
  return `<p:sp><p:txBody>${body}</p:txBody></p:sp>`;
}

/** A workbook: sheet name to the XML of its rows. */
export function xlsxFile(
  sheets: Readonly<Record<string, string>>,
  sharedStrings: ZipMember | readonly string[] = [],
): Buffer {
  const names = Object.keys(sheets);
  const ns = `xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="${TYPES}"`;
  const rows = names.map(
    (name, index) => `<sheet name="${name}" sheetId="${index + 7}" r:id="rId${index + 1}"/>`,
  );
  const strings: ZipMember = Array.isArray(sharedStrings)
    ? {
        name: 'xl/sharedStrings.xml',
        content: `${XML}<sst ${ns}>${sharedStrings.map((text) => `<si>${text}</si>`).join('')}</sst>`,
      }
    : (sharedStrings as ZipMember); // isArray does not narrow a readonly array
  return zipFile([
    contentTypes('xl/workbook.xml', 'spreadsheetml.sheet.main'),
    relations('_rels/.rels', [{ id: 'rId1', type: 'officeDocument', target: '/xl/workbook.xml' }]),
    {
      name: 'xl/workbook.xml',
      content: `${XML}<workbook ${ns}><workbookPr/><sheets>${rows.join('')}</sheets></workbook>`,
    },
    relations(
      'xl/_rels/workbook.xml.rels',
      names.map((_name, index) => ({
        id: `rId${index + 1}`,
        type: 'worksheet',
        target: `worksheets/sheet${index + 1}.xml`,
      })),
    ),
    {
      name: 'xl/styles.xml',
      content: `${XML}<styleSheet ${ns}><numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd hh:mm"/><numFmt numFmtId="165" formatCode="&quot;days&quot; 0"/></numFmts><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs></styleSheet>`,
    },
    strings,
    ...names.map((name, index) => ({
      name: `xl/worksheets/sheet${index + 1}.xml`,
      content: `${XML}<worksheet ${ns}><sheetData>${sheets[name] ?? ''}</sheetData></worksheet>`,
    })),
  ]);
}

/** An EPUB with the given chapters (HTML bodies), in reading order. */
export function epubFile(title: string, chapters: readonly string[]): Buffer {
  const items = chapters.map(
    (_chapter, index) =>
      `<item id="c${index}" href="text/chapter%20${index}.xhtml" media-type="application/xhtml+xml"/>`,
  );
  const spine = chapters.map((_chapter, index) => `<itemref idref="c${index}"/>`);
  return zipFile([
    { name: 'mimetype', content: 'application/epub+zip' },
    {
      name: 'META-INF/container.xml',
      content: `${XML}<container><rootfiles><rootfile full-path="OEBPS/content.opf"/></rootfiles></container>`,
    },
    {
      name: 'OEBPS/content.opf',
      content: `${XML}<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>${title}</dc:title></metadata><manifest>${items.join('')}</manifest><spine>${spine.join('')}</spine></package>`,
    },
    ...chapters.map((chapter, index) => ({
      name: `OEBPS/text/chapter ${index}.xhtml`,
      content: `${XML}<!DOCTYPE html><html><head><title>x</title></head><body>${chapter}</body></html>`,
    })),
  ]);
}

/** A PDF with one page for each content stream (text operators or deflated bytes). */
export function pdfFile(pages: readonly (string | Uint8Array)[], extra = ''): Buffer {
  const objects: Buffer[] = [];
  const kids = pages.map((_page, index) => `${4 + index * 2} 0 R`).join(' ');
  objects.push(
    Buffer.from(`<</Type/Catalog/Pages 2 0 R${extra}>>`),
    Buffer.from(`<</Type/Pages/Kids[${kids}]/Count ${pages.length}>>`),
    Buffer.from('<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>'),
  );
  for (const [index, page] of pages.entries()) {
    const data = typeof page === 'string' ? deflateSync(page) : Buffer.from(page);
    objects.push(
      Buffer.from(
        `<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents ${5 + index * 2} 0 R>>`,
      ),
      Buffer.concat([
        Buffer.from(`<</Filter/FlateDecode/Length ${data.length}>>stream\n`),
        data,
        Buffer.from('\nendstream'),
      ]),
    );
  }
  const parts: Buffer[] = [Buffer.from('%PDF-1.7\n')];
  const offsets: number[] = [];
  let at = 9;
  for (const [index, object] of objects.entries()) {
    offsets.push(at);
    const whole = Buffer.concat([
      Buffer.from(`${index + 1} 0 obj\n`),
      object,
      Buffer.from('\nendobj\n'),
    ]);
    parts.push(whole);
    at += whole.length;
  }
  const rows = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  const size = objects.length + 1;
  parts.push(
    Buffer.from(
      `xref\n0 ${size}\n0000000000 65535 f \n${rows}trailer<</Size ${size}/Root 1 0 R>>\nstartxref\n${at}\n%%EOF\n`,
    ),
  );
  return Buffer.concat(parts);
}

/** One line of text for a PDF page. */
export function pdfText(text: string): string {
  return `BT /F1 12 Tf 72 720 Td (${text}) Tj ET\n`;
}
