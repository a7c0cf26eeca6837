/** Embeddings in both encodings, whole and in batches. */
import { floatsToBase64 } from '../core/vectors.ts';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../core/faults.ts';
import {
  engineEmbeddings,
  parseEmbeddingsRequest,
  type EmbeddingsRequest,
} from './embeddings-request.ts';
import {
  base64ToFloats,
  joinEmbeddings,
  embeddingsEnd,
  type EmbeddingsEnd,
  type EngineEmbeddings,
  readEmbeddings,
  type VectorFormat,
  vectorPieces,
} from './embeddings-response.ts';

type EmbeddingsFrame = VectorFormat & EmbeddingsEnd;

const FRAME: EmbeddingsFrame = {
  model: 'shown',
  encoding: 'float',
  dimensions: undefined,
  promptTokens: 4,
  cost: { usd: 0.1, diem: 0 },
};

/** The caller's body in one buffer. */
function writeEmbeddings(embeddings: EngineEmbeddings, frame: EmbeddingsFrame): Buffer {
  return Buffer.concat([...vectorPieces(embeddings, frame), embeddingsEnd(frame)]);
}

function parse(input: unknown, more: object = {}): EmbeddingsRequest {
  return parseEmbeddingsRequest(Buffer.from(JSON.stringify({ input, model: 'e', ...more })));
}

function refusal(input: unknown, more: object = {}): string {
  try {
    parse(input, more);
  } catch (error) {
    assert.ok(error instanceof Fault);
    return `${error.code} ${error.message}`;
  }
  return 'taken';
}

function engineResponse(
  embeddings: readonly unknown[],
  indexes = embeddings.map((_, at) => at),
): Buffer {
  const data = embeddings.map((embedding, at) => ({
    object: 'embedding',
    index: indexes[at],
    embedding,
  }));
  return Buffer.from(
    JSON.stringify({
      object: 'list',
      data,
      model: 'up',
      usage: { prompt_tokens: 2, total_tokens: 2 },
    }),
  );
}

async function written(
  bytes: Buffer,
  count: number,
  frame: Partial<EmbeddingsFrame> = {},
): Promise<{ data: { index: number; embedding: unknown }[]; [key: string]: unknown }> {
  return JSON.parse(
    writeEmbeddings(await readEmbeddings(bytes, count), { ...FRAME, ...frame }).toString(),
  );
}

test('all four kinds of input are valid', () => {
  assert.deepEqual(parse('a').inputs, ['a']);
  assert.deepEqual(parse(['a', 'bä']).inputs, ['a', 'bä']);
  assert.equal(parse(['a', 'bä']).textBytes, 4);
  assert.deepEqual(parse([1, 2]).inputs, [[1, 2]]);
  assert.deepEqual(parse([[1], [2, 3]]).inputs, [[1], [2, 3]]);
  assert.equal(parse([[1], [2, 3]]).tokenIdCount, 3);
  assert.equal(
    parse('a', { encoding_format: null, dimensions: null, user: null }).encoding,
    'float',
  );
});

test('empty, too long, too many and invalid inputs are rejected', () => {
  for (const input of [
    '',
    [],
    [''],
    [[]],
    ['a', ''],
    5,
    null,
    undefined,
    [1, 'a'],
    ['a', 1],
    [-1],
    [1.5],
    [[1], 2],
    {},
  ]) {
    assert.match(refusal(input), /^INVALID_REQUEST input/, JSON.stringify(input));
  }
  assert.match(refusal(Array.from({ length: 2049 }, () => 'a')), /2048/);
  assert.equal(refusal(Array.from({ length: 2048 }, () => 'a')), 'taken');
  // 8192 tokens of 128 bytes: a shorter text is counted later, by the tokenizer.
  assert.equal(refusal('a'.repeat(1_048_576)), 'taken');
  assert.match(refusal(['a', 'a'.repeat(1_048_577)]), /^TOO_MANY_TOKENS Input 1 /);
  assert.equal(refusal(Array.from({ length: 8192 }, () => 1)), 'taken');
  assert.match(refusal(Array.from({ length: 8193 }, () => 1)), /^TOO_MANY_TOKENS/);
  assert.match(refusal('a', { dimensions: 0 }), /dimensions/);
  assert.match(refusal('a', { encoding_format: 'int8' }), /encoding_format/);
  assert.match(refusal('a', { model: undefined }), /model/);
});

