/** The description of `/images/edits` in the API document. */
import * as z from 'zod';
import { type RouteDescription, formContent, jsonContent } from '../../http/describe.ts';
import { MODEL_REFUSALS, PICTURE_REFUSALS } from '../../http/openapi/refusals.ts';
import { IMAGES_RESPONSE } from '../images-generations/describe.ts';
import { EditFields, EditRequest } from './schema.ts';

const FILE = { type: 'string', contentMediaType: 'application/octet-stream' };

/** The fields as JSON Schema; zod cannot describe the files of a form. */
const { properties: FIELDS } = z.toJSONSchema(EditFields, { io: 'input' });

export const IMAGES_EDITS: RouteDescription = {
  tag: 'Images',
  summary: 'Edit images',
  about:
    "Generates images from images and a text, in OpenAI's format. The input is one or several images and an optional mask whose transparent pixels mark the area to edit, sent as a form with files or as JSON with URLs. Works with image models that list `edits`; the price is that of the generated images.",
  request: [
    formContent(['image', 'prompt'], {
      image: { ...FILE, description: 'PNG, JPEG or WebP. Use `image[]` for several images.' },
      'image[]': {
        type: 'array',
        items: FILE,
        description: 'Several images, instead of `image`.',
      },
      mask: { ...FILE, description: 'A PNG whose transparent pixels mark the area to edit.' },
      markup: {
        ...FILE,
        description: 'A transparent PNG over the first image that guides the edit; for the engine.',
      },
      ...FIELDS,
    }),
    ...jsonContent(EditRequest.meta({ id: 'ImageEditRequest' }), {
      model: 'default',
      prompt: 'Add a lighthouse',
      images: [{ image_url: 'https://example.com/bay.png' }],
    }),
  ],
  response: IMAGES_RESPONSE,
  refusals: [...MODEL_REFUSALS, ...PICTURE_REFUSALS],
};
