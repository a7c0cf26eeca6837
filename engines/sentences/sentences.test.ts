import assert from 'node:assert/strict';
import { constants, getPriority } from 'node:os';
import { after, describe, test } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';
import { nextTurn } from '../../src/core/event-loop.ts';
import { systemIds } from '../../src/core/ids.ts';
import { JobQueue, type Turn } from '../../src/core/job-queue.ts';
import { silentLog } from '../../src/core/log.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import { SentenceModel, windowsOf } from './sentence-model.ts';
import { SENTENCE_DIMENSIONS } from '../../src/engines/embedded/program-contract.ts';
import { sentenceEngine } from '../../src/engines/embedded/programs.ts';
import { useEnginePackages } from '../../test/support/engine-packages.ts';

let encoder: Promise<SentenceModel> | undefined;

function loadEncoder(): Promise<SentenceModel> {
  useEnginePackages('sentences');
  encoder ??= SentenceModel.load();
  return encoder;
}

const engine = sentenceEngine({ log: silentLog, clock: systemClock(), ids: systemIds() });
after(() => engine.close());

interface Answer {
  readonly data: { readonly index: number; readonly embedding: number[] | string }[];
  readonly results: { readonly index: number; readonly relevance_score: number }[];
  readonly usage: { readonly prompt_tokens: number };
}

async function ask(
  body: unknown,
  path = '/v1/embeddings',
  caller = '',
): Promise<{ status: number; said: Answer }> {
  const { url, apiKey } = await engine.address();
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      [CALLER_HEADER]: caller,
    },
    body: JSON.stringify(body),
  });
  return { status: answer.status, said: (await answer.json()) as Answer };
}

async function vectorsOf(input: readonly string[]): Promise<number[][]> {
  const { status, said } = await ask({ input });
  assert.equal(status, 200);
  return said.data.map(({ embedding }) => embedding as number[]);
}

const near = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, index) => sum + value * b[index]!, 0);

/** A sentence, a paraphrase of it, and a different sentence that shares more words. */
const PARAPHRASES = [
  [
    'How do I reset my password?',
    'I forgot my login and need to change it',
    'How do I bake bread?',
  ],
  ['The cat sat on the mat', 'A feline was resting on the rug', 'Stock prices fell sharply'],
  ['He was fired from his job', 'The company let him go', 'He lit a fire in the camp'],
  ['Cheap flights to Paris', 'Low cost airfare to the French capital', 'The history of Paris'],
  ['The doctor prescribed medicine', 'A physician wrote a prescription', 'The lawyer wrote a book'],
  ['It is raining heavily', 'There is a downpour outside', 'The sun is shining'],
  ['My phone battery dies quickly', 'The cell phone holds no charge', 'My phone has a camera'],
  ['She plays the violin', 'She is a musician with a string instrument', 'She plays football'],
  ['The meeting was postponed', 'They delayed the appointment', 'The meeting was productive'],
  ['How tall is Mount Everest?', 'The height of the highest mountain', 'How deep is the ocean?'],
] as const;

/** A question and the document about it. */
const ANSWERS = [
  ['When are the tides highest?', 'Spring tides come when sun and moon pull in one line.'],
  ['I forgot my login', 'To reset your password, open Settings and choose Security.'],
  ['When do I get my money back?', 'Refunds are paid within five business days to your card.'],
  ['How do plants make food?', 'Photosynthesis turns carbon dioxide and water into sugar.'],
  ['Are you open on Christmas?', 'Our office is closed on public holidays.'],
  ['What helps against a headache?', 'Aspirin thins the blood and relieves pain and fever.'],
  ['loan to buy a home', 'A mortgage is a credit that is secured by a house.'],
  ['How does immunisation work?', 'Vaccines train the body to recognise a virus.'],
  ['Why did shares drop?', 'The stock market fell after the bank raised interest rates.'],
  ['How long does delivery take?', 'Shipping to Europe takes three to seven days.'],
] as const;

