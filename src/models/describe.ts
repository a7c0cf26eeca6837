/** What the lists of models say of themselves. */
import { type RouteDescription, jsonContent } from '../http/describe.ts';
import { ListQuery, ModelList, NameMap, TypeQuery } from './schema.ts';

const MODEL = {
  id: 'atlas-24b',
  object: 'model',
  created: 1795233600,
  owned_by: 'svc',
  type: 'text',
  context_length: 65536,
  model_spec: {
    name: 'Atlas 24B',
    description: 'Writes and reasons.',
    privacy: 'private',
    offline: false,
    beta: false,
    betaModel: false,
    uncensored: false,
    traits: ['default'],
    modelSource: 'https://example.com/atlas-24b',
    regionRestrictions: [],
    pricing: { input: { usd: 0.3, diem: 0.3 }, output: { usd: 1.2, diem: 1.2 } },
    availableContextTokens: 65536,
    maxCompletionTokens: 8192,
    capabilities: {
      optimizedForCode: false,
      supportsFunctionCalling: true,
      supportsAudioInput: false,
      supportsReasoning: true,
      supportsReasoningEffort: false,
      supportsResponseSchema: true,
      supportsMultipleImages: false,
      supportsVision: false,
      supportsVideoInput: false,
      supportsWebSearch: true,
      supportsXSearch: false,
      supportsLogProbs: false,
      supportsTeeAttestation: false,
      supportsE2EE: false,
      quantization: 'fp8',
    },
    constraints: { temperature: { default: 0.7 } },
  },
};

export const MODELS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List models',
  about:
    'Needs no key. With a key, only what it may use is listed: see its `models` and `modelPrivacy`.',
  query: ListQuery,
  answers: [
    {
      status: 200,
      about: 'The models of one type.',
      content: jsonContent(ModelList, { object: 'list', type: 'text', data: [MODEL] }),
    },
  ],
};

export const TRAITS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List traits',
  about: 'A trait is a name for the best model of a kind; requests can use it as `model`.',
  query: TypeQuery,
  answers: [
    {
      status: 200,
      about: 'Traits and their models.',
      content: jsonContent(NameMap, {
        object: 'list',
        type: 'text',
        data: { default: 'atlas-24b', fastest: 'atlas-3b' },
      }),
    },
  ],
};

export const MAPPING_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List compatibility names',
  about: 'Names of well-known models that are served by a model of this server.',
  query: TypeQuery,
  answers: [
    {
      status: 200,
      about: 'Names and their models.',
      content: jsonContent(NameMap, {
        object: 'list',
        type: 'text',
        data: { 'gpt-4o': 'atlas-24b' },
      }),
    },
  ],
};
