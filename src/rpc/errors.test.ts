/**
 * Errors that nodes, bundlers and providers return: which of them are passed to the caller
 * unchanged for five credits, which only if no other node has what this node lacks, and which are
 * faults of the node and are retried elsewhere.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import {
  benches,
  call,
  fault,
  idsAndResults,
  json,
  list,
  NETWORK,
  requestCounts,
} from '../../test/rpc/bench.ts';
import { echoNode, sendText } from '../../test/rpc/node.ts';
import type { NodeResponse } from '../../test/rpc/node.ts';
import { TestClock } from '../../test/support/test-clock.ts';

const { bench, close, proxyTo } = benches();
after(close);

interface NodeError {
  readonly from: string;
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
  readonly status?: number | undefined;
  readonly network: string;
}

/** Reads `from | code (HTTP status) | message | data` of each line; a network applies to the next lines. */
function errorsOf(table: string): NodeError[] {
  let network = '';
  return table
    .trim()
    .split('\n')
    .flatMap((line) => {
      const [from = '', numbers = '', message = '', data] = line.trim().split(' | ');
      if (numbers === '') {
        network = from.slice(0, -1);
        return [];
      }
      const [, code, status] = /^(-?\d+)(?: \((\d+)\))?$/.exec(numbers)!;
      const error = { from, code: Number(code), message, network };
      return {
        ...error,
        ...(status !== undefined && { status: Number(status) }),
        ...(data !== undefined && { data: JSON.parse(data) as unknown }),
      };
    });
}

/** Messages about quotas and keys that a caller can put into a revert reason or an echo. */
const CHOSEN = [
  'execution reverted: throttled',
  'execution reverted: forbidden',
  'execution reverted: caller is not authorized',
  'execution reverted: subscription expired',
  'execution reverted: apiKey unknown, rate limit, too many requests, quota exceeded',
  'execution reverted: header not found, missing trie node, method not found, internal error',
  'execution reverted: over capacity, compute units, credits exhausted, payment required',
];

const REVERTS = CHOSEN.flatMap((message) => [
  { from: 'geth', code: 3, message, data: '0x08c379a0' },
  { from: 'geth before 1.9.15', code: -32000, message },
  { from: 'nethermind', code: -32015, message, data: 'Reverted 0x' },
  { from: 'hardhat', code: -32603, message },
]).map((error) => ({ ...error, network: NETWORK }));

