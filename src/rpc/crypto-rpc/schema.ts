/**
 * Request and response schemas of the JSON-RPC endpoints, and their description. Responses are the
 * node's own bytes.
 */
import { z } from 'zod';
import { type RouteDescription, jsonResponse, jsonContent } from '../../http/describe.ts';
import { MAX_BATCH_ITEMS } from '../rpc.ts';

const Id = z.union([z.number(), z.string(), z.null()]);

const Request = z
  .looseObject({
    jsonrpc: z.literal('2.0').describe('Version of JSON-RPC.'),
    method: z.string().describe('Method of the network, such as `eth_blockNumber`.'),
    params: z
      .union([z.array(z.unknown()), z.record(z.string(), z.unknown())])
      .nullish()
      .describe('Its parameters, in order or by name; `null` is the same as none.'),
    id: Id.optional().describe('Echoed; tells the items of a batch apart. At most 1,024 bytes.'),
  })
  .meta({ id: 'JsonRpcRequest' });

const RpcBody = z.union([Request, z.array(Request).min(1).max(MAX_BATCH_ITEMS)]);

const Answer = z
  .looseObject({
    result: z.unknown().optional().describe('What the node answers; missing beside `error`.'),
    error: z.unknown().optional().describe('What the node says; such an item costs 5 credits.'),
    id: z.unknown().optional().describe('That of the request.'),
  })
  .meta({ id: 'JsonRpcAnswer' });

const RpcResponses = z.union([Answer, z.array(Answer)]);

const Networks = z.strictObject({
  networks: z.array(z.string()).describe('Names for the path of `POST /crypto/rpc/{network}`.'),
});

export const NETWORKS_DESCRIPTION: RouteDescription = {
  tag: 'Blockchain RPC',
  summary: 'List networks',
  response: jsonResponse('Networks that can be asked, in order.', Networks, {
    networks: ['base-mainnet', 'ethereum-mainnet'],
  }),
};

export const RPC_DESCRIPTION: RouteDescription = {
  tag: 'Blockchain RPC',
  summary: 'Call a node',
  about: `One JSON-RPC request or up to 100 in an array. Credits are those of the network times the tier of the method; an item that the node answers with an error costs 5 credits. Methods that are not on the list are a 400 that names them, before anything is charged.

viem, ethers and web3 work unmodified with this URL and the header of the key.`,
  parameters: [
    {
      name: 'network',
      in: 'path',
      about: 'A network of `GET /crypto/rpc/networks`.',
      example: 'ethereum-mainnet',
    },
  ],
  request: jsonContent(RpcBody, { jsonrpc: '2.0', id: 1, method: 'eth_blockNumber', params: [] }),
  response: jsonResponse(
    'What the node answered.',
    RpcResponses,
    { jsonrpc: '2.0', id: 1, result: '0x15f9a3c' },
    'rpc',
  ),
  refusals: [
    'UNSUPPORTED_METHOD',
    'UNSUPPORTED_RPC_NETWORK',
    'PAYLOAD_TOO_LARGE',
    'RPC_NETWORK_UNAVAILABLE',
    'RPC_TIMEOUT',
    'RPC_UPSTREAM_FAILED',
  ],
};
