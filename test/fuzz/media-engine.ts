/**
 * An engine for pictures, sound and films that never fails: what it is asked for it makes at once,
 * in the protocols of rembg and OpenAI. Its one film is what the right orders ask for.
 */
import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import sharp from 'sharp';
import { makeClip } from '../media/clips.ts';

export interface MediaEngine {
  readonly url: string;
  close(): Promise<void>;
}

/** Five seconds with sound, of a size that is near enough to 480p and to 720p. */
const FILM = { width: 960, height: 540, seconds: 5, framesPerSecond: 4, letters: 'a b a b' };

export async function startMediaEngine(): Promise<MediaEngine> {
  const folder = await mkdtemp(join(tmpdir(), 'farebox-film-'));
  const film = await makeClip(folder, FILM);
  await rm(folder, { recursive: true });
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => void answer(request, Buffer.concat(chunks), response, film));
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
  film: Buffer,
) {
  const { url = '', method } = request;
  if (url.endsWith('/api/remove')) return cutOut(request, body, response);
  if (url.endsWith('/audio/transcriptions')) {
    return sendJson(response, { text: 'Hello there.', language: 'english', duration: 2 });
  }
  if (url.endsWith('/content')) {
    return void response.writeHead(200, { 'content-type': 'video/mp4' }).end(film);
  }
  if (method === 'DELETE') return sendJson(response, { id: 'v', deleted: true });
  if (method === 'POST') return sendJson(response, { id: 'v', status: 'queued' });
  return sendJson(response, { id: 'v', status: 'completed', progress: 100 });
}

/** The picture that came, half transparent; 400 for what is none, as engines do. */
async function cutOut(request: IncomingMessage, body: Buffer, response: ServerResponse) {
  const headers = { 'content-type': request.headers['content-type'] ?? '' };
  const form = await new Response(new Uint8Array(body), { headers }).formData();
  const file = form.get('file');
  if (!(file instanceof File)) throw new Error('The engine got no picture');
  try {
    const picture = sharp(Buffer.from(await file.arrayBuffer()));
    response.end(await picture.autoOrient().ensureAlpha(0.5).png().toBuffer());
  } catch {
    // It is told as engines tell it.
    sendJson(response, { detail: 'The image cannot be read' }, 400);
  }
}

function sendJson(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
