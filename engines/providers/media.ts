/**
 * Embeddings, reranking, images, speech and transcription of a provider package over the OpenAI API
 * (reranking: as in the Cohere API).
 */
import type { ImageModelV4File, ImageModelV4Result } from '@ai-sdk/provider';
import type { ServerResponse } from 'node:http';
import * as z from 'zod';
import { imageType, sniffMedia } from '../../src/core/media-type.ts';
import { floatsToBase64 } from '../../src/core/vectors.ts';
import type { JsonObject } from '../../src/json/json-scan.ts';
import { fieldsIn, missingFile, readJson, readUpload } from '../server/request-body.ts';
import { type EngineRequest, sendBytes, sendJson, writeEvent } from '../server/server.ts';
import type { Provider } from './provider.ts';

const MAX_JSON_BYTES = 64_000_000;
const MAX_FILE_BYTES = 100_000_000;
const MAX_IMAGES = 17;
const USUAL_BATCH = 2_048;
const SIZE = /^\d{1,5}x\d{1,5}$/;

const Text = z.string().min(1);
const EmbedBody = z.object({
  model: Text,
  input: z.union([Text, z.array(z.string()).min(1)], 'Must be a text or a list of texts'),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).nullish(),
  input_type: z.string().nullish(),
});
const RerankBody = z.object({
  model: Text,
  query: Text,
  documents: z.array(z.string()).min(1),
  top_n: z.int().min(1).nullish(),
});
const ImageFields = z.object({
  model: Text,
  prompt: z.string(),
  n: z.coerce.number().int().min(1).max(16).default(1),
  size: z.string().nullish(),
  aspect_ratio: z
    .string()
    .regex(/^\d{1,3}:\d{1,3}$/)
    .nullish(),
  seed: z.coerce.number().nullish(),
  quality: z.string().nullish(),
  background: z.string().nullish(),
  output_format: z.string().nullish(),
  negative_prompt: z.string().nullish(),
  guidance_scale: z.coerce.number().nullish(),
  stream: z.literal(false, 'The provider does not support "stream"; omit it').nullish(),
});
const SpeechBody = z.object({
  model: Text,
  input: Text,
  voice: z.string().nullish(),
  response_format: z.string().nullish(),
  speed: z.number().nullish(),
  instructions: z.string().nullish(),
  language: z.string().nullish(),
});
const TranscriptionFields = z.object({
  model: Text,
  language: z.string().optional(),
  prompt: z.string().optional(),
  temperature: z.coerce.number().optional(),
  response_format: z.enum(['json', 'text', 'verbose_json']).default('json'),
  stream: z.enum(['true', 'false']).default('false'),
  // The last of repeated fields counts; clients that request words send `word` last.
  'timestamp_granularities[]': z.enum(['segment', 'word']).optional(),
});

export async function embed(
  provider: Provider,
  { raw, signal }: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const body = await readJson(raw, MAX_JSON_BYTES, EmbedBody);
  const model = provider.model('embedding', body.model);
  const values = typeof body.input === 'string' ? [body.input] : body.input;
  const size = (await model.maxEmbeddingsPerCall) ?? USUAL_BATCH;
  const vectors: number[][] = [];
  let tokens: number | undefined = 0;
  for (let at = 0; at < values.length; at += size) {
    const made = await model.doEmbed({
      values: values.slice(at, at + size),
      ...(body.dimensions && { dimensions: body.dimensions }),
      abortSignal: signal,
      providerOptions: provider.callOptions({ inputType: body.input_type ?? undefined }),
    });
    vectors.push(...made.embeddings);
    tokens =
      tokens === undefined || made.usage === undefined ? undefined : tokens + made.usage.tokens;
  }
  const isBase64 = body.encoding_format === 'base64';
  const data = vectors.map((vector, index) => {
    const embedding = isBase64 ? floatsToBase64(Float32Array.from(vector)) : vector;
    return { object: 'embedding', index, embedding };
  });
  const usage =
    tokens === undefined ? {} : { usage: { prompt_tokens: tokens, total_tokens: tokens } };
  sendJson(response, 200, { object: 'list', model: body.model, data, ...usage });
}

