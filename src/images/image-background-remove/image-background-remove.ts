/** `POST /image/background-remove`: a picture in by file, base64 or URL; a PNG with alpha out. */
import {
  MAX_IMAGE_BYTES,
  type RemoveBackgroundCall,
  type RemoveBackgroundParts,
  removeBackground,
} from '../remove-background.ts';
import { decodeBase64 } from '../../core/base64.ts';
import type { Clock } from '../../core/clock.ts';
import { invalidField } from '../../core/faults.ts';
import { AnswerHeaders } from '../../http/answer-headers.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { type ReadLargeJson, readJson } from '../../http/json-body.ts';
import { isMultipart, readFile } from '../../http/multipart.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { BACKGROUND_REMOVE } from './describe.ts';
import { BackgroundRemoveRequest } from './schema.ts';

export interface BackgroundRemoveParts extends RemoveBackgroundParts {
  readonly serviceName: string;
  readonly clock: Clock;
  readonly readLargeJson: ReadLargeJson;
}

export function imageBackgroundRemoveRoute(parts: BackgroundRemoveParts): Route {
  const headers = new AnswerHeaders(parts);
  return {
    method: 'POST',
    path: '/image/background-remove',
    auth: 'key-or-wallet',
    // decisions.md 11: a file of 25 MB as base64 fits into the 35 MB of a JSON body.
    body: { ...JSON_BODY, types: ['multipart/form-data', ...JSON_BODY.types] },
    sells: 'cutout',
    describe: BACKGROUND_REMOVE,
    handle: async (context) => {
      const { image, model } = await imageOf(parts, context);
      const cut = await removeBackground(parts, {
        requestId: context.requestId,
        caller: context.caller,
        model,
        image,
        signal: context.workSignal,
        note: (notes) => Object.assign(context.notes, notes),
        keeper: context.keeper,
        answered: (facts) => {
          context.setAll(headers.answered(facts));
          context.set('content-disposition', 'inline; filename="cutout.png"');
        },
      });
      if (cut !== undefined) await context.bytes(200, cut.type, cut.body);
    },
  };
}

async function imageOf(
  parts: BackgroundRemoveParts,
  context: RequestContext,
): Promise<Pick<RemoveBackgroundCall, 'image' | 'model'>> {
  if (isMultipart(context)) {
    const { bytes, fields } = await readFile(context, 'image', MAX_IMAGE_BYTES - 1);
    return { image: { bytes }, model: fields.get('model') };
  }
  const request = await readJson(context, BackgroundRemoveRequest, parts.readLargeJson);
  const model = request.model ?? undefined;
  if (typeof request.image_url === 'string') return { image: { url: request.image_url }, model };
  return { image: { bytes: await bytesOf(request.image ?? '') }, model };
}

const DATA_URL = /^data:[^,]{0,200};base64,/i;
/** Of a text of up to 35 MB the beginning and the end tell enough; a wrong middle is no image. */
const LOOKED_AT_CHARACTERS = 4_096;

/** Bare base64, or as a data URL. Faults: 400 when it is neither. */
async function bytesOf(text: string): Promise<Buffer> {
  const prefix = DATA_URL.exec(text.slice(0, 256))?.[0] ?? '';
  const payload = text.slice(prefix.length);
  const looked = payload.slice(0, LOOKED_AT_CHARACTERS) + payload.slice(-LOOKED_AT_CHARACTERS);
  if (!/^[A-Za-z0-9+/_=\s-]+$/.test(looked)) {
    throw invalidField(['image'], 'image: Must be the base64 of an image');
  }
  return await decodeBase64(payload);
}