/** The errors of bundlers are from ERC-7769 and bundlers. */
const OF_THE_CALL = errorsOf(`
ethereum-mainnet:
  geth | -32000 | insufficient funds for gas * price + value
  geth | -32000 | nonce too low: next nonce 5, tx nonce 4
  geth | -32000 | only replay-protected (EIP-155) transactions allowed
  geth | -32003 | response too large
  geth | -32600 | batch too large
  geth | -32602 | invalid argument 0: hex string "0xforbidden"
  geth | -38014 | insufficient funds, throttled
  erigon | -32000 | exceed max rpc response size limit
  erigon | -32602 | query returned more than 10000 results
  reth | -32602 | query exceeds max block range 100000
  reth | -32003 | EVM error: not authorized, throttled
  nethermind | -32010 | FeeTooLow, MaxFeePerGas too low
  nethermind | -32005 | Too many logs. Max logs per response is 20000.
  besu | -32005 | Requested range exceeds maximum RPC range limit
  besu | -32005 | Transaction gas limit exceeds block gas limit
  besu | -32007 | Sender account not authorized to send transactions
  besu | -32009 | Gas price below configured minimum gas price
  besu | -32000 | Execution reverted (apiKey)
  bsc | -32005 | limit exceeded
  bor | -32000 | exceed maximum block range: 5000
  Infura | -32005 | query returned more than 10000 results. Try [0x1, 0x2].
  Alchemy | -32602 | Log response size exceeded. Limit your block range.
  Alchemy | -32000 | transaction underpriced
  QuickNode | -32614 (413) | eth_getLogs is limited to a 10,000 range
  QuickNode | -32602 | eth_getLogs is limited to a 10,000 range
  1RPC | -32000 | response size should not greater than 2097152 bytes
  dRPC | 35 | ranges over 10000 blocks are not supported on freetier
  jayson | -32602 (500) | Invalid params
  a gateway | -32000 (500) | execution reverted
  bundler | -32500 | AA23 reverted: not authorized
  bundler | -32501 | paymaster rejected: subscription expired
  bundler | -32502 | account uses banned opcode: GAS, forbidden
  bundler | -32503 | expires too soon
  bundler | -32504 | paymaster 0xa is throttled or banned | {"paymaster":"0xa"}
  bundler | -32505 | unstaked paymaster: stake required
  bundler | -32506 | unsupported aggregator
  bundler | -32507 | AA24 signature error: unauthorized
  bundler | -32521 | UserOperation reverted: too many requests
solana-mainnet:
  agave | -32002 | Transaction simulation failed: custom error: forbidden | {"err":{"InstructionError":[0,{"Custom":1}]},"logs":["Program log: throttled"]}
  agave | -32003 | Transaction signature verification failure
  agave | -32009 | Slot 1 was skipped, or missing in long-term storage
  agave | -32013 | Transaction signature length mismatch
  agave | -32015 | Transaction version (0) is not supported by the requesting client
  agave | -32602 | Invalid param: WrongSize
starknet-mainnet:
  pathfinder | 1 | Failed to write transaction
  pathfinder | 15 | Too many requests: not what the standard means by 15
  juno | 20 | Contract not found
  juno | 29 | Transaction hash not found
  juno | 31 | Requested page size is too big
  juno | 34 | Too many keys provided in a filter
  juno | 40 | Contract error | {"revert_error":"apiKey forbidden"}
  juno | 41 | Transaction execution error | {"execution_error":"throttled"}
  juno | 55 | Account validation failed
  juno | 63 | An unexpected error occurred
zksync-mainnet:
  zkSync | 3 | execution reverted: Bootloader: forbidden | "0x"
  zkSync | 104 | max fee per gas less than block base fee
  zkSync | -32602 | Query returned more than 10000 results. Try with this block range [0x1, 0x2].
`);

const OF_THIS_NODE = errorsOf(`
ethereum-mainnet:
  geth | -32000 | header not found
  geth | -32000 | missing trie node abc (path )
  geth | -32000 | transaction indexing is in progress
  geth | -32002 | request timed out
  geth | -32601 | the method forbidden_apiKey does not exist
  reth | 4444 | pruned history unavailable
  reth | -32001 | block not found: 0xffffff
  Infura | -32000 | unauthorized method call for this subscription
  proxyd | -32601 (403) | rpc method is not whitelisted
  proxyd | -32019 (400) | block is out of range
  geth | -32000 | required historical state unavailable (reexec=128)
  geth | -32000 | historical state 0xabc is not available
  geth | -39001 | Unknown block
  geth | -32000 | finalized block not found
  geth | -32000 | history has been pruned
  geth | -32601 | the method trace_block does not exist/is not available
  erigon | -32000 | block not found: 5
  erigon | -32000 | old data not available due to pruning
  nethermind | -32002 | No state available for block 0x1
  nethermind | -32601 | Method trace_block is not supported
  nethermind | -32603 | Internal error
  besu | -32000 | World state unavailable
  besu | -32604 (200) | Method not enabled
  reth | -32603 | state at block #1 is pruned
  bsc | -32000 | missing trie node abc (path ) state 0xabc is not available
  avalanche | -32000 | cannot query unfinalized data
  Alchemy | -32600 | Unsupported method: trace_block on ETH_MAINNET
  Infura | -32004 | Method not supported
  QuickNode | -32601 | Method not found
  Chainstack | -32600 | trace_block is not available on your current plan
  Ankr | -32601 | the method trace_block does not exist/is not available
  dRPC | -32601 | the method trace_block does not exist/is not available
  zkSync | -32603 | Internal server error
solana-mainnet:
  agave | -32004 | Block not available for slot 1
  agave | -32007 | Slot 1 was skipped, or missing due to ledger jump to recent snapshot
  agave | -32010 | X excluded from account secondary indexes; this RPC method unavailable for key
  agave | -32016 | Minimum context slot has not been reached | {"contextSlot":1}
  agave | -32001 | Block 1 cleaned up, does not exist on node. First available block: 9
  agave | -32011 | Transaction history is not available from this node
  agave | -32014 | Block status not yet available for slot 1
  agave | -32603 | Internal error
  a Solana provider | -32601 | Method not found
starknet-mainnet:
  juno | 24 | Block not found
  pathfinder | -32603 | Internal error
  juno | -32601 | Method Not Found
`);

