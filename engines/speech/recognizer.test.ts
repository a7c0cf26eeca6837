import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { JobQueue, type Turn } from '../../src/core/job-queue.ts';
import { toneSamples } from '../../test/support/engine-fixtures.ts';
import { until } from '../../test/support/until.ts';
import {
  type RecognitionOptions,
  Recognizer,
  type Segment,
  type Sherpa,
  type Turns,
} from './recognizer.ts';

const folder = mkdtempSync(join(tmpdir(), 'recognizer-'));
after(() => rmSync(folder, { recursive: true }));

const { signal } = new AbortController();
const options = { language: '', task: 'transcribe' } as const;
const words = { text: ' Some words. ' };

interface FakeParts {
  readonly kind?: 'whisper' | 'moonshine';
  readonly accept?: (seconds: number) => unknown;
  readonly decode?: (seconds: number) => Promise<object>;
  readonly setConfig?: (config: { modelConfig: { whisper: RecognitionOptions } }) => unknown;
  /** If it is missing, speech is detected by loudness. */
  readonly Vad?: unknown;
  readonly cpuMs?: () => number;
}

function recognizerWith(parts: FakeParts): Promise<Recognizer> {
  const { kind = 'whisper', accept, decode, setConfig, Vad, cpuMs = () => 0 } = parts;
  const native = {
    createStream: () => ({
      seconds: 0,
      acceptWaveform({ samples }: { samples: Float32Array }) {
        this.seconds = samples.length / 16_000;
        accept?.(this.seconds);
      },
    }),
    decodeAsync: ({ seconds }: { seconds: number }) => decode?.(seconds) ?? Promise.resolve(words),
    setConfig: (config: { modelConfig: { whisper: RecognitionOptions } }) => setConfig?.(config),
  };
  const sherpa = { OfflineRecognizer: { createAsync: () => Promise.resolve(native) }, Vad };
  return Recognizer.load(sherpa as unknown as Sherpa, {
    model: { kind, encoder: 'e', decoder: 'd', tokens: 't' },
    threads: 1,
    vadPath: Vad === undefined ? undefined : 'vad',
    cpuMs,
  });
}

async function recognize(
  recognizer: Recognizer,
  pcm: Buffer,
  turns: Turns,
  { onSegment, ...given }: Partial<RecognitionOptions> & { onSegment?: () => unknown } = {},
): Promise<Segment[]> {
  const path = join(folder, `${Math.random()}.pcm`);
  writeFileSync(path, pcm);
  const file = await open(path);
  try {
    return await recognizer.recognizeFile(file, { ...options, ...given }, turns, onSegment);
  } finally {
    await file.close();
  }
}

function sameTurns(turn: Turn): Turns {
  return { short: turn, long: turn };
}

const atOnce = sameTurns((work) => work());

/** A turn for each of the two lengths, as in the engine. */
function twoQueues(): (caller: string) => Turns {
  const limits = { running: 1, waiting: 1, retryAfterSeconds: 1 };
  const [short, long] = [new JobQueue(limits), new JobQueue(limits)];
  return (caller) => ({
    short: short.turnsOf(caller, signal),
    long: long.turnsOf(caller, signal),
  });
}

test('the task is set only when it changes', async () => {
  const tasks: string[] = [];
  const recognizer = await recognizerWith({
    setConfig: ({ modelConfig }) => tasks.push(modelConfig.whisper.task),
  });
  for (const task of ['transcribe', 'translate', 'translate', 'transcribe'] as const) {
    const [segment] = await recognize(recognizer, toneSamples('a b'), atOnce, { task });
    assert.equal(segment?.text, 'Some words.');
  }
  assert.deepEqual(tasks, ['translate', 'transcribe']);
});

test('a Whisper model rejects a request for times of words', async () => {
  const recognizer = await recognizerWith({});
  assert.throws(
    () => recognizer.requireSupported({ ...options, needsWords: true }),
    /The model has no times of words/,
  );
});

