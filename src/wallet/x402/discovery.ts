/** `GET /x402/discovery/resources`: the paid resources, in the format of indexes. */
import * as z from 'zod';
import { type RouteDescription, jsonResponse } from '../../http/describe.ts';
import { readQuery } from '../../http/read-request.ts';
import { type Route, get } from '../../http/route.ts';
import type { Payments } from '../../payments/payments.ts';
import { Open } from './describe.ts';
import { OPTION_SAMPLE, PaymentOption } from './manifest.ts';
import type { WalletRouteOptions } from './route-checks.ts';

const MAX_ITEMS = 100;
const LIST_AGE_SECONDS = 300;

const DiscoveryQuery = z.object({
  type: z.string().max(20).optional().describe('Only resources of this protocol: `http` or `mcp`.'),
  network: z.string().max(100).optional().describe('Only payment options of this network, CAIP-2.'),
  scheme: z.string().max(20).optional().describe('Only payment options of this scheme.'),
  payTo: z.string().max(100).optional().describe('Only payment options with this receiver.'),
  extensions: z.string().max(100).optional().describe('Only resources with this extension.'),
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .max(MAX_ITEMS)
    .default(MAX_ITEMS)
    .describe('Number of items.'),
  offset: z.coerce.number().int().min(0).max(1_000_000).default(0).describe('Skipped items.'),
});

const Resources = z
  .object({
    x402Version: z.literal(2).describe('Version of the x402 protocol.'),
    items: z
      .array(
        z.object({
          resource: z.string().describe('URL of the resource; `{name}` is a parameter.'),
          type: z.enum(['http', 'mcp']).describe('Protocol; an `mcp` resource is a tool.'),
          x402Version: z.literal(2).describe('Version of the x402 protocol.'),
          accepts: z.array(PaymentOption).describe('Payment options: top-up and first payment.'),
          lastUpdated: z.string().describe('ISO 8601.'),
          description: z.string().describe('Description of the resource.'),
          mimeType: z.string().describe('Media type of the response.'),
          serviceName: z.string().optional().describe('Name of the service.'),
          tags: z.array(z.string()).optional().describe('Topics of the resource.'),
          extensions: z
            .object({ bazaar: Open.optional().describe('Example request and response.') })
            .describe('Extensions of the protocol.'),
        }),
      )
      .describe('The matching resources.'),
    pagination: z
      .object({
        limit: z.int().describe('Requested limit.'),
        offset: z.int().describe('Requested offset.'),
        total: z.int().describe('Number of matching items on all pages.'),
      })
      .describe('Position of this page.'),
  })
  .meta({ id: 'DiscoveryResources' });

const DISCOVERY: RouteDescription = {
  tag: 'Wallets',
  summary: 'List paid resources',
  about:
    'For indexes of paid services: each paid endpoint and each paid tool of the MCP server, with its payment options, an example and its schema. `listResources` of `@x402/extensions/bazaar` reads this list from `<base URL>/x402`.',
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
          accepts: [OPTION_SAMPLE],
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
