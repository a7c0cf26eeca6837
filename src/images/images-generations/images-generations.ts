/** `POST /images/generations`: generates images from a text, in OpenAI's format. */
import { UNSOLD_MEMBERS } from '../../engines/unsold-members.ts';
import { jsonWithoutNulls } from '../../json/json-text.ts';
import { type ReadLargeJson, readJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import type { ImageForm, MakeImagesParts } from '../image-engine.ts';
import { makeImages } from '../make-images.ts';
import { IMAGES_GENERATIONS } from './describe.ts';
import { ImagesRequest } from './schema.ts';

/** Engine-specific fields that could request more images than `n`, which the hold covers. */
const BEYOND_HOLD = {
  batch_count: undefined,
  batch_size: undefined,
  n_iter: undefined,
  num_images: undefined,
  num_images_per_prompt: undefined,
  num_outputs: undefined,
  samples: undefined,
};

/** Engine-specific fields that could request another size than the priced `size`. */
const BESIDE_SIZE = {
  width: undefined,
  height: undefined,
  image_size: undefined,
  aspect_ratio: undefined,
  resolution: undefined,
  megapixels: undefined,
};

export function imagesGenerationsRoute(parts: MakeImagesParts): Route {
  return {
    method: 'POST',
    path: '/images/generations',
    auth: 'key-or-wallet',
    about: 'Images from text',
    body: JSON_BODY,
    sells: 'image',
    describe: IMAGES_GENERATIONS,
    handle: (context) => generate(parts, context, parts.readLargeJson),
  };
}

async function generate(
  parts: MakeImagesParts,
  context: RequestContext,
  readLarge: ReadLargeJson,
): Promise<void> {
  const request = await readJson(context, ImagesRequest, readLarge);
  const { prompt, model, n, output_format, response_format } = request;
  await makeImages(parts, context, {
    model: model ?? undefined,
    prompt,
    count: n ?? 1,
    kind: kindOf(request),
    format: output_format ?? undefined,
    asUrls: response_format === 'url',
    background: request.background ?? 'auto',
    ...streamOf(request),
    work: 'image',
    path: '/images/generations',
    contentType: 'application/json',
    body: (name, form) => engineBody(request, name, form),
    event: 'image_generation',
  });
}

/** Streaming options of a request: whether to stream, and the number of partial images. */
export function streamOf({
  stream,
  partial_images: partial,
}: Pick<ImagesRequest, 'stream' | 'partial_images'>) {
  return { stream: stream === true, partialImages: stream === true ? (partial ?? 0) : 0 };
}

/** Size and quality requested by the caller; `auto` lets the engine choose. */
export function kindOf(request: Pick<ImagesRequest, 'size' | 'quality'>) {
  const named = (value: string | null | undefined): string | undefined =>
    value === 'auto' ? undefined : (value ?? undefined);
  return { size: named(request.size), quality: named(request.quality) };
}

function engineBody(
  request: ImagesRequest,
  model: string,
  { isPlain, partialImages }: ImageForm,
): Buffer {
  const { user: _user, stream: _stream, partial_images: _partial, ...fields } = request;
  const own = {
    ...UNSOLD_MEMBERS,
    ...BEYOND_HOLD,
    ...(kindOf(request).size === undefined ? {} : BESIDE_SIZE),
    model,
    response_format: isPlain ? undefined : 'b64_json',
    ...(partialImages > 0 && { stream: true, partial_images: partialImages }),
  };
  return jsonWithoutNulls({ ...fields, ...own });
}
