/**
 * Wallet-signed chats per second compared with chats by API key, on one server. Each wallet request
 * has its own proof, signed before the measurement. Then the cost of a proof on the event loop.
 */
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { createRequire } from 'node:module';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { systemClock } from '../src/core/clock.ts';
import { systemIds } from '../src/core/ids.ts';
import { silentLog } from '../src/core/log.ts';
import { base58Encode } from '../src/core/base58.ts';
import { keccak256 } from '../src/core/keccak.ts';
import { PAYMENTS_MIGRATIONS } from '../src/payments/payments.ts';
import { SignIn } from '../src/payments/sign-in/sign-in.ts';
import { openStore } from '../src/db/db.ts';
import { freePort } from '../test/support/free-port.ts';
import {
  type Figures,
  chatBody,
  medians,
  report,
  runWindow,
  startGateway,
  startProcess,
  stopAll,
  temporaryFolder,
} from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const WINDOW_MS = 1_000;
/** A wallet can have five concurrent requests. */
const EACH = 4;
const WALLETS = 16;
const LOOP_PROOFS = 4_000;
const AT_ONCE = 16;
const BASE = 'eip155:8453';
const SOLANA = 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp';

// The native package signs as fast as the server verifies; its types lack signing.
const secp256k1 = createRequire(import.meta.url)('secp256k1') as {
  ecdsaSign(digest: Uint8Array, key: Uint8Array): { signature: Uint8Array; recid: number };
};

interface Wallet {
  readonly address: string;
  readonly proof: () => string;
}

const origin = `http://127.0.0.1:${await freePort()}`;

function textOf(address: string, kind: 'Ethereum' | 'Solana', chain: string): string {
  return [
    `${new URL(origin).host} wants you to sign in with your ${kind} account:`,
    address,
    ...(kind === 'Ethereum' ? ['', ''] : ['']),
    `URI: ${origin}/api/v1/chat/completions`,
    'Version: 1',
    `Chain ID: ${chain}`,
    `Nonce: ${randomBytes(12).toString('hex')}`,
    `Issued At: ${new Date().toISOString()}`,
  ].join('\n');
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');

function evmWallet(): Wallet {
  const secret = generatePrivateKey();
  const { address } = privateKeyToAccount(secret);
  const key = Buffer.from(secret.slice(2), 'hex');
  const proof = (): string => {
    const message = textOf(address, 'Ethereum', '8453');
    const prefix = `\u0019Ethereum Signed Message:\n${message.length}`;
    const digest = keccak256(Buffer.from(prefix + message, 'latin1'));
    const { signature, recid } = secp256k1.ecdsaSign(digest, key);
    const bytes = Buffer.concat([signature, Buffer.from([27 + recid])]);
    return encode({ address, message, signature: `0x${bytes.toString('hex')}`, chainId: 8453 });
  };
  return { address, proof };
}

function solanaWallet(): Wallet {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const { x } = publicKey.export({ format: 'jwk' });
  const address = base58Encode(Buffer.from(x ?? '', 'base64url'));
  const proof = (): string => {
    const message = textOf(address, 'Solana', SOLANA.slice('solana:'.length));
    const signature = base58Encode(sign(null, Buffer.from(message), privateKey));
    return encode({ address, message, signature, chainId: SOLANA, type: 'ed25519' });
  };
  return { address, proof };
}

const wallets = Array.from({ length: WALLETS }, (_, index) =>
  index % 2 === 0 ? evmWallet() : solanaWallet(),
);

async function signInCost(name: string, wallet: Wallet): Promise<void> {
  const clock = systemClock();
  const store = await openStore({
    url: `sqlite:${temporaryFolder()}/bench.db`,
    clock,
    ids: systemIds(),
    log: silentLog,
  });
  await store.migrate(PAYMENTS_MIGRATIONS);
  const signIn = new SignIn({
    store,
    clock,
    log: silentLog,
    publicUrl: origin,
    chains: [BASE, SOLANA],
    isContractSignature: undefined,
  });
  const proofs = Array.from({ length: LOOP_PROOFS }, () => wallet.proof());
  for (const proof of proofs.splice(0, LOOP_PROOFS / 4)) await signIn.verify(proof, '');
  const loopBefore = process.threadCpuUsage();
  const before = process.cpuUsage();
  const count = proofs.length;
  // As many concurrent proofs as on a busy server, where their nonces share a database transaction.
  while (proofs.length > 0) {
    await Promise.all(proofs.splice(0, AT_ONCE).map((proof) => signIn.verify(proof, '')));
  }
  const each = ({ user, system }: NodeJS.CpuUsage): string => ((user + system) / count).toFixed(0);
  const loop = each(process.threadCpuUsage(loopBefore));
  const cpu = each(process.cpuUsage(before));
  console.log(`${name}: ${loop} µs of the event loop a sign-in, ${cpu} µs of CPU in all threads`);
  await store.close();
}

/** Signs enough proofs for a measurement before it starts. */
function prepared(wallet: Wallet, count: number): (() => Record<string, string>)[] {
  return Array.from({ length: EACH }, () => {
    const proofs = Array.from({ length: count }, () => wallet.proof());
    return () => ({ 'SIGN-IN-WITH-X': proofs.pop() ?? wallet.proof() });
  });
}

try {
  const upstream = await startProcess('./upstream.ts');
  const gateway = await startGateway(upstream, {
    env: {
      BENCH_PORT: new URL(origin).port,
      BENCH_WALLETS: wallets
        .map(({ address }) => (address.startsWith('0x') ? address.toLowerCase() : address))
        .join(','),
      // The nodes are never called: sign-ins of keys need none.
      BENCH_YAML: `payments:
  base: { payTo: '0x00000000000000000000000000000000000fa12b', rpcUrl: 'http://127.0.0.1:9/', gasKey: '${generatePrivateKey()}' }
  solana: { payTo: ${solanaWallet().address}, rpcUrl: 'http://127.0.0.1:9/', feePayerKey: ${randomBytes(32).toString('hex')} }`,
    },
  });
  const connections = WALLETS * EACH;
  const load = {
    path: '/chat/completions',
    body: chatBody(),
    connections,
    windowMs: WINDOW_MS,
  };
  await runWindow(gateway, load);
  const keyed: Figures[] = [];
  const signed: Figures[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const figures = await runWindow(gateway, load);
    keyed.push(figures);
    const count = Math.ceil((figures.perSecond * WINDOW_MS) / 1_000 / connections) + 20;
    const next = wallets.flatMap((wallet) => prepared(wallet, count));
    const headersOf = (at: number) => next[at]?.() ?? {};
    signed.push(await runWindow({ ...gateway, headers: {}, headersOf }, load));
  }
  const results = [
    ['API key', medians(keyed)],
    ['wallet', medians(signed)],
  ] as const;
  report('chat JSON', new Map(results));
  for (const [index, name] of ['Base', 'Solana'].entries()) {
    const wallet = wallets[index];
    if (wallet !== undefined) await signInCost(name, wallet);
  }
} finally {
  await stopAll();
}
