/** Composes the MCP server, whose tools call routes of this server. */
import { type CallRoute, readResponse } from '../http/internal-call.ts';
import { type McpFeature, mcpFeature } from '../mcp/mcp.ts';
import type { Wallets } from '../wallet/wallet.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { LargeBodies } from './large-bodies.ts';

interface McpEndpointParts {
  readonly shared: FeatureParts;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly wallets: Wallets;
}

/** The response has a few hundred names. */
const MAX_NETWORKS_BYTES = 1024 * 1024;

export function mcpEndpoint(
  { shared, version, wallets }: McpEndpointParts,
  call: CallRoute,
  largeBodies: LargeBodies,
): McpFeature {
  const { config } = shared;
  if (!config.current.mcp.enabled) return { routes: [], paidTools: async () => [] };
  let networks: readonly string[] | undefined;
  return mcpFeature({
    ...shared,
    store: shared.stores.store,
    version,
    call,
    readLargeJson: (bytes, caller) => largeBodies.json(bytes, caller),
    // The networks do not change while the server runs.
    networks: async () => (networks ??= config.current.rpc.enabled ? await networksOf(call) : []),
    searchPrice: () => config.current.search?.usdPerSearch,
    takesWallets: wallets.payments !== undefined,
  });
}

async function networksOf(call: CallRoute): Promise<readonly string[]> {
  const path = '/crypto/rpc/networks';
  const response = await call({ method: 'GET', path, address: '', countsFailures: false });
  const bytes = await readResponse(response, MAX_NETWORKS_BYTES);
  const { networks } = JSON.parse(bytes.toString()) as { networks: string[] }; // response of our own route
  return networks;
}
