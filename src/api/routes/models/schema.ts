/** What the lists of models answer, and what they take. */
import { z } from 'zod';
import { LIST_TYPES } from '../../../catalog/catalog.ts';
import { MODEL_TYPES } from '../../../config/config.ts';

const ListType = z.enum(LIST_TYPES);
const Type = z.enum(MODEL_TYPES);

export const ListQuery = z.object({
  type: ListType.optional().describe(
    '`text` when absent; `all` is everything, `code` the text models that are made for code.',
  ),
});
export const TypeQuery = z.object({ type: Type.optional().describe('`text` when absent.') });

const Amount = z.strictObject({ usd: z.number(), diem: z.number() });

const Pricing = z
  .record(z.string(), z.union([Amount, z.looseObject({})]))
  .describe(
    '`input`, `output`, `cache_input`, `cache_write` are per million tokens, `extended` the same for long prompts; `generation` is per image, `per_request`, `per_search` and `per_audio_second` are what they say.',
  );

const Model = z
  .looseObject({
    id: z.string(),
    object: z.literal('model'),
    created: z.int(),
    owned_by: z.string(),
    type: Type,
    context_length: z.int().optional(),
    model_spec: z.looseObject({
      name: z.string(),
      privacy: z.string(),
      offline: z.boolean(),
      beta: z.boolean(),
      traits: z.array(z.string()),
      pricing: Pricing.optional(),
      capabilities: z.looseObject({}).optional(),
      constraints: z.looseObject({}).optional(),
      deprecation: z.looseObject({ date: z.string() }).optional(),
      availableContextTokens: z.int().optional(),
      maxCompletionTokens: z.int().optional(),
    }),
  })
  .meta({ id: 'Model' });

export const ModelList = z
  .strictObject({ object: z.literal('list'), type: ListType, data: z.array(Model) })
  .meta({ id: 'ModelList' });

export const NameMap = z
  .strictObject({
    object: z.literal('list'),
    type: Type,
    data: z.record(z.string(), z.string()).describe('A name and the id of its model.'),
  })
  .meta({ id: 'NameMap' });
