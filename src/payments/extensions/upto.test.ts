/**
 * Payments of the scheme `upto` on a private Base with the contracts of the true one: a wallet signs a
 * ceiling, what a request wants is moved once, and after each fault the ledger equals the chain.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from '@x402/core/http';
import {
  PERMIT2_ADDRESS as PERMIT2,
  x402UptoPermit2ProxyABI as UPTO_ABI,
  x402UptoPermit2ProxyAddress as UPTO_PROXY,
} from '@x402/evm';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { type Hex, encodeFunctionData, parseAbi } from 'viem';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type AnvilChain, startAnvil, USDC } from '../../../test/chains/anvil.ts';
import { type FaultProxy, startFaultProxy } from '../../../test/chains/fault-proxy.ts';
import { killedAt } from '../../../test/support/payments-crash.ts';
import { BAD_SIGNATURE, encodeHeader } from '../../../test/support/payers.ts';
import {
  type Fixture,
  type FixtureOptions,
  openFixture,
  baseRail,
} from '../../../test/support/payments.ts';
import { systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, nano, usdToNano } from '../../core/money.ts';
import { permit2TypedData } from './upto.ts';
import { BASE } from '../networks.ts';
import type { Permit2 } from '../payment.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const gasKey = generatePrivateKey();
const gas = privateKeyToAccount(gasKey);
const RESOURCE = { path: '/api/v1/chat/completions', description: 'Chat' };
const PROOF = {
  claim: undefined,
  idempotencyKey: undefined,
  path: RESOURCE.path,
  clientAddress: '',
};
const CANCEL_ABI = parseAbi(['function invalidateUnorderedNonces(uint256 word, uint256 mask)']);
const USD = 1_000_000n;

describe('upto on Base', () => {
  let chain: AnvilChain;
  let proxy: FaultProxy;
  let fixture: Fixture;
  let laterMs = 0;
  const clock = { ...systemClock(), nowMs: () => Date.now() + laterMs };

  const settingsWith = (changes: object = {}): FixtureOptions['settings'] => ({
    base: baseRail({ payTo, rpcUrl: proxy.url, gasKey, upto: true, ...changes }),
  });

  before(async () => {
    chain = await startAnvil();
    await chain.deployPermit2();
    await chain.fund(gas.address, 10n ** 18n);
    proxy = await startFaultProxy(chain.rpcUrl);
    fixture = await openFixture({ settings: settingsWith(), clock });
  });
  afterEach(async () => {
    proxy.fate = () => 'pass';
    laterMs = 0;
    await chain.client.setAutomine(true);
    await assertLedgerIsChain();
  });
  after(async () => {
    await fixture.close();
    await proxy.stop();
    await chain.stop();
  });

  /** Credits of other ledgers of these tests, in base units. */
  let elsewhere = 0n;

  async function assertLedgerIsChain(): Promise<void> {
    await chain.client.mine({ blocks: 1 });
    for (let round = 0; ; round += 1) {
      const [row] = await fixture.store.query<{ total: bigint | null }>(
        'SELECT CAST(SUM(amount) AS BIGINT) AS total FROM testledger_entry',
      );
      const credited = (row?.total ?? 0n) / 1_000n;
      const received = (await chain.balance(payTo)) - elsewhere;
      if (credited === received) return;
      assert.ok(round < 20, `${credited} is credited and ${received} has arrived`);
      await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0, lease_until_ms = 0');
      await fixture.payments.sweep();
    }
  }

  async function buyer(approved = 100n * USD): Promise<PrivateKeyAccount> {
    const account = privateKeyToAccount(generatePrivateKey());
    await chain.mint(account.address, 100n * USD);
    if (approved > 0n) await chain.approvePermit2(account.address, approved);
    return account;
  }

  /** The payment of the unmodified official client for the 402; with a node it reads the allowance. */
  async function officialHeader(
    account: PrivateKeyAccount,
    from = fixture,
    rpcUrl?: string,
  ): Promise<string> {
    const scheme = new UptoEvmScheme(account, rpcUrl === undefined ? undefined : { rpcUrl });
    const client = new x402Client().register('eip155:*', scheme);
    const { header } = await from.payments.requirements.discovery(RESOURCE);
    return encodeHeader(await client.createPaymentPayload(decodePaymentRequiredHeader(header)));
  }

  /** The same of a wallet that has approved nothing, and what it signed for the token. */
  async function sponsoredHeader(account: PrivateKeyAccount, from = fixture): Promise<string> {
    const header = await officialHeader(account, from, chain.rpcUrl);
    assert.match(approvalOf(header)['signature'] ?? '', /^0x/);
    return header;
  }

  const decode = (header: string) =>
    JSON.parse(Buffer.from(header, 'base64').toString()) as {
      payload: { permit2Authorization: { nonce: string } };
      extensions: { eip2612GasSponsoring: { info: Record<string, string> } };
    };
  const approvalOf = (header: string) => decode(header).extensions.eip2612GasSponsoring.info;

  function withApproval(header: string, changes: object): string {
    const payment = decode(header);
    const { info } = payment.extensions.eip2612GasSponsoring;
    payment.extensions.eip2612GasSponsoring.info = { ...info, ...changes };
    return encodeHeader(payment);
  }

  type Changes = Partial<Omit<Permit2, 'kind'>> & {
    spender?: string;
    sent?: object;
    scheme?: string;
  };

  async function signedHeader(account: PrivateKeyAccount, changes: Changes = {}): Promise<string> {
    const { spender = UPTO_PROXY, sent = {}, scheme = 'upto', ...terms } = changes;
    const permit = {
      kind: 'permit2' as const,
      from: account.address,
      to: payTo,
      token: USDC,
      ceiling: 20n * USD,
      nonce: BigInt(generatePrivateKey()),
      deadline: BigInt(Math.floor(Date.now() / 1000) + 300),
      validAfter: 0n,
      facilitator: gas.address,
      ...terms,
    };
    const signature = await account.signTypedData(permit2TypedData(BASE, permit));
    const permit2Authorization = {
      from: permit.from,
      permitted: { token: permit.token, amount: String(permit.ceiling) },
      spender,
      nonce: String(permit.nonce),
      deadline: String(permit.deadline),
      witness: { to: permit.to, facilitator: permit.facilitator, validAfter: '0' },
      ...sent,
    };
    const accepted = { scheme, network: BASE };
    return encodeHeader({ x402Version: 2, accepted, payload: { permit2Authorization, signature } });
  }

  const offer = async (header: string, by = fixture) =>
    await by.payments.headers.offer(header, PROOF);
  const pay = async (header: string, wanted: Nano, by = fixture) =>
    await (await offer(header, by)).take(wanted);
  const balanceOf = async (account: PrivateKeyAccount): Promise<bigint> =>
    await fixture.balance(account.address.toLowerCase());

  async function refusal(work: Promise<unknown>) {
    const error: unknown = await work.then(
      () => assert.fail('it was taken'),
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof Fault, String(error));
    const body = error.options.body as { details?: { reason?: string } } | undefined;
    return { code: error.code, message: error.message, reason: body?.details?.reason };
  }

  async function rowsOf(account: PrivateKeyAccount) {
    return await fixture.store.query<{
      state: string;
      amount_units: bigint;
      tx_id: Hex;
      raw_tx: Hex;
    }>('SELECT * FROM payments_topup WHERE wallet = $1', [account.address.toLowerCase()]);
  }

  /** The payment of a process that was killed, after another one, without the scheme, has opened its ledger. */
  async function restartedAfter(killed: {
    readonly dieAt: string;
    readonly first: Fixture;
    readonly header: string;
    readonly account: PrivateKeyAccount;
    readonly wanted: Nano;
  }): Promise<Fixture> {
    const { dieAt, first, header, account, wanted } = killed;
    const { folder } = first;
    const order = { folder, settings: settingsWith(), header, wanted: String(wanted), dieAt };
    assert.equal(await killedAt(order), 'SIGKILL');
    const second = await openFixture({ settings: settingsWith({ upto: false }), folder });
    await second.store.query('UPDATE payments_topup SET lease_until_ms = 0');
    await second.payments.sweep();
    assert.equal(await second.balance(account.address.toLowerCase()), wanted);
    assert.equal(await second.postings(), 1);
    assert.equal(await chain.balance(account.address), 100n * USD - wanted / 1_000n);
    elsewhere += wanted / 1_000n;
    await first.close();
    return second;
  }

  async function untilReceived(units: bigint): Promise<void> {
    for (let round = 0; round < 20 && (await chain.balance(payTo)) < units; round += 1) {
      await fixture.store.query('UPDATE payments_topup SET next_check_ms = 0');
      await fixture.payments.sweep();
      await chain.client.mine({ blocks: 1 });
    }
    assert.equal(await chain.balance(payTo), units);
  }

  describe('as it is offered', () => {
    test('it is the last option of a 402, with the gas key as the facilitator', async () => {
      const { header } = await fixture.payments.requirements.discovery(RESOURCE);
      const { accepts } = decodePaymentRequiredHeader(header);
      assert.deepEqual(
        accepts.map(({ scheme, amount }) => [scheme, amount]),
        [
          ['exact', '10000000'],
          ['exact', '1000000'],
          ['upto', '1000000'],
        ],
      );
      assert.deepEqual(accepts[2]?.extra, {
        name: 'USD Coin',
        version: '2',
        assetTransferMethod: 'permit2',
        facilitatorAddress: gas.address,
      });
      const missing = { balance: usdToNano(0), needed: usdToNano('3.2') };
      const more = await fixture.payments.requirements.insufficientCredit(RESOURCE, missing);
      const asked = decodePaymentRequiredHeader(more.header).accepts.at(-1);
      assert.deepEqual([asked?.scheme, asked?.amount], ['upto', '4000000']);
      const topUp = await fixture.payments.requirements.topUp(RESOURCE);
      const schemes = decodePaymentRequiredHeader(topUp.header).accepts.map(({ scheme }) => scheme);
      assert.deepEqual(new Set(schemes), new Set(['exact']));
    });

    test('it is absent from a 402 and refused where it is off', async () => {
      const other = await openFixture({ settings: settingsWith({ upto: false }) });
      const { accepts } = (await other.payments.requirements.discovery(RESOURCE)).body as {
        accepts: { scheme: string; extra: object }[];
      };
      assert.equal(accepts.length, 2);
      assert.equal(JSON.stringify(accepts).includes('upto'), false);
      const account = await buyer();
      const { code } = await refusal(pay(await officialHeader(account), usdToNano(1), other));
      assert.equal(code, 'UNSUPPORTED_SCHEME');
      await other.close();
    });
  });

  describe('what is moved', () => {
    for (const [wanted, units] of [
      [250_000_000n, 250_000n],
      [250_000_100n, 250_001n],
      [10_000n, 100_000n],
      [1n, 100_000n],
      [40_000_000_000n, 1_000_000n],
    ] as const) {
      test(`of the official client's 1 USD, for a request that wants ${wanted} nano-USD: ${units} units`, async () => {
        const account = await buyer();
        const offered = await offer(await officialHeader(account));
        assert.equal(offered.amountNano, usdToNano(1));
        const response = await offered.take(nano(wanted));
        assert.equal(await balanceOf(account), units * 1_000n);
        assert.equal(await chain.balance(account.address), 100n * USD - units);
        const settled = decodePaymentResponseHeader(response);
        assert.deepEqual(
          [settled.success, settled.amount, settled.payer],
          [true, String(units), account.address.toLowerCase()],
        );
      });
    }

    test('a signature moves nothing for a request that credit covers, and serves one request', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      const offers = await Promise.all([1, 2].map(() => offer(header)));
      const served = await Promise.allSettled(offers.map((one) => one.take(nano(0n))));
      const [response, ...more] = served.flatMap((one) =>
        one.status === 'fulfilled' ? [one.value] : [],
      );
      assert.deepEqual(more, [], 'at once');
      assert.deepEqual(decodePaymentResponseHeader(response ?? ''), {
        success: true,
        transaction: '',
        network: BASE,
        payer: account.address.toLowerCase(),
        amount: '0',
      });
      const words = /has already served a request .* no money has moved/;
      for (const wanted of [nano(0n), usdToNano(5)]) {
        const again = await refusal(pay(header, wanted));
        assert.equal(again.code, 'PAYMENT_ALREADY_CREDITED');
        assert.match(again.message, words);
      }
      // Offered before it was spent, and wanted for more than the credit after.
      assert.match((await refusal(offers[0]!.take(usdToNano(5)))).message, words);
      assert.deepEqual(await rowsOf(account), []);
      assert.equal(await chain.balance(account.address), 100n * USD);
    });

    test('a retry of such a request is accepted by its idempotency key and moves nothing', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      const own = { ...PROOF, idempotencyKey: 'a-key-that-nobody-guesses' };
      await (await fixture.payments.headers.offer(header, own)).take(nano(0n));
      const retry = await fixture.payments.headers.offer(header, own);
      assert.equal((await refusal(retry.take(usdToNano(1)))).code, 'PAYMENT_ALREADY_CREDITED');
      const other = { ...own, path: '/api/v1/embeddings' };
      await refusal(fixture.payments.headers.offer(header, other));
      assert.equal(await balanceOf(account), 0n);
    });

    test('a ceiling above the maximum of a payment counts as the maximum', async () => {
      const account = await buyer();
      await chain.mint(account.address, 30_000n * USD);
      await chain.approvePermit2(account.address, 30_000n * USD);
      const header = await signedHeader(account, { ceiling: 20_000n * USD });
      const offered = await offer(header);
      assert.equal(offered.amountNano, usdToNano(10_000));
      await offered.take(usdToNano(7));
      assert.equal(await balanceOf(account), usdToNano(7));
    });

    test('a contract wallet can sign a ceiling (EIP-1271)', async () => {
      const owner = privateKeyToAccount(generatePrivateKey());
      const wallet = privateKeyToAccount(generatePrivateKey());
      await chain.mint(wallet.address, 10n * USD);
      await chain.approvePermit2(wallet.address, 10n * USD);
      await chain.placeWallet(wallet.address, owner.address);
      await pay(
        await signedHeader(owner, { from: wallet.address, ceiling: USD }),
        usdToNano('0.3'),
      );
      assert.equal(await balanceOf(wallet), usdToNano('0.3'));
    });
  });

  describe('once and only once', () => {
    test('a repeated signature is refused as credited, whatever amount is wanted', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      await pay(header, usdToNano(2));
      const again = await refusal(pay(header, usdToNano(5)));
      assert.equal(again.code, 'PAYMENT_ALREADY_CREDITED');
      const topUp = await fixture.payments.headers.topUp(header);
      assert.deepEqual([topUp.amountNano, topUp.newBalanceNano], [usdToNano(2), undefined]);
      assert.equal(await balanceOf(account), usdToNano(2));
    });

    test('another spelling of the nonce or an address is the same authorization', async () => {
      const account = await buyer();
      const terms = { nonce: 12_345n, deadline: BigInt(Math.floor(Date.now() / 1000) + 300) };
      await pay(await signedHeader(account, terms), usdToNano(2));
      const from = account.address.toLowerCase();
      const spelled = await signedHeader(account, { ...terms, sent: { nonce: '00012345', from } });
      assert.equal((await refusal(pay(spelled, usdToNano(2)))).code, 'PAYMENT_ALREADY_CREDITED');
      const other = await signedHeader(account, { ...terms, ceiling: 3n * USD });
      assert.equal((await refusal(pay(other, usdToNano(2)))).code, 'INVALID_PAYMENT');
      assert.equal(await balanceOf(account), usdToNano(2));
    });

    test('one of several requests at once is served, also across processes', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      const other = await openFixture({ settings: settingsWith(), folder: fixture.folder });
      const offers = await Promise.all(
        [fixture, fixture, other].map(
          async ({ payments }) => await payments.headers.offer(header, PROOF),
        ),
      );
      const results = await Promise.allSettled(
        offers.map(async (one, index) => await one.take(usdToNano(index + 1))),
      );
      const served = results.filter(({ status }) => status === 'fulfilled');
      assert.equal(served.length, 1, JSON.stringify(results.map(({ status }) => status)));
      const [row] = await rowsOf(account);
      assert.equal(row?.state, 'credited');
      assert.equal(await balanceOf(account), row.amount_units * 1_000n);
      assert.ok([1n, 2n, 3n].includes(row.amount_units / USD));
      await other.close();
    });

    test('an unmined payment is pending, and its retry finishes it', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      await chain.client.setAutomine(false);
      const first = await refusal(pay(header, usdToNano(2)));
      assert.equal(first.code, 'SETTLEMENT_PENDING');
      await chain.client.setAutomine(true);
      await chain.client.mine({ blocks: 1 });
      const again = await refusal(pay(header, usdToNano(9)));
      assert.equal(again.code, 'PAYMENT_ALREADY_CREDITED');
      assert.equal(await balanceOf(account), usdToNano(2));
    });

    test('a payment whose broadcast response is lost is credited', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      proxy.fate = (method) => (method === 'eth_sendRawTransaction' ? 'lose-reply' : 'pass');
      await pay(header, usdToNano(2));
      assert.equal(await balanceOf(account), usdToNano(2));
    });

    test('a transaction whose fee was raised is found by its call', async () => {
      await chain.client.setNextBlockBaseFeePerGas({ baseFeePerGas: 10n ** 9n });
      await chain.client.mine({ blocks: 1 });
      const account = await buyer();
      // A payment of the same amount to the same receiver that must not be taken for it.
      await pay(await signedHeader(account), usdToNano(2));
      await chain.client.setAutomine(false);
      const header = await signedHeader(account);
      await refusal(pay(header, usdToNano(2)));
      await chain.client.setNextBlockBaseFeePerGas({ baseFeePerGas: 20n * 10n ** 9n });
      await chain.client.mine({ blocks: 1 });
      const before = (await rowsOf(account)).find(({ state }) => state === 'sent');
      laterMs += 31_000;
      await fixture.payments.replaceStuck();
      await chain.client.mine({ blocks: 1 });
      await refusal(pay(header, usdToNano(2)));
      const after = (await rowsOf(account)).map(({ state, tx_id: id }) => [
        state,
        id !== before?.tx_id,
      ]);
      assert.deepEqual(after, [
        ['credited', true],
        ['credited', true],
      ]);
      assert.equal(await balanceOf(account), usdToNano(4));
    });

    test('a payment that a reorganisation drops is sent again unchanged', async () => {
      const account = await buyer();
      await pay(await signedHeader(account), usdToNano(2));
      const before = await chain.balance(payTo);
      await chain.reorg(1);
      assert.equal(before - (await chain.balance(payTo)), 2n * USD, 'the money is gone');
      await untilReceived(before);
      const [row] = await fixture.store.query<{ reversals: bigint }>(
        'SELECT reversals FROM payments_topup WHERE wallet = $1',
        [account.address.toLowerCase()],
      );
      assert.equal(row?.reversals, 0n);
      assert.equal(await balanceOf(account), usdToNano(2));
    });

    for (const dieAt of ['opened', 'journaled', 'settled', 'credited']) {
      test(`a payment killed when ${dieAt} is credited once, as it was wanted, after the restart`, async () => {
        const account = await buyer();
        const first = await openFixture({ settings: settingsWith() });
        const header = await signedHeader(account);
        const second = await restartedAfter({
          dieAt,
          first,
          header,
          account,
          wanted: usdToNano(2),
        });
        const again = await refusal(pay(header, usdToNano(7), second));
        assert.equal(again.code, 'PAYMENT_ALREADY_CREDITED');
        await second.close();
      });
    }
  });

  describe('an approval that is signed beside the payment (EIP-2612)', () => {
    test('the official client of a wallet without ETH and without an approval pays, again and again', async () => {
      const account = await buyer(0n);
      await chain.fund(account.address, 0n);
      for (const round of [1n, 2n]) {
        const header = await sponsoredHeader(account);
        assert.equal(approvalOf(header)['nonce'], String(round - 1n));
        await pay(header, usdToNano('0.3'));
        assert.equal(await balanceOf(account), round * usdToNano('0.3'));
      }
      assert.equal(await chain.client.getTransactionCount({ address: account.address }), 0);
      // No more than the ceiling was approved, and what was moved is taken from that.
      assert.equal(await chain.approved(account.address), USD - 300_000n);
    });

    test('signatures of the ceiling and the approval may end with 0 or 1', async () => {
      const short = (signature: string) =>
        `${signature.slice(0, -2)}${signature.endsWith('1b') ? '00' : '01'}`;
      const account = await buyer(0n);
      const header = await sponsoredHeader(account);
      const approved = withApproval(header, {
        signature: short(approvalOf(header)['signature'] ?? ''),
      });
      const payment = decode(approved) as { payload: Record<string, unknown> };
      const signature = short(String(payment.payload['signature']));
      const sent = { ...payment, payload: { ...payment.payload, signature } };
      await pay(encodeHeader(sent), usdToNano('0.3'));
      assert.equal(await balanceOf(account), usdToNano('0.3'));
    });

    test('an unsigned approval is ignored, and so is an unneeded one', async () => {
      const account = await buyer();
      const header = await officialHeader(account);
      assert.deepEqual(approvalOf(header), { version: '1' });
      await pay(header, usdToNano(1));
      const fresh = await buyer(0n);
      const signed = await sponsoredHeader(fresh);
      await chain.approvePermit2(fresh.address, USD);
      await pay(withApproval(signed, { nonce: '7' }), usdToNano('0.2'));
      assert.equal(await balanceOf(fresh), usdToNano('0.2'));
    });

    test('an approval that somebody else has sent is used', async () => {
      const account = await buyer(0n);
      const header = await sponsoredHeader(account);
      const offered = await offer(header);
      await chain.permit(account.address, PERMIT2, approvalOf(header));
      await offered.take(usdToNano('0.5'));
      assert.equal(await balanceOf(account), usdToNano('0.5'));
    });

    test('an approval that became invalid after the check sends nothing', async () => {
      const account = await buyer(0n);
      const header = await sponsoredHeader(account);
      const other = await sponsoredHeader(account);
      const offered = await offer(header);
      await chain.permit(account.address, PERMIT2, approvalOf(other));
      await chain.approvePermit2(account.address, 0n);
      const said = await refusal(offered.take(usdToNano('0.5')));
      assert.equal(said.reason, 'permit2_allowance_required');
      assert.match(said.message, /eip2612GasSponsoring, with the current nonce/);
      assert.deepEqual(await rowsOf(account), []);
    });

    for (const dieAt of ['opened', 'journaled', 'settled']) {
      test(`a sponsored payment killed when ${dieAt} is credited once after the restart, from its row`, async () => {
        const account = await buyer(0n);
        const first = await openFixture({ settings: settingsWith() });
        const header = await sponsoredHeader(account, first);
        const wanted = usdToNano('0.4');
        const second = await restartedAfter({ dieAt, first, header, account, wanted });
        await second.close();
      });
    }

    test('a payment and an approval that a reorganisation drops are both sent again', async () => {
      const account = await buyer(0n);
      await pay(await sponsoredHeader(account), usdToNano('0.4'));
      const before = await chain.balance(payTo);
      await chain.reorg(1);
      assert.equal(await chain.approved(account.address), 0n);
      await untilReceived(before);
      assert.equal(await balanceOf(account), usdToNano('0.4'));
    });

    test('a dropped payment is sent again with its approval, and another approval is refused', async () => {
      const account = await buyer(0n);
      const header = await sponsoredHeader(account);
      await chain.client.setAutomine(false);
      assert.equal((await refusal(pay(header, usdToNano('0.4')))).code, 'SETTLEMENT_PENDING');
      const strange = withApproval(header, { signature: BAD_SIGNATURE });
      assert.equal((await refusal(pay(strange, usdToNano('0.4')))).code, 'PAYMENT_IN_PROGRESS');
      const hash = (await rowsOf(account))[0]!.tx_id;
      await chain.client.dropTransaction({ hash });
      await chain.client.setAutomine(true);
      for (let round = 0; round < 5 && (await balanceOf(account)) === 0n; round += 1) {
        await refusal(pay(header, usdToNano('0.4')));
        await chain.client.mine({ blocks: 1 });
      }
      assert.equal(await balanceOf(account), usdToNano('0.4'));
    });

    test('a call that needs more gas than the cap is not sent', async () => {
      const low = await openFixture({
        settings: settingsWith({ maxGas: 100_000 }),
        folder: fixture.folder,
      });
      const account = await buyer(0n);
      const header = await sponsoredHeader(account);
      const said = await refusal(pay(header, usdToNano('0.4'), low));
      assert.equal(said.code, 'PAYMENT_VERIFICATION_FAILED');
      assert.deepEqual(await rowsOf(account), []);
      await pay(header, usdToNano('0.4'));
      await low.close();
    });

    const BAD: Record<string, readonly [object, RegExp]> = {
      'of another wallet': [{ from: payTo }, /field from of the approval .* must be 0x/],
      'of another token': [{ asset: payTo }, /field asset .* must be 0x8335/],
      'for another spender': [{ spender: UPTO_PROXY }, /field spender .* must be 0x0000/],
      'for a malformed spender': [{ spender: 5 }, /field spender/],
      'above the ceiling': [{ amount: '2000000' }, /must be the ceiling of 1000000 base units/],
      'of a malformed amount': [{ amount: '0x10' }, /field amount of the approval .* whole number/],
      'of a nonce of 257 bits': [{ nonce: String(1n << 256n) }, /nonce must fit into 256 bits/],
      'without a deadline': [{ deadline: undefined }, /field deadline/],
      'signed by a contract': [{ signature: `0x${'11'.repeat(66)}` }, /65 bytes/],
      'signed by nobody': [{ signature: {} }, /65 bytes/],
      'with a wrong signature': [{ signature: BAD_SIGNATURE }, /permit2_allowance_required/],
      'with a past deadline': [{ deadline: '1' }, /eip2612_deadline_expired/],
    };
    test('an invalid approval is refused with the right value, and opens no row', async () => {
      const account = await buyer(0n);
      const header = await sponsoredHeader(account);
      for (const [name, [changes, words]] of Object.entries(BAD)) {
        const said = await refusal(pay(withApproval(header, changes), usdToNano('0.4')));
        assert.match(said.message, words, name);
        assert.ok(said.code.startsWith('INVALID_') || said.code === 'PAYMENT_VERIFICATION_FAILED');
      }
      for (const info of [null, 'text', [], 7, { __proto__: null }]) {
        const payment = { ...decode(header), extensions: { eip2612GasSponsoring: { info } } };
        const said = await refusal(pay(encodeHeader(payment), usdToNano('0.4')));
        assert.equal(said.reason, 'permit2_allowance_required');
      }
      assert.deepEqual(await rowsOf(account), []);
      await pay(header, usdToNano('0.4'));
    });

    test('a 402 requests the approval only together with a ceiling', async () => {
      const { requirements } = fixture.payments;
      const asked = async (answer: Promise<{ header: string }>) =>
        Object.keys(decodePaymentRequiredHeader((await answer).header).extensions ?? {});
      const isAsked = 'eip2612GasSponsoring';
      assert.ok((await asked(requirements.discovery(RESOURCE))).includes(isAsked));
      assert.ok(!(await asked(requirements.topUp(RESOURCE))).includes(isAsked));
      assert.ok((requirements.manifest([])['extensions'] as string[]).includes(isAsked));
      for (const change of [{ upto: false }, { asset: payTo.replace('fa12b', 'fa12c') }]) {
        const other = await openFixture({ settings: settingsWith(change) });
        const { body } = await other.payments.requirements.discovery(RESOURCE);
        assert.ok(!JSON.stringify(body).includes(isAsked));
        await other.close();
      }
    });
  });

  describe('what the chain refuses', () => {
    test('a payment without a sufficient Permit2 approval is refused with a message', async () => {
      for (const approved of [0n, USD / 2n]) {
        const account = await buyer(approved);
        const header = await officialHeader(account);
        const said = await refusal(offer(header));
        assert.equal(said.code, 'PAYMENT_VERIFICATION_FAILED');
        assert.equal(said.reason, 'permit2_allowance_required');
        assert.match(said.message, /not approved the Permit2 contract/);
        assert.deepEqual(await rowsOf(account), []);
        // The same header is good once it is approved.
        await chain.approvePermit2(account.address, USD);
        await pay(header, usdToNano(1));
        assert.equal(await balanceOf(account), usdToNano(1));
      }
    });

    test('a payment whose approval is withdrawn after the check is refused, and leaves no row', async () => {
      const account = await buyer();
      const offered = await offer(await signedHeader(account));
      await chain.approvePermit2(account.address, 0n);
      const said = await refusal(offered.take(usdToNano(2)));
      assert.deepEqual(
        [said.code, said.reason],
        ['PAYMENT_VERIFICATION_FAILED', 'permit2_allowance_required'],
      );
      assert.deepEqual(await rowsOf(account), []);
    });

    test('a payment whose approval is withdrawn before the broadcast is not sent', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      const offered = await offer(header);
      proxy.fate = async (method) => {
        if (method === 'eth_estimateGas') await chain.approvePermit2(account.address, 0n);
        return 'pass' as const;
      };
      const sent = proxy.seen.filter((method) => method === 'eth_sendRawTransaction').length;
      const said = await refusal(offered.take(usdToNano(2)));
      assert.equal(said.code, 'PAYMENT_VERIFICATION_FAILED');
      assert.equal(proxy.seen.filter((method) => method === 'eth_sendRawTransaction').length, sent);
      assert.deepEqual(await rowsOf(account), []);
    });

    test('a ceiling above the balance is refused with a reason', async () => {
      const account = await buyer(1_000n * USD);
      const header = await signedHeader(account, { ceiling: 101n * USD });
      const said = await refusal(offer(header));
      assert.equal(said.reason, 'permit2_insufficient_balance');
    });

    async function cancel(account: PrivateKeyAccount, nonce: bigint): Promise<void> {
      const args = [nonce >> 8n, 1n << (nonce & 0xffn)] as const;
      const data = encodeFunctionData({
        abi: CANCEL_ABI,
        functionName: 'invalidateUnorderedNonces',
        args,
      });
      await chain.callAs(account.address, PERMIT2, data);
    }

    test('an authorization that was cancelled before we received it is refused', async () => {
      const account = await buyer();
      await cancel(account, 77n);
      const said = await refusal(pay(await signedHeader(account, { nonce: 77n }), usdToNano(2)));
      assert.equal(said.reason, 'authorization_already_used');
      assert.deepEqual(await rowsOf(account), []);
    });

    test('an authorization that is cancelled while it waits is pending until its deadline, then failed', async () => {
      const account = await buyer();
      const nonce = 78n;
      const { timestamp } = await chain.client.getBlock();
      const deadline = timestamp + 120n;
      const header = await signedHeader(account, { nonce, deadline });
      await chain.client.setAutomine(false);
      assert.equal((await refusal(pay(header, usdToNano(2)))).code, 'SETTLEMENT_PENDING');
      const hash = (await rowsOf(account))[0]!.tx_id;
      await chain.client.dropTransaction({ hash });
      await chain.client.setAutomine(true);
      await cancel(account, nonce);
      assert.equal((await refusal(pay(header, usdToNano(2)))).code, 'SETTLEMENT_PENDING');
      await chain.client.setNextBlockTimestamp({ timestamp: deadline + 61n });
      await chain.client.mine({ blocks: 1 });
      const said = await refusal(pay(header, usdToNano(2)));
      assert.deepEqual(
        [said.code, said.reason],
        ['SETTLEMENT_FAILED', 'authorization_used_for_another_transfer'],
      );
      assert.equal((await rowsOf(account))[0]?.state, 'failed');
      assert.equal(await balanceOf(account), 0n);
      // The number of the dropped transaction is used by the next payment.
      await pay(await signedHeader(await buyer(), { deadline: deadline + 400n }), usdToNano(1));
    });

    test('only the gas key can settle it, and the exposed facilitator does not', async () => {
      const account = await buyer();
      const header = await signedHeader(account);
      const payment = JSON.parse(Buffer.from(header, 'base64').toString()) as {
        payload: {
          permit2Authorization: {
            permitted: { token: Hex; amount: string };
            nonce: string;
            deadline: string;
            witness: { to: Hex; facilitator: Hex };
          };
          signature: Hex;
        };
      };
      const { permit2Authorization: one, signature } = payment.payload;
      const permit = {
        permitted: { ...one.permitted, amount: BigInt(one.permitted.amount) },
        nonce: BigInt(one.nonce),
        deadline: BigInt(one.deadline),
      };
      const witness = { ...one.witness, validAfter: 0n };
      const call = (from: Hex) =>
        chain.client.simulateContract({
          account: from,
          address: UPTO_PROXY,
          abi: UPTO_ABI,
          functionName: 'settle',
          args: [permit, USD, account.address, witness, signature],
        });
      await call(gas.address);
      await assert.rejects(call(account.address), /revert/);
      const asked = { ...payment, accepted: { scheme: 'upto', network: BASE } };
      const requirements = { scheme: 'upto', network: BASE, asset: USDC, amount: '1', payTo };
      const answer = await fixture.payments.facilitator?.call('settle', {
        paymentPayload: asked,
        paymentRequirements: requirements,
      });
      assert.equal((answer as { success: boolean }).success, false);
    });
  });

  describe('what is refused as it is read', () => {
    const stranger = privateKeyToAccount(generatePrivateKey()).address;
    const nowSeconds = BigInt(Math.floor(Date.now() / 1000));
    const cases: Record<string, Record<string, readonly [Changes, RegExp]>> = {
      INVALID_PAYMENT: {
        'another facilitator': [{ facilitator: stranger }, /facilitator .* must be 0x/],
        'another spender': [{ spender: stranger }, /spender .* must be the upto proxy/],
        'a deadline of months': [{ deadline: nowSeconds + 200_000n }, /within two hours/],
        'no witness': [{ sent: { witness: undefined } }, /permitted and witness/],
        'a malformed nonce': [{ sent: { nonce: '0x01' } }, /nonce .* whole number/],
        'the scheme exact': [{ scheme: 'exact' }, /Permit2 payments of the scheme exact/],
      },
      INVALID_PAYMENT_RECIPIENT: { 'another receiver': [{ to: stranger }, /must go to/] },
      UNSUPPORTED_TOKEN: { 'another token': [{ token: stranger }, /must be 0x/] },
      UNSUPPORTED_SCHEME: {
        'an unknown scheme': [{ scheme: 'deferred' }, /must be exact, or upto/],
      },
      AMOUNT_TOO_LOW: { 'a low ceiling': [{ ceiling: 99_999n }, /at least 0.1 USD/] },
      PAYMENT_VERIFICATION_FAILED: {
        'a past deadline': [{ deadline: nowSeconds - 1n }, /permit2_deadline_expired/],
        'a signature of other terms': [{ sent: { nonce: '1' } }, /invalid_permit2_signature/],
      },
    };
    for (const [code, ofCode] of Object.entries(cases)) {
      for (const [name, [changes, words]] of Object.entries(ofCode)) {
        test(`a payment with ${name} is refused with ${code}`, async () => {
          const account = await buyer();
          const said = await refusal(pay(await signedHeader(account, changes), usdToNano(1)));
          assert.equal(said.code, code, said.message);
          assert.match(said.message, words);
          assert.deepEqual(await rowsOf(account), []);
        });
      }
    }

    test('an ERC-3009 payload of the scheme upto and a top-up are refused', async () => {
      const account = await buyer();
      const payload = { authorization: {}, signature: BAD_SIGNATURE };
      const accepted = { scheme: 'upto', network: BASE };
      const wrong = encodeHeader({ x402Version: 2, accepted, payload });
      assert.equal((await refusal(offer(wrong))).code, 'INVALID_AMOUNT');
      const said = await refusal(fixture.payments.headers.topUp(await signedHeader(account)));
      assert.equal(said.code, 'UNSUPPORTED_SCHEME');
      assert.match(said.message, /upto is for requests/);
    });
  });
});
