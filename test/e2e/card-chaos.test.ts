/**
 * Card payments under `kill -9` at every step and random faults: payments, delayed payments, automatic
 * top-ups, refunds by the operator and by hand, disputes, webhooks that are repeated, reordered or lost, and requests to
 * Stripe without a response. At the end the money in the double equals the credit in the ledger, for each
 * payment, on each database. `CARD_KILLS` sets the number of kills; the seed is printed and determines everything.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Stripe } from 'stripe';
import type { CardStep } from '../../src/payments/cards/cards.ts';
import type { Dialect } from '../../src/db/db.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { usdToNano } from '../../src/core/money.ts';
import { endWithUs } from '../support/end-with-us.ts';
import { runCli } from '../support/run-cli.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { STRIPE_WEBHOOK_SECRET, type StripeEvent, StripeDouble } from '../support/stripe-double.ts';
import { type CardBooks, type CardOrder, carryOut, openCardBooks, sweep } from './card-books.ts';

const KILLS = Number(process.env['CARD_KILLS'] ?? '6');
const SEED = Number(process.env['SEED'] ?? String(Date.now() % 100_000));
const ACCOUNTS = 4;
const NANO_PER_CENT = 10_000_000n;

const STEPS: Readonly<Record<CardOrder['do'], readonly CardStep[]>> = {
  checkout: ['opened', 'page'],
  receive: ['journaled', 'read', 'applied'],
  refund: ['opened', 'refunded', 'read', 'applied'],
  'top-up': ['charged', 'read', 'applied'],
  sweep: ['refunded', 'read', 'applied'],
};

interface Chaos {
  readonly random: () => number;
  readonly folder: string;
  readonly stripe: StripeDouble;
  readonly books: CardBooks;
  readonly accounts: string[];
  /** Events that are not delivered yet. */
  readonly waiting: StripeEvent[];
  readonly counts: Map<string, number>;
  kills: number;
}

for (const dialect of ['sqlite', 'postgres'] as const) {
  const name = `after ${KILLS} kills the money at Stripe is the credit in the ledger (${dialect})`;
  test(name, (t) => chaosOn(t, dialect));
}

