import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { DAY_MS } from '../../core/clock.ts';
import { nano, usdToNano } from '../../core/money.ts';
import type { CountedCharges } from './caps.ts';
import type { CapPeriod } from './ledger.ts';

const SATURDAY = 6;

async function bench(fixture: StoreFixture) {
  const b = await ledgerBench(fixture);
  const { hold } = b;
  const cap = (
    id: string,
    usd: string,
    period?: CapPeriod,
    counts: CountedCharges = {},
    budgetId = id,
  ) => b.cap(usd, period, { id, counts, budgetId });
  const keyCap = b.cap;
  return { ...b, hold, cap, keyCap };
}

onEachStore('budgets', (fixture) => {
  test('a request counts once against the cap of its key and against each budget', async () => {
    const { hold, settle, cap, keyCap, audit, ledger } = await bench(fixture);
    await keyCap('50');
    await cap('day', '1');
    await cap('week', '2', 'WEEK');
    const both = ['day', 'week'];
    const first = await hold('0.6', 'k', ...both);
    assert.ok(first.answer.ok);
    const beside = await hold('0.6', 'k', ...both);
    assert.equal(beside.answer.ok, false);
    assert.equal(!beside.answer.ok && beside.answer.reason, 'held');
    await settle(first.requestId, '0.5');
    const second = await hold('0.5', 'k', ...both);
    assert.ok(second.answer.ok);
    await settle(second.requestId, '0.5');
    const refused = await hold('0.1', 'k', ...both);
    assert.ok(!refused.answer.ok && refused.answer.reason === 'cap-usd');
    assert.equal(refused.answer.budgetId, 'day');
    assert.equal(refused.answer.spentNano, usdToNano('1'));
    await audit();
    await ledger.stop();
  });

  test('a daily budget restarts at midnight UTC, and a weekly one on Monday', async () => {
    const { hold, settle, cap, clock, audit, ledger } = await bench(fixture);
    await cap('day', '1');
    await cap('week', '1.5', 'WEEK');
    const spend = async (usd: string) => {
      const { requestId, answer } = await hold(usd, 'day', 'week');
      if (answer.ok) await settle(requestId, usd);
      return answer.ok ? 'ok' : 'budgetId' in answer ? answer.budgetId : answer.reason;
    };
    assert.equal(new Date(clock.nowMs()).getUTCDay(), SATURDAY);
    assert.equal(await spend('1'), 'ok');
    assert.equal(await spend('1'), 'day');
    clock.advance(DAY_MS);
    assert.equal(await spend('1'), 'week');
    assert.equal(await spend('0.5'), 'ok');
    clock.advance(DAY_MS);
    assert.equal(await spend('1'), 'ok');
    await audit();
    await ledger.stop();
  });

  test('a new budget includes earlier spending of its keys and tags', async () => {
    const { hold, cap, billed, ledger, settle } = await bench(fixture);
    const tagged = async (user: string) => {
      const { requestId } = await hold('1');
      const { usage, ...of } = billed(requestId, '1');
      await ledger.settle({ ...of, usage: { ...usage, keyId: 'child', metadata: { user } } });
    };
    await tagged('anna');
    await tagged('bert');
    const plain = await hold('1');
    await settle(plain.requestId, '1');
    await cap('anna', '1.5', 'EPOCH', { tag: { name: 'user', value: 'anna' } });
    await cap('family', '2.5', 'EPOCH', { keyIds: ['parent', 'child'] });
    await cap('all', '3.5');
    for (const id of ['anna', 'family', 'all']) {
      const { answer } = await hold('0.6', id);
      assert.ok(!answer.ok && answer.reason === 'cap-usd', id);
      const fits = await hold('0.5', id);
      assert.ok(fits.answer.ok, id);
      await settle(fits.requestId, '0');
    }
    await ledger.stop();
  });

  test('a budget for N requests serves exactly N concurrent ones', async () => {
    const { hold, settle, cap, audit, ledger } = await bench(fixture);
    await cap('b', '1');
    const answers = await Promise.all(Array.from({ length: 60 }, () => hold('0.1', 'b')));
    const granted = answers.filter(({ answer }) => answer.ok);
    assert.equal(granted.length, 10);
    await Promise.all(granted.map(({ requestId }) => settle(requestId, '0.1')));
    const { answer } = await hold('0.1', 'b');
    assert.ok(!answer.ok && answer.reason === 'cap-usd');
    assert.equal(answer.limitNano, nano(usdToNano('1')));
    await audit();
    await ledger.stop();
  });

  test('`dropEndedBudgets` drops caps of ended periods; a new one includes earlier spending', async () => {
    const b = await bench(fixture);
    const counts = { tag: { name: 'user', value: 'anna' } };
    const anna = () => b.cap('budget_d:anna', '1', 'EPOCH', counts, 'budget_d');
    await anna();
    await b.cap('budget_w:anna', '1', 'WEEK', counts, 'budget_w');
    await b.cap('budget_l:anna', '1', 'LIFETIME', counts, 'budget_l');
    await b.keyCap('1');
    const ids = async () => {
      const rows = await b.store.query('SELECT id FROM ledger_allowance ORDER BY id');
      return rows.map(({ id }) => id);
    };
    const all = ['budget_d:anna', 'budget_l:anna', 'budget_w:anna', 'k'];
    const held = await b.ledger.hold({
      requestId: 'job',
      accountId: 'a',
      minNano: usdToNano('0.5'),
      maxNano: usdToNano('0.5'),
      floorNano: usdToNano('0'),
      capIds: ['budget_w:anna'],
      lifetime: 'durable',
    });
    assert.ok(held.ok);
    // One hour before the end of the day for which it is kept.
    b.clock.advance(2 * DAY_MS - (b.clock.nowMs() % DAY_MS) - 1);
    await b.ledger.dropEndedBudgets();
    assert.deepEqual(await ids(), all);
    b.clock.advance(1);
    // The request confirms the cap, which starts its period.
    await anna();
    await b.ledger.dropEndedBudgets();
    assert.deepEqual(await ids(), all);
    b.clock.advance(14 * DAY_MS);
    await b.ledger.dropEndedBudgets();
    assert.deepEqual(await ids(), all.slice(1), 'what is held of stays');
    const { usage, ...of } = b.billed('job', '0.25');
    await b.store.transaction((tx) => b.ledger.settleIn(tx, { ...of, usage }));
    await b.ledger.dropEndedBudgets();
    assert.deepEqual(await ids(), all.slice(1), 'its settle is of the week that runs');
    b.clock.advance(14 * DAY_MS);
    await b.ledger.dropEndedBudgets();
    assert.deepEqual(await ids(), ['budget_l:anna', 'k']);
    const { requestId } = await b.hold('0.75');
    const tagged = b.billed(requestId, '0.75');
    await b.ledger.settle({ ...tagged, usage: { ...tagged.usage, metadata: { user: 'anna' } } });
    await anna();
    assert.equal((await b.hold('0.5', 'budget_d:anna')).answer.ok, false);
    assert.equal((await b.hold('0.25', 'budget_d:anna')).answer.ok, true);
    await b.audit();
    await b.ledger.stop();
  });

  test('`dropEndedBudgets` drops all ended caps, however many there are', async () => {
    const b = await bench(fixture);
    const ids = JSON.stringify(Array.from({ length: 1_001 }, (_, at) => `budget_d:${at}`));
    await b.store.query(
      `INSERT INTO ledger_allowance (account_id, budget_id, period, period_start_ms, usd_spent_nano,
         usd_held_nano, diem_spent_nano, diem_held_nano, id)
       SELECT 'a', 'budget_d', 'EPOCH', 0, 1, 0, 0, 0, json_array_elements_text($1::json)`,
      [ids],
    );
    await b.ledger.dropEndedBudgets();
    const left = await b.store.query(
      "SELECT id FROM ledger_allowance WHERE budget_id = 'budget_d'",
    );
    assert.equal(left.length, 0);
    await b.ledger.stop();
  });
});
