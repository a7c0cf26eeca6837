/** The metrics of nodes: what is counted for which node and class. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { benches, call } from '../../test/rpc/bench.ts';
import type { Bench } from '../../test/rpc/bench.ts';
import { echoNode, replyWith } from '../../test/rpc/node.ts';
import type { NodeResponse } from '../../test/rpc/node.ts';
import { MAX_SERIES, metricsText } from '../observability/metrics.ts';
import { RpcFigures } from './node-figures.ts';

const { bench, close } = benches();
after(close);

/** The values that are not zero, without the buckets and sums of the histogram. */
function valuesOf({ figures }: Pick<Bench, 'figures'>): string[] {
  return metricsText(figures.all)
    .split('\n')
    .filter((line) => line !== '' && !/^#|_bucket|_sum| 0$/.test(line))
    .map((line) => line.replace('farebox_rpc_', '').replaceAll(/network="ethereum-mainnet",/g, ''))
    .sort();
}

/** Returns an error that depends on the method, and a result for all other methods. */
const choosy: NodeResponse = replyWith(({ method }) => {
  if (method === 'trace_block') return { error: { code: -32601, message: 'not found' } };
  if (method === 'eth_call') return { error: { code: 3, message: 'execution reverted' } };
  if (method === 'eth_getLogs') return { error: { code: 429, message: 'too many requests' } };
  return { result: `${method} done` };
});

test('single calls are counted by node, class and result', async () => {
  const two = await bench([choosy, echoNode()]);
  for (const method of ['eth_getBalance', 'eth_call', 'trace_block', 'eth_getLogs'])
    await two.send(call(method), `caller of ${method}`);
  await two.send(call('eth_sendRawTransaction', 1, ['0x00']), 'writer');
  assert.deepEqual(valuesOf(two), [
    'call_seconds_count{node="ethereum-mainnet#1",class="advanced"} 1',
    'call_seconds_count{node="ethereum-mainnet#1",class="standard"} 3',
    'call_seconds_count{node="ethereum-mainnet#2",class="advanced"} 1',
    'call_seconds_count{node="ethereum-mainnet#2",class="standard"} 1',
    'call_seconds_count{node="ethereum-mainnet#2",class="write"} 1',
    'calls_total{node="ethereum-mainnet#1",class="advanced",result="lacking"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="error"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="fault"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="success"} 1',
    'calls_total{node="ethereum-mainnet#2",class="advanced",result="success"} 1',
    'calls_total{node="ethereum-mainnet#2",class="standard",result="success"} 1',
    'calls_total{node="ethereum-mainnet#2",class="write",result="success"} 1',
    'credits_total{node="ethereum-mainnet#1",class="standard"} 25',
    'credits_total{node="ethereum-mainnet#2",class="advanced"} 40',
    'credits_total{node="ethereum-mainnet#2",class="standard"} 20',
    'credits_total{node="ethereum-mainnet#2",class="write"} 20',
    'failovers_total{node="ethereum-mainnet#1",class="advanced"} 1',
    'failovers_total{node="ethereum-mainnet#1",class="standard"} 1',
  ]);
});

test('each call of a batch is counted, and its time once', async () => {
  const two = await bench([choosy, echoNode()]);
  const { credits } = await two.send([
    call('eth_getBalance', 1),
    call('trace_block', 2),
    call('eth_call', 3),
    call('eth_getBalance', 4),
  ]);
  assert.equal(credits, 85);
  assert.deepEqual(valuesOf(two), [
    'call_seconds_count{node="ethereum-mainnet#1",class="standard"} 1',
    'call_seconds_count{node="ethereum-mainnet#2",class="advanced"} 1',
    'calls_total{node="ethereum-mainnet#1",class="advanced",result="lacking"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="error"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="success"} 2',
    'calls_total{node="ethereum-mainnet#2",class="advanced",result="success"} 1',
    'credits_total{node="ethereum-mainnet#1",class="standard"} 45',
    'credits_total{node="ethereum-mainnet#2",class="advanced"} 40',
    'failovers_total{node="ethereum-mainnet#1",class="advanced"} 1',
  ]);
});

test('results from the cache are counted under the node "cache"', async () => {
  const one = await bench([echoNode()]);
  const block = call('eth_getBlockByHash', 1, [`0x${'1'.repeat(64)}`, false]);
  await one.send(block);
  await one.send(block, 'bob');
  assert.deepEqual(valuesOf(one), [
    'call_seconds_count{node="ethereum-mainnet#1",class="standard"} 1',
    'calls_total{node="cache",class="standard",result="success"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="success"} 1',
    'credits_total{node="cache",class="standard"} 20',
    'credits_total{node="ethereum-mainnet#1",class="standard"} 20',
  ]);
});

test('a fault of all nodes is counted without credits', async () => {
  const one = await bench([(_request, response) => response.destroy()]);
  await assert.rejects(one.send(call('eth_call')));
  assert.deepEqual(valuesOf(one), [
    'call_seconds_count{node="ethereum-mainnet#1",class="standard"} 1',
    'calls_total{node="ethereum-mainnet#1",class="standard",result="fault"} 1',
  ]);
});

test('the number of series is limited', () => {
  const figures = new RpcFigures();
  for (let node = 0; node < MAX_SERIES; node += 1)
    figures.of('ethereum-mainnet', `node ${node}`).of('standard').credits.value += 1;
  assert.ok(figures.calls.lines().length <= MAX_SERIES + 1);
});
