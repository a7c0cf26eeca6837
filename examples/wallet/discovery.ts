/**
 * Lists the priced endpoints of a server with the official client, and prints a request for each.
 *
 *   FAREBOX_URL=https://api.example.com/api/v1 npx node examples/wallet/discovery.ts
 */
import { HTTPFacilitatorClient } from '@x402/core/server';
import { withBazaar } from '@x402/extensions/bazaar';

const baseUrl = process.env['FAREBOX_URL'] ?? 'http://127.0.0.1:8402/api/v1';
const index = withBazaar(new HTTPFacilitatorClient({ url: `${baseUrl}/x402` }));
const { items } = await index.extensions.bazaar.listResources({ type: 'http' });

for (const { resource, description, accepts, extensions } of items) {
  const least = accepts.map(({ amount }) => Number(amount) / 1e6).sort((a, b) => a - b)[0];
  const bazaar = extensions?.['bazaar'] as { info: { input: { body: unknown } } };
  console.log(`${description}: ${resource}, from ${least} USD`);
  console.log(`  ${JSON.stringify(bazaar.info.input.body)}`);
}
