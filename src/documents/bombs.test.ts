/**
 * Malicious files: each costs a worker process bounded time and memory, the server stays
 * responsive, and the next valid file is read.
 */
import assert from 'node:assert/strict';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { after, before, describe, test } from 'node:test';
import { deflateRawSync, deflateSync } from 'node:zlib';
import { DocumentsSection } from '../config/web-section.ts';
import { systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { Documents } from './documents.ts';
import {
  docxFile,
  docxParagraph,
  epubFile,
  pdfFile,
  pdfText,
  xlsxFile,
  zipFile,
} from '../../test/support/test-files.ts';

/** Generous for busy machines; the test is for workers that never return. */
const MAX_BOMB_MS = 60_000;
/** For files with an expected error message, which takes long on a busy machine. */
const PATIENCE = { timeoutMs: 40_000 };
const MAX_LOOP_DELAY_MS = 250;
const FAST = { level: 1 };

const LAUGHS = `<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "${'&a;'.repeat(20)}"><!ENTITY c "${'&b;'.repeat(20)}">]>`;

let documents: Documents;
before(() => {
  const settings = DocumentsSection.parse({ workers: 1, memoryMb: 400, timeoutMs: 4_000 });
  documents = new Documents({ clock: systemClock(), log: silentLog, ...settings });
});
after(() => documents.close());

/** Builds a file before the event loop is monitored: deflating 200 MB is the test's work. */
async function watched<T>(work: () => Promise<T>): Promise<T> {
  const delay = monitorEventLoopDelay({ resolution: 2 });
  const startedMs = performance.now();
  const cpu = process.threadCpuUsage();
  delay.enable();
  const result = await work();
  delay.disable();
  const tookMs = performance.now() - startedMs;
  assert.ok(tookMs < MAX_BOMB_MS, `took ${tookMs} ms`);
  const { user, system } = process.threadCpuUsage(cpu);
  // On a busy machine the loop also waits for CPU; it was blocked at most for its CPU time.
  const blockedMs = Math.min(delay.percentile(99) / 1e6, (user + system) / 1e3);
  assert.ok(blockedMs < MAX_LOOP_DELAY_MS, `the event loop was blocked for ${blockedMs} ms`);
  return result;
}

async function assertStillReads(): Promise<void> {
  const valid = await documents.extract({
    filename: 'a.pdf',
    mediaType: 'application/pdf',
    bytes: pdfFile([pdfText('still here')]),
    limits: PATIENCE,
  });
  assert.ok(valid.ok && valid.text.includes('still here'), JSON.stringify(valid));
}

function deep(element: string, depth: number): string {
  return `<${element}>`.repeat(depth) + `x` + `</${element}>`.repeat(depth);
}

function changedPdf(from: string, to: string): Buffer {
  const text = pdfFile([pdfText('x')]).toString('latin1');
  return Buffer.from(text.replace(from, to), 'latin1');
}

describe('a malicious file only affects its worker', () => {
  const spaces = deflateRawSync(Buffer.alloc(200_000_000, ' '), FAST);
  const sixty = deflateRawSync(Buffer.alloc(60_000_000, ' '), FAST);
  const nested = zipFile([
    { name: 'lib.zip', content: zipFile([{ name: 'lib.zip', deflated: spaces }]) },
  ]);
  const instructions = deflateSync(Buffer.alloc(200_000_000, 'q\n'), FAST);
  const twice = deflateSync(deflateSync(Buffer.alloc(200_000_000, ' '), FAST));
  const parts = Array.from({ length: 50 }, (_unused, index) => ({
    name: `word/p${index}.xml`,
    deflated: sixty,
  }));
  const bombs: Readonly<Record<string, { bytes: Uint8Array; reason?: RegExp }>> = {
    'archives in archives': { bytes: nested, reason: /is an archive/ },
    'a DOCX part of 200 MB': {
      bytes: docxFile('', { name: 'word/document.xml', deflated: spaces }),
      reason: /decompresses to more/,
    },
    'a DOCX part that claims to be small': {
      bytes: docxFile('', { name: 'word/document.xml', deflated: spaces, claimedBytes: 10 }),
      reason: /decompresses to more/,
    },
    'a DOCX part that claims 4 GB and is small': {
      bytes: docxFile('', {
        name: 'word/document.xml',
        content: '<w:document/>',
        claimedBytes: 4_000_000_000,
      }),
    },
    'a DOCX of fifty parts of 60 MB': {
      bytes: zipFile([
        {
          name: '_rels/.rels',
          content: '<R><Relationship Type="x/officeDocument" Target="word/p0.xml"/></R>',
        },
        ...parts,
      ]),
      reason: /decompresses to more/,
    },
    'an XLSX with 200 MB of strings': {
      bytes: xlsxFile({ A: '' }, { name: 'xl/sharedStrings.xml', deflated: spaces }),
      reason: /decompresses to more/,
    },
    'an XLSX with a million cells in the last column': {
      bytes: xlsxFile({ A: '<row><c r="XFD1"><v>1</v></c></row>'.repeat(1_000_000) }),
    },
    'laughs in an XLSX': {
      bytes: xlsxFile(
        { A: '' },
        { name: 'xl/sharedStrings.xml', content: `${LAUGHS}<sst><si><t>&c;</t></si></sst>` },
      ),
      reason: /defines XML entities/,
    },
    'laughs in a DOCX': {
      bytes: docxFile('', {
        name: 'word/document.xml',
        content: `${LAUGHS}<w:document>&c;</w:document>`,
      }),
      reason: /defines XML entities/,
    },
    'a DOCX nested 100,000 deep': { bytes: docxFile(deep('w:p', 100_000)) },
    'a DOCX table nested 3,000 deep': {
      bytes: docxFile(
        '<w:tbl><w:tr><w:tc>'.repeat(3_000) +
          docxParagraph('x') +
          '</w:tc></w:tr></w:tbl>'.repeat(3_000),
      ),
    },
    'an EPUB chapter nested 500,000 deep': { bytes: epubFile('Deep', [deep('div', 500_000)]) },
    'HTML nested 2,000 deep': { bytes: Buffer.from(`<html>${deep('div', 2_000)}`) },
    'HTML nested 1,000,000 deep': { bytes: Buffer.from(`<html>${deep('b', 1_000_000)}`) },
    'HTML of unclosed tags and quotes': {
      bytes: Buffer.from(`<html>${'<a href="'.repeat(500_000)}`),
    },
    'a PDF page of 200 MB of operators': { bytes: pdfFile([instructions]) },
    'a PDF page packed twice': { bytes: pdfFile([twice]) },
    'a PDF that claims a billion pages': {
      bytes: changedPdf('/Count 1', '/Count 999999999'),
    },
    'a PDF whose pages point in a circle': {
      bytes: changedPdf('/Kids[4 0 R]', '/Kids[2 0 R]'),
    },
    'JSON nested 5 million deep': { bytes: Buffer.from('['.repeat(5_000_000)) },
  };

  for (const [name, { bytes, reason }] of Object.entries(bombs)) {
    test(name, async () => {
      const extraction = await watched(() =>
        documents.extract({
          filename: 'bomb',
          mediaType: '',
          bytes,
          ...(reason === undefined ? {} : { limits: PATIENCE }),
        }),
      );
      if (reason !== undefined) {
        assert.ok(
          !extraction.ok && reason.test(extraction.reason),
          JSON.stringify(extraction).slice(0, 300),
        );
      }
      if (extraction.ok) assert.ok(extraction.text.length <= 500_000);
      await assertStillReads();
    });
  }
});

describe('a malicious page takes bounded time', () => {
  const sentence = 'Words and words and more words in a row. ';
  const pages = {
    'nested 2,000 deep': deep('div', 2_000),
    'nested 120 deep around text': `${'<div>'.repeat(120)}${`<p>${sentence.repeat(20)}</p>`.repeat(50)}`,
    'with 200,000 elements': '<p>x</p>'.repeat(200_000),
    'with an attribute of 10 MB': `<p title="${'x'.repeat(10_000_000)}">text</p>`,
    'with 300,000 open tables': '<table><tr><td>'.repeat(300_000),
  };
  for (const [name, html] of Object.entries(pages)) {
    test(name, async () => {
      const bytes = Buffer.from(`<html><body>${html}`);
      const url = 'https://page.example/';
      const page = await watched(() => documents.readPage({ url, mediaType: 'text/html', bytes }));
      if (page.ok) assert.ok(page.markdown.length <= 500_000);
      await assertStillReads();
    });
  }
});

describe('a malicious text is counted in bounded time', () => {
  const texts = {
    'one letter': 'a'.repeat(1_000_000),
    spaces: ' '.repeat(1_000_000),
    'line breaks': '\n'.repeat(1_000_000),
    'capital letters': 'A'.repeat(1_000_000),
    'one ideograph': '字'.repeat(300_000),
    emoji: '🚀'.repeat(250_000),
    'combining marks': `e${'\u0301'.repeat(500_000)}`,
    punctuation: '!'.repeat(1_000_000),
    'letters and digits without a space': 'a1'.repeat(500_000),
    'lone surrogates': '\ud800'.repeat(300_000),
  };
  for (const [name, text] of Object.entries(texts)) {
    test(name, async () => {
      for (const encoding of ['o200k', 'cl100k'] as const) {
        const counted = await watched(() => documents.tokenizer.count([text], encoding));
        assert.ok(counted.ok, `${encoding} failed`);
        const [tokens = 0] = counted.counts;
        assert.ok(tokens > 0 && tokens <= Buffer.byteLength(text), 'a token has at least one byte');
      }
    });
  }
});
