/** MCP tools for media with scripted engines: results in the official client, and charges. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { sharp } from '../support/sharp.ts';
import { usdToNano } from '../../src/core/money.ts';
import { holdsNoLoop } from '../app/held-loop.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { makeClip, toneWav } from '../media/clips.ts';
import { type Site, openSite } from '../media/site.ts';
import { fastClock } from '../support/fast-clock.ts';

type Result = Record<string, unknown>;

describe('media tools', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-mcp-media-'));
  const size = 256;
  let engine: Server;
  let site: Site;
  let farebox: TestApp;
  let client: Client;
  let png: Buffer;
  let clip: Buffer;
  const wav = toneWav('a b');
  /** True when the engine has finished the video. */
  let isDone = false;

  before(async () => {
    clip = await makeClip(folder, { width: 64, height: 64, seconds: 1, framesPerSecond: 8 });
    const cleared = Buffer.alloc(size * size * 4, 255);
    for (let at = 3; at < cleared.length / 2; at += 4) cleared[at] = 0;
    const raw = { width: size, height: size, channels: 4 } as const;
    png = await sharp(cleared, { raw }).png().toBuffer();
    engine = createServer((request, response) => {
      const json = (body: unknown): void => {
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      };
      request.resume().on('end', () => {
        const { method, url = '' } = request;
        if (url.endsWith('/api/remove')) {
          response.writeHead(200, { 'content-type': 'image/png' }).end(png);
        } else if (url.endsWith('/images/generations')) {
          json({
            data: [{ b64_json: png.toString('base64') }, { b64_json: png.toString('base64') }],
          });
        } else if (url.endsWith('/audio/speech')) {
          response.writeHead(200, { 'content-type': 'audio/wav' }).end(wav);
        } else if (url.endsWith('/rerank')) {
          json({ results: [0, 1].map((index) => ({ index, relevance_score: index / 2 })) });
        } else if (url.endsWith('/moderations')) {
          const categories = { violence: true, hate: false };
          const scores = { violence: 0.9, hate: 0.1 };
          json({ results: [{ flagged: true, categories, category_scores: scores }] });
        } else if (url.endsWith('/audio/transcriptions')) {
          json({ text: ' Hello there. ', language: 'english', duration: 2 });
        } else if (method === 'POST') json({ id: 'v1', status: 'queued' });
        else if (url.endsWith('/content')) {
          response.writeHead(200, { 'content-type': 'video/mp4' }).end(clip);
        } else json({ id: 'v1', status: isDone ? 'completed' : 'in_progress', progress: 50 });
      });
    });
    engine.listen(0, '127.0.0.1');
    await once(engine, 'listening');
    const { port } = engine.address() as AddressInfo; // a listening TCP server has one
    site = await openSite();
    const at = `http://127.0.0.1:${port}`;
    farebox = await startTestApp({
      // The server polls a job every few seconds.
      clock: fastClock(5),
      yaml: `fetch: { allow: [127.0.0.0/8] }
engines: { studio: { url: "${at}/v1" }, rembg: { protocol: rembg, url: "${at}/api/remove" } }
models:
  - { id: ears, type: asr, traits: [default], price: { perSecond: 0.0001 }, replicas: [{ engine: studio, model: whisper-1 }] }
  - { id: scissors, type: inpaint, traits: [default], price: { perImage: 0.02 }, replicas: [{ engine: rembg }] }
  - { id: painter, type: image, price: { perImage: 0.04, imageRates: [{ size: 1792x1024, quality: hd, perImage: 0.12 }] }, replicas: [{ engine: studio }] }
  - { id: speaker, type: tts, price: { perMillionCharacters: 15 }, speech: { formats: [wav] }, replicas: [{ engine: studio }] }
  - { id: sorter, type: rerank, price: { perSearch: 0.002 }, replicas: [{ engine: studio }] }
  - { id: guard, type: moderation, price: { input: 1 }, replicas: [{ engine: studio }] }
  - { id: film, type: video, replicas: [{ engine: studio }], video: { task: text-to-video, durations: [1 gen], pricing: { kind: generation, perGeneration: 0.28 } } }
`,
    });
    client = new Client({ name: 'test', version: '1' });
    const headers = { authorization: `Bearer ${farebox.owner.secret}` };
    const url = new URL('/mcp', farebox.app.address);
    await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
    await client.listTools();
  });
  after(async () => {
    await client.close();
    await farebox.audit();
    await farebox.stop();
    await site.close();
    engine.closeAllConnections();
    engine.close();
    rmSync(folder, { recursive: true, force: true });
  });

  const ask = (name: string, given: Result) => client.callTool({ name, arguments: given });
  const spent = async (): Promise<bigint> => {
    const { usdNano } = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
    return farebox.owner.creditNano - usdNano;
  };

  test('background removal accepts base64 and URLs, and returns an image', async () => {
    const photo = await sharp(Buffer.alloc(size * size * 3, 90), {
      raw: { width: size, height: size, channels: 3 },
    })
      .jpeg()
      .toBuffer();
    site.pages.set('/photo.jpg', photo);
    const before = await spent();
    for (const image of [photo.toString('base64'), `${site.url}/photo.jpg`]) {
      const { content, structuredContent } = await ask('remove_background', { image });
      const [picture] = content as [{ type: string; data: string; mimeType: string }];
      assert.deepEqual([picture.type, picture.mimeType], ['image', 'image/png']);
      assert.deepEqual(Buffer.from(picture.data, 'base64'), png);
      assert.deepEqual(structuredContent, { mime_type: 'image/png', size_bytes: png.length });
    }
    assert.equal((await spent()) - before, usdToNano('0.04'));
    const broken = await ask('remove_background', { image: 'AAAA' });
    assert.equal(broken.isError, true);
    assert.equal((await spent()) - before, usdToNano('0.04'));
  });

  test('the tools for images, audio, reranking and moderation are listed with their prices', async () => {
    const { tools } = await client.listTools();
    const about = (name: string) => tools.find((tool) => tool.name === name)?.description ?? '';
    assert.match(about('generate_image'), /0\.12 USD per image 1792x1024 hd, 0\.04 USD per other/);
    assert.match(about('speak'), /15 USD per million characters/);
    assert.match(about('rerank'), /0\.002 USD per search of up to 100 documents/);
    assert.match(about('moderate'), /1 USD per million input tokens/);
    assert.equal(about('embeddings'), '');
  });

  test('image generation returns images', async () => {
    const before = await spent();
    const { content, structuredContent } = await ask('generate_image', { prompt: 'a dune', n: 2 });
    const picture = { type: 'image', mimeType: 'image/png', data: png.toString('base64') };
    assert.deepEqual((content as Result[]).slice(0, 2), [picture, picture]);
    assert.deepEqual(structuredContent, {
      mime_type: 'image/png',
      size: `${size}x${size}`,
      count: 2,
      cost_usd: 0.08,
    });
    assert.equal((await spent()) - before, usdToNano('0.08'));
  });

  test('speech returns audio', async () => {
    const before = await spent();
    const { content, structuredContent } = await ask('speak', { text: 'Hello' });
    const [sound] = content as [{ type: string; data: string; mimeType: string }];
    assert.deepEqual([sound.type, sound.mimeType], ['audio', 'audio/wav']);
    assert.deepEqual(Buffer.from(sound.data, 'base64'), wav);
    assert.deepEqual(structuredContent, { mime_type: 'audio/wav', size_bytes: wav.length });
    assert.equal((await spent()) - before, usdToNano('0.000075'));
    const other = await ask('speak', { text: 'Hello', format: 'flac' });
    assert.equal(other.isError, true);
    assert.match(JSON.stringify(other.content), /writes wav, not flac/);
  });

  test('the tools rerank documents and moderate texts', async () => {
    const before = await spent();
    const ranked = await ask('rerank', { query: 'tides', documents: ['one', 'two'], top_n: 1 });
    assert.deepEqual(ranked.structuredContent, {
      model: 'sorter',
      results: [{ index: 1, score: 0.5 }],
      cost_usd: 0.002,
    });
    const looked = (await ask('moderate', { texts: ['I will hit you'] })).structuredContent as {
      cost_usd: number;
    };
    const { cost_usd: costUsd, ...told } = looked;
    assert.deepEqual(told, {
      model: 'guard',
      results: [{ flagged: true, categories: ['violence'], scores: { violence: 0.9, hate: 0.1 } }],
    });
    assert.equal((await spent()) - before, usdToNano('0.002') + usdToNano(String(costUsd)));
  });

  test('transcription accepts base64 and URLs', async () => {
    site.pages.set('/hello.wav', wav);
    const uploaded = await ask('transcribe', { media: wav.toString('base64'), language: 'en' });
    assert.equal(uploaded.isError, undefined, JSON.stringify(uploaded.content));
    const said = uploaded.structuredContent as Result;
    assert.equal(said['text'], 'Hello there.');
    assert.ok(Number(said['duration_seconds']) > 0);
    const fetched = await ask('transcribe', { media: `${site.url}/hello.wav` });
    assert.deepEqual(fetched.structuredContent, { text: 'Hello there.', language: 'en' });
    const both = await ask('transcribe', { media: `${site.url}/hello.wav`, language: 'en' });
    assert.equal(both.isError, true);
    assert.equal((await ask('transcribe', { media: 'no base64!' })).isError, true);
    for (const media of [`data:${'a'.repeat(2_000_000)}`, `data:a/${'a'.repeat(2_000_000)}`]) {
      const refused = await holdsNoLoop(() => ask('transcribe', { media }));
      assert.equal(refused.isError, true);
    }
  });

  test('the tools queue a video, poll it, wait for it and download it', async () => {
    const before = await spent();
    const order = { prompt: 'a lighthouse', duration: '1 gen' };
    const queued = (await ask('generate_video', order)).structuredContent as Result;
    assert.deepEqual([queued['model'], queued['quote_usd']], ['film', 0.28]);
    const { queue_id } = queued;
    const open = (await ask('video_status', { queue_id })).structuredContent as Result;
    assert.equal(open['status'], 'PROCESSING');
    isDone = true;
    const told: number[] = [];
    const waited = await client.callTool(
      { name: 'video_status', arguments: { queue_id, wait_seconds: 60 } },
      undefined,
      { onprogress: ({ progress }) => told.push(progress) },
    );
    const state = waited.structuredContent as Result;
    assert.deepEqual([state['status'], state['mime_type']], ['COMPLETED', 'video/mp4']);
    assert.equal(state['size_bytes'], clip.length);
    const { content } = await ask('video_status', { queue_id, include_video: true });
    const [{ resource }] = content as [{ resource: { blob: string; mimeType: string } }];
    assert.equal(resource.mimeType, 'video/mp4');
    assert.deepEqual(Buffer.from(resource.blob, 'base64'), clip);
    assert.equal((await spent()) - before, usdToNano('0.28'));
  });

  test('a cancelled video costs nothing', async () => {
    isDone = false;
    const before = await spent();
    const order = { prompt: 'a harbour', duration: '1 gen' };
    const { queue_id } = (await ask('generate_video', order)).structuredContent as Result;
    const cancelled = await ask('cancel_video', { queue_id });
    assert.deepEqual(cancelled.structuredContent, { queue_id, status: 'CANCELLED' });
    assert.equal(await spent(), before);
    assert.equal((await ask('video_status', { queue_id })).isError, true);
  });
});
