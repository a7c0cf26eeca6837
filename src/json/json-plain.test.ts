/** The plain spellings of batch items against the scanner that reads an item alone. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { plainReply, plainRequest } from './json-plain.ts';
import { scanReply, scanRequest } from './json-spans.ts';

const id = fc.oneof(fc.nat(), fc.constantFrom(-1, 1.5, 0, 'a', null, 9_007_199_254_740_991));
const method = fc.constantFrom('eth_call', 'a', '', 'getBlock', 'a b', 'é');
const params = fc.oneof(
  fc.array(fc.jsonValue()),
  fc.constantFrom([{ to: '0x1', data: '0x2' }, 'latest'], [{ topics: ['0x1', null] }], [[[[1]]]]),
);
const order = fc.oneof(
  fc.constantFrom(
    ['jsonrpc', 'id', 'method', 'params'],
    ['method', 'params', 'id', 'jsonrpc'],
    ['jsonrpc', 'method', 'params', 'id'],
  ),
  fc.shuffledSubarray(['jsonrpc', 'id', 'method', 'params'], { minLength: 3 }),
);
const mutation = fc.record({
  at: fc.nat(),
  byte: fc.constantFrom(...Array.from('{}[],:"\\0123eE.+-ntfu \u0001é')),
});
const mutations = fc.oneof(fc.constant([]), fc.array(mutation, { maxLength: 2 }));

function mutated(text: string, changes: readonly { at: number; byte: string }[]): string {
  let changed = text;
  for (const { at, byte } of changes) {
    const position = at % (changed.length + 1);
    changed = changed.slice(0, position) + byte + changed.slice(position + 1);
  }
  return changed;
}

function inOrder(members: object, names: readonly string[]): string {
  const parts = names.map((name) => `"${name}":${JSON.stringify(Reflect.get(members, name))}`);
  return `{${parts.join(',')}}`;
}

const CALL_HEAD = '"jsonrpc":"2.0","id":1,"method":"a","params":';

test('a request in a plain spelling has the spans that the scanner finds', () => {
  let found = 0;
  fc.assert(
    fc.property(
      id,
      method,
      params,
      order,
      mutations,
      (anId, aMethod, someParams, names, changes) => {
        const members = { jsonrpc: '2.0', id: anId, method: aMethod, params: someParams };
        const bytes = Buffer.from(mutated(inOrder(members, names), changes));
        const plain = plainRequest(bytes.toString('latin1'), 0);
        if (plain === undefined) return;
        found += 1;
        const scan = scanRequest(bytes.subarray(0, plain.end), 1);
        assert.ok(scan.ok, bytes.toString());
        assert.deepEqual(plain, scan.items[0]);
      },
    ),
    { numRuns: 3_000 },
  );
  assert.ok(found > 100, `${found} plain ones`);
});

test('a reply in a plain spelling has the spans that the scanner finds', () => {
  let found = 0;
  const result = fc.oneof(fc.jsonValue(), fc.constantFrom('0x1', 'é', '', 1.5e-7, 2 ** 64, null));
  const orderOfReply = fc.shuffledSubarray(['jsonrpc', 'id', 'result'], { minLength: 2 });
  fc.assert(
    fc.property(id, result, orderOfReply, mutations, (anId, aResult, names, changes) => {
      const members = { jsonrpc: '2.0', id: anId, result: aResult };
      const bytes = Buffer.from(mutated(inOrder(members, names), changes));
      const plain = plainReply(bytes.toString('latin1'), 0);
      if (plain === undefined) return;
      found += 1;
      const scan = scanReply(bytes.subarray(0, plain.end));
      assert.ok(scan.ok, bytes.toString());
      assert.deepEqual(plain, scan.items[0]);
    }),
    { numRuns: 3_000 },
  );
  assert.ok(found > 100, `${found} plain ones`);
});

test('every order that the common clients write is a plain spelling', () => {
  const requests = [
    '{"jsonrpc":"2.0","id":7,"method":"eth_call","params":[{"to":"0x1"},"latest"]}',
    '{"method":"eth_call","params":[{"to":"0x1"},"latest"],"id":7,"jsonrpc":"2.0"}',
    '{"jsonrpc":"2.0","method":"eth_getLogs","params":[{"topics":["0x1",null]}],"id":0}',
  ];
  for (const text of requests)
    assert.equal(plainRequest(`[${text}]`, 1)?.end, text.length + 1, text);
  const replies = [
    '{"jsonrpc":"2.0","id":7,"result":"0x1"}',
    '{"jsonrpc":"2.0","result":18446744073709551615,"id":7}',
  ];
  for (const text of replies) assert.equal(plainReply(`[${text}]`, 1)?.end, text.length + 1, text);
});

test('what a strict reader refuses has no plain spelling', () => {
  const refused = [
    '{"jsonrpc":"2"0","id":7,"method":"a","params":[]}',
    '{"jsonrpc":"2.0","id":07,"method":"a","params":[]}',
    '{"jsonrpc":"2.0","id":7,"method":"a","params":[1,]}',
    '{"jsonrpc":"2.0","id":7,"method":"a","params":[{"a":1,}]}',
    '{"jsonrpc":"2.0","id":7,"method":"a","params":["\t"]}',
    '{"jsonrpc":"2.0","id":7,"method":"a","params":[1}',
    '{"jsonrpc":"2.0","id":7,"method":"a","params":[,]}',
    '{"jsonrpc":"2.0","id":7,"method":"a","params":[],"id":8}',
  ];
  for (const text of refused) assert.equal(plainRequest(text, 0), undefined, text);
});

test('a large item that breaks off is given up, not tried for ever', () => {
  const parts = ['[', '{"a":', '"x",', '1,', '[1],', '[1,1,1],', '{"a":[1]},', '"', '1', '0.1e5,'];
  for (const part of parts) {
    const inside = part.repeat(131_072 / part.length);
    assert.equal(plainRequest(`{${CALL_HEAD}[${inside}`, 0), undefined, part);
    assert.equal(plainReply(`{"jsonrpc":"2.0","id":1,"result":${inside}`, 0), undefined, part);
  }
});

test('a batch too large for the expressions is scanned all the same', () => {
  const item = `{${CALL_HEAD}["${'a'.repeat(2_000)}"]}`;
  const bytes = Buffer.from(`[${Array.from({ length: 100 }, () => item).join(',')}]`);
  const scan = scanRequest(bytes, 100);
  assert.ok(scan.ok);
  for (const { start, end } of scan.items) assert.equal(bytes.toString('utf8', start, end), item);
});
