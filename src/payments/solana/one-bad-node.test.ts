/** One of three nodes of Solana reports wrong slots and heights: no payment and no refund is lost. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import {
  type KeyPairSigner,
  createKeyPairSignerFromPrivateKeyBytes,
  generateKeyPairSigner,
} from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import {
  type AlteredNode,
  type RpcCall,
  rpcError,
  startAlteredNode,
} from '../../../test/chains/altered-node.ts';
import { type SolanaChain, startSolana } from '../../../test/chains/solana.ts';
import {
  type Fixture,
  openFixture,
  paidAtLast,
  solanaRail,
} from '../../../test/support/payments.ts';
import { systemIds } from '../../core/ids.ts';
import { usdToNano } from '../../core/money.ts';
import { SOLANA } from '../networks.ts';

const SOL = 1_000_000_000n;

describe('one bad node of Solana', () => {
  let chain: SolanaChain;
  let bad: AlteredNode;
  let others: readonly AlteredNode[];
  let fixture: Fixture;
  /** Transactions that the bad node has accepted, and not yet passed on. */
  const kept: RpcCall[] = [];

  before(async () => {
    chain = await startSolana();
    bad = await startAlteredNode(chain.rpcUrl);
    others = [await startAlteredNode(chain.rpcUrl), await startAlteredNode(chain.rpcUrl)];
    const [feePayerKey, refundKey] = [systemIds().hex(32), systemIds().hex(32)];
    const receiver = await generateKeyPairSigner();
    chain.airdrop((await signerOf(feePayerKey)).address, 10n * SOL);
    await chain.setTokens(receiver.address, 0n);
    await chain.setTokens((await signerOf(refundKey)).address, 50_000_000n);
    const rpcUrl = [bad, ...others].map(({ url }) => url);
    const rail = { payTo: receiver.address, rpcUrl, feePayerKey, refundKey };
    fixture = await openFixture({ settings: { solana: solanaRail(rail) } });
  });
  afterEach(() => {
    for (const node of [bad, ...others]) node.alter = async (_, ask) => await ask();
  });
  after(async () => {
    await fixture.close();
    for (const node of [bad, ...others]) await node.stop();
    await chain.stop();
  });

  async function buyer(): Promise<KeyPairSigner> {
    const signer = await generateKeyPairSigner();
    await chain.setTokens(signer.address, 100_000_000n);
    return signer;
  }

  async function sign(signer: KeyPairSigner): Promise<string> {
    const client = new x402Client();
    client.register(SOLANA, new ExactSvmScheme(signer, { rpcUrl: chain.rpcUrl }));
    client.setSpendControls({ maxAmountPerPayment: '$25' });
    const resource = { path: '/api/v1/x402/top-up', description: 'x' };
    const { header } = await fixture.payments.requirements.topUp(resource);
    const payload = await client.createPaymentPayload(decodePaymentRequiredHeader(header));
    return Buffer.from(JSON.stringify(payload)).toString('base64');
  }

  /**
   * The bad node is the first one. It returns another result of `method`, and keeps what it should send; the
   * others accept nothing.
   */
  function lie(method: string, answer: (truth: never) => unknown): void {
    for (const node of others) {
      node.alter = async (call, ask) =>
        call.method === 'sendTransaction' ? rpcError(-32_005, 'Node is behind') : await ask();
    }
    bad.alter = async (call, ask) => {
      if (call.method === 'sendTransaction') {
        kept.push(call);
        return { result: '1'.repeat(64) };
      }
      const reply = (await ask()) as { readonly result: never };
      return call.method === method ? { result: answer(reply.result) } : reply;
    };
  }

  /** The kept transactions arrive late. */
  async function passOn(): Promise<void> {
    bad.alter = async (_, ask) => await ask();
    for (const call of kept.splice(0)) {
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, ...call });
      await fetch(chain.rpcUrl, { method: 'POST', body });
    }
  }

  async function sweep(): Promise<void> {
    for (const table of ['payments_topup', 'payments_refund'])
      await fixture.store.query(`UPDATE ${table} SET next_check_ms = 0, lease_until_ms = 0`);
    await fixture.payments.sweep();
  }

  test('a node that accepts transactions and keeps them to itself delays no payment', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    bad.alter = async ({ method }, ask) =>
      method === 'sendTransaction' ? { result: '1'.repeat(64) } : await ask();
    await fixture.payments.headers.topUp(header);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });

  test('a payment is credited although the node was far behind when it began', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    let behind = 300;
    lie('getBlockHeight', (height: number) => {
      const result = height - behind;
      behind = 0;
      return result;
    });
    await assert.rejects(fixture.payments.headers.topUp(header), { status: 202 });
    await sweep();
    await passOn();
    await paidAtLast(fixture, header);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });

  test('a refund that can still arrive is not credited back', async () => {
    const signer = await buyer();
    await paidAtLast(fixture, await sign(signer));
    const before = await chain.tokens(signer.address);
    lie('getLatestBlockhash', (truth: { readonly value: object }) => ({
      ...truth,
      value: { ...truth.value, lastValidBlockHeight: 1 },
    }));
    const { refundId } = await fixture.payments.refunds.refund(signer.address, usdToNano(5));
    await sweep();
    assert.equal((await fixture.payments.refunds.state(refundId)).state, 'sent');
    await passOn();
    await sweep();
    assert.equal((await fixture.payments.refunds.state(refundId)).state, 'paid');
    assert.equal((await chain.tokens(signer.address)) - before, 5_000_000n);
    assert.equal(await fixture.balance(signer.address), 0n);
  });

  test('a refund ends although the node reports an end that never comes', async () => {
    const signer = await buyer();
    await paidAtLast(fixture, await sign(signer));
    lie('getLatestBlockhash', (truth: { readonly value: object }) => ({
      ...truth,
      value: { ...truth.value, lastValidBlockHeight: 1_000_000_000 },
    }));
    const { refundId } = await fixture.payments.refunds.refund(signer.address, usdToNano(5));
    chain.advance(400n);
    await sweep();
    assert.equal((await fixture.payments.refunds.state(refundId)).state, 'failed');
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });

  test('the transactions of a refund are searched from the slot of its begin', async () => {
    const signer = await buyer();
    await paidAtLast(fixture, await sign(signer));
    const ahead = 1_000_000;
    for (const node of [bad, ...others]) {
      node.alter = async ({ method }, ask) => {
        const reply = (await ask()) as { result: number };
        return method === 'getSlot' ? { result: reply.result + ahead } : reply;
      };
    }
    const { refundId } = await fixture.payments.refunds.refund(signer.address, usdToNano(1));
    for (const node of others) node.alter = async (_, ask) => await ask();
    const [row] = await fixture.store.query<{ start_height: bigint }>(
      'SELECT start_height FROM payments_refund WHERE refund_id = $1',
      [refundId],
    );
    assert.ok(row!.start_height > ahead, `${row!.start_height} is a height`);
  });

  test('a payment is new although the node reports a slot of the future', async () => {
    const signer = await buyer();
    const header = await sign(signer);
    bad.alter = async ({ method }, ask) => {
      const reply = (await ask()) as { result: number };
      return method === 'getSlot' ? { result: reply.result + 1_000 } : reply;
    };
    await paidAtLast(fixture, header);
    assert.equal(await fixture.balance(signer.address), usdToNano(5));
  });
});

async function signerOf(key: string): Promise<KeyPairSigner> {
  return await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(key, 'hex'));
}
