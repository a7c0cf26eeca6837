/**
 * The playground in a real browser with engines of all kinds: embeddings, background removal,
 * transcription and video with their costs. Names that contain markup stay text on every page.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser, Download } from 'playwright-core';
import { sharp } from '../support/sharp.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { makeClip, makeSound, portraitJpeg, toneWav } from '../media/clips.ts';
import { type LoopbackEngine, openEngine, sendJson } from '../support/loopback-engine.ts';
import { launchChromium } from '../support/chromium.ts';
import { Visitor } from './console-fixture.ts';

/** Sets `pwned` if a page inserts it as markup. */
const HOSTILE = `"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;
const NAME = JSON.stringify(`Model ${HOSTILE}`);

const YAML = (url: string): string => `
service: { title: ${JSON.stringify(`Rate ${HOSTILE}`)} }
engines: { studio: { url: "${url}/v1" }, rembg: { protocol: rembg, url: "${url}/api/remove" } }
models:
  - { id: m, name: ${NAME}, description: ${NAME}, type: text, traits: [default], context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, replicas: [{ engine: studio }] }
  - { id: vectors, name: ${NAME}, type: embedding, price: { input: 1 }, embedding: { dimensions: 2 }, replicas: [{ engine: studio }] }
  - { id: ears, name: ${NAME}, type: asr, price: { perSecond: 0.0001 }, replicas: [{ engine: studio }] }
  - { id: brush, name: ${NAME}, type: image, price: { perImage: 0.04 }, replicas: [{ engine: studio }] }
  - { id: voice, name: ${NAME}, type: tts, price: { perMillionCharacters: 10 }, speech: { voices: [anna, bert] }, replicas: [{ engine: studio }] }
  - { id: judge, name: ${NAME}, type: rerank, price: { perSearch: 0.002 }, replicas: [{ engine: studio }] }
  - { id: scissors, name: ${NAME}, type: inpaint, price: { perImage: 0.02 }, replicas: [{ engine: rembg }] }
  - id: film
    name: ${NAME}
    type: video
    replicas: [{ engine: studio }]
    video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.28 } }
