/** Card payments through a whole server, against the double of Stripe. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';
import { call } from '../../test/app/call.ts';
import { type TestApp, startTestApp } from '../../test/app/test-app.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { type StoreFixture, onEachStore } from '../../test/databases/stores.ts';
import { untilBlocked } from '../../test/databases/waits.ts';
import { type Session, type StripeEvent, StripeDouble } from '../../test/support/stripe-double.ts';
import { until } from '../../test/support/until.ts';
import { transactionsOf } from '../billing/ledger/ledger.ts';
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { oneAtATime } from '../db/db.ts';
import { type CardPayments } from '../payments/cards/cards.ts';
import { openCardPayments } from '../server/checkout.ts';

/** Card payments of another process on the same database, such as a command. */
async function cardsBeside(
  { app, config }: TestApp,
  clock: Clock = systemClock(),
): Promise<CardPayments> {
  const parts = { config, stores: app.stores, clock, ids: systemIds() };
  const cards = await openCardPayments({ ...parts, log: silentLog });
  assert.ok(cards !== undefined);
  cards.start(false);
  return cards;
}

/** Reads the events of Stripe, as the server does each minute. */
async function reconcile(farebox: TestApp, paymentId: string): Promise<void> {
  const cards = await cardsBeside(farebox);
  await cards.reconcile();
  await cards.check(paymentId);
  await cards.stop();
}

onEachStore('card payments', cardPayments);

