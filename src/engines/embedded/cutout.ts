/**
 * Starts the embedded background removal engine: a child process with the rembg API. Its general
 * model is either fetched on first use and replaces the bundled one, or is a file of the operator.
 */
import { basename } from 'node:path';
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import type { FetchModel } from './model-files.ts';
import { programUrl } from './program.ts';

const RELEASE = 'https://github.com/danielgatis/rembg/releases/download/v0.0.0';

const GENERAL_MODELS = {
  u2netp: {
    recipe: 'u2net',
    file: {
      name: 'u2netp.onnx',
      url: `${RELEASE}/u2netp.onnx`,
      sizeBytes: 4_574_861,
      sha256: '309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8',
      license: 'Apache-2.0',
    },
  },
  isnet: {
    recipe: 'isnet',
    file: {
      name: 'isnet-general-use.onnx',
      url: `${RELEASE}/isnet-general-use.onnx`,
      sizeBytes: 178_648_008,
      sha256: '60920e99c45464f2ba57bee2ad08c919a52bbf852739e96947fbb4358c0d964a',
      license: 'Apache-2.0',
    },
  },
} as const;

export interface CutoutOptions extends EngineProcessParts {
  /**
   * `person` keeps the bundled model; the path of an ONNX file selects the operator's model.
   * Neither of them fetches a model.
   */
  readonly model: string;
  readonly threads: number;
  readonly fetchModel: FetchModel;
}

export function cutoutEngine({
  model,
  threads,
  fetchModel,
  ...parts
}: CutoutOptions): EngineProcess {
  const general = isGeneral(model) ? GENERAL_MODELS[model] : undefined;
  const isOwn = general === undefined && model !== 'person';
  const own = isOwn ? { general: { path: model, name: cutoutModelName(model) } } : {};
  return new EngineProcess({
    ...parts,
    name: 'cutout',
    entry: programUrl('cutout/main'),
    packages: 'cutout',
    settings: () => ({ threads, ...own }),
    model: general && {
      name: general.file.name,
      files: [general.file],
      fetchModel,
      settings: ([path]) => ({ general: { path, name: model, recipe: general.recipe } }),
    },
  });
}

function isGeneral(model: string): model is keyof typeof GENERAL_MODELS {
  return Object.hasOwn(GENERAL_MODELS, model);
}

/** The model name in responses: for a file its base name, so that its folder is not revealed. */
export function cutoutModelName(model: string): string {
  return basename(model, '.onnx');
}
