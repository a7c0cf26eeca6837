/**
 * Unmodified clients from npm for every kind of model: the AI SDK, LangChain and LlamaIndex. The
 * engine receives their requests, and each of them is charged. `model-kinds.test.ts` has the SDKs
 * of OpenAI and Cohere.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { CohereRerank as LangChainRerank } from '@langchain/cohere';
import { Document } from '@langchain/core/documents';
import { ChatOpenAI, DallEAPIWrapper, OpenAIEmbeddings } from '@langchain/openai';
import { CohereRerank as LlamaRerank } from '@llamaindex/cohere';
import { MetadataMode, TextNode } from '@llamaindex/core/schema';
import { OpenAI as LlamaOpenAI, OpenAIEmbedding } from '@llamaindex/openai';
import { embedMany, generateImage, generateText, transcribe } from 'ai';
import { CohereClient } from 'cohere-ai';
import { sharp } from '../support/sharp.ts';
import { toneWav } from '../media/clips.ts';
import { type ModelFixture, sendEvents, sendJson, startModelFixture } from './model-fixture.ts';

const MODELS = `
  - { id: talker, type: text, context: 4096, maxCompletionTokens: 512, aliases: [gpt-4o-mini], price: { input: 1, output: 2 }, replicas: [{ engine: studio }] }
  - { id: vectors, type: embedding, context: 8192, embedding: { dimensions: 3 }, aliases: [text-embedding-3-small], price: { input: 1 }, replicas: [{ engine: studio }] }
  - { id: painter, type: image, price: { perImage: 0.04 }, image: { edits: true }, replicas: [{ engine: studio }] }
  - { id: ears, type: asr, aliases: [whisper-1], price: { perSecond: 0.001 }, replicas: [{ engine: studio }] }
  - { id: sorter, type: rerank, price: { perSearch: 0.002 }, aliases: [rerank-v3.5], replicas: [{ engine: studio }] }
`;
const TEXTS = ['Cats purr.', 'Spring tides come with the new moon.'];
const QUESTION = 'When are spring tides?';

let fixture: ModelFixture;
let apiKey: string;
let baseURL: string;
let picture: Buffer;

before(async () => {
  fixture = await startModelFixture(MODELS);
  apiKey = fixture.farebox.owner.secret;
  baseURL = fixture.farebox.url;
  picture = await sharp({ create: { width: 64, height: 64, channels: 3, background: '#246' } })
    .png()
    .toBuffer();
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
  fixture.engine.on('/chat/completions', (heard, response) => {
    const message = { role: 'assistant', content: 'Hi there' };
    const choice = { index: 0, finish_reason: 'stop' };
    if (heard.json.stream !== true) {
      return sendJson(response, { choices: [{ ...choice, message }], usage });
    }
    sendEvents(response, [
      { choices: [{ index: 0, delta: message, finish_reason: null }] },
      { choices: [{ ...choice, delta: {} }] },
      { choices: [], usage },
    ]);
  });
  fixture.engine.on('/embeddings', (heard, response) => {
    const inputs: readonly string[] = [heard.json.input].flat();
    const data = inputs.map((_, index) => {
      const vector = Float32Array.of(index + 1, 0.5, 0.25);
      const packed = Buffer.from(vector.buffer).toString('base64');
      const isPacked = heard.json.encoding_format === 'base64';
      return { object: 'embedding', index, embedding: isPacked ? packed : [...vector] };
    });
    sendJson(response, { data, usage: { prompt_tokens: 4, total_tokens: 4 } });
  });
  const made = { data: [{ b64_json: picture.toString('base64') }] };
  fixture.engine.onJson('/images/generations', made);
  fixture.engine.onJson('/images/edits', made);
  fixture.engine.onJson('/audio/transcriptions', {
    text: 'Good morning.',
    language: 'english',
    segments: [{ start: 0, end: 1, text: 'Good morning.' }],
  });
  fixture.engine.onJson('/rerank', {
    results: [
      { index: 1, relevance_score: 0.9 },
      { index: 0, relevance_score: 0.1 },
    ],
  });
});
after(() => fixture.stop());

/** Returns the result of `work` after checking that it cost the given nano-USD. */
async function paid<T>(nano: bigint, work: () => Promise<T>): Promise<T> {
  const { ledger } = fixture.farebox.app.stores;
  const { accountId } = fixture.farebox.owner;
  const before = (await ledger.balances(accountId)).usdNano;
  const done = await work();
  assert.equal(before - (await ledger.balances(accountId)).usdNano, nano);
  return done;
}

const CHAT = 7_000n;
const VECTORS = 4_000n;
const PICTURE = 40_000_000n;
const SECOND = 1_000_000n;
const SEARCH = 2_000_000n;