export async function rerank(
  provider: Provider,
  { raw, signal }: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const { model, query, documents, top_n: topN } = await readJson(raw, MAX_JSON_BYTES, RerankBody);
  const { ranking } = await provider.model('reranking', model).doRerank({
    query,
    documents: { type: 'text', values: documents },
    ...(topN && { topN }),
    abortSignal: signal,
    providerOptions: provider.callOptions(),
  });
  const results = ranking.map(({ index, relevanceScore }) => {
    return { index, relevance_score: relevanceScore };
  });
  sendJson(response, 200, { results });
}

export async function generateImages(
  provider: Provider,
  request: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const body = await readJson(request.raw, MAX_JSON_BYTES, ImageFields);
  await makeImages(provider, { body, files: [], mask: undefined }, request, response);
}

export async function editImages(
  provider: Provider,
  request: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const limits = { maxFileBytes: MAX_FILE_BYTES, maxFiles: MAX_IMAGES };
  const upload = await readUpload(request.raw, limits);
  const body = fieldsIn(upload, ImageFields);
  const files = [...upload.files].map(([name, { data }]) => ({ name, data }));
  const images = files.filter(({ name }) => name.startsWith('image'));
  if (images.length === 0) throw missingFile('image');
  const mask = files.find(({ name }) => name === 'mask');
  const order = {
    body,
    files: images.map(({ data }) => imageFile(data)),
    mask: mask && imageFile(mask.data),
  };
  await makeImages(provider, order, request, response);
}

function imageFile(data: Buffer): ImageModelV4File {
  return { type: 'file', mediaType: imageType(data) ?? 'image/png', data };
}

interface ImageOrder {
  readonly body: z.infer<typeof ImageFields>;
  readonly files: ImageModelV4File[];
  readonly mask: ImageModelV4File | undefined;
}

async function makeImages(
  provider: Provider,
  { body, files, mask }: ImageOrder,
  { signal }: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const model = provider.model('image', body.model);
  const { maxImagesPerCall: most } = model;
  const given = typeof most === 'function' ? await most({ modelId: body.model }) : most;
  const perCall = Math.max(1, given ?? 1);
  const size = SIZE.test(body.size ?? '') ? (body.size as `${number}x${number}`) : undefined;
  const ratio = (body.aspect_ratio ?? undefined) as `${number}:${number}` | undefined; // by its schema
  const options = provider.callOptions({
    quality: body.quality ?? undefined,
    background: body.background ?? undefined,
    outputFormat: body.output_format ?? undefined,
    negativePrompt: body.negative_prompt ?? undefined,
    guidanceScale: body.guidance_scale ?? undefined,
  });
  const counts = Array.from({ length: Math.ceil(body.n / perCall) }, (_, at) =>
    Math.min(perCall, body.n - at * perCall),
  );
  const made = await Promise.all(
    counts.map((n) =>
      model.doGenerate({
        prompt: body.prompt,
        n,
        size,
        aspectRatio: ratio,
        seed: body.seed ?? undefined,
        files: files.length > 0 ? files : undefined,
        mask,
        abortSignal: signal,
        providerOptions: options,
      }),
    ),
  );
  const data = made.flatMap(({ images, providerMetadata }) => {
    const facts = Object.values(providerMetadata ?? {}).flatMap(({ images: list }) => list);
    return images.map((image, index) => {
      const { revisedPrompt: revised_prompt } = (facts[index] ?? {}) as JsonObject; // JSON
      const b64_json = typeof image === 'string' ? image : Buffer.from(image).toString('base64');
      return { b64_json, ...(typeof revised_prompt === 'string' && { revised_prompt }) };
    });
  });
  sendJson(response, 200, { created: Math.floor(Date.now() / 1_000), data, ...usageOf(made) });
}

