/** The description of `/images/edits` in the API document. */
import { z } from 'zod';
import { type RouteDescription, formContent, jsonContent } from '../../http/describe.ts';
import { MODEL_REFUSALS, PICTURE_REFUSALS } from '../../http/openapi/refusals.ts';
import { IMAGES_ANSWER } from '../images-generations/describe.ts';
import { EditFields, EditRequest } from './schema.ts';

const BYTES = { type: 'string', contentMediaType: 'application/octet-stream' };

/** The fields as JSON Schema; zod cannot describe the files of a form. */
const { properties: FIELDS } = z.toJSONSchema(EditFields, { io: 'input' });

export const IMAGES_EDITS: RouteDescription = {
  tag: 'Images',
  summary: 'Edit images',
  about:
    "New pictures made from others and a text, in OpenAI's form: one or several pictures, and a mask whose clear pixels say where to paint; as a form with files, or as JSON with their URLs. For image models that list `edits`; priced as the pictures that are made.",
  request: [
    formContent(['image', 'prompt'], {
      image: { ...BYTES, description: 'PNG, JPEG or WebP; for several see `image[]`.' },
      'image[]': {
        type: 'array',
        items: BYTES,
        description: 'Several images; then `image` is not needed.',
      },
      mask: { ...BYTES, description: 'A PNG; its clear pixels are painted anew.' },
      ...FIELDS,
    }),
    ...jsonContent(EditRequest.meta({ id: 'ImageEditRequest' }), {
      model: 'default',
      prompt: 'Add a lighthouse',
      images: [{ image_url: 'https://example.com/bay.png' }],
    }),
  ],
  response: IMAGES_ANSWER,
  refusals: [...MODEL_REFUSALS, ...PICTURE_REFUSALS],
};
