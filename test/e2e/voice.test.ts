/**
 * The embedded voice from outside: `POST /audio/speech` with the official client in each format, charged
 * by characters. The audit is clean at the end. The voice is a toy that plays a tone for each phoneme;
 * `bench/voice.ts` runs a real one.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { sniffMedia } from '../../src/core/media-type.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import { speechEngine } from '../../src/engines/embedded/programs.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { toySpeech, toyVoice } from '../media/clips.ts';
import { until } from '../support/until.ts';

const folder = mkdtempSync(join(tmpdir(), 'farebox-voice-'));
const TYPES = {
  mp3: 'audio/mpeg',
  opus: 'audio/ogg',
  aac: 'audio/aac',
  flac: 'audio/flac',
  wav: 'audio/wav',
  pcm: undefined,
} as const;
let farebox: TestApp;
let client: OpenAI;
let voiceModel: string;

before(async () => {
  voiceModel = await toyVoice(folder);
  farebox = await startTestApp({
    media: true,
    yaml: `limits: { plans: { staff: { audio: 1000 } } }
media: { ${await toySpeech(folder)}, voiceModel: ${voiceModel} }
`,
  });
  await until(() => farebox.app.catalog.get('farebox-voice') !== undefined, 'that the voice is up');
  client = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
});
after(async () => {
  await farebox?.audit();
  await farebox?.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function spent(): Promise<bigint> {
  const { usdNano } = await farebox.app.stores.ledger.balances(farebox.owner.accountId);
  return farebox.owner.creditNano - usdNano;
}

async function speak(
  input: string,
  format: keyof typeof TYPES,
  more: object = {},
): Promise<Buffer> {
  const order = { model: 'farebox-voice', voice: 'toy', input, response_format: format, ...more };
  return Buffer.from(await (await client.audio.speech.create(order)).arrayBuffer());
}

describe('POST /audio/speech with the embedded voice', () => {
  const input = 'Dr. Lee paid $2.';

  for (const format of ['mp3', 'opus', 'aac', 'flac', 'wav', 'pcm'] as const) {
    // The server has decoded it to its end and measured its length before it charges.
    test(`${format} is charged by characters`, async () => {
      const before = await spent();
      const sound = await speak(input, format);
      assert.equal((await spent()) - before, BigInt(input.length) * 1_000n);
      assert.equal(sniffMedia(sound), TYPES[format]);
    });
  }

  test('`speed` shortens the sound', async () => {
    const [slow, fast] = await Promise.all([
      speak(input, 'pcm', { speed: 0.5 }),
      speak(input, 'pcm', { speed: 2 }),
    ]);
    assert.ok(slow.length > fast.length * 2, `${slow.length} and ${fast.length} bytes`);
  });

  test('a text that the voice cannot read is rejected and costs nothing', async () => {
    const before = await spent();
    for (const [text, message] of [
      ['你好', /letters of another script/],
      ['?!…', /no words/],
    ] as const) {
      await assert.rejects(speak(text, 'mp3'), (error) => {
        assert.ok(error instanceof OpenAI.APIError);
        assert.equal(error.status, 400);
        assert.match(error.message, message);
        return true;
      });
    }
    assert.equal(await spent(), before);
  });

  test('the list of models has its voice, formats and price', async () => {
    const { data } = (await (await fetch(`${farebox.url}/models?type=tts`)).json()) as {
      data: { id: string; model_spec: Record<string, unknown> }[];
    };
    const { model_spec: spec } = data.find(({ id }) => id === 'farebox-voice')!;
    assert.deepEqual(spec['voices'], ['toy']);
    assert.deepEqual(spec['supported_formats'], ['mp3', 'opus', 'aac', 'flac', 'wav', 'pcm']);
  });
});

describe('callers that close the response early', () => {
  const input = 'This is one of many sentences. '.repeat(130);

  /** Starts a speech and resolves after its first sound, to the function that closes it. */
  async function begun(): Promise<() => void> {
    const aborter = new AbortController();
    const { ok, body } = await fetch(`${farebox.url}/audio/speech`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ model: 'farebox-voice', input, response_format: 'pcm' }),
      signal: aborter.signal,
    });
    assert.ok(ok);
    await body!.getReader().read();
    return () => aborter.abort();
  }

  test('they pay for the text, and the voice is free for their next one', async () => {
    const before = await spent();
    // As many as one caller may have at once: another one waits for the end of one of them.
    const closes = await Promise.all([begun(), begun(), begun()]);
    const { secret } = await farebox.account('1');
    const other = new OpenAI({ baseURL: farebox.url, apiKey: secret, maxRetries: 0 });
    const ended: string[] = [];
    const order = async (from: OpenAI, text: string): Promise<void> => {
      const body = { model: 'farebox-voice', voice: 'toy', input: text } as const;
      await (await from.audio.speech.create({ ...body, response_format: 'pcm' })).arrayBuffer();
      ended.push(text === input ? 'long' : 'short');
    };
    const long = order(other, input);
    for (const close of closes) close();
    await order(client, 'Hello.');
    await long;
    assert.deepEqual(ended, ['short', 'long']);
    const nano = BigInt(input.length * 3 + 'Hello.'.length) * 1_000n;
    await until(async () => (await spent()) - before === nano, 'the charge of the whole texts');
    await until(() => encoders() === 0, 'the end of the encoders');
  });
});

