/**
 * Attacks on the operator by payers or nodes of Base: signatures of any age, wallet contracts that
 * return nothing or burn gas, slow or unreachable nodes. None causes a 500, the rejection of a
 * valid payment, or unlimited gas.
 */
import assert from 'node:assert/strict';
import { type TestContext, after, afterEach, before, describe, test } from 'node:test';
import { type Hex, numberToHex, toEventSelector, zeroAddress } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { PrivateKeyAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';
import { startAnvil, USDC } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startAlteredNode } from '../../test/chains/altered-node.ts';
import { startFaultProxy } from '../../test/chains/fault-proxy.ts';
import type { FaultProxy } from '../../test/chains/fault-proxy.ts';
import { Fault } from '../core/faults.ts';
import type { RetryProof } from './payment-passes.ts';
import { MINUTE_MS, systemClock } from '../core/clock.ts';
import { fastTimers } from '../../test/support/fast-clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { openEvmNodes } from './evm/chain.ts';
import { findErc3009Payment } from './evm/evidence.ts';
import { RevertBackoff } from './revert-backoff.ts';
import { transferArgs, transferHeader } from '../../test/support/payers.ts';
import { baseRail, openFixture } from '../../test/support/payments.ts';
import type { Fixture } from '../../test/support/payments.ts';

const ETH = 10n ** 18n;
const MAX_UINT256 = (1n << 256n) - 1n;
const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
const gasKey = generatePrivateKey();
const gas = privateKeyToAccount(gasKey).address;

/** For nodes that are slow. */
const TIMES = 4;
/** Delay of a reply that arrives long after the response to the caller. */
const LATE_MS = 3_000;
/** Runs and gives nothing back. */
const EMPTY: Hex = '0x00';
/** Never ends. */
const LOOPS: Hex = '0x5b600056';
/** Accepts every signature in a call, and never ends in a transaction. */
const LOOPS_WHEN_PAID: Hex = '0x3a601457631626ba7e60e01b60005260206000f35b601456';
/** Accepts every signature until its first storage slot is set, then never ends. */
const LOOPS_WHEN_SET: Hex = '0x600054601657631626ba7e60e01b60005260206000f35b601656';

let chain: AnvilChain;
let proxy: FaultProxy;
let fixture: Fixture;

