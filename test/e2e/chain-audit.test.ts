/**
 * `farebox audit --chain` and `farebox check` beside a server whose chains take money back, and
 * what the server itself says of it: metrics, readiness, the stopped account.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from '@x402/core/http';
import { runCommand } from '../../src/cli/cli.ts';
import { usdToNano } from '../../src/core/money.ts';
import { walletAccountId } from '../../src/identity/identity.ts';
import { topUpAccount } from '../../src/wallet/wallet-postings.ts';
import type { TestApp } from '../app/test-app.ts';
import {
  PAY_TO,
  type WalletFixture,
  chat,
  creditOf,
  evmPayment,
  signIn,
  solanaClient,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';

const NOTHING_LOCAL = 'embedded: { enabled: false }\ndiscovery: { enabled: false }\n';
const FIVE_USD = 5_000_000_000n;

interface ChainReport {
  readonly ok: boolean;
  readonly debtsUsd: string;
  readonly chain: {
    readonly ok: boolean;
    readonly payments: number;
    readonly refunds: number;
    readonly underWay: number;
    readonly differences: readonly { readonly what: string; readonly paymentId?: string }[];
    readonly unknown: readonly { readonly transaction: string; readonly amountUsd: string }[];
  };
}

describe('the books and the chains', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-chain-audit-'));
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture();
    farebox = await fixture.startApp({ dataFolder: join(folder, 'data') });
    writeFileSync(join(folder, 'farebox.yaml'), NOTHING_LOCAL + fixture.yaml);
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  async function run(...argv: string[]) {
    const said = { out: '', err: '' };
    const code = await runCommand({
      argv,
      env: { FAREBOX_DATA: join(folder, 'data') },
      cwd: folder,
      stdout: { write: (text) => void (said.out += text) },
      stderr: { write: (text) => void (said.err += text) },
      onSignal: () => undefined,
    });
    return { code, ...said };
  }

  async function audit(...more: string[]): Promise<ChainReport & { readonly code: number }> {
    const { code, out, err } = await run('audit', '--chain', '--json', ...more);
    assert.equal(err, '');
    return { code, ...(JSON.parse(out) as ChainReport) };
  }

  async function payBase() {
    const account = await fixture.evmWallet();
    const answer = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(answer.status, 200, await answer.text());
    return account;
  }

  async function paySolana(): Promise<string> {
    const signer = await fixture.solanaWallet();
    const required = await topUp(fixture.origin, {});
    const client = solanaClient(signer, fixture.solana.rpcUrl);
    const payload = await client.createPaymentPayload(
      decodePaymentRequiredHeader(required.headers.get('PAYMENT-REQUIRED') ?? ''),
    );
    const header = encodePaymentSignatureHeader(payload);
    assert.equal((await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': header })).status, 200);
    return signer.address;
  }

  /** Runs the check of credited payments, as if the given time had passed. */
  async function look(hours = 0): Promise<void> {
    const { store } = farebox.app.stores;
    await store.query(
      'UPDATE payments_topup SET next_check_ms = 0, vanished_ms = vanished_ms - $1',
      [hours * 3_600_000],
    );
    const { openWalletPayments } = await import('../../src/wallet/wallet.ts');
    const { systemClock } = await import('../../src/core/clock.ts');
    const { systemIds } = await import('../../src/core/ids.ts');
    const { silentLog } = await import('../../src/core/log.ts');
    const payments = await openWalletPayments({
      config: farebox.config,
      stores: farebox.app.stores,
      clock: systemClock(),
      ids: systemIds(),
      log: silentLog,
      basePath: '/api/v1',
    });
    await payments?.sweep();
    await payments?.stop();
  }

  test('the exit code is 0 if every credit is on its chain, as text and as JSON', async () => {
    await payBase();
    await payBase();
    await paySolana();
    const report = await audit();
    assert.equal(report.code, 0, JSON.stringify(report));
    const { payments, refunds, underWay, differences, unknown } = report.chain;
    assert.deepEqual([payments, refunds, underWay], [3, 0, 0]);
    assert.deepEqual([differences, unknown], [[], []]);
    const words = await run('audit', '--chain');
    assert.equal(words.code, 0, words.out + words.err);
    assert.match(words.out, /Payments compared +3\n/);
    assert.match(words.out, /Every credit is on its chain\n$/);
    assert.equal((await run('check', '--json')).code, 0);
  });

  test('`--since` omits older payments, and needs `--chain`', async () => {
    assert.equal((await audit('--since', '1m')).chain.payments, 3);
    assert.equal((await audit('--since', '2020-01-01')).chain.payments, 3);
    for (const words of [
      ['--since', '30d'],
      ['--chain', '--since', '2099-01-01'],
      ['--chain', '--since', 'soon'],
    ]) {
      const { code, err } = await run('audit', ...words);
      assert.equal(code, 2, err);
      assert.match(err, /--since/);
    }
  });

  test('transfers that are not payments are listed with a warning', async () => {
    const transaction = await fixture.anvil.callToken('mint', [PAY_TO, 1_250_000n]);
    const report = await audit();
    assert.equal(report.code, 0, 'they are nobody’s credit');
    assert.deepEqual(
      report.chain.unknown.map((one) => [one.transaction, one.amountUsd]),
      [[transaction, '1.25']],
    );
    const words = await run('audit', '--chain');
    assert.match(words.out, /match no payment:\n/);
    assert.ok(words.out.includes(transaction));
    const { code, out } = await run('check', '--json');
    assert.equal(code, 0, out);
    const { findings } = JSON.parse(out) as { findings: { what: string; says: string }[] };
    const says = findings.find(({ what }) => what === 'payments base')?.says ?? '';
    assert.match(
      says,
      /^In the last hour 0x\w+ received transfers that are not payments of this ledger: 1, such as 0x\w+ \(a receiver must belong to one ledger\)/,
    );
  });

  test('a missing credit is reported, and the server sends its payment again', async () => {
    const account = await payBase();
    await fixture.anvil.reorg(1);
    const before = await audit();
    assert.equal(before.code, 1);
    assert.equal(before.ok, false);
    assert.deepEqual(
      before.chain.differences.map(({ what }) => what),
      ['credited, but not on the chain'],
    );
    const words = await run('audit', '--chain');
    assert.equal(words.code, 1);
    assert.match(words.out, /1 difference between ledger and chains\n$/);
    await look();
    await look();
    assert.equal((await audit()).code, 0);
    assert.equal(await creditOf(farebox, account.address), FIVE_USD);
  });

  test('a credit whose payment cannot be repeated is reversed, and the account is blocked', async () => {
    const account = await payBase();
    const sign = async () => ({ 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) });
    assert.equal((await chat(fixture.origin, await sign())).status, 200);
    const left = await creditOf(farebox, account.address);
    assert.ok(left < FIVE_USD);
    await fixture.anvil.reorg(1);
    // The transaction can no longer be sent, and the payer has no tokens left.
    await farebox.app.stores.store.query(
      `UPDATE payments_topup SET raw_tx = NULL WHERE wallet = $1`,
      [account.address.toLowerCase()],
    );
    await fixture.anvil.setTokens(account.address, 0n);
    await look();
    const ready = (await (await fetch(`${fixture.origin}/readyz`)).json()) as {
      parts: { payments: Record<string, unknown> };
    };
    assert.equal(ready.parts.payments['vanished'], 1);
    await look(1);
    assert.equal(await creditOf(farebox, account.address), 0n);
    await farebox.audit();
    const report = await audit();
    assert.equal(report.code, 0, JSON.stringify(report.chain.differences));
    assert.equal(report.debtsUsd, String(Number(FIVE_USD - left) / 1e9));
    assert.equal(report.chain.underWay, 1);
    const refused = await chat(fixture.origin, await sign());
    assert.equal(refused.status, 402);
    const metrics = await (await fetch(`${fixture.origin}/metrics`)).text();
    assert.match(metrics, /farebox_topup_credits\{state="reversed"\} 1\n/);
    assert.match(metrics, /farebox_debts_usd 0\.0000\d+\n/);
    // A new payment pays what is owed first; the rest is credit again.
    await fixture.anvil.mint(account.address, 50_000_000n);
    const again = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(again.status, 200, await again.text());
    assert.equal(await creditOf(farebox, account.address), left);
    assert.equal((await chat(fixture.origin, await sign())).status, 200);
    await farebox.audit();
  });

  test('a payment that was never credited is reported, and `--repair` credits it', async () => {
    const account = await payBase();
    const wallet = account.address.toLowerCase();
    const { store, ledger } = farebox.app.stores;
    // As an older version left it: failed in a block that a reorganisation dropped, and not watched.
    const [row] = await store.query<{ payment_id: string; amount_units: bigint }>(
      `UPDATE payments_topup SET state = 'failed', failure = 'authorization_cancelled', settlement = NULL,
         is_watched = 0, reversals = 1
       WHERE wallet = $1 RETURNING payment_id, amount_units`,
      [wallet],
    );
    await store.transaction(async (tx) => {
      await ledger.reverseIn(tx, {
        accountId: walletAccountId(account.address),
        amountNano: usdToNano(5),
        to: topUpAccount('eip155:8453'),
        id: `${row!.payment_id}-reversed`,
      });
    });
    assert.equal(await creditOf(farebox, account.address), 0n);
    const before = await run('audit', '--chain');
    assert.equal(before.code, 1);
    assert.match(before.out, /on the chain, but not credited/);
    assert.match(before.out, /--chain --repair" credits the payments that arrived\n$/);
    assert.equal(await creditOf(farebox, account.address), 0n, 'an audit changes nothing');
    const { code, repaired } = (await audit('--repair')) as ChainReport & {
      readonly code: number;
      readonly repaired: unknown;
    };
    assert.equal(code, 0);
    assert.deepEqual(repaired, [{ paymentId: row!.payment_id, amountUsd: '5.00', credited: true }]);
    assert.equal(await creditOf(farebox, account.address), FIVE_USD);
    const again = await run('audit', '--chain', '--repair');
    assert.equal(again.code, 0);
    assert.match(again.out, /Nothing to repair: every payment on a chain has its credit\n/);
    assert.equal(await creditOf(farebox, account.address), FIVE_USD, 'once');
    assert.equal((await run('audit', '--repair')).code, 2);
  });
});
