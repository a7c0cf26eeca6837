/** Schemas and descriptions of the routes that connect an engine. */
import * as z from 'zod';
import { CAPABILITIES, MODEL_TYPES, PriceSettings } from '../../config/config.ts';
import { type RouteDescription, jsonContent, jsonResponse } from '../../http/describe.ts';
import { CHANGED_CONFIG, CHANGE_MEMBERS } from './config-editor-schema.ts';

const PROTOCOLS = ['openai', 'anthropic', 'responses'] as const;
const Protocol = z.enum(PROTOCOLS);
const MAX_MODELS = 500;
const short = (characters: number) => z.string().min(1).max(characters);

export type EngineChoices = z.infer<typeof EngineChoices>;
const EngineChoices = z
  .object({
    digest: z.string().describe('SHA-256 of the text of the file.'),
    readOnly: z
      .string()
      .nullable()
      .describe('Reason why the file cannot be changed here; null if it can.'),
    engines: z.array(z.string()).describe('Names of the engines in the file.'),
    providers: z
      .array(
        z.object({
          name: z.string().describe('Name of the provider.'),
          url: z.string().nullable().describe('Usual address; null for a provider package.'),
          keyVariable: z
            .string()
            .nullable()
            .describe('Usual variable of the key; null if the provider has none.'),
          isKeySet: z
            .boolean()
            .describe('True if the server has every variable that the provider needs.'),
          secrets: z
            .record(z.string(), z.string())
            .describe('Variables of further secrets, by the setting.'),
          needs: z
            .array(z.array(z.string()))
            .describe('Settings without which it cannot be called; one of each list is enough.'),
        }),
      )
      .describe('Known providers.'),
    found: z
      .array(
        z.object({
          name: z.string().describe('Kind of the server.'),
          url: z.string().describe('Address of the server.'),
        }),
      )
      .describe('Model servers that discovery has found, and that are not in the file.'),
  })
  .meta({ id: 'EngineChoices' });

const engineMembers = {
  name: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]{0,39}$/, 'Must be 1 to 40 lowercase letters, digits and dashes')
    .describe('Name of the engine in the file.'),
  provider: short(40).optional().describe('Known provider; otherwise `url` is required.'),
  url: short(2_048).optional().describe('Address of the server, or another one of the provider.'),
  protocol: Protocol.optional().describe('Default: probed.'),
  key: z
    .union([
      z.strictObject({ value: short(8_192).describe('Key, which the file will contain.') }),
      z.strictObject({
        env: z
          .string()
          .regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/, 'Must be the name of a variable')
          .describe('Environment variable of the server.'),
      }),
      z.literal('none'),
    ])
    .optional()
    .describe('Default: the usual variable of the provider.'),
  settings: z
    .record(short(100).regex(/^[A-Za-z][\w.]*$/, 'Must be the name of a setting'), short(8_192))
    .optional()
    .describe('Settings of a provider package; a dot separates a member of a member.'),
};

export const TestEngineRequest = z
  .strictObject({
    ...engineMembers,
    priceList: z
      .url({ protocol: /^https?$/ })
      .max(2_048)
      .optional()
      .describe(
        'URL of a price list, as of `farebox prices import`. Default: `priceFile`, otherwise the public list of LiteLLM.',
      ),
  })
  .meta({ id: 'TestEngineRequest' });

const Facts = z.object({
  type: z.enum(MODEL_TYPES).optional().describe('Kind of model. Default: text.'),
  context: z.int().min(1).optional().describe('Context length in tokens.'),
  maxCompletionTokens: z.int().min(1).optional().describe('Maximum output in tokens.'),
  maxInputTokens: z.int().min(1).optional().describe('Maximum length of an embedding input.'),
  dimensions: z.int().min(1).optional().describe('Dimensions of an embedding.'),
  capabilities: z.array(z.enum(CAPABILITIES)).readonly().optional().describe('Capabilities.'),
});

const Offered = z.object({
  id: short(128).describe('Id in requests.'),
  model: short(256).describe('Id at the engine.'),
  facts: Facts.describe('Properties in the price list.'),
  cost: PriceSettings.optional().describe('Prices of the supplier.'),
});