async function chaosOn(t: TestContext, dialect: Dialect): Promise<void> {
  t.diagnostic(`seed ${SEED}`);
  const ids = seededIds(SEED);
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cards-'));
  const stripe = await StripeDouble.start();
  const database =
    dialect === 'postgres' ? `database: ${JSON.stringify(await emptyPostgresDatabase())}\n` : '';
  writeFileSync(
    join(folder, 'farebox.yaml'),
    `${database}embedded: { enabled: false }
discovery: { enabled: false }
payments: { ${stripe.yaml()} }
`,
  );
  const books = await openCardBooks(folder);
  const chaos: Chaos = {
    random: () => ids.fraction(),
    folder,
    stripe,
    books,
    accounts: [],
    waiting: [],
    counts: new Map(),
    kills: 0,
  };
  stripe.onEvent = (event) => chaos.waiting.push(event);
  try {
    for (let count = 0; count < ACCOUNTS; count += 1) {
      const { id } = await books.stores.identity.createAccount(`account ${count}`, 'paid');
      await books.stores.ledger.openAccount(id);
      chaos.accounts.push(id);
      await saveCard(chaos, id);
    }
    while (chaos.kills < KILLS) await oneRound(chaos);
    await calm(chaos);
    await compare(t, chaos);
  } finally {
    await books.close();
    await stripe.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Pays once, saves the card and switches on automatic top-ups. */
async function saveCard({ books, stripe }: Chaos, accountId: string): Promise<void> {
  const { cards } = books;
  const amountNano = usdToNano(5);
  const returnUrl = 'http://farebox.test/console/credit';
  const { payment } = await cards.checkout({ accountId, amountNano, savesCard: true, returnUrl });
  stripe.pay(stripe.sessionOf(payment.id)?.id ?? '');
  await cards.check(payment.id);
  const [keepNano, chargeNano, monthlyNano] = [usdToNano(10), usdToNano(15), usdToNano(5_000)];
  assert.ok(await cards.savedCards.configure(accountId, { keepNano, chargeNano, monthlyNano }));
}

function count(chaos: Chaos, name: string): void {
  chaos.counts.set(name, (chaos.counts.get(name) ?? 0) + 1);
}

function pick<T>({ random }: Chaos, from: readonly T[]): T {
  const found = from[Math.floor(random() * from.length)];
  assert.ok(found !== undefined);
  return found;
}

async function oneRound(chaos: Chaos): Promise<void> {
  const { stripe, random } = chaos;
  stripe.fate = (request) => {
    if (random() > 0.04) return 'pass';
    count(chaos, `lost or failed ${request.split('/').slice(0, 3).join('/')}`);
    return pick(chaos, ['lose-request', 'lose-reply', 'error'] as const);
  };
  const accountId = pick(chaos, chaos.accounts);
  const nano = String(BigInt(500 + Math.floor(random() * 3_000)) * NANO_PER_CENT);
  await order(chaos, { do: 'checkout', accountId, nano });
  stripeActs(chaos);
  if (random() < 0.3) await spend(chaos, accountId);
  if (random() < 0.4) {
    const part = String(BigInt(1 + Math.floor(random() * 1_000)) * NANO_PER_CENT);
    count(chaos, 'refund orders');
    const reference = `ticket-${chaos.counts.get('refund orders')}`;
    const refund = { do: 'refund', accountId, nano: part, reference } as const;
    await order(chaos, refund);
    // The operator repeats it, whether the process was killed or not.
    await carryOut(chaos.books, refund).catch(() => undefined); // too little credit is left
  }
  if (random() < 0.4) {
    stripe.declines = random() < 0.4 ? 'insufficient_funds' : undefined;
    count(chaos, stripe.declines === undefined ? 'charges' : 'declines');
    // Declines and disputes stop the top-ups of an account.
    await chaos.books.stores.store.query(
      'UPDATE payments_card_owner SET next_try_ms = 0, is_stopped = 0',
    );
    await order(chaos, { do: 'top-up' });
  }
  await deliverSome(chaos);
  if (random() < 0.3) await order(chaos, { do: 'sweep' });
}

/** Payers, banks and the operator act at Stripe. */
function stripeActs(chaos: Chaos): void {
  const { stripe, random } = chaos;
  for (const session of stripe.sessions.values()) {
    if (session.status !== 'open' || random() < 0.3) continue;
    const isDelayed = random() < 0.2;
    if (random() < 0.1) stripe.expire(session.id);
    else stripe.pay(session.id, { isDelayed });
    count(chaos, isDelayed ? 'delayed payments' : 'payments');
  }
  for (const intent of stripe.intents.values()) {
    const isDecided = intent.status === 'succeeded';
    if (intent.status === 'processing' && random() < 0.5) stripe.decide(intent, random() < 0.7);
    const left = stripe.kept().get(intent.metadata['farebox_payment'] ?? '') ?? 0;
    if (!isDecided || left <= 0) continue;
    const draw = random();
    if (draw < 0.1) {
      const isDisputed = stripe.disputes.some(
        (one) => one.payment_intent === intent.id && one.status !== 'won',
      );
      if (isDisputed) continue;
      count(chaos, 'refunds by hand');
      stripe.refundByHand(intent, 1 + Math.floor(random() * left));
    } else if (draw < 0.2) {
      count(chaos, 'disputes');
      const isInquiry = random() < 0.3;
      stripe.dispute(intent, left, isInquiry ? 'warning_needs_response' : 'needs_response');
    }
  }
  for (const dispute of stripe.disputes) {
    if (dispute.status === 'needs_response' && random() < 0.3) {
      stripe.closeDispute(dispute, random() < 0.5);
    }
  }
  for (const refund of stripe.refunds) {
    if (refund.status !== 'succeeded' || random() > 0.03) continue;
    count(chaos, 'failed refunds');
    stripe.failRefund(refund.id);
  }
}

/** Delivers waiting events in random order; some twice, some never. */
async function deliverSome(chaos: Chaos): Promise<void> {
  const { waiting, random } = chaos;
  for (let left = waiting.length; left > 0; left -= 1) {
    const [event] = waiting.splice(Math.floor(random() * waiting.length), 1);
    assert.ok(event !== undefined);
    const draw = random();
    if (draw < 0.15) {
      count(chaos, 'lost webhooks');
      continue;
    }
    if (draw < 0.3) waiting.push(event);
    const body = JSON.stringify(event);
    const secret = STRIPE_WEBHOOK_SECRET;
    const signature = Stripe.webhooks.generateTestHeaderString({ payload: body, secret });
    await order(chaos, { do: 'receive', body, signature });
  }
}

/** Carries out an order here, or in a process that is killed at one of its steps. */
async function order(chaos: Chaos, given: CardOrder): Promise<void> {
  if (chaos.random() < 0.5 || chaos.kills >= KILLS) {
    // A lost response is an error of the order. The comparison at the end decides.
    return await carryOut(chaos.books, given).catch(() => undefined);
  }
  const dieAt = pick(chaos, STEPS[given.do]);
  const file = new URL('card-books-process.ts', import.meta.url).pathname;
  const child = endWithUs(
    spawn(process.execPath, [file, chaos.folder, dieAt, JSON.stringify(given)], {
      // Most of the time of a child is the compilation of its modules.
      env: childEnvironment({ NODE_COMPILE_CACHE: join(chaos.folder, 'compiled') }),
      stdio: ['ignore', 'ignore', 'inherit'],
    }),
  );
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    child.once('exit', (ended, how) => resolve([ended, how]));
  });
  if (signal === 'SIGKILL') {
    chaos.kills += 1;
    count(chaos, `kill -9 in ${given.do} at ${dieAt}`);
  } else assert.equal(code, 0, 'a process that was not killed ends well');
}