const OF_THE_NODE = errorsOf(`
ethereum-mainnet:
  Alchemy | 429 (429) | Your app has exceeded its compute units per second capacity.
  Alchemy, in a batch | 429 | Your app has exceeded its compute units per second capacity.
  Alchemy | -32600 (401) | Must be authenticated!
  Alchemy | -32600 (403) | Monthly capacity limit exceeded
  Infura | -32005 | daily request count exceeded, request rate limited
  Infura | -32005 (429) | project ID request rate exceeded
  Infura | -32002 (403) | rejected due to project ID settings
  Infura | -32600 (401) | invalid project id
  QuickNode | -32007 | 50/second request limit reached - reduce calls per second or upgrade your account
  QuickNode | -32009 | trace requests limited to 10/sec
  QuickNode | -32012 | credits limited to 6000/sec
  QuickNode | 429 (429) | The requests per second (RPS) of your requests are higher than your plan allows.
  Chainstack | -32005 | You've exceeded the RPS limit available on the current plan.
  Nethermind | -32005 | Unable to start new queued requests. Too many queued requests. Queued calls 500.
  Ankr | -32090 | Too many requests, reason: call rate limit exhausted, retry in 10s
  Ankr | -32055 | No nodes available
  Ankr | -32000 (403) | Unauthorized: You must authenticate your request with an API key.
  1RPC | -32001 | You've reached the usage limit for your current plan. To continue, upgrade
  dRPC | 15 | Too many request, try again later
  dRPC | 19 | Temporary internal error. Please retry, trace-id: 1
  proxyd | -32016 | over rate limit
  proxyd | -32012 | backend is over capacity
  proxyd | -32011 (503) | no backends available for method
  proxyd | -32015 (504) | gateway timeout
  Besu | -32603 (500) | Internal error
  any | -32000 (402) | payment required
  Alchemy, under 200 | -32600 | Monthly capacity limit exceeded. Visit the dashboard
  Infura, under 200 | -32001 | daily request count exceeded
  dRPC, under 200 | -32000 | You have reached the free tier limit
  Ankr, under 200 | -32600 | Too many requests
solana-mainnet:
  agave | -32005 | Node is behind by 42 slots | {"numSlotsBehind":42}
  a Solana provider | 429 (429) | Too many requests for a specific RPC call
`);

/** Formatted as nodes do it, which differs from JSON.stringify. */
function reply({ code, message, data }: NodeError, id: unknown): string {
  const more = data === undefined ? '' : ` , "data":${JSON.stringify(data)}`;
  return `{"error":{ "message":${JSON.stringify(message)},"code":${code}${more}},"jsonrpc":"2.0",  "id":${JSON.stringify(id)}}`;
}

const failing =
  (error: NodeError): NodeResponse =>
  (request, response) => {
    const items = request.calls.map((one) => reply(error, one.id));
    sendText(response, request.isBatch ? `[${items.join(',')}]` : items[0]!, error.status);
  };

const READS: Readonly<Record<string, string>> = {
  'solana-mainnet': 'getAccountInfo',
  'starknet-mainnet': 'starknet_call',
};
const readOf = ({ network }: NodeError): string => READS[network] ?? 'eth_call';
const nameOf = ({ from, code, status = 200, message }: NodeError): string =>
  `${from} ${code} (${status}) "${message.slice(0, 60)}"`;

