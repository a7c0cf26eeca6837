/** `POST /images/edits`: pictures made from other pictures and a text, in OpenAI's form. */
import { Fault, invalidField } from '../../core/faults.ts';
import { imageSize, imageType } from '../../core/media-type.ts';
import { requirePixels } from '../../documents/media-files.ts';
import { type FormFile, readForm } from '../../http/multipart.ts';
import { checked } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { FORM_BODY, type Route } from '../../http/route.ts';
import { type FormPart, multipartBody } from '../../net/multipart-body.ts';
import { kindOf } from '../images-generations/images-generations.ts';
import { IMAGE_FORMATS } from '../made-image.ts';
import { type MakeImagesParts, makeImages } from '../make-images.ts';
import { IMAGES_EDITS } from './describe.ts';
import { EditFields } from './schema.ts';

export interface ImagesEditsParts extends MakeImagesParts {
  /** Of one picture; that of the whole form holds beside it. */
  readonly maxFileBytes: number;
}

/** What OpenAI takes. */
const MAX_IMAGES = 16;
/** Prompts are the longest of them. */
const MAX_FIELD_BYTES = 128 * 1024;
const IMAGE_FIELDS = ['image', 'image[]'];

export function imagesEditsRoute(parts: ImagesEditsParts): Route {
  return {
    method: 'POST',
    path: '/images/edits',
    auth: 'key-or-wallet',
    about: 'Images from images and text',
    body: FORM_BODY,
    sells: 'image_edit',
    describe: IMAGES_EDITS,
    handle: (context) => edit(parts, context),
  };
}

async function edit(parts: ImagesEditsParts, context: RequestContext): Promise<void> {
  const { files, fields: given } = await readForm(context, {
    names: [...IMAGE_FIELDS, 'mask'],
    maxFiles: MAX_IMAGES + 1,
    maxBytes: parts.maxFileBytes,
    maxFieldBytes: MAX_FIELD_BYTES,
  });
  const fields = checked(EditFields, Object.fromEntries(given));
  const images = files.filter(({ field }) => field !== 'mask');
  const masks = files.filter(({ field }) => field === 'mask');
  if (images.length === 0) {
    throw invalidField(['image'], 'The multipart body has no file field "image"');
  }
  if (masks.length > 1) {
    throw invalidField(['mask'], 'The multipart body has more than one file "mask"');
  }
  for (const file of files) requirePicture(file);
  const boundary = `farebox-${context.requestId}`;
  await makeImages(parts, context, {
    model: fields.model ?? undefined,
    prompt: fields.prompt,
    count: fields.n ?? 1,
    inputImages: images.length,
    kind: kindOf(fields),
    format: fields.output_format ?? undefined,
    stream: fields.stream === 'true',
    work: 'image_edit',
    path: '/images/edits',
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: (model, isPlain) => {
      const own = { model, response_format: isPlain ? undefined : 'b64_json' };
      return multipartBody(boundary, [
        ...fieldParts({ ...fields, ...own }),
        ...images.map((image) => filePart(images.length === 1 ? 'image' : 'image[]', image)),
        ...masks.map((mask) => filePart('mask', mask)),
      ]);
    },
    event: 'image_edit',
  });
}

/** By its first bytes and its header: what an engine is given is a picture of a size that can be worked on. */
function requirePicture({ field, bytes }: FormFile): void {
  const type = imageType(bytes);
  const formats = field === 'mask' ? ['png'] : IMAGE_FORMATS;
  if (!formats.some((format) => type === `image/${format}`)) {
    const message = `${field}: The file is not a ${field === 'mask' ? 'PNG' : 'PNG, JPEG or WebP'} image`;
    throw new Fault('CORRUPTED_IMAGE', { message });
  }
  requirePixels(imageSize(bytes));
}

/** What engines get of the fields; by other names more pictures than `n` could be asked for. */
const PASSED = [
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
  'seed',
  'strength',
  'negative_prompt',
  'guidance_scale',
] as const;

function fieldParts(fields: Readonly<Record<string, unknown>>): FormPart[] {
  return PASSED.flatMap((name) => {
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
