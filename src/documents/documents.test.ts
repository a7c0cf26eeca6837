/** Documents through real worker processes: text by format, and reasons for unreadable files. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { constants, getPriority } from 'node:os';
import { after, describe, test } from 'node:test';
import { DocumentsSection } from '../config/web-section.ts';
import { systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { type Extraction, fileText, Documents } from './documents.ts';
import {
  docxFile,
  docxParagraph,
  epubFile,
  pdfFile,
  pdfText,
  pptxFile,
  pptxShape,
  xlsxFile,
  zipFile,
} from '../../test/support/test-files.ts';

const documents = new Documents({
  clock: systemClock(),
  log: silentLog,
  ...DocumentsSection.parse({ workers: 1 }),
});
after(() => documents.close());

async function extract(
  bytes: Uint8Array,
  filename = 'file.bin',
  limits: { maxChars?: number; maxPages?: number } = {},
): Promise<Extraction> {
  return await documents.extract({ filename, mediaType: '', bytes, limits });
}

async function textOf(bytes: Uint8Array, filename?: string): Promise<string> {
  const extraction = await extract(bytes, filename);
  assert.ok(extraction.ok, JSON.stringify(extraction));
  return extraction.text;
}

async function reasonOf(bytes: Uint8Array, filename?: string): Promise<string> {
  const extraction = await extract(bytes, filename);
  assert.ok(!extraction.ok, JSON.stringify(extraction));
  return extraction.reason;
}

describe('text of each format', () => {
  test('PDF with page numbers; a page limit sets `truncated`', async () => {
    const bytes = pdfFile([pdfText('First page'), pdfText('Second page'), pdfText('Third')]);
    const whole = await extract(bytes);
    assert.deepEqual(whole, {
      ok: true,
      truncated: false,
      text: '[Page 1]\nFirst page\n\n[Page 2]\nSecond page\n\n[Page 3]\nThird',
    });
    const cut = await extract(bytes, 'a.pdf', { maxPages: 2 });
    assert.ok(cut.ok && cut.truncated && !cut.text.includes('Third'));
  });

  test('DOCX with headings, tables and escaped characters', async () => {
    const cell = (text: string): string => `<w:tc>${docxParagraph(text)}</w:tc>`;
    const table = `<w:tbl><w:tr>${cell('Name')}${cell('Sum')}</w:tr><w:tr>${cell('a|b')}${cell('1 &lt; 2')}</w:tr></w:tbl>`;
    const text = await textOf(
      docxFile(docxParagraph('Report', 'Heading1') + docxParagraph('Body ümlaut') + table),
    );
    assert.equal(
      text,
      '# Report\n\nBody ümlaut\n\n| Name | Sum |\n| --- | --- |\n| a\\|b | 1 < 2 |',
    );
  });

  test('PPTX in display order, with tables and notes', async () => {
    const row = (...cells: string[]): string =>
      `<a:tr>${cells.map((cell) => `<a:tc><a:txBody><a:p><a:r><a:t>${cell}</a:t></a:r></a:p></a:txBody></a:tc>`).join('')}</a:tr>`;
    const bytes = pptxFile([
      { shapes: pptxShape('Title', 'Point &amp; point'), notes: pptxShape('Say hello') },
      {
        shapes: `<p:graphicFrame><a:tbl>${row('a', 'b')}${row('1', '2')}</a:tbl></p:graphicFrame>`,
      },
    ]);
    assert.equal(
      await textOf(bytes),
      '## Slide 1\n\nTitle\nPoint & point\n\nNotes:\nSay hello\n\n## Slide 2\n\n| a | b |\n| 1 | 2 |',
    );
  });

  test('XLSX with sheet names, empty columns, dates, formulas and quoted fields', async () => {
    const bytes = xlsxFile(
      {
        'Sales &amp; more':
          '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="s"><v>1</v></c></row>' +
          '<row r="2"><c r="B2"><f>1+1</f><v>2</v></c><c r="C2" s="1"><v>45000</v></c><c r="D2" s="2"><v>45000.5</v></c><c r="E2" s="3"><v>45000</v></c></row>' +
          '<row r="3"><c r="A3" t="inlineStr"><is><t>say "hi", you</t></is></c><c r="B3" t="b"><v>1</v></c></row>',
        Empty: '',
      },
      ['<t>Name</t>', '<r><t>rich </t></r><r><t>text</t></r><rPh><t>no</t></rPh>'],
    );
    assert.equal(
      await textOf(bytes),
      '## Sheet: Sales & more\n\nName,,rich text\n,2,2023-03-15,2023-03-15 12:00:00,45000\n"say ""hi"", you",TRUE\n\n## Sheet: Empty',
    );
  });

  test('XLSX keeps empty columns of cells without a reference', async () => {
    const cells = '<row><c/><c><v>1</v></c><c t="s"/><c><v>2</v></c></row>';
    const bytes = xlsxFile({ A: `${cells}<row><c><v>3</v></c></row>` });
    assert.equal(await textOf(bytes), '## Sheet: A\n\n,1,,2\n3');
  });

  test('EPUB in reading order', async () => {
    const text = await textOf(
      epubFile('A Book', ['<h1>One</h1><p>It began.</p>', '<h1>Two</h1><p>It ended.</p>']),
    );
    assert.equal(text, '# A Book\n\n# One\n\nIt began.\n\n# Two\n\nIt ended.');
  });

  test('HTML, CSV, Markdown, JSON, code and old encodings', async () => {
    assert.equal(await textOf(Buffer.from('<p>a<script>no()</script> b'), 'a.html'), 'a b');
    assert.equal(await textOf(Buffer.from('<!DOCTYPE html><p>x')), 'x');
    const odd =
      '<title>A &amp; B</title><svg><title>no</title></svg><script src="a"/><p>&eacute;&#x2014;&nleq; &copy 1 < 2' +
      '<iframe><p>no</p></iframe><A HREF=/x title="a > b">rel</A> &unknown; &amp;lt;<!-- <p>no --><br>end<textarea>no';
    assert.equal(await textOf(Buffer.from(odd), 'a.xhtml'), 'é—≰ © 1 < 2rel &unknown; &lt;\nend');
    assert.equal(await textOf(Buffer.from('a,b\n1,2\n'), 'a.csv'), 'a,b\n1,2');
    assert.equal(await textOf(Buffer.from('{"a":[1]}'), 'a.json'), '{"a":[1]}');
    assert.equal(
      await textOf(Buffer.from('int main() { return 1 < 2; }'), 'a.c'),
      'int main() { return 1 < 2; }',
    );
    assert.equal(await textOf(Buffer.from('na\xefve \x80', 'latin1'), 'a.txt'), 'naïve €');
    assert.equal(await textOf(Buffer.from('\ufeffwide', 'utf16le'), 'a.txt'), 'wide');
    assert.equal(await textOf(Buffer.from('x'), 'a.txt'), 'x');
  });

  test('a list in a table cell keeps all its items', async () => {
    const list = 'Intro<ul><li>one<li><p>two</ul>end';
    const html = `<table><tr><td>${list}<td><ol><li>first<li>second</ol></table>`;
    assert.equal(
      await textOf(Buffer.from(html), 'a.html'),
      '| Intro - one - two end | 1. first 2. second |\n| --- | --- |',
    );
  });

  test('cells of a layout table stay separate words', async () => {
    const html = '<table><tr><td><table><tr><td>a<td>b</table><td>12<td>5</table>';
    assert.equal(await textOf(Buffer.from(html), 'a.html'), '| a | b |\n| --- | --- |\n\n12 5');
  });

  test('a table cell of many pieces is converted in linear time', async () => {
    const bytes = Buffer.from(`<html><table><tr><td>${'a&amp;'.repeat(160_000)}`);
    const limits = { maxChars: 10_000, timeoutMs: 10_000 };
    assert.equal((await extract(bytes, 'a.html')).ok, true);
    const again = await documents.extract({ filename: 'a.html', mediaType: '', bytes, limits });
    assert.ok(
      again.ok && again.text.length === limits.maxChars,
      JSON.stringify(again).slice(0, 99),
    );
  });

  test('a long text is truncated at the limit and sets `truncated`', async () => {
    const cut = await extract(Buffer.from('word '.repeat(1_000)), 'a.txt', { maxChars: 100 });
    assert.ok(cut.ok && cut.truncated && cut.text.length <= 100);
  });
});

test('an unreadable file has a reason', async () => {
  const ole = Buffer.concat([Buffer.from('d0cf11e0a1b11ae1', 'hex'), Buffer.alloc(600)]);
  const locked = Buffer.concat([ole, Buffer.from('EncryptedPackage', 'utf16le')]);
  const table: readonly (readonly [Uint8Array, RegExp])[] = [
    [new Uint8Array(), /is empty/],
    [Buffer.from('  \n'), /contains no text/],
    [ole, /old Office format .* save it as \.xlsx/],
    [locked, /protected by a password/],
    [Buffer.from('{\\rtf1 x}'), /is RTF/],
    [Buffer.from('89504e470d0a1a0a0000', 'hex'), /is image\/png, not a document/],
    [Buffer.from([1, 2, 0, 4, 5]), /is not text/],
    [zipFile([{ name: 'a.txt', content: 'x' }]), /is an archive/],
    [zipFile([{ name: 'content.xml', content: '<x/>' }]), /OpenDocument/],
    [zipFile([{ name: 'a.txt', content: 'x' }]).subarray(0, 30), /is damaged/],
    [Buffer.from('%PDF-1.7\nnothing'), /damaged or not a PDF/],
    [pdfFile([' ']), /contains no text; scanned/],
    [
      docxFile('', { name: 'word/document.xml', content: '<w:doc' }),
      /damaged|no text|unknown format/,
    ],
  ];
  for (const [bytes, reason] of table) assert.match(await reasonOf(bytes), reason);
});

test('`readPage` returns the article with absolute links, and the text of files', async () => {
  const sentence = 'The heron stands in the shallow water and waits for the fish to come near. ';
  const html = `<html><head><title>Herons &amp; fish</title></head><body><nav><a href="/a">Menu</a></nav>
    <article><h1>Herons</h1><p>${sentence.repeat(6)}</p><p>${sentence.repeat(6)} See <a href="/more">more</a>.</p></article>
    <footer>Imprint</footer></body></html>`;
  const read = (url: string, bytes: Buffer, mediaType = 'text/html', charset?: string) =>
    documents.readPage({ url, mediaType, bytes, ...(charset !== undefined && { charset }) });
  const page = await read('https://birds.example/x/', Buffer.from(html));
  assert.ok(page.ok);
  assert.equal(page.title, 'Herons & fish');
  assert.match(page.markdown, /The heron stands/);
  assert.match(page.markdown, /\[more\]\(https:\/\/birds\.example\/more\)/);
  assert.doesNotMatch(page.markdown, /Imprint|Menu/);
  const short = await read('https://a.example/', Buffer.from('<nav>N</nav><p>Short'));
  assert.deepEqual(short, { ok: true, markdown: 'Short', truncated: false });
  const file = pdfFile([pdfText('Inside')]);
  const pdf = await read('https://a.example/a.pdf', file, 'application/pdf');
  assert.ok(pdf.ok && pdf.markdown.includes('Inside'));
  const bytes = Buffer.from('<p>\xe9t\xe9', 'latin1');
  const latin = await read('https://a.example/', bytes, 'text/html', 'iso-8859-1');
  assert.ok(latin.ok && latin.markdown === 'été');
});

test('a page whose depth is hidden by closing tags is converted in linear time', async () => {
  const text = '<p>The heron stands in the shallow water.</p>'.repeat(50);
  const bytes = Buffer.from(`<html><body>${'<div></b>'.repeat(1_000)}${text}`);
  // The worker has started before, so that no time is added to the limit.
  await textOf(Buffer.from('x'), 'a.txt');
  const page = await documents.readPage({
    url: 'https://a.example/',
    mediaType: 'text/html',
    bytes,
    limits: { timeoutMs: 10_000 },
  });
  assert.ok(page.ok && page.markdown.includes('heron'), JSON.stringify(page).slice(0, 200));
});

test('the title of a page is limited, with an article and without', async () => {
  const title = '\u{1f41f}'.repeat(100_000);
  const url = 'https://a.example/';
  for (const text of ['Short', 'The heron stands in the shallow water. '.repeat(20)]) {
    const bytes = Buffer.from(`<title>${title}</title><article><p>${text}</p></article>`);
    const page = await documents.readPage({ url, mediaType: 'text/html', bytes });
    assert.ok(
      page.ok && page.title === '\u{1f41f}'.repeat(150),
      String(page.ok && page.title?.length),
    );
  }
});

test('`fileText` delimits the text, and notes a truncation or the reason of a failure', () => {
  const text = fileText('a\n"b".pdf', { ok: true, text: 'hello', truncated: true });
  assert.match(
    text,
    /^<<<untrusted [\da-f]{32} file a b\.pdf>>>\nhello\n<<<end [\da-f]{32}>>>\n\[The rest/,
  );
  assert.equal(
    fileText('x.xls', { ok: false, reason: 'is old' }),
    '[The file "x.xls" could not be read: it is old]',
  );
});

test('a zip64 archive, and bytes after the end of an archive, are rejected', async () => {
  const archive = docxFile(docxParagraph('x'));
  assert.equal(await reasonOf(Buffer.concat([archive, Buffer.from('more')])), 'is damaged');
  const end = archive.subarray(-22);
  const record = Buffer.alloc(56);
  record.writeUInt32LE(0x06064b50, 0);
  record.writeBigUInt64LE(44n, 4);
  for (const at of [24, 32]) record.writeBigUInt64LE(BigInt(end.readUInt16LE(10)), at);
  record.writeBigUInt64LE(BigInt(end.readUInt32LE(12)), 40);
  record.writeBigUInt64LE(BigInt(end.readUInt32LE(16)), 48);
  const locator = Buffer.alloc(20);
  locator.writeUInt32LE(0x07064b50, 0);
  locator.writeBigUInt64LE(BigInt(archive.length - 22), 8);
  locator.writeUInt32LE(1, 16);
  const zip64 = Buffer.concat([archive.subarray(0, -22), record, locator, end]);
  assert.match(await reasonOf(zip64), /more than the limit/);
});

describe('exact token counts', () => {
  test('count and decode agree with the vocabularies', async () => {
    const { tokenizer } = documents;
    assert.deepEqual(await tokenizer.count(['hello world', '', 'ü'], 'o200k'), {
      ok: true,
      counts: [2, 0, 1],
    });
    assert.deepEqual(await tokenizer.decode([15339, 1917], 'cl100k'), {
      ok: true,
      text: 'hello world',
    });
    const marks = await tokenizer.count(['<|endoftext|>'], 'cl100k');
    assert.ok(marks.ok && marks.counts[0] === 7, 'a special token in a text is counted as text');
  });

  test('an invalid token id is rejected with a reason', async () => {
    for (const ids of [[100256], [-1], [1.5], [2 ** 40]]) {
      const decoded = await documents.tokenizer.decode(ids, 'cl100k');
      assert.ok(!decoded.ok && decoded.reason.startsWith('contains'));
    }
  });
});

test('an image is checked with a lower priority, and a document is not', async () => {
  const priorities = (): number[] => {
    const childrenOf = (pid: number): number[] =>
      readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
        .split(' ')
        .filter(Boolean)
        .map(Number);
    return childrenOf(process.pid)
      .flatMap(childrenOf)
      .map((pid) => getPriority(pid))
      .toSorted((a, b) => a - b);
  };
  await textOf(Buffer.from('A text'), 'file.txt');
  const before = priorities();
  const own = getPriority();
  assert.ok(before.length > 0 && before.every((one) => one === own));
  assert.equal((await documents.readPng({ bytes: Buffer.from('no image') })).ok, false);
  const lower = Math.max(own, constants.priority.PRIORITY_BELOW_NORMAL);
  assert.deepEqual(priorities(), [...before, lower]);
});