test('the engine receives its model name without `user` and `dimensions`; the input keeps its bytes', () => {
  const text =
    '{"input":[ "caf\\u00e9" ],"model":"e","user":"u","dimensions":3,"fallbacks":["x"],"priority":-9}';
  const [batch] = engineEmbeddings(parseEmbeddingsRequest(Buffer.from(text)), {
    model: 'engine-e',
    encoding: 'float',
    maxBatch: 2048,
  });
  assert.equal(batch?.count, 1);
  assert.ok(batch.body.includes('[ "caf\\u00e9" ]'));
  assert.deepEqual(JSON.parse(batch.body.toString()), {
    input: ['café'],
    model: 'engine-e',
    encoding_format: 'float',
  });
});

test('batches contain every input once, in order', () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 20 }),
      fc.integer({ min: 1, max: 7 }),
      (inputs, maxBatch) => {
        const batches = engineEmbeddings(parse(inputs), {
          model: 'engine-e',
          encoding: 'float',
          maxBatch,
        });
        const sent = batches.map((batch) => JSON.parse(batch.body.toString()).input as string[]);
        assert.deepEqual(sent.flat(), JSON.parse(JSON.stringify(inputs)));
        assert.deepEqual(
          sent.map((input) => input.length),
          batches.map((batch) => batch.count),
        );
        assert.ok(sent.every((input) => input.length <= maxBatch));
      },
    ),
  );
});

test('floats and base64 convert without loss', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.float32Array({ minLength: 1, noNaN: true, noDefaultInfinity: true }),
      async (values) => {
        assert.deepEqual(base64ToFloats(floatsToBase64(values)), values);
        const asFloats = await written(engineResponse([floatsToBase64(values)]), 1);
        assert.deepEqual(
          Float32Array.from(asFloats.data[0]?.embedding as number[]).map((v) => v + 0),
          values.map((v) => v + 0),
        );
        const plain = [...values].map((value) => value + 0);
        const asBase64 = await written(engineResponse([plain]), 1, { encoding: 'base64' });
        assert.deepEqual(
          base64ToFloats(asBase64.data[0]?.embedding as string).map((v) => v + 0),
          values.map((v) => v + 0),
        );
      },
    ),
  );
  assert.equal(floatsToBase64(new Float32Array([1])), 'AACAPw==');
});

test('a vector in the requested encoding keeps its bytes', async () => {
  const bytes = Buffer.from('{"data":[{"embedding":[ 1.50,-2E-3 ],"index":0}]}');
  const shown = writeEmbeddings(await readEmbeddings(bytes, 1), FRAME).toString();
  assert.ok(shown.includes('"embedding":[ 1.50,-2E-3 ]'));
  assert.deepEqual(JSON.parse(shown), {
    object: 'list',
    data: [{ object: 'embedding', index: 0, embedding: [1.5, -0.002] }],
    model: 'shown',
    usage: { prompt_tokens: 4, total_tokens: 4 },
    cost: { usd: 0.1, diem: 0 },
  });
});

test('vectors are ordered within a response and across batches', async () => {
  const first = await readEmbeddings(engineResponse([[2], [1]], [1, 0]), 2);
  const second = await readEmbeddings(engineResponse([[3]]), 1);
  const joined = joinEmbeddings([first, second]);
  assert.equal(joined.promptTokens, 4);
  const body = JSON.parse(writeEmbeddings(joined, FRAME).toString());
  assert.deepEqual(
    body.data.map((item: { index: number; embedding: number[] }) => [
      item.index,
      item.embedding[0],
    ]),
    [
      [0, 1],
      [1, 2],
      [2, 3],
    ],
  );
});

