/**
 * Entry file of the background removal engine. It implements the rembg API: `POST /api/remove`
 * takes an image (multipart field `file`, or the bytes as the body) and returns a PNG of the same
 * size with an alpha channel.
 *
 * The bundled person model serves requests until the parent sends the path of a general model; the
 * engine then switches without downtime. Images are processed one at a time, because each may need
 * half a gigabyte of memory.
 */
import { z } from 'zod';
import { engineQueue } from '../server/engine-queue.ts';
import { reasonOf } from '../../src/core/log.ts';
import { packagePath } from '../../src/core/package-root.ts';
import { type EngineRequest, nativePackage, sendBytes, serveEngine } from '../server/server.ts';
import { isMultipart, missingFile, readBody, readUpload } from '../server/request-body.ts';
import { applyMatte } from './matte.ts';
import { MAX_IMAGE_BYTES, PhotoEditor, type Sharp } from './photo.ts';
import { type LoadedModel, type Onnx, Segmenter } from './segmenter.ts';

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
  const queue = engineQueue({ running: 1, waiting: 16, retryAfterSeconds: 5 });

  async function remove(bytes: Buffer): Promise<{ png: Buffer; model: string }> {
    const image = await editor.decode(bytes);
    const guide = await editor.guideCopy(image);
    const copy = await editor.squareCopy(image, segmenter.side);
    applyMatte(image, guide, await segmenter.segment(copy));
    return { png: await editor.encodePng(image), model: segmenter.name };
  }

  async function switchTo(model: z.infer<typeof GeneralModel>): Promise<void> {
    const next = await load(model);
    // Runs as a queued job, so that no image is being processed while the old model is released.
    await queue.run(async () => {
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
        const { png, model } = await queue.run(() => remove(bytes), request.signal, request.caller);
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
