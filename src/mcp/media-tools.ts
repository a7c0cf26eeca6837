/** Tools for media: `generate_image`, `remove_background`, `speak`, `transcribe`. */
import * as z from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { SPEECH_FORMATS, SPEECH_SPEEDS } from '../config/config.ts';
import { decodeBase64 } from '../core/event-loop.ts';
import type { Ids } from '../core/ids.ts';
import { readResponse } from '../http/internal-call.ts';
import { multipartBody } from '../net/multipart-body.ts';
import { aboutPriced } from './prices.ts';
import {
  CostUsd,
  type Tool,
  asJson,
  defineTool,
  failure,
  listOf,
  postJson,
  readJsonResponse,
  structured,
  withContent,
} from './tool.ts';

export interface MediaToolParts {
  readonly catalog: Catalog;
  readonly ids: Ids;
}

/** Low limits, because a model reads the result; the routes allow more. */
const MAX_IMAGES = 4;
const MAX_SPOKEN_CHARACTERS = 4_096;
/** The limits of the routes, so that no paid response is lost. */
const MAX_IMAGES_BYTES = 257 * 1024 * 1024;
const MAX_SOUND_BYTES = 256 * 1024 * 1024;
const MAX_PNG_BYTES = 134_000_000;
const URL_START = /^https?:\/\//i;
const DATA_URL = /^data:[^,]{0,200};base64,/i;
const BASE64 = /^[A-Za-z0-9+/_=\s-]+$/;

const Model = z.string().min(1).max(256).optional();
const Source = (what: string) =>
  z.string().min(1).describe(`${what}: a public http(s) URL, a data URL, or base64.`);

const Images = z.strictObject({
  mime_type: z.string(),
  size: z.string().describe('Size of the first image, such as `1024x1024`.'),
  count: z.int().min(1),
  cost_usd: CostUsd,
});
const Sound = z.strictObject({ mime_type: z.string(), size_bytes: z.int().min(0) });
const Cutout = z.strictObject({
  mime_type: z.literal('image/png'),
  size_bytes: z.int().min(0),
});
const Transcript = z.strictObject({
  text: z.string(),
  language: z.string().optional().describe('Language code; only for media from a URL.'),
  duration_seconds: z.int().optional().describe('Duration; only for media in the call.'),
});

export function mediaTools(parts: MediaToolParts): Tool[] {
  return [imageTool(parts), cutoutTool(parts), speechTool(parts), transcribeTool(parts)];
}

function imageTool({ catalog }: MediaToolParts): Tool {
  return defineTool({
    name: 'generate_image',
    title: 'Generate an image',
    hints: { readOnlyHint: true, openWorldHint: false },
    input: z.strictObject({
      prompt: z.string().min(1).describe('Description of the image.'),
      model: Model.describe('A model id of list_models.'),
      n: z.int().min(1).max(MAX_IMAGES).default(1).describe('Number of images; each is charged.'),
      size: z
        .string()
        .optional()
        .describe('Size such as `1024x1024`; the values depend on the model.'),
      quality: z
        .string()
        .optional()
        .describe('Quality such as `hd`; the values depend on the model.'),
    }),
    output: Images,
    isPaid: true,
    example: { prompt: 'A lighthouse in the fog.' },
    about: aboutPriced(catalog, 'image', 'Generates images from a description.'),
    run: async (body, call) => {
      const response = await call.run({ path: '/images/generations', body });
      const made = await readJsonResponse(response, MAX_IMAGES_BYTES);
      const { data, size, output_format: format, cost } = made;
      const mimeType = `image/${String(format)}`;
      const images = listOf(data).map(({ b64_json: base64 }) => {
        return { type: 'image', data: String(base64), mimeType } as const;
      });
      const cost_usd = asJson(cost)['usd'];
      const value = Images.parse({ mime_type: mimeType, size, count: images.length, cost_usd });
      return withContent(images, value);
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
    example: { image: 'https://example.com/photo.jpg' },
    about: aboutPriced(
      catalog,
      'inpaint',
      'Removes the background of an image; returns a PNG with transparency.',
    ),
    run: async ({ image, model }, call) => {
      const given = URL_START.test(image) ? { image_url: image } : { image };
      const body = { ...given, model };
      const response = await call.run({ path: '/image/background-remove', body });
      const png = await readResponse(response, MAX_PNG_BYTES);
      const mimeType = 'image/png';
      const content = { type: 'image', data: png.toString('base64'), mimeType } as const;
      return withContent([content], { mime_type: mimeType, size_bytes: png.length });
    },
  });
}

function speechTool({ catalog }: MediaToolParts): Tool {
  return defineTool({
    name: 'speak',
    title: 'Convert text to speech',
    hints: { readOnlyHint: true, openWorldHint: false },
    input: z.strictObject({
      text: z.string().min(1).max(MAX_SPOKEN_CHARACTERS),
      voice: z.string().min(1).max(256).optional().describe('A voice of the model.'),
      instructions: z
        .string()
        .optional()
        .describe('Instructions for the voice, for models that support them.'),
      format: z
        .enum(SPEECH_FORMATS)
        .optional()
        .describe('Format; default `mp3` if the model supports it.'),
      speed: z.number().min(SPEECH_SPEEDS.min).max(SPEECH_SPEEDS.max).optional(),
      model: Model.describe('A model id of list_models.'),
    }),
    output: Sound,
    isPaid: true,
    example: { text: 'Good morning.' },
    about: aboutPriced(catalog, 'tts', 'Converts a text to speech.'),
    run: async ({ text: input, format: response_format, ...rest }, call) => {
      const body = { input, response_format, ...rest };
      const response = await call.run({ path: '/audio/speech', body });
      const sound = await readResponse(response, MAX_SOUND_BYTES);
      const mimeType = response.headers['content-type'] ?? 'application/octet-stream';
      const audio = { type: 'audio', data: sound.toString('base64'), mimeType } as const;
      return withContent([audio], { mime_type: mimeType, size_bytes: sound.length });
    },
  });
}

function transcribeTool({ catalog, ids }: MediaToolParts): Tool {
  return defineTool({
    name: 'transcribe',
    title: 'Transcribe speech',
    hints: { readOnlyHint: true, openWorldHint: true },
    input: z.strictObject({
      media: Source('Audio or video'),
      language: z
        .string()
        .regex(/^[a-z]{2,3}$/, 'Must be a language code such as en')
        .optional()
        .describe('Language of the speech; not with a URL.'),
      model: Model.describe('A model id of list_models.'),
    }),
    output: Transcript,
    isPaid: true,
    example: { media: 'https://example.com/talk.mp3' },
    about: aboutPriced(catalog, 'asr', 'Transcribes the speech of audio or video.'),
    run: async ({ media, language, model }, call) => {
      if (URL_START.test(media)) {
        if (language !== undefined) return failure('language: Must be omitted for a URL');
        const body = { url: media, model, response_format: 'json' };
        const { transcript, lang } = await postJson(call, '/video/transcriptions', body);
        return structured(Transcript.parse({ text: transcript, language: lang }));
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
      const response = await call.run({
        path: '/audio/transcriptions',
        body: { type: `multipart/form-data; boundary=${boundary}`, bytes: Buffer.concat(pieces) },
      });
      // The format with a language also requires timestamps, which not every engine supports.
      const { text, usage } = await readJsonResponse(response);
      const { seconds } = asJson(usage);
      return structured(Transcript.parse({ text, duration_seconds: seconds }));
    },
  });
}
