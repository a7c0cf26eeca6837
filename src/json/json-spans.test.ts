/** The span scanner compared with `JSON.parse`, on valid, broken and hostile documents. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { peekReply, scanReply, scanRequest, spanString } from './json-spans.ts';

const MAX_ITEMS = 100;

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // whether it parses
  }
}

function slice(bytes: Buffer, start: number, end: number): unknown {
  return start < 0 ? undefined : JSON.parse(bytes.toString('utf8', start, end));
}

const spacing = fc.constantFrom('', ' ', '\n', '\t\r ');
const envelope = fc.record(
  { jsonrpc: fc.constant('2.0'), method: fc.string(), params: fc.jsonValue(), id: fc.jsonValue() },
  { requiredKeys: [] },
);

test('members of any request are found where JSON.parse sees them', () => {
  fc.assert(
    fc.property(
      fc.array(envelope, { maxLength: 6 }),
      spacing,
      fc.nat(3),
      (items, space, indent) => {
        const bytes = Buffer.from(space + JSON.stringify(items, undefined, indent) + space);
        const scan = scanRequest(bytes, MAX_ITEMS);
        assert.ok(scan.ok && scan.isBatch);
        assert.equal(scan.items.length, items.length);
        for (const [index, item] of scan.items.entries()) {
          const parsed = JSON.parse(bytes.toString('utf8', item.start, item.end)) as Record<
            string,
            unknown
          >;
          assert.deepEqual(slice(bytes, item.methodStart, item.methodEnd), parsed['method']);
          assert.deepEqual(slice(bytes, item.paramsStart, item.paramsEnd), parsed['params']);
          assert.deepEqual(slice(bytes, item.idStart, item.idEnd), parsed['id']);
          assert.deepEqual(slice(bytes, item.versionStart, item.versionEnd), parsed['jsonrpc']);
          const known = ['jsonrpc', 'method', 'params', 'id'];
          assert.equal(item.hasMore, !Object.keys(parsed).every((name) => known.includes(name)));
          assert.deepEqual(parsed, JSON.parse(JSON.stringify(items[index])));
        }
      },
    ),
  );
});

test('a request is accepted exactly when JSON.parse accepts it', () => {
  const mutation = fc.record({
    at: fc.nat(),
    byte: fc.constantFrom(...Array.from('{}[],:"\\0123eE.+-ntfu \u0001é')),
  });
  fc.assert(
    fc.property(envelope, fc.array(mutation, { maxLength: 3 }), (item, mutations) => {
      let text = JSON.stringify(item);
      for (const { at, byte } of mutations) {
        const position = at % (text.length + 1);
        text = text.slice(0, position) + byte + text.slice(position + 1);
      }
      const scan = scanRequest(Buffer.from(text), MAX_ITEMS);
      const isAccepted = scan.ok || scan.reason === 'member' || scan.reason === 'item';
      if (scan.ok || scan.reason === 'syntax') assert.equal(isAccepted, parses(text), text);
    }),
    { numRuns: 2_000 },
  );
});

test('every truncated request is rejected', () => {
  const whole =
    '[{"jsonrpc":"2.0","id":"\\u00e9","method":"a","params":[{"b":[1.5e-7,null,true]}]}]';
  assert.ok(scanRequest(Buffer.from(whole), MAX_ITEMS).ok);
  for (let size = 0; size < whole.length; size += 1) {
    assert.equal(scanRequest(Buffer.from(whole.slice(0, size)), MAX_ITEMS).ok, false);
  }
});

test('spellings that parsers read differently are rejected', () => {
  const ambiguous = [
    '{"method":"a","method":"b"}',
    '{"id":1,"id":2}',
    '{"method":"a","Method":"b"}',
    '{"method":"a","METHOD":"b"}',
    '{"method":"a","\\u006dethod":"b"}',
    '{"params":[],"paramſ":[1]}',
    '{"jsonrpc":"2.0","jsonrpc":"2.0"}',
    '{"ID":1}',
  ];
  for (const text of ambiguous) {
    const scan = scanRequest(Buffer.from(text), MAX_ITEMS);
    assert.ok(!scan.ok && scan.reason === 'member', text);
  }
  const escaped = Buffer.from('{"\\u006dethod":"eth_\\u0063all"}');
  const scan = scanRequest(escaped, MAX_ITEMS);
  assert.ok(scan.ok);
  assert.equal(
    spanString(escaped, scan.items[0]!.methodStart, scan.items[0]!.methodEnd),
    'eth_call',
  );
});

test('depth, count, encoding and kind have limits with their own errors', () => {
  const deep = `{"params":${'['.repeat(5_000)}${']'.repeat(5_000)}}`;
  assert.equal(reason(deep), 'depth');
  assert.equal(reason(`[${Array.from({ length: 101 }, () => '{}').join(',')}]`), 'count');
  assert.equal(reason('[1]'), 'item');
  assert.equal(reason('"text"'), 'item');
  assert.equal(reason('[[]]'), 'item');
  const broken = scanRequest(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), MAX_ITEMS);
  assert.ok(!broken.ok && broken.reason === 'encoding');
  function reason(text: string): string {
    const scan = scanRequest(Buffer.from(text), MAX_ITEMS);
    return scan.ok ? 'ok' : scan.reason;
  }
});

const reply = fc.record(
  {
    jsonrpc: fc.constant('2.0'),
    id: fc.jsonValue(),
    result: fc.jsonValue(),
    error: fc.jsonValue(),
  },
  { requiredKeys: [] },
);

test('members of any reply are found, however long its strings are', () => {
  const longText = fc.string({ unit: fc.constantFrom('\\', '"', 'x', 'é', '\n'), maxLength: 200 });
  fc.assert(
    fc.property(
      fc.array(fc.tuple(reply, longText), { maxLength: 5 }),
      fc.nat(2),
      (pairs, indent) => {
        const items = pairs.map(([item, text]) => ({
          extra: text,
          ...item,
          [text]: [text, { text }],
        }));
        const bytes = Buffer.from(JSON.stringify(items, undefined, indent));
        const scan = scanReply(bytes);
        assert.ok(scan.ok && scan.isBatch);
        assert.equal(scan.items.length, items.length);
        for (const item of scan.items) {
          const parsed = JSON.parse(bytes.toString('utf8', item.start, item.end)) as Record<
            string,
            unknown
          >;
          assert.deepEqual(slice(bytes, item.idStart, item.idEnd), parsed['id']);
          assert.deepEqual(slice(bytes, item.resultStart, item.resultEnd), parsed['result']);
          assert.deepEqual(slice(bytes, item.errorStart, item.errorEnd), parsed['error']);
        }
      },
    ),
  );
});

test('every truncated reply is detected', () => {
  const whole = Buffer.from(
    JSON.stringify([
      { id: 1, result: { text: 'ab\\"'.repeat(40), list: [[{}]] } },
      { id: 2, error: {} },
    ]),
  );
  assert.ok(scanReply(whole).ok);
  for (let size = 0; size < whole.length; size += 1) {
    assert.equal(scanReply(whole.subarray(0, size)).ok, false, String(size));
  }
  assert.equal(scanReply(Buffer.from('{"id":1,"result":{"a":[1}]}')).ok, false);
  assert.equal(scanReply(Buffer.from('{"id":1,"result":1,"result":2}')).ok, false);
});

test('a reply has no more items than any batch could have', () => {
  const reply = (items: number): Buffer => Buffer.from(`[${'{},'.repeat(items - 1)}{}]`);
  assert.ok(scanReply(reply(1_000)).ok);
  const scan = scanReply(reply(1_001));
  assert.ok(!scan.ok && scan.reason === 'count');
});

test('the first bytes of a long reply distinguish a result from an error', () => {
  assert.equal(peekReply(Buffer.from('{"jsonrpc":"2.0","id":7,"result":"0xabc')).first, 'result');
  assert.equal(peekReply(Buffer.from('{"error":{"code":3,"data":"0x')).first, 'error');
  assert.equal(peekReply(Buffer.from('{"jsonrpc":"2.0","id":1')).first, 'none');
  assert.equal(peekReply(Buffer.from('[{"result":1')).first, 'none');
  const bytes = Buffer.from('{"id" : "x" , "result" : [');
  const peek = peekReply(bytes);
  assert.equal(bytes.toString('utf8', peek.idStart, peek.idEnd), '"x"');
});

/** Longer than the limit for the expression of plain members. */
const LONG = `{"method":"${'a'.repeat(140_000)}"}`;
const mutation = fc.record({
  at: fc.nat(),
  byte: fc.constantFrom(...Array.from('{}[],:"\\0123eE.+-ntfu \u0001é')),
});

