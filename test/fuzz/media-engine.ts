/**
 * A media engine that never fails, in the protocols of rembg and OpenAI. It has one video, which
 * valid orders request.
 */
import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sharp } from '../support/sharp.ts';
import { SOUND_KINDS, makeClip, makeSound } from '../media/clips.ts';

export interface MediaEngine {
  readonly url: string;
  close(): Promise<void>;
}

/** Five seconds with sound, with a size close to 480p and to 720p. */
const FILM = { width: 960, height: 540, seconds: 5, framesPerSecond: 4, letters: 'a b a b' };

/** Nine seconds, enough for the longest text of the model. */
const SPEECH = 'a b a b a b';

interface Made {
  readonly film: Buffer;
  /** Keys are names of formats. */
  readonly sounds: ReadonlyMap<string, Buffer>;
}

export async function startMediaEngine(): Promise<MediaEngine> {
  const folder = await mkdtemp(join(tmpdir(), 'farebox-film-'));
  const film = await makeClip(folder, FILM);
  const sounds = new Map<string, Buffer>();
  for (const kind of SOUND_KINDS) sounds.set(kind, await makeSound(folder, SPEECH, kind));
  const made = { film, sounds };
  await rm(folder, { recursive: true });
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => void answer(request, Buffer.concat(chunks), response, made));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo; // a listening TCP server has one
  return {
    url: `http://127.0.0.1:${port}`,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function answer(
  request: IncomingMessage,
  body: Buffer,
  response: ServerResponse,
  { film, sounds }: Made,
) {
  const { url = '', method } = request;
  if (url.endsWith('/api/remove')) return cutOut(request, body, response);
  if (url.endsWith('/images/generations')) return makeImages(JSON.parse(String(body)), response);
  if (url.endsWith('/images/edits')) {
    return makeImages(Object.fromEntries(await formOf(request, body)), response);
  }
  if (url.endsWith('/audio/speech')) return speak(JSON.parse(String(body)), response, sounds);
  if (url.endsWith('/moderations')) return moderate(JSON.parse(String(body)), response);
  if (url.endsWith('/rerank')) {
    const { documents } = JSON.parse(String(body)) as { readonly documents: readonly unknown[] };
    const results = documents.map((_, index) => ({ index, relevance_score: 1 / (index + 1) }));
    return sendJson(response, { results });
  }
  if (url.endsWith('/audio/transcriptions') || url.endsWith('/audio/translations')) {
    return sendJson(response, { text: 'Hello there.', language: 'english', duration: 2 });
  }
  if (url.endsWith('/content')) {
    return void response.writeHead(200, { 'content-type': 'video/mp4' }).end(film);
  }
  if (method === 'DELETE') return sendJson(response, { id: 'v', deleted: true });
  if (method === 'POST') return sendJson(response, { id: 'v', status: 'queued' });
  return sendJson(response, { id: 'v', status: 'completed', progress: 100 });
}

function formOf(request: IncomingMessage, body: Buffer): Promise<FormData> {
  const headers = { 'content-type': request.headers['content-type'] ?? '' };
  return new Response(new Uint8Array(body), { headers }).formData();
}

/** Images of one colour, in the requested format. */
async function makeImages(request: Record<string, unknown>, response: ServerResponse) {
  const { n = 1, output_format: format = 'png', stream } = request;
  const background = { r: 20, g: 60, b: 200 };
  const picture = sharp({ create: { width: 64, height: 64, channels: 3, background } });
  const kind = format === 'jpeg' || format === 'webp' ? format : 'png';
  const b64_json = (await picture.toFormat(kind).toBuffer()).toString('base64');
  const data = Array.from({ length: Number(n) }, () => ({ b64_json }));
  if (stream === undefined) return sendJson(response, { created: 1, data });
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const partial = { type: 'image_generation.partial_image', b64_json, partial_image_index: 0 };
  const events = [partial, ...data.map((one) => ({ ...one, type: 'image_generation.completed' }))];
  response.end(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''));
}

/** Raw samples if requested. */
function speak(
  { response_format: format }: Record<string, unknown>,
  response: ServerResponse,
  sounds: ReadonlyMap<string, Buffer>,
) {
  response.writeHead(200, { 'content-type': 'audio/mpeg' });
  response.end(sounds.get(String(format)) ?? Buffer.alloc(480_000, 1));
}

function moderate({ input }: Record<string, unknown>, response: ServerResponse) {
  const areTexts = Array.isArray(input) && input.every((one) => typeof one === 'string');
  const result = {
    flagged: false,
    categories: { violence: false },
    category_scores: { violence: 0 },
  };
  sendJson(response, {
    results: Array.from({ length: areTexts ? input.length : 1 }, () => result),
  });
}

/** The input image, half transparent; 400 for invalid images, as engines do. */
async function cutOut(request: IncomingMessage, body: Buffer, response: ServerResponse) {
  const form = await formOf(request, body);
  const file = form.get('file');
  if (!(file instanceof File)) throw new Error('The engine got no picture');
  try {
    const picture = sharp(Buffer.from(await file.arrayBuffer()));
    response.end(await picture.autoOrient().ensureAlpha(0.5).png().toBuffer());
  } catch {
    // The error format of engines.
    sendJson(response, { detail: 'The image cannot be read' }, 400);
  }
}

function sendJson(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
