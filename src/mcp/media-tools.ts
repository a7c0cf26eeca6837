/** The tools that work on media and texts: `embeddings`, `remove_background`, `transcribe`. */
import { z } from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { decodeBase64 } from '../core/event-loop.ts';
import type { Ids } from '../core/ids.ts';
import { readAnswer } from '../http/internal-call.ts';
import { multipartBody } from '../net/multipart-body.ts';
import { priceOf } from './prices.ts';
import { type Tool, asJson, defineTool, failure, readJsonAnswer, structured } from './tool.ts';

export interface MediaToolParts {
  readonly catalog: Catalog;
  readonly ids: Ids;
}

/** More vectors are a matter for `POST /embeddings`: a model reads what a tool answers. */
const MAX_TEXTS = 64;
/** The largest picture that the route answers: four bytes a pixel, should nothing of it compress. */
const MAX_PNG_BYTES = 134_000_000;
const URL_START = /^https?:\/\//i;
const DATA_URL = /^data:([\w.+-]+\/[\w.+-]+)?[^,]{0,200};base64,/i;
const BASE64 = /^[A-Za-z0-9+/_=\s-]+$/;

const Model = z.string().min(1).max(256).optional();
const Source = (what: string) =>
  z.string().min(1).describe(`${what}: a public http(s) URL, a data URL, or base64.`);

const Embeddings = z.strictObject({
  model: z.string(),
  embeddings: z.array(z.array(z.number())).describe('One vector for each text, in order.'),
  total_tokens: z.int().min(0),
});
const Cutout = z.strictObject({
  mime_type: z.literal('image/png'),
  size_bytes: z.int().min(0),
});
const Transcript = z.strictObject({
  text: z.string(),
  language: z.string().optional().describe('Language code, of media from a URL.'),
  duration_seconds: z.int().optional().describe('Of media that were sent along.'),
});

export function mediaTools(parts: MediaToolParts): Tool[] {
  return [embeddingsTool(parts), cutoutTool(parts), transcribeTool(parts)];
}

function embeddingsTool({ catalog }: MediaToolParts): Tool {
  return defineTool({
    name: 'embeddings',
    title: 'Make embeddings',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({
      texts: z.array(z.string().min(1)).min(1).max(MAX_TEXTS),
      model: z.string().min(1).max(256).default('default').describe('A model id of list_models.'),
      dimensions: z.int().min(1).optional().describe('For models that can cut their vectors.'),
    }),
    output: Embeddings,
    isPaid: true,
    about: () => {
      const price = priceOf(catalog, 'embedding');
      return price && `Turns texts into vectors, for search by meaning. ${price}`;
    },
    run: async ({ texts, model, dimensions }, call) => {
      const body = { model, input: texts, dimensions };
      const answer = await readJsonAnswer(await call.run({ path: '/embeddings', body }));
      const { data, usage } = answer;
      const rows = Array.isArray(data) ? data.map(asJson) : [];
      return structured(
        Embeddings.parse({
          model: answer['model'],
          embeddings: rows.map(({ embedding }) => embedding),
          total_tokens: asJson(usage)['total_tokens'],
        }),
      );
    },
  });
}

function cutoutTool({ catalog }: MediaToolParts): Tool {
  return defineTool({
    name: 'remove_background',
    title: 'Remove the background of an image',
    hints: { readOnlyHint: true, openWorldHint: true },
    input: z.strictObject({
      image: Source('A JPEG, PNG, WebP, AVIF, TIFF or GIF'),
      model: Model.describe('A model id of list_models.'),
    }),
    output: Cutout,
    isPaid: true,
    about: () => {
      const price = priceOf(catalog, 'inpaint');
      return (
        price && `Cuts the subject out of an image: a PNG with a transparent background. ${price}`
      );
    },
    run: async ({ image, model }, call) => {
      const given = URL_START.test(image) ? { image_url: image } : { image };
      const answer = await call.run({
        path: '/image/background-remove',
        body: { ...given, model },
      });
      const png = await readAnswer(answer, MAX_PNG_BYTES);
      const value = { mime_type: 'image/png', size_bytes: png.length };
      const picture = {
        type: 'image',
        data: png.toString('base64'),
        mimeType: 'image/png',
      } as const;
      return {
        content: [picture, { type: 'text', text: JSON.stringify(value) }],
        structuredContent: value,
      };
    },
  });
}

function transcribeTool({ catalog, ids }: MediaToolParts): Tool {
  return defineTool({
    name: 'transcribe',
    title: 'Transcribe speech',
    hints: { readOnlyHint: true, openWorldHint: true },
    input: z.strictObject({
      media: Source('Sound or video'),
      language: z
        .string()
        .regex(/^[a-z]{2,3}$/, 'Must be a language code such as en')
        .optional()
        .describe('Of the speech; not with a URL.'),
      model: Model.describe('A model id of list_models.'),
    }),
    output: Transcript,
    isPaid: true,
    about: () => {
      const price = priceOf(catalog, 'asr');
      return price && `Writes down what is said in sound or video. ${price}`;
    },
    run: async ({ media, language, model }, call) => {
      if (URL_START.test(media)) {
        if (language !== undefined) return failure('language: Leave it out for a URL');
        const body = { url: media, model, response_format: 'json' };
        const heard = await readJsonAnswer(await call.run({ path: '/video/transcriptions', body }));
        return structured(Transcript.parse({ text: heard['transcript'], language: heard['lang'] }));
      }
      const prefix = DATA_URL.exec(media)?.[0] ?? '';
      if (!BASE64.test(media.slice(prefix.length, prefix.length + 4_096))) {
        return failure('media: Must be a public http(s) URL, a data URL, or base64');
      }
      const boundary = `farebox-${ids.hex(16)}`;
      const form = multipartBody(boundary, [
        { name: 'response_format', data: 'json' },
        ...(model === undefined ? [] : [{ name: 'model', data: model }]),
        ...(language === undefined ? [] : [{ name: 'language', data: language }]),
        {
          name: 'file',
          file: { filename: 'media', contentType: 'application/octet-stream' },
          data: await decodeBase64(media, prefix.length),
        },
      ]);
      const pieces: Buffer[] = [];
      for await (const piece of form.open()) pieces.push(piece);
      const answer = await call.run({
        path: '/audio/transcriptions',
        body: { type: `multipart/form-data; boundary=${boundary}`, bytes: Buffer.concat(pieces) },
      });
      // The form with a language wants times too, which not every engine can give.
      const { text, usage } = await readJsonAnswer(answer);
      const { seconds } = asJson(usage);
      return structured(Transcript.parse({ text, duration_seconds: seconds }));
    },
  });
}
