/**
 * Waiting at embedded engines: the time of a short job alone, and beside a long job of another
 * account at the same engine, which is repeated; and the p99 of chats with another engine beside
 * it. Transcription uses Moonshine and a recording of the tests.
 *
 * Run: node bench/waiting.ts
 * `PARTS=transcription,cutout,embeddings,chat` selects the engines.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { SPEECH_RATE } from '../src/engines/media/media-task.ts';
import { wavHeader } from '../src/engines/media/wav.ts';
import { sharp } from '../test/support/sharp.ts';
import { makeSound, portraitJpeg } from '../test/media/clips.ts';
import { moonshineModel, recordingPath } from '../test/media/real-speech.ts';
import { startFarebox } from '../test/e2e/farebox-process.ts';
import { median, startProcess, stopAll, temporaryFolder } from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '9');
const LONG_SECONDS = Number(process.env['LONG_SECONDS'] ?? '1200');
const PARTS = (process.env['PARTS'] ?? 'transcription,cutout,embeddings,chat').split(',');
const CHATS = 1_000;
/** Time for long jobs to reach their engine. */
const BEGIN_MS = 3_000;
/** Sound is decoded before it is transcribed. */
const DECODE_MS_PER_SECOND = 15;
const RECORDING_SECONDS = 11;

const folder = temporaryFolder();
const upstream = await startProcess('./upstream.ts');
const farebox = await startFarebox({
  folder,
  uncheckedResponses: true,
  quiet: true,
  yaml: `listen: { host: 127.0.0.1, port: 0 }
embedded: { download: false, threads: 1 }
discovery: { enabled: false }
log: { level: silent }
engines: { bench: { url: ${upstream.url} } }
media: { speechModel: ${JSON.stringify(await moonshineModel(folder))}, maxTranscriptionSeconds: ${LONG_SECONDS + 60}, maxDownloadMb: 500 }
limits: { starterCreditUsd: 100000, keyConcurrency: 1000 }
models:
  - { id: chat, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 1 }, limits: { requestsPerMinute: 10000000 }, replicas: [{ engine: bench, model: m }] }
`,
});

type Body = FormData | object;

async function send(key: string, path: string, body: Body): Promise<void> {
  const isForm = body instanceof FormData;
  for (;;) {
    const response = await fetch(farebox.url + path, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        ...(isForm ? {} : { 'content-type': 'application/json' }),
      },
      body: isForm ? body : JSON.stringify(body),
    });
    const bytes = Buffer.from(await response.arrayBuffer());
    if (response.status === 200) return;
    // The limit per minute, or a model that is being loaded.
    if (response.status !== 429 && response.status !== 503) {
      throw new Error(`${path}: ${response.status} ${bytes.toString().slice(0, 300)}`);
    }
    await delay(500);
  }
}