/** Number of encoder processes: the children of the engine, which is a child of this process. */
function encoders(): number {
  const rows = execFileSync('ps', ['-A', '-o', 'pid=,ppid=,args='], { encoding: 'utf8' })
    .split('\n')
    .map((line) => line.trim().split(/\s+/));
  const engines = rows
    .filter(
      ([, parent, ...args]) => Number(parent) === process.pid && /speech.main/.test(args.join(' ')),
    )
    .map(([pid]) => pid);
  assert.equal(engines.length, 1);
  return rows.filter(([, parent]) => parent === engines[0]).length;
}

describe('turns of the embedded voice', () => {
  const noFetch = (): Promise<string> => Promise.reject(new Error('no network here'));
  const engineOf = (media: object) =>
    speechEngine(
      {
        media: { maxTranscriptionSeconds: 60, ...media },
        threads: 1,
        directory: mkdtempSync(join(folder, 'engine-')),
        searchPath: '',
        fetchModel: noFetch,
      },
      { log: silentLog, clock: systemClock(), ids: systemIds() },
    );

  test('a short text is spoken between the sentences of a long one', async () => {
    const engine = engineOf({ voiceModel });
    try {
      const { url, apiKey } = await engine.address();
      const ended: string[] = [];
      const order = async (caller: string, input: string): Promise<void> => {
        const response = await fetch(`${url}/v1/audio/speech`, {
          method: 'POST',
          headers: { authorization: `Bearer ${apiKey}`, [CALLER_HEADER]: caller },
          body: JSON.stringify({ input, response_format: 'pcm' }),
        });
        assert.equal(response.status, 200);
        await response.arrayBuffer();
        ended.push(caller);
      };
      await order('first', 'Hello.');
      const long = order('long', 'This is one of many sentences. '.repeat(60));
      await Promise.all([long, order('short', 'Good morning.')]);
      assert.deepEqual(ended, ['first', 'short', 'long']);
    } finally {
      await engine.close();
    }
  });

  test('the voice is fetched after its first use, and callers get 503 until then', async () => {
    const fetching = await startTestApp({
      media: true,
      download: true,
      env: { HF_ENDPOINT: 'http://127.0.0.1:9' }, // nothing listens
      yaml: `media: { ${await toySpeech(folder)} }`,
    });
    try {
      const isOffered = () => fetching.app.catalog.get('farebox-voice') !== undefined;
      await until(isOffered, 'that the engine is up');
      const response = await fetch(`${fetching.url}/audio/speech`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${fetching.owner.secret}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ model: 'farebox-voice', voice: 'ljspeech', input: 'Hello' }),
      });
      assert.equal(response.status, 503);
      assert.equal(response.headers.get('retry-after'), '10');
      assert.deepEqual(await response.json(), {
        error: 'The voice is being downloaded',
        code: 'MODEL_OFFLINE',
      });
    } finally {
      await fetching.stop();
    }
  });
});