describe('the AI SDK', () => {
  const provider = () => createOpenAICompatible({ name: 'farebox', baseURL, apiKey });

  test('the AI SDK generates and edits images', async () => {
    const model = provider().imageModel('painter');
    const { image } = await paid(PICTURE, () => generateImage({ model, prompt: 'A lighthouse' }));
    assert.deepEqual(Buffer.from(image.uint8Array), picture);
    const prompt = { text: 'Add a lighthouse', images: [picture] };
    const edited = await paid(PICTURE, () => generateImage({ model, prompt }));
    assert.deepEqual(Buffer.from(edited.image.uint8Array), picture);
  });

  test('embeds several texts', async () => {
    const model = provider().embeddingModel('vectors');
    const { embeddings, usage } = await paid(VECTORS, () => embedMany({ model, values: TEXTS }));
    assert.deepEqual(embeddings[1], [2, 0.5, 0.25]);
    assert.equal(usage.tokens, 4);
  });

  test('transcribes', async () => {
    const model = createOpenAI({ baseURL, apiKey }).transcription('ears');
    const heard = await paid(SECOND, () => transcribe({ model, audio: toneWav('ab') }));
    assert.equal(heard.text, 'Good morning.');
  });

  test('transcribes with times, although the engine reports nothing else', async () => {
    const model = createOpenAI({ baseURL, apiKey }).transcription('whisper-1');
    const heard = await paid(SECOND, () => transcribe({ model, audio: toneWav('ab') }));
    assert.deepEqual(heard.segments, [{ text: 'Good morning.', startSecond: 0, endSecond: 1 }]);
  });

  test('chats', async () => {
    const model = provider().chatModel('talker');
    const { text } = await paid(CHAT, () => generateText({ model, prompt: 'Hello' }));
    assert.equal(text, 'Hi there');
  });
});

describe('LangChain', () => {
  test('chats, and embeds in base64', async () => {
    const configuration = { baseURL };
    const chat = new ChatOpenAI({ model: 'talker', apiKey, configuration });
    const { content } = await paid(CHAT, () => chat.invoke('Hello'));
    assert.equal(content, 'Hi there');
    const model = new OpenAIEmbeddings({ model: 'vectors', apiKey, configuration });
    const vectors = await paid(VECTORS, () => model.embedDocuments(TEXTS));
    assert.deepEqual(vectors[1], [2, 0.5, 0.25]);
  });

  test('a tool that requests a URL generates an image', async () => {
    const tool = new DallEAPIWrapper({ model: 'painter', openAIApiKey: apiKey, baseUrl: baseURL });
    const drawn = await paid(PICTURE, () => tool.invoke('A lighthouse'));
    const shown = await fetch(JSON.stringify(drawn).match(/data:image[^"\\]+/)?.[0] ?? '');
    assert.deepEqual(Buffer.from(await shown.arrayBuffer()), picture);
  });

  test('ranks documents', async () => {
    const client = new CohereClient({
      environment: new URL('..', `${baseURL}/`).href,
      token: apiKey,
    });
    const model = new LangChainRerank({ client, model: 'rerank-v3.5', topN: 1 });
    const documents = TEXTS.map((pageContent) => new Document({ pageContent }));
    const [best, ...others] = await paid(SEARCH, () =>
      model.compressDocuments(documents, QUESTION),
    );
    assert.deepEqual(
      [best?.pageContent, best?.metadata, others],
      [TEXTS[1], { relevanceScore: 0.9 }, []],
    );
  });
});

describe('LlamaIndex', () => {
  test('chats, whole and streamed', async () => {
    const chat = new LlamaOpenAI({ model: 'gpt-4o-mini', apiKey, baseURL });
    const messages = [{ role: 'user', content: 'Hello' }] as const;
    const { message } = await paid(CHAT, () => chat.chat({ messages: [...messages] }));
    assert.equal(message.content, 'Hi there');
    const streamed = await paid(CHAT, async () => {
      let text = '';
      const stream = await chat.chat({ messages: [...messages], stream: true });
      for await (const { delta } of stream) text += delta;
      return text;
    });
    assert.equal(streamed, 'Hi there');
  });

  test('embeds', async () => {
    const model = new OpenAIEmbedding({ model: 'text-embedding-3-small', apiKey, baseURL });
    const vectors = await paid(VECTORS, () => model.getTextEmbeddings([...TEXTS]));
    assert.deepEqual(vectors[1], [2, 0.5, 0.25]);
  });

  test('ranks nodes', async () => {
    const baseUrl = new URL('..', `${baseURL}/`).href;
    const model = new LlamaRerank({ apiKey, baseUrl, model: 'sorter', topN: 2 });
    const nodes = TEXTS.map((text) => ({ node: new TextNode({ text }) }));
    const ranked = await paid(SEARCH, () => model.postprocessNodes(nodes, QUESTION));
    assert.deepEqual(
      ranked.map(({ node, score }) => [node.getContent(MetadataMode.NONE), score]),
      [
        [TEXTS[1], 0.9],
        [TEXTS[0], 0.1],
      ],
    );
  });
});
