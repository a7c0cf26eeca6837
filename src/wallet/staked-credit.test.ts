/** The day's allocation of a staking wallet, on a real ledger. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { type Nano, usdToNano } from '../core/money.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { LEDGER_MIGRATIONS, Ledger } from '../billing/ledger/ledger.ts';
import { StakedCredit } from './staked-credit.ts';

onEachStore('staked credit', (fixture) => {
  test('stake that was read yesterday gives nothing today, when today cannot be read', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new Ledger({ store, clock, ids: systemIds(), log: silentLog });
    await ledger.start();
    let known: Nano | undefined = usdToNano('2.5');
    const opened: string[] = [];
    const identity = { openWalletAccount: async (wallet: string) => (opened.push(wallet), wallet) };
    const staked = new StakedCredit({ ledger, identity }, async () =>
      known === undefined ? undefined : { day: dayOf(clock.nowMs()), credit: known },
    );
    const credit = async (): Promise<bigint> => {
      await staked.refresh('0xa', 'wallet:0xa');
      return (await ledger.balances('wallet:0xa')).diemNano;
    };
    assert.equal(await credit(), usdToNano('2.5'));
    known = undefined;
    assert.equal(await credit(), usdToNano('2.5'), 'the same day');
    clock.advance(DAY_MS);
    assert.equal(await credit(), 0n);
    known = usdToNano('2.5');
    assert.equal(await credit(), usdToNano('2.5'), 'the same stake is written for each day');
    known = usdToNano('0');
    assert.equal(await credit(), 0n);
    assert.deepEqual(new Set(opened), new Set(['0xa']), 'a wallet with daily credit is an account');
  });
});
