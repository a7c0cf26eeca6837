/**
 * Background removal over HTTP as rembg speaks it: `POST /api/remove` takes an image (multipart
 * field `file`, or the bytes as the body) and answers a PNG of the same size with alpha.
 *
 * The person model of the box answers until the parent hands in the path of a general model, which
 * then takes over without a pause. Images are worked on one at a time: each may need half a
 * gigabyte while it is in the works.
 */
import type { ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { Fault } from '../../core/faults.ts';
import { reasonOf } from '../../core/log.ts';
import {
  type LocalRequest,
  type LocalService,
  answerBytes,
  answerJson,
} from '../local/local-server.ts';
import { optionalPackage } from '../local/optional-package.ts';
import { JobQueue } from '../../core/job-queue.ts';
import { isMultipart, readBody, readUpload } from '../local/upload.ts';
import { applyMatte } from './matte.ts';
import {
  MAX_IMAGE_BYTES,
  type Sharp,
  decodePhoto,
  encodePng,
  guideCopy,
  restrictSharp,
  squareCopy,
} from './photo.ts';
import {
  ISNET_RECIPE,
  type ModelRecipe,
  type Onnx,
  PERSON_RECIPE,
  Segmenter,
  U2NET_RECIPE,
} from './segmenter.ts';

/** Recipes by the name of the model file in the settings and messages of the parent. */
const RECIPES = { person: PERSON_RECIPE, u2net: U2NET_RECIPE, isnet: ISNET_RECIPE } as const;

/** The model file that is part of the package. */
const PERSON_MODEL = new URL('../../../assets/person-segmentation.onnx', import.meta.url);

const MAX_WAITING = 16;
const RETRY_AFTER_SECONDS = 5;

const GeneralModel = z.object({ path: z.string(), recipe: z.enum(['u2net', 'isnet']) });

/** What the parent sends at the start. */
const CutoutSettings = z.object({
  threads: z.int().min(1),
  /** The general model, when it is already there. */
  general: GeneralModel.optional(),
});

const ModelMessage = z.object({ type: z.literal('model'), general: GeneralModel });

class CutoutService implements LocalService {
  readonly #sharp: Sharp;
  readonly #ort: Onnx;
  readonly #threads: number;
  readonly #report: (message: object) => void;
  readonly #queue = new JobQueue({
    running: 1,
    waiting: MAX_WAITING,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
  #segmenter: Segmenter;

  constructor(
    packages: { sharp: Sharp; ort: Onnx },
    segmenter: Segmenter,
    threads: number,
    report: (message: object) => void,
  ) {
    this.#sharp = packages.sharp;
    this.#ort = packages.ort;
    this.#segmenter = segmenter;
    this.#threads = threads;
    this.#report = report;
  }

  async handle(request: LocalRequest, response: ServerResponse): Promise<void> {
    if (request.path === '/health') {
      answerJson(response, 200, { status: 'ok', model: this.#segmenter.name });
      return;
    }
    if (request.path !== '/api/remove') throw new Fault('NOT_FOUND');
    if (request.method !== 'POST') throw new Fault('METHOD_NOT_ALLOWED');
    const bytes = await readImage(request);
    // The first real use is the wish for the better model.
    this.#report({ type: 'used' });
    const png = await this.#queue.run(() => this.#remove(bytes), request.signal);
    response.setHeader('x-model', png.model);
    answerBytes(response, 200, 'image/png', png.data);
  }

  onMessage(message: unknown): void {
    const parsed = ModelMessage.safeParse(message);
    if (!parsed.success) return;
    this.#takeOver(parsed.data.general).catch((error: unknown) => {
      this.#report({ type: 'model-failed', error: reasonOf(error) });
    });
  }

  async #remove(bytes: Buffer): Promise<{ data: Buffer; model: string }> {
    const segmenter = this.#segmenter;
    const image = await decodePhoto(this.#sharp, bytes);
    const guide = await guideCopy(this.#sharp, image);
    const copy = await squareCopy(this.#sharp, image, segmenter.recipe.side);
    applyMatte(image, guide, await segmenter.segment(copy));
    return { data: await encodePng(this.#sharp, image), model: segmenter.name };
  }

  async #takeOver(general: z.infer<typeof GeneralModel>): Promise<void> {
    const next = await loadSegmenter(this.#ort, general, this.#threads);
    // In a turn of its own: no image is in the works while the old model goes.
    await this.#queue.run(async () => {
      const old = this.#segmenter;
      this.#segmenter = next;
      await old.close();
    }, new AbortController().signal);
    this.#report({ type: 'model-loaded', name: next.name });
  }
}

async function readImage(request: LocalRequest): Promise<Buffer> {
  if (!isMultipart(request.raw)) return await readBody(request.raw, MAX_IMAGE_BYTES);
  const { files } = await readUpload(request.raw, { maxFileBytes: MAX_IMAGE_BYTES });
  const file = files.get('file');
  if (file === undefined) {
    throw new Fault('INVALID_REQUEST', { message: 'The multipart body has no field "file"' });
  }
  return file.data;
}

async function loadSegmenter(
  ort: Onnx,
  model: { path: string; recipe: keyof typeof RECIPES },
  threads: number,
): Promise<Segmenter> {
  const recipe: ModelRecipe = RECIPES[model.recipe];
  return await Segmenter.load(ort, { name: model.recipe, path: model.path, recipe }, threads);
}

/** Builds the service in the child; rejects with a sentence when a package is missing. */
export async function createCutoutService(
  settings: unknown,
  report: (message: object) => void,
): Promise<LocalService> {
  const { threads, general } = CutoutSettings.parse(settings);
  const need = 'Background removal';
  const sharp = (await optionalPackage<{ default: Sharp }>('sharp', need)).default;
  const ort = await optionalPackage<Onnx>('onnxruntime-node', need);
  restrictSharp(sharp, threads);
  const model = general ?? { path: fileURLToPath(PERSON_MODEL), recipe: 'person' as const };
  const segmenter = await loadSegmenter(ort, model, threads);
  return new CutoutService({ sharp, ort }, segmenter, threads, report);
}