function cardPayments(fixture: StoreFixture): void {
  let stripe: StripeDouble;
  let farebox: TestApp;
  let accountId: string;
  let secret: string;
  let waiting: StripeEvent[];

  before(async () => {
    stripe = await StripeDouble.start();
    // A SQLite file of the fixture would be removed before the audit at the end.
    const own = fixture.dialect === 'sqlite' ? {} : { databaseUrl: await fixture.freshUrl() };
    farebox = await startTestApp({ ...own, yaml: `payments: { ${stripe.yaml()} }` });
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await stripe.stop();
  });
  beforeEach(async () => {
    ({ accountId, secret } = await farebox.account('1'));
    waiting = [];
    stripe.onEvent = (event) => waiting.push(event);
    stripe.fate = () => 'pass';
  });

  async function spend(usd: number): Promise<void> {
    const { ledger, store } = farebox.app.stores;
    await store.transaction((tx) =>
      ledger.debitIn(tx, {
        accountId,
        amountNano: usdToNano(usd),
        to: 'house:operator-credit',
        kind: 'CREDIT',
        id: `spend-${accountId}`,
      }),
    );
  }

  async function start(amountUsd: number, more: object = {}) {
    const body = { amountUsd, ...more };
    return await call(farebox, '/billing/checkout', { secret, body });
  }

  /** Starts and pays a checkout; returns its id and its payment at Stripe. */
  async function paid(amountUsd: number) {
    const { body } = await start(amountUsd);
    const session = stripe.sessionOf(body.id);
    assert.ok(session !== undefined);
    assert.equal(body.url, session.url);
    return { id: String(body.id), intent: stripe.pay(session.id) };
  }

  async function deliverAll(): Promise<void> {
    for (const event of waiting.splice(0)) {
      assert.equal(await stripe.deliver(event, farebox.url), 200);
    }
  }

  async function balance(): Promise<number> {
    const { body } = await call(farebox, '/billing/balance', { secret });
    return body.balances.usd;
  }

  async function balanceBecomes(usd: number): Promise<void> {
    await until(async () => (await balance()) === usd, `a balance of ${usd} USD`);
  }

  /** Waits until the worker has nothing to do. */
  async function settled(): Promise<void> {
    await until(async () => {
      const rows = await farebox.app.stores.store.query<{ n: bigint }>(
        `SELECT count(*) AS n FROM payments_card WHERE due_ms > 0 AND due_ms <= $1`,
        [Date.now()],
      );
      return rows[0]?.n === 0n;
    }, 'no due payment');
  }

  async function state(id: string) {
    return (await call(farebox, `/billing/checkout/${id}`, { secret })).body;
  }

  async function debtOf(): Promise<bigint> {
    return (await farebox.app.stores.ledger.funds(accountId)).debtNano;
  }

  test('a paid checkout is credited once, in any order and number of its events', async () => {
    const { id } = await paid(25);
    const events = waiting.splice(0).toReversed();
    assert.equal(events.length, 2);
    for (const event of [...events, ...events, ...events]) {
      assert.equal(await stripe.deliver(event, farebox.url), 200);
    }
    await balanceBecomes(26);
    await settled();
    assert.equal(await balance(), 26);
    const { status, creditedUsd, receiptUrl } = await state(id);
    assert.deepEqual([status, creditedUsd], ['paid', 25]);
    assert.match(receiptUrl, /^https:\/\/pay\.stripe\.com\/receipts\/pi_/);
  });

  test('the statement links the receipt, as JSON and as CSV', async () => {
    const { id } = await paid(25);
    await deliverAll();
    await balanceBecomes(26);
    const admin = await farebox.key({ accountId, kind: 'ADMIN' });
    const { body } = await call(farebox, '/billing/statement', { secret: admin });
    const entry = body.data.find((one: { id: string }) => one.id === id);
    assert.match(entry.receiptUrl, /^https:\/\/pay\.stripe\.com\/receipts\//);
    const csv = await call(farebox, '/billing/statement?format=csv', { secret: admin });
    assert.equal(csv.headers.get('content-type'), 'text/csv; charset=utf-8');
    const [head, ...lines] = csv.text.trim().split('\r\n');
    assert.match(head ?? '', /^date,type,usd,diem,balance_after_usd,/);
    const line = lines.find((one) => one.includes(id))?.split(',') ?? [];
    assert.deepEqual(line.slice(1, 5), ['TOP_UP', '25.000000000', '0.000000000', '26.000000000']);
    assert.equal(line.at(-1), entry.receiptUrl);
  });

  test('concurrent deliveries of all events credit once', async () => {
    await paid(10);
    const events = waiting.splice(0);
    const all = [...events, ...events, ...events].map((one) => stripe.deliver(one, farebox.url));
    assert.deepEqual(new Set(await Promise.all(all)), new Set([200]));
    await balanceBecomes(11);
    await settled();
    assert.equal(await balance(), 11);
  });

  test('a payment without any webhook is credited by the reconciliation', async () => {
    const { id, intent } = await paid(7.5);
    await farebox.app.stores.store.query('UPDATE payments_card SET due_ms = 1 WHERE id = $1', [id]);
    await balanceBecomes(8.5);
    stripe.refundByHand(intent, 250);
    await reconcile(farebox, id);
    await balanceBecomes(6);
  });

  /** Opens a page, and loses the response that contains its URL. */
  async function lostPage(): Promise<Session> {
    stripe.fate = (request) => (request === 'POST /v1/checkout/sessions' ? 'lose-reply' : 'pass');
    const lost = await start(5);
    assert.equal(lost.status, 503);
    assert.equal(lost.body.code, 'PAYMENT_PROVIDER_UNAVAILABLE');
    stripe.fate = () => 'pass';
    const [session] = [...stripe.sessions.values()].slice(-1);
    assert.ok(session !== undefined);
    return session;
  }

  test('a page whose URL was lost is found again, and its payment is credited', async () => {
    const session = await lostPage();
    stripe.pay(session.id);
    waiting.length = 0;
    await farebox.app.stores.store.query(
      "UPDATE payments_card SET due_ms = 1 WHERE state = 'open'",
    );
    await balanceBecomes(6);
  });

  test('a page whose URL was lost while the clock was wrong is found by its event', async () => {
    const session = await lostPage();
    // A search by the time of the row does not find it.
    session.created += HOUR_MS / SECOND_MS;
    stripe.pay(session.id);
    await deliverAll();
    await balanceBecomes(6);
  });

  test('events without a valid signature change nothing', async () => {
    await paid(5);
    const [event] = waiting;
    assert.ok(event !== undefined);
    assert.equal(await stripe.deliver(event, farebox.url, { secret: 'whsec_other' }), 400);
    const old = Math.floor(Date.now() / 1_000) - 3_600;
    assert.equal(await stripe.deliver(event, farebox.url, { timestamp: old }), 400);
    const bare = await call(farebox, '/payments/stripe', { body: event });
    assert.equal(bare.status, 400);
    assert.ok(!bare.text.includes(event.id), 'the error does not repeat the payload');
    await settled();
    assert.equal(await balance(), 1);
  });

  test('an event of another payment on the same Stripe account is accepted and ignored', async () => {
    const foreign = {
      id: 'evt_foreign',
      object: 'event',
      created: Math.floor(Date.now() / 1_000),
      type: 'payment_intent.succeeded',
      data: { object: { id: 'pi_foreign', object: 'payment_intent', metadata: {} } },
    };
    assert.equal(await stripe.deliver(foreign, farebox.url), 200);
    const rows = await farebox.app.stores.store.query(
      `SELECT id FROM payments_card_event WHERE id = 'evt_foreign'`,
    );
    assert.deepEqual(rows, []);
  });

  test('a refund in the dashboard and a dispute reverse the credit down to zero; the rest is owed', async () => {
    const { intent } = await paid(20);
    await deliverAll();
    await balanceBecomes(21);
    stripe.refundByHand(intent, 500);
    await deliverAll();
    await balanceBecomes(16);
    // The account has spent all but 3 USD.
    await spend(13);
    const dispute = stripe.dispute(intent, 1_500);
    await deliverAll();
    await balanceBecomes(0);
    assert.equal(await debtOf(), usdToNano(12));
    stripe.closeDispute(dispute, true);
    await deliverAll();
    await until(async () => (await debtOf()) === 0n, 'the debt is paid');
    assert.equal(await balance(), 3);
  });

  /** A refund by the operator. */
  async function refundTo(account: string, body: object) {
    const { owner } = farebox;
    const secret = await farebox.key({ accountId: owner.accountId, kind: 'ADMIN' });
    return await call(farebox, `/admin/accounts/${account}/card-refund`, { secret, body });
  }

  test('the operator pays unused credit back once for each reference, and not more', async () => {
    const { intent } = await paid(20);
    await deliverAll();
    await balanceBecomes(21);
    const before = stripe.refunds.length;
    const wanted = { amountUsd: '4.50', reference: `ticket-${accountId}` };
    // The response of Stripe is lost, as after a kill between the debit and the response.
    stripe.fate = (request) => (request === 'POST /v1/refunds' ? 'lose-reply' : 'pass');
    const lost = await refundTo(accountId, wanted);
    assert.deepEqual([lost.status, lost.body.data?.refunds[0].state], [200, 'open'], lost.text);
    assert.equal(await balance(), 16.5);
    stripe.fate = () => 'pass';
    const [again, beside] = await Promise.all([1, 2].map(() => refundTo(accountId, wanted)));
    for (const repeated of [again, beside]) assert.equal(repeated?.body.data.isRepeat, true);
    await until(
      async () => (await refundTo(accountId, wanted)).body.data.refunds[0].state === 'paid',
      'the refund is paid',
      250,
    );
    await deliverAll();
    await settled();
    assert.equal(stripe.refunds.length, before + 1, 'Stripe has one refund');
    assert.equal(await balance(), 16.5, 'the webhook of the refund takes nothing more');
    const stranger = await farebox.account('1');
    for (const reused of [
      await refundTo(stranger.accountId, wanted),
      await refundTo(accountId, { ...wanted, amountUsd: '4.51' }),
    ]) {
      assert.deepEqual([reused.status, reused.body.code], [409, 'REFERENCE_REUSED'], reused.text);
      assert.match(reused.body.error, /belongs to a refund of 4\.5000 USD on the account acct_/);
    }
    const all = await refundTo(accountId, { ...wanted, amountUsd: 'all' });
    assert.deepEqual([all.status, all.body.data.isRepeat], [200, true], all.text);
    assert.equal(stripe.refunds.length, before + 1, 'a repeated reference pays nothing');

    const reference = `rest-${accountId}`;
    const more = await refundTo(accountId, { amountUsd: '15.51', reference });
    assert.deepEqual([more.status, more.body.code], [402, 'INSUFFICIENT_BALANCE'], more.text);
    assert.equal(await balance(), 16.5);
    await spend(13);
    const spent = { amountUsd: '15.50', reference };
    assert.equal((await refundTo(accountId, spent)).status, 402, 'it is spent');
    const forced = await refundTo(accountId, { ...spent, allowDebt: true });
    assert.deepEqual([forced.status, forced.body.data?.refunds[0].state], [200, 'paid']);
    assert.deepEqual([await balance(), await debtOf()], [0, usdToNano(12)]);
    await deliverAll();
    await settled();
    assert.deepEqual([await balance(), await debtOf()], [0, usdToNano(12)]);
    assert.ok(intent);
    const nobody = await refundTo('acct_none', { amountUsd: 'all', reference: 'x' });
    assert.equal(nobody.status, 404);
  });

  test('a payment is paid back although many unpaid pages are newer', async () => {
    await paid(20);
    await deliverAll();
    await balanceBecomes(21);
    for (let at = 0; at < 100; at += 1) {
      await farebox.app.stores.store.query(
        `INSERT INTO payments_card (id, provider, kind, account_id, state, amount_nano, saves_card,
           due_ms, created_ms, updated_ms)
         VALUES ($1, 'stripe', 'checkout', $2, 'expired', 5, 0, 0, $3, $3)`,
        [`pay_${accountId}_${at}`, accountId, Date.now() + HOUR_MS],
      );
    }
    const wanted = { amountUsd: 'all', reference: `all-${accountId}` };
    const { status, body, text } = await refundTo(accountId, wanted);
    assert.deepEqual([status, body.data?.refunds[0].amountUsd], [200, '20.0000'], text);
  });

  /** The fee of a payment in the ledger, in cents. */
  async function postedFee(id: string): Promise<number> {
    const rows = await farebox.app.stores.store.query<{ debit_account: string; amount: bigint }>(
      `SELECT debit_account, amount_nano AS amount FROM ledger_transfer
       WHERE note = $1 AND kind = 'FEE' AND account_id = 'house:card-fees:stripe'`,
      [id],
    );
    const nano = rows.reduce(
      (sum, row) =>
        row.debit_account === 'house:fees-paid:stripe' ? sum - row.amount : sum + row.amount,
      0n,
    );
    return Number(nano / 10_000_000n);
  }

  test('fees of Stripe are postings of their own, and never change the credit', async () => {
    const { ledger, store } = farebox.app.stores;
    const { id, intent } = await paid(20);
    const feeBecomes = async (cents: number) => {
      await deliverAll();
      await until(async () => (await postedFee(id)) === cents, `a fee of ${cents} cents`, 100);
      assert.equal(stripe.fees().get(id), cents);
    };
    await feeBecomes(88);
    await balanceBecomes(21);
    const dispute = stripe.dispute(intent);
    await feeBecomes(1_588);
    await balanceBecomes(1);
    stripe.closeDispute(dispute, true);
    await feeBecomes(88);
    await balanceBecomes(21);
    const [cost, kept] = [
      await ledger.receivedFrom('house:card-fees:stripe'),
      await ledger.receivedFrom('house:fees-paid:stripe'),
    ];
    assert.equal(kept + cost, 0n);
    const own = await transactionsOf(store, accountId, { limit: 20, offset: 0 });
    assert.deepEqual(
      own.map(({ kind }) => kind),
      ['TOP_UP', 'REVERSAL', 'TOP_UP', 'CREDIT'],
    );
  });

  test('a fee that Stripe adds later is posted later, and one in another currency is not', async () => {
    const { id, intent } = await paid(20);
    const charge = intent.latest_charge;
    assert.ok(charge !== null);
    const balance = charge['balance_transaction'];
    charge['balance_transaction'] = null;
    await deliverAll();
    await balanceBecomes(21);
    assert.equal(await postedFee(id), 0);
    charge['balance_transaction'] = balance;
    await reconcile(farebox, id);
    assert.equal(await postedFee(id), 88);
    stripe.balanceCurrency = 'eur';
    const other = await paid(20);
    stripe.balanceCurrency = 'usd';
    await deliverAll();
    await balanceBecomes(41);
    assert.equal(await postedFee(other.id), 0);
  });

  test('a key that may not read the balance credits and refunds without the fees', async () => {
    stripe.canReadBalance = false;
    try {
      const { id, intent } = await paid(20);
      await deliverAll();
      await balanceBecomes(21);
      stripe.refundByHand(intent, 500);
      await deliverAll();
      await balanceBecomes(16);
      assert.equal(await postedFee(id), 0);
    } finally {
      stripe.canReadBalance = true;
    }
  });

  test('an inquiry takes nothing, and a lost dispute takes the credit once', async () => {
    const { intent } = await paid(20);
    await deliverAll();
    await balanceBecomes(21);
    const inquiry = stripe.dispute(intent, 2_000, 'warning_needs_response');
    await deliverAll();
    await settled();
    assert.equal(await balance(), 21);
    stripe.closeDispute(inquiry, false);
    await deliverAll();
    await balanceBecomes(1);
    stripe.closeDispute(inquiry, false);
    await deliverAll();
    await settled();
    assert.equal(await balance(), 1);
  });

  test('a bank debit is credited when the bank has decided, and a failed one is not', async () => {
    const first = await start(10);
    const one = stripe.pay(stripe.sessionOf(first.body.id)?.id ?? '', { isDelayed: true });
    await deliverAll();
    await until(async () => (await state(first.body.id)).status === 'processing', 'processing');
    assert.equal(await balance(), 1);
    stripe.decide(one, true);
    await deliverAll();
    await balanceBecomes(11);
    const second = await start(10);
    const two = stripe.pay(stripe.sessionOf(second.body.id)?.id ?? '', { isDelayed: true });
    stripe.decide(two, false);
    await deliverAll();
    await until(async () => (await state(second.body.id)).status === 'failed', 'failed');
    assert.equal((await state(second.body.id)).failure, 'debit_not_authorized');
    assert.equal(await balance(), 11);
  });

  test('an expired page ends its row', async () => {
    const { body } = await start(10);
    stripe.expire(stripe.sessionOf(body.id)?.id ?? '');
    await deliverAll();
    await until(async () => (await state(body.id)).status === 'expired', 'expired');
  });

  /** Pays once and saves the card; the balance is 6 USD then. */
  async function payAndSaveCard(): Promise<void> {
    const { body } = await start(5, { saveCard: true });
    stripe.pay(stripe.sessionOf(body.id)?.id ?? '');
    await deliverAll();
  }

  async function withSavedCard(): Promise<string> {
    await payAndSaveCard();
    await balanceBecomes(6);
    return await farebox.key({ accountId, kind: 'ADMIN' });
  }

  const AUTO = '/billing/auto-top-up';

  async function setAutoTopUp(admin: string, settings: object) {
    return await call(farebox, AUTO, { method: 'PUT', secret: admin, body: settings });
  }

  test('null for an optional member is the same as no member', async () => {
    const admin = await withSavedCard();
    const set = await setAutoTopUp(admin, { keepUsd: 5, chargeUsd: null, monthlyUsd: 50 });
    assert.deepEqual([set.status, set.body.chargeUsd], [200, 5]);
    const started = await start(5, { saveCard: null, provider: null });
    assert.deepEqual([started.status, started.body.provider], [200, 'stripe'], started.text);
  });

  test('a saved card is charged when the balance is below the limit, up to the maximum of the month', async () => {
    const admin = await withSavedCard();
    const before = await call(farebox, AUTO, { secret: admin });
    assert.deepEqual([before.body.card, before.body.keepUsd], ['visa •••• 4242', null]);
    const set = await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 50 });
    assert.equal(set.status, 200);
    await balanceBecomes(26);
    assert.equal((await call(farebox, AUTO, { secret: admin })).body.chargedThisMonthUsd, 20);
    const cards = await cardsBeside(farebox);
    await cards.topUp();
    await settled();
    assert.equal(await balance(), 26, 'a balance above the limit is not charged');
    const { ledger, store } = farebox.app.stores;
    const spend = async (usd: number, id: string) =>
      store.transaction((tx) =>
        ledger.debitIn(tx, {
          accountId,
          amountNano: usdToNano(usd),
          to: 'house:operator-credit',
          kind: 'CREDIT',
          id: `${id}-${accountId}`,
        }),
      );
    await spend(20, 'first');
    await Promise.all([cards.topUp(), cards.topUp(), cards.topUp()]);
    await balanceBecomes(26);
    await spend(20, 'second');
    await cards.topUp();
    await cards.stop();
    await settled();
    assert.equal(await balance(), 6, 'a third charge would exceed the maximum');
    const last = await call(farebox, AUTO, { method: 'DELETE', secret: admin });
    assert.deepEqual([last.body.card, last.body.keepUsd], [null, null]);
    assert.equal(stripe.detached.length, 1);
    assert.equal((await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 50 })).status, 409);
  });

  test('a declined card is reported, not charged again at once, and its charge is cancelled', async () => {
    const admin = await withSavedCard();
    const { store } = farebox.app.stores;
    await store.query(
      `INSERT INTO webhooks_webhook (id, account_id, url, secret, is_low, times_low, created_ms)
       VALUES ($1, $2, 'https://hooks.example.com', 'whsec_AAAA', 0, 0, 1)`,
      [`wh_${accountId}`, accountId],
    );
    stripe.declines = 'insufficient_funds';
    try {
      await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 100 });
      const path = AUTO;
      await until(async () => {
        return (await call(farebox, path, { secret: admin })).body.problem === 'insufficient_funds';
      }, 'the decline');
    } finally {
      stripe.declines = undefined;
    }
    assert.equal(await balance(), 6);
    const [charge] = [...stripe.intents.values()].slice(-1);
    assert.equal(charge?.status, 'canceled');
    const told = await store.query<{ event: string; body: string }>(
      'SELECT event, body FROM webhooks_delivery WHERE account_id = $1',
      [accountId],
    );
    assert.deepEqual(
      told.map(({ event }) => event),
      ['auto_top_up.failed'],
    );
    const { data } = JSON.parse(told[0]?.body ?? '{}') as { data: Record<string, unknown> };
    assert.deepEqual([data['amountUsd'], data['reason']], [20, 'insufficient_funds']);
    const cards = await cardsBeside(farebox);
    await cards.topUp();
    await settled();
    assert.equal(await balance(), 6, 'the next charge waits');
    await store.query('UPDATE payments_card_owner SET next_try_ms = 0');
    await cards.topUp();
    await cards.stop();
    await balanceBecomes(26);
    assert.equal((await call(farebox, AUTO, { secret: admin })).body.problem, null);
  });

  test('a saved card whose payer is missing at Stripe is reported, and a new card is charged', async () => {
    const admin = await withSavedCard();
    const [intent] = [...stripe.intents.values()].slice(-1);
    stripe.missingCustomers.add(intent?.customer);
    await setAutoTopUp(admin, { keepUsd: 10, monthlyUsd: 100 });
    await until(async () => {
      const { problem } = (await call(farebox, AUTO, { secret: admin })).body;
      return String(problem).includes('No such customer');
    }, 'the problem');
    await payAndSaveCard();
    await balanceBecomes(11);
    await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 100 });
    await balanceBecomes(31);
  });

  test('a declined card is charged again after a clock that was days ahead was corrected', async () => {
    const admin = await withSavedCard();
    stripe.declines = 'insufficient_funds';
    try {
      await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 100 });
      await until(
        async () => (await call(farebox, AUTO, { secret: admin })).body.problem !== null,
        'the decline',
      );
    } finally {
      stripe.declines = undefined;
    }
    const pauseEnds = 'UPDATE payments_card_owner SET next_try_ms = $2 WHERE account_id = $1';
    await farebox.app.stores.store.query(pauseEnds, [accountId, Date.now() + 3 * DAY_MS]);
    const cards = await cardsBeside(farebox);
    await cards.topUp();
    await cards.stop();
    await balanceBecomes(26);
  });

  if (fixture.dialect === 'postgres') {
    test('a server whose clock is behind does not charge a card in its longest pause', async () => {
      const admin = await withSavedCard();
      await setAutoTopUp(admin, { keepUsd: 6, monthlyUsd: 100 });
      const pausing = `UPDATE payments_card_owner SET keep_nano = $2, next_try_ms = $3
        WHERE account_id = $1`;
      const nextTryMs = Date.now() + DAY_MS - MINUTE_MS;
      const pause = [accountId, usdToNano(20), nextTryMs];
      await farebox.app.stores.store.query(pausing, pause);
      const known = stripe.intents.size;
      const nowMs = (): number => Date.now() - 10 * MINUTE_MS;
      const behind = await cardsBeside(farebox, { ...systemClock(), nowMs });
      await behind.topUp();
      await behind.stop();
      assert.equal(stripe.intents.size, known);
    });
  }

  test('a dispute stops the charges', async () => {
    const admin = await withSavedCard();
    await setAutoTopUp(admin, { keepUsd: 10, monthlyUsd: 100 });
    await balanceBecomes(16);
    const [intent] = [...stripe.intents.values()].slice(-1);
    assert.ok(intent !== undefined);
    stripe.dispute(intent);
    await deliverAll();
    await balanceBecomes(6);
    const cards = await cardsBeside(farebox);
    await cards.topUp();
    await cards.stop();
    await settled();
    assert.equal(await balance(), 6);
    assert.equal((await call(farebox, AUTO, { secret: admin })).body.stopped, true);
  });

  test('a dispute of a payment that was refunded stops the charges', async () => {
    const admin = await withSavedCard();
    await setAutoTopUp(admin, { keepUsd: 10, monthlyUsd: 100 });
    await balanceBecomes(16);
    const [intent] = [...stripe.intents.values()].slice(-1);
    assert.ok(intent !== undefined);
    stripe.refundByHand(intent, intent.amount);
    await deliverAll();
    await balanceBecomes(6);
    stripe.dispute(intent);
    await deliverAll();
    await until(
      async () => (await call(farebox, AUTO, { secret: admin })).body.stopped === true,
      'the charges have stopped',
    );
  });

  test('the card of a disabled account is not charged until the account is enabled', async () => {
    const admin = await withSavedCard();
    await setAutoTopUp(admin, { keepUsd: 10, monthlyUsd: 100 });
    await balanceBecomes(16);
    const { identity, ledger } = farebox.app.stores;
    const account = await identity.findAccount(accountId);
    assert.ok(account !== undefined);
    await identity.updateAccount({ ...account, disabled: true });
    const cards = await cardsBeside(farebox);
    // The operator closes the account and pays its credit back.
    await cards.refund(accountId, usdToNano(15), usdToNano(15));
    assert.equal(await cards.savedCards.charge(), 0);
    assert.equal((await ledger.balances(accountId)).usdNano, usdToNano(1));
    await identity.updateAccount(account);
    await cards.topUp();
    await cards.stop();
    await balanceBecomes(11);
  });

  /** Stripe receives no request, so that a charge stays open. */
  async function withOpenCharge(admin: string): Promise<void> {
    stripe.fate = () => 'lose-request';
    await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 50 });
    await until(async () => {
      const { body } = await call(farebox, AUTO, { secret: admin });
      return body.chargedThisMonthUsd === 20;
    }, 'the open charge');
  }

  async function withdrawn(): Promise<void> {
    stripe.fate = () => 'pass';
    const { store } = farebox.app.stores;
    await store.query('UPDATE payments_card SET due_ms = 1 WHERE account_id = $1', [accountId]);
    await until(async () => {
      const rows = await store.query<{ state: string; failure: string }>(
        `SELECT state, failure FROM payments_card WHERE account_id = $1 AND kind = 'automatic'`,
        [accountId],
      );
      return rows[0]?.state === 'failed' && /withdrawn/.test(rows[0].failure);
    }, 'the end of the charge');
  }

  test('a charge that Stripe has not received is not made after the card was deleted', async () => {
    const admin = await withSavedCard();
    await withOpenCharge(admin);
    const deleted = await call(farebox, AUTO, { method: 'DELETE', secret: admin });
    assert.equal(deleted.body.card, null);
    const known = stripe.intents.size;
    await withdrawn();
    assert.equal(stripe.intents.size, known);
    assert.equal(await balance(), 6);
  });

  test('a charge that Stripe has not received is not made above a lowered maximum', async () => {
    const admin = await withSavedCard();
    await withOpenCharge(admin);
    await setAutoTopUp(admin, { keepUsd: 10, monthlyUsd: 10 });
    await withdrawn();
    // The next charge follows the settings.
    const cards = await cardsBeside(farebox);
    await cards.topUp();
    await cards.stop();
    await balanceBecomes(16);
    const { body } = await call(farebox, AUTO, { secret: admin });
    assert.deepEqual([body.problem, body.chargedThisMonthUsd], [null, 10]);
  });

  test('a charge whose response was lost is credited although the card was deleted', async () => {
    const admin = await withSavedCard();
    stripe.fate = (request) => (request === 'POST /v1/payment_intents' ? 'lose-reply' : 'pass');
    const known = stripe.intents.size;
    await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 50 });
    await until(() => stripe.intents.size === known + 1, 'the charge');
    await call(farebox, AUTO, { method: 'DELETE', secret: admin });
    stripe.fate = () => 'pass';
    await balanceBecomes(26);
    assert.equal(stripe.intents.size, known + 1);
  });

  test('automatic top-ups need a saved card, an ADMIN key and amounts in order', async () => {
    const admin = await farebox.key({ accountId, kind: 'ADMIN' });
    const settings = { keepUsd: 20, monthlyUsd: 50 };
    assert.equal((await setAutoTopUp(admin, settings)).body.code, 'NO_SAVED_CARD');
    assert.equal((await setAutoTopUp(secret, settings)).status, 401);
    const wrong = await setAutoTopUp(admin, { keepUsd: 20, monthlyUsd: 10 });
    assert.equal(wrong.status, 400);
    assert.equal((await call(farebox, AUTO, { method: 'DELETE', secret: admin })).status, 409);
  });

  test('a charge of a saved card has at least the minimum amount of a payment', async () => {
    const admin = await withSavedCard();
    const small = await setAutoTopUp(admin, { keepUsd: 6.5, chargeUsd: 0.5, monthlyUsd: 100 });
    assert.equal(small.status, 400);
    assert.match(small.text, /from 5.00 to 1000.00 USD/);
    const known = stripe.intents.size;
    const set = await setAutoTopUp(admin, { keepUsd: 4, chargeUsd: 5, monthlyUsd: 100 });
    assert.equal(set.status, 200);
    await settled();
    assert.equal(stripe.intents.size, known);
  });

  test('saved settings below a minimum amount that was raised later charge no card', async () => {
    const admin = await withSavedCard();
    await setAutoTopUp(admin, { keepUsd: 4, chargeUsd: 5, monthlyUsd: 100 });
    const known = stripe.intents.size;
    await farebox.app.stores.store.query(
      'UPDATE payments_card_owner SET keep_nano = $2, charge_nano = $3 WHERE account_id = $1',
      [accountId, usdToNano(6.5), usdToNano(0.5)],
    );
    const cards = await cardsBeside(farebox);
    await cards.topUp();
    await until(async () => {
      const { body } = await call(farebox, AUTO, { secret: admin });
      return /at least 5.00 USD/.test(String(body.problem));
    }, 'the reason');
    await cards.stop();
    assert.equal(stripe.intents.size, known);
  });

  test('amounts, accounts and the number of open pages are limited', async () => {
    for (const [amountUsd, message] of [
      [4.99, /from 5.00 to 1000.00 USD/],
      [1_000.01, /from 5.00 to 1000.00 USD/],
      [10.001, /at most 2 decimals/],
    ] as const) {
      const refused = await start(amountUsd);
      assert.equal(refused.status, 400);
      assert.match(refused.text, message);
    }
    const mine = await start(10);
    assert.equal(mine.status, 200);
    const other = await farebox.account('1');
    const path = `/billing/checkout/${mine.body.id}`;
    assert.equal((await call(farebox, path, { secret: other.secret })).status, 404);
    assert.equal((await call(farebox, path)).status, 402);
    let status = 200;
    for (let count = 0; count < 25 && status === 200; count += 1) status = (await start(5)).status;
    assert.equal(status, 429);
  });
}

