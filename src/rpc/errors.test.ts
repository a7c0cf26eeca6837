/**
 * Errors that nodes, bundlers and providers return: which of them are passed to the caller
 * unchanged for five credits, and which are faults of the node and are retried elsewhere.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { benches, call, fault, json, list } from '../../test/rpc/bench.ts';
import { plainly, sendText } from '../../test/rpc/node.ts';
import type { NodeResponse } from '../../test/rpc/node.ts';

const { bench, close } = benches();
after(close);

interface Known {
  readonly from: string;
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  readonly status?: number;
  readonly network?: 'solana-mainnet' | 'starknet-mainnet' | 'zksync-mainnet';
}

/** Messages about quotas and keys that a caller can put into a revert reason or an echo. */
const CHOSEN = [
  'execution reverted: throttled',
  'execution reverted: forbidden',
  'execution reverted: caller is not authorized',
  'execution reverted: subscription expired',
  'execution reverted: apiKey unknown, rate limit, too many requests, quota exceeded',
  'execution reverted: over capacity, compute units, credits exhausted, payment required',
];

const OF_THE_CALL: readonly Known[] = [
  ...CHOSEN.map((message) => ({ from: 'geth', code: 3, message, data: '0x08c379a0' })),
  ...CHOSEN.map((message) => ({ from: 'geth before 1.9.15', code: -32000, message })),
  ...CHOSEN.map((message) => ({ from: 'nethermind', code: -32015, message, data: 'Reverted 0x' })),
  ...CHOSEN.map((message) => ({ from: 'hardhat', code: -32603, message })),
  { from: 'geth', code: -32000, message: 'insufficient funds for gas * price + value' },
  { from: 'geth', code: -32000, message: 'nonce too low: next nonce 5, tx nonce 4' },
  { from: 'geth', code: -32000, message: 'header not found' },
  { from: 'geth', code: -32000, message: 'missing trie node abc (path )' },
  { from: 'geth', code: -32000, message: 'transaction indexing is in progress' },
  { from: 'geth', code: -32000, message: 'only replay-protected (EIP-155) transactions allowed' },
  { from: 'geth', code: -32002, message: 'request timed out' },
  { from: 'geth', code: -32003, message: 'response too large' },
  { from: 'geth', code: -32600, message: 'batch too large' },
  { from: 'geth', code: -32601, message: 'the method forbidden_apiKey does not exist' },
  { from: 'geth', code: -32602, message: 'invalid argument 0: hex string "0xforbidden"' },
  { from: 'geth', code: -38014, message: 'insufficient funds, throttled' },
  { from: 'erigon', code: -32000, message: 'exceed max rpc response size limit' },
  { from: 'erigon', code: -32602, message: 'query returned more than 10000 results' },
  { from: 'reth', code: -32602, message: 'query exceeds max block range 100000' },
  { from: 'reth', code: -32003, message: 'EVM error: not authorized, throttled' },
  { from: 'reth', code: 4444, message: 'pruned history unavailable' },
  { from: 'reth', code: -32001, message: 'block not found: 0xffffff' },
  { from: 'nethermind', code: -32010, message: 'FeeTooLow, MaxFeePerGas too low' },
  { from: 'nethermind', code: -32005, message: 'Too many logs. Max logs per response is 20000.' },
  { from: 'besu', code: -32005, message: 'Requested range exceeds maximum RPC range limit' },
  { from: 'besu', code: -32005, message: 'Transaction gas limit exceeds block gas limit' },
  { from: 'besu', code: -32007, message: 'Sender account not authorized to send transactions' },
  { from: 'besu', code: -32009, message: 'Gas price below configured minimum gas price' },
  { from: 'besu', code: -32000, message: 'Execution reverted (apiKey)' },
  { from: 'bsc', code: -32005, message: 'limit exceeded' },
  { from: 'bor', code: -32000, message: 'exceed maximum block range: 5000' },
  {
    from: 'Infura',
    code: -32005,
    message: 'query returned more than 10000 results. Try [0x1, 0x2].',
  },
  { from: 'Infura', code: -32000, message: 'unauthorized method call for this subscription' },
  { from: 'Alchemy', code: -32602, message: 'Log response size exceeded. Limit your block range.' },
  { from: 'Alchemy', code: -32000, message: 'transaction underpriced' },
  {
    from: 'QuickNode',
    code: -32614,
    message: 'eth_getLogs is limited to a 10,000 range',
    status: 413,
  },
  { from: 'QuickNode', code: -32602, message: 'eth_getLogs is limited to a 10,000 range' },
  { from: '1RPC', code: -32000, message: 'response size should not greater than 2097152 bytes' },
  { from: 'dRPC', code: 35, message: 'ranges over 10000 blocks are not supported on freetier' },
  { from: 'proxyd', code: -32601, message: 'rpc method is not whitelisted', status: 403 },
  { from: 'proxyd', code: -32019, message: 'block is out of range', status: 400 },
  { from: 'jayson', code: -32602, message: 'Invalid params', status: 500 },
  { from: 'a gateway', code: -32000, message: 'execution reverted', status: 500 },
  // ERC-7769, with the messages of the standard and of bundlers.
  { from: 'bundler', code: -32500, message: 'AA23 reverted: not authorized' },
  { from: 'bundler', code: -32501, message: 'paymaster rejected: subscription expired' },
  { from: 'bundler', code: -32502, message: 'account uses banned opcode: GAS, forbidden' },
  { from: 'bundler', code: -32503, message: 'expires too soon' },
  {
    from: 'bundler',
    code: -32504,
    message: 'paymaster 0xa is throttled or banned',
    data: { paymaster: '0xa' },
  },
  { from: 'bundler', code: -32505, message: 'unstaked paymaster: stake required' },
  { from: 'bundler', code: -32506, message: 'unsupported aggregator' },
  { from: 'bundler', code: -32507, message: 'AA24 signature error: unauthorized' },
  { from: 'bundler', code: -32521, message: 'UserOperation reverted: too many requests' },
  // Solana.
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32002,
    message: 'Transaction simulation failed: custom error: forbidden',
    data: { err: { InstructionError: [0, { Custom: 1 }] }, logs: ['Program log: throttled'] },
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32003,
    message: 'Transaction signature verification failure',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32004,
    message: 'Block not available for slot 1',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32007,
    message: 'Slot 1 was skipped, or missing due to ledger jump to recent snapshot',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32009,
    message: 'Slot 1 was skipped, or missing in long-term storage',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32010,
    message: 'X excluded from account secondary indexes; this RPC method unavailable for key',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32013,
    message: 'Transaction signature length mismatch',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32015,
    message: 'Transaction version (0) is not supported by the requesting client',
  },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32016,
    message: 'Minimum context slot has not been reached',
    data: { contextSlot: 1 },
  },
  { from: 'agave', network: 'solana-mainnet', code: -32602, message: 'Invalid param: WrongSize' },
  // Starknet.
  {
    from: 'pathfinder',
    network: 'starknet-mainnet',
    code: 1,
    message: 'Failed to write transaction',
  },
  {
    from: 'pathfinder',
    network: 'starknet-mainnet',
    code: 15,
    message: 'Too many requests: not what the standard means by 15',
  },
  { from: 'juno', network: 'starknet-mainnet', code: 20, message: 'Contract not found' },
  { from: 'juno', network: 'starknet-mainnet', code: 24, message: 'Block not found' },
  { from: 'juno', network: 'starknet-mainnet', code: 29, message: 'Transaction hash not found' },
  {
    from: 'juno',
    network: 'starknet-mainnet',
    code: 31,
    message: 'Requested page size is too big',
  },
  {
    from: 'juno',
    network: 'starknet-mainnet',
    code: 34,
    message: 'Too many keys provided in a filter',
  },
  {
    from: 'juno',
    network: 'starknet-mainnet',
    code: 40,
    message: 'Contract error',
    data: { revert_error: 'apiKey forbidden' },
  },
  {
    from: 'juno',
    network: 'starknet-mainnet',
    code: 41,
    message: 'Transaction execution error',
    data: { execution_error: 'throttled' },
  },
  { from: 'juno', network: 'starknet-mainnet', code: 55, message: 'Account validation failed' },
  { from: 'juno', network: 'starknet-mainnet', code: 63, message: 'An unexpected error occurred' },
  // zkSync.
  {
    from: 'zkSync',
    network: 'zksync-mainnet',
    code: 3,
    message: 'execution reverted: Bootloader: forbidden',
    data: '0x',
  },
  {
    from: 'zkSync',
    network: 'zksync-mainnet',
    code: 104,
    message: 'max fee per gas less than block base fee',
  },
  {
    from: 'zkSync',
    network: 'zksync-mainnet',
    code: -32602,
    message: 'Query returned more than 10000 results. Try with this block range [0x1, 0x2].',
  },
];

