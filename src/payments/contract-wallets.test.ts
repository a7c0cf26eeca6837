/**
 * Payments and sign-ins of contract wallets on a private Base: wallets that are not deployed (ERC-6492),
 * accounts of a key with code (EIP-7702), and contracts that accept everything or return megabytes. The gas
 * key pays for transfers only.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  type Hex,
  concatHex,
  encodeFunctionData,
  getContractAddress,
  numberToHex,
  serializeErc6492Signature,
  size,
  zeroHash,
} from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';
import { type AnvilChain, startAnvil, USDC, USDC_ABI } from '../../test/chains/anvil.ts';
import { authorizationOf, encodeHeader, transferHeader } from '../../test/support/payers.ts';
import { type Fixture, baseRail, openFixture } from '../../test/support/payments.ts';
import { Fault } from '../core/faults.ts';

const ETH = 10n ** 18n;
const payTo: Hex = '0x00000000000000000000000000000000000fa12b';
/** Deploys its input without the first word, which is the salt. Anvil has it. */
const FACTORY: Hex = '0x4e59b44847b379578588920cA78FbF26c0B4956C';
/** Accepts every signature. */
const ACCEPTS: Hex = '0x631626ba7e60e01b5f5260205ff3';
/** Accepts every signature, with two megabytes of zeros after the result. */
const ACCEPTS_AT_LENGTH: Hex = '0x631626ba7e60e01b5f52622000005ff3';
/** Returns two megabytes of zeros. */
const LONG: Hex = '0x622000005ff3';