personas:
  list: [{ slug: p, name: ${NAME}, description: ${NAME}, tags: [${NAME}], prompt: Hi }]`;

async function bytesOf(download: Download): Promise<Buffer> {
  const stream = await download.createReadStream();
  return Buffer.concat((await stream.toArray()) as Buffer[]);
}

describe('the console with engines of all kinds', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-console-'));
  let engine: LoopbackEngine;
  let browser: Browser;
  let farebox: TestApp;
  let origin: string;
  let admin: string;

  before(async () => {
    [engine, browser] = await Promise.all([openEngine(), launchChromium()]);
    farebox = await startTestApp({ yaml: YAML(engine.url) });
    origin = new URL(farebox.url).origin;
    admin = await farebox.key({ kind: 'ADMIN', description: HOSTILE });
  });
  after(async () => {
    await browser.close();
    await farebox.audit();
    await farebox.stop();
    await engine.close();
    rmSync(folder, { recursive: true });
  });

  /** Runs a signed-in visit, and fails for errors, policy violations and requests to other hosts. */
  async function visit(
    run: (visitor: Visitor) => Promise<void>,
    options: Parameters<typeof Visitor.open>[2] = {},
  ): Promise<void> {
    const visitor = await Visitor.open(browser, origin, options);
    await visitor.signIn(admin);
    await run(visitor);
    assert.equal(await visitor.page.evaluate(() => 'pwned' in globalThis), false);
    await visitor.close();
  }

  test('the embeddings tab shows the cosines of texts', async () => {
    engine.answer = ({ body }, response) => {
      const { input } = JSON.parse(body) as { input: readonly string[] };
      const data = input.map((_text, index) => ({
        object: 'embedding',
        index,
        embedding: index === 2 ? [0, 1] : [1, 0],
      }));
      const usage = { prompt_tokens: 30, total_tokens: 30 };
      sendJson(response, 200, { object: 'list', model: 'vectors', data, usage });
    };
    await visit(async (visitor) => {
      const { page } = visitor;
      await visitor.open('/console/playground/embeddings');
      const lines = [`A cat ${HOSTILE}`, 'A kitten', 'An invoice'].join('\n');
      await page.getByLabel('Texts, one per line').fill(lines);
      await page.getByRole('button', { name: 'Compare' }).click();
      const rows = page.getByRole('region', { name: 'Similarity' }).locator('tbody tr');
      await rows.first().waitFor();
      assert.deepEqual(await rows.nth(0).locator('td').allTextContents(), [
        '1.000',
        '1.000',
        '0.000',
      ]);
      assert.deepEqual(await rows.nth(2).locator('td').allTextContents(), [
        '0.000',
        '0.000',
        '1.000',
      ]);
      // 30 tokens at 1 USD per million.
      await page.locator('.bill').getByRole('link', { name: '$0.00003' }).waitFor();
      await page.getByText('30 tokens · 2 dimensions').waitFor();
      await page.getByRole('button', { name: 'Code' }).click();
      await page.getByRole('tab', { name: 'Python' }).click();
      await page.getByText('client.embeddings.create').waitFor();
      await visitor.checkAccess('embeddings');
    });
  });

  test('the images, speech and rerank tabs show the result, its cost and code by keyboard', async () => {
    const image = await portraitJpeg();
    const sound = await makeSound(folder, 'ab ba', 'mp3');
    engine.answer = ({ path }, response) => {
      if (path === '/v1/images/generations') {
        sendJson(response, 200, { created: 1, data: [{ b64_json: image.toString('base64') }] });
      } else if (path === '/v1/audio/speech') {
        response.writeHead(200, { 'content-type': 'audio/mpeg' }).end(sound);
      } else {
        const results = [2, 0, 1].map((index) => ({ index, relevance_score: index / 4 }));
        sendJson(response, 200, { results });
      }
    };
    const tabs = [
      ['images', 'Prompt', '$0.04', 'images.generate', 'img[alt^="Image 1"]'],
      ['speech', 'Text', '$0.00009', 'audio.speech.create', 'audio'],
      ['rerank', 'Query', '$0.002', '/rerank', 'ol[aria-label=Ranking] li:nth-child(3)'],
    ] as const;
    await visit(async (visitor) => {
      const { page } = visitor;
      for (const [tab, label, cost, code, result] of tabs) {
        await visitor.open(`/console/playground/${tab}`);
        await page.getByLabel(label, { exact: true }).focus();
        await page.keyboard.press('ControlOrMeta+A');
        await page.keyboard.insertText('<b>twelve');
        await page.locator('form button[type=submit]').focus();
        await page.keyboard.press('Enter');
        const shown = page.getByLabel('Result').locator(result);
        await shown.waitFor();
        await page.locator('.bill').getByRole('link', { name: cost, exact: true }).waitFor();
        await page.getByRole('button', { name: 'Code' }).focus();
        await page.keyboard.press('Enter');
        await page.getByRole('tab', { name: 'curl' }).focus();
        await page.keyboard.press('ArrowRight');
        await page.locator('.sample').getByText(code).waitFor();
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'detached' });
        await visitor.checkAccess(tab);
        // The history has the request and its cost after a reload, and fills the form.
        await page.reload();
        const history = page.getByRole('list', { name: 'Latest requests' });
        await history.getByRole('link', { name: cost, exact: true }).waitFor();
        await history.getByRole('button', { name: '<b>twelve' }).focus();
        await page.keyboard.press('Enter');
        assert.equal(await page.getByLabel(label, { exact: true }).inputValue(), '<b>twelve');
      }
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      assert.equal(await page.evaluate('JSON.stringify(localStorage)'), '{}');
    });
  });

  test('a failed request of the playground shows code, status and request id, and can be sent again', async () => {
    engine.answer = (_heard, response) => sendJson(response, 500, { error: 'broken' });
    await visit(
      async (visitor) => {
        const { page } = visitor;
        await visitor.open('/console/playground/rerank');
        await page.getByRole('button', { name: 'Rank' }).click();
        const failure = page.getByRole('alert');
        await failure.getByText(/^[A-Z_]+, status 5\d\d/).waitFor();
        await failure.getByRole('button', { name: 'Copy request id' }).waitFor();
        engine.answer = (_heard, response) => {
          const results = [0, 1, 2].map((index) => ({ index, relevance_score: 0.5 }));
          sendJson(response, 200, { results });
        };
        await failure.getByRole('button', { name: 'Try again' }).click();
        await page.getByRole('list', { name: 'Ranking' }).waitFor();
      },
      { refusals: [500, 502, 503] },
    );
  });

  test('background removal shows the result and its cost', async () => {
    const photo = await portraitJpeg();
    const cut = await sharp(photo).ensureAlpha(0.5).png().toBuffer();
    engine.answer = (_heard, response) => response.end(cut);
    await visit(async (visitor) => {
      const { page } = visitor;
      await visitor.open('/console/playground/background');
      const file = {
        name: `${HOSTILE.replaceAll('/', '')}.jpg`,
        mimeType: 'image/jpeg',
        buffer: photo,
      };
      await page.getByLabel('Image').setInputFiles(file);
      await page.getByAltText('After, with a transparent background').waitFor();
      await page.locator('.bill').getByRole('link', { name: '$0.02' }).waitFor();
      await page.locator('p.text').getByText('onerror').waitFor();
      // The history has the name of the file, but not the file.
      const history = page.getByRole('list', { name: 'Latest requests' });
      await history.getByText('onerror').waitFor();
      assert.equal(await history.getByRole('button').count(), 0);
      const download = page.waitForEvent('download');
      await page.getByRole('link', { name: 'Download PNG' }).click();
      assert.deepEqual(await bytesOf(await download), cut);
      await page.getByRole('button', { name: 'Code' }).click();
      await page.getByText('-F ').waitFor();
      await visitor.checkAccess('a cut-out');
    });
  });

  test('the transcription tab transcribes a dropped file', async () => {
    engine.answer = (_heard, response) =>
      sendJson(response, 200, {
        text: HOSTILE,
        language: 'english',
        segments: [{ id: 0, start: 0, end: 2, text: HOSTILE }],
      });
    const sound = toneWav('a b').toString('base64');
    await visit(async (visitor) => {
      const { page } = visitor;
      await visitor.open('/console/playground/transcription');
      // The event data of a browser when files are dropped.
      const file = JSON.stringify([sound, `${HOSTILE}.wav`]);
      const dropped = await page.evaluateHandle(`(() => {
        const [bytes, name] = ${file};
        const data = Uint8Array.from(atob(bytes), (character) => character.charCodeAt(0));
        const transfer = new DataTransfer();
        transfer.items.add(new File([data], name, { type: 'audio/wav' }));
        return transfer;
      })()`);
      await page.locator('.drop').dispatchEvent('drop', { dataTransfer: dropped });
      await page.locator('.transcript').getByText('onerror').waitFor();
      // Two seconds at 0.0001 USD.
      await page.locator('.bill').getByRole('link', { name: '$0.0002' }).waitFor();
      await page.getByText('language en').waitFor();
      await visitor.checkAccess('a transcript');
    });
  });

  test('the video tab quotes, orders and shows a video, and lists the job', async () => {
    const clip = await makeClip(folder, { width: 64, height: 64, seconds: 1, framesPerSecond: 8 });
    engine.answer = ({ method, path }, response) => {
      if (method === 'POST') sendJson(response, 200, { id: 'v1', status: 'queued' });
      else if (path.endsWith('/content')) {
        response.writeHead(200, { 'content-type': 'video/mp4' }).end(clip);
      } else sendJson(response, 200, { id: 'v1', status: 'completed', progress: 100 });
    };
    await visit(async (visitor) => {
      const { page } = visitor;
      await visitor.open('/console/playground/video');
      await page.getByLabel('Prompt').fill(HOSTILE);
      await page.getByRole('button', { name: 'Get a quote' }).click();
      await page.getByRole('button', { name: 'Order for $0.28' }).click();
      // The page polls every four seconds.
      await page.getByLabel('Video', { exact: true }).waitFor({ timeout: 120_000 });
      const download = page.waitForEvent('download');
      await page.getByRole('link', { name: 'Download' }).click();
      assert.deepEqual(await bytesOf(await download), clip);
      await page.locator('.jobs li', { hasText: 'film' }).waitFor();
      await visitor.checkAccess('a video');
    });
  });

  test('names of models, personas, tags, keys and accounts stay text on every page', async () => {
    engine.answer = (_heard, response) =>
      sendJson(response, 200, {
        id: 'c',
        object: 'chat.completion',
        created: 1,
        model: HOSTILE,
        choices: [
          { index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'Hi' } },
        ],
        usage: { prompt_tokens: 10, completion_tokens: 20, total_tokens: 30 },
      });
    const sold = await fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${admin}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'm',
        metadata: { '<img src=x onerror=window.pwned=1>': HOSTILE, team: HOSTILE },
        messages: [{ role: 'user', content: 'Hi' }],
      }),
    });
    assert.equal(sold.status, 200);
    await farebox.app.stores.identity.createAccount(HOSTILE, 'paid');
    const pages = ['', '/activity', '/keys', '/models', '/limits', '/playground', '/sessions'];
    const operator = ['accounts', 'revenue', 'engines', 'videos', 'configuration', 'check'];
    await visit(async (visitor) => {
      const { page } = visitor;
      await visitor.open('/');
      assert.ok((await page.title()).includes('<img'));
      for (const path of [...pages, ...operator.map((part) => `/operator/${part}`)]) {
        await visitor.open(`/console${path}`);
        await page.locator('h1').waitFor();
        await visitor.settled();
        await visitor.checkWidth(path);
        assert.equal(await page.evaluate(() => 'pwned' in globalThis), false, path);
      }
      await visitor.open('/console/activity');
      await page.locator('tbody tr').first().click();
      await page.locator('dialog .total').waitFor();
      await visitor.open('/console/models');
      await page
        .getByRole('button', { name: /onerror/ })
        .first()
        .click();
      await page.locator('dialog h2', { hasText: 'onerror' }).waitFor();
    });
  });
});
