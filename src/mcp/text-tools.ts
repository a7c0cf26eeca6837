/** The tools that look at texts: `embeddings`, `rerank`, `moderate`. */
import { z } from 'zod';
import type { Catalog } from '../catalog/catalog.ts';
import { priceOf } from './prices.ts';
import {
  CostUsd,
  type Tool,
  asJson,
  defineTool,
  listOf,
  readJsonResponse,
  structured,
} from './tool.ts';

/** More are a matter for the routes: a model reads what a tool answers. */
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
        index: z.int().min(0).describe('The place of the document among those given, from 0.'),
        score: z.number().describe('How well it fits; the scale is that of the model.'),
      }),
    )
    .describe('The best first.'),
  cost_usd: CostUsd,
});
const Moderation = z.strictObject({
  model: z.string(),
  results: z
    .array(
      z.strictObject({
        flagged: z.boolean(),
        categories: z.array(z.string()).describe('Those that apply, in the words of the model.'),
        scores: z.record(z.string(), z.number()).describe('How sure the model is, from 0 to 1.'),
      }),
    )
    .describe('One for each text, in order.'),
  cost_usd: CostUsd,
});

export function textTools({ catalog }: { readonly catalog: Catalog }): Tool[] {
  return [embeddingsTool(catalog), rerankTool(catalog), moderationTool(catalog)];
}

function embeddingsTool(catalog: Catalog): Tool {
  return defineTool({
    name: 'embeddings',
    title: 'Make embeddings',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({
      texts: Texts,
      model: Model,
      dimensions: z.int().min(1).optional().describe('For models that can cut their vectors.'),
    }),
    output: Embeddings,
    isPaid: true,
    example: { texts: ['Spring tides come with the new moon.'] },
    about: () => {
      const price = priceOf(catalog, 'embedding');
      return price && `Turns texts into vectors, for search by meaning. ${price}`;
    },
    run: async ({ texts, model, dimensions }, call) => {
      const body = { model, input: texts, dimensions };
      const answer = await readJsonResponse(await call.run({ path: '/embeddings', body }));
      const { data, usage } = answer;
      const rows = listOf(data);
      return structured(
        Embeddings.parse({
          model: answer['model'],
          embeddings: rows.map(({ embedding }) => embedding),
          total_tokens: asJson(usage)['total_tokens'],
        }),
      );
    },
  });
}

function rerankTool(catalog: Catalog): Tool {
  return defineTool({
    name: 'rerank',
    title: 'Put documents in order',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({
      query: z.string().min(1).describe('What the documents are compared with.'),
      documents: z.array(z.string().min(1)).min(1).max(MAX_DOCUMENTS),
      top_n: z.int().min(1).optional().describe('How many of the best; all when absent.'),
      model: Model,
    }),
    output: Ranking,
    isPaid: true,
    example: {
      query: 'When are the tides highest?',
      documents: ['At the new moon.', 'On Mondays.'],
    },
    about: () => {
      const price = priceOf(catalog, 'rerank');
      return price && `Puts documents in the order in which they fit a query. ${price}`;
    },
    run: async (body, call) => {
      const answer = await readJsonResponse(await call.run({ path: '/rerank', body }));
      const results = listOf(answer['results']).map(({ index, relevance_score: score }) => {
        return { index, score };
      });
      const cost_usd = asJson(answer['cost'])['usd'];
      return structured(Ranking.parse({ model: answer['model'], results, cost_usd }));
    },
  });
}

function moderationTool(catalog: Catalog): Tool {
  return defineTool({
    name: 'moderate',
    title: 'Look for harm in texts',
    hints: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    input: z.strictObject({ texts: Texts, model: Model }),
    output: Moderation,
    isPaid: true,
    example: { texts: ['Good morning.'] },
    about: () => {
      const price = priceOf(catalog, 'moderation');
      return price && `Says whether texts are harmful, and in what way. ${price}`;
    },
    run: async ({ texts: input, model }, call) => {
      const body = { input, model };
      const answer = await readJsonResponse(await call.run({ path: '/moderations', body }));
      const results = listOf(answer['results']).map((one) => ({
        flagged: one['flagged'],
        categories: Object.entries(asJson(one['categories'])).flatMap(([name, applies]) => {
          return applies === true ? [name] : [];
        }),
        scores: one['category_scores'],
      }));
      const cost_usd = asJson(answer['cost'])['usd'];
      return structured(Moderation.parse({ model: answer['model'], results, cost_usd }));
    },
  });
}