describe('hostile payers and nodes of Base', () => {
  before(async () => {
    chain = await startAnvil();
    proxy = await startFaultProxy(chain.rpcUrl);
    fixture = await openFixture({ settings: settings() });
    await chain.fund(gas, ETH);
  });

  after(async () => {
    await fixture.close();
    await proxy.stop();
    await chain.stop();
  });

  afterEach(() => {
    proxy.fate = () => 'pass';
  });

  const settings = () => ({
    base: baseRail({ payTo, rpcUrl: proxy.url, gasKey }),
  });

  /** With timers that are `TIMES` as fast, for nodes that are slow. */
  async function openFast(t: TestContext): Promise<Fixture> {
    const fast = await openFixture({ clock: fastTimers(TIMES), settings: settings() });
    t.after(() => fast.close());
    return fast;
  }

  interface Terms {
    readonly from?: Hex;
    readonly validBefore?: bigint;
    readonly validAfter?: bigint;
    readonly value?: bigint;
  }

  async function pay(account: PrivateKeyAccount, terms: Terms = {}): Promise<string> {
    const authorization = Object.fromEntries(
      Object.entries(terms).map(([name, value]) => [name, String(value)]),
    );
    return await transferHeader(account, payTo, { authorization });
  }

  const newAccount = (): PrivateKeyAccount => privateKeyToAccount(generatePrivateKey());

  async function wallet(code?: Hex): Promise<PrivateKeyAccount> {
    const account = newAccount();
    await chain.mint(account.address, 100_000_000n);
    if (code !== undefined)
      await chain.client.setCode({ address: account.address, bytecode: code });
    return account;
  }

  /** Pays with a signature that only the code of the wallet accepts. */
  async function payFrom(contract: PrivateKeyAccount): Promise<string> {
    return await pay(newAccount(), { from: contract.address });
  }

  async function refusal(header: string, proof?: RetryProof): Promise<Fault> {
    try {
      await fixture.payments.headers.topUp(header, proof);
    } catch (error) {
      if (error instanceof Fault) return error;
      throw error;
    }
    return assert.fail('The payment was taken');
  }

  const spent = async (): Promise<bigint> =>
    ETH - (await chain.client.getBalance({ address: gas }));

  for (const [says, terms] of [
    ['2^63', { validBefore: 1n << 63n }],
    ['2^64', { validBefore: 1n << 64n }],
    ['MaxUint256', { validBefore: MAX_UINT256 }],
  ] as const) {
    test(`an authorization that is valid before ${says} is credited, and its answer repeated`, async () => {
      const account = await wallet();
      const header = await pay(account, terms);
      const receipt = await fixture.payments.headers.topUp(header);
      assert.equal(receipt.amountNano, 5_000_000_000n);
      assert.equal((await fixture.payments.headers.topUp(header)).transaction, receipt.transaction);
      await fixture.payments.sweep();
      assert.equal(await fixture.balance(account.address.toLowerCase()), 5_000_000_000n);
    });
  }

  test('impossible amounts and times are refused with a message', async () => {
    const account = await wallet();
    for (const terms of [
      { validAfter: MAX_UINT256 },
      { validAfter: 1n << 63n, validBefore: MAX_UINT256 },
      { value: MAX_UINT256 },
      { value: 1n << 63n },
      { validBefore: 0n },
    ]) {
      const fault = await refusal(await pay(account, terms));
      assert.equal(fault.status, 400, fault.message);
    }
  });

  test('a payment of a contract that returns nothing is refused with a message', async () => {
    const contract = await wallet(EMPTY);
    const fault = await refusal(await payFrom(contract));
    assert.equal(fault.code, 'PAYMENT_VERIFICATION_FAILED');
    assert.match(fault.message, /signature/);
  });

  test('forged contract signatures make a limited number of calls at once', async () => {
    const headers = await Promise.all(
      Array.from({ length: 80 }, async () => payFrom(newAccount())),
    );
    const held = Promise.withResolvers<void>();
    let asking = 0;
    let most = 0;
    proxy.fate = async () => {
      asking += 1;
      most = Math.max(most, asking);
      await held.promise;
      asking -= 1;
      return 'pass' as const;
    };
    let ended = 0;
    const refusals = headers.map(async (header, at) => {
      // The requests come from so many addresses that each stays within its share.
      const proof = {
        claim: undefined,
        idempotencyKey: undefined,
        path: '',
        clientAddress: `${at % 8}`,
      };
      const fault = await refusal(header, proof);
      ended += 1;
      // Requests beyond the bound fail immediately; then the node responds to the others.
      if (ended === headers.length - 32) held.resolve();
      return fault;
    });
    const faults = await Promise.all(refusals);
    const busy = faults.filter(({ message }) =>
      message.startsWith('Too many signatures of contract'),
    );
    assert.equal(busy.length, 80 - 32);
    assert.ok(
      busy.every(({ status, options }) => status === 503 && options.retryAfterSeconds === 1),
    );
    assert.ok(most <= 32, `${most} questions at once`);
    await fixture.payments.headers.topUp(await pay(await wallet()));
  });

  for (const [says, code] of [
    ['always', LOOPS],
    ['when somebody pays for the gas', LOOPS_WHEN_PAID],
  ] as const) {
    test(`a contract that loops ${says} costs no gas`, async () => {
      const contract = await wallet(code);
      const before = await spent();
      for (let round = 0; round < 3; round += 1) {
        const fault = await refusal(await payFrom(contract));
        assert.equal(fault.code, 'PAYMENT_VERIFICATION_FAILED', fault.message);
      }
      assert.equal(await spent(), before);
    });
  }

  test('a contract that loops in the block alone burns gas once, then it has to wait', async () => {
    const contract = await wallet(LOOPS_WHEN_SET);
    const slot: Hex = `0x${'00'.repeat(32)}`;
    const set = async (value: number): Promise<void> => {
      const word: Hex = `0x${value.toString(16).padStart(64, '0')}`;
      await chain.client.setStorageAt({ address: contract.address, index: slot, value: word });
    };
    const header = await payFrom(contract);
    proxy.fate = async (method) => {
      if (method === 'eth_sendRawTransaction') await set(1);
      return 'pass' as const;
    };
    const burned = await refusal(header);
    assert.equal(burned.code, 'SETTLEMENT_FAILED');
    const after = await spent();
    await set(0);
    for (const next of [header, header, await payFrom(contract), await payFrom(contract)]) {
      const fault = await refusal(next);
      assert.equal(fault.code, 'RATE_LIMIT_EXCEEDED', fault.message);
      assert.ok((fault.options.retryAfterSeconds ?? 0) > 30);
    }
    assert.equal(await spent(), after);
    const other = await wallet();
    await fixture.payments.headers.topUp(await pay(other));
  });

  test('a payment that others send between its check and our broadcast is credited', async () => {
    const account = await wallet();
    const header = await pay(account);
    proxy.fate = async (method) => {
      if (method !== 'eth_estimateGas') return 'pass' as const;
      proxy.fate = () => 'pass';
      await chain.callToken('transferWithAuthorization', transferArgs(header));
      return 'pass' as const;
    };
    const before = await spent();
    const receipt = await fixture.payments.headers.topUp(header);
    assert.equal(receipt.amountNano, 5_000_000_000n);
    assert.equal(await spent(), before);
  });

  test('a payer waits twice as long after each revert, and not after a payment', () => {
    const clock = new TestClock(0);
    const backoff = new RevertBackoff(clock);
    const waits: number[] = [];
    for (let round = 0; round < 13; round += 1) {
      backoff.reverted('0xa');
      waits.push(backoff.waitMs('0xa') / MINUTE_MS);
      clock.advance(backoff.waitMs('0xa'));
    }
    assert.deepEqual(waits.slice(0, 4), [1, 2, 4, 8]);
    assert.equal(waits.at(-1), 24 * 60);
    assert.equal(backoff.waitMs('0xa'), 0);
    backoff.reverted('0xa');
    backoff.paid('0xa');
    assert.equal(backoff.waitMs('0xa'), 0);
  });

  test('a response does not wait for a slow node, and the payment is still credited once', async (t) => {
    const fast = await openFast(t);
    const account = await wallet();
    const header = await pay(account);
    proxy.fate = () => ({ delayMs: 1_000 / TIMES });
    const statuses: number[] = [];
    for (let round = 0; round < 30; round += 1) {
      const status = await fast.payments.headers.topUp(header).then(
        () => 200,
        (error: unknown) => (error instanceof Fault ? error.status : 500),
      );
      statuses.push(status);
      if (status === 200) break;
      assert.ok(status === 503 || status === 202, String(status));
    }
    assert.equal(statuses.at(-1), 200);
    // A transaction is recorded as sent only after it was sent.
    assert.deepEqual(
      statuses,
      statuses.toSorted((a, b) => rank(a) - rank(b)),
    );
    assert.equal(await fast.balance(account.address.toLowerCase()), 5_000_000_000n);
    const unheard = await pay(await wallet());
    proxy.fate = () => ({ delayMs: LATE_MS });
    // Otherwise many late replies would delay the end of the test.
    await assert.rejects(
      fast.payments.headers.topUp(unheard),
      (error: Fault) => error.status === 503,
    );
    proxy.fate = () => 'pass';
  });

  const rank = (status: number): number => [503, 202, 200].indexOf(status);

  /** The sign-in of a contract wallet, signed by its claimed owner. */
  async function signInOf(contract: Hex, owner: PrivateKeyAccount): Promise<string> {
    const message = createSiweMessage({
      address: contract,
      chainId: 8453,
      domain: 'pay.test',
      nonce: generateSiweNonce(),
      uri: 'http://pay.test/api/v1/chat/completions',
      version: '1',
      issuedAt: new Date(),
    });
    const signature = await owner.signMessage({ message });
    return Buffer.from(
      JSON.stringify({ address: contract, message, signature, chainId: 8453 }),
    ).toString('base64');
  }

  for (const fate of [
    'lose-request',
    { status: 429 },
    { status: 503 },
    { code: -32_005, message: 'limit exceeded' },
  ] as const) {
    const says = typeof fate === 'string' ? fate : JSON.stringify(fate);
    test(`the sign-in of a contract wallet with a node that fails (${says}): 503, not 401`, async () => {
      const owner = newAccount();
      const contract = newAccount().address;
      await chain.placeWallet(contract, owner.address);
      const header = await signInOf(contract, owner);
      proxy.fate = () => fate;
      await assert.rejects(
        fixture.payments.signIn.verify(header, ''),
        (error: Fault) => error.status === 503,
      );
      proxy.fate = () => 'pass';
      assert.equal(
        (await fixture.payments.signIn.verify(header, '')).wallet,
        contract.toLowerCase(),
      );
    });
  }

  test('a sign-in does not wait for a slow node', async (t) => {
    const fast = await openFast(t);
    const header = await signInOf(newAccount().address, newAccount());
    proxy.fate = () => ({ delayMs: LATE_MS });
    await assert.rejects(
      fast.payments.signIn.verify(header, ''),
      (error: Fault) => error.status === 503,
    );
  });

  test('an invalid signature does not sign in the zero address', async () => {
    const header = await signInOf(zeroAddress, newAccount());
    const proof = JSON.parse(Buffer.from(header, 'base64').toString()) as object;
    for (const start of [`0x${'00'.repeat(64)}`, `0x${'ff'.repeat(64)}`]) {
      const forged = JSON.stringify({ ...proof, signature: `${start}1b` });
      await assert.rejects(
        fixture.payments.signIn.verify(Buffer.from(forged).toString('base64'), ''),
        (error: Fault) => error.status === 401,
      );
    }
  });

  test('an address with many contract wallets cannot use all node calls', async () => {
    const owner = newAccount();
    const contract = newAccount().address;
    await chain.placeWallet(contract, owner.address);
    const stranger = newAccount();
    const guesses = await Promise.all(
      Array.from({ length: 40 }, () => signInOf(newAccount().address, stranger)),
    );
    const own = await signInOf(contract, owner);
    proxy.fate = () => ({ delayMs: 500 });
    const codes = guesses.map((header) =>
      fixture.payments.signIn.verify(header, 'greedy').then(
        () => 'good',
        (error: Fault) => error.code,
      ),
    );
    const { wallet: known } = await fixture.payments.signIn.verify(own, 'other');
    assert.equal(known, contract.toLowerCase());
    const counted = Map.groupBy(await Promise.all(codes), (code) => code);
    assert.equal(counted.get('X402_SIGN_IN_INVALID_SIGNATURE')?.length, 24);
    assert.equal(counted.get('SERVICE_UNAVAILABLE')?.length, 16);
  });
});