describe('two servers on one PostgreSQL database', () => {
  let stripe: StripeDouble;
  let servers: readonly [TestApp, TestApp];
  let cards: readonly CardPayments[];
  const waiting: StripeEvent[] = [];

  before(async () => {
    stripe = await StripeDouble.start();
    stripe.onEvent = (event) => waiting.push(event);
    const databaseUrl = await emptyPostgresDatabase();
    const options = { databaseUrl, yaml: `payments: { ${stripe.yaml()} }` };
    servers = [await startTestApp(options), await startTestApp(options)];
    cards = [await cardsBeside(servers[0]), await cardsBeside(servers[1])];
  });
  after(async () => {
    await servers[0].audit();
    for (const one of cards) await one.stop();
    for (const server of servers) await server.stop();
    await stripe.stop();
  });

  /** Runs work of all processes at the same time. */
  async function everywhere(work: (cards: CardPayments) => Promise<unknown>): Promise<void> {
    await Promise.all([...cards, ...cards].map(work));
  }

  /** Delivers all events to both servers, while all processes list the events and read the payments. */
  async function deliverEverywhere(ids: readonly string[]): Promise<void> {
    const events = waiting.splice(0).flatMap((event) => [event, event]);
    const deliveries = events.flatMap((event) =>
      servers.map(async ({ url }) => assert.equal(await stripe.deliver(event, url), 200)),
    );
    const reads = everywhere(async (one) => {
      await one.reconcile();
      for (const id of ids) await one.check(id);
    });
    await Promise.all([...deliveries, reads]);
  }

  async function balanceOf(accountId: string): Promise<bigint> {
    return (await servers[1].app.stores.ledger.balances(accountId)).usdNano;
  }

  async function becomes(accountId: string, usd: number): Promise<void> {
    const isReached = async () => (await balanceOf(accountId)) === usdToNano(usd);
    await until(isReached, `a balance of ${usd} USD`);
  }

  async function pay(accountId: string, usd: number, savesCard = false): Promise<string> {
    const amountNano = usdToNano(usd);
    const returnUrl = 'http://farebox.test/console/credit';
    const wanted = { accountId, amountNano, savesCard, returnUrl };
    const { payment } = await cards[0]!.checkout(wanted);
    stripe.pay(stripe.sessionOf(payment.id)?.id ?? '');
    return payment.id;
  }

  async function spend(accountId: string, usd: number): Promise<void> {
    const { store, ledger } = servers[0].app.stores;
    const to = 'house:operator-credit';
    const id = `spend-${systemIds().hex(8)}`;
    const debit = { accountId, amountNano: usdToNano(usd), to, kind: 'CREDIT', id } as const;
    await store.transaction((tx) => ledger.debitIn(tx, debit));
  }

  test('the balance is the money at Stripe after concurrent events, checks and refunds', async () => {
    const { accountId } = await servers[0].account('1');
    const ids = [];
    for (let count = 0; count < 4; count += 1) ids.push(await pay(accountId, 10));
    await deliverEverywhere(ids);
    await becomes(accountId, 41);
    const intents = [...stripe.intents.values()].slice(-4);
    stripe.refundByHand(intents[0]!, 400);
    stripe.dispute(intents[1]!);
    const refunds = [15, 5].map(async (usd, at) => {
      const amountNano = usdToNano(usd);
      // The slower one is rejected if both have chosen the same payment.
      await cards[at]!.refund(accountId, amountNano, amountNano).catch(() => undefined);
    });
    await Promise.all([deliverEverywhere(ids), ...refunds]);
    await deliverEverywhere(ids);
    assert.ok(stripe.refunds.length > 1);
    const { store } = servers[0].app.stores;
    await until(async () => {
      const due = 'SELECT id FROM payments_card WHERE due_ms > 0 AND account_id = $1';
      return (await store.query(due, [accountId])).length === 0;
    }, 'no due payment');
    const kept = stripe.kept();
    const cents = ids.reduce((sum, id) => sum + (kept.get(id) ?? 0), 0);
    assert.equal(await balanceOf(accountId), usdToNano((cents + 100) / 100));
    const rows = await store.query<{ postings: bigint }>(
      'SELECT postings FROM payments_card WHERE account_id = $1 ORDER BY id',
      [accountId],
    );
    assert.deepEqual(
      rows.map(({ postings }) => postings),
      [2n, 2n, 1n, 1n],
    );
  });

  /** An account with a balance of 6 USD whose card is charged up to 20 USD. */
  async function withTopUps(): Promise<string> {
    const { accountId } = await servers[0].account('1');
    const id = await pay(accountId, 5, true);
    await deliverEverywhere([id]);
    await becomes(accountId, 6);
    const [keepNano, monthlyNano] = [usdToNano(20), usdToNano(500)];
    const settings = { keepNano, chargeNano: keepNano, monthlyNano };
    assert.ok(await cards[0]!.savedCards.configure(accountId, settings));
    return accountId;
  }

  test('a low balance is charged once', async () => {
    const accountId = await withTopUps();
    for (let round = 1; round <= 3; round += 1) {
      if (round > 1) await spend(accountId, 20);
      const known = stripe.intents.size;
      await everywhere((one) => one.topUp());
      await becomes(accountId, 26);
      await everywhere((one) => one.topUp());
      assert.equal(stripe.intents.size - known, 1);
      await deliverEverywhere([]);
      assert.equal(await balanceOf(accountId), usdToNano(26));
    }
  });

  test('a balance that rises before the charge begins is not charged', async () => {
    const accountId = await withTopUps();
    const { store, ledger } = servers[0].app.stores;
    let charging: Promise<void> | undefined;
    await store.transaction(async (tx) => {
      await oneAtATime(tx, store.dialect, `payments_card ${accountId}`);
      charging = cards[1]!.topUp();
      await untilBlocked(store);
      const from = 'house:operator-credit';
      const id = `credit-${accountId}`;
      const credit = { accountId, amountNano: usdToNano(20), from, kind: 'CREDIT', id } as const;
      await ledger.creditIn(tx, credit);
    });
    await charging;
    await becomes(accountId, 26);
    assert.equal(await cards[0]!.savedCards.chargedThisMonth(accountId), 0n);
  });
});