test('`dimensions` truncates a vector and scales it to length 1', async () => {
  const body = await written(engineResponse([[3, 4, 12]]), 1, { dimensions: 2 });
  const [x, y] = body.data[0]!.embedding as number[];
  assert.ok(Math.abs((x ?? 0) - 0.6) < 1e-6 && Math.abs((y ?? 0) - 0.8) < 1e-6);
  const whole = await written(engineResponse([[3, 4]]), 1, { dimensions: 2 });
  assert.deepEqual(whole.data[0]?.embedding, [3, 4]);
});

test('a response that does not match the inputs is INFERENCE_FAILED', async () => {
  const bad = [
    '',
    'x',
    '{}',
    '{"data":[]}',
    '{"data":[{"index":0}]}',
    '{"data":[{"embedding":["a"],"index":0}]}',
    '{"data":[{"embedding":[null],"index":0}]}',
    '{"data":[{"embedding":"!!","index":0}]}',
    '{"data":[{"embedding":"QQ==","index":0}]}',
    '{"data":[{"embedding":[1],"index":1}]}',
    '{"data":[{"embedding":[],"index":0}]}',
    '{"data":[1]}',
    '{"data":[{"embedding":[1],"index":0},{"embedding":[1],"index":0}]}',
  ];
  for (const text of bad) {
    const reading = readEmbeddings(Buffer.from(text), 1);
    await assert.rejects(reading, { code: 'INFERENCE_FAILED' }, text);
  }
});

test('a response without usage reports none', async () => {
  const { promptTokens } = await readEmbeddings(Buffer.from('{"data":[{"embedding":[1]}]}'), 1);
  assert.equal(promptTokens, undefined);
});

test('a vector contains float32 numbers and has the declared length', async () => {
  const read = async (vectors: readonly string[], dimensions?: number) => {
    const data = vectors.map((vector, index) => `{"index":${index},"embedding":${vector}}`);
    try {
      const bytes = Buffer.from(`{"data":[${data.join(',')}]}`);
      const embeddings = await readEmbeddings(bytes, vectors.length, dimensions);
      return embeddings.vectors.map(({ length }) => length);
    } catch (error) {
      assert.ok(error instanceof Fault && error.code === 'INFERENCE_FAILED', String(error));
      return undefined;
    }
  };
  assert.deepEqual(await read(['[1,2]', `"${floatsToBase64(Float32Array.of(3, 4))}"`]), [2, 2]);
  assert.equal(await read(['[1,2]', '[1,2,3]']), undefined);
  assert.equal(await read(['[1,2]'], 3), undefined);
  const pieces = fc.constantFrom('1', '0', '9', '-', '+', '.', 'e', 'E', ',', ' ', '1e38', '4e38');
  await fc.assert(
    fc.asyncProperty(fc.array(pieces, { minLength: 1, maxLength: 12 }), async (parts) => {
      const text = `[${parts.join('')}]`;
      let parsed: number[] | undefined;
      try {
        parsed = JSON.parse(text) as number[];
      } catch {
        // No JSON: no vector either.
      }
      const isVector = parsed?.every((value) => Number.isFinite(Math.fround(value))) ?? false;
      const length = isVector && parsed !== undefined && parsed.length > 0 ? parsed.length : 0;
      assert.deepEqual(await read([text]), length === 0 ? undefined : [length], text);
    }),
    { numRuns: 5_000 },
  );
});

test('reading a large response does not block the event loop', async () => {
  const vector = Array.from({ length: 4_096 }, (_, at) => at / 7);
  const bytes = engineResponse(Array.from({ length: 256 }, () => vector));
  let turns = 0;
  let isRead = false;
  const count = (): void => {
    if (isRead) return;
    turns += 1;
    setImmediate(count);
  };
  setImmediate(count);
  const read = await readEmbeddings(bytes, 256, 4_096);
  isRead = true;
  assert.equal(read.vectors.length, 256);
  assert.ok(turns >= bytes.length / 1_000_000, `${turns} turns for ${bytes.length} bytes`);
  const broken = Buffer.from(bytes);
  broken.write('x', bytes.length - 1_000);
  await assert.rejects(readEmbeddings(broken, 256, 4_096), { code: 'INFERENCE_FAILED' });
});