describe('a short recording beside a long one', () => {
  const SHORT = toneSamples('b');
  const LONG = toneSamples('a  '.repeat(20));

  test('ends while a step of the long recording runs', async () => {
    const step = Promise.withResolvers<void>();
    const decodes: number[] = [];
    const recognizer = await recognizerWith({
      decode: async (seconds) => {
        decodes.push(seconds);
        if (decodes.length === 1) await step.promise;
        return words;
      },
    });
    const turnsOf = twoQueues();
    const order: string[] = [];
    const long = recognize(recognizer, LONG, turnsOf('long'), {
      onSegment: () => order.push('long'),
    });
    await until(() => decodes.length === 1, 'the first step of the long recording');
    const [segment] = await recognize(recognizer, SHORT, turnsOf('short'));
    assert.equal(segment?.text, 'Some words.');
    assert.deepEqual(order, []);
    step.resolve();
    assert.equal((await long).length, 20);
  });

  test('waits for the step if the language is another', async () => {
    const step = Promise.withResolvers<void>();
    let [accepted, running] = [0, 0];
    const languages: string[] = [];
    const recognizer = await recognizerWith({
      accept: () => (accepted += 1),
      decode: async () => {
        running += 1;
        if (accepted <= 2) await step.promise;
        running -= 1;
        return words;
      },
      setConfig: ({ modelConfig }) => {
        assert.equal(running, 0, 'the configuration changed while a decode ran');
        languages.push(modelConfig.whisper.language);
      },
    });
    const turnsOf = twoQueues();
    const order: string[] = [];
    const run = (caller: string, pcm: Buffer, language: string): Promise<Segment[]> =>
      recognize(recognizer, pcm, turnsOf(caller), {
        language,
        onSegment: () => order.push(caller),
      });
    const long = run('long', LONG, '');
    await until(() => running === 1, 'the first step of the long recording');
    const short = run('short', SHORT, 'de');
    await until(() => accepted === 2, 'the sound of the short recording');
    step.resolve();
    assert.equal((await short)[0]?.language, 'de');
    assert.ok(order.indexOf('short') <= 1, order.join());
    assert.equal((await long).length, 20);
    assert.deepEqual(languages, ['de', '']);
  });

  test('is recognised beside it with another language if the model has one', async () => {
    const step = Promise.withResolvers<void>();
    let accepted = 0;
    const recognizer = await recognizerWith({
      kind: 'moonshine',
      accept: () => (accepted += 1),
      decode: async () => {
        if (accepted === 1) await step.promise;
        return words;
      },
      setConfig: () => assert.fail('the model has no options'),
    });
    const turnsOf = twoQueues();
    const long = recognize(recognizer, LONG, turnsOf('long'));
    await until(() => accepted === 1, 'the first step of the long recording');
    await recognize(recognizer, SHORT, turnsOf('short'), { language: 'en' });
    step.resolve();
    await long;
  });
});