/** A payment is credited and refunded by hand, `newer` events of others follow, and no webhook arrives. */
async function refundIsFound(clock: Clock, newer = 0): Promise<void> {
  const stripe = await StripeDouble.start();
  const farebox = await startTestApp({ yaml: `payments: { ${stripe.yaml()} }` });
  try {
    const { secret, accountId } = await farebox.account('1');
    const started = await call(farebox, '/billing/checkout', { secret, body: { amountUsd: 10 } });
    const intent = stripe.pay(stripe.sessionOf(started.body.id)?.id ?? '');
    const cards = await cardsBeside(farebox, clock);
    const balance = async () => (await farebox.app.stores.ledger.balances(accountId)).usdNano;
    await cards.reconcile();
    await until(async () => (await balance()) === usdToNano(11), 'the credit');
    stripe.refundByHand(intent, 600);
    const [event] = stripe.events.slice(-1);
    assert.ok(event !== undefined);
    const data = { object: { id: 'cs_other', object: 'checkout.session' } };
    for (let at = 0; at < newer; at += 1) {
      stripe.events.push({ ...event, id: `evt_other_${at}`, data });
    }
    await cards.reconcile();
    await until(async () => (await balance()) === usdToNano(5), 'the reversal');
    await cards.stop();
  } finally {
    await farebox.stop();
    await stripe.stop();
  }
}

