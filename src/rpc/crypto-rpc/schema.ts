/**
 * Request and response schemas of the JSON-RPC endpoints, and their description. Responses are the
 * node's own bytes.
 */
import * as z from 'zod';
import { type RouteDescription, jsonResponse, jsonContent } from '../../http/describe.ts';
import { MAX_BATCH_ITEMS } from '../call-ids.ts';

const Id = z.union([z.number(), z.string(), z.null()]);

const Request = z
  .looseObject({
    jsonrpc: z.literal('2.0').describe('Version of JSON-RPC.'),
    method: z.string().describe('Method of the network, such as `eth_blockNumber`.'),
    params: z
      .union([z.array(z.unknown()), z.record(z.string(), z.unknown())])
      .nullish()
      .describe('Parameters of the method, in order or by name; `null` equals none.'),
    id: Id.optional().describe(
      'Returned with the response; required in a batch. At most 1,024 bytes.',
    ),
  })
  .meta({ id: 'JsonRpcRequest' });

const RpcBody = z.union([Request, z.array(Request).min(1).max(MAX_BATCH_ITEMS)]);

const Answer = z
  .looseObject({
    result: z.unknown().optional().describe('Result of the node; absent if `error` is present.'),
    error: z
      .unknown()
      .optional()
      .describe('Error of the node; an item with an error costs 5 credits.'),
    id: z.unknown().optional().describe('Id of the request.'),
  })
  .meta({ id: 'JsonRpcAnswer' });

const RpcResponses = z.union([Answer, z.array(Answer)]);

const Networks = z.strictObject({
  networks: z.array(z.string()).describe('Names for the path of `POST /crypto/rpc/{network}`.'),
});

export const NETWORKS_DESCRIPTION: RouteDescription = {
  tag: 'Blockchain RPC',
  summary: 'List networks',
  response: jsonResponse('The networks, sorted by name.', Networks, {
    networks: ['base-mainnet', 'ethereum-mainnet'],
  }),
};

export const RPC_DESCRIPTION: RouteDescription = {
  tag: 'Blockchain RPC',
  summary: 'Call a node',
  about: `One JSON-RPC request or up to 100 in an array. The credits of an item are the base credits of the network times the tier of the method; an item with an error of the node costs 5 credits. A request with a method that is not listed is rejected with a 400 that names the method, and nothing is charged.

viem, ethers and web3 work unmodified with this URL and the API key header.`,
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
    'The response of the node.',
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
