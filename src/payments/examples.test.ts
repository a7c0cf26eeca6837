/** The wallet examples run as they stand, against a private Base and a private Solana. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes, generateKeyPairSigner } from '@solana/kit';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { startAnvil } from '../../test/chains/anvil.ts';
import type { AnvilChain } from '../../test/chains/anvil.ts';
import { startSolana } from '../../test/chains/solana.ts';
import type { SolanaChain } from '../../test/chains/solana.ts';
import { systemIds } from '../kernel/ids.ts';
import { usdToNano } from '../kernel/money.ts';
import { base58Encode } from './base58.ts';
import { BASE, SOLANA } from './networks.ts';
import { openRig, startFace } from './test-rig.ts';
import type { Face, Rig } from './test-rig.ts';

const payTo: Hex = '0x00000000000000000000000000000000000fa12b';

describe('the wallet examples', () => {
  let anvil: AnvilChain;
  let solana: SolanaChain;
  let face: Face;
  let rig: Rig;

  before(async () => {
    anvil = await startAnvil();
    solana = await startSolana();
    face = await startFace();
    const gasKey = generatePrivateKey();
    const feePayerKey = systemIds().hex(32);
    const feePayer = await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(feePayerKey, 'hex'));
    const receiver = await generateKeyPairSigner();
    await anvil.fund(privateKeyToAccount(gasKey).address, 10n ** 18n);
    solana.airdrop(feePayer.address, 10_000_000_000n);
    await solana.setTokens(receiver.address, 0n);
    rig = await openRig({
      publicUrl: face.url,
      settings: {
        base: {
          network: BASE,
          payTo,
          rpcUrl: anvil.rpcUrl,
          gasKey,
          maxGas: 300_000,
          maxFeeGwei: 50,
          warnBelowEth: 0,
        },
        solana: {
          network: SOLANA,
          payTo: receiver.address,
          rpcUrl: solana.rpcUrl,
          feePayerKey,
          maxPriorityFeeMicroLamports: 100_000,
          maxComputeUnits: 200_000,
          warnBelowSol: 0,
        },
      },
    });
    face.rig = rig;
  });

  after(async () => {
    await rig.close();
    await face.stop();
    await anvil.stop();
    await solana.stop();
  });

  async function run(name: string, env: Record<string, string>): Promise<string> {
    const file = new URL(`../../examples/wallet/${name}.ts`, import.meta.url).pathname;
    const child = spawn(process.execPath, [file], {
      env: { PATH: '', BASE_URL: `${face.url}/api/v1`, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await new Promise((resolve) => {
      child.once('close', resolve);
    });
    return output;
  }

  for (const name of ['fetch', 'viem']) {
    test(`${name}.ts tops up and chats`, async () => {
      const key = generatePrivateKey();
      const account = privateKeyToAccount(key);
      await anvil.mint(account.address, 20_000_000n);
      const output = await run(name, { PRIVATE_KEY: key });
      assert.match(output, /top-up 200/);
      assert.match(output, /chat 200/);
      assert.match(output, /credit left 4\.990000 USD/);
      assert.equal(await rig.balance(account.address.toLowerCase()), usdToNano('4.99'));
    });
  }

  test('solana.ts tops up and chats', async () => {
    const seed = systemIds().bytes(32);
    const signer = await createKeyPairSignerFromPrivateKeyBytes(seed);
    await solana.setTokens(signer.address, 20_000_000n);
    const publicKey = Buffer.from(await crypto.subtle.exportKey('raw', signer.keyPair.publicKey));
    assert.equal(base58Encode(publicKey), signer.address);
    const keypair = join(rig.folder, 'id.json');
    writeFileSync(keypair, JSON.stringify([...seed, ...publicKey]));
    const output = await run('solana', { KEYPAIR: keypair, SOLANA_RPC_URL: solana.rpcUrl });
    assert.match(output, /top-up 200/);
    assert.match(output, /credit left 4\.990000 USD/);
    assert.equal(await rig.balance(signer.address), usdToNano('4.99'));
  });
});