const OF_THE_NODE: readonly Known[] = [
  {
    from: 'Alchemy',
    code: 429,
    message: 'Your app has exceeded its compute units per second capacity.',
    status: 429,
  },
  {
    from: 'Alchemy, in a batch',
    code: 429,
    message: 'Your app has exceeded its compute units per second capacity.',
  },
  { from: 'Alchemy', code: -32600, message: 'Must be authenticated!', status: 401 },
  { from: 'Alchemy', code: -32600, message: 'Monthly capacity limit exceeded', status: 403 },
  { from: 'Infura', code: -32005, message: 'daily request count exceeded, request rate limited' },
  { from: 'Infura', code: -32005, message: 'project ID request rate exceeded', status: 429 },
  { from: 'Infura', code: -32002, message: 'rejected due to project ID settings', status: 403 },
  { from: 'Infura', code: -32600, message: 'invalid project id', status: 401 },
  {
    from: 'QuickNode',
    code: -32007,
    message: '50/second request limit reached - reduce calls per second or upgrade your account',
  },
  { from: 'QuickNode', code: -32009, message: 'trace requests limited to 10/sec' },
  { from: 'QuickNode', code: -32012, message: 'credits limited to 6000/sec' },
  {
    from: 'QuickNode',
    code: 429,
    message: 'The requests per second (RPS) of your requests are higher than your plan allows.',
    status: 429,
  },
  {
    from: 'Chainstack',
    code: -32005,
    message: "You've exceeded the RPS limit available on the current plan.",
  },
  {
    from: 'Nethermind',
    code: -32005,
    message: 'Unable to start new queued requests. Too many queued requests. Queued calls 500.',
  },
  {
    from: 'Ankr',
    code: -32090,
    message: 'Too many requests, reason: call rate limit exhausted, retry in 10s',
  },
  { from: 'Ankr', code: -32055, message: 'No nodes available' },
  {
    from: 'Ankr',
    code: -32000,
    message: 'Unauthorized: You must authenticate your request with an API key.',
    status: 403,
  },
  {
    from: '1RPC',
    code: -32001,
    message: "You've reached the usage limit for your current plan. To continue, upgrade",
  },
  { from: 'dRPC', code: 15, message: 'Too many request, try again later' },
  { from: 'dRPC', code: 19, message: 'Temporary internal error. Please retry, trace-id: 1' },
  { from: 'proxyd', code: -32016, message: 'over rate limit' },
  { from: 'proxyd', code: -32012, message: 'backend is over capacity' },
  { from: 'proxyd', code: -32011, message: 'no backends available for method', status: 503 },
  { from: 'proxyd', code: -32015, message: 'gateway timeout', status: 504 },
  { from: 'Besu', code: -32603, message: 'Internal error', status: 500 },
  { from: 'any', code: -32000, message: 'payment required', status: 402 },
  {
    from: 'agave',
    network: 'solana-mainnet',
    code: -32005,
    message: 'Node is behind by 42 slots',
    data: { numSlotsBehind: 42 },
  },
  {
    from: 'a Solana provider',
    network: 'solana-mainnet',
    code: 429,
    message: 'Too many requests for a specific RPC call',
    status: 429,
  },
];