describe('the sentence encoder', () => {
  test('a paraphrase is closer than a sentence with common words, in at least 8 of 10 cases', async () => {
    const vectors = await vectorsOf(PARAPHRASES.flat());
    const right = PARAPHRASES.filter((_, at) => {
      const [sentence, same, other] = vectors.slice(at * 3, at * 3 + 3);
      return near(sentence!, same!) > near(sentence!, other!);
    });
    assert.ok(right.length >= 8, `${right.length} of 10`);
    for (const vector of vectors) {
      assert.equal(vector.length, SENTENCE_DIMENSIONS);
      assert.ok(Math.abs(near(vector, vector) - 1) < 1e-5);
    }
  });

  test('the mean reciprocal rank of the document about a question is at least 0.85', async () => {
    const documents = ANSWERS.map(([, answer]) => answer);
    let right = 0;
    let reciprocalRanks = 0;
    for (const [place, [query]] of ANSWERS.entries()) {
      const { status, said } = await ask({ query, documents }, '/v1/rerank');
      assert.equal(status, 200);
      assert.deepEqual(
        said.results.map(({ index }) => index).toSorted((a, b) => a - b),
        [...documents.keys()],
      );
      const scores = said.results.map(({ relevance_score: score }) => score);
      assert.deepEqual(
        scores,
        scores.toSorted((a, b) => b - a),
      );
      const rank = said.results.findIndex(({ index }) => index === place) + 1;
      if (rank === 1) right += 1;
      reciprocalRanks += 1 / rank;
    }
    assert.ok(right >= 9, `${right} of 10 have the first rank`);
    const mean = reciprocalRanks / ANSWERS.length;
    assert.ok(mean >= 0.85, `mean reciprocal rank ${mean}`);
    const best = await ask(
      { query: 'tides', documents: ['', 'The tide is out'], top_n: 1 },
      '/v1/rerank',
    );
    assert.deepEqual(
      best.said.results.map(({ index }) => index),
      [1],
    );
    for (const documents of [[], [1], 'a', undefined]) {
      assert.equal((await ask({ query: 'a', documents }, '/v1/rerank')).status, 400);
    }
  });

  test('base64 encodes the same floats, and the usage counts tokens', async () => {
    const floats = await ask({ input: 'the sea and the moon' });
    const packed = await ask({ input: 'the sea and the moon', encoding_format: 'base64' });
    const bytes = Buffer.from(packed.said.data[0]!.embedding as string, 'base64');
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, SENTENCE_DIMENSIONS);
    assert.deepEqual([...values], floats.said.data[0]!.embedding);
    assert.equal(floats.said.usage.prompt_tokens, 5);
  });

  test('callers take turns', async () => {
    const order: string[] = [];
    const of = async (caller: string, texts = 1): Promise<void> => {
      const input = Array.from({ length: texts }, () => 'The cat sat on the mat');
      const { status } = await ask({ input }, '/v1/embeddings', caller);
      assert.equal(status, 200);
      order.push(caller);
    };
    // The other requests arrive while the first one is processed.
    const first = of('many', 64);
    const many = Array.from({ length: 9 }, () => of('many'));
    await Promise.all([first, ...many, of('few')]);
    // In order of arrival it would be the last.
    assert.ok(order.indexOf('few') <= 7, order.join(' '));
    // Other requests do not wait for the end of a long one, which has many turns.
    order.length = 0;
    const long = of('many', 160);
    await of('few');
    assert.deepEqual(order, ['few']);
    await long;
  });

  test('a turn has one window, or several texts of at most 100 characters', async () => {
    const model = await loadEncoder();
    const runs: number[] = [];
    const texts = [...Array.from({ length: 5 }, () => 'x'.repeat(50)), 'y'.repeat(900)];
    await model.embed(texts, (work) => {
      runs.push(0);
      return work();
    });
    // Two turns of two texts, one of the fifth, and two windows of the last one.
    assert.equal(runs.length, 5);
  });

  test('a request that arrives during a turn is in the next turn', async () => {
    const model = await loadEncoder();
    const queue = new JobQueue({ running: 1, waiting: 2 });
    const { signal } = new AbortController();
    const order: string[] = [];
    const turnsOf = (caller: string): Turn => {
      const turn = queue.turnsOf(caller, signal);
      return (work) =>
        turn(() => {
          order.push(caller);
          return work();
        });
    };
    const long = model.embed(
      Array.from({ length: 4 }, () => 'x'.repeat(100)),
      turnsOf('long'),
    );
    // The turns of the event loop in which the server accepts a connection and reads a request.
    const arrive = (turns: number): Promise<unknown> =>
      turns === 0
        ? model.embed(['short'], turnsOf('short'))
        : nextTurn().then(() => arrive(turns - 1));
    await Promise.all([long, arrive(2)]);
    assert.deepEqual(order, ['long', 'short', 'long', 'long', 'long']);
  });

  test('the engine has a lower priority than the server, which would wait for its work', async () => {
    await engine.address();
    assert.ok(getPriority(engine.pid) >= constants.priority.PRIORITY_BELOW_NORMAL);
  });

  test('a long text is encoded completely, and an invalid input is rejected', async () => {
    const tale = 'The harvest was good and the barns were full. '.repeat(30);
    const [plain, turned, again] = await vectorsOf([
      tale,
      `${tale}Then the bank failed and every account was lost. `.repeat(2),
      tale,
    ]);
    assert.ok(near(plain!, again!) > 0.9999);
    assert.ok(near(plain!, turned!) < 0.9999);
    assert.equal((await vectorsOf([' ']))[0]!.length, SENTENCE_DIMENSIONS);
    for (const input of ['', [], [1, 2], undefined])
      assert.equal((await ask({ input })).status, 400);
  });
});

test('`windowsOf` cuts at spaces without losing a word', () => {
  const text = Array.from({ length: 400 }, (_, index) => `word${index}`).join(' ');
  const windows = windowsOf(text);
  assert.ok(windows.length > 1 && windows.every((window) => window.length <= 500));
  assert.equal(windows.join(' '), text);
  assert.deepEqual(
    windowsOf('x'.repeat(1_200)).map((window) => window.length),
    [500, 500, 200],
  );
  assert.deepEqual(windowsOf(''), [' ']);
});