async function spend({ books, random }: Chaos, accountId: string): Promise<void> {
  const { store, ledger } = books.stores;
  const { usdNano } = await ledger.balances(accountId);
  const amountNano = (usdNano * BigInt(Math.floor(random() * 100))) / 100n;
  if (amountNano === 0n) return;
  const posting = { to: 'house:operator-credit', kind: 'CREDIT', id: `spend-${random()}` } as const;
  await store.transaction((tx) =>
    ledger.debitIn(tx, { ...posting, accountId, amountNano: amountNano as typeof usdNano }),
  );
}

/** No more faults; the events of Stripe are listed, and all unfinished payments are read. */
async function calm({ stripe, books }: Chaos): Promise<void> {
  stripe.fate = () => 'pass';
  await books.stores.store.query('UPDATE payments_card_provider SET events_since_ms = 0');
  await books.cards.reconcile();
  for (let round = 0; round < 3; round += 1) {
    await books.stores.store.query('UPDATE payments_card SET due_ms = 1 WHERE due_ms > 0');
    await sweep(books);
  }
}

async function compare(t: TestContext, chaos: Chaos): Promise<void> {
  const { stripe, books, folder, accounts } = chaos;
  const { store, ledger } = books.stores;
  const rows = await store.query<{ id: string; nano: bigint; state: string }>(
    'SELECT id, credited_nano - refunded_nano AS nano, state FROM payments_card',
  );
  const kept = stripe.kept();
  for (const { id, nano, state } of rows) {
    const cents = kept.get(id) ?? 0;
    assert.equal(nano, BigInt(cents) * NANO_PER_CENT, `${id} is ${state}`);
    kept.delete(id);
  }
  assert.deepEqual([...kept], [], 'each payment at Stripe has a row');
  const cents = [...stripe.kept().values()].reduce((sum, one) => sum + one, 0);
  const [received, paidBack] = [
    await ledger.receivedFrom('house:top-up:stripe'),
    await ledger.receivedFrom('house:payout:stripe'),
  ];
  assert.equal(received + paidBack, BigInt(cents) * NANO_PER_CENT);
  const fees = [...stripe.fees().values()].reduce((sum, one) => sum + one, 0);
  assert.equal(await ledger.receivedFrom('house:card-fees:stripe'), BigInt(fees) * NANO_PER_CENT);
  const report = await ledger.audit();
  assert.deepEqual(report.differences, []);
  for (const accountId of accounts) {
    assert.ok((await ledger.balances(accountId)).usdNano >= 0n);
  }
  const audit = await runCli(folder, ['audit', '--stripe', '--json'], {
    FAREBOX_DATA: join(folder, 'data'),
  });
  assert.equal(audit.code, 0, audit.out);
  const { payments, pending } = (JSON.parse(audit.out) as { stripe: Record<string, unknown> })
    .stripe;
  assert.deepEqual([payments, pending], [rows.length, 0]);
  t.diagnostic(
    JSON.stringify({
      ...Object.fromEntries(chaos.counts),
      kills: chaos.kills,
      rows: rows.length,
      dollars: cents / 100,
      owedUsd: Number(report.debtNano) / 1e9,
    }),
  );
  await plant(chaos);
}

/** Plants one difference in each direction, and expects exactly these. */
async function plant({ stripe, books, folder }: Chaos): Promise<void> {
  const { store } = books.stores;
  const [row] = await store.query<{ id: string }>(
    `UPDATE payments_card SET credited_nano = credited_nano + 1 WHERE id = (
       SELECT id FROM payments_card WHERE state = 'paid' ORDER BY id LIMIT 1) RETURNING id`,
  );
  const [intent] = [...stripe.intents.values()].filter(({ status }) => status === 'succeeded');
  assert.ok(row !== undefined && intent !== undefined);
  const lost = { ...intent, id: 'pi_lost', metadata: { ...intent.metadata, farebox_payment: 'x' } };
  stripe.intents.set(lost.id, lost);
  const audit = await runCli(folder, ['audit', '--stripe', '--json'], {
    FAREBOX_DATA: join(folder, 'data'),
  });
  assert.equal(audit.code, 1);
  const { differences } = (
    JSON.parse(audit.out) as {
      stripe: { differences: { what: string; paymentId?: string }[] };
    }
  ).stripe;
  assert.deepEqual(
    differences.map(({ what, paymentId = '-' }) => `${what}: ${paymentId}`),
    [
      `credited, but not paid at the provider: ${row.id}`,
      'paid at the provider, but unknown here: x',
      'the credits in the ledger differ from the payments: -',
    ],
  );
}