describe('an error of the call reaches the caller unchanged and costs five credits', () => {
  for (const error of [...REVERTS, ...OF_THE_CALL]) {
    test(nameOf(error), async () => {
      const two = await bench([failing(error), echoNode()], error);
      const method = readOf(error);
      const single = await two.send(call(method, 'a'));
      assert.equal(single.body.toString(), reply(error, 'a'));
      assert.equal(single.credits, 5);
      const batch = await two.send([call(method, 1), call(method, 2)]);
      assert.equal(batch.body.toString(), `[${reply(error, 1)},${reply(error, 2)}]`);
      assert.equal(batch.credits, 10);
      assert.equal(two.nodes[1]!.requests.length, 0);
      for (let round = 0; round < 30; round += 1) await two.send(call(method), `caller ${round}`);
      assert.equal(two.nodes[1]!.requests.length, 0);
      assert.deepEqual(two.lines, []);
    });
  }
});

const WRITES: Readonly<Record<string, string>> = {
  'solana-mainnet': 'sendTransaction',
  'starknet-mainnet': 'starknet_addInvokeTransaction',
};

describe('an error that says what one node lacks reaches the caller only if all nodes agree', () => {
  for (const error of OF_THIS_NODE) {
    test(nameOf(error), async () => {
      const two = await bench([failing(error), echoNode()], error);
      const method = readOf(error);
      const single = await two.send(call(method, 'a'));
      assert.equal(json(single).result, `${method} done`);
      assert.equal(single.retries, 1);
      const batch = await two.send([call(method, 1), call(method, 2)], 'bob');
      assert.deepEqual(
        list(batch).map((item) => item.result),
        [`${method} done`, `${method} done`],
      );
      assert.equal(batch.credits, single.credits * 2);
      const write = call(WRITES[error.network] ?? 'eth_sendRawTransactionSync', 1, ['0x00']);
      const three = await bench([failing(error), echoNode()], error);
      const sent = await three.send(write);
      assert.deepEqual([sent.body.toString(), sent.credits], [reply(error, 1), 5]);
      assert.equal(three.nodes[1]!.requests.length, 0);
      const alike = await bench([failing(error), failing({ ...error, data: 'other' })], error);
      const agreed = await alike.send(call(method, 'a'));
      assert.deepEqual([agreed.body.toString(), agreed.credits], [reply(error, 'a'), 5]);
      assert.deepEqual(requestCounts(alike), [1, 1]);
      assert.deepEqual([...two.lines, ...three.lines, ...alike.lines], []);
    });
  }
});

test('an error that repeats a credential of the node does not reach the caller', async () => {
  const secret = 'key-0123456789abcdef';
  const error = {
    from: 'a gateway',
    code: 3,
    network: NETWORK,
    message: `execution reverted: ${secret}`,
  };
  const two = await bench([failing(error), failing(error)]);
  const [first, second] = two.nodes;
  const proxy = proxyTo([
    { url: `${first!.url}/v2/${secret}?network=eth`, weight: 1e6 },
    { url: second!.url, headers: { 'x-key': secret } },
  ]);
  for (const body of [call('eth_call'), [call('eth_call', 1), call('eth_call', 2)]]) {
    const failed = await proxy.send(body).catch((fault: unknown) => fault);
    assert.doesNotMatch(
      JSON.stringify(failed) + String(Reflect.get(Object(failed), 'body')),
      /key-0123/,
    );
  }
  assert.doesNotMatch(JSON.stringify(proxy.lines), /key-0123/);
});

const MISSING: NodeError = {
  from: 'geth',
  code: -32601,
  message: 'the method trace_block does not exist/is not available',
  network: NETWORK,
};
const PRUNED = { ...MISSING, code: 4444, message: 'pruned history unavailable' };

test('a node is used last for five minutes for a method that it does not have, for all after three callers', async () => {
  const clock = new TestClock();
  const lacking: NodeResponse = (request, response) =>
    (request.calls.some(({ method }) => method === 'trace_block') ? failing(MISSING) : echoNode())(
      request,
      response,
    );
  const two = await bench([lacking, echoNode()], { clock });
  for (const caller of ['alice', 'alice', 'bob', 'bob', 'carol', 'dave', 'erin'])
    assert.equal(json(await two.send(call('trace_block'), caller)).result, 'trace_block done');
  assert.deepEqual(requestCounts(two), [3, 7]);
  await two.send(call('eth_call'), 'frank');
  assert.deepEqual(requestCounts(two), [4, 7]);
  clock.advance(300_000);
  await two.send(call('trace_block'), 'erin');
  assert.deepEqual(requestCounts(two), [5, 8]);
});

