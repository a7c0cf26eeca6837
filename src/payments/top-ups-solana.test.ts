/**
 * Top-ups on a private Solana with the official client, and the faults of that rail: after each,
 * the ledger equals the chain, and no response requests a second payment.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from '@x402/core/http';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import { wrapFetchWithPayment } from '@x402/fetch';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { startFaultProxy } from '../../test/chains/fault-proxy.ts';
import type { FaultProxy } from '../../test/chains/fault-proxy.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { systemIds } from '../core/ids.ts';
import { usdToNano } from '../core/money.ts';
import { SOLANA } from './networks.ts';
import {
  type PaymentServer,
  postTopUp,
  postTopUpAtLast,
  startPaymentServer,
} from '../../test/support/payment-server.ts';
import { openFixture, paidAtLast, solanaRail } from '../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../test/support/payments.ts';

const SOL = 1_000_000_000n;

describe('top-ups on Solana', () => {
  let chain: SolanaChain;
  let proxy: FaultProxy;
  let paymentServer: PaymentServer;
  let fixture: Fixture;
  let receiver: KeyPairSigner;
  let feePayer: KeyPairSigner;
  const feePayerKey = systemIds().hex(32);
  const refundKey = systemIds().hex(32);

  const settings = (): FixtureOptions['settings'] => ({
    solana: solanaRail({
      payTo: receiver.address,
      rpcUrl: proxy.url,
      feePayerKey,
      refundKey,
      warnBelowSol: 0.02,
    }),
  });

  before(async () => {
    chain = await startSolana();
    proxy = await startFaultProxy(chain.rpcUrl);
    paymentServer = await startPaymentServer();
    receiver = await generateKeyPairSigner();
    feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    chain.airdrop(feePayer.address, 10n * SOL);
    await chain.setTokens(receiver.address, 0n);
    fixture = await openFixture({ settings: settings(), publicUrl: paymentServer.url });
    paymentServer.fixture = fixture;
  });

  after(async () => {
    await fixture.close();
    await paymentServer.stop();
    await proxy.stop();
    await chain.stop();
  });

  afterEach(async () => {
    proxy.fate = () => 'pass';
    chain.hidden = false;
    chain.unfinal = false;
    await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
    await fixture.payments.sweep();
    const rows = await fixture.store.query<{ total: bigint | null }>(
      `SELECT SUM(amount) AS total FROM testledger_entry WHERE entry_key LIKE 'solana:%'`,
    );
    const received = await chain.tokens(receiver.address);
    assert.equal((rows[0]?.total ?? 0n) / 1_000n, received, 'credits against the receiver');
  });

  async function buyer(units = 100_000_000n): Promise<KeyPairSigner> {
    const signer = await generateKeyPairSigner();
    await chain.setTokens(signer.address, units);
    return signer;
  }

  function clientOf(signer: KeyPairSigner): x402Client {
    const scheme = new ExactSvmScheme(signer, { rpcUrl: chain.rpcUrl });
    const client = new x402Client().register(SOLANA, scheme);
    client.setSpendControls({ maxAmountPerPayment: '$25' });
    return client;
  }

  /** A payment header as the official client makes it. */
  async function sign(signer: KeyPairSigner): Promise<string> {
    const { header } = await fixture.payments.requirements.topUp({
      path: '/api/v1/x402/top-up',
      description: 'x',
    });
    const payload = await clientOf(signer).createPaymentPayload(
      decodePaymentRequiredHeader(header),
    );
    return Buffer.from(JSON.stringify(payload)).toString('base64');
  }

  const post = async (header: string) => await postTopUp(paymentServer, header);

  function loseBroadcasts(): void {
    proxy.fate = (method) => (method === 'sendTransaction' ? 'lose-request' : 'pass');
  }

  /** The payer's tokens are gone between the check and the block. */
  function emptyOnBroadcast(signer: KeyPairSigner): void {
    proxy.fate = async (method) => {
      if (method === 'sendTransaction') await chain.setTokens(signer.address, 0n);
      return 'pass' as const;
    };
  }

  async function fundTreasury(): Promise<void> {
    const treasury = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(refundKey, 'hex'));
    await chain.setTokens(treasury.address, 50_000_000n);
  }

  async function checkRefunds(): Promise<void> {
    await fixture.store.query('UPDATE payments_refund SET next_check_ms = 0, lease_until_ms = 0');
    await fixture.payments.sweep();
  }

  test('@x402/fetch tops up and chats with its sign-in', async () => {
    const signer = await buyer();
    const pay = wrapFetchWithPayment(fetch, clientOf(signer));
    const response = await pay(`${paymentServer.url}/api/v1/x402/top-up`, { method: 'POST' });
    assert.equal(response.status, 200);
    const settled = decodePaymentResponseHeader(response.headers.get('PAYMENT-RESPONSE') ?? '');
    assert.deepEqual([settled.success, settled.payer], [true, signer.address]);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));

    const signing = clientOf(signer);
    signing.registerExtension(createSIWxClientExtension({ signers: [signer as never] }));
    const chat = await wrapFetchWithPayment(fetch, signing)(
      `${paymentServer.url}/api/v1/chat/completions`,
      {
        method: 'POST',
      },
    );
    assert.equal(chat.status, 200);
    assert.equal(chat.headers.get('X-Balance-Remaining'), '4.990000');
  });

  test('a repeated header gets no balance, and three at once are one credit', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    const answers = await Promise.all([post(header), post(header), post(header)]);
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200],
    );
    const again = await post(header);
    const balances = answers.map(({ body }) => body.data?.['newBalance']);
    assert.deepEqual(
      balances.filter((balance) => balance !== undefined),
      [5],
    );
    assert.equal(again.body.data?.['alreadyCredited'], true);
    assert.equal(again.body.data['newBalance'], undefined);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });

  test('the same message under another fee-payer signature is the same payment', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    assert.equal((await post(header)).status, 200);
    const payload = JSON.parse(Buffer.from(header, 'base64').toString()) as {
      payload: { transaction: string };
    };
    const wire = Buffer.from(payload.payload.transaction, 'base64');
    wire.fill(7, 1, 65);
    payload.payload.transaction = wire.toString('base64');
    const answer = await post(Buffer.from(JSON.stringify(payload)).toString('base64'));
    assert.equal(answer.status, 200);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });

  test('two processes given the same payment credit it once', async () => {
    const second = await openFixture({
      settings: settings(),
      publicUrl: paymentServer.url,
      folder: fixture.folder,
    });
    const signer = await buyer();
    const header = await sign(signer);
    const results = await Promise.all([paidAtLast(fixture, header), paidAtLast(second, header)]);
    const balances = results.map(({ newBalanceNano }) => newBalanceNano);
    assert.deepEqual(new Set(balances), new Set([usdToNano(5), undefined]));
    const [one, other] = results.map((receipt) => ({ ...receipt, newBalanceNano: undefined }));
    assert.deepEqual(one, other);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
    await second.close();
  });

  test('eight payments at once are all settled', async () => {
    const signers = await Promise.all(Array.from({ length: 8 }, async () => await buyer()));
    const headers = await Promise.all(signers.map(async (signer) => await sign(signer)));
    const answers = await Promise.all(
      headers.map(async (header) => await postTopUpAtLast(paymentServer, header)),
    );
    assert.ok(answers.every(({ status }) => status === 200));
  });

  test('a payment whose broadcast response is lost is credited', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    proxy.fate = (method) => (method === 'sendTransaction' ? 'lose-reply' : 'pass');
    const answer = await post(header);
    assert.equal(answer.status, 200, JSON.stringify(answer.body));
  });

  test('a payment whose broadcast is lost is pending, and the same bytes are sent again', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    loseBroadcasts();
    const answer = await post(header);
    assert.equal(answer.status, 202, JSON.stringify(answer.body));
    assert.equal(answer.body.error, 'SETTLEMENT_PENDING');
    proxy.fate = () => 'pass';
    assert.equal((await post(header)).status, 200);
  });

  test('an unconfirmed payment is 202 until it is confirmed', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    chain.hidden = true;
    assert.equal((await post(header)).status, 202);
    assert.equal((await post(header)).status, 202);
    chain.hidden = false;
    assert.equal((await post(header)).status, 200);
  });

  test('a payment that is unsent when its blockhash expires is 402 with its reason', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    loseBroadcasts();
    assert.equal((await post(header)).status, 202);
    chain.advance(400n);
    const answer = await post(header);
    assert.equal(answer.status, 402);
    assert.equal(answer.body.details?.reason, 'blockhash_expired');
    assert.equal(await fixture.balance(signer.address), 0n);
  });

  test('a payment to this ledger is not credited by another one with the same receiver', async () => {
    const other = await openFixture({ settings: settings(), publicUrl: paymentServer.url });
    const signer = await buyer();
    const header = await sign(signer);
    assert.equal((await post(header)).status, 200);
    await assert.rejects(other.payments.headers.topUp(header), /used on the chain before/);
    assert.equal(await other.balance(signer.address), 0n);
    await other.close();
  });

  /** Checks every payment now, as if the given time had passed. */
  async function look(hours = 0): Promise<void> {
    await fixture.store.query(
      `UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0,
         vanished_ms = vanished_ms - $1`,
      [hours * 3_600_000],
    );
    await fixture.payments.sweep();
  }

  async function rowOf(wallet: string) {
    const rows = await fixture.store.query<{
      state: string;
      tx_id: string;
      raw_tx: string;
      is_watched: bigint;
      failure: string | null;
    }>('SELECT * FROM payments_topup WHERE wallet = $1', [wallet]);
    return rows[0]!;
  }

  test('a credited transaction that a fork dropped is sent again from its bytes', async () => {
    const signer = await buyer();
    chain.unfinal = true;
    const header = await sign(signer);
    assert.equal((await post(header)).status, 200);
    await look();
    const { tx_id: id, is_watched: isWatched } = await rowOf(signer.address);
    assert.equal(isWatched, 1n, 'confirmed is not final');
    chain.drop(id);
    assert.equal(await chain.tokens(signer.address), 100_000_000n);
    await look();
    assert.equal(await chain.tokens(signer.address), 95_000_000n);
    await look();
    chain.unfinal = false;
    await look();
    const row = await rowOf(signer.address);
    assert.deepEqual([row.state, row.tx_id, row.is_watched], ['credited', id, 0n]);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });

  test('a credited transaction that was dropped and has expired is reversed', async () => {
    const signer = await buyer();
    chain.unfinal = true;
    const header = await sign(signer);
    assert.equal((await post(header)).status, 200);
    const { tx_id: id } = await rowOf(signer.address);
    chain.drop(id);
    chain.advance(400n);
    await look();
    assert.equal((await rowOf(signer.address)).state, 'credited', 'not before it could be back');
    await look(1);
    await look();
    const row = await rowOf(signer.address);
    assert.deepEqual([row.state, row.failure], ['failed', 'blockhash_expired']);
    assert.equal(await fixture.balance(signer.address), 0n);
    assert.equal((await post(header)).status, 402);
  });

  test('a large payment is credited when it is final, not when it is confirmed', async () => {
    const { solana } = settings() ?? {};
    const confirmations = [
      { fromUsd: 0, wait: 'confirmed' },
      { fromUsd: 5, wait: 'finalized' },
    ] as const;
    const deep = await openFixture({
      settings: { solana: { ...solana!, confirmations } },
      publicUrl: paymentServer.url,
      folder: fixture.folder,
    });
    const signer = await buyer();
    chain.unfinal = true;
    const header = await sign(signer);
    await assert.rejects(deep.payments.headers.topUp(header), /not confirmed yet/);
    assert.equal(await deep.balance(signer.address), 0n);
    chain.unfinal = false;
    await deep.payments.headers.topUp(header);
    assert.equal(await deep.balance(signer.address), usdToNano(5));
    await deep.close();
  });

  test('a payment above the balance is 400 before anything is sent', async () => {
    const signer = await buyer(1_000_000n);
    const executed = chain.executed;
    const answer = await post(await sign(signer));
    assert.equal(answer.status, 400, JSON.stringify(answer.body));
    assert.equal(answer.body.error, 'PAYMENT_VERIFICATION_FAILED');
    assert.equal(chain.executed, executed);
  });

  test('a receiver without a token account is not offered, and the log says what to do', async () => {
    const poor = await generateKeyPairSigner();
    const other = await openFixture({
      settings: { solana: { ...settings().solana!, payTo: poor.address } },
      publicUrl: paymentServer.url,
    });
    const [health] = await other.payments.railMonitor.check();
    assert.equal(health?.isReady, false);
    assert.match(health?.problems.join() ?? '', /create it/);
    assert.ok(other.log.some((line) => line.level === 'error' && /not offered/.test(line.message)));
    await other.close();
  });

  test('a refund pays unused credit back, once; a lost broadcast is finished by the sweep', async () => {
    await fundTreasury();
    const signer = await buyer();
    assert.equal((await post(await sign(signer))).status, 200);
    const before = await chain.tokens(signer.address);
    const refund = await fixture.payments.refunds.refund(signer.address, usdToNano(2));
    assert.equal(refund.state, 'paid');
    loseBroadcasts();
    const second = await fixture.payments.refunds.refund(signer.address, usdToNano(1));
    assert.notEqual(second.state, 'paid');
    proxy.fate = () => 'pass';
    for (let round = 0; round < 2; round += 1) await checkRefunds();
    assert.equal((await fixture.payments.refunds.state(second.refundId)).state, 'paid');
    assert.equal((await chain.tokens(signer.address)) - before, 3_000_000n);
    assert.equal(await fixture.balance(signer.address), usdToNano(2));
  });

  test('a refund takes no credit that the cluster could still undo', async () => {
    await fundTreasury();
    const signer = await buyer();
    chain.unfinal = true;
    assert.equal((await post(await sign(signer))).status, 200);
    await assert.rejects(
      fixture.payments.refunds.refund(signer.address, usdToNano(2)),
      /could still undo/,
    );
    chain.unfinal = false;
    assert.equal(
      (await fixture.payments.refunds.refund(signer.address, usdToNano(2))).state,
      'paid',
    );
  });

  test('a payment that failed on a fork is credited when the other fork has it', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    const funds = await chain.tokens(signer.address);
    chain.unfinal = true;
    emptyOnBroadcast(signer);
    assert.equal((await post(header)).status, 402);
    proxy.fate = () => 'pass';
    const row = await rowOf(signer.address);
    const { state, is_watched: isWatched, tx_id: transaction, raw_tx: wire } = row;
    assert.deepEqual([state, isWatched], ['failed', 1n]);
    chain.drop(transaction);
    await chain.setTokens(signer.address, funds);
    const params = [wire, { encoding: 'base64' }];
    const call = { jsonrpc: '2.0', id: 1, method: 'sendTransaction', params };
    await fetch(chain.rpcUrl, { method: 'POST', body: JSON.stringify(call) });
    for (let round = 0; round < 2; round += 1) await look();
    assert.equal((await rowOf(signer.address)).state, 'credited');
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
    chain.unfinal = false;
  });

  test('a payment that failed is watched until the cluster is final', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    emptyOnBroadcast(signer);
    assert.equal((await post(header)).status, 402);
    proxy.fate = () => 'pass';
    await look();
    const { state, is_watched: isWatched } = await rowOf(signer.address);
    assert.deepEqual([state, isWatched], ['failed', 0n]);
  });

  test('a refund that expires unsent is credited back', async () => {
    const signer = await buyer();
    assert.equal((await post(await sign(signer))).status, 200);
    loseBroadcasts();
    const refund = await fixture.payments.refunds.refund(signer.address, usdToNano(5));
    assert.equal(await fixture.balance(signer.address), 0n);
    chain.advance(400n);
    proxy.fate = () => 'pass';
    await checkRefunds();
    assert.equal((await fixture.payments.refunds.state(refund.refundId)).state, 'failed');
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });
});