/** Formatted as nodes do it, which differs from JSON.stringify. */
function reply({ code, message, data }: Known, id: unknown): string {
  const more = data === undefined ? '' : ` , "data":${JSON.stringify(data)}`;
  return `{"error":{ "message":${JSON.stringify(message)},"code":${code}${more}},"jsonrpc":"2.0",  "id":${JSON.stringify(id)}}`;
}

const saying =
  (known: Known): NodeResponse =>
  (request, response) => {
    const items = request.calls.map((one) => reply(known, one.id));
    sendText(response, request.isBatch ? `[${items.join(',')}]` : items[0]!, known.status);
  };

const READS = { 'solana-mainnet': 'getAccountInfo', 'starknet-mainnet': 'starknet_call' };
const readOf = ({ network }: Known): string =>
  network === undefined || network === 'zksync-mainnet' ? 'eth_call' : READS[network];
const optionsOf = ({ network }: Known): { network?: string } =>
  network === undefined ? {} : { network };
const nameOf = (one: Known): string =>
  `${one.from} ${one.code}${one.status === undefined ? '' : ` (${one.status})`} "${one.message.slice(0, 60)}"`;

describe('errors of the call reach the caller byte for byte at five credits', () => {
  for (const known of OF_THE_CALL) {
    test(nameOf(known), async () => {
      const two = await bench([saying(known), plainly()], optionsOf(known));
      const method = readOf(known);
      const single = await two.ask(call(method, 'a'));
      assert.equal(single.body.toString(), reply(known, 'a'));
      assert.equal(single.credits, 5);
      const batch = await two.ask([call(method, 1), call(method, 2)]);
      assert.equal(batch.body.toString(), `[${reply(known, 1)},${reply(known, 2)}]`);
      assert.equal(batch.credits, 10);
      assert.equal(two.nodes[1]!.asked.length, 0);
      for (let round = 0; round < 30; round += 1) await two.ask(call(method), `caller ${round}`);
      assert.equal(two.nodes[1]!.asked.length, 0);
      assert.deepEqual(two.lines, []);
    });
  }
});