/** The tokens of all calls, if each call reports them; packages divide details among the images. */
function usageOf(made: readonly ImageModelV4Result[]): JsonObject {
  const sum = (counts: readonly unknown[]): number =>
    counts.reduce<number>((total, count) => total + Number(count), 0);
  const input_tokens = sum(made.map(({ usage }) => usage?.inputTokens));
  const output_tokens = sum(made.map(({ usage }) => usage?.outputTokens));
  const total_tokens = sum(made.map(({ usage }) => usage?.totalTokens));
  if (Number.isNaN(input_tokens + output_tokens + total_tokens)) return {};
  const facts = made.flatMap(
    ({ providerMetadata = {} }) =>
      Object.values(providerMetadata).flatMap(({ images }) => images as JsonObject[]), // JSON
  );
  const image_tokens = sum(facts.map(({ imageTokens }) => imageTokens));
  const input_tokens_details = Number.isNaN(image_tokens) ? undefined : { image_tokens };
  return { usage: { input_tokens, output_tokens, total_tokens, input_tokens_details } };
}

export async function speak(
  provider: Provider,
  { raw, signal }: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const body = await readJson(raw, MAX_JSON_BYTES, SpeechBody);
  const { voice, response_format: format, speed, instructions, language } = body;
  const { audio } = await provider.model('speech', body.model).doGenerate({
    text: body.input,
    ...(voice && { voice }),
    ...(format && { outputFormat: format }),
    ...(speed && { speed }),
    ...(instructions && { instructions }),
    ...(language && { language }),
    abortSignal: signal,
    providerOptions: provider.callOptions(),
  });
  const bytes = Buffer.from(typeof audio === 'string' ? Buffer.from(audio, 'base64') : audio);
  sendBytes(response, 200, sniffMedia(bytes) ?? 'application/octet-stream', bytes);
}

export async function transcribe(
  provider: Provider,
  { raw, signal }: EngineRequest,
  response: ServerResponse,
): Promise<void> {
  const upload = await readUpload(raw, { maxFileBytes: MAX_FILE_BYTES });
  const fields = fieldsIn(upload, TranscriptionFields);
  const audio = upload.files.get('file')?.data;
  if (audio === undefined) throw missingFile('file');
  const { language, prompt, temperature, response_format: format } = fields;
  const granularity = fields['timestamp_granularities[]'];
  const made = await provider.model('transcription', fields.model).doGenerate({
    audio,
    mediaType: sniffMedia(audio) ?? 'audio/wav',
    abortSignal: signal,
    ...(granularity && { timestampGranularities: [granularity] }),
    // Each package reads the names that it knows.
    providerOptions: provider.callOptions({
      language,
      languageCode: language,
      prompt,
      temperature,
      ...(granularity && { timestampGranularities: [granularity] }),
    }),
  });
  const { text, durationInSeconds: duration } = made;
  const common = { text, ...(made.language !== undefined && { language: made.language }) };
  if (fields.stream === 'true') {
    writeEvent(response, { type: 'transcript.text.delta', delta: text });
    writeEvent(response, { type: 'transcript.text.done', text });
    response.end();
  } else if (format === 'text') {
    sendBytes(response, 200, 'text/plain; charset=utf-8', Buffer.from(text));
  } else if (format === 'json') sendJson(response, 200, common);
  else {
    const timed = duration === undefined ? {} : { duration };
    sendJson(response, 200, { task: 'transcribe', ...common, ...timed, ...timesOf(made.segments) });
  }
}

interface SegmentOfPackage {
  readonly text: string;
  readonly startSecond: number;
  readonly endSecond: number;
}

/** Some packages return words as segments; they are then also words. */
function timesOf(given: readonly SegmentOfPackage[]): JsonObject {
  const timed = given.filter(({ text }) => text.trim() !== '');
  const segments = timed.map(({ text, startSecond: start, endSecond: end }, id) => {
    return { id, start, end, text };
  });
  const areWords = timed.every(({ text }) => !/\s/.test(text.trim()));
  if (!areWords) return { segments };
  const words = segments.map(({ start, end, text }) => ({ word: text.trim(), start, end }));
  return { segments, words };
}
