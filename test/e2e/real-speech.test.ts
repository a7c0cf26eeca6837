/** Transcription with a real model and a real recording, from outside. */
import assert from 'node:assert/strict';
import { createReadStream, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { RECORDED_TEXT, moonshineModel, recordingPath } from '../media/real-speech.ts';
import { until } from '../support/until.ts';

const MODEL = 'farebox-transcription';
const folder = mkdtempSync(join(tmpdir(), 'farebox-real-speech-'));
let farebox: TestApp;
let client: OpenAI;
let recording: string;

before(async () => {
  recording = await recordingPath();
  const speechModel = JSON.stringify(await moonshineModel(folder));
  farebox = await startTestApp({ media: true, yaml: `media: { speechModel: ${speechModel} }` });
  await until(() => farebox.app.catalog.get(MODEL) !== undefined, 'that the engine is up');
  client = new OpenAI({ baseURL: farebox.url, apiKey: farebox.owner.secret, maxRetries: 0 });
});
after(async () => {
  await farebox?.audit();
  await farebox?.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** Words that the other text does not have at their place; a wrong word does not move the next ones. */
function wrongWords(text: string, expected: string): [string, string | undefined][] {
  const wordsOf = (of: string): string[] => of.toLowerCase().match(/[a-z']+/g) ?? [];
  const found = wordsOf(text);
  return wordsOf(expected).flatMap((word, at) => (found[at] === word ? [] : [[word, found[at]]]));
}

test('the words of a recording are recognised, with the times of its segments', async () => {
  const file = createReadStream(recording);
  const order = { file, model: MODEL, response_format: 'verbose_json' } as const;
  const { text, duration, segments = [] } = await client.audio.transcriptions.create(order);
  // Other processors round differently.
  const wrong = wrongWords(text, RECORDED_TEXT);
  assert.ok(wrong.length <= 1, JSON.stringify(wrong));
  assert.equal(Math.round(duration), 11);
  assert.ok(segments.length > 0 && segments.every(({ start, end }) => start < end && end <= 11.1));
});

test('a request for the times of words is rejected, because Moonshine has none', async () => {
  const file = createReadStream(recording);
  const order = { file, model: MODEL, response_format: 'verbose_json' } as const;
  await assert.rejects(
    client.audio.transcriptions.create({ ...order, timestamp_granularities: ['word'] }),
    /does not return times of words/,
  );
});
