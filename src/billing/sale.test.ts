/** A sale checks limits before money, and reserves and releases capacity of a window. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { storeFixture } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { Fault } from '../core/faults.ts';
import { silentLog } from '../core/log.ts';
import { type Nano, ZERO, formatUsd, nano, usdToNano } from '../core/money.ts';
import { type Caller, walletCaller } from '../identity/identity.ts';
import { LEDGER_MIGRATIONS, Ledger, NO_TOKENS, usageTags } from './ledger/ledger.ts';
import { STORE_MIGRATIONS, StoreUnavailable, claimOnce, isShared } from '../db/db.ts';
import { LIMITS_MIGRATIONS, LeasedWindows, LimitLog, MemoryWindows } from './limits/limits.ts';
import { type ResponseKeeper, type Sale, type SaleRequest, Sales } from './sale.ts';
import { MAX_ROWS, OTHER_VALUES } from './tag-bounds.ts';
import { BudgetCaps } from './budgets/budgets.ts';

const WALLET = walletCaller('0x00000000000000000000000000000000000000aa');
const RATE = { requestsPerMinute: 3, tokensPerMinute: 1_000, type: 'user' } as const;
const CENT = usdToNano('0.01');
const LEFT = { aborted: true };
const DAY_BUDGET = {
  id: 'budget',
  accountId: WALLET.accountId,
  tag: undefined,
  value: undefined,
  period: 'EPOCH',
  usdLimitNano: usdToNano('0.015'),
  createdMs: 0,
} as const;

for (const dialect of ['sqlite', 'postgres'] as const) {
  describe(`a sale (${dialect})`, () => {
    const fixture = storeFixture(dialect);

    async function open() {
      const store = await fixture.open([
        ...STORE_MIGRATIONS,
        ...LEDGER_MIGRATIONS,
        ...LIMITS_MIGRATIONS,
      ]);
      const parts = { store, clock: new TestClock(), ids: seededIds(1), log: silentLog };
      const journalFolder = mkdtempSync(join(tmpdir(), 'farebox-sale-'));
      after(() => rmSync(journalFolder, { recursive: true, force: true }));
      const ledger = new Ledger({ ...parts, journalFolder });
      const windows = isShared(store)
        ? new LeasedWindows({ store, clock: parts.clock, processes: () => 1, holder: 'one' })
        : new MemoryWindows();
      const sales = new Sales({
        ...parts,
        ledger,
        windows,
        limitLog: new LimitLog(parts),
        budgets: new BudgetCaps({
          ...parts,
          ledger,
          identity: { lockBudget: async () => DAY_BUDGET },
        }),
        minimumCreditNano: () => CENT,
        observers: [],
        walletRefusal: async () => new Fault('PAYMENT_REQUIRED'),
        requireModel: async (modelId) => {
          if (modelId === 'offline') throw new Fault('MODEL_OFFLINE');
        },
      });
      const credit = (id: string, amountNano: Nano) =>
        store.transaction(async (tx) => {
          const { accountId } = WALLET;
          const from = 'house:operator-credit';
          await ledger.creditIn(tx, { accountId, amountNano, from, kind: 'CREDIT', id });
        });
      const tokensLeft = async () => {
        const counted = await sales.count(requestOf('count', WALLET, 0));
        return counted.window.tokensLeft;
      };
      return { store, ledger, sales, credit, tokensLeft, clock: parts.clock };
    }

    test('a failed settle returns its reserved tokens once, and its release does not return them again', async (t) => {
      const { ledger, sales, credit, tokensLeft } = await open();
      await credit('first', usdToNano('1'));
      await sales.count(requestOf('other', WALLET, 500));
      const failing = t.mock.method(ledger.holds, 'settle', () => {
        failing.mock.restore();
        return Promise.reject(new Error('refused'));
      });
      const tokens = { ...NO_TOKENS, prompt: 40, completion: 20 };
      const sold = sales.sell(requestOf('sold', WALLET, 100, CENT), (sale) =>
        sale.settle({ costNano: CENT, status: 'completed', tokens }),
      );
      await assert.rejects(sold, /refused/);
      assert.equal((await ledger.openHolds()).count, 0);
      assert.equal(await tokensLeft(), 1_000 - 500 - 60);
    });

    test('a response is made once; if it cannot be made, the request fails after its charge', async () => {
      const { ledger, sales, credit } = await open();
      await credit('first', usdToNano('1'));
      let made = 0;
      const outcome = { costNano: CENT, status: 'completed' } as const;
      const sold = await sales.sell(requestOf('a', WALLET, 10, CENT), (sale) =>
        sale.answer(outcome, ({ after }) => {
          made += 1;
          return { type: 'text/plain', body: formatUsd(after.usdNano) };
        }),
      );
      assert.deepEqual([made, sold?.body], [1, '0.990000000']);
      const failing = sales.sell(requestOf('b', WALLET, 10, CENT), (sale) =>
        sale.answer(outcome, () => {
          throw new Error('not made');
        }),
      );
      await assert.rejects(failing, /not made/);
      const { usdNano } = await ledger.balances(WALLET.accountId);
      assert.equal(usdNano, usdToNano('0.98'));
      assert.equal((await ledger.openHolds()).count, 0);
    });

    test('a payment is taken after the request is counted and before its hold', async () => {
      const { ledger, sales, credit } = await open();
      const paid: string[] = [];
      const caller = paying('1', async () => {
        paid.push('paid');
        await credit('payment', usdToNano('1'));
      });
      await sales.sell(requestOf('a', caller, 10, CENT), (sale) =>
        sale.settle({ costNano: CENT, status: 'completed' }),
      );
      assert.deepEqual(paid, ['paid']);
      assert.equal((await ledger.balances(WALLET.accountId)).usdNano, usdToNano('0.99'));
      await sales.count(requestOf('b', WALLET, 0));
      await sales.count(requestOf('c', WALLET, 0));
      const limited = sales.sell(requestOf('d', caller, 10, CENT), async () => undefined);
      await assert.rejects(limited, (error) => error instanceof Fault && error.status === 429);
      assert.deepEqual(paid, ['paid']);
    });

    test('a payment is taken only for the part of the hold that free credit does not cover', async () => {
      const { store, ledger, sales, credit } = await open();
      const wanted: bigint[] = [];
      const caller = paying('1', async (amount) => {
        wanted.push(amount);
        await credit(`payment ${wanted.length}`, usdToNano('0.5'));
      });
      const sell = (id: string, price: Nano) =>
        sales.sell(requestOf(id, { ...caller, isBatch: true }, 0, price), (sale) =>
          sale.settle({ costNano: price, status: 'completed' }),
        );
      await sell('new', CENT);
      await sell('rich', CENT);
      await sell('free', ZERO);
      await sales.sell(requestOf('holds', { ...WALLET, isBatch: true }, 0, usdToNano('1')), () =>
        sell('beside', usdToNano('0.9')),
      );
      const owed = { accountId: WALLET.accountId, id: 'reversal', note: '' } as const;
      await store.transaction((tx) =>
        ledger.reverseIn(tx, { ...owed, amountNano: usdToNano('1.5'), to: 'house:top-up:base' }),
      );
      await sell('owing', CENT);
      assert.deepEqual(
        wanted.map((amount) => formatUsd(nano(amount), 2)),
        ['0.01', '0.00', '0.00', '0.42', '0.43'],
      );
    });

    test('no payment is taken if the debt would use all of it', async () => {
      const { store, ledger, sales, credit } = await open();
      await credit('spent', CENT);
      await store.transaction((tx) =>
        ledger.reverseIn(tx, {
          accountId: WALLET.accountId,
          id: 'reversal',
          note: '',
          amountNano: usdToNano('5'),
          to: 'house:top-up:base',
        }),
      );
      const caller = paying('4.99', () => assert.fail('it would not be served'));
      await assert.rejects(
        sales.sell(requestOf('a', caller, 0, CENT), async () => undefined),
        (error) => error instanceof Fault && error.code === 'PAYMENT_REQUIRED',
      );
    });

    test('no payment is taken while running requests hold the missing amount', async () => {
      const { sales, credit } = await open();
      await credit('first', usdToNano('1'));
      let paid = 0;
      const caller = paying('0.5', async () => {
        await credit(`payment ${(paid += 1)}`, usdToNano('0.5'));
      });
      const sell = (id: string, price: Nano) =>
        sales.sell(
          { ...requestOf(id, { ...caller, isBatch: true }, 0, price), cancellation: LEFT },
          (sale) => sale.settle({ costNano: price, status: 'completed' }),
        );
      const other = requestOf('holds', { ...WALLET, isBatch: true }, 0, usdToNano('1'));
      await sales.sell(other, async () => {
        const isHeld = (error: unknown) => error instanceof Fault && error.code === 'CREDIT_HELD';
        await assert.rejects(sell('beside', usdToNano('0.6')), isHeld);
        assert.equal(paid, 0);
        await sell('covered', usdToNano('0.5'));
      });
      assert.equal(paid, 1);
    });

    test('a payment is taken after such a request has ended', async () => {
      const { sales, credit } = await open();
      await credit('first', usdToNano('1'));
      const order: string[] = [];
      const caller = paying('0.5', async () => {
        order.push('paid');
        await credit('payment', usdToNano('0.5'));
      });
      let later: Promise<unknown> | undefined;
      const other = requestOf('holds', { ...WALLET, isBatch: true }, 0, usdToNano('1'));
      await sales.sell(other, async (sale) => {
        const wanted = requestOf('late', { ...caller, isBatch: true }, 0, usdToNano('1.2'));
        later = sales.sell(wanted, (one) => one.settle({ costNano: CENT, status: 'completed' }));
        await setImmediate();
        order.push('ended');
        await sale.settle({ costNano: CENT, status: 'completed' });
      });
      await later;
      assert.deepEqual(order, ['ended', 'paid']);
    });

    test('no payment is taken for work that no engine can do', async () => {
      const { sales } = await open();
      const caller = paying('1', () => assert.fail('nothing could serve it'));
      const sell = (changes: Partial<SaleRequest>) =>
        sales.sell({ ...requestOf('a', caller, 0, CENT), ...changes }, async () => undefined);
      const isOffline = (error: unknown) =>
        error instanceof Fault && error.code === 'MODEL_OFFLINE';
      await assert.rejects(sell({ modelId: 'offline' }), isOffline);
      const job = { id: 'job', modelId: 'offline', caller, priceNano: CENT, tags: undefined };
      await assert.rejects(sales.holdForJob(job), isOffline);
      const requireReady = () => Promise.reject(new Fault('RPC_NETWORK_UNAVAILABLE'));
      await assert.rejects(
        sell({ requireReady }),
        (error) => error instanceof Fault && error.code === 'RPC_NETWORK_UNAVAILABLE',
      );
      // A caller that pays from credit gets the error of the engine.
      await sell({ caller: WALLET, modelId: 'offline' }).catch((error: unknown) => {
        assert.ok(error instanceof Fault && error.code === 'PAYMENT_REQUIRED');
      });
    });

    test('no payment is taken for a request above its budget, which is checked again after a payment', async () => {
      const { ledger, sales, credit } = await open();
      const budgets = { parentIds: [], budgets: [DAY_BUDGET] };
      let paid = 0;
      const pay = async () => credit(`payment ${(paid += 1)}`, usdToNano('1'));
      const sell = (id: string, caller: Caller) =>
        sales.sell(requestOf(id, { ...caller, budgets, isBatch: true }, 0, CENT), (sale) =>
          sale.settle({ costNano: CENT, status: 'completed' }),
        );
      const isSpent = (error: unknown) =>
        error instanceof Fault && error.code === 'API_KEY_USD_SPEND_LIMIT_EXCEEDED';
      const racing = paying('1', async () => {
        await pay();
        await sell('meanwhile', WALLET);
      });
      await assert.rejects(sell('raced', racing), isSpent);
      assert.equal(paid, 1);
      await assert.rejects(sell('late', paying('1', pay)), isSpent);
      const job = { id: 'job', modelId: 'm', caller: { ...paying('1', pay), budgets } };
      await assert.rejects(sales.holdForJob({ ...job, priceNano: CENT, tags: undefined }), isSpent);
      assert.equal(paid, 1);
      assert.equal((await ledger.balances(WALLET.accountId)).usdNano, usdToNano('0.99'));
      assert.equal((await ledger.openHolds()).count, 0);
    });

    test('many tag values of free requests are merged into one, and no sum is lost', async () => {
      const { store, ledger, sales, credit } = await open();
      await credit('first', usdToNano('1'));
      const total = MAX_ROWS + 20;
      const sell = (user: string, costNano: Nano) =>
        sales.sell(
          {
            ...requestOf(`r${user}`, { ...WALLET, isBatch: true }, 0, costNano),
            metadata: { user },
          },
          (sale) => sale.settle({ costNano, status: 'completed' }),
        );
      await Promise.all(Array.from({ length: total }, (_, at) => sell(`u${at}`, ZERO)));
      await sell('paid', CENT);
      const filter = { accountId: WALLET.accountId, tag: 'user', fromDay: 0, toDay: 1_000_000 };
      const rows = await usageTags(store, filter, { limit: total, offset: 0 });
      assert.equal(rows.length, MAX_ROWS + 2);
      assert.equal(rows.find(({ value }) => value === OTHER_VALUES)?.requests, 20n);
      assert.equal(rows.find(({ value }) => value === 'paid')?.usd_nano, CENT);
      assert.equal(
        rows.reduce((sum, { requests }) => sum + requests, 0n),
        BigInt(total + 1),
      );
      assert.deepEqual((await ledger.audit()).differences, []);
    });

    test('a response stored by its settle is charged in the same transaction or not at all', async (t) => {
      const { store, ledger, sales, credit } = await open();
      await credit('first', usdToNano('1'));
      const sold = { type: 'text/plain', body: Buffer.from('answer') };
      const sell = (
        id: string,
        keep: ResponseKeeper['keep'],
        work: (sale: Sale) => Promise<unknown>,
      ) =>
        sales.sell(
          {
            ...requestOf(id, { ...WALLET, isBatch: true }, 5_000, CENT),
            keeper: { keep, kept: () => undefined },
          },
          work,
        );
      const answer = (sale: Sale) =>
        sale.answer({ costNano: CENT, status: 'completed' }, () => sold);
      const spent = async () => {
        const { usdNano } = await ledger.balances(WALLET.accountId);
        return (usdToNano('1') - usdNano) / CENT;
      };
      const deliver: ResponseKeeper['keep'] = async (tx) => {
        await claimOnce(tx, 'delivered', 0);
      };
      const isDelivered = async () =>
        !(await store.transaction((tx) => claimOnce(tx, 'delivered', 0)));

      const refuse = () => Promise.reject(new Fault('REQUEST_IN_PROGRESS'));
      await assert.rejects(sell('refused', refuse, answer), Fault);
      await sell('left', deliver, (sale) => sale.settle({ costNano: CENT, status: 'aborted' }));
      assert.equal(await spent(), 0n);
      const transaction = store.transaction.bind(store);
      const awayAnswer = (sale: Sale) => {
        const away = t.mock.method(store, 'transaction', () => {
          away.mock.restore();
          return Promise.reject(new StoreUnavailable('away'));
        });
        return answer(sale);
      };
      await assert.rejects(sell('away', deliver, awayAnswer), StoreUnavailable);
      assert.deepEqual([await spent(), ledger.holds.journaled], [0n, 0]);
      const lostAnswer = (sale: Sale) => {
        const lost = t.mock.method(store, 'transaction', async (body: never) => {
          lost.mock.restore();
          await transaction(body);
          throw new StoreUnavailable('The reply was lost');
        });
        return answer(sale);
      };
      await assert.rejects(sell('lost', deliver, lostAnswer), StoreUnavailable);
      assert.deepEqual([await spent(), await isDelivered()], [1n, true]);
      assert.equal((await ledger.openHolds()).count, 0);
      assert.equal((await ledger.audit()).ok, true);
    });

    test('a request authenticated only by a payment holds at most the signed amount', async () => {
      const { ledger, sales, credit } = await open();
      await credit('old', usdToNano('30'));
      let paid = 0;
      const take = () => credit(`paid ${(paid += 1)}`, usdToNano('1'));
      const payer = paying('1', take, '1');
      const price = (minNano: Nano, maxNano: Nano) => ({ price: { minNano, maxNano } });
      const expensive = {
        ...requestOf('a', payer, 10),
        ...price(usdToNano('18.01'), usdToNano('18.01')),
      };
      await assert.rejects(
        sales.sell(expensive, () => assert.fail('nothing is sold')),
        (error) => error instanceof Fault && error.code === 'PAYMENT_REQUIRED',
      );
      assert.equal((await ledger.balances(WALLET.accountId)).usdNano, usdToNano('30'));
      const long = { ...requestOf('b', payer, 10), ...price(CENT, usdToNano('18.01')) };
      const named = { ...long, price: { ...long.price, maxIsNamed: true } };
      const granted = await sales.sell(named, async (sale) => {
        await assert.rejects(sale.rejectExpensive(usdToNano('1.01')), Fault);
        return sale.hold.grantedNano;
      });
      assert.equal(granted, usdToNano('1'));
      // A sign-in in the same request spends the credit of the wallet.
      const owner = paying('1', take);
      const sold = await sales.sell({ ...named, requestId: 'c', caller: owner }, async (sale) =>
        sale.settle({ costNano: usdToNano('18.01'), status: 'completed' }),
      );
      assert.equal(sold?.usdNano, usdToNano('18.01'));
      assert.equal((await ledger.audit()).ok, true);
    });

    if (dialect === 'postgres') {
      test('a settle with an idempotency key waits for the database, and charges nothing if it stays unreachable', async (t) => {
        const { store, ledger, sales, credit, clock } = await open();
        await credit('first', usdToNano('1'));
        const spent = async () => {
          const { usdNano } = await ledger.balances(WALLET.accountId);
          return (usdToNano('1') - usdNano) / CENT;
        };
        let kept = 0;
        const keeper: ResponseKeeper = {
          keep: async (tx) => {
            await claimOnce(tx, 'kept', 0);
          },
          kept: () => (kept += 1),
          charged: { fence: { caller: 'c', key: 'k', token: 't' }, spend: () => assert.fail() },
        };
        const sell = (id: string, fails: Partial<typeof tries>) =>
          sales.sell({ ...requestOf(id, WALLET, 0, CENT), keeper }, (sale) => {
            Object.assign(tries, fails);
            return sale.answer({ costNano: CENT, status: 'completed' }, () => {
              return { type: 'text/plain', body: id };
            });
          });
        const transaction = store.transaction.bind(store);
        const tries = { away: 0, lost: 0 };
        t.mock.method(store, 'transaction', async (body: never) => {
          if (tries.away > 0) {
            tries.away -= 1;
            throw new StoreUnavailable('away');
          }
          const value = await transaction(body);
          if (tries.lost === 0) return value;
          tries.lost -= 1;
          throw new StoreUnavailable('The reply was lost');
        });
        const ended = async (selling: Promise<unknown>) => {
          let isOver = false;
          const over = (): void => void (isOver = true);
          selling.then(over, over);
          while (!isOver) {
            // Database work needs real time.
            await setTimeout(1);
            clock.advance(50);
          }
          return selling;
        };
        await ended(sell('back', { away: 3 }));
        assert.deepEqual([await spent(), kept], [1n, 1]);
        await ended(sell('lost', { lost: 1 }));
        assert.deepEqual([await spent(), kept], [2n, 2]);
        await assert.rejects(ended(sell('gone', { away: Infinity })), StoreUnavailable);
        tries.away = 0;
        assert.deepEqual([await spent(), kept, (await ledger.openHolds()).count], [2n, 2, 0]);
        assert.equal((await ledger.audit()).ok, true);
      });
    }

    test('a rejected payment returns the reserved tokens of its request', async () => {
      const { sales, tokensLeft } = await open();
      const refused = paying('1', () => Promise.reject(new Fault('SETTLEMENT_FAILED')));
      const work = () => assert.fail('nothing is sold');
      await assert.rejects(
        sales.sell(requestOf('a', refused, 400, CENT), work),
        (error) => error instanceof Fault && error.code === 'SETTLEMENT_FAILED',
      );
      const small = paying('0.001', () => assert.fail('too small to be taken'));
      await assert.rejects(
        sales.sell(requestOf('b', small, 400, CENT), work),
        (error) => error instanceof Fault && error.code === 'PAYMENT_REQUIRED',
      );
      assert.equal(await tokensLeft(), 1_000);
    });
  });
}

/** A wallet that pays; without a limit it has signed in too. */
function paying(usd: string, take: (wanted: Nano) => Promise<void>, limit?: string): Caller {
  const limitNano = limit === undefined ? undefined : usdToNano(limit);
  return { ...WALLET, payment: { amountNano: usdToNano(usd), limitNano, take } };
}

function requestOf(
  requestId: string,
  caller: Caller,
  tokensEstimate: number,
  maxNano: Nano = ZERO,
): SaleRequest {
  return {
    requestId,
    caller,
    kind: 'chat',
    modelId: 'm',
    rate: RATE,
    tokensEstimate,
    price: { minNano: maxNano, maxNano },
    priceVersion: 'v1',
  };
}
