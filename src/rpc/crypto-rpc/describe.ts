/** What the JSON-RPC routes say of themselves. */
import { type RouteDescription, jsonContent } from '../../http/describe.ts';
import { Networks, RpcAnswers, RpcBody } from './schema.ts';

export const NETWORKS_DESCRIPTION: RouteDescription = {
  tag: 'Blockchain RPC',
  summary: 'List networks',
  answers: [
    {
      status: 200,
      about: 'Networks that can be asked, in order.',
      content: jsonContent(Networks, { networks: ['base-mainnet', 'ethereum-mainnet'] }),
    },
  ],
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
  answers: [
    {
      status: 200,
      about: 'What the node answered.',
      headers: ['rpc'],
      content: jsonContent(RpcAnswers, { jsonrpc: '2.0', id: 1, result: '0x15f9a3c' }),
    },
  ],
  refusals: [
    'UNSUPPORTED_METHOD',
    'UNSUPPORTED_RPC_NETWORK',
    'PAYLOAD_TOO_LARGE',
    'RPC_UPSTREAM_FAILED',
    'RPC_NETWORK_UNAVAILABLE',
  ],
};
