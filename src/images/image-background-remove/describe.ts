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
    'A picture as a file (`image` of a form), as base64 (`image`) or by URL (`image_url`), exactly one of them; below 25 MB, 65,536 to 33,177,600 pixels.',
  request: [
    {
      type: 'application/json',
      schema: BackgroundRemoveRequest,
      example: { image_url: 'https://example.com/cat.jpg' },
    },
    formContent(['image'], {
      image: fileField('The file of the image.'),
      model: {
        type: 'string',
        description: 'Id of an image model, or a trait. Default: the default model.',
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
