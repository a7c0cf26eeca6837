/** Tools of the service: `blockchain_rpc`, `balance`, `list_models`. */
import * as z from 'zod';
import { LIST_TYPES } from '../catalog/catalog.ts';
import { readResponse } from '../http/internal-call.ts';
import type { Json } from './protocol.ts';
import {
  MAX_JSON_BYTES,
  type Tool,
  asJson,
  defineTool,
  failure,
  listOf,
  readJsonResponse,
  structured,
} from './tool.ts';

export interface ServiceToolParts {
  /** Networks of the JSON-RPC proxy and price of a credit; no networks without a proxy. */
  readonly rpc: () => Promise<{
    readonly networks: readonly string[];
    readonly usdPerCredit: string;
  }>;
}

const RpcInput = z.strictObject({
  network: z.string().min(1).max(100).describe('A network of the description.'),
  method: z.string().min(1).max(200).describe('Method such as `eth_getBalance`.'),
  params: z
    .union([z.array(z.unknown()), z.record(z.string(), z.unknown())])
    .default([])
    .describe('Parameters of the method.'),
});
const RpcOutput = z.strictObject({ result: z.unknown().describe('Result of the node.') });

const Balance = z.strictObject({
  can_consume: z.boolean().describe('Whether the credit suffices for a priced call.'),
  balance_usd: z.number(),
  available_usd: z.number().describe('Credit available to the next call.'),
  daily_credit: z.number().describe('Remaining daily credit.'),
});

const Models = z.strictObject({
  models: z.array(
    z.strictObject({
      id: z.string(),
      type: z.string(),
      name: z.string(),
      description: z.string(),
      offline: z.boolean(),
      traits: z.array(z.string()),
      context_tokens: z.int().optional(),
      pricing: z
        .looseObject({})
        .optional()
        .describe('Prices in USD: per million tokens, otherwise per unit.'),
      constraints: z.looseObject({}).optional().describe('Supported values of a video model.'),
    }),
  ),
});

export function serviceTools(parts: ServiceToolParts): Tool[] {
  return [rpcTool(parts), balanceTool(), modelsTool()];
}

function rpcTool({ rpc }: ServiceToolParts): Tool {
  return defineTool({
    name: 'blockchain_rpc',
    title: 'Call a blockchain node',
    // A method can send a signed transaction.
    hints: { readOnlyHint: false, destructiveHint: true, openWorldHint: true },
    input: RpcInput,
    output: RpcOutput,
    isPaid: true,
    example: { network: 'ethereum-mainnet', method: 'eth_blockNumber' },
    about: async () => {
      const { networks, usdPerCredit } = await rpc();
      if (networks.length === 0) return undefined;
      return `Sends one JSON-RPC request to a blockchain node. Price: ${usdPerCredit} USD per credit, 20 to 120 credits per request, by network and method. Networks: ${networks.join(', ')}.`;
    },
    run: async ({ network, method, params }, call) => {
      const body = { jsonrpc: '2.0', id: 1, method, params };
      const path = `/crypto/rpc/${encodeURIComponent(network)}`;
      const response = await readResponse(await call.run({ path, body }), MAX_JSON_BYTES);
      const { result, error } = exactJson(response.toString());
      if (error !== undefined) return failure(`The node returned ${JSON.stringify(error)}`);
      return structured({ result: result ?? null });
    },
  });
}

/** Node has both; the types of TypeScript lack them. */
const exact = JSON as unknown as {
  parse(
    text: string,
    reviver: (name: string, value: unknown, context: { readonly source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): unknown;
};

/** About 60 ms of work. */
const MAX_EXACT_CHARACTERS = 1024 * 1024;

/**
 * Parses JSON and keeps numbers that JavaScript would round, such as 64-bit integers of Solana. In a
 * larger text they are rounded, because keeping them would block other requests.
 */
function exactJson(text: string): Json {
  const isExact = text.length <= MAX_EXACT_CHARACTERS && /\d{16}/.test(text);
  if (!isExact) return asJson(JSON.parse(text));
  const value = exact.parse(text, (_name, one, { source }) =>
    typeof one === 'number' && source !== undefined && String(one) !== source
      ? exact.rawJSON(source)
      : one,
  );
  return asJson(value);
}

function balanceTool(): Tool {
  return defineTool({
    name: 'balance',
    title: 'Get the balance',
    hints: { readOnlyHint: true, openWorldHint: false },
    input: z.strictObject({}),
    output: Balance,
    about: () => 'Returns the remaining credit. Needs an API key or a wallet token. Price: free.',
    run: async (_input, call) => {
      const response = await call.run({ method: 'GET', path: '/billing/balance' });
      const { canConsume, balances, available } = await readJsonResponse(response);
      const { usd, diem } = asJson(balances);
      return structured(
        Balance.parse({
          can_consume: canConsume,
          balance_usd: usd,
          available_usd: asJson(available)['usd'],
          daily_credit: diem,
        }),
      );
    },
  });
}

function modelsTool(): Tool {
  return defineTool({
    name: 'list_models',
    title: 'List models',
    hints: { readOnlyHint: true, openWorldHint: false },
    input: z.strictObject({
      type: z.enum(LIST_TYPES).default('all').describe('Type of the models.'),
    }),
    output: Models,
    about: () => 'Lists the models with their capabilities and prices. Price: free.',
    run: async ({ type }, call) => {
      const { data } = await readJsonResponse(
        await call.run({ method: 'GET', path: `/models?type=${type}` }),
      );
      return structured(Models.parse({ models: listOf(data).map(rowOf) }));
    },
  });
}

function rowOf({ id, type, context_length: context, model_spec: given }: Json): Json {
  const spec = asJson(given);
  const { name, description, offline, traits, pricing, constraints } = spec;
  return {
    id,
    type,
    name,
    description,
    offline,
    traits,
    context_tokens: context,
    pricing,
    ...(type === 'video' && constraints !== undefined ? { constraints } : {}),
  };
}