describe('contract wallets', () => {
  const gasKey = generatePrivateKey();
  const gas = privateKeyToAccount(gasKey).address;
  let chain: AnvilChain;
  let fixture: Fixture;
  let walletCode: Hex;

  before(async () => {
    chain = await startAnvil();
    await chain.fund(gas, ETH);
    fixture = await openFixture({
      settings: { base: baseRail({ payTo, rpcUrl: chain.rpcUrl, gasKey }) },
    });
    const { address } = newAccount();
    await chain.placeWallet(address, address);
    walletCode = (await chain.client.getCode({ address })) ?? '0x';
  });
  after(async () => {
    await fixture.close();
    await chain.stop();
  });

  const newAccount = () => privateKeyToAccount(generatePrivateKey());
  const spent = async () => ETH - (await chain.client.getBalance({ address: gas }));

  /** A wallet that is not deployed: its address, and the call of the factory that deploys it. */
  function undeployed(owner: Hex): { address: Hex; data: Hex } {
    // Stores the owner in the first slot and returns the code behind these 33 bytes.
    const begin = concatHex([
      '0x73',
      owner,
      '0x5f5561',
      numberToHex(size(walletCode), { size: 2 }),
    ]);
    const bytecode = concatHex([begin, '0x8060215f395ff3', walletCode]);
    const address = getContractAddress({
      opcode: 'CREATE2',
      from: FACTORY,
      salt: zeroHash,
      bytecode,
    });
    return { address, data: concatHex([zeroHash, bytecode]) };
  }

  async function signIn(address: Hex, sign: (message: string) => Promise<Hex>): Promise<string> {
    const message = createSiweMessage({
      address,
      chainId: 8453,
      domain: 'pay.test',
      nonce: generateSiweNonce(),
      uri: 'http://pay.test/api/v1/chat/completions',
      version: '1',
      issuedAt: new Date(),
    });
    const header = encodeHeader({
      address,
      message,
      signature: await sign(message),
      chainId: 8453,
    });
    return await fixture.payments.signIn.verify(header, '').then(
      ({ wallet }) => wallet,
      (error: unknown) => (error instanceof Fault ? error.code : String(error)),
    );
  }

  async function pay(header: string): Promise<string> {
    return await fixture.payments.headers.topUp(header).then(
      () => 'credited',
      (error: unknown) => (error instanceof Fault ? error.code : String(error)),
    );
  }

  /** The header with a signature that also has the call that deploys its wallet. */
  function wrapped(header: string, data: Hex): string {
    const { authorization, signature: inner } = authorizationOf(header);
    const signature = serializeErc6492Signature({ address: FACTORY, data, signature: inner });
    const payload = { authorization, signature };
    return encodeHeader({ x402Version: 1, scheme: 'exact', network: 'base', payload });
  }

  test('a wallet that is not deployed signs in, and only with the call that deploys it', async () => {
    const owner = newAccount();
    const stranger = newAccount();
    const { address, data } = undeployed(owner.address);
    const mint = encodeFunctionData({
      abi: USDC_ABI,
      functionName: 'mint',
      args: [address, 10_000_000n],
    });
    const by =
      (signer: typeof owner, factory: Hex, call: Hex) =>
      async (message: string): Promise<Hex> => {
        const signature = await signer.signMessage({ message });
        return serializeErc6492Signature({ address: factory, data: call, signature });
      };
    assert.equal(await signIn(address, by(owner, FACTORY, data)), address.toLowerCase());
    for (const forged of [
      by(stranger, FACTORY, data),
      by(stranger, FACTORY, undeployed(stranger.address).data),
      by(stranger, USDC, mint),
      by(owner, USDC, mint),
      by(stranger, address, '0x'),
    ]) {
      assert.equal(await signIn(address, forged), 'X402_SIGN_IN_INVALID_SIGNATURE');
    }
    assert.equal(await chain.client.getCode({ address }), undefined);
    assert.equal(await chain.balance(address), 0n);
  });

  test('a payment does not deploy its wallet; after its deployment it is credited', async () => {
    const owner = newAccount();
    const { address, data } = undeployed(owner.address);
    await chain.mint(address, 10_000_000n);
    const authorization = { from: address };
    const header = wrapped(await transferHeader(owner, payTo, { authorization }), data);
    const gasBefore = await spent();
    assert.equal(await pay(header), 'PAYMENT_VERIFICATION_FAILED');
    assert.equal(await spent(), gasBefore);
    assert.equal(await chain.client.getCode({ address }), undefined);
    await chain.callAs(owner.address, FACTORY, data);
    assert.equal(await pay(header), 'credited');
    assert.equal(await fixture.balance(address.toLowerCase()), 5_000_000_000n);
  });

  test('an account of a key with code pays only if its code accepts the signature', async () => {
    const account = newAccount();
    const owner = newAccount();
    await chain.placeWallet(account.address, owner.address);
    await chain.mint(account.address, 10_000_000n);
    const gasBefore = await spent();
    assert.equal(await pay(await transferHeader(account, payTo)), 'PAYMENT_VERIFICATION_FAILED');
    assert.equal(await spent(), gasBefore);
    const authorization = { from: account.address };
    assert.equal(await pay(await transferHeader(owner, payTo, { authorization })), 'credited');
  });

  test('a wallet that accepts everything is credited once for each payment', async () => {
    const { address } = newAccount();
    await chain.client.setCode({ address, bytecode: ACCEPTS });
    await chain.mint(address, 20_000_000n);
    const authorization = { from: address };
    const header = await transferHeader(newAccount(), payTo, { authorization });
    const same = authorizationOf(header).authorization;
    const again = await transferHeader(newAccount(), payTo, { authorization: same });
    assert.deepEqual([await pay(header), await pay(again)], ['credited', 'credited']);
    assert.equal(await fixture.balance(address.toLowerCase()), 5_000_000_000n);
    assert.equal(await chain.balance(address), 15_000_000n);
    const other = { ...same, value: '6000000' };
    const changed = await transferHeader(newAccount(), payTo, { authorization: other });
    assert.equal(await pay(changed), 'INVALID_PAYMENT');
  });

  for (const [name, code] of [
    ['megabytes', LONG],
    ['megabytes after the right result', ACCEPTS_AT_LENGTH],
  ] as const) {
    test(`a wallet that returns ${name} costs no gas`, async () => {
      const { address } = newAccount();
      await chain.client.setCode({ address, bytecode: code });
      await chain.mint(address, 10_000_000n);
      const authorization = { from: address };
      const gasBefore = await spent();
      const header = await transferHeader(newAccount(), payTo, { authorization });
      assert.equal(await pay(header), 'PAYMENT_VERIFICATION_FAILED');
      assert.equal(await spent(), gasBefore);
    });
  }
});
