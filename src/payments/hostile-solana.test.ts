/**
 * Attacks on Solana by payers, other wallets or the receiver's delegate: emptying the account
 * between the check and the block, filling the history of another account, transferring tokens in a
 * circle.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  type AccountMeta,
  type Address,
  AccountRole,
  type Instruction,
  type KeyPairSigner,
  address,
  appendTransactionMessageInstructions,
  blockhash,
  compileTransaction,
  compressTransactionMessageUsingAddressLookupTables,
  createKeyPairSignerFromPrivateKeyBytes,
  createTransactionMessage,
  decompileTransactionMessage,
  generateKeyPairSigner,
  getBase58Decoder,
  getBase64EncodedWireTransaction,
  getCompiledTransactionMessageDecoder,
  partiallySignTransaction,
  pipe,
  setTransactionMessageFeePayer,
  setTransactionMessageLifetimeUsingBlockhash,
} from '@solana/kit';
import {
  findAssociatedTokenPda,
  getTransferCheckedInstruction,
  TOKEN_PROGRAM_ADDRESS,
} from '@solana-program/token';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import type { SettleResponse } from '@x402/core/types';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import { startAlteredNode } from '../../test/chains/altered-node.ts';
import { type FaultProxy, startFaultProxy } from '../../test/chains/fault-proxy.ts';
import { type SolanaChain, startSolana, USDC_MINT } from '../../test/chains/solana.ts';
import {
  type Fixture,
  type FixtureOptions,
  openFixture,
  solanaRail,
} from '../../test/support/payments.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex, systemIds } from '../core/ids.ts';
import { SOLANA } from './networks.ts';
import { decodeWire, messageHash, openSolanaNodes } from './solana/chain.ts';
import { findSolanaPayment } from './solana/evidence.ts';

const MEMO = address('MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr');

const SYSTEM = address('11111111111111111111111111111111');
const ASSOCIATED_TOKEN = address('ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL');
const TOKEN_2022 = address('TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb');
const RECENT_BLOCKHASHES = address('SysvarRecentB1ockHashes11111111111111111111');

function memo(text: string): Instruction {
  return { programAddress: MEMO, data: Buffer.from(text) };
}

/** A transaction with these instructions and without signatures. */
function wireOf(feePayer: Address, instructions: readonly Instruction[]): string {
  const message = pipe(
    createTransactionMessage({ version: 0 }),
    (one) => setTransactionMessageFeePayer(feePayer, one),
    (one) =>
      setTransactionMessageLifetimeUsingBlockhash(
        { blockhash: blockhash('1'.repeat(32)), lastValidBlockHeight: 1_000n },
        one,
      ),
    (one) => appendTransactionMessageInstructions(instructions, one),
  );
  return getBase64EncodedWireTransaction(compileTransaction(message));
}