export type TestedEngine = z.infer<typeof TestedEngine>;
const TestedEngine = z
  .object({
    ok: z.boolean().describe('True if the engine has listed its models.'),
    problem: z.string().nullable().describe('Why the test failed.'),
    note: z.string().nullable().describe('Something that the test could not verify.'),
    latencyMs: z.number().describe('Time until the response.'),
    path: z.enum(['', '/v1']).describe('Path to append to the given URL.'),
    protocol: Protocol.describe('Protocol that responded.'),
    models: z
      .array(Offered.extend({ isSellable: z.boolean().describe('True if nothing is missing.') }))
      .describe('Models of the engine, at most 2000.'),
    prices: z
      .object({
        source: z.enum(['priceFile', 'url']).describe('Origin of the prices.'),
        fetchedAt: z.string().nullable().describe('Time of the fetch; null for none.'),
        problem: z.string().nullable().describe('Why there is no new price list.'),
      })
      .describe('Price list.'),
  })
  .meta({ id: 'TestedEngine' });

export const AddEngineRequest = z
  .strictObject({
    ...engineMembers,
    ...CHANGE_MEMBERS,
    models: z.array(Offered).max(MAX_MODELS).default([]).describe('Models to sell.'),
    markupPercent: z
      .string()
      .regex(/^\d{1,6}(\.\d{1,7})?$/, 'Must be a percentage such as 20')
      .default('0')
      .describe('Markup on the prices of the supplier.'),
  })
  .meta({ id: 'AddEngineRequest' });

export const ENGINE_CHOICES: RouteDescription = {
  tag: 'Operator',
  summary: 'Providers and servers to connect',
  response: jsonResponse(
    'Known providers and found servers.',
    EngineChoices,
    {
      digest: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
      readOnly: null,
      engines: ['gpu'],
      providers: [
        {
          name: 'groq',
          url: 'https://api.groq.com/openai/v1',
          keyVariable: 'GROQ_API_KEY',
          isKeySet: false,
          secrets: {},
          needs: [],
        },
      ],
      found: [{ name: 'ollama', url: 'http://127.0.0.1:11434/v1' }],
    },
    'no-store',
  ),
};

export const TEST_ENGINE: RouteDescription = {
  tag: 'Operator',
  summary: 'Test an engine before adding it',
  about:
    'Lists the models of the engine with the given key, and their published prices. Changes nothing, except that it fetches the package of a provider. The response never contains the key.',
  request: jsonContent(TestEngineRequest, { name: 'groq', provider: 'groq' }),
  response: jsonResponse(
    'Result of the test.',
    TestedEngine,
    {
      ok: true,
      problem: null,
      note: null,
      latencyMs: 84,
      path: '',
      protocol: 'openai',
      models: [
        {
          id: 'llama-3.3-70b-versatile',
          model: 'llama-3.3-70b-versatile',
          facts: { type: 'text', context: 131_072, maxCompletionTokens: 32_768 },
          cost: { input: '0.59', output: '0.79' },
          isSellable: true,
        },
      ],
      prices: { source: 'url', fetchedAt: '2026-11-21T03:55:00.000Z', problem: null },
    },
    'no-store',
  ),
  refusals: ['CONFIG_READ_ONLY'],
};

export const ADD_ENGINE: RouteDescription = {
  tag: 'Operator',
  summary: 'Add an engine and its models',
  about:
    'Writes the engine and the models to the configuration file in one change. Each model is sold at the prices of the supplier plus the markup.',
  request: jsonContent(AddEngineRequest, {
    digest: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
    name: 'groq',
    provider: 'groq',
    markupPercent: '20',
    models: [
      {
        id: 'llama-70b',
        model: 'llama-3.3-70b-versatile',
        facts: { context: 131_072 },
        cost: { input: '0.59', output: '0.79' },
      },
    ],
  }),
  response: CHANGED_CONFIG,
  refusals: ['CONFIG_READ_ONLY', 'CONFIG_CHANGED'],
};
