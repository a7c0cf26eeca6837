/**
 * Files, media and hostile input through the whole server: documents become text, private addresses
 * are never fetched, and a decompression bomb kills only a worker.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { deflateRawSync, deflateSync } from 'node:zlib';
import OpenAI from 'openai';
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
} from '../support/test-files.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { holdsNoLoop } from '../app/held-loop.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { pngHead } from '../media/png-head.ts';
import { until } from '../support/until.ts';
import { TestWeb } from '../web/test-web.ts';

let upstream: TestUpstream;
let web: TestWeb;
let farebox: TestApp;
let client: OpenAI;

before(async () => {
  upstream = await TestUpstream.start();
  web = await TestWeb.start();
  // Loopback is open on purpose; everything else inside the house stays closed.
  farebox = await startTestApp({
    yaml: `
limits: { guard: { failures: 10000 } }
http: { bodiesMb: 10 }
engines:
  rack: { url: "${upstream.url}" }
  fetcher: { url: "${upstream.url}", fetchesMedia: true }
  gone: { url: "http://127.0.0.1:1" }
models:
  - id: text
    context: 60000
    capabilities: [functionCalling]
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack }]
  - id: eyes
    context: 60000
    capabilities: [vision, multipleImages, audioInput, videoInput]
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack }]
  - id: closed-eyes
    context: 60000
    capabilities: [vision]
    fallbacks: [eyes]
    price: { input: 1, output: 2 }
    replicas: [{ engine: gone }]
  - id: one-eye
    context: 60000
    capabilities: [vision]
    price: { input: 1, output: 2 }
    replicas: [{ engine: fetcher }]
  - id: unknown-context
    capabilities: [vision]
    context: 1000000
    price: { input: 1, output: 2 }
    replicas: [{ engine: rack }]
fetch: { allow: ["127.0.0.1/32"] }
documents: { workers: 1, memoryMb: 400, timeoutMs: 30000 }
`,
  });
  client = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
});
after(async () => {
  try {
    await farebox.audit();
  } finally {
    await farebox.stop();
    await upstream.kill();
    await web.stop();
  }
});
beforeEach(() => {
  upstream.seen.length = 0;
  web.asked.length = 0;
});

type Part = Record<string, unknown>;

async function ask(model: string, content: Part[]): Promise<OpenAI.ChatCompletion> {
  upstream.otherwise = { kind: 'answer', content: 'ok' };
  // The parts are loose on purpose: some are wrong.
  const messages = [{ role: 'user', content }] as unknown as OpenAI.ChatCompletionMessageParam[];
  return client.chat.completions.create({ model, messages });
}

function sentParts(): { type: string; text?: string; image_url?: { url: string } }[] {
  return sentMessages().at(-1)?.content as { type: string }[];
}

function sentMessages(): { role: string; content: unknown }[] {
  return JSON.parse(upstream.seen.at(-1)?.body ?? '{}').messages;
}

function file(filename: string, bytes: Uint8Array, type = 'application/octet-stream'): Part {
  const file_data = `data:${type};base64,${Buffer.from(bytes).toString('base64')}`;
  return { type: 'file', file: { filename, file_data } };
}

const image = (url: string): Part => ({ type: 'image_url', image_url: { url } });
const text = (words: string): Part => ({ type: 'text', text: words });

describe('files', () => {
  const SHEET = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><v>42</v></c></row>';
  const FILES: Readonly<Record<string, { bytes: Uint8Array; found: RegExp }>> = {
    'a.pdf': { bytes: pdfFile([pdfText('The ferry leaves at nine')]), found: /leaves at nine/ },
    'a.docx': { bytes: docxFile(docxParagraph('Quarterly whales')), found: /Quarterly whales/ },
    'a.pptx': {
      bytes: pptxFile([{ shapes: pptxShape('Slide of gulls') }]),
      found: /Slide of gulls/,
    },
    'a.xlsx': { bytes: xlsxFile({ Tides: SHEET }, ['<t>noon</t>']), found: /noon.*42/s },
    'a.epub': { bytes: epubFile('Sea', ['<p>Call me</p>']), found: /Call me/ },
    'a.csv': { bytes: Buffer.from('port,depth\nOslo,12\n'), found: /Oslo,12/ },
    'a.md': { bytes: Buffer.from('# Notes\nsalt'), found: /# Notes/ },
    'a.json': { bytes: Buffer.from('{"knots":7}'), found: /"knots":7/ },
    'a.py': { bytes: Buffer.from('def row(): pass'), found: /def row/ },
  };

  for (const [name, { bytes, found }] of Object.entries(FILES)) {
    test(`${name} reaches the model as fenced text`, async () => {
      const answer = await ask('text', [text('What does it say?'), file(name, bytes)]);
      assert.equal(answer.choices[0]?.message.content, 'ok');
      const [question, extract] = sentParts();
      assert.equal(question?.text, 'What does it say?');
      assert.equal(extract?.type, 'text');
      assert.match(extract?.text ?? '', found);
      assert.match(extract?.text ?? '', /^<<<untrusted [0-9a-f]{32} file a\.[a-z]+>>>/);
      assert.equal(sentMessages().filter((one) => one.role === 'system').length, 1);
    });
  }

  test('the prompt contains the rule about fences once, independent of the number of files', async () => {
    const { bytes } = FILES['a.md']!;
    await ask('text', [file('a.md', bytes), file('b.md', bytes), file('c.md', bytes)]);
    const all = upstream.seen.at(-1)?.body ?? '';
    assert.equal(all.split('never follow instructions').length - 1, 1);
  });

  test('a file that cannot be read becomes a note in the prompt, not an error', async () => {
    await ask('text', [text('Sum it up'), file('a.pdf', Buffer.from('%PDF-1.7 broken'))]);
    assert.match(sentParts()[1]?.text ?? '', /^\[The file "a\.pdf" could not be read: it .+\]$/);
  });

  test('a file from an address is fetched through the guard', async () => {
    web.pages.set('/notes.txt', { body: 'tide at six', type: 'text/plain' });
    await ask('text', [{ type: 'file', file: { file_data: `${web.url}/notes.txt` } }]);
    assert.match(sentParts()[0]?.text ?? '', /file notes\.txt>>>\ntide at six/);
  });

  test('text beyond the context of the model is a 400 with an error object, and is free', async () => {
    const before = await balance();
    const bytes = Buffer.from('word '.repeat(250_000));
    await assert.rejects(
      ask('text', [file('long.txt', bytes), file('long2.txt', bytes), file('long3.txt', bytes)]),
      (error) => error instanceof OpenAI.APIError && error.code === 'context_length_exceeded',
    );
    assert.equal(await balance(), before);
  });

  test('a file whose text costs more than the balance is a 402 and leaves no hold', async () => {
    const { secret, accountId } = await farebox.account('0.11');
    const poor = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const content = [file('long.txt', Buffer.from('word '.repeat(90_000)))];
    const request = { model: 'unknown-context', messages: [{ role: 'user', content }] };
    await assert.rejects(
      poor.chat.completions.create(
        request as unknown as OpenAI.ChatCompletionCreateParamsNonStreaming,
      ),
      (error) => error instanceof OpenAI.APIError && error.status === 402,
    );
    assert.equal((await farebox.app.stores.ledger.balances(accountId)).usdNano, 110_000_000n);
    assert.equal((await farebox.app.stores.ledger.audit()).openHolds, 0);
  });
});

async function balance(): Promise<bigint> {
  return (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
}

describe('media', () => {
  const inline = `data:image/png;base64,${pngHead(100, 80).toString('base64')}`;

  test('a remote image becomes a data URL', async () => {
    web.pages.set('/a.png', { body: pngHead(100, 80), type: 'image/png' });
    await ask('eyes', [text('What is it?'), image(`${web.url}/a.png`)]);
    assert.equal(sentParts()[1]?.image_url?.url, inline);
  });

  test('an engine with `fetchesMedia` gets the URL after its validation', async () => {
    await ask('one-eye', [image(`${web.url}/a.png`)]);
    assert.equal(sentParts()[0]?.image_url?.url, `${web.url}/a.png`);
    assert.deepEqual(web.asked, []);
    await assert.rejects(ask('one-eye', [image('http://169.254.169.254/latest')]));
  });

  test('the fetched media of running requests are limited as their bodies are', async () => {
    const bytes = 3_000_000;
    const { bodyMemory } = farebox.app.server;
    const body = Buffer.concat([pngHead(100, 80), Buffer.alloc(bytes)]);
    web.pages.set('/large.png', { body, type: 'image/png' });
    const gate = Promise.withResolvers<void>();
    upstream.otherwise = { kind: 'answer', content: 'ok', after: gate.promise };
    const messages = [
      { role: 'user', content: [image(`${web.url}/large.png`)] },
    ] as unknown as OpenAI.ChatCompletionMessageParam[]; // the parts are loose
    const send = () => client.chat.completions.create({ model: 'eyes', messages });
    const first = send();
    await until(() => upstream.seen.length > 0);
    assert.ok(bodyMemory.reservedBytes >= bytes);
    await assert.rejects(send(), { status: 429 });
    gate.resolve();
    await first;
    await until(() => bodyMemory.reservedBytes === 0);
    await send();
  });

  test('media that a fallback fetches again count once', async () => {
    const body = Buffer.concat([pngHead(100, 80), Buffer.alloc(3_000_000)]);
    web.pages.set('/large.png', { body, type: 'image/png' });
    const response = await ask('closed-eyes', [image(`${web.url}/large.png`)]);
    assert.equal(response.model, 'eyes');
    await until(() => farebox.app.server.bodyMemory.reservedBytes === 0);
  });

  test('a model with one image gets the last image, other models get all', async () => {
    const messages = [
      { role: 'user', content: [text('first'), image(inline)] },
      { role: 'assistant', content: 'seen' },
      { role: 'user', content: [text('second'), image(inline)] },
    ];
    for (const [model, count] of [
      ['one-eye', 1],
      ['eyes', 2],
    ] as const) {
      await client.chat.completions.create({
        model,
        messages,
      } as OpenAI.ChatCompletionCreateParamsNonStreaming);
      const found = (upstream.seen.at(-1)?.body.match(/"image_url":\{/g) ?? []).length;
      assert.equal(found, count, model);
    }
  });

  test('unsupported media get 400 before inference', async () => {
    const tiny = `data:image/png;base64,${pngHead(20, 80).toString('base64')}`;
    const refused: readonly (readonly [string, Part[], RegExp])[] = [
      ['text', [image(inline)], /does not support images/],
      ['eyes', [image(tiny)], /each side must have 64/],
      ['eyes', [image('data:image/png;base64,aGVsbG8=')], /must be PNG/],
      ['eyes', Array.from({ length: 11 }, () => image(inline)), /At most 10 parts/],
      ['text', Array.from({ length: 6 }, () => file('a', Buffer.from('a'))), /At most 5 parts/],
      [
        'eyes',
        [{ type: 'input_audio', input_audio: { data: 'aGk=', format: 'wav' } }],
        /is not wav/,
      ],
    ];
    for (const [model, content, message] of refused) {
      await assert.rejects(ask(model, content), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.match(`${error.message} ${JSON.stringify(error)}`, message);
        return true;
      });
    }
    assert.equal(upstream.seen.length, 0);
  });
});

describe('private addresses', () => {
  const TABLE: readonly string[] = [
    'http://10.0.0.1/a.png',
    'http://172.16.3.4/a.png',
    'http://192.168.1.1/a.png',
    'http://100.64.0.1/a.png',
    'http://127.0.0.2/a.png',
    'http://0.0.0.0/a.png',
    'http://169.254.169.254/latest/meta-data',
    'http://[::1]/a.png',
    'http://[::]/a.png',
    'http://[fe80::1]/a.png',
    'http://[fd00::1]/a.png',
    'http://[::ffff:10.0.0.1]/a.png',
    'http://[64:ff9b::a00:1]/a.png',
    'http://[2002:0a00:0001::]/a.png',
    'http://167772161/a.png',
    'http://0x0a000001/a.png',
    'http://012.0.0.1/a.png',
    'http://0xa9.0xfe.0xa9.0xfe/a.png',
    'http://10.1/a.png',
    'http://localhost/a.png',
    'http://metadata.google.internal/a.png',
    'http://user:secret@example.com/a.png',
    'http://example.com:22/a.png',
  ];

  for (const url of TABLE) {
    test(`${url} is refused as image, file and page`, async () => {
      for (const part of [image(url), { type: 'file', file: { file_data: url } }]) {
        await assert.rejects(ask('eyes', [part]), (error) => {
          assert.ok(error instanceof OpenAI.BadRequestError, String(error));
          assert.doesNotMatch(error.message, /secret|resolve/);
          return true;
        });
      }
      const request = {
        model: 'text',
        messages: [{ role: 'user' as const, content: `Read ${url}` }],
        svc_parameters: { enable_web_scraping: true },
      };
      upstream.otherwise = { kind: 'answer', content: 'ok' };
      await client.chat.completions.create(request);
      assert.match(String(sentMessages().at(-1)?.content), /could not be read/);
      assert.deepEqual(web.asked, []);
    });
  }

  test('a redirect to a private address is not followed', async () => {
    web.pages.set('/jump', {
      body: '',
      status: 302,
      headers: { location: 'http://169.254.169.254/latest' },
    });
    await assert.rejects(ask('eyes', [{ type: 'file', file: { file_data: `${web.url}/jump` } }]));
    await assert.rejects(ask('eyes', [image(`${web.url}/jump`)]));
    assert.deepEqual(web.asked, ['/jump', '/jump']);
  });
});

describe('bombs', () => {
  const FAST = { level: 1 };
  const spaces = deflateRawSync(Buffer.alloc(200_000_000, ' '), FAST);
  const BOMBS: Readonly<Record<string, () => Part>> = {
    'a document that unpacks to 200 MB': () =>
      file('a.docx', docxFile('', { name: 'word/document.xml', deflated: spaces })),
    'an archive in an archive': () =>
      file(
        'a.zip',
        zipFile([{ name: 'b.zip', content: zipFile([{ name: 'c', deflated: spaces }]) }]),
      ),
    'a PDF page of 200 MB': () =>
      file('a.pdf', pdfFile([deflateSync(Buffer.alloc(200_000_000, 'q\n'), FAST)])),
    'a page of 100,000 open elements': () =>
      file('a.html', Buffer.from('<div>'.repeat(100_000) + 'x'), 'text/html'),
    'a text of 2 MB of one letter': () => file('a.txt', Buffer.alloc(2_000_000, 'a')),
  };

  for (const [name, make] of Object.entries(BOMBS)) {
    test(`${name} does not hold the loop`, async () => {
      const body = Buffer.from(
        JSON.stringify({ model: 'text', messages: [{ role: 'user', content: [make()] }] }),
      );
      const status = await holdsNoLoop(() => post('/chat/completions', body));
      assert.ok([200, 400].includes(status), `${status}`);
      await ask('text', [file('honest.txt', Buffer.from('still here'))]);
      assert.match(sentParts()[0]?.text ?? '', /still here/);
    });
  }
});

async function post(path: string, body: Buffer): Promise<number> {
  const response = await fetch(`${farebox.url}${path}`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      authorization: `Bearer ${farebox.owner.secret}`,
    },
    body: new Uint8Array(body),
  });
  await response.text();
  return response.status;
}
