/** The description of `/image/background-remove` in the API document. */
import {
  type RouteDescription,
  bytesContent,
  fileField,
  formContent,
} from '../../http/describe.ts';
import { MODEL_REFUSALS, PICTURE_REFUSALS } from '../../http/openapi/refusals.ts';
import { BackgroundRemoveRequest } from './schema.ts';

export const BACKGROUND_REMOVE: RouteDescription = {
  tag: 'Images',
  summary: 'Remove the background',
  about:
    'Removes the background of one image, sent as a file (form field `image`), as base64 (`image`) or by URL (`image_url`). The image must be smaller than 25 MB and have 65,536 to 33,177,600 pixels.',
  request: [
    {
      type: 'application/json',
      schema: BackgroundRemoveRequest,
      example: { image_url: 'https://example.com/cat.jpg' },
    },
    formContent(['image'], {
      image: fileField('The image file.'),
      model: {
        type: 'string',
        description: 'Id or trait. Default: the default model of type `inpaint`.',
      },
    }),
  ],
  response: {
    status: 200,
    about: 'A PNG with a transparent background.',
    headers: ['model', 'download'],
    content: [bytesContent('image/png')],
  },
  refusals: [...MODEL_REFUSALS, ...PICTURE_REFUSALS, 'SUBJECT_NOT_FOUND'],
};
