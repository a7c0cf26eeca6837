/** The JSON body of `/image/background-remove`. */
import * as z from 'zod';

export type BackgroundRemoveRequest = z.infer<typeof BackgroundRemoveRequest>;
/** Exactly one of `image` and `image_url`. */
export const BackgroundRemoveRequest = z
  .looseObject({
    image: z
      .string()
      .min(1, 'Must be the base64 of an image')
      .nullish()
      .describe('The image as base64, or as a data URL. Send either this or `image_url`.'),
    image_url: z
      .string()
      .refine((text) => /^(?:https?:|data:)/i.test(text), 'Must be an http(s) URL')
      .nullish()
      .describe(
        'An http(s) URL that this server fetches, or a data URL. Send either this or `image`.',
      ),
    model: z
      .string()
      .min(1)
      .nullish()
      .describe('Id or trait. Default: the default model of type `inpaint`.'),
  })
  .superRefine(({ image, image_url: url }, context) => {
    const given = [image, url].filter((one) => one !== null && one !== undefined).length;
    if (given === 1) return;
    const message = 'Send exactly one of image (base64) and image_url';
    context.addIssue({ code: 'custom', path: ['image'], message });
  });
