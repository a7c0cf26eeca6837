import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { sharp } from '../../test/support/sharp.ts';
import { until } from '../../test/support/until.ts';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import type { EngineProcess } from '../../src/engines/embedded/supervisor.ts';
import type { FetchModel } from '../../src/engines/embedded/model-files.ts';
import { Media } from '../../src/engines/media/media.ts';
import { wavHeader } from '../../src/engines/media/wav.ts';
import type { Word } from './recognizer.ts';
import { speechRanges } from './speech-ranges.ts';
import { type SpeechOptions, speechEngine } from '../../src/engines/embedded/programs.ts';
import {
  TOY_SPEECH_TOKENS,
  toneSamples,
  toySpeechModel,
  portraitSvg,
} from '../../test/support/engine-fixtures.ts';

const folder = mkdtempSync(join(tmpdir(), 'speech-'));
const at = (name: string): string => join(folder, name);
writeFileSync(at('toy.onnx'), toySpeechModel());
writeFileSync(at('toy.txt'), TOY_SPEECH_TOKENS);
const toy = { kind: 'zipformer-ctc', model: at('toy.onnx'), tokens: at('toy.txt') } as const;

const noFetch: FetchModel = () => Promise.reject(new Error('no network here'));

function engineWith(options: Partial<SpeechOptions>): EngineProcess {
  return speechEngine(
    {
      media: { maxTranscriptionSeconds: 7_200 },
      threads: 1,
      directory: at(`work-${Object.keys(options).join('-')}`),
      searchPath: '',
      fetchModel: noFetch,
      ...options,
    },
    { log: silentLog, clock: systemClock(), ids: systemIds() },
  );
}

const engine = engineWith({ media: { maxTranscriptionSeconds: 7_200, speechModel: toy } });
after(async () => {
  await engine.close();
  rmSync(folder, { recursive: true });
});

function wav(pcm: Buffer): Buffer {
  return Buffer.concat([wavHeader(pcm.length), pcm]);
}

async function transcribe(
  file: Buffer,
  fields: Record<string, string> = {},
  target = engine,
  path = 'transcriptions',
): Promise<{ status: number; type: string; text: string; retryAfter: string | null }> {
  const { url, apiKey } = await target.address();
  const body = new FormData();
  for (const [name, value] of Object.entries({ model: 'whisper', ...fields }))
    body.set(name, value);
  body.set('file', new Blob([new Uint8Array(file)]), 'speech.wav');
  const headers = { authorization: `Bearer ${apiKey}` };
  const answer = await fetch(`${url}/v1/audio/${path}`, { method: 'POST', headers, body });
  return {
    status: answer.status,
    type: answer.headers.get('content-type') ?? '',
    text: await answer.text(),
    retryAfter: answer.headers.get('retry-after'),
  };
}