test('the fast path and the scanner agree on every plain spelling', () => {
  const values = {
    jsonrpc: fc.constant('2.0'),
    id: fc.oneof(fc.nat(), fc.constantFrom(-1, 1.5, 'a', null, 9_007_199_254_740_991)),
    method: fc.constantFrom('eth_call', 'a', '', 'a b', 'é'),
    params: fc.oneof(
      fc.array(fc.jsonValue()),
      fc.constantFrom([{ to: '0x1', data: '0x2' }, 'latest'], [[[[1]]]]),
    ),
    result: fc.oneof(fc.jsonValue(), fc.constantFrom('0x1', 'é', '', 1.5e-7, 2 ** 64, null)),
    Method: fc.constant(1),
  };
  const names = fc.shuffledSubarray(Object.keys(values), { minLength: 2 });
  const mutations = fc.oneof(fc.constant([]), fc.array(mutation, { maxLength: 2 }));
  fc.assert(
    fc.property(fc.record(values), names, mutations, (members, order, changes) => {
      const parts = order.map((name) => `"${name}":${JSON.stringify(Reflect.get(members, name))}`);
      let text = `{${parts.join(',')}}`;
      for (const { at, byte } of changes) {
        const position = at % (text.length + 1);
        text = text.slice(0, position) + byte + text.slice(position + 1);
      }
      for (const scan of [(bytes: Buffer) => scanRequest(bytes, 9), scanReply]) {
        const plain = scan(Buffer.from(`[{},${text}]`));
        const scanned = scan(Buffer.from(`[${LONG},${text}]`));
        const shift = LONG.length - 2;
        if (!plain.ok) {
          assert.ok(!scanned.ok && scanned.reason === plain.reason, text);
          assert.equal(scanned.position, plain.position + shift, text);
          continue;
        }
        const item: Record<string, number | boolean> = { ...plain.items[1] };
        const moved = Object.entries(item).map(([name, at]) => [
          name,
          typeof at === 'boolean' || at < 0 ? at : at + shift,
        ]);
        assert.deepEqual(scanned.ok && scanned.items[1], Object.fromEntries(moved), text);
      }
    }),
    { numRuns: 3_000 },
  );
});

test('the fast path rejects what a strict parser rejects', () => {
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
  for (const text of refused) assert.equal(scanRequest(Buffer.from(text), 1).ok, false, text);
});

test('a large truncated item ends the scan', () => {
  const parts = ['[', '{"a":', '"x",', '1,', '[1],', '[1,1,1],', '{"a":[1]},', '"', '1', '0.1e5,'];
  for (const part of parts) {
    const inside = part.repeat(130_000 / part.length);
    assert.equal(scanRequest(Buffer.from(`[{"id":1,"params":[${inside}`), 1).ok, false, part);
    assert.equal(scanReply(Buffer.from(`[{"id":1,"result":${inside}`)).ok, false, part);
  }
});
