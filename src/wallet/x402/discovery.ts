/** `GET /x402/discovery/resources`: what can be paid for here, in the form that indexes read. */
import { z } from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import { readQuery } from '../../http/read-request.ts';
import { type Route, get } from '../../http/route.ts';
import type { Payments } from '../../payments/payments.ts';
import { Open, WALLET } from './describe.ts';
import { PaymentOption } from './manifest.ts';
import type { WalletRouteOptions } from './route-checks.ts';

const MAX_ITEMS = 100;
const LIST_AGE_SECONDS = 300;

const DiscoveryQuery = z.object({
  type: z.string().max(20).optional().describe('Only resources of this protocol: `http` or `mcp`.'),
  network: z.string().max(100).optional().describe('Only what is paid on this network, CAIP-2.'),
  scheme: z.string().max(20).optional().describe('Only what is paid by this scheme.'),
  payTo: z.string().max(100).optional().describe('Only what is paid to this address.'),
  extensions: z.string().max(100).optional().describe('Only what has this extension.'),
  limit: z.coerce.number().int().min(1).max(MAX_ITEMS).default(MAX_ITEMS).describe('Items.'),
  offset: z.coerce.number().int().min(0).max(1_000_000).default(0).describe('Items before them.'),
});

const Resources = z
  .object({
    x402Version: z.literal(2).describe('Version of the x402 protocol.'),
    items: z
      .array(
        z.object({
          resource: z.string().describe('Its address; `{name}` stands for a parameter.'),
          type: z.enum(['http', 'mcp']).describe('How it is asked; of `mcp` it is a tool.'),
          x402Version: z.literal(2).describe('Version of the x402 protocol.'),
          accepts: z.array(PaymentOption).describe('Payment options: the top-up, a first payment.'),
          lastUpdated: z.string().describe('ISO 8601.'),
          description: z.string().describe('What it is.'),
          mimeType: z.string().describe('What it answers with.'),
          serviceName: z.string().optional().describe('Name of the service.'),
          tags: z.array(z.string()).optional().describe('What it is about.'),
          extensions: z
            .object({ bazaar: Open.optional().describe('A request, its answer, their schema.') })
            .describe('What goes beyond the protocol.'),
        }),
      )
      .describe('Everything that is sold here and matches.'),
    pagination: z
      .object({
        limit: z.int().describe('As it was asked for.'),
        offset: z.int().describe('As it was asked for.'),
        total: z.int().describe('Items that match, on all pages.'),
      })
      .describe('Which part of the list this is.'),
  })
  .meta({ id: 'DiscoveryResources' });

const DISCOVERY: RouteDescription = {
  tag: 'Wallets',
  summary: 'List what can be paid for',
  about:
    'For indexes of paid services, such as a bazaar: each endpoint that sells something, and each tool of the MCP server that is paid, with its payment options, an example and its schema. `listResources` of `@x402/extensions/bazaar` reads it, with `<base URL>/x402` as the address.',
  query: DiscoveryQuery,
  response: jsonResponse(
    'A page of the list.',
    Resources,
    {
      x402Version: 2,
      items: [
        {
          resource: 'https://api.example.com/api/v1/embeddings',
          type: 'http',
          x402Version: 2,
          accepts: [
            {
              scheme: 'exact',
              network: 'eip155:8453',
              asset: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
              amount: '1000000',
              payTo: WALLET,
              maxTimeoutSeconds: 300,
              extra: { name: 'USD Coin', version: '2' },
            },
          ],
          lastUpdated: '2026-11-21T04:00:00.000Z',
          description: 'Embeddings',
          mimeType: 'application/json',
          serviceName: 'Example',
          tags: ['Embeddings'],
          extensions: {},
        },
      ],
      pagination: { limit: 100, offset: 0, total: 1 },
    },
    'no-store',
  ),
};

export function discoveryRoute(
  { resources, paidTools }: WalletRouteOptions,
  { requirements }: Payments,
): Route {
  return get('/x402/discovery/resources', 'public', DISCOVERY, async (context) => {
    const { limit, offset, ...wanted } = readQuery(context, DiscoveryQuery);
    const sold = [...resources(), ...(await paidTools())];
    const items = requirements.discoverable(sold).flatMap((item) => {
      const accepts = item.accepts.filter((option) =>
        (['network', 'scheme', 'payTo'] as const).every(
          (name) => wanted[name] === undefined || option[name] === wanted[name],
        ),
      );
      const fits =
        accepts.length > 0 &&
        (wanted.type === undefined || wanted.type === item.type) &&
        (wanted.extensions === undefined || Object.hasOwn(item.extensions, wanted.extensions));
      return fits ? [{ ...item, accepts }] : [];
    });
    context.set('cache-control', `public, max-age=${LIST_AGE_SECONDS}`);
    await context.json(200, {
      x402Version: 2,
      items: items.slice(offset, offset + limit),
      pagination: { limit, offset, total: items.length },
    });
  });
}