describe('the transcription engine with the toy model', () => {
  test('a translation is rejected, because the model does not support it', async () => {
    const { status, text } = await transcribe(wav(toneSamples('a')), {}, engine, 'translations');
    assert.equal(status, 400);
    assert.match(text, /transcribes speech and does not translate it/);
  });

  test('tones are recognised as words, in each response format', async () => {
    const file = wav(toneSamples(' ab  a  b '));
    const json = await transcribe(file);
    assert.deepEqual(
      [json.status, JSON.parse(json.text)],
      [200, { text: 'a b a b', language: '' }],
    );
    const text = await transcribe(file, { response_format: 'text' });
    assert.deepEqual([text.type, text.text], ['text/plain; charset=utf-8', 'a b a b']);
    const verbose = JSON.parse(
      (await transcribe(file, { response_format: 'verbose_json', language: 'en' })).text,
    );
    assert.deepEqual([verbose.task, verbose.duration, verbose.language], ['transcribe', 8, 'en']);
    assert.deepEqual(
      verbose.segments.map((one: { text: string }) => one.text),
      ['a b', 'a', 'b'],
    );
    assert.ok(Math.abs(verbose.segments[1].start - 4) < 0.25, JSON.stringify(verbose.segments));
  });

  test('the sound of a video is recognised', async () => {
    const media = await Media.open({ searchPath: '', log: silentLog, clock: systemClock() });
    writeFileSync(at('speech.wav'), wav(toneSamples('a b a')));
    writeFileSync(at('face.png'), await sharp(Buffer.from(portraitSvg())).png().toBuffer());
    const size = { width: 64, height: 64, seconds: 3.5, framesPerSecond: 4, move: 'in' } as const;
    await media.stillToVideo(
      {
        imagePath: at('face.png'),
        audioPath: at('speech.wav'),
        outputPath: at('film.mp4'),
        ...size,
      },
      { signal: new AbortController().signal },
    );
    const { readFileSync } = await import('node:fs');
    const answer = await transcribe(readFileSync(at('film.mp4')));
    assert.deepEqual(JSON.parse(answer.text), { text: 'a b a', language: '' });
  });

  test('silence is an empty transcript, and invalid media is rejected with 4xx', async () => {
    assert.deepEqual(JSON.parse((await transcribe(wav(Buffer.alloc(64_000)))).text), {
      text: '',
      language: '',
    });
    assert.equal((await transcribe(Buffer.from('certainly no sound'))).status, 400);
    assert.equal((await transcribe(wav(Buffer.alloc(0)))).status, 400);
    assert.equal((await transcribe(wav(toneSamples('a')), { response_format: 'srt' })).status, 400);
    assert.equal(
      (await transcribe(wav(toneSamples('a')), { language: 'English, please' })).status,
      400,
    );
  });

  test('words have times if they are requested', async () => {
    const form = { response_format: 'verbose_json', 'timestamp_granularities[]': 'word' };
    const { status, text } = await transcribe(wav(toneSamples(' ab a b')), form);
    assert.equal(status, 200);
    const { words } = JSON.parse(text) as { words: Word[] };
    assert.deepEqual(
      words.map(({ word }) => word),
      ['a', 'b', 'a', 'b'],
    );
    // Half a second of each tone, a second of each pause.
    for (const [index, start] of [1, 1.5, 3, 4.5].entries()) {
      const { start: found, end } = words[index]!;
      assert.ok(Math.abs(found - start) < 0.35 && end > found, text);
    }
  });
});

describe('a fetched model', () => {
  test('the engine responds 503 during the fetch, and reports a failed one', async () => {
    const gate = Promise.withResolvers<void>();
    const files: string[] = [];
    const fetched = engineWith({
      fetchModel: async (file, onProgress) => {
        files.push(file.name);
        onProgress({ bytesDone: file.sizeBytes / 2, bytesPerSecond: 1 });
        await gate.promise;
        throw new Error('the mirror is gone');
      },
    });
    try {
      const early = await transcribe(wav(toneSamples('a')), {}, fetched);
      assert.equal(early.status, 503);
      assert.match(early.text, /being downloaded/);
      assert.ok(Number(early.retryAfter) >= 1);
      await until(() => files.length > 0, 'the fetch');
      assert.equal(fetched.modelOutage()?.reason, 'is being downloaded: 9 %');
      gate.resolve();
      const hasFailed = () => fetched.modelOutage()?.reason.startsWith('could not') === true;
      await until(hasFailed, 'the end of the fetch');
    } finally {
      await fetched.close();
    }
  });
});

describe('speechRanges()', () => {
  async function rangesOf(pcm: Buffer, maxSeconds = 28): Promise<[number, number][]> {
    writeFileSync(at('ranges.pcm'), pcm);
    const file = await open(at('ranges.pcm'), 'r');
    try {
      const ranges = await speechRanges(file, pcm.length / 2, maxSeconds);
      return ranges.map(({ start, end }) => [start / 16_000, end / 16_000]);
    } finally {
      await file.close();
    }
  }

  test('ranges louder than the noise are found, with a margin', async () => {
    const [first, second, ...more] = await rangesOf(toneSamples(' aa  b ', 0.5));
    assert.deepEqual(more, []);
    assert.deepEqual(
      [first, second],
      [
        [0.8, 2.2],
        [3.8, 4.7],
      ],
    );
  });

  test('a pause of a second does not end a range', async () => {
    const gap = Buffer.alloc(1.1 * 32_000);
    assert.equal(
      (await rangesOf(Buffer.concat([toneSamples('a'), gap, toneSamples('a')]))).length,
      1,
    );
  });

  test('speech without a pause is cut to the maximum length without a gap', async () => {
    const ranges = await rangesOf(toneSamples('a'.repeat(20)), 3);
    assert.ok(ranges.every(([start, end]) => end - start <= 3));
    assert.equal(ranges[0]![0], 0);
    assert.equal(ranges.at(-1)![1], 10);
    for (let i = 1; i < ranges.length; i += 1) assert.equal(ranges[i]![0], ranges[i - 1]![1]);
  });
});