describe('turns of recordings', () => {
  test('a recording is recognised between the steps of another one', async () => {
    const gate = Promise.withResolvers<void>();
    const recognizer = await recognizerWith({
      decode: async () => {
        await gate.promise;
        return words;
      },
    });
    const queue = new JobQueue({ running: 1, waiting: 1, retryAfterSeconds: 1 });
    const order: string[] = [];
    const run = (caller: string, letters: string): Promise<Segment[]> =>
      recognize(recognizer, toneSamples(letters), sameTurns(queue.turnsOf(caller, signal)), {
        onSegment: () => order.push(caller),
      });
    const long = run('long', 'a  '.repeat(20));
    await until(() => !queue.hasRoom('', 2), 'the first step of the long recording');
    const short = run('short', 'b');
    await until(() => !queue.hasRoom(), 'the short recording in the queue');
    gate.resolve();
    await Promise.all([long, short]);
    assert.equal(order.length, 21);
    assert.equal(order.indexOf('short'), 1, order.join());
  });

  for (const { speed, ms } of [
    { speed: 'a fast core', ms: 20 },
    { speed: 'a slow core', ms: 150 },
    { speed: 'half the speed of a slow core', ms: 300 },
  ]) {
    test(`a turn has less than 2 seconds of work on ${speed}`, async () => {
      let spentMs = 0;
      const recognizer = await recognizerWith({
        decode: (seconds) => {
          spentMs += seconds * ms;
          return Promise.resolve(words);
        },
        cpuMs: () => spentMs,
      });
      const turnsMs: number[] = [];
      const turns = sameTurns(async (work) => {
        const fromMs = spentMs;
        const result = await work();
        turnsMs.push(spentMs - fromMs);
        return result;
      });
      // Speech without a pause: ranges have the maximum length.
      const segments = await recognize(recognizer, toneSamples('ab'.repeat(100)), turns);
      for (const [index, { start }] of segments.entries()) {
        assert.equal(start, index === 0 ? 0 : segments[index - 1]!.end);
      }
      assert.equal(segments.at(-1)?.end, 100);
      assert.ok(Math.max(...turnsMs) < 2_000, turnsMs.join());
      // A fast core has few turns, because a model needs the context of many words.
      assert.ok(turnsMs.length <= 100_000 / Math.min(28_000, 500_000 / ms) + 4, turnsMs.join());
    });
  }

  test('the length of a step follows its own work if another decode runs beside it', async () => {
    let [spentMs, besideMs] = [0, 0];
    const step = Promise.withResolvers<void>();
    const lengths: number[] = [];
    const recognizer = await recognizerWith({
      decode: async (seconds) => {
        const workMs = seconds * 100;
        const decodes = lengths.push(Math.round(seconds));
        if (decodes === 2) {
          // The second step ends after the short recording; until then, both have had equal work.
          await step.promise;
          spentMs += workMs - besideMs;
        } else if (decodes === 3) {
          besideMs = workMs;
          spentMs += 2 * workMs;
        } else spentMs += workMs;
        return words;
      },
      cpuMs: () => spentMs,
    });
    const turnsOf = twoQueues();
    const long = recognize(recognizer, toneSamples('ab'.repeat(60)), turnsOf('long'));
    await until(() => lengths.length === 2, 'the second step');
    await recognize(recognizer, toneSamples('ab'.repeat(4)), turnsOf('short'));
    step.resolve();
    await long;
    // A second of work is 10 seconds of sound.
    const [, , short, ...rest] = lengths;
    assert.deepEqual([short, Math.max(...rest)], [4, 10]);
  });

  test('a turn has at most 30 seconds of audio', async () => {
    let audio = 0;
    const found: { start: number; samples: Float32Array }[] = [];
    class Vad {
      #at = 0;
      acceptWaveform(samples: Float32Array): void {
        audio += samples.length;
        this.#at += samples.length;
        // Speech without a pause, cut at the maximum length of the model.
        if (this.#at % (28 * 16_000) < samples.length) this.flush();
      }
      isEmpty(): boolean {
        return found.length === 0;
      }
      front() {
        return found[0]!;
      }
      pop(): void {
        found.shift();
      }
      flush(): void {
        const start = Math.max(0, this.#at - 28 * 16_000);
        found.push({ start, samples: new Float32Array(this.#at - start) });
      }
    }
    const accept = (seconds: number): unknown => (audio += seconds * 16_000);
    const recognizer = await recognizerWith({ accept, Vad });
    const lengths: number[] = [];
    const turns = sameTurns(async (work) => {
      audio = 0;
      const result = await work();
      lengths.push(audio / 16_000);
      return result;
    });
    const segments = await recognize(recognizer, Buffer.alloc(130 * 32_000), turns);
    assert.ok(segments.length >= 4);
    assert.ok(lengths.length >= 9, lengths.join());
    assert.ok(Math.max(...lengths) <= 30, lengths.join());
  });
});