test('a refund without a webhook is found while the clock of the server is an hour ahead', async () => {
  const clock = systemClock();
  await refundIsFound({ ...clock, nowMs: () => clock.nowMs() + HOUR_MS });
});

test('a refund without a webhook is found behind ten thousand newer events of others', async () => {
  await refundIsFound(systemClock(), 10_000);
});

test('a payment without a webhook is found after a reading with a clock that was days ahead', async () => {
  const stripe = await StripeDouble.start();
  const farebox = await startTestApp({ yaml: `payments: { ${stripe.yaml()} }` });
  try {
    const { secret, accountId } = await farebox.account('1');
    const started = await call(farebox, '/billing/checkout', { secret, body: { amountUsd: 10 } });
    const clock = systemClock();
    const ahead = { ...clock, nowMs: () => clock.nowMs() + 3 * DAY_MS };
    for (const at of [ahead, clock]) {
      const cards = await cardsBeside(farebox, at);
      await cards.reconcile();
      await cards.stop();
      if (at === ahead) stripe.pay(stripe.sessionOf(started.body.id)?.id ?? '');
    }
    const balance = async () => (await farebox.app.stores.ledger.balances(accountId)).usdNano;
    await until(async () => (await balance()) === usdToNano(11), 'the credit');
  } finally {
    await farebox.stop();
    await stripe.stop();
  }
});