describe('hostile payers and other wallets on Solana', () => {
  let chain: SolanaChain;
  let proxy: FaultProxy;
  let fixture: Fixture;
  let settings: FixtureOptions['settings'];
  let receiver: KeyPairSigner;
  let feePayer: KeyPairSigner;

  before(async () => {
    chain = await startSolana();
    proxy = await startFaultProxy(chain.rpcUrl);
    receiver = await generateKeyPairSigner();
    const feePayerKey = systemIds().hex(32);
    feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    chain.airdrop(feePayer.address, 10_000_000_000n);
    await chain.setTokens(receiver.address, 0n);
    settings = {
      solana: solanaRail({ payTo: receiver.address, rpcUrl: proxy.url, feePayerKey }),
    };
    fixture = await openFixture({ settings });
  });
  after(async () => {
    await fixture.close();
    await proxy.stop();
    await chain.stop();
  });

  async function refusal(header: string): Promise<Fault> {
    return await fixture.payments.headers.topUp(header).then(
      () => assert.fail('The payment was taken'),
      (error: unknown) => {
        assert.ok(error instanceof Fault, String(error));
        return error;
      },
    );
  }

  test('a payer that empties its account after the check costs one fee, then it has to wait', async () => {
    const payer = await generateKeyPairSigner();
    const client = new x402Client();
    client.setSpendControls({ maxAmountPerPayment: '$25' });
    client.register(SOLANA, new ExactSvmScheme(payer, { rpcUrl: chain.rpcUrl }));
    const pay = async (): Promise<string> => {
      await chain.setTokens(payer.address, 20_000_000n);
      const resource = { path: '/api/v1/x402/top-up', description: 'x' };
      const { header } = await fixture.payments.requirements.topUp(resource);
      const payload = await client.createPaymentPayload(decodePaymentRequiredHeader(header));
      return Buffer.from(JSON.stringify(payload)).toString('base64');
    };
    let sent = 0;
    proxy.fate = async (method) => {
      if (method === 'sendTransaction') {
        sent += 1;
        await chain.setTokens(payer.address, 0n);
      }
      return 'pass' as const;
    };
    const burned = await refusal(await pay());
    assert.equal(burned.code, 'SETTLEMENT_FAILED', burned.message);
    for (let round = 0; round < 3; round += 1) {
      const fault = await refusal(await pay());
      assert.equal(fault.code, 'RATE_LIMIT_EXCEEDED', fault.message);
    }
    assert.equal(sent, 1);
    proxy.fate = () => 'pass';
  });

  test('a transfer from the receiver to itself is not credited', async () => {
    const delegate = await generateKeyPairSigner();
    const mint = USDC_MINT;
    const [account] = await findAssociatedTokenPda({
      owner: receiver.address,
      mint,
      tokenProgram: TOKEN_PROGRAM_ADDRESS,
    });
    const circle = getTransferCheckedInstruction({
      source: account,
      mint,
      destination: account,
      authority: delegate,
      amount: 5_000_000n,
      decimals: 6,
    });
    const transaction = wireOf(feePayer.address, [memo('a'), memo('b'), circle]);
    const payload = { transaction };
    const accepted = { scheme: 'exact', network: SOLANA };
    const header = JSON.stringify({ x402Version: 2, accepted, payload });
    const fault = await refusal(Buffer.from(header).toString('base64'));
    assert.equal(fault.code, 'INVALID_PAYMENT_PAYER', fault.message);
  });

  /** A payment of 5 USD to another server. */
  async function paymentToShop(payTo?: Address) {
    const payer = await generateKeyPairSigner();
    const shop = { address: payTo ?? (await generateKeyPairSigner()).address };
    await chain.setTokens(payer.address, 20_000_000n);
    await chain.setTokens(shop.address, 0n);
    const accepted = {
      scheme: 'exact',
      network: SOLANA,
      asset: USDC_MINT,
      amount: '5000000',
      payTo: shop.address,
      maxTimeoutSeconds: 60,
      extra: { feePayer: feePayer.address },
    } as const;
    const scheme = new ExactSvmScheme(payer, { rpcUrl: chain.rpcUrl });
    const { payload } = await scheme.createPaymentPayload(2, accepted);
    return { payer, shop, accepted, payload };
  }

  test('a transaction with more than the payment is rejected and costs the fee payer nothing', async () => {
    const { payer, payload } = await paymentToShop(receiver.address);
    const { messageBytes } = decodeWire(String(payload['transaction']));
    const message = decompileTransactionMessage(
      getCompiledTransactionMessageDecoder().decode(messageBytes),
    );
    const [limit, price, transfer, note] = message.instructions as readonly Instruction[];
    assert.ok(limit && price && transfer && note);
    const [source, mint, destination] = transfer.accounts ?? [];
    assert.ok(source && mint && destination);
    const budget = (kind: number, value: bigint): Instruction => {
      const data = Buffer.alloc(kind === 2 ? 5 : 9, kind);
      if (kind === 2) data.writeUInt32LE(Number(value), 1);
      else data.writeBigUInt64LE(value, 1);
      return { programAddress: limit.programAddress, data };
    };
    const signer = { address: payer.address, role: AccountRole.WRITABLE_SIGNER };
    const other = await generateKeyPairSigner();
    const owner = { address: other.address, role: AccountRole.READONLY };
    const [opened] = await findAssociatedTokenPda({
      owner: other.address,
      mint: USDC_MINT,
      tokenProgram: TOKEN_PROGRAM_ADDRESS,
    });
    const system = { address: SYSTEM, role: AccountRole.READONLY };
    const token = { address: TOKEN_PROGRAM_ADDRESS, role: AccountRole.READONLY };
    const openAccount = (payerOfRent: Address): Instruction => ({
      programAddress: ASSOCIATED_TOKEN,
      accounts: [
        { address: payerOfRent, role: AccountRole.WRITABLE_SIGNER },
        { address: opened, role: AccountRole.WRITABLE },
        owner,
        mint,
        system,
        token,
      ],
      data: Buffer.of(1),
    });
    const advanceNonce: Instruction = {
      programAddress: SYSTEM,
      accounts: [
        { address: opened, role: AccountRole.WRITABLE },
        { address: RECENT_BLOCKHASHES, role: AccountRole.READONLY },
        signer,
      ],
      data: Buffer.of(4, 0, 0, 0),
    };
    const cases: Record<string, readonly Instruction[]> = {
      'a price above the cap': [limit, budget(3, 100_001n), transfer, note],
      'a limit above the cap': [budget(2, 200_001n), price, transfer, note],
      'two prices': [limit, price, transfer, budget(3, 100_000n)],
      'two transfers': [limit, price, transfer, transfer],
      'a new account at the cost of the fee payer': [
        limit,
        price,
        transfer,
        openAccount(feePayer.address),
      ],
      'a new account at the cost of the payer': [
        limit,
        price,
        transfer,
        openAccount(payer.address),
      ],
      'the transfer of another token program': [
        limit,
        price,
        { ...transfer, programAddress: TOKEN_2022 },
        note,
      ],
      'a durable nonce': [advanceNonce, limit, price, transfer],
      'five notes': [limit, price, transfer, ...Array.from({ length: 5 }, () => note)],
    };
    const tables = { [other.address]: [source.address, destination.address] };
    const compressed = compressTransactionMessageUsingAddressLookupTables(
      message as never, // a v0 message
      tables,
    );
    const messages = new Map<string, typeof message>([
      ['a lookup table', compressed],
      ...Object.entries(cases).map(
        ([name, instructions]) => [name, { ...message, instructions } as typeof message] as const,
      ),
    ]);
    const { rpc } = openSolanaNodes(chain.rpcUrl, systemClock());
    const lamports = async () => (await rpc.getBalance(feePayer.address).send()).value;
    const before = await lamports();
    for (const [name, changed] of messages) {
      const signed = await partiallySignTransaction([payer.keyPair], compileTransaction(changed));
      const transaction = getBase64EncodedWireTransaction(signed);
      const accepted = { scheme: 'exact', network: SOLANA };
      const header = JSON.stringify({ x402Version: 2, accepted, payload: { transaction } });
      const fault = await refusal(Buffer.from(header).toString('base64'));
      assert.equal(fault.status, 400, `${name}: ${fault.message}`);
    }
    assert.equal(await lamports(), before);
    assert.equal(await chain.tokens(receiver.address), 0n);
  });

  test('the exposed facilitator signs nothing that gives its fee payer to an instruction', async () => {
    const { payer, shop, accepted, payload } = await paymentToShop();
    const { messageBytes } = decodeWire(String(payload['transaction']));
    const compiled = getCompiledTransactionMessageDecoder().decode(messageBytes);
    const message = decompileTransactionMessage(compiled);
    /** The results of a payment whose instruction at `index` also has this account. */
    const results = async (index: number, account: AccountMeta): Promise<unknown[]> => {
      const given: readonly Instruction[] = message.instructions;
      const instructions = given.map((one, at) =>
        at === index ? { ...one, accounts: [...(one.accounts ?? []), account] } : one,
      );
      const changed = compileTransaction({ ...message, instructions } as typeof message);
      const signed = await partiallySignTransaction([payer.keyPair], changed);
      const transaction = getBase64EncodedWireTransaction(signed);
      const paymentPayload = { x402Version: 2, accepted, payload: { transaction } };
      const body = { paymentPayload, paymentRequirements: accepted };
      const { facilitator } = fixture.payments;
      const verified = (await facilitator?.call('verify', body)) as { isValid: boolean };
      const settled = (await facilitator?.call('settle', body)) as { success: boolean };
      return [verified.isValid, settled.success];
    };
    const [transfer, note] = [2, 3];
    for (const index of [transfer, note]) {
      for (const role of [AccountRole.WRITABLE_SIGNER, AccountRole.READONLY]) {
        const given = await results(index, { address: feePayer.address, role });
        assert.deepEqual(given, [false, false], `instruction ${index}, role ${role}`);
      }
    }
    assert.equal(await chain.tokens(shop.address), 0n);
    const own = { address: payer.address, role: AccountRole.READONLY_SIGNER };
    assert.deepEqual(await results(note, own), [true, true]);
  });

  test('the exposed facilitator accepts a waiting payment for its own shop and amount only', async () => {
    const { accepted, payload } = await paymentToShop();
    const settle = async (changes: object) => {
      const required = { ...accepted, ...changes };
      const paymentPayload = { x402Version: 2, accepted: required, payload };
      const body = { paymentPayload, paymentRequirements: required };
      return (await fixture.payments.facilitator?.call('settle', body)) as SettleResponse;
    };
    proxy.fate = (method) => (method === 'getSignatureStatuses' ? 'lose-request' : 'pass');
    const first = await settle({});
    proxy.fate = () => 'pass';
    assert.equal(first.errorReason, 'settlement_pending');
    for (const other of [{ payTo: receiver.address }, { amount: '900000000' }])
      assert.equal((await settle(other)).success, false);
    // Clients request the block again with each offer.
    const again = await Promise.all(
      ['x', 'y'].map((recentBlockhash) =>
        settle({ extra: { ...accepted.extra, recentBlockhash } }),
      ),
    );
    const settled = again.filter(({ success }) => success);
    assert.deepEqual(
      settled.map(({ transaction }) => transaction),
      [first.transaction],
    );
  });

  test('of two processes that settle one payment for others at once, one reports it', async (t) => {
    const other = await openFixture({ settings, folder: fixture.folder });
    t.after(() => other.close());
    const { accepted, payload } = await paymentToShop();
    const paymentPayload = { x402Version: 2, accepted, payload };
    const body = { paymentPayload, paymentRequirements: accepted };
    const settled = await Promise.all(
      [fixture, other].map(
        async ({ payments }) =>
          (await payments.facilitator?.call('settle', body)) as SettleResponse,
      ),
    );
    const successes = settled.filter(({ success }) => success);
    assert.equal(successes.length, 1, JSON.stringify(settled));
  });
});