async function admin(path: string, body: object): Promise<{ id: string; apiKey: string }> {
  const response = await fetch(`${farebox.url}/admin/accounts${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${farebox.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
  return (JSON.parse(text) as { data: { id: string; apiKey: string } }).data;
}

async function account(name: string): Promise<string> {
  const { id } = await admin('', { name, plan: 'staff' });
  await admin(`/${id}/credit`, { amountUsd: '100000', reference: name });
  return (await admin(`/${id}/keys`, { description: name, apiKeyType: 'INFERENCE' })).apiKey;
}

function form(file: Buffer, more: Readonly<Record<string, string>> = {}): FormData {
  const made = new FormData();
  for (const [name, value] of Object.entries(more)) made.set(name, value);
  made.set('file', new Blob([new Uint8Array(file)]), 'file');
  return made;
}

const recording = await readFile(await recordingPath());

/** An MP3: two hours have 22 MB, which is below the default limit of an upload. */
async function longSound(): Promise<Buffer> {
  const part = await makeSound(folder, recording, 'mp3', '24k');
  return Buffer.concat(Array.from({ length: LONG_SECONDS / RECORDING_SECONDS }, () => part));
}

/** The first second of the recording. */
function shortSound(): Buffer {
  const headerBytes = wavHeader(0).length;
  const samples = recording.subarray(headerBytes, headerBytes + SPEECH_RATE * 2);
  return Buffer.concat([wavHeader(samples.length), samples]);
}

const photo = await portraitJpeg();
const large = await sharp(photo).resize(4_000, 3_000).jpeg().toBuffer();
const image = (bytes: Buffer): FormData => {
  const made = new FormData();
  made.set('image', new Blob([new Uint8Array(bytes)]), 'photo.jpg');
  return made;
};
const text = 'A lighthouse at dusk, with a boat on the way home and a few clouds above the sea.';
const say = (tokens: number) => ({
  model: 'farebox-demo',
  messages: [{ role: 'user', content: 'Hello' }],
  max_tokens: tokens,
});

interface Case {
  readonly part: string;
  readonly name: string;
  readonly path: string;
  readonly short: () => Body;
  readonly long: () => Body;
  /** Time until the long job computes. */
  readonly beginMs?: number;
}

const sound = await longSound();
const CASES: readonly Case[] = [
  {
    part: 'transcription',
    name: `transcription: 1 s beside ${LONG_SECONDS / 60} minutes`,
    path: '/audio/transcriptions',
    short: () => form(shortSound()),
    long: () => form(sound),
    beginMs: BEGIN_MS + LONG_SECONDS * DECODE_MS_PER_SECOND,
  },
  {
    part: 'cutout',
    name: 'cutout: 0.3 MP beside 12 MP',
    path: '/image/background-remove',
    short: () => image(photo),
    long: () => image(large),
  },
  {
    part: 'embeddings',
    name: 'embeddings: 1 text beside 2,048',
    path: '/embeddings',
    short: () => ({ model: 'default', input: text }),
    long: () => ({ model: 'default', input: Array.from({ length: 2_048 }, () => text) }),
  },
  {
    part: 'chat',
    name: 'chat of the embedded model: 16 tokens beside 512',
    path: '/chat/completions',
    short: () => say(16),
    long: () => say(512),
  },
];

async function times(count: number, work: () => Promise<void>): Promise<number[]> {
  const timesMs: number[] = [];
  for (let round = 0; round < count; round += 1) {
    const fromMs = performance.now();
    await work();
    timesMs.push(performance.now() - fromMs);
  }
  return timesMs.sort((a, b) => a - b);
}

const at = (timesMs: readonly number[], part: number): number =>
  timesMs[Math.floor((timesMs.length - 1) * part)] ?? 0;

try {
  const [honest, busy] = [await account('honest'), await account('busy')];
  const chat = { model: 'chat', messages: [{ role: 'user', content: text }], max_tokens: 16 };
  const chats = () => times(CHATS, () => send(honest, '/chat/completions', chat));
  await chats();
  console.log(
    'job'.padEnd(52) + 'alone p50   beside p50  worst       times   chat p99: alone, beside, times',
  );
  const selected = CASES.filter(({ part }) => PARTS.includes(part));
  for (const { name, path, short, long, beginMs = BEGIN_MS } of selected) {
    await times(2, () => send(honest, path, short()));
    const alone = await times(ROUNDS, () => send(honest, path, short()));
    const quiet = await chats();
    const body = long();
    const request = new Request('http://any', {
      method: 'POST',
      body: body instanceof FormData ? body : JSON.stringify(body),
    });
    await writeFile(`${folder}/long`, Buffer.from(await request.arrayBuffer()));
    const type = body instanceof FormData ? request.headers.get('content-type') : undefined;
    // A process of its own, so that large bodies do not delay the measurement.
    const load = await startProcess('./waiting-load.ts', {
      args: [farebox.url + path, busy, `${folder}/long`, type ?? 'application/json'],
    });
    await delay(beginMs);
    const beside = await times(ROUNDS, () => send(honest, path, short()));
    const loaded = await chats();
    process.kill(load.pid, 'SIGKILL');
    await delay(BEGIN_MS);
    const ms = (value: number): string => `${value.toFixed(1)} ms`.padEnd(12);
    console.log(
      name.padEnd(52) +
        ms(median(alone)) +
        ms(median(beside)) +
        ms(at(beside, 1)) +
        (median(beside) / median(alone)).toFixed(2).padEnd(8) +
        ms(at(quiet, 0.99)) +
        ms(at(loaded, 0.99)) +
        (at(loaded, 0.99) / at(quiet, 0.99)).toFixed(2),
    );
  }
} finally {
  await farebox.stop('SIGKILL');
  await stopAll();
}
