/**
 * `kill -9` of the whole server around a top-up, at points that the calls to the chain mark, and
 * two servers that are given the same payment: the ledger is the chain, and nothing is paid twice.
 * The server that has taken up what a killed one left is the next to be killed, on the same ledger.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from '@x402/core/http';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { x402Client } from '@x402/fetch';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import type { PrivateKeyAccount } from 'viem/accounts';
import { walletIdentity } from '../../src/core/addresses.ts';
import type { Store } from '../../src/db/db.ts';
import { type ServerProcess, startServerProcess } from '../app/server-process.ts';
import { type FaultProxy, startFaultProxy } from '../chains/fault-proxy.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { openTestStore } from '../databases/stores.ts';
import {
  BASE,
  PAY_TO,
  SOLANA,
  type WalletFixture,
  chat,
  evmPayment,
  signIn,
  solanaClient,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';

const FIVE_USD = 5_000_000_000n;
/** Usage of the engine of the fixture, and its cost. */
const COST_NANO = 22_000n;

/** Calls at which the server dies once the payment is running. */
const POINTS = [
  { rail: 'base', method: 'eth_call', says: 'while it is checked', isKnown: false },
  { rail: 'base', method: 'eth_estimateGas', says: 'opened and never sent', isKnown: true },
  { rail: 'base', method: 'eth_sendRawTransaction', says: 'as it is sent', isKnown: true },
  { rail: 'base', method: 'eth_getTransactionReceipt', says: 'sent', isKnown: true },
  { rail: 'solana', method: 'simulateTransaction', says: 'while it is checked', isKnown: false },
  { rail: 'solana', method: 'sendTransaction', says: 'as it is sent', isKnown: true },
  { rail: 'solana', method: 'getSignatureStatuses', says: 'sent', isKnown: true },
] as const;

