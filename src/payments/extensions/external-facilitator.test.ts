/**
 * An external facilitator (another Farebox) settles instead of the embedded one: with any response,
 * the states and the evidence from the chain are the same.
 */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { startAnvil } from '../../../test/chains/anvil.ts';
import type { AnvilChain } from '../../../test/chains/anvil.ts';
import { startSolana } from '../../../test/chains/solana.ts';
import type { SolanaChain } from '../../../test/chains/solana.ts';
import { Fault } from '../../core/faults.ts';
import { systemIds } from '../../core/ids.ts';
import { usdToNano } from '../../core/money.ts';
import { BASE } from '../networks.ts';
import { evmPayment, solanaPayment } from '../../../test/support/payers.ts';
import { openFixture, baseRail, solanaRail } from '../../../test/support/payments.ts';
import type { Fixture, FixtureOptions } from '../../../test/support/payments.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';

describe('an external facilitator', () => {
  let anvil: AnvilChain;
  let solana: SolanaChain;
  let shop: Fixture;
  let facilitator: Fixture;
  let server: Server;
  let receiver: KeyPairSigner;
  let settings: FixtureOptions['settings'];
  /** Outcome of each facilitator response to `settle`. */
  let answer: 'true' | 'lost' | 'lie' = 'true';

  before(async () => {
    anvil = await startAnvil();
    solana = await startSolana();
    receiver = await generateKeyPairSigner();
    const gasKey = generatePrivateKey();
    const feePayerKey = systemIds().hex(32);
    const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    solana.airdrop(feePayer.address, 10_000_000_000n);
    await solana.setTokens(receiver.address, 0n);
    const rails = {
      base: baseRail({
        payTo,
        rpcUrl: anvil.rpcUrl,
      }),
      solana: solanaRail({
        payTo: receiver.address,
        rpcUrl: solana.rpcUrl,
      }),
    } as const;
    facilitator = await openFixture({
      settings: { base: { ...rails.base, gasKey }, solana: { ...rails.solana, feePayerKey } },
    });
    server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body =
          chunks.length > 0 ? (JSON.parse(Buffer.concat(chunks).toString()) as unknown) : undefined;
        void serve(request.url ?? '', body).then((result) => {
          if (result === undefined) return void response.destroy();
          response.writeHead(200, { 'content-type': 'application/json' });
          response.end(JSON.stringify(result));
        });
      });
    });
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', resolve);
    });
    const { port } = server.address() as AddressInfo; // listening on TCP
    settings = {
      ...rails,
      facilitator: { url: `http://127.0.0.1:${port}`, timeoutSeconds: 10, expose: false },
    };
    shop = await openFixture({ settings });
  });

  after(async () => {
    await shop.close();
    await facilitator.close();
    server.closeAllConnections();
    server.close();
    await anvil.stop();
    await solana.stop();
  });

  async function serve(path: string, body: unknown): Promise<unknown> {
    const exposed = facilitator.payments.facilitator;
    assert.ok(exposed);
    if (path.endsWith('/supported')) return exposed.supported();
    if (path.endsWith('/verify')) return await exposed.call('verify', body);
    if (answer === 'lie')
      return { success: true, transaction: `0x${'11'.repeat(32)}`, network: BASE };
    const result = await exposed.call('settle', body);
    return answer === 'lost' ? undefined : result;
  }

  const pay = async (rail: 'base' | 'solana') =>
    await (rail === 'base' ? evmPayment(anvil, shop) : solanaPayment(solana, shop));

  for (const rail of ['base', 'solana'] as const) {
    test(`${rail}: settles, and the credit follows the chain`, async () => {
      answer = 'true';
      const { header, wallet } = await pay(rail);
      assert.equal((await shop.payments.headers.topUp(header)).wallet, wallet);
      assert.equal(await shop.balance(wallet), usdToNano(5));
      assert.equal(await facilitator.postings(), 0);
    });

    test(`${rail}: its answer is lost after the money moved: credited all the same`, async () => {
      answer = 'lost';
      const { header, wallet } = await pay(rail);
      await shop.payments.headers.topUp(header);
      await shop.payments.headers.topUp(header);
      assert.equal(await shop.balance(wallet), usdToNano(5));
    });

    test(`${rail}: it claims a success that the chain does not show: pending, no credit`, async () => {
      answer = 'lie';
      const { header, wallet } = await pay(rail);
      const pending = (error: Fault): boolean => error.code === 'SETTLEMENT_PENDING';
      await assert.rejects(shop.payments.headers.topUp(header), pending);
      assert.equal(await shop.balance(wallet), 0n);
      answer = 'true';
      await shop.payments.headers.topUp(header);
      assert.equal(await shop.balance(wallet), usdToNano(5));
    });
  }

  test('its transaction can still be mined: pending, although the payment is not valid now', async () => {
    answer = 'true';
    const { header, wallet } = await pay('base');
    const pending = (error: Fault): boolean => error.code === 'SETTLEMENT_PENDING';
    await anvil.client.setAutomine(false);
    await assert.rejects(shop.payments.headers.topUp(header), pending);
    const tokens = await anvil.balance(wallet as Hex);
    await anvil.setTokens(wallet as Hex, 0n);
    await assert.rejects(shop.payments.headers.topUp(header), pending);
    await anvil.setTokens(wallet as Hex, tokens);
    await anvil.client.setAutomine(true);
    await anvil.client.mine({ blocks: 1 });
    await shop.payments.headers.topUp(header);
    assert.equal(await shop.balance(wallet), usdToNano(5));
  });

  for (const rail of ['base', 'solana'] as const) {
    test(`${rail}: a payment that went on the chain before it was shown here is refused`, async () => {
      answer = 'true';
      const { header, wallet } = await pay(rail);
      await shop.payments.headers.topUp(header);
      const staging = await openFixture({ settings });
      await assert.rejects(staging.payments.headers.topUp(header), /used on the chain before/);
      assert.equal(await staging.balance(wallet), 0n);
      await staging.close();
    });
  }
});
