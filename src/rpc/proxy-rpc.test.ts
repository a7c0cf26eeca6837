/** The JSON-RPC endpoint with a real ledger, real limits and a real node: the exact charges. */
import { Cancellation } from '../core/cancellation.ts';
import assert from 'node:assert/strict';
import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { stillClock } from '../../test/support/still-clock.ts';
import { until } from '../../test/support/until.ts';
import { onEachStore } from '../../test/databases/stores.ts';
import { call, fault, makeRpc, NETWORK } from '../../test/rpc/bench.ts';
import {
  echoNode,
  type NodeResponse,
  replyWith,
  startNode,
  type TestNode,
} from '../../test/rpc/node.ts';
import { Idempotency, IDEMPOTENCY_MIGRATIONS } from '../billing/idempotency/idempotency.ts';
import { walletCaller } from '../identity/identity.ts';
import type { Caller } from '../identity/identity.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { type Nano, usdToNano, ZERO } from '../core/money.ts';
import { Ledger, LEDGER_MIGRATIONS } from '../billing/ledger/ledger.ts';
import { LimitLog, LIMITS_MIGRATIONS, MemoryWindows } from '../billing/limits/limits.ts';
import { SharedCredits, RPC_MIGRATIONS } from './rpc.ts';
import type { RequestContext } from '../http/request-context.ts';
import { BudgetCaps } from '../billing/budgets/budgets.ts';
import { type Sale, Sales } from '../billing/sale.ts';
import { proxyRpc } from './proxy-rpc.ts';
import type { Rpc } from './rpc.ts';
import type { RpcLimits } from '../config/config.ts';

const MIGRATIONS = [
  ...LEDGER_MIGRATIONS,
  ...LIMITS_MIGRATIONS,
  ...RPC_MIGRATIONS,
  ...IDEMPOTENCY_MIGRATIONS,
];
const ALICE: Caller = { ...walletCaller(`0x${'a'.repeat(40)}`), kind: 'key', keyId: 'key-1' };

/** Capacity for two long responses. */
const KEPT_BYTES = 7_000_000;

/** The response that a caller receives. */
interface Sent {
  readonly credits: number;
  readonly costUsd: string;
  readonly requestId: string;
  readonly isReplayed: boolean;
  readonly remainingNano: Nano | undefined;
  readonly body: Buffer;
  readonly rest: Readable | undefined;
}