for (const [says, usedIn] of [
  ['a moment ago', 999_000],
  ['in the middle of an outage of weeks', 500_000],
] as const) {
  test(`a payment that was made ${says}, long after its row was opened, is found`, async (t) => {
    const node = await startAlteredNode('');
    t.after(() => node.stop());
    const word = (text: string): Hex => `0x${text.padStart(64, '0')}`;
    const payer = newAddress();
    const log = {
      address: USDC,
      topics: [
        toEventSelector('AuthorizationUsed(address,bytes32)'),
        word(payer.slice(2).toLowerCase()),
        word('5'),
      ],
      data: '0x',
      blockNumber: numberToHex(usedIn),
      transactionHash: word('1'),
      logIndex: '0x0',
    };
    const transfer = {
      ...log,
      topics: [
        toEventSelector('Transfer(address,address,uint256)'),
        word(payer.slice(2).toLowerCase()),
        word(payTo.slice(2)),
      ],
      data: numberToHex(5_000_000, { size: 32 }),
      logIndex: '0x1',
    };
    node.alter = async ({ method, params }) => {
      if (method === 'eth_getBlockByNumber')
        return { result: { number: '0xf4240', timestamp: '0x1' } };
      if (method === 'eth_call') return { result: word('1') };
      if (method === 'eth_getTransactionReceipt') {
        const { blockNumber, transactionHash } = log;
        return { result: { status: '0x1', logs: [log, transfer], blockNumber, transactionHash } };
      }
      assert.equal(method, 'eth_getLogs');
      const { fromBlock, toBlock } = params[0] as { fromBlock: Hex; toBlock: Hex };
      const isInside = Number(fromBlock) <= usedIn && usedIn <= Number(toBlock);
      return { result: isInside ? [log] : [] };
    };
    const { client } = openEvmNodes(node.url, systemClock());
    const amounts = { value: 5_000_000n, validAfter: 0n, validBefore: MAX_UINT256 };
    const attempt = {
      transaction: undefined,
      raw: undefined,
      startHeight: 90n,
      startBlock: undefined,
      expiresAt: MAX_UINT256,
    };
    const found = await findErc3009Payment(
      client,
      USDC,
      { kind: 'erc3009', from: payer, to: payTo, nonce: word('5'), ...amounts },
      { attempt, depth: 1, hourBlocks: 1_800n },
    );
    assert.deepEqual(found, {
      kind: 'paid',
      transaction: word('1'),
      height: BigInt(usedIn),
      isConfirmed: true,
    });
  });
}

