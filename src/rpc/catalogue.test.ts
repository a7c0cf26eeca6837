/** Every listed method on every network, and the rejections of invalid bodies. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { parseRequest, callerId } from './parse-request.ts';
import { makeRpc } from '../../test/rpc/bench.ts';
import { creditsOf } from './call-results.ts';
import type { ItemResponse } from './classify.ts';
import type { Call } from './parse-request.ts';
import { Catalogue } from './catalogue.ts';
import { formatRpcCost } from './rpc.ts';
import methodData from './methods.json' with { type: 'json' };
import networkData from './networks.json' with { type: 'json' };

const catalogue = new Catalogue();
const PREFIXES = methodData.prefixRules;

function admit(network: string, body: unknown): ReturnType<typeof parseRequest> {
  return parseRequest(
    catalogue,
    network,
    Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
  );
}

function call(method: unknown, extra: object = {}): object {
  return { jsonrpc: '2.0', id: 1, method, params: [], ...extra };
}

function refusal(network: string, body: unknown): Fault {
  try {
    admit(network, body);
  } catch (error) {
    assert.ok(error instanceof Fault, String(error));
    assert.equal(error.status, 400);
    return error;
  }
  return assert.fail('the body was admitted');
}

describe('method table', () => {
  test('the 27 networks are sorted, and have public nodes and their base credits', () => {
    assert.equal(catalogue.slugs.length, 27);
    assert.deepEqual([...catalogue.slugs].sort(), catalogue.slugs);
    for (const slug of catalogue.slugs) {
      const network = catalogue.network(slug)!;
      assert.ok(network.publicNodes.length > 0);
      assert.equal(network.baseCredits, /^(solana|zksync)-/.test(slug) ? 30 : 20, slug);
    }
  });

  test('every listed method is allowed on the networks of its family at its tier', () => {
    let checked = 0;
    for (const slug of catalogue.slugs) {
      const network = catalogue.network(slug)!;
      for (const row of methodData.methods) {
        const byPrefix = PREFIXES.some(
          (rule) => row.name.startsWith(rule.prefix) && rule.family === row.family,
        );
        const isAllowed = row.family === network.family && (row.optional !== true || byPrefix);
        const resolution = catalogue.resolve(network, row.name);
        assert.equal(typeof resolution === 'object', isAllowed, `${slug} ${row.name}`);
        if (typeof resolution === 'object') {
          assert.equal(network.baseCredits * resolution.tier, network.baseCredits * row.tier);
          assert.equal(admit(slug, call(row.name)).creditsMax, network.baseCredits * row.tier);
        } else assert.match(refusal(slug, call(row.name)).message, new RegExp(row.name));
        checked += 1;
      }
    }
    assert.equal(checked, 27 * methodData.methods.length);
  });

  test('every rejected name is rejected on every network', () => {
    for (const slug of catalogue.slugs) {
      for (const group of methodData.refused) {
        for (const pattern of group.names) {
          const name = pattern.replace('*', 'anything');
          assert.equal(
            typeof catalogue.resolve(catalogue.network(slug)!, name) === 'object',
            false,
            `${slug} ${name}`,
          );
        }
      }
    }
  });

  test('prefix rules apply only within their family, the longest prefix first', () => {
    const ethereum = catalogue.network('ethereum-mainnet')!;
    const starknet = catalogue.network('starknet-mainnet')!;
    const tierOf = (name: string): number | undefined => {
      const resolution = catalogue.resolve(ethereum, name);
      return typeof resolution === 'object' ? resolution.tier : undefined;
    };
    assert.equal(tierOf('arbtrace_replayAnything'), 4);
    assert.equal(tierOf('arbtrace_anything'), 2);
    assert.equal(tierOf('zks_anything'), 1);
    assert.equal(tierOf('linea_anything'), 1);
    assert.equal(tierOf('debug_anything'), undefined);
    assert.equal(tierOf('trace_anything'), undefined);
    assert.equal(tierOf('starknet_anything'), undefined);
    assert.equal(tierOf('ETH_CALL'), undefined);
    assert.equal(tierOf('zks_ bad name'), undefined);
    assert.equal(typeof catalogue.resolve(starknet, 'starknet_anything'), 'object');
    assert.equal(typeof catalogue.resolve(starknet, 'zks_anything'), 'string');
    assert.equal(typeof catalogue.resolve(starknet, 'starknet_subscribeNewThings'), 'string');
    assert.equal(typeof catalogue.resolve(starknet, 'constructor'), 'string');
    assert.equal(catalogue.network('constructor'), undefined);
  });

  test('optional methods are allowed when the operator names them', () => {
    const solana = catalogue.network('solana-mainnet')!;
    const row = methodData.methods.find(({ name }) => name === 'getAsset');
    assert.ok(row !== undefined && 'optional' in row);
    assert.equal(typeof catalogue.resolve(solana, 'getAsset'), 'string');
    const resolution = new Catalogue(['getAsset']).resolve(solana, 'getAsset');
    assert.ok(typeof resolution === 'object' && solana.baseCredits * resolution.tier === 60);
  });
});

test('the data files have only values that the code supports', () => {
  const families = ['evm', 'starknet', 'solana'];
  for (const row of methodData.methods) {
    assert.ok(families.includes(row.family), row.name);
    assert.ok([1, 2, 4].includes(row.tier), row.name);
    assert.ok(['safe', 'safe-notnull', 'write-dedupe', 'write-no-retry'].includes(row.retry));
    assert.ok(['static', 'head', 'by-block', 'finalized', 'never'].includes(row.cache), row.name);
    assert.ok(!('node' in row) || ['node', 'bundler'].includes(row.node), row.name);
  }
  for (const { family, tier } of methodData.prefixRules) {
    assert.ok(families.includes(family) && [1, 2, 4].includes(tier));
  }
  for (const { kind } of methodData.refused) {
    assert.ok(['websocket', 'filter', 'key', 'admin', 'removed'].includes(kind), kind);
  }
  for (const { family } of Object.values(networkData)) assert.ok(families.includes(family));
});

describe('parseRequest()', () => {
  test('an invalid body is rejected with the reason', () => {
    assert.equal(refusal('dogecoin-mainnet', call('eth_call')).code, 'UNSUPPORTED_RPC_NETWORK');
    assert.match(refusal('base-mainnet', '').message, /empty/);
    assert.match(refusal('base-mainnet', ' \n').message, /empty/);
    assert.match(refusal('base-mainnet', '[]').message, /empty/);
    assert.equal(refusal('base-mainnet', '{"jsonrpc":"2.0",').code, 'INVALID_JSON');
    assert.match(refusal('base-mainnet', '{"a":01}').message, /position 6/);
    assert.match(
      refusal(
        'base-mainnet',
        Array.from({ length: 101 }, () => call('eth_call')),
      ).message,
      /max 100/,
    );
    assert.equal(
      admit(
        'base-mainnet',
        Array.from({ length: 100 }, () => call('eth_call')),
      ).creditsMax,
      2_000,
    );
  });

  test('an invalid item is rejected with the name of its field', () => {
    const cases: readonly (readonly [unknown, RegExp])[] = [
      [{ id: 1, method: 'eth_call' }, /jsonrpc/],
      [call('eth_call', { jsonrpc: '1.0' }), /"2.0"/],
      [call('eth_call', { jsonrpc: 2 }), /"2.0"/],
      [call(5), /"method" must be a string/],
      [call(null), /"method" must be a string/],
      [call('eth_call', { id: true }), /number or a string/],
      [call('eth_call', { id: {} }), /number or a string/],
      [call('eth_call', { params: { a: 1 } }), /"params" must be an array/],
      [call('eth_call', { params: 'a' }), /"params" must be an array/],
      [[call('eth_call', { params: 5 })], /"params" of item 0 must be an array/],
      [[call('eth_call'), { jsonrpc: '2.0', method: 'eth_call' }], /"id" of item 1 is required/],
      [[call('eth_call', { id: null })], /"id" of item 0 is required/],
      [[5], /JSON object/],
    ];
    for (const [body, message] of cases) {
      const fault = refusal('base-mainnet', body);
      assert.match(fault.message, message);
      assert.ok(fault.options.details);
    }
  });

  test('`callerId` returns the exact bytes of an id, and null without one', () => {
    for (const id of [
      '9007199254740993',
      '"a\\u0062"',
      '-1',
      '18446744073709551615',
      '1.5',
      '""',
    ]) {
      const parsed = admit(
        'base-mainnet',
        `{"id":${id},"jsonrpc":"2.0","method":"eth_blockNumber"}`,
      );
      assert.equal(callerId(parsed.body, parsed.calls[0]!.span).toString(), id);
    }
    const bare = admit('base-mainnet', '{"jsonrpc":"2.0","method":"eth_blockNumber"}');
    assert.equal(callerId(bare.body, bare.calls[0]!.span).toString(), 'null');
  });

  test('params by name are accepted only for Starknet', () => {
    assert.match(refusal('solana-mainnet', call('getBalance', { params: {} })).message, /"params"/);
    assert.equal(
      admit('starknet-mainnet', call('starknet_call', { params: { a: 1 } })).creditsMax,
      20,
    );
    assert.match(
      refusal('starknet-mainnet', call('starknet_call', { params: 'a' })).message,
      /"params"/,
    );
  });

  test('`params: null` is the same as no params, alone and in a batch', () => {
    for (const network of ['base-mainnet', 'solana-mainnet', 'starknet-mainnet']) {
      const family = { 'solana-mainnet': 'getSlot', 'starknet-mainnet': 'starknet_chainId' };
      const method = family[network as keyof typeof family] ?? 'eth_chainId';
      const one = call(method, { params: null });
      assert.equal(admit(network, one).calls.length, 1);
      assert.equal(admit(network, [one, one]).calls.length, 2);
    }
  });

  test('one error names every rejected method with advice for its kind', () => {
    const names = [
      'eth_subscribe',
      'eth_newFilter',
      'eth_sign',
      'debug_setHead',
      'getBalance',
      'eth_foo',
      'personal_sign',
    ];
    const fault = refusal('ethereum-mainnet', [
      call('eth_call'),
      ...names.map((name) => call(name)),
    ]);
    assert.equal(fault.code, 'UNSUPPORTED_METHOD');
    for (const name of names) assert.match(fault.message, new RegExp(name));
    assert.match(fault.message, /eth_subscribe \(WebSocket-only, and this proxy is HTTP-only/);
    assert.match(fault.message, /eth_newFilter \([^)]*eth_getLogs/);
    assert.doesNotMatch(fault.message, /eth_call\b/);
    assert.match(refusal('solana-mainnet', call('slotSubscribe')).message, /WebSocket-only/);
  });
});

describe('billing', () => {
  test('costs equal the examples of the specification', () => {
    const rpc = makeRpc(
      { networks: {} },
      { clock: systemClock(), ids: systemIds(), log: silentLog },
    );
    for (const [credits, usd] of [
      [20, '0.00001250'],
      [40, '0.00002500'],
      [80, '0.00005000'],
      [30, '0.00001875'],
      [120, '0.00007500'],
      [5, '0.00000313'],
      [25, '0.00001563'],
      [0, '0.00000000'],
    ] as const)
      assert.equal(formatRpcCost(rpc.cost(credits)), usd);
    assert.equal(rpc.cost(10_000_000), 6_250_000_000n);
  });

  test('an item costs its tier, 5 credits with an error, and nothing without a reply', () => {
    const costs = (outcome?: ItemResponse['outcome']) => {
      const response = outcome && { outcome };
      return creditsOf({ credits: 80, response } as Call, undefined); // what it reads
    };
    assert.equal(costs('success'), 80);
    assert.equal(costs('error'), 5);
    assert.equal(costs('unknown-id'), 5);
    assert.equal(costs(), 0);
  });
});
