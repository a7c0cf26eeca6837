/** `POST /images/edits`: generates images from images and a text, in OpenAI's format. */
import { Fault, invalidField } from '../../core/faults.ts';
import { imageSize, imageType } from '../../core/media-type.ts';
import { dataUrlBytes, requirePixels } from '../../documents/media-files.ts';
import type { BodyMemory } from '../../http/body-memory.ts';
import { type FormFile, isMultipart, readForm } from '../../http/multipart.ts';
import { checked, readJson } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { FORM_BODY, JSON_BODY, type Route } from '../../http/route.ts';
import { type FormPart, multipartBody } from '../../net/multipart-body.ts';
import type { ImageOrder, MakeImagesParts } from '../image-engine.ts';
import { kindOf, streamOf } from '../images-generations/images-generations.ts';
import { IMAGE_FORMATS } from '../made-image.ts';
import { makeImages } from '../make-images.ts';
import { IMAGES_EDITS } from './describe.ts';
import { EditFields, EditRequest, MAX_INPUT_IMAGES } from './schema.ts';

export interface ImagesEditsParts extends MakeImagesParts {
  /** Limit of one image, and of all fetched ones; the body limit applies to forms as well. */
  readonly maxFileBytes: number;
  /** Memory for the bodies of requests, which fetched images count against. */
  readonly bodyMemory: Pick<BodyMemory, 'reserveMedia'>;
}

/** Enough for a prompt, the longest field. */
const MAX_FIELD_BYTES = 128 * 1024;
const MAX_REDIRECTS = 5;
const IMAGE_FIELDS = ['image', 'image[]'];
/** PNG files that an edit has at most one of. */
const OVERLAY_FIELDS = ['mask', 'markup'];

export function imagesEditsRoute(parts: ImagesEditsParts): Route {
  return {
    method: 'POST',
    path: '/images/edits',
    auth: 'key-or-wallet',
    about: 'Images from images and text',
    body: { types: [...FORM_BODY.types, ...JSON_BODY.types] },
    sells: 'image_edit',
    describe: IMAGES_EDITS,
    handle: (context) =>
      isMultipart(context) ? editForm(parts, context) : editJson(parts, context),
  };
}

async function editForm(parts: ImagesEditsParts, context: RequestContext): Promise<void> {
  const { files, fields: given } = await readForm(context, {
    names: [...IMAGE_FIELDS, ...OVERLAY_FIELDS],
    maxFiles: MAX_INPUT_IMAGES + 1,
    maxBytes: parts.maxFileBytes,
    maxFieldBytes: MAX_FIELD_BYTES,
  });
  const fields = checked(EditFields, Object.fromEntries(given));
  if (!files.some(isImage)) {
    throw invalidField(['image'], 'The multipart body has no file field "image"');
  }
  for (const name of OVERLAY_FIELDS) {
    if (files.filter(({ field }) => field === name).length < 2) continue;
    throw invalidField([name], `The multipart body has more than one file "${name}"`);
  }
  for (const file of files) requireImage(file);
  const { partial_images } = fields;
  const stream = streamOf({ stream: fields.stream === 'true', partial_images });
  await makeImages(parts, context, {
    ...orderOf(context, fields, stream, () => files),
    inputImages: files.filter(isImage).length,
  });
}

function isImage({ field }: FormFile): boolean {
  return IMAGE_FIELDS.includes(field);
}