test('a missing permission for fees is known after the first check, and requested again later', async () => {
  const stripe = await StripeDouble.start();
  const farebox = await startTestApp({ yaml: `payments: { ${stripe.yaml()} }` });
  try {
    stripe.canReadBalance = false;
    const { secret } = await farebox.account('1');
    const { body } = await call(farebox, '/billing/checkout', { secret, body: { amountUsd: 10 } });
    stripe.pay(stripe.sessionOf(body.id)?.id ?? '');
    const clock = systemClock();
    let laterMs = 0;
    const monotonicMs = () => clock.monotonicMs() + laterMs;
    const cards = await cardsBeside(farebox, { ...clock, monotonicMs });
    const lookups = async (): Promise<number> => {
      stripe.requests.splice(0);
      await cards.check(body.id);
      return stripe.requests.filter((name) => name.startsWith('GET /v1/payment_intents/')).length;
    };
    assert.deepEqual([await lookups(), await lookups(), await lookups()], [2, 1, 1]);
    laterMs = HOUR_MS;
    assert.equal(await lookups(), 2);
    stripe.canReadBalance = true;
    laterMs = 2 * HOUR_MS;
    assert.equal(await lookups(), 1);
    const { ledger } = farebox.app.stores;
    assert.equal(await ledger.receivedFrom('house:card-fees:stripe'), usdToNano('0.59'));
    await cards.stop();
  } finally {
    await farebox.stop();
    await stripe.stop();
  }
});

