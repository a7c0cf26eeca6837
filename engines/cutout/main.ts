/**
 * Entry file of the background removal engine. It implements the rembg API: `POST /api/remove`
 * takes an image (multipart field `file`, or the bytes as the body) and returns a PNG of the same
 * size with an alpha channel.
 *
 * The bundled person model serves requests until the parent sends the path of a general model; the
 * engine then switches without downtime. At most two images are in memory, because each may need
 * half a gigabyte; their callers take turns in steps of at most 2 s.
 */
import * as z from 'zod';
import { JobQueue } from '../../src/core/job-queue.ts';
import { blockingTurn, engineQueue } from '../server/engine-queue.ts';
import { reasonOf } from '../../src/core/log.ts';
import { packagePath } from '../../src/core/package-root.ts';
import { type EngineRequest, nativePackage, sendBytes, serveEngine } from '../server/server.ts';
import { isMultipart, missingFile, readBody, readUpload } from '../server/request-body.ts';
import { applyMatte } from './matte.ts';
import { encodePng } from './png.ts';
import { MAX_IMAGE_BYTES, PhotoEditor, type Sharp } from './photo.ts';
import { type LoadedModel, type Onnx, Segmenter } from './segmenter.ts';

/** Images in memory. A caller has one of them, so that a second caller does not wait for it. */
const IMAGES = 2;

const PERSON_MODEL = 'assets/person-segmentation.onnx';

const GeneralModel = z.object({
  path: z.string(),
  name: z.string(),
  /** If it is missing, the input size of the model selects the recipe. */
  recipe: z.enum(['u2net', 'isnet']).optional(),
});
const CutoutSettings = z.object({
  threads: z.int().min(1),
  general: GeneralModel.optional(),
});
const ModelMessage = z.object({ type: z.literal('model'), general: GeneralModel });

serveEngine(async (given, report) => {
  const { threads, general } = CutoutSettings.parse(given);
  const need = 'Background removal';
  const sharp = (await nativePackage<{ default: Sharp }>('sharp', need)).default;
  const ort = await nativePackage<Onnx>('onnxruntime-node', need);
  const editor = new PhotoEditor(sharp, threads);
  const load = async (model: LoadedModel): Promise<Segmenter> =>
    await Segmenter.load(ort, { ...model, threads });
  let segmenter = await load(
    general ?? { path: packagePath(PERSON_MODEL), name: 'person', recipe: 'person' },
  );
  const images = engineQueue({
    running: IMAGES,
    runningOfCaller: 1,
    waiting: 16,
    retryAfterSeconds: 5,
  });
  // One place for each image, and one for the switch to another model.
  const steps = new JobQueue({ running: 1, waiting: IMAGES + 1 });

  async function remove(
    bytes: Buffer,
    { caller, signal }: EngineRequest,
  ): Promise<{ png: Buffer; model: string }> {
    const turn = blockingTurn(steps.turnsOf(caller, signal));
    // One turn, because a small image would wait before each step for one of a large image.
    const { image, guide, mask, model } = await turn(async () => {
      const image = await editor.decode(bytes);
      const guide = await editor.guideCopy(image);
      const copy = await editor.squareCopy(image, segmenter.side);
      return { image, guide, mask: await segmenter.segment(copy), model: segmenter.name };
    });
    await applyMatte(image, guide, mask, turn);
    return { png: await encodePng(image, turn), model };
  }

  async function switchTo(model: z.infer<typeof GeneralModel>): Promise<void> {
    const next = await load(model);
    // Runs as a step, so that the old model is not in use while it is released.
    await steps.run(async () => {
      const old = segmenter;
      segmenter = next;
      await old.close();
    });
  }

  return {
    routes: {
      'POST /api/remove': async (request, response) => {
        const bytes = await readImage(request);
        // The parent fetches the general model after the first use.
        report({ type: 'used' });
        const { signal, caller } = request;
        const { png, model } = await images.run(() => remove(bytes, request), signal, caller);
        response.setHeader('x-model', model);
        sendBytes(response, 200, 'image/png', png);
      },
    },
    onMessage(message) {
      const parsed = ModelMessage.safeParse(message);
      if (!parsed.success) return;
      switchTo(parsed.data.general).catch((error: unknown) => {
        report({ type: 'model-failed', error: reasonOf(error) });
      });
    },
  };
});

async function readImage({ raw }: EngineRequest): Promise<Buffer> {
  if (!isMultipart(raw)) return await readBody(raw, MAX_IMAGE_BYTES);
  const { files } = await readUpload(raw, { maxFileBytes: MAX_IMAGE_BYTES });
  const file = files.get('file');
  if (file === undefined) throw missingFile('file');
  return file.data;
}
