/** Tools for texts: `embeddings`, `rerank`, `moderate`. */
import * as z from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { aboutPriced } from './prices.ts';
import { CostUsd, type Tool, asJson, defineTool, listOf, postJson, structured } from './tool.ts';

/** Low limits, because a model reads the result; the routes allow more. */
const MAX_TEXTS = 64;
const MAX_DOCUMENTS = 1_000;

const Model = z.string().min(1).max(256).default('default').describe('A model id of list_models.');
const Texts = z.array(z.string().min(1)).min(1).max(MAX_TEXTS);

const Embeddings = z.strictObject({
  model: z.string(),
  embeddings: z.array(z.array(z.number())).describe('One vector for each text, in order.'),
  total_tokens: z.int().min(0),
});
const Ranking = z.strictObject({
  model: z.string(),
  results: z
    .array(
      z.strictObject({
        index: z.int().min(0).describe('Index of the document, from 0.'),
        score: z.number().describe('Relevance, on the scale of the model.'),
      }),
    )
    .describe('Sorted by relevance.'),
  cost_usd: CostUsd,
});
const Moderation = z.strictObject({
  model: z.string(),
  results: z
    .array(
      z.strictObject({
        flagged: z.boolean(),
        categories: z.array(z.string()).describe('Categories of the model that apply.'),
        scores: z.record(z.string(), z.number()).describe('Confidence per category, from 0 to 1.'),
      }),
    )
    .describe('One result for each text, in order.'),
  cost_usd: CostUsd,
});

export function textTools({ catalog }: { readonly catalog: Catalog }): Tool[] {
  return [embeddingsTool(catalog), rerankTool(catalog), moderationTool(catalog)];
}

function embeddingsTool(catalog: Catalog): Tool {
  return defineTool({
    name: 'embeddings',
    title: 'Create embeddings',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({
      texts: Texts,
      model: Model,
      dimensions: z
        .int()
        .min(1)
        .optional()
        .describe('Length of the vectors, for models that support it.'),
    }),
    output: Embeddings,
    isPaid: true,
    example: { texts: ['Spring tides come with the new moon.'] },
    about: aboutPriced(catalog, 'embedding', 'Converts texts to vectors for semantic search.'),
    run: async ({ texts, model, dimensions }, call) => {
      const body = { model, input: texts, dimensions };
      const { data, usage, model: used } = await postJson(call, '/embeddings', body);
      const embeddings = listOf(data).map(({ embedding }) => embedding);
      const { total_tokens } = asJson(usage);
      return structured(Embeddings.parse({ model: used, embeddings, total_tokens }));
    },
  });
}

function rerankTool(catalog: Catalog): Tool {
  return defineTool({
    name: 'rerank',
    title: 'Rank documents',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({
      query: z.string().min(1).describe('Query to which documents are compared.'),
      documents: z.array(z.string().min(1)).min(1).max(MAX_DOCUMENTS),
      top_n: z.int().min(1).optional().describe('Number of results; default all.'),
      model: Model,
    }),
    output: Ranking,
    isPaid: true,
    example: {
      query: 'When are the tides highest?',
      documents: ['At the new moon.', 'On Mondays.'],
    },
    about: aboutPriced(catalog, 'rerank', 'Sorts documents by relevance to a query.'),
    run: async (body, call) => {
      const { model, results: ranked, cost } = await postJson(call, '/rerank', body);
      const results = listOf(ranked).map(({ index, relevance_score: score }) => ({ index, score }));
      return structured(Ranking.parse({ model, results, cost_usd: asJson(cost)['usd'] }));
    },
  });
}

function moderationTool(catalog: Catalog): Tool {
  return defineTool({
    name: 'moderate',
    title: 'Moderate texts',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({ texts: Texts, model: Model }),
    output: Moderation,
    isPaid: true,
    example: { texts: ['Good morning.'] },
    about: aboutPriced(catalog, 'moderation', 'Classifies texts by kinds of harm.'),
    run: async ({ texts: input, model }, call) => {
      const response = await postJson(call, '/moderations', { input, model });
      const results = listOf(response['results']).map((one) => ({
        flagged: one['flagged'],
        categories: Object.entries(asJson(one['categories'])).flatMap(([name, applies]) =>
          applies === true ? [name] : [],
        ),
        scores: one['category_scores'],
      }));
      const cost_usd = asJson(response['cost'])['usd'];
      return structured(Moderation.parse({ model: response['model'], results, cost_usd }));
    },
  });
}
