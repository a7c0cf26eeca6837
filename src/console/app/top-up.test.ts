/** A payment is sent until it is credited or rejected, whatever is between the page and the server. */
import assert from 'node:assert/strict';
import { after, beforeEach, mock, test } from 'node:test';
import { replaceGlobals } from '../../../test/support/replace-globals.ts';
import type { TopUpState } from './top-up.ts';
import type { ConnectedWallet } from './wallets/wallet.ts';

const stored = new Map<string, string>();
const page = {
  document: { documentElement: { dataset: { rails: 'base' } }, querySelector: () => null },
  location: { origin: 'http://localhost' },
  localStorage: {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => void stored.set(name, value),
    removeItem: (name: string) => void stored.delete(name),
  },
};
replaceGlobals({ ...page, fetch });
const { abandonTopUp, dismissTopUp, resumeTopUp, startTopUp, topUp } = await import('./top-up.ts');

const NETWORK = 'eip155:8453';
const OFFER = { accepts: [{ network: NETWORK, amount: '5000000', payTo: '0x1' }] };
const CREDITED = { data: { paymentId: 'p1' } };
const wallet = {
  rail: 'base',
  address: '0x2',
  signPayment: async () => ({}),
} as unknown as ConnectedWallet; // the members that a payment needs

type Reply = () => Response | Promise<Response>;
/** Responses to the payment, in order. */
let replies: Reply[] = [];
let sent = 0;

const json = (status: number, body: unknown): Response => Response.json(body, { status });

after(() => mock.timers.reset());
beforeEach(() => {
  stored.clear();
  sent = 0;
  mock.timers.reset();
  mock.timers.enable({ apis: ['setTimeout'] });
  globalThis.fetch = async (_url, options) => {
    if (!new Headers(options?.headers).has('payment-signature')) return json(402, OFFER);
    sent += 1;
    const reply = replies.shift();
    if (reply === undefined) throw new TypeError('Failed to fetch');
    return reply();
  };
});

/** Runs the page until a condition holds. */
async function until(isTrue: () => boolean): Promise<void> {
  for (let turns = 0; !isTrue(); turns += 1) {
    assert.ok(turns < 10_000, JSON.stringify(topUp.value));
    mock.timers.tick(1_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function stateNow(): TopUpState | undefined {
  return topUp.value;
}

test('an error of a proxy does not end the payment', async () => {
  const broken = new ReadableStream({ start: (body) => body.error(new Error('cut')) });
  replies = [
    () => new Response('<html>Bad Gateway', { status: 502 }),
    () => new Response('<html>Gateway Timeout', { status: 504 }),
    () => new Response('<html>Request Timeout', { status: 408 }),
    () => json(500, { error: 'Internal error', code: 'UNKNOWN_ERROR' }),
    () => new Response(broken, { status: 200 }),
    () => json(200, CREDITED),
  ];
  void startTopUp(wallet, 10, NETWORK);
  await until(() => ['credited', 'failed'].includes(stateNow()?.step ?? ''));
  assert.deepEqual([stateNow()?.step, stateNow()?.paymentId, sent], ['credited', 'p1', 6]);
  assert.equal(stored.size, 0);
});

const PENDING = { code: 'SETTLEMENT_PENDING', error: 'Pending' };

async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Starts a payment and stops watching it while its second request is running. */
async function abandoned(): Promise<(response: Response) => Promise<void>> {
  const late = Promise.withResolvers<Response>();
  replies = [() => json(202, PENDING), () => late.promise];
  void startTopUp(wallet, 10, NETWORK);
  await until(() => sent === 2);
  abandonTopUp();
  return async (response) => {
    late.resolve(response);
    await turns();
  };
}

test('a payment that the user stopped watching stays stopped', async () => {
  const respond = await abandoned();
  await respond(json(202, PENDING));
  assert.deepEqual([stateNow(), stored.size], [undefined, 0]);
});

test('a late response to an earlier payment does not end the next one', async () => {
  const respond = await abandoned();
  const next = Promise.withResolvers<Response>();
  replies = [() => next.promise, () => json(200, CREDITED)];
  void startTopUp(wallet, 20, NETWORK);
  await until(() => sent === 3);
  await respond(json(200, CREDITED));
  assert.deepEqual([stateNow()?.amountUsd, stored.size], [20, 1]);
  next.resolve(json(202, PENDING));
  await until(() => stateNow()?.step === 'credited');
  assert.deepEqual([stateNow()?.amountUsd, sent, stored.size], [20, 4, 0]);
});

test('an unfinished payment is continued for its own wallet only', async () => {
  replies = [() => json(202, PENDING)];
  void startTopUp(wallet, 10, NETWORK);
  await until(() => sent === 2);
  const [entry] = [...stored];
  abandonTopUp();
  mock.timers.tick(10_000);
  await turns();
  // Another page stored it.
  stored.set(...(entry ?? ['', '']));
  replies = [() => json(200, CREDITED)];
  resumeTopUp('0x3');
  await turns();
  assert.deepEqual([stateNow(), sent, stored.size], [undefined, 2, 1]);
  const other = { ...wallet, address: '0x3' };
  void startTopUp(other, 20, NETWORK);
  await until(() => stateNow()?.step === 'credited');
  assert.deepEqual([...stored], [entry]);
  dismissTopUp();
  replies = [() => json(200, CREDITED)];
  resumeTopUp('0X2');
  await until(() => stateNow()?.step === 'credited');
  assert.deepEqual([stateNow()?.amountUsd, stored.size], [10, 0]);
});
