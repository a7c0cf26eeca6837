/**
 * The embedded voice with a real model: time to the first sound of a text, and time per second of
 * speech. Set `VOICE` to the `.onnx` file of a Piper voice for American English.
 *
 * Run: VOICE=en_US-joe-medium.onnx node bench/voice.ts
 */
import { resolve } from 'node:path';
import { startFarebox } from '../test/e2e/farebox-process.ts';
import { toySpeech } from '../test/media/clips.ts';
import { until } from '../test/support/until.ts';
import { voiceName } from '../src/engines/embedded/programs.ts';
import { median, stopAll, temporaryFolder } from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '9');
/** The voice has samples of two bytes. */
const BYTES_PER_SECOND = 24_000 * 2;
const TEXTS = {
  'a short sentence': 'Good morning, and welcome.',
  'a paragraph':
    'The lighthouse keeper climbed 214 steps at 6:30 every evening. He lit the lamp, wrote the date in his book, and looked for ships until midnight. On some nights there were none.',
};

const model = process.env['VOICE'];
if (model === undefined) throw new Error('Set VOICE to the .onnx file of a Piper voice');
const voice = voiceName(model);
const folder = temporaryFolder();
const farebox = await startFarebox({
  folder,
  uncheckedResponses: true,
  quiet: true,
  yaml: `listen: { host: 127.0.0.1, port: 0 }
embedded: { download: false }
discovery: { enabled: false }
log: { level: silent }
media: { ${await toySpeech(folder)}, voiceModel: ${JSON.stringify(resolve(model))} }
limits: { starterCreditUsd: 1000, plans: { staff: { audio: 1000 } } }
`,
});

async function speak(input: string, format: string) {
  const from = performance.now();
  const response = await fetch(`${farebox.url}/audio/speech`, {
    method: 'POST',
    headers: { authorization: `Bearer ${farebox.secret}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'farebox-voice', voice, input, response_format: format }),
  });
  if (response.status !== 200) return undefined;
  let firstMs: number | undefined;
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    firstMs ??= performance.now() - from;
    bytes += chunk.length;
  }
  return { firstMs: firstMs ?? 0, ms: performance.now() - from, bytes };
}

try {
  await until(
    async () => (await speak('Hello.', 'pcm')) !== undefined,
    'that the voice speaks',
    500,
  );
  console.log('text               format   first sound   all       seconds of speech');
  for (const [name, text] of Object.entries(TEXTS)) {
    const seconds = ((await speak(text, 'pcm'))?.bytes ?? 0) / BYTES_PER_SECOND;
    for (const format of ['pcm', 'mp3', 'opus']) {
      const runs = [];
      for (let round = 0; round < ROUNDS; round += 1) runs.push((await speak(text, format))!);
      const [first, all] = [runs.map(({ firstMs }) => firstMs), runs.map(({ ms }) => ms)].map(
        median,
      );
      const figures = [`${first?.toFixed(0)} ms`.padEnd(14), `${all?.toFixed(0)} ms`.padEnd(10)];
      console.log(`${name.padEnd(19)}${format.padEnd(9)}${figures.join('')}${seconds.toFixed(1)}`);
    }
  }
} finally {
  await farebox.stop();
  await stopAll();
}
