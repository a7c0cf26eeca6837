/** A ledger on a new database, with 100 USD on account `a`, and helpers for its requests. */
import assert from 'node:assert/strict';
import {
  type CapPeriod,
  type CapSettings,
  LEDGER_MIGRATIONS,
} from '../../src/billing/ledger/ledger.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { usdToNano } from '../../src/core/money.ts';
import type { StoreFixture } from '../databases/stores.ts';
import { TestClock } from './test-clock.ts';
import { TestLedger, bill } from './test-ledger.ts';

export async function ledgerBench(fixture: StoreFixture) {
  const store = await fixture.open(LEDGER_MIGRATIONS);
  const clock = new TestClock();
  const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
  await ledger.start();
  const credit = (id: string, usd: string) =>
    store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId: 'a',
        amountNano: usdToNano(usd),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id,
      }),
    );
  await credit('credit', '100');
  let requests = 0;
  /** Holds exactly the amount, under the given caps. */
  const hold = async (usd: string, ...capIds: readonly string[]) => {
    requests += 1;
    const requestId = `r${requests}`;
    const amountNano = usdToNano(usd);
    const answer = await ledger.hold({
      requestId,
      accountId: 'a',
      minNano: amountNano,
      maxNano: amountNano,
      floorNano: usdToNano('0'),
      capIds: capIds.length === 0 ? undefined : capIds,
    });
    return { requestId, answer };
  };
  const billed = (requestId: string, usd: string) => bill(clock, requestId, usdToNano(usd));
  const settle = (requestId: string, usd: string) => ledger.settle(billed(requestId, usd));
  const spend = async (usd: string, ...capIds: readonly string[]) => {
    const { requestId } = await hold(usd, ...capIds);
    await settle(requestId, usd);
  };
  /** Sets the cap of key `k` or another key; without an amount removes it. */
  const cap = (
    usd: string | undefined,
    period: CapPeriod = 'EPOCH',
    { id = 'k', ...of }: Pick<Partial<CapSettings>, 'id' | 'counts' | 'budgetId'> = {},
  ) =>
    store.transaction((tx) =>
      ledger.setCap(tx, {
        id,
        accountId: 'a',
        period,
        usdLimitNano: usd === undefined ? undefined : usdToNano(usd),
        diemLimitNano: undefined,
        ...of,
      }),
    );
  const audit = async () => assert.deepEqual((await ledger.audit()).differences, []);
  return { store, clock, ledger, credit, hold, billed, settle, spend, cap, audit };
}