onEachStore('proxy rpc', (fixture) => {
  interface Bench {
    readonly node: TestNode;
    readonly usdNano: () => Promise<bigint>;
    /** Bytes of the responses stored for retries. */
    readonly keptBytes: () => Promise<number>;
    readonly rpc: Rpc;
    readonly cap: SharedCredits;
    readonly send: (
      body: unknown,
      options?: { key?: string; caller?: Caller; leaving?: Cancellation },
    ) => Promise<Sent>;
  }

  async function bench(
    t: TestContext,
    respond: NodeResponse = echoNode(),
    limits: Partial<RpcLimits> = {},
    clock = systemClock(),
  ): Promise<Bench> {
    const store = await fixture.open(MIGRATIONS);
    const parts = { store, clock, ids: systemIds(), log: silentLog };
    const ledger = new Ledger(parts);
    await ledger.start();
    await store.transaction(async (tx) =>
      ledger.creditIn(tx, {
        accountId: ALICE.accountId,
        amountNano: usdToNano('1'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: 'first',
      }),
    );
    const node = await startNode('0x1', respond);
    const rpc = makeRpc({ networks: { [NETWORK]: { upstreams: [{ url: node.url }] } } }, parts);
    const limitLog = new LimitLog(parts);
    const idempotency = new Idempotency({
      ...parts,
      processId: 'one',
      keptBytes: () => KEPT_BYTES,
    });
    const cap = new SharedCredits(store, parts.clock);
    const sales = new Sales({
      ledger,
      windows: new MemoryWindows(),
      limitLog,
      clock: parts.clock,
      log: silentLog,
      budgets: new BudgetCaps({
        store,
        ledger,
        identity: { lockBudget: async () => undefined },
        clock: parts.clock,
      }),
      minimumCreditNano: () => ZERO,
      observers: [],
      walletRefusal: async () => new Fault('PAYMENT_REQUIRED'),
      requireModel: async () => undefined,
    });
    t.after(async () => {
      const report = await ledger.audit();
      assert.deepEqual(report.differences, []);
      await idempotency.close();
      await ledger.stop();
      await rpc.close();
      await node.close();
    });
    const settings = {
      requestsPerMinute: 100,
      creditsPerDay: 10_000_000,
      ...limits,
    };
    const flow = {
      ...parts,
      rpc,
      credits: cap,
      idempotency,
      sales,
      limitLog,
      limits: () => settings,
    };
    return {
      node,
      rpc,
      cap,
      usdNano: async () => (await ledger.balances(ALICE.accountId)).usdNano,
      keptBytes: async () => {
        const [row] = await store.query<{ bytes: bigint }>(
          'SELECT CAST(sum(length(body)) AS BIGINT) AS bytes FROM idempotency_entry',
        );
        return Number(row?.bytes);
      },
      send: async (body, options = {}) =>
        new Promise((resolve, reject) => {
          const requestId = parts.ids.hex(16);
          const headers: Record<string, unknown> = { 'x-request-id': requestId };
          let remainingNano: Nano | undefined;
          const sent = (bytes: Buffer, rest?: Readable): void =>
            resolve({
              credits: Number(headers['x-svc-rpc-credits']),
              costUsd: String(headers['x-svc-rpc-cost-usd']),
              requestId: String(headers['x-request-id']),
              isReplayed: headers['idempotent-replayed'] === 'true',
              remainingNano,
              body: bytes,
              rest,
            });
          const context = {
            addTry: () => undefined,
            requestId,
            caller: options.caller ?? ALICE,
            tags: undefined,
            parameters: { network: NETWORK },
            headers: { 'idempotency-key': options.key },
            leaving: options.leaving ?? new Cancellation(),
            notes: {},
            set: (name: string, value: unknown) => void (headers[name] = value),
            bytes: (_status: number, _type: string, bytes: Buffer) => sent(bytes),
            sendAll: async (_status: number, _type: string, bytes: Buffer, rest: Readable) => {
              sent(bytes, rest);
              await finished(rest);
            },
          } as unknown as RequestContext; // the members that the endpoint uses
          const counted = (_sale: Sale, nano: Nano | undefined): void => {
            remainingNano = nano;
          };
          proxyRpc(
            {
              ...flow,
              headers: { counted },
              names: { credits: 'x-svc-rpc-credits', costUsd: 'x-svc-rpc-cost-usd' },
            },
            context,
            Buffer.from(JSON.stringify(body)),
          ).then(() => reject(new Error('nothing was sent')), reject);
        }),
    };
  }

  const oneError = replyWith(({ method }) =>
    method === 'eth_call' ? { error: { code: -32602, message: 'bad' } } : { result: '0x1' },
  );
  const usd1 = usdToNano('1');
  /** The balance after the charge for `credits`. */
  const balanceAfter = (credits: bigint): bigint => usd1 - credits * 625n;

  test('a success and an error item cost 25 credits exactly', async (t) => {
    const b = await bench(t, oneError);
    const answer = await b.send([call('eth_getBalance', 1), call('eth_call', 2)]);
    assert.equal(answer.credits, 25);
    assert.equal(answer.costUsd, '0.00001563');
    assert.equal(await b.usdNano(), balanceAfter(25n));
    assert.equal(answer.remainingNano, await b.usdNano());
    assert.equal(await b.cap.used(ALICE.accountId), 25);
  });

  test('a charged response is sent even if its unused credits cannot be returned', async (t) => {
    const b = await bench(t, oneError);
    t.mock.method(b.cap, 'correct', () => Promise.reject(new Error('read ECONNRESET')));
    for (const options of [{}, { key: 'k' }]) {
      const { credits } = await b.send([call('eth_getBalance', 1), call('eth_call', 2)], options);
      assert.equal(credits, 25);
    }
    assert.equal(await b.usdNano(), balanceAfter(50n));
  });

  test('a request without a reply costs nothing and is not stored under its key', async (t) => {
    let isDead = true;
    const b = await bench(t, (request, response) => {
      if (isDead) response.destroy();
      else echoNode()(request, response);
    });
    assert.equal((await fault(b.send(call('eth_call'), { key: 'k' }))).status, 503);
    assert.equal(await b.usdNano(), usd1);
    assert.equal(await b.cap.used(ALICE.accountId), 0);
    isDead = false;
    const answer = await b.send(call('eth_call'), { key: 'k' });
    assert.equal(answer.isReplayed, false);
    assert.equal(answer.credits, 20);
  });

  test('requests with one key run once: duplicates wait, replays are free, another body is 400', async (t) => {
    const b = await bench(t);
    const answers = await Promise.all(
      Array.from({ length: 5 }, async () => b.send(call('eth_sendRawTransaction'), { key: 'k' })),
    );
    assert.equal(b.node.requests.length, 1);
    assert.equal(answers.filter((answer) => answer.isReplayed).length, 4);
    assert.equal(new Set(answers.map((answer) => answer.requestId)).size, 1);
    assert.equal(new Set(answers.map((answer) => answer.body.toString())).size, 1);
    assert.deepEqual([...new Set(answers.map((one) => one.costUsd))], ['0.00001250']);
    assert.equal(await b.usdNano(), balanceAfter(20n));
    assert.equal(
      (await fault(b.send(call('eth_call'), { key: 'k' }))).code,
      'IDEMPOTENCY_KEY_REUSED',
    );
    assert.equal(
      (await fault(b.send(call('eth_call'), { key: 'not ok' }))).code,
      'INVALID_IDEMPOTENCY_KEY',
    );
  });

  test('the request limit leads to 429 with its headers and without Retry-After', async (t) => {
    const limits = { requestsPerMinute: 2 };
    // The clock is stopped, so that the minute does not change between the calls.
    const { clock } = stillClock();
    const b = await bench(t, echoNode(), limits, clock);
    const startedMs = clock.nowMs();
    await b.send(call('eth_call'), { key: 'k' });
    await b.send(call('eth_call'), { key: 'k' });
    const refused = await fault(b.send(call('eth_call')));
    assert.equal(refused.status, 429);
    assert.match(String(refused.options.fields?.['customMessage']), /2 RPC requests per minute/);
    assert.equal(refused.options.headers?.['x-ratelimit-limit'], '2');
    assert.equal(refused.options.headers?.['x-ratelimit-remaining'], '0');
    assert.ok(Number(refused.options.headers?.['x-ratelimit-reset']) * 1_000 > startedMs);
    assert.equal(refused.options.retryAfterSeconds, undefined);
  });

  test('the credit cap leads to 429 before a node is called', async (t) => {
    const b = await bench(t, echoNode(), { creditsPerDay: 50 });
    await b.send([call('eth_call', 1), call('eth_call', 2)]);
    const refused = await fault(b.send(call('eth_call')));
    assert.equal(refused.status, 429);
    assert.match(
      String(refused.options.fields?.['customMessage']),
      /20 RPC credits, and 40 of the 50 per/,
    );
    assert.equal(refused.options.headers, undefined);
    assert.equal(b.node.requests.length, 1);
  });

  test('the credit cap of a key counts only the requests of this key', async (t) => {
    const b = await bench(t, echoNode(), { creditsPerDay: 50 });
    const capped = { ...ALICE, keyId: 'capped', keyLimits: { rpcCreditsPerDay: 30 } };
    const below = { ...capped, keyId: 'below', limitKeyId: 'capped' };
    await b.send([call('eth_call', 1), call('eth_call', 2)]);
    await b.send(call('eth_call'), { caller: capped });
    const refused = await fault(b.send(call('eth_call'), { caller: below }));
    assert.match(
      String(refused.options.fields?.['customMessage']),
      /20 RPC credits, and 20 of the 30 per/,
    );
    assert.deepEqual([await b.cap.used(ALICE.accountId), await b.cap.used('capped')], [40, 20]);
  });

  test('a balance below the full tiers leads to 402 and releases the credits and the key', async (t) => {
    const b = await bench(t);
    const poor = { ...ALICE, accountId: 'poor' };
    assert.equal((await fault(b.send(call('eth_call'), { caller: poor, key: 'k' }))).status, 402);
    assert.equal((await fault(b.send(call('eth_call'), { caller: poor, key: 'k' }))).status, 402);
    assert.equal(await b.cap.used('poor'), 0);
    assert.equal(b.node.requests.length, 0);
  });

  const MEGABYTES_3 = 3_145_728;
  const REPLY_MEMORY_BYTES = 268_435_456;
  function large(isCut: boolean): NodeResponse {
    return ({ calls }, response) => {
      const head = `{"jsonrpc":"2.0","id":${JSON.stringify(calls[0]!.id)},"result":"`;
      const rest = Buffer.alloc(MEGABYTES_3 + 40 - 34 - 2, 0x61);
      response.writeHead(200, { 'content-length': head.length + rest.length + 2 });
      response.write(head);
      if (isCut) response.write(rest.subarray(1_000_000), () => response.destroy());
      else {
        response.write(rest);
        response.end('"}');
      }
    };
  }

  async function read(answer: Sent): Promise<number> {
    let sizeBytes = answer.body.length;
    for await (const chunk of answer.rest ?? []) sizeBytes += Buffer.from(chunk).length;
    return sizeBytes;
  }

  test('a long response is streamed, charged before its end, and replayed completely', async (t) => {
    const b = await bench(t, large(false));
    const answer = await b.send(call('eth_getLogs'), { key: 'k' });
    assert.ok(answer.rest !== undefined);
    assert.equal(answer.remainingNano, balanceAfter(20n));
    assert.equal(await read(answer), MEGABYTES_3 + 40);
    assert.equal(await b.usdNano(), balanceAfter(20n));
    const again = await b.send(call('eth_getLogs'), { key: 'k' });
    assert.equal(again.isReplayed, true);
    assert.equal(again.body.length, MEGABYTES_3 + 40);
  });

  test('an incomplete long reply costs nothing; a long response that the caller abandons is charged', async (t) => {
    const cut = await bench(t, large(true));
    await assert.rejects(async () => read(await cut.send(call('eth_getLogs'))));
    await until(async () => (await cut.cap.used(ALICE.accountId)) === 0);
    assert.equal(await cut.usdNano(), usd1);
    const left = await bench(t, large(false));
    const answer = await left.send(call('eth_getLogs'));
    answer.rest?.destroy();
    await until(async () => (await left.usdNano()) < usd1);
    assert.equal(await left.usdNano(), balanceAfter(20n));
  });

  test('long responses under many keys stay within the storage limit of the account', async (t) => {
    const b = await bench(t, large(false));
    const keys = ['k1', 'k2', 'k3', 'k4', 'k5'];
    for (const key of keys) await read(await b.send(call('eth_getLogs'), { key }));
    assert.ok((await b.keptBytes()) <= KEPT_BYTES);
    const paid = await b.usdNano();
    for (const key of ['k1', 'k3']) {
      const { code, message } = await fault(b.send(call('eth_getLogs'), { key }));
      assert.equal(code, 'IDEMPOTENT_ANSWER_NOT_KEPT');
      assert.match(message, /dropped for newer ones/);
    }
    for (const key of ['k4', 'k5']) {
      const again = await b.send(call('eth_getLogs'), { key });
      assert.deepEqual([again.isReplayed, again.body.length], [true, MEGABYTES_3 + 40]);
    }
    assert.equal(await b.usdNano(), paid);
  });

  test('a long response that the caller abandons under a key is stored and charged once', async (t) => {
    const b = await bench(t, large(false));
    const answer = await b.send(call('eth_getLogs'), { key: 'k' });
    answer.rest?.destroy();
    const again = await b.send(call('eth_getLogs'), { key: 'k' });
    assert.equal(await read(again), MEGABYTES_3 + 40);
    assert.equal(again.isReplayed, true);
    assert.equal(b.node.requests.length, 1);
    assert.equal(await b.usdNano(), balanceAfter(20n));
  });

  test('a caller that disconnects before a response is not charged, unless it is stored under a key', async (t) => {
    const leaving: Cancellation[] = [];
    const leaveAndReply: NodeResponse = (request, response) => {
      leaving.at(-1)?.abort();
      echoNode()(request, response);
    };
    const b = await bench(t, leaveAndReply);
    for (const method of ['eth_call', 'eth_sendRawTransaction', 'eth_gasPrice']) {
      const caller = new Cancellation();
      leaving.push(caller);
      await assert.rejects(b.send(call(method), { leaving: caller }), /nothing was sent/);
      assert.equal(await b.usdNano(), usd1, method);
      assert.equal(await b.cap.used(ALICE.accountId), 0);
    }
    assert.equal(b.node.requests.length, 3);
    // A response stored under a key is charged, because a retry receives it.
    const caller = new Cancellation();
    leaving.push(caller);
    await b.send(call('eth_call'), { leaving: caller, key: 'k' });
    assert.equal((await b.send(call('eth_call'), { key: 'k' })).isReplayed, true);
    assert.equal(await b.usdNano(), balanceAfter(20n));
  });

  test('a long response is charged if its caller reads too slowly', async (t) => {
    const clock = systemClock();
    const after: Clock['after'] = (ms, work) => clock.after(ms === 600_000 ? 200 : ms, work);
    const slow = await bench(t, large(false), {}, { ...clock, after });
    const answer = await slow.send(call('eth_getLogs'));
    await clock.sleep(500);
    await assert.rejects(read(answer));
    await until(async () => (await slow.usdNano()) < usd1);
    assert.equal(await slow.usdNano(), balanceAfter(20n));
    // The same with a key: retries do not pay again.
    const kept = await slow.send(call('eth_getLogs'), { key: 'k' });
    await clock.sleep(500);
    await assert.rejects(read(kept));
    assert.equal((await fault(slow.send(call('eth_getLogs'), { key: 'k' }))).status, 410);
    assert.equal(await slow.usdNano(), balanceAfter(40n));
  });

  test('a long response without memory to store it is charged once, and a retry receives 410', async (t) => {
    const b = await bench(t, large(false));
    let freeBytes = REPLY_MEMORY_BYTES;
    for (let other = 0; freeBytes > 4_194_304; other += 1) {
      freeBytes /= 2;
      assert.ok(b.rpc.budget.take(`other-${other}`, freeBytes));
    }
    const answer = await b.send(call('eth_getLogs'), { key: 'k' });
    assert.equal(await read(answer), MEGABYTES_3 + 40);
    assert.equal((await fault(b.send(call('eth_getLogs'), { key: 'k' }))).status, 410);
    assert.ok(b.rpc.budget.take('a-last-one', freeBytes / 2), 'its memory is released');
    assert.equal(await b.usdNano(), balanceAfter(20n));
  });
});
