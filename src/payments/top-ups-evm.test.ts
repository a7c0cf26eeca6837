/**
 * Top-ups on a private Base with unmodified official clients, and every fault of the design: after
 * each, the ledger equals the chain, and no response requests a second payment.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { decodePaymentResponseHeader } from '@x402/core/http';
import { x402Client } from '@x402/core/client';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import {
  extractReceiptFromResponse,
  verifyReceiptSignatureJWS,
} from '@x402/extensions/offer-receipt';
import { wrapFetchWithPayment } from '@x402/fetch';
import { createWalletClient, encodeFunctionData, http, parseAbi } from 'viem';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { PrivateKeyAccount } from 'viem/accounts';
import { BASE_CHAIN, MULTICALL, startAnvil, USDC, USDC_ABI } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startFaultProxy } from '../../test/chains/fault-proxy.ts';
import type { FaultProxy } from '../../test/chains/fault-proxy.ts';
import { usdToNano } from '../core/money.ts';
import {
  type PaymentServer,
  postTopUp,
  postTopUpAtLast,
  startPaymentServer,
} from '../../test/support/payment-server.ts';
import {
  authorizationOf,
  cancelAuthorization,
  encodeHeader,
  transferArgs,
  transferHeader,
} from '../../test/support/payers.ts';
import { openFixture, paidAtLast, baseRail } from '../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../test/support/payments.ts';
import { until } from '../../test/support/until.ts';

const ETH = 10n ** 18n;
const gasKey = generatePrivateKey();
const gas = privateKeyToAccount(gasKey).address;
const treasuryKey = generatePrivateKey();
const payTo: Hex = '0x00000000000000000000000000000000000fa12b';

let chain: AnvilChain;
let proxy: FaultProxy;
let paymentServer: PaymentServer;
let fixture: Fixture;

const settingsWith = (changes: object = {}): FixtureOptions['settings'] => ({
  base: baseRail({
    payTo,
    rpcUrl: proxy.url,
    gasKey,
    refundKey: treasuryKey,
    warnBelowEth: 0.002,
    ...changes,
  }),
});

describe('top-ups on Base', () => {
  before(async () => {
    chain = await startAnvil();
    proxy = await startFaultProxy(chain.rpcUrl);
    paymentServer = await startPaymentServer();
    fixture = await openFixture({ settings: settingsWith(), publicUrl: paymentServer.url });
    paymentServer.fixture = fixture;
    await chain.fund(gas, ETH);
  });

  after(async () => {
    await fixture.close();
    await paymentServer.stop();
    await proxy.stop();
    await chain.stop();
  });

  afterEach(async () => {
    proxy.fate = () => 'pass';
    await chain.client.setAutomine(true);
    await chain.fund(gas, ETH);
    // After every test: all the money that arrived is credited, to the cent.
    await assertLedgerIsChain();
  });

  /** Transfers to the receiver that pay for something else. */
  let foreign = 0n;

  /** Postings that came from payments, against the balance of the receiver. */
  async function assertLedgerIsChain(): Promise<void> {
    await chain.client.mine({ blocks: 1 });
    let [credited, received] = [0n, 0n];
    const isEven = async (): Promise<boolean> => {
      const rows = await fixture.store.query<{ total: bigint | null }>(
        `SELECT SUM(amount) AS total FROM testledger_entry WHERE entry_key LIKE 'eip155:%'`,
      );
      credited = (rows[0]?.total ?? 0n) / 1_000n;
      received = (await chain.balance(payTo)) - foreign;
      if (credited === received) return true;
      await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0');
      await fixture.payments.sweep();
      return false;
    };
    await until(isEven, () => `credits of ${received}: they are ${credited}, which`, 50);
  }

  async function buyer(units = 100_000_000n): Promise<PrivateKeyAccount> {
    const account = privateKeyToAccount(generatePrivateKey());
    await chain.mint(account.address, units);
    return account;
  }

  /** A header that lasts ten minutes by the time of the chain. */
  async function signPayment(
    account: PrivateKeyAccount,
    authorization: Readonly<Record<string, string>> = {},
    envelope: Readonly<Record<string, unknown>> = {},
  ): Promise<string> {
    const { timestamp } = await chain.client.getBlock();
    const validBefore = String(timestamp + 600n);
    const terms = { validBefore, ...authorization };
    return await transferHeader(account, payTo, { authorization: terms, envelope });
  }

  const post = async (header: string, name?: string) =>
    await postTopUp(paymentServer, header, name);

  describe('official clients', () => {
    test('@x402/fetch tops up, chats with its sign-in, and reads a receipt that verifies', async () => {
      const account = await buyer();
      const client = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
      client.setSpendControls({ maxAmountPerPayment: '$25' });
      const pay = wrapFetchWithPayment(fetch, client);
      const response = await pay(`${paymentServer.url}/api/v1/x402/top-up`, { method: 'POST' });
      assert.equal(response.status, 200);
      const { data } = (await response.json()) as { data: Record<string, unknown> };
      assert.deepEqual(data, {
        walletAddress: account.address.toLowerCase(),
        amountCredited: 5,
        newBalance: 5,
        paymentId: data['paymentId'],
      });
      const settled = decodePaymentResponseHeader(response.headers.get('PAYMENT-RESPONSE') ?? '');
      assert.equal(settled.success, true);
      assert.equal(settled.payer, account.address.toLowerCase());
      const receipt = extractReceiptFromResponse(response);
      assert.ok(receipt?.format === 'jws');
      const payload = await verifyReceiptSignatureJWS(receipt);
      assert.equal(payload.transaction, settled.transaction);
      assert.equal(payload.payer, account.address.toLowerCase());

      const signer = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
      signer.registerExtension(createSIWxClientExtension({ signers: [account] }));
      const chat = await wrapFetchWithPayment(fetch, signer)(
        `${paymentServer.url}/api/v1/chat/completions`,
        {
          method: 'POST',
        },
      );
      assert.equal(chat.status, 200);
      assert.equal(chat.headers.get('X-Balance-Remaining'), '4.990000');
    });

    test('@x402/fetch pointed at the paid endpoint pays there and is served', async () => {
      const account = await buyer();
      const client = new x402Client().register('eip155:8453', new ExactEvmScheme(account));
      client.setSpendControls({ maxAmountPerPayment: '$25' });
      const response = await wrapFetchWithPayment(fetch, client)(
        `${paymentServer.url}/api/v1/chat/completions`,
        { method: 'POST' },
      );
      assert.equal(response.status, 200);
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano('9.99'));
    });

    test('a contract wallet pays and signs in (EIP-1271)', async () => {
      const owner = privateKeyToAccount(generatePrivateKey());
      const wallet = privateKeyToAccount(generatePrivateKey()).address;
      await chain.placeWallet(wallet, owner.address);
      await chain.mint(wallet, 10_000_000n);
      const answer = await post(await signPayment(owner, { from: wallet }));
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
      const required = await fixture.payments.requirements.discovery({
        path: '/x',
        description: 'x',
      });
      const { info } = (
        required.body as { extensions: Record<string, { info: Record<string, string> }> }
      ).extensions['sign-in-with-x']!;
      const fields = { ...info, address: wallet, chainId: 'eip155:8453', type: 'eip1271' };
      const { buildMessage } = await import('./sign-in/message.ts');
      const text = buildMessage({
        family: 'evm',
        chainReference: '8453',
        requestId: undefined,
        notBefore: undefined,
        resources: undefined,
        ...(info as never as {
          domain: string;
          uri: string;
          version: string;
          nonce: string;
          issuedAt: string;
          expirationTime: string;
          statement: string;
        }),
        address: wallet,
      });
      const signature = await owner.signMessage({ message: text });
      const signed = await fixture.payments.signIn.verify(
        encodeHeader({ ...fields, signature }),
        '',
      );
      assert.equal(signed.wallet, wallet.toLowerCase());
      const stranger = await privateKeyToAccount(generatePrivateKey()).signMessage({
        message: text,
      });
      await assert.rejects(
        fixture.payments.signIn.verify(encodeHeader({ ...fields, signature: stranger }), ''),
        /does not match the message/,
      );
    });
  });

  describe('once and only once', () => {
    test('a repeated header, also in another layout, is reported as credited, without a balance', async () => {
      const account = await buyer();
      const signed = await signPayment(account, { value: '7250000' });
      const first = await post(signed);
      assert.equal(first.status, 200);
      const again = await post(signed, 'X-402-Payment');
      const { authorization, signature } = authorizationOf(signed);
      const flat = encodeHeader({
        x402Version: 1,
        scheme: 'exact',
        network: 'base',
        payload: { authorization, signature },
      });
      const old = await post(flat, 'X-PAYMENT');
      for (const repeat of [again, old]) {
        assert.equal(repeat.status, 200);
        const { newBalance, ...told } = first.body.data ?? {};
        assert.equal(newBalance, 7.25);
        assert.deepEqual(repeat.body.data, { ...told, alreadyCredited: true });
        assert.equal(repeat.headers.get('PAYMENT-RESPONSE'), first.headers.get('PAYMENT-RESPONSE'));
      }
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano('7.25'));
    });

    test('a signature that ends with 0 or 1 is credited like one that ends with 27 or 28', async () => {
      const account = await buyer();
      const { authorization, signature } = authorizationOf(await signPayment(account));
      const accepted = { scheme: 'exact', network: 'eip155:8453' };
      const headerOf = (given: string) =>
        encodeHeader({ x402Version: 2, accepted, payload: { authorization, signature: given } });
      const short = `${signature.slice(0, -2)}${signature.endsWith('1b') ? '00' : '01'}`;
      const first = await post(headerOf(short));
      assert.equal(first.status, 200, JSON.stringify(first.body));
      const again = await post(headerOf(signature));
      assert.equal(again.body.data?.['alreadyCredited' as never], true);
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano(5));
    });

    test('addresses in upper case, which contain no checksum, are those of the same payment', async () => {
      const account = await buyer();
      const { authorization, signature } = authorizationOf(await signPayment(account));
      const accepted = { scheme: 'exact', network: 'eip155:8453' };
      const upper = (text: string): string => `0x${text.slice(2).toUpperCase()}`;
      const { from, to } = authorization;
      const spelled = { ...authorization, from: upper(from), to: upper(to) };
      const headerOf = (given: object) =>
        encodeHeader({ x402Version: 2, accepted, payload: { authorization: given, signature } });
      const first = await post(headerOf(spelled));
      assert.equal(first.status, 200, JSON.stringify(first.body));
      const again = await post(headerOf(authorization));
      assert.equal(again.body.data?.['alreadyCredited' as never], true);
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano(5));
    });

    test('the same header three times at once is credited once', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      const answers = await Promise.all(
        [1, 2, 3].map(() => postTopUpAtLast(paymentServer, header)),
      );
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200, 200],
      );
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano(5));
    });

    test('eight payments of eight wallets at once are all settled', async () => {
      const accounts = await Promise.all(
        Array.from({ length: 8 }, async () => privateKeyToAccount(generatePrivateKey())),
      );
      for (const account of accounts) await chain.mint(account.address, 20_000_000n);
      const headers = await Promise.all(
        accounts.map(async (account) => await signPayment(account)),
      );
      const answers = await Promise.all(
        headers.map(async (header) => await postTopUpAtLast(paymentServer, header)),
      );
      assert.deepEqual(
        answers.map(({ status }) => status),
        Array.from({ length: 8 }, () => 200),
      );
    });

    test('two processes given the same payment credit it once', async () => {
      const account = await buyer();
      const second = await openFixture({
        settings: settingsWith(),
        publicUrl: paymentServer.url,
        folder: fixture.folder,
      });
      const header = await signPayment(account);
      const before = await fixture.postings();
      const results = await Promise.all([paidAtLast(fixture, header), paidAtLast(second, header)]);
      const balances = results.map(({ newBalanceNano }) => newBalanceNano);
      assert.deepEqual(new Set(balances), new Set([usdToNano(5), undefined]));
      const [one, other] = results.map((receipt) => ({ ...receipt, newBalanceNano: undefined }));
      assert.deepEqual(one, other);
      assert.equal((await fixture.postings()) - before, 1);
      await second.close();
    });

    test('two processes with one gas key settle eight different payments', async () => {
      const second = await openFixture({
        settings: settingsWith(),
        publicUrl: paymentServer.url,
        folder: fixture.folder,
      });
      const headers: string[] = [];
      for (let index = 0; index < 8; index += 1) headers.push(await signPayment(await buyer()));
      const results = await Promise.allSettled(
        headers.map(
          async (header, index) =>
            await (index % 2 ? second : fixture).payments.headers.topUp(header),
        ),
      );
      for (const result of results) {
        if (result.status === 'rejected')
          assert.match(String(result.reason), /not confirmed yet|no money has moved/);
      }
      // Whatever collided is finished by sending the same header again.
      for (const header of headers) await paidAtLast(fixture, header);
      await second.close();
    });

    test('the payment identifier is bound to its payment', async () => {
      const account = await buyer();
      const extensions = {
        'payment-identifier': { info: { required: false, id: `order_${Date.now()}_abcdef` } },
      };
      const first = await signPayment(account, {}, { extensions });
      assert.equal((await post(first)).status, 200);
      assert.equal((await post(first)).status, 200);
      const other = await post(await signPayment(account, {}, { extensions }));
      assert.equal(other.status, 409);
      assert.equal(other.body.details?.reason, 'payment_identifier_conflict');
    });
  });

  describe('faults', () => {
    test('a payment whose broadcast response is lost is credited', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-reply' : 'pass');
      const answer = await post(header);
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
    });

    test('a payment whose broadcast is lost is pending, and credited when its header is repeated', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      loseBroadcasts();
      const first = await post(header);
      assert.equal(first.status, 202, JSON.stringify(first.body));
      assert.equal(first.body.error, 'SETTLEMENT_PENDING');
      assert.match(first.body.message ?? '', /do not sign a new one/);
      assert.ok(first.headers.get('Retry-After'));
      proxy.fate = () => 'pass';
      assert.equal((await post(header)).status, 200);
    });

    test('an unmined payment is 202 until it is mined, never 402', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      await chain.client.setAutomine(false);
      const first = await post(header);
      const second = await post(header);
      assert.deepEqual([first.status, second.status], [202, 202]);
      assert.equal(
        decodePaymentResponseHeader(second.headers.get('PAYMENT-RESPONSE') ?? '').errorReason,
        'settlement_pending',
      );
      await chain.client.mine({ blocks: 1 });
      await chain.client.setAutomine(true);
      assert.equal((await post(header)).status, 200);
    });

    test('the sweep credits a payment that is mined without a retry', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      await chain.client.setAutomine(false);
      assert.equal((await post(header)).status, 202);
      await chain.client.mine({ blocks: 1 });
      await chain.client.setAutomine(true);
      await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0');
      await fixture.payments.sweep();
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano(5));
    });

    test('a payment that a third party sends after us is credited once', async () => {
      const account = await buyer();
      const signed = await signPayment(account);
      loseBroadcasts();
      assert.equal((await post(signed)).status, 202);
      proxy.fate = () => 'pass';
      await chain.callToken('transferWithAuthorization', transferArgs(signed));
      const answer = await post(signed);
      assert.equal(answer.status, 200, JSON.stringify(answer.body));
      assert.equal((await post(signed)).status, 200);
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano(5));
    });

    test('an authorization that was used before we received it is refused', async () => {
      const account = await buyer();
      const signed = await signPayment(account);
      await chain.callToken('transferWithAuthorization', transferArgs(signed));
      foreign += 5_000_000n;
      for (let round = 0; round < 2; round += 1) {
        const answer = await post(signed);
        assert.equal(answer.status, 400, JSON.stringify(answer.body));
        assert.equal(answer.body.details?.reason, 'authorization_already_used');
      }
      // A node that has not seen the use yet reports the payment as valid; its block number proves
      // that it is late.
      const late = await signPayment(account);
      loseBroadcasts();
      assert.equal((await post(late)).status, 202);
      proxy.fate = () => 'pass';
      await chain.callToken('transferWithAuthorization', transferArgs(late));
      foreign += 5_000_000n;
      await fixture.store.query(
        `UPDATE payments_topup SET start_height = start_height + 1, start_block = NULL
         WHERE wallet = $1`,
        [account.address.toLowerCase()],
      );
      assert.equal((await post(late)).status, 400);
      assert.equal(await fixture.balance(account.address.toLowerCase()), 0n);
    });

    test('a payment to another ledger with the same receiver is not credited here', async () => {
      const other = await openFixture({ settings: settingsWith(), publicUrl: paymentServer.url });
      const account = await buyer();
      const header = await signPayment(account);
      await other.payments.headers.topUp(header);
      foreign += 5_000_000n;
      const answer = await post(header);
      assert.equal(answer.status, 400, JSON.stringify(answer.body));
      assert.equal(answer.body.details?.reason, 'authorization_already_used');
      assert.equal(await fixture.balance(account.address.toLowerCase()), 0n);
      assert.equal(await other.balance(account.address.toLowerCase()), usdToNano(5));
      await other.close();
    });

    test('a cancelled authorization is 402 with its reason', async () => {
      const key = generatePrivateKey();
      const account = privateKeyToAccount(key);
      await chain.mint(account.address, 5_000_000n);
      const signed = await signPayment(account);
      await cancelAuthorization(chain, key, signed);
      const answer = await post(signed);
      assert.equal(answer.status, 402);
      assert.equal(answer.body.error, 'SETTLEMENT_FAILED');
      assert.equal(answer.body.details?.reason, 'authorization_cancelled');
    });

    test('one transfer cannot settle two authorizations of one transaction', async () => {
      const account = await buyer();
      const paid = await signPayment(account);
      const nonce = generatePrivateKey();
      const elsewhere = await signPayment(account, {
        nonce,
        to: '0x00000000000000000000000000000000000e15e1',
      });
      const claimed = await signPayment(account, { nonce });
      loseBroadcasts();
      assert.deepEqual([(await post(paid)).status, (await post(claimed)).status], [202, 202]);
      proxy.fate = () => 'pass';
      const calls = [paid, elsewhere].map((one) => ({
        target: USDC,
        allowFailure: false,
        callData: encodeFunctionData({
          abi: USDC_ABI,
          functionName: 'transferWithAuthorization',
          args: transferArgs(one) as never,
        }),
      }));
      await chain.fund(account.address, ETH);
      const wallet = walletOf(account);
      const hash = await wallet.writeContract({
        address: MULTICALL,
        abi: parseAbi([
          'function aggregate3((address target, bool allowFailure, bytes callData)[] calls) payable',
        ]),
        functionName: 'aggregate3',
        args: [calls],
        gas: 1_000_000n,
      });
      await chain.client.waitForTransactionReceipt({ hash });
      assert.equal((await post(paid)).status, 200);
      const answer = await post(claimed);
      assert.equal(answer.status, 402, JSON.stringify(answer.body));
      assert.equal(await fixture.balance(account.address.toLowerCase()), usdToNano(5));
    });

    test('a payment without gas is 503, and credited from the same header once there is gas', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      await chain.fund(gas, 0n);
      const answer = await post(header);
      assert.ok([202, 503].includes(answer.status), `${answer.status}`);
      assert.match(answer.body.message ?? '', /same header/);
      const health = await fixture.payments.railMonitor.check();
      assert.equal(health[0]?.isReady, false);
      await chain.fund(gas, ETH);
      assert.equal((await fixture.payments.railMonitor.check())[0]?.isReady, true);
      assert.equal((await post(header)).status, 200);
    });

    test('an unreachable chain causes 503, never a rejection of the payment', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      proxy.fate = () => 'lose-request';
      const answer = await post(header);
      assert.equal(answer.status, 503, JSON.stringify(answer.body));
      proxy.fate = () => 'pass';
      assert.equal((await post(header)).status, 200);
    });

    test('a payment is pending while receipts cannot be read', async () => {
      const account = await buyer();
      const header = await signPayment(account);
      let isDown = false;
      proxy.fate = (method) => {
        if (method === 'eth_sendRawTransaction') isDown = true;
        else if (isDown) return 'lose-request';
        return 'pass';
      };
      assert.equal((await post(header)).status, 202);
      proxy.fate = () => 'pass';
      assert.equal((await post(header)).status, 200);
    });

    test('a payment whose payer moves the money away is 402 after the revert', async () => {
      const account = await buyer(5_000_000n);
      await chain.fund(account.address, ETH);
      const header = await signPayment(account);
      await chain.client.setAutomine(false);
      // The payer's own transfer is mined first: it offers more for its place.
      const wallet = walletOf(account);
      const posted = post(header);
      await untilPending();
      await wallet.writeContract({
        address: USDC,
        abi: USDC_ABI,
        functionName: 'transfer',
        args: ['0x00000000000000000000000000000000000e15e1', 5_000_000n],
        gas: 100_000n,
        maxFeePerGas: 40_000_000_000n,
        maxPriorityFeePerGas: 30_000_000_000n,
      });
      await chain.client.mine({ blocks: 1 });
      const answer = await posted;
      await chain.client.setAutomine(true);
      const last = answer.status === 202 ? await post(header) : answer;
      assert.equal(last.status, 402, JSON.stringify(last.body));
      assert.equal(await fixture.balance(account.address.toLowerCase()), 0n);
    });

    test('an authorization that expires unused is 402 with its reason', async () => {
      const account = await buyer();
      const { timestamp } = await chain.client.getBlock();
      const header = await signPayment(account, { validBefore: String(timestamp + 30n) });
      loseBroadcasts();
      assert.equal((await post(header)).status, 202);
      await chain.client.increaseTime({ seconds: 100 });
      await chain.client.mine({ blocks: 1 });
      const answer = await post(header);
      assert.equal(answer.status, 402);
      assert.equal(answer.body.details?.reason, 'authorization_expired');
      assert.equal((await post(header)).status, 402);
    });
  });

  function loseBroadcasts(): void {
    proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-request' : 'pass');
  }

  const walletOf = (account: PrivateKeyAccount) =>
    createWalletClient({ account, chain: BASE_CHAIN, transport: http(chain.rpcUrl) });

  async function checkRefunds(): Promise<void> {
    await fixture.store.query('UPDATE payments_refund SET next_check_ms = 0, lease_until_ms = 0');
    await fixture.payments.sweep();
  }

  async function untilPending(): Promise<void> {
    await until(async () => {
      const block = await chain.client.getBlock({ blockTag: 'pending' });
      return block.transactions.length > 0;
    }, 'a pending transaction');
  }

  describe('beyond a top-up', () => {
    test('a refund pays unused credit back, once, and the ledger follows', async () => {
      const account = await buyer();
      await post(await signPayment(account));
      await chain.client.mine({ blocks: 70 });
      const treasury = privateKeyToAccount(treasuryKey).address;
      await chain.mint(treasury, 50_000_000n);
      const wallet = account.address.toLowerCase();
      const before = await chain.balance(account.address);
      const refund = await fixture.payments.refunds.refund(account.address, usdToNano('1.5'));
      assert.equal(refund.state, 'paid');
      assert.equal((await chain.balance(account.address)) - before, 1_500_000n);
      assert.equal(await fixture.balance(wallet), usdToNano('3.5'));
      await assert.rejects(
        fixture.payments.refunds.refund(account.address, usdToNano(4)),
        /balance is too low/,
      );
      assert.equal(await fixture.balance(wallet), usdToNano('3.5'));
    });

    test('a refund takes no credit that the chain could still undo', async () => {
      const account = await buyer();
      const wallet = account.address.toLowerCase();
      await chain.mint(privateKeyToAccount(treasuryKey).address, 50_000_000n);
      const { refunds } = fixture.payments;
      await post(await signPayment(account));
      await assert.rejects(
        refunds.refund(wallet, usdToNano(1)),
        /could still undo x402-\w+ \(5\.000000 USD\)/,
      );
      assert.equal(await fixture.balance(wallet), usdToNano(5));
      await chain.client.mine({ blocks: 70 });
      await post(await signPayment(account));
      const [open, ...others] = await refunds.openCredits(account.address);
      assert.deepEqual([open?.amountNano, others], [usdToNano(5), []]);
      await assert.rejects(refunds.refund(wallet, usdToNano('5.000001')), /less final credit/);
      assert.equal((await refunds.refund(wallet, usdToNano(5))).state, 'paid');
      await assert.rejects(refunds.refund(wallet, usdToNano('0.000001')), /less final credit/);
      await chain.client.mine({ blocks: 70 });
      assert.deepEqual(await refunds.openCredits(account.address), []);
      assert.equal((await refunds.refund(wallet, usdToNano(5))).state, 'paid');
      assert.equal(await fixture.balance(wallet), 0n);
    });

    test('a refund that expired is credited back when the blocks that say so are final', async () => {
      const account = await buyer();
      const wallet = account.address.toLowerCase();
      await post(await signPayment(account));
      await chain.client.mine({ blocks: 70 });
      await chain.mint(privateKeyToAccount(treasuryKey).address, 50_000_000n);
      const before = await chain.balance(account.address);
      loseBroadcasts();
      const { refundId } = await fixture.payments.refunds.refund(wallet, usdToNano(2));
      await chain.client.increaseTime({ seconds: 2 * 86_400 });
      await chain.client.mine({ blocks: 1 });
      await checkRefunds();
      assert.equal((await fixture.payments.refunds.state(refundId)).state, 'sent');
      assert.equal(await fixture.balance(wallet), usdToNano(3));
      await chain.client.mine({ blocks: 70 });
      await checkRefunds();
      proxy.fate = () => 'pass';
      assert.equal((await fixture.payments.refunds.state(refundId)).state, 'failed');
      assert.equal(await fixture.balance(wallet), usdToNano(5));
      assert.equal(await chain.balance(account.address), before);
    });

    test('a refund whose broadcast was lost is finished by the sweep, once', async () => {
      const account = await buyer();
      await post(await signPayment(account));
      await chain.client.mine({ blocks: 70 });
      await chain.mint(privateKeyToAccount(treasuryKey).address, 50_000_000n);
      const before = await chain.balance(account.address);
      loseBroadcasts();
      const refund = await fixture.payments.refunds.refund(account.address, usdToNano(1));
      assert.notEqual(refund.state, 'paid');
      proxy.fate = () => 'pass';
      for (let round = 0; round < 3; round += 1) {
        await checkRefunds();
      }
      assert.equal((await fixture.payments.refunds.state(refund.refundId)).state, 'paid');
      assert.equal((await chain.balance(account.address)) - before, 1_000_000n);
    });

    test('the exposed facilitator verifies and settles for others, and refuses garbage', async () => {
      const shop: Hex = '0x0000000000000000000000000000000000005409';
      const account = await buyer();
      const { authorization, signature } = authorizationOf(
        await signPayment(account, { to: shop }),
      );
      const accepted = {
        scheme: 'exact',
        network: 'eip155:8453',
        asset: USDC,
        amount: '5000000',
        payTo: shop,
        maxTimeoutSeconds: 60,
        extra: { name: 'USD Coin', version: '2' },
      };
      const body = {
        paymentPayload: { x402Version: 2, accepted, payload: { authorization, signature } },
        paymentRequirements: accepted,
      };
      const { facilitator } = fixture.payments;
      assert.ok(facilitator);
      const call = async (given: unknown): Promise<unknown[]> => {
        const verified = (await facilitator.call('verify', given)) as { isValid: boolean };
        const settled = (await facilitator.call('settle', given)) as { success: boolean };
        return [verified.isValid, settled.success];
      };
      assert.deepEqual(await call(body), [true, true]);
      assert.equal(await chain.balance(shop), 5_000_000n);
      const next = authorizationOf(await signPayment(account, { to: shop }));
      const last = next.signature.endsWith('1b') ? '00' : '01';
      const payload = { ...next, signature: `${next.signature.slice(0, -2)}${last}` };
      const other = { ...body, paymentPayload: { ...body.paymentPayload, payload } };
      assert.deepEqual(await call(other), [true, true]);
      const empty = { x402Version: 2, accepted, payload: {} };
      for (const bad of [undefined, {}, { paymentPayload: {} }, { ...body, paymentPayload: empty }])
        assert.deepEqual(await call(bad), [false, false]);
      const { paymentPayload } = body;
      for (const odd of [
        { accepted: { ...accepted, network: null } },
        { payload: { authorization: { ...authorization, from: 1e99 }, signature } },
      ]) {
        const bad = { ...body, paymentPayload: { ...paymentPayload, ...odd } };
        assert.deepEqual(await facilitator.call('verify', bad), {
          isValid: false,
          invalidReason: 'invalid_payload',
        });
        assert.deepEqual(await facilitator.call('settle', bad), {
          success: false,
          errorReason: 'invalid_payload',
          transaction: '',
          network: '',
        });
      }
    });
  });
});