describe('troubles of the node heal elsewhere, and alone cost nothing and stay unsaid', () => {
  for (const known of OF_THE_NODE) {
    test(nameOf(known), async () => {
      const two = await bench([saying(known), plainly()], optionsOf(known));
      const method = readOf(known);
      const single = await two.ask(call(method, 'a'));
      assert.equal(json(single).result, `${method} done`);
      const batch = await two.ask([call(method, 1), call(method, 2)], 'bob');
      assert.deepEqual(
        list(batch).map((item) => item.result),
        [`${method} done`, `${method} done`],
      );
      assert.deepEqual([single.credits, batch.credits], [single.credits, single.credits * 2]);
      const one = await bench([saying(known)], optionsOf(known));
      const refused = await fault(one.ask(call(method)));
      assert.equal(refused.code, 'RPC_UPSTREAM_FAILED');
      assert.equal(JSON.stringify(refused.options).includes(known.message), false);
    });
  }
});

test('words in place of an error object are a gateway talking, not the node', async () => {
  for (const text of ['{"error":"Unauthorized, api key missing"}', '{"id":1,"error":"oops"}']) {
    const two = await bench([(_request, response) => sendText(response, text), plainly()]);
    assert.equal(json(await two.ask(call('eth_call'))).result, 'eth_call done');
  }
});