test('a node that returns logs of other payers fails no payment', async () => {
  const node = await startAlteredNode('');
  const word = (text: string): Hex => `0x${text.padStart(64, '0')}`;
  const authorizer = newAddress();
  const canceled = {
    address: USDC,
    topics: [
      toEventSelector('AuthorizationCanceled(address,bytes32)'),
      word(newAddress().slice(2)),
      word('77'),
    ],
    data: '0x',
    blockNumber: '0x64',
    transactionHash: word('1'),
  };
  node.alter = async ({ method }) => {
    if (method === 'eth_getBlockByNumber') return { result: { number: '0x64', timestamp: '0x1' } };
    if (method === 'eth_call') return { result: word('1') };
    assert.equal(method, 'eth_getLogs');
    return { result: [canceled, { ...canceled, address: payTo }] };
  };
  const { client } = openEvmNodes(node.url, systemClock());
  const payment = {
    kind: 'erc3009',
    from: authorizer,
    to: payTo,
    value: 5_000_000n,
    validAfter: 0n,
    validBefore: MAX_UINT256,
    nonce: word('5'),
  } as const;
  const attempt = {
    transaction: undefined,
    raw: undefined,
    startHeight: 90n,
    startBlock: undefined,
    expiresAt: 250n,
  };
  await assert.rejects(
    findErc3009Payment(client, USDC, payment, { attempt, depth: 1, hourBlocks: 1_800n }),
    /has no log of it yet/,
  );
  await node.stop();
});

function newAddress(): Hex {
  return privateKeyToAccount(generatePrivateKey()).address;
}