describe('card payments with taxes', () => {
  test('the tax is not credited, and a refund returns its share of the credit', async () => {
    const stripe = await StripeDouble.start();
    const farebox = await startTestApp({
      yaml: `payments: { ${stripe.yaml(', taxes: true')} }`,
    });
    try {
      const { secret, accountId } = await farebox.account('1');
      const body = { amountUsd: 10 };
      const started = await call(farebox, '/billing/checkout', { secret, body });
      const session = stripe.sessionOf(started.body.id);
      assert.equal(session?.amount_total, 1_200);
      const intent = stripe.pay(session?.id ?? '');
      const balance = async () => (await farebox.app.stores.ledger.balances(accountId)).usdNano;
      await reconcile(farebox, started.body.id);
      await until(async () => (await balance()) === usdToNano(11), 'the credit');
      stripe.refundByHand(intent, 600);
      await reconcile(farebox, started.body.id);
      await until(async () => (await balance()) === usdToNano(6), 'the reversal');
      stripe.refundByHand(intent, 600);
      await reconcile(farebox, started.body.id);
      await until(async () => (await balance()) === usdToNano(1), 'the second reversal');
    } finally {
      await farebox.stop();
      await stripe.stop();
    }
  });
});

describe('card payments of wallets', () => {
  test('many new wallets of one address cannot use up the requests to the provider', async () => {
    const stripe = await StripeDouble.start();
    const base = `base: { rpcUrl: "http://127.0.0.1:9", payTo: "0x${'0'.repeat(35)}fa12b", gasKey: "0x${'11'.repeat(32)}" }`;
    const farebox = await startTestApp({ yaml: `payments: { ${base}, ${stripe.yaml()} }` });
    const body = { amountUsd: 10 };
    const pay = async (): Promise<number> => {
      const { address, signMessage } = privateKeyToAccount(generatePrivateKey());
      const message = createSiweMessage({
        address,
        chainId: 8453,
        domain: new URL(farebox.config.publicUrl).host,
        nonce: generateSiweNonce(),
        uri: farebox.config.publicUrl,
        version: '1',
        issuedAt: new Date(),
      });
      const proof = { address, message, signature: await signMessage({ message }), chainId: 8453 };
      const headers = {
        'sign-in-with-x': Buffer.from(JSON.stringify(proof)).toString('base64'),
      };
      return (await call(farebox, '/billing/checkout', { headers, body })).status;
    };
    const payByKey = async (): Promise<number> => {
      const { address } = privateKeyToAccount(generatePrivateKey());
      const accountId = await farebox.app.stores.identity.openWalletAccount(address);
      const secret = await farebox.key({ accountId });
      return (await call(farebox, '/billing/checkout', { secret, body })).status;
    };
    try {
      for (const start of [payByKey, pay]) {
        let status = 200;
        // The minute can end between two of them.
        for (let count = 0; count < 25 && status === 200; count += 1) status = await start();
        assert.equal(status, 429);
      }
      assert.ok(stripe.sessions.size >= 10 && stripe.sessions.size <= 20);
    } finally {
      await farebox.stop();
      await stripe.stop();
    }
  });
});

describe('a server without a payment provider', () => {
  test('responds that card payments are not configured', async () => {
    const farebox = await startTestApp();
    try {
      const { secret } = await farebox.account('1');
      const body = { amountUsd: 10 };
      const refused = await call(farebox, '/billing/checkout', { secret, body });
      assert.equal(refused.status, 503);
      assert.equal(refused.body.code, 'CHECKOUT_NOT_CONFIGURED');
      assert.equal((await call(farebox, '/payments/stripe', { body })).status, 503);
    } finally {
      await farebox.stop();
    }
  });

  test('does not start with a currency other than USD', async () => {
    await assert.rejects(
      startTestApp({
        yaml: 'payments: { stripe: { secretKey: sk, webhookSecret: whsec, currency: eur } }',
      }),
      /Must be "usd": the ledger is kept in USD/,
    );
  });
});