/** Images by URL: validates inline ones, then fetches remote ones after the credit check. */
async function editJson(parts: ImagesEditsParts, context: RequestContext): Promise<void> {
  const request = await readJson(context, EditRequest, parts.readLargeJson);
  const { images, mask } = request;
  const given = [
    ...images.map(({ image_url: url }) => ({ field: 'image', url })),
    ...(mask === null || mask === undefined ? [] : [{ field: 'mask', url: mask.image_url }]),
  ];
  const files: (FormFile | undefined)[] = [];
  for (const [place, { field, url }] of given.entries()) {
    const bytes = await dataUrlBytes(url);
    if (bytes !== undefined) requireImage((files[place] = { field, bytes }));
  }
  const fetchRest = async (signal: AbortSignal): Promise<void> => {
    let leftBytes = parts.maxFileBytes;
    for (const [place, { field, url }] of given.entries()) {
      if (files[place] !== undefined) continue;
      const { accountId: caller } = context.caller;
      const bounds = {
        timeoutMs: parts.fetchTimeoutMs,
        maxRedirects: MAX_REDIRECTS,
        signal,
        caller,
      };
      const { bytes } = await parts.guard.fetch(url, { ...bounds, maxBytes: leftBytes });
      leftBytes -= bytes.length;
      const refusal = parts.bodyMemory.reserveMedia(context, parts.maxFileBytes - leftBytes);
      if (refusal !== undefined) throw refusal;
      requireImage((files[place] = { field, bytes }));
    }
  };
  const all = (): FormFile[] => files.filter((file) => file !== undefined);
  await makeImages(parts, context, {
    ...orderOf(context, request, streamOf(request), all),
    inputImages: images.length,
    fetch: fetchRest,
  });
}

type EditedKind = Pick<
  EditRequest,
  'model' | 'prompt' | 'n' | 'size' | 'quality' | 'background' | 'output_format' | 'response_format'
>;

/** The multipart request of an edit. `files` is called when all images are available. */
function orderOf(
  { requestId }: RequestContext,
  fields: EditedKind,
  stream: Pick<ImageOrder, 'stream' | 'partialImages'>,
  files: () => readonly FormFile[],
): ImageOrder {
  const boundary = `farebox-${requestId}`;
  return {
    model: fields.model ?? undefined,
    prompt: fields.prompt,
    count: fields.n ?? 1,
    kind: kindOf(fields),
    format: fields.output_format ?? undefined,
    asUrls: fields.response_format === 'url',
    background: fields.background ?? 'auto',
    ...stream,
    work: 'image_edit',
    path: '/images/edits',
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: (model, { isPlain, partialImages }) => {
      const images = files();
      const isOne = images.filter(isImage).length === 1;
      const own = {
        model,
        response_format: isPlain ? undefined : 'b64_json',
        stream: partialImages > 0 ? 'true' : undefined,
        partial_images: partialImages > 0 ? partialImages : undefined,
      };
      return multipartBody(boundary, [
        ...fieldParts({ ...fields, ...own }),
        ...images.map((file) => {
          return filePart(isImage(file) ? (isOne ? 'image' : 'image[]') : file.field, file);
        }),
      ]);
    },
    event: 'image_edit',
  };
}

function requireImage({ field, bytes }: FormFile): void {
  const type = imageType(bytes);
  const isOverlay = OVERLAY_FIELDS.includes(field);
  const formats = isOverlay ? ['png'] : IMAGE_FORMATS;
  if (!formats.some((format) => type === `image/${format}`)) {
    const message = `${field}: The file is not a ${isOverlay ? 'PNG' : 'PNG, JPEG or WebP'} image`;
    throw new Fault('CORRUPTED_IMAGE', { message });
  }
  requirePixels(imageSize(bytes));
}

/** Fields forwarded to engines; other names could request more images than `n`. */
const FORWARDED_FIELDS = [
  'model',
  'prompt',
  'n',
  'size',
  'quality',
  'background',
  'output_format',
  'output_compression',
  'input_fidelity',
  'response_format',
  'stream',
  'partial_images',
  'seed',
  'strength',
  'negative_prompt',
  'guidance_scale',
] as const;

function fieldParts(fields: Readonly<Record<string, unknown>>): FormPart[] {
  return FORWARDED_FIELDS.flatMap((name) => {
    const value = fields[name];
    if (typeof value !== 'string' && typeof value !== 'number') return [];
    return [{ name, data: String(value) }];
  });
}

function filePart(name: string, { bytes }: FormFile): FormPart {
  const contentType = imageType(bytes) ?? 'application/octet-stream';
  const filename = `${name.replace('[]', '')}.${contentType.replace('image/', '')}`;
  return { name, file: { filename, contentType }, data: bytes };
}