test('nodes that are known to lack a method are not called after another error', async () => {
  const two = await bench([failing(MISSING), failing(MISSING)]);
  for (let round = 0; round < 5; round += 1) {
    const refused = await two.send(call('trace_block'));
    assert.deepEqual([refused.body.toString(), refused.credits], [reply(MISSING, 1), 5]);
  }
  const [first = 0, second = 0] = requestCounts(two);
  assert.equal(first + second, 6);
});

test('the error about data takes precedence over the error about the method', async () => {
  const three = await bench([failing(MISSING), failing(PRUNED), failing(PRUNED)]);
  const refused = await three.send(call('trace_block', 'a'));
  assert.equal(refused.body.toString(), reply(PRUNED, 'a'));
});

test('an error of the call from the next node replaces the error about a lack', async () => {
  const revert = { ...MISSING, code: 3, message: 'execution reverted' };
  const two = await bench([failing(PRUNED), failing(revert)]);
  const refused = await two.send(call('eth_call', 'a'));
  assert.deepEqual([refused.body.toString(), refused.credits], [reply(revert, 'a'), 5]);
});

test('a long result of the next node replaces the error about a lack, and costs a result', async () => {
  const long = 'x'.repeat(2 * 1024 * 1024);
  const two = await bench([failing(PRUNED), echoNode(() => long)]);
  const { credits, body, rest } = await two.send(call('eth_call', 'a'));
  assert.equal(credits, 20);
  const bytes = [body, ...((await rest!.toArray()) as Buffer[])]; // a stream of bytes
  assert.equal(Buffer.concat(bytes).includes(long), true);
});

test('only the items that a node lacks are sent to the next node', async () => {
  const mixed: NodeResponse = (request, response) =>
    sendText(
      response,
      `[${request.calls.map(({ id, method }) => (method === 'eth_call' ? reply(PRUNED, id) : JSON.stringify({ id, result: 'first' }))).join(',')}]`,
    );
  const two = await bench([mixed, echoNode(() => 'second')]);
  const batch = await two.send([
    call('eth_getBalance', 'a'),
    call('eth_call', 'b'),
    call('eth_sendRawTransaction', 'c'),
  ]);
  assert.deepEqual(idsAndResults(batch), ['a', 'first', 'b', 'second', 'c', 'first']);
  assert.equal(two.nodes[1]!.requests[0]!.calls.length, 1);
});

test('the error stays if the next node fails', async () => {
  const two = await bench([failing(PRUNED), (_request, response) => response.destroy()]);
  const refused = await two.send(call('eth_call', 'a'));
  assert.deepEqual([refused.body.toString(), refused.credits], [reply(PRUNED, 'a'), 5]);
});

describe('a fault of the node is retried at another node, costs nothing and is not shown', () => {
  for (const error of OF_THE_NODE) {
    test(nameOf(error), async () => {
      const two = await bench([failing(error), echoNode()], error);
      const method = readOf(error);
      const single = await two.send(call(method, 'a'));
      assert.equal(json(single).result, `${method} done`);
      const batch = await two.send([call(method, 1), call(method, 2)], 'bob');
      assert.deepEqual(
        list(batch).map((item) => item.result),
        [`${method} done`, `${method} done`],
      );
      assert.deepEqual([single.credits, batch.credits], [single.credits, single.credits * 2]);
      const one = await bench([failing(error)], error);
      const refused = await fault(one.send(call(method)));
      assert.equal(refused.code, 'RPC_UPSTREAM_FAILED');
      assert.equal(JSON.stringify(refused.options).includes(error.message), false);
    });
  }
});

test('an error that is a string is treated as a fault of the node', async () => {
  for (const text of ['{"error":"Unauthorized, api key missing"}', '{"id":1,"error":"oops"}']) {
    const two = await bench([(_request, response) => sendText(response, text), echoNode()]);
    assert.equal(json(await two.send(call('eth_call'))).result, 'eth_call done');
  }
});
