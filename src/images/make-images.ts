/**
 * Generates and sells images, for all image endpoints: places a hold for the most expensive kind
 * that matches the request, validates each image, and charges the delivered images by size and
 * quality.
 */
import { Fault } from '../core/faults.ts';
import type { Nano } from '../core/money.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_TYPE } from '../http/route.ts';
import {
  answerWork,
  type FailedWork,
  type FallbackRule,
  findModel,
  type FoundModel,
  type HeldWork,
  sellWithFallbacks,
} from '../http/sell-work.ts';
import { refuseIssues } from '../json/validation.ts';
import { imagesBound } from './image-bill.ts';
import {
  factsOf,
  type ImageOrder,
  type GeneratedImages,
  type MakeImagesParts,
  generateImages,
} from './image-engine.ts';
import { streamImages } from './image-events.ts';
import { type BodyPart, ImagesBody } from './images-body.ts';

const DEFAULT_PROMPT_CHARACTERS = 32_000;
const DEFAULT_MAX_IMAGES = 10;

/** Generates, charges and responds. Throws 400, 401, 402, 403, 404, 422, 429, 5xx. */
export async function makeImages(
  parts: MakeImagesParts,
  context: RequestContext,
  order: ImageOrder,
): Promise<void> {
  const wanted = { name: order.model, work: 'images' };
  const found = findModel(parts, context, 'image', wanted);
  const boundOf = (one: FoundModel): Nano => {
    requireSupported(order, one.model);
    return imagesBound(order, one);
  };
  const rule: FallbackRule = { type: 'image', work: wanted.work, boundOf };
  let inputs: Promise<void> | undefined;
  await sellWithFallbacks(parts, context, found, { kind: order.work, rule }, async (held) => {
    await (inputs ??= order.fetch?.(held.signal));
    return await (order.stream ? streamImages(parts, order, held) : sendImages(parts, order, held));
  });
}

/** Rejects what the model does not support, before an engine is called. */
function requireSupported(order: ImageOrder, model: HeldWork['model']): void {
  const { image, id } = model;
  const refuse = (field: string, message: string): never => {
    throw refuseIssues([{ code: 'custom', path: [field], message }]);
  };
  if (order.inputImages !== undefined) requireEdits(order.inputImages, model);
  const { size, quality } = order.kind;
  const most = image?.promptCharacterLimit ?? DEFAULT_PROMPT_CHARACTERS;
  if (order.prompt.length > most) {
    refuse(
      'prompt',
      `The model ${id} takes at most ${most} characters, got ${order.prompt.length}`,
    );
  }
  const mostImages = image?.maxImages ?? DEFAULT_MAX_IMAGES;
  if (order.count > mostImages) {
    refuse('n', `The model ${id} makes at most ${mostImages} images at once, not ${order.count}`);
  }
  const sizes = image?.sizes;
  if (size !== undefined && sizes !== undefined && !sizes.includes(size)) {
    refuse('size', `The model ${id} makes ${sizes.join(', ')}, not ${size}`);
  }
  const qualities = image?.qualities;
  if (quality !== undefined && qualities !== undefined && !qualities.includes(quality)) {
    refuse('quality', `The model ${id} makes ${qualities.join(', ')}, not ${quality}`);
  }
}

function requireEdits(given: number, { id, image }: HeldWork['model']): void {
  if (image?.edits !== true) {
    const message = `The model ${id} does not edit images: choose a model that lists edits`;
    throw new Fault('INVALID_MODEL', { message });
  }
  if (given <= image.maxInputImages) return;
  const message = `The model ${id} takes at most ${image.maxInputImages} images, got ${given}`;
  throw refuseIssues([{ code: 'too_big', path: ['image'], message }]);
}

async function sendImages(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
): Promise<FailedWork | undefined> {
  const result = await generateImages(parts, order, held);
  if ('fault' in result) return result;
  const { made, by, outcome } = result;
  const createdS = Math.floor(parts.clock.nowMs() / 1_000);
  const body = await ImagesBody.of(bodyParts(made, order, createdS));
  await answerWork(held, by, outcome, (cost) => {
    const facts = JSON.stringify({ ...factsOf(made, order), cost });
    return { type: JSON_TYPE, body: body.end(`],${facts.slice(1)}`) };
  });
  return undefined;
}

/** All of the body but its end. Base64 needs no escaping, so it is joined without JSON.stringify. */
function bodyParts(made: GeneratedImages, order: ImageOrder, created: number): BodyPart[] {
  const parts: BodyPart[] = [`{"created":${created},"data":[`];
  for (const [place, { bytes, format, revisedPrompt }] of made.images.entries()) {
    const revised =
      revisedPrompt === undefined ? '' : `,"revised_prompt":${JSON.stringify(revisedPrompt)}`;
    const separator = place === 0 ? '' : ',';
    const opening = order.asUrls ? `{"url":"data:image/${format};base64,` : '{"b64_json":"';
    parts.push(separator + opening, bytes, `"${revised}}`);
  }
  return parts;
}