test('a payment by another facilitator is found independent of later transactions of the account', async () => {
  const feePayer = await generateKeyPairSigner();
  const { address: source } = await generateKeyPairSigner();
  const accounts = [{ address: source, role: AccountRole.READONLY }];
  const wires = new Map<string, string>();
  const ids: { signature: string; slot: number; err: null }[] = [];
  const land = (slot: number, text: string): string => {
    const wire = wireOf(feePayer.address, [{ ...memo(text), accounts }]);
    const signature = getBase58Decoder().decode(Buffer.alloc(64, sha256Hex(text), 'hex'));
    wires.set(signature, wire);
    ids.unshift({ signature, slot, err: null });
    return signature;
  };
  for (let at = 0; at < 60; at += 1) land(50, `before ${at}`);
  const paid = land(101, 'the payment');
  for (let at = 0; at < 1_500; at += 1) land(102, `noise ${at}`);
  let read = 0;
  const node = await startAlteredNode('');
  node.alter = async ({ method, params }) => {
    const [first, options] = params as [string, { limit: number; before?: string }];
    if (method === 'getBlockHeight') return { result: 120 };
    if (method === 'getTransaction') {
      read += 1;
      return { result: { transaction: [wires.get(first), 'base64'], meta: null, slot: 101 } };
    }
    if (method === 'getSignatureStatuses') {
      const status = { slot: 101, err: null, confirmations: null, confirmationStatus: 'finalized' };
      return { result: { context: { slot: 120 }, value: [status] } };
    }
    assert.equal(method, 'getSignaturesForAddress');
    const from = ids.findIndex(({ signature }) => signature === options.before) + 1;
    return { result: ids.slice(from, from + options.limit) };
  };
  const { rpc } = openSolanaNodes(node.url, systemClock());
  const transaction = wires.get(paid) ?? '';
  const payment = {
    kind: 'solana',
    transaction,
    messageHash: messageHash(decodeWire(transaction)),
    source,
  } as const;
  const attempt = {
    transaction: undefined,
    raw: undefined,
    startHeight: 100n,
    startBlock: undefined,
    expiresAt: 250n,
  };
  const evidence = await findSolanaPayment(rpc, payment, attempt, 'confirmed');
  await node.stop();
  assert.deepEqual(evidence, { kind: 'paid', transaction: paid, height: 101n, isConfirmed: true });
  assert.ok(read < 10, `${read} transactions were read`);
});
