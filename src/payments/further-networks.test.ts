/**
 * Two EVM networks on private chains with different chain ids: clients pick their network, each network has
 * its own state, and a payment of one network is worth nothing on the other.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { wrapFetchWithPayment } from '@x402/fetch';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type AnvilChain, startAnvil } from '../../test/chains/anvil.ts';
import { type FaultProxy, startFaultProxy } from '../../test/chains/fault-proxy.ts';
import { encodeHeader, evmPayment } from '../../test/support/payers.ts';
import { type PaymentServer, startPaymentServer } from '../../test/support/payment-server.ts';
import {
  type Fixture,
  type FixtureOptions,
  TEST_SETTINGS,
  baseRail,
  openFixture,
} from '../../test/support/payments.ts';
import { systemClock } from '../core/clock.ts';
import { evmNetwork } from '../core/evm-networks.ts';
import type { Fault } from '../core/faults.ts';
import { silentLog } from '../core/log.ts';
import { nano, usdToNano } from '../core/money.ts';
import { BASE } from './networks.ts';
import { auditChains } from './payments.ts';

const POLYGON = 'eip155:137';
const POLYGON_USDC = evmNetwork(POLYGON)?.asset as Hex; // in the table
const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const TOP_UP = { path: '/api/v1/x402/top-up', description: 'x' };

describe('further EVM networks', () => {
  let base: AnvilChain;
  let polygon: AnvilChain;
  let proxy: FaultProxy;
  let server: PaymentServer;
  let fixture: Fixture;
  const gasKey = generatePrivateKey();
  const refundKey = generatePrivateKey();

  const settingsWith = (changes: object = {}): FixtureOptions['settings'] => ({
    base: baseRail({ payTo, rpcUrl: base.rpcUrl, gasKey }),
    networks: [
      {
        network: POLYGON,
        payTo,
        rpcUrl: proxy.url,
        gasKey,
        refundKey,
        maxGas: 300_000,
        warnBelow: 0,
        minimumTopUpUsd: 2,
        ...changes,
      },
    ],
  });

  before(async () => {
    base = await startAnvil();
    polygon = await startAnvil(137, POLYGON_USDC);
    proxy = await startFaultProxy(polygon.rpcUrl);
    for (const chain of [base, polygon]) {
      await chain.fund(privateKeyToAccount(gasKey).address, 10n ** 20n);
    }
    await polygon.mint(privateKeyToAccount(refundKey).address, 100_000_000n);
    server = await startPaymentServer();
    fixture = await openFixture({ settings: settingsWith(), publicUrl: server.url });
    server.fixture = fixture;
  });

  after(async () => {
    await fixture.close();
    await server.stop();
    await proxy.stop();
    await base.stop();
    await polygon.stop();
  });

  const chainOf = (network: string): AnvilChain => (network === POLYGON ? polygon : base);

  const paid = async (network: typeof POLYGON | typeof BASE) => {
    const payment = await evmPayment(chainOf(network), fixture, generatePrivateKey(), network);
    await fixture.payments.headers.topUp(payment.header);
    return payment;
  };

  const rowOf = async (wallet: string) => {
    const [row] = await fixture.store.query<{
      network: string;
      state: string;
      reversals: bigint;
      is_watched: bigint;
    }>('SELECT * FROM payments_topup WHERE wallet = $1', [wallet]);
    assert.ok(row);
    return row;
  };

  const look = async (hours = 0): Promise<void> => {
    await fixture.store.query(
      `UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0,
         vanished_ms = vanished_ms - $1`,
      [hours * 3_600_000],
    );
    await fixture.payments.sweep();
  };

  for (const network of [BASE, POLYGON] as const) {
    test(`the fetch client of x402 with a wallet of ${network} pays there`, async () => {
      const chain = chainOf(network);
      const account = privateKeyToAccount(generatePrivateKey());
      await chain.mint(account.address, 20_000_000n);
      const client = new x402Client().register(network, new ExactEvmScheme(account));
      client.setSpendControls({ maxAmountPerPayment: '$25' });
      const before = await chain.balance(payTo);
      const pay = wrapFetchWithPayment(fetch, client);
      const response = await pay(`${server.url}/api/v1/chat/completions`, { method: 'POST' });
      assert.equal(response.status, 200, await response.text());
      assert.equal((await rowOf(account.address.toLowerCase())).network, network);
      assert.equal((await chain.balance(payTo)) - before, 10_000_000n);
    });
  }

  test('each network has an entry in accepts, none below its own minimum', async () => {
    const { body } = await fixture.payments.requirements.discovery(TOP_UP);
    const accepts = body['accepts'] as { network: string; asset: string; amount: string }[];
    assert.deepEqual(
      accepts.map(({ network, amount }) => [network, amount]),
      [
        [BASE, '10000000'],
        [POLYGON, '10000000'],
        [BASE, '1000000'],
        [POLYGON, '2000000'],
      ],
    );
    assert.equal(accepts[1]?.asset, POLYGON_USDC);
  });

  test('a payment below the minimum of its network is rejected', async () => {
    const account = privateKeyToAccount(generatePrivateKey());
    await polygon.mint(account.address, 20_000_000n);
    const client = new x402Client().register(POLYGON, new ExactEvmScheme(account));
    const { header } = await fixture.payments.requirements.discovery(TOP_UP);
    const required = decodePaymentRequiredHeader(header);
    const option = required.accepts.find(({ network }) => network === POLYGON);
    assert.ok(option);
    const accepts = [{ ...option, amount: '1000000' }];
    const payload = await client.createPaymentPayload({ ...required, accepts });
    await assert.rejects(fixture.payments.headers.topUp(encodeHeader(payload)), {
      code: 'AMOUNT_TOO_LOW',
    });
  });

  test('a payment of one network is refused on the other, and moves no money', async () => {
    const { header, wallet } = await paid(POLYGON);
    await base.mint(wallet as Hex, 20_000_000n);
    const payload = JSON.parse(Buffer.from(header, 'base64').toString()) as {
      accepted: Record<string, unknown>;
    };
    const { body } = await fixture.payments.requirements.topUp(TOP_UP);
    const offers = body['accepts'] as { network: string }[];
    const onBase = offers.find(({ network }) => network === BASE);
    const before = await base.balance(payTo);
    for (const accepted of [{ ...payload.accepted, network: BASE }, onBase]) {
      const replayed = encodeHeader({ ...payload, accepted });
      await assert.rejects(
        fixture.payments.headers.topUp(replayed),
        (fault: Fault) => fault.status === 400,
      );
    }
    assert.equal(await base.balance(payTo), before);
    assert.equal(await fixture.balance(wallet), usdToNano(5));
  });

  test('a reorganisation of one network leaves the credits of the other', async () => {
    const onBase = await paid(BASE);
    const onPolygon = await paid(POLYGON);
    await polygon.reorg(1);
    // The wallet cannot pay any more, so the payment cannot come back.
    await polygon.setTokens(onPolygon.wallet as Hex, 0n);
    await look();
    await look(1);
    assert.equal(await fixture.balance(onPolygon.wallet), 0n);
    assert.equal((await rowOf(onPolygon.wallet)).reversals, 1n);
    assert.equal(await fixture.balance(onBase.wallet), usdToNano(5));
    assert.equal((await rowOf(onBase.wallet)).reversals, 0n);
  });

  test('payments continue while the node of the other network is down', async () => {
    const waiting = await evmPayment(polygon, fixture, generatePrivateKey(), POLYGON);
    proxy.fate = () => ({ status: 502 });
    try {
      await assert.rejects(
        fixture.payments.headers.topUp(waiting.header),
        (fault: Fault) => fault.status === 503,
      );
      await fixture.payments.railMonitor.check();
      const { body } = await fixture.payments.requirements.topUp(TOP_UP);
      const accepts = body['accepts'] as { network: string }[];
      assert.equal(accepts[0]?.network, BASE, 'the network that responds is first');
      assert.deepEqual(Object.fromEntries(fixture.payments.railMonitor.states()), {
        [BASE]: true,
        [POLYGON]: false,
      });
      const { wallet } = await paid(BASE);
      await base.client.mine({ blocks: 70 });
      await look();
      assert.equal(await fixture.balance(wallet), usdToNano(5));
      assert.equal((await rowOf(wallet)).is_watched, 0n, 'the credit became final');
    } finally {
      proxy.fate = () => 'pass';
    }
    await fixture.payments.railMonitor.check();
    await fixture.payments.headers.topUp(waiting.header);
    assert.equal(await fixture.balance(waiting.wallet), usdToNano(5));
  });

  test('a refund is paid on the network of the latest payment, or on the one that is named', async () => {
    const { wallet } = await paid(POLYGON);
    await polygon.client.mine({ blocks: 70 });
    await look();
    const before = await polygon.balance(wallet as Hex);
    const refund = await fixture.payments.refunds.refund(wallet, usdToNano(1.5));
    assert.equal(refund.network, POLYGON);
    await polygon.client.mine({ blocks: 70 });
    await fixture.store.query('UPDATE payments_refund SET next_check_ms = 0, lease_until_ms = 0');
    await fixture.payments.sweep();
    assert.equal((await polygon.balance(wallet as Hex)) - before, 1_500_000n);
    await assert.rejects(fixture.payments.refunds.refund(wallet, usdToNano(1), undefined, BASE), {
      code: 'X402_NOT_CONFIGURED',
    });
  });

  test('contract wallets pay on the first network only', async () => {
    const owner = privateKeyToAccount(generatePrivateKey());
    const contract = privateKeyToAccount(generatePrivateKey()).address;
    await polygon.placeWallet(contract, owner.address);
    await polygon.mint(contract, 20_000_000n);
    const signer = { ...owner, address: contract };
    const client = new x402Client().register(POLYGON, new ExactEvmScheme(signer));
    client.setSpendControls({ maxAmountPerPayment: '$25' });
    const { header } = await fixture.payments.requirements.topUp(TOP_UP);
    const payload = await client.createPaymentPayload(decodePaymentRequiredHeader(header));
    await assert.rejects(fixture.payments.headers.topUp(encodeHeader(payload)), {
      code: 'INVALID_PAYMENT_PAYER',
      message: /contract wallets can pay on eip155:8453 only/,
    });
  });

  test('the audit compares each network with its own account', async () => {
    const received = new Map<string, bigint>();
    const rows = await fixture.store.query<{ network: string; total: bigint }>(
      `SELECT network, CAST(SUM(amount_units) AS BIGINT) AS total FROM payments_topup
       WHERE state = 'credited' GROUP BY network`,
    );
    for (const { network, total } of rows) {
      received.set(network === BASE ? 'base' : network, total * 1_000n);
    }
    const audited = (less: bigint) =>
      auditChains({
        settings: { ...TEST_SETTINGS, ...settingsWith() },
        store: fixture.store,
        clock: systemClock(),
        log: silentLog,
        sinceMs: 0,
        receivedInLedger: async (_tx, name) =>
          nano((received.get(name) ?? 0n) - (name === POLYGON ? less : 0n)),
        onProgress: () => undefined,
      });
    assert.deepEqual((await audited(0n)).differences, []);
    const [difference] = (await audited(7n)).differences;
    assert.deepEqual([difference?.network, difference?.amountNano], [POLYGON, -7n]);
  });

  test('a network is not offered if the EIP-712 domain of its token is another one', async () => {
    const other = await openFixture({
      settings: settingsWith({ asset: POLYGON_USDC, domain: { name: 'Other', version: '2' } }),
    });
    try {
      const health = await other.payments.railMonitor.check();
      const problem = health.find(({ network }) => network === POLYGON);
      assert.equal(problem?.isReady, false);
      assert.match(problem?.problems.join() ?? '', /domain of the token .* is not "Other"/);
      const { body } = await other.payments.requirements.topUp(TOP_UP);
      const accepts = body['accepts'] as { network: string }[];
      assert.ok(accepts.every(({ network }) => network === BASE));
    } finally {
      await other.close();
    }
  });
});