describe('servers that die around a top-up', () => {
  let fixture: WalletFixture;
  let proxies: { readonly base: FaultProxy; readonly solana: FaultProxy };
  let yaml: string;
  /** Read beside the servers. */
  let books: Store;
  const folders: string[] = [];
  const folder = newFolder();
  const running: ServerProcess[] = [];

  before(async () => {
    fixture = await startWalletFixture();
    proxies = {
      base: await startFaultProxy(fixture.anvil.rpcUrl),
      solana: await startFaultProxy(fixture.solana.rpcUrl),
    };
    yaml = fixture.yaml
      .replace(fixture.anvil.rpcUrl, proxies.base.url)
      .replace(fixture.solana.rpcUrl, proxies.solana.url);
    await start(folder);
    books = await openTestStore(`sqlite:${join(folder, 'data/farebox.db')}`);
  });
  after(async () => {
    for (const one of running) await one.kill();
    await books.close();
    await proxies.base.stop();
    await proxies.solana.stop();
    await fixture.stop();
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });

  function newFolder(): string {
    const folder = mkdtempSync(join(tmpdir(), 'farebox-wallet-crash-'));
    folders.push(folder);
    return folder;
  }

  async function start(
    folder: string,
    settings = yaml,
    port = fixture.port,
  ): Promise<ServerProcess> {
    const server = await startServerProcess(folder, settings, port);
    running.push(server);
    return server;
  }

  /** The last one that was started, or a new one where a case before has failed halfway. */
  async function serving(): Promise<ServerProcess> {
    // A check of earlier credits must not count as a step of the next payment.
    await books.query('UPDATE payments_topup SET is_watched = 0');
    const last = running.at(-1);
    return last === undefined || last.child.signalCode !== null ? await start(folder) : last;
  }

  async function payment(rail: 'base' | 'solana'): Promise<{ header: string; wallet: string }> {
    if (rail === 'base') {
      const account = await fixture.evmWallet();
      return { header: await evmPayment(account), wallet: account.address.toLowerCase() };
    }
    const signer = await fixture.solanaWallet();
    const required = await topUp(fixture.origin, {});
    const header = required.headers.get('PAYMENT-REQUIRED') ?? '';
    const client = solanaClient(signer, fixture.solana.rpcUrl);
    const payload = await client.createPaymentPayload(decodePaymentRequiredHeader(header));
    return { header: encodePaymentSignatureHeader(payload), wallet: signer.address };
  }

  const arrived = async (): Promise<bigint> =>
    (await fixture.anvil.balance(PAY_TO)) + (await fixture.solana.tokens(fixture.receiver.address));

  async function creditIn(store: Store, wallet: string): Promise<bigint> {
    const rows = await store.query<{ balance_nano: bigint }>(
      'SELECT balance_nano FROM ledger_account WHERE id = $1',
      [`wallet:${wallet}`],
    );
    return rows[0]?.balance_nano ?? 0n;
  }

  for (const { rail, method, says, isKnown } of POINTS) {
    test(`${rail}, killed ${says} (${method}): one credit after the restart`, async () => {
      const first = await serving();
      const { header, wallet } = await payment(rail);
      const before = await arrived();
      proxies[rail].fate = (seen) => {
        if (seen === method) first.child.kill('SIGKILL');
        return 'pass';
      };
      await assert.rejects(topUp(fixture.origin, { 'PAYMENT-SIGNATURE': header }));
      await first.gone;
      proxies[rail].fate = () => 'pass';
      await start(folder);
      if (isKnown) {
        // No request comes; the next process finishes the payment by itself.
        await until(async () => (await creditIn(books, wallet)) !== 0n, 'the credit', 50);
        assert.equal(await creditIn(books, wallet), FIVE_USD);
      }
      const answers = await Promise.all(
        [1, 2].map(() => topUp(fixture.origin, { 'PAYMENT-SIGNATURE': header })),
      );
      const bodies = await Promise.all(answers.map((answer) => answer.text()));
      assert.deepEqual(
        answers.map(({ status }) => status),
        [200, 200],
        bodies.join(),
      );
      assert.equal(new Set(bodies.map(sameForAll)).size, 1);
      assert.equal(await creditIn(books, wallet), FIVE_USD);
      assert.equal((await arrived()) - before, 5_000_000n);
    });
  }

  for (const { rail, method } of [
    { rail: 'base', method: 'eth_sendRawTransaction' },
    { rail: 'solana', method: 'getSignatureStatuses' },
  ] as const) {
    test(`${rail}, killed in a small first payment (${method}): its retry is served from one credit`, async () => {
      const first = await serving();
      const required = (await chat(fixture.origin, {})).headers.get('PAYMENT-REQUIRED') ?? '';
      const wallet = rail === 'base' ? await fixture.evmWallet() : await fixture.solanaWallet();
      const client =
        'signMessages' in wallet
          ? new x402Client().register(SOLANA, new ExactSvmScheme(wallet, fixture.solana))
          : new x402Client().register(BASE, new ExactEvmScheme(wallet));
      const paid = {
        'PAYMENT-SIGNATURE': encodePaymentSignatureHeader(
          await client.createPaymentPayload(decodePaymentRequiredHeader(required)),
        ),
      };
      const own = { ...paid, 'Idempotency-Key': `first-payment-of-${wallet.address}` };
      const before = await arrived();
      proxies[rail].fate = (seen) => {
        if (seen === method) first.child.kill('SIGKILL');
        return 'pass';
      };
      await assert.rejects(chat(fixture.origin, own));
      await first.gone;
      proxies[rail].fate = () => 'pass';
      await start(folder);
      const answers = await Promise.all([1, 2, 3].map(() => chat(fixture.origin, own)));
      const again = await chat(fixture.origin, own);
      const bodies = await Promise.all([...answers, again].map((answer) => answer.text()));
      // Requests that came while the first one ran can get an error that allows a retry.
      for (const [index, { status }] of answers.entries()) {
        assert.ok([200, 202, 409].includes(status), bodies[index] ?? '');
      }
      assert.equal(again.status, 200, bodies[3] ?? '');
      assert.equal((await chat(fixture.origin, paid)).status, 409, 'shown without its key');
      assert.equal(
        await creditIn(books, walletIdentity(wallet.address)),
        1_000_000_000n - COST_NANO,
      );
      assert.equal((await arrived()) - before, 1_000_000n);
    });
  }

  test('a used sign-in is 401 NONCE_REUSED also after a kill and a restart', async () => {
    const first = await serving();
    const account: PrivateKeyAccount = await fixture.evmWallet();
    const proof = { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) };
    assert.equal((await chat(fixture.origin, proof)).status, 402);
    await first.kill();
    const second = await start(folder);
    const again = await chat(fixture.origin, proof);
    assert.equal(again.status, 401);
    const { code } = (await again.json()) as { code: string };
    assert.equal(code, 'X402_SIGN_IN_NONCE_REUSED');
    await second.kill();
  });

  test('two servers on one database credit a payment once if both receive it', async (t) => {
    const database = await emptyPostgresDatabase();
    const ports = [fixture.port, await freePort()];
    const shared = `service: { publicUrl: '${fixture.origin}' }\ndatabase: '${database}'\n${yaml}`;
    const servers: ServerProcess[] = [];
    for (const port of ports) servers.push(await start(newFolder(), shared, port));
    const ledger = await openTestStore(database);
    t.after(() => ledger.close());
    for (const rail of ['base', 'solana'] as const) {
      const { header, wallet } = await payment(rail);
      const before = await arrived();
      const answers = await Promise.all(
        [...ports, ...ports, ...ports].map((port) =>
          topUp(`http://127.0.0.1:${port}`, { 'PAYMENT-SIGNATURE': header }),
        ),
      );
      const bodies = await Promise.all(answers.map((answer) => answer.text()));
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]), bodies.join());
      assert.equal(new Set(bodies.map(sameForAll)).size, 1);
      const withBalance = bodies.filter((body) => body.includes('newBalance'));
      assert.equal(withBalance.length, 1, 'the request that opened it is told the balance');
      assert.equal(await creditIn(ledger, wallet), FIVE_USD);
      assert.equal((await arrived()) - before, 5_000_000n);
    }
    for (const server of servers) await server.kill();
  });
});

/** Fields of every response to a payment; only the request that opened the payment gets the balance. */
function sameForAll(body: string): string {
  const { data } = JSON.parse(body) as { data: Record<string, unknown> };
  const { newBalance: _, alreadyCredited: __, ...same } = data;
  return JSON.stringify(same);
}
