/**
 * A wallet is an account for the operator, in the API and on the command line: listed, found by its
 * address, credited, limited, disabled, read and paid back.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { runCommand } from '../../src/cli/cli.ts';
import { usdToNano } from '../../src/core/money.ts';
import type { TestApp } from '../app/test-app.ts';
import { type CallOptions, call } from '../app/call.ts';
import {
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  creditOf,
  evmPayment,
  signIn,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';

describe('wallets as accounts of the operator', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;
  let operator: string;
  let configFile: string;

  before(async () => {
    fixture = await startWalletFixture();
    farebox = await fixture.startApp();
    operator = await farebox.key({ kind: 'ADMIN' });
    configFile = join(farebox.config.dataFolder, 'operator.yaml');
    writeFileSync(configFile, `${fixture.yaml}\n`);
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });
  afterEach(async () => {
    await farebox.audit();
    await assertLedgerIsChain(farebox, fixture);
  });

  const admin = (path: string, options: CallOptions = {}) =>
    call(farebox, `/admin/accounts${path}`, { secret: operator, ...options });

  async function command(...argv: string[]): Promise<{ code: number; said: string }> {
    let said = '';
    const terminal = { write: (text: string) => (said += text) };
    const code = await runCommand({
      argv,
      env: { FAREBOX_DATA: farebox.config.dataFolder, FAREBOX_CONFIG: configFile },
      cwd: farebox.config.dataFolder,
      stdout: terminal,
      stderr: terminal,
      onSignal: () => undefined,
    });
    return { code, said };
  }

  async function done(...argv: string[]): Promise<string> {
    const { code, said } = await command(...argv);
    assert.equal(code, 0, said);
    return said;
  }

  async function customer(): Promise<PrivateKeyAccount> {
    const account = await fixture.evmWallet();
    const paid = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(paid.status, 200);
    return account;
  }

  const idOf = ({ address }: { readonly address: string }) => `wallet:${address.toLowerCase()}`;
  const chatOf = async (account: PrivateKeyAccount) =>
    chat(fixture.origin, { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) });

  test('a wallet that paid is listed, and found by its address in upper or lower case', async () => {
    const account = await customer();
    const id = idOf(account);
    for (const word of [account.address, account.address.slice(2, 12), id.slice(0, 20)]) {
      const { body } = await admin(`?search=${encodeURIComponent(word)}`);
      assert.deepEqual(
        body.data.map((one: { id: string }) => one.id),
        [id],
        word,
      );
      assert.match(await done('accounts', 'list', '--search', word), new RegExp(`^${id} `, 'm'));
    }
    assert.match(await done('accounts', 'list'), new RegExp(`^${id} .* paid +5\\.00 `, 'm'));
    for (const path of [id, account.address, `wallet:${account.address}`, encodeURIComponent(id)]) {
      const { body } = await admin(`/${path}`);
      const { name, plan, balance } = body.data;
      assert.deepEqual([name, plan, balance.usd], [id.slice('wallet:'.length), 'paid', '5.0000']);
    }
    const signer = await fixture.solanaWallet();
    await done('credit', '1', '--account', signer.address);
    const { body } = await admin(`/wallet:${signer.address}`);
    assert.equal(body.data.name, signer.address);
  });

  test('the operator credits and debits a wallet, also a new one', async () => {
    const account = privateKeyToAccount(generatePrivateKey());
    assert.equal((await admin(`/${account.address}`)).body.code, 'ACCOUNT_NOT_FOUND');
    const debit = await command('debit', '1', '--account', account.address);
    assert.match(debit.said, /There is no account/);
    await done('credit', '5', '--account', `wallet:${account.address}`);
    const credit = { amountUsd: 2, reference: `gift-${account.address}` };
    const given = await admin(`/${account.address}/credit`, { body: credit });
    assert.equal(given.body.data.balanceUsd, '7.0000', given.text);
    await done('debit', '1', '--account', account.address);
    assert.equal(await creditOf(farebox, account.address), usdToNano(6));
    assert.equal((await chatOf(account)).status, 200);
    const statement = await admin(`/${account.address}/statement`);
    assert.equal(statement.status, 200, statement.text);
    const requests = await admin(`/${account.address}/requests`);
    assert.equal(requests.body.data.length, 1);
    const mistyped = await command('credit', '5', '--account', '0x12');
    assert.match(mistyped.said, /There is no account "0x12"/);
  });

  test('limits of the account count for its sign-ins; a disabled wallet is refused until it is enabled', async () => {
    const account = await customer();
    const id = idOf(account);
    await done('accounts', 'limit', id, '--requests-per-minute', '1');
    assert.equal((await admin(`/${id}`)).body.data.limits.requestsPerMinute, 1);
    assert.equal((await chatOf(account)).status, 200);
    const limited = await chatOf(account);
    assert.equal(limited.status, 429);
    assert.match(await limited.text(), /limit of 1 requests per minute/);
    await done('accounts', 'limit', account.address, '--requests-per-minute', 'default');
    assert.equal((await chatOf(account)).status, 200);
    const patch = { method: 'PATCH', body: { disabled: true } } as const;
    assert.equal((await admin(`/${account.address}`, patch)).status, 200);
    const disabled = await chatOf(account);
    assert.deepEqual(
      [disabled.status, ((await disabled.json()) as { code: string }).code],
      [403, 'API_ACCESS_DISABLED'],
    );
    const payment = await evmPayment(account, { authorization: { value: '1000000' } });
    const paying = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    assert.equal(paying.status, 403);
    assert.equal(await fixture.anvil.balance(account.address), 95_000_000n, 'nothing is taken');
    await done('accounts', 'update', id, '--enable');
    assert.equal((await chatOf(account)).status, 200);
  });

  test('the credit of a wallet is refunded by the id of its account', async () => {
    const account = await customer();
    // Only final credit is paid back.
    await fixture.anvil.client.mine({ blocks: 70 });
    assert.match(await done('refund', idOf(account), 'all'), /^Paid 5\.000000 USD to 0x/);
    assert.equal(await creditOf(farebox, account.address), 0n);
  });

  test('the API refunds the final credit of a wallet once for each reference', async () => {
    const account = await customer();
    const path = `/${account.address}/refund`;
    const wanted = { amountUsd: 'all', reference: `ticket-${account.address}` };
    const early = await admin(path, { body: wanted });
    assert.deepEqual([early.status, early.body.code], [402, 'INSUFFICIENT_BALANCE'], early.text);
    await fixture.anvil.client.mine({ blocks: 70 });
    const before = await fixture.anvil.balance(account.address);
    const both = await Promise.all([1, 2].map(() => admin(path, { body: wanted })));
    // The second one finds either the refund or no credit.
    for (const one of both) assert.ok([200, 402].includes(one.status), one.text);
    const again = await admin(path, { body: wanted });
    const { state, amountUsd, isRepeat, transaction } = again.body.data;
    assert.deepEqual([state, amountUsd, isRepeat], ['paid', '5.0000', true]);
    assert.match(transaction, /^0x[\da-f]{64}$/);
    assert.equal(await fixture.anvil.balance(account.address), before + 5_000_000n, 'paid once');
    assert.equal(await creditOf(farebox, account.address), 0n);
    const other = await customer();
    const reused = await admin(`/${other.address}/refund`, { body: wanted });
    assert.equal(reused.body.code, 'REFERENCE_REUSED');
    const less = await admin(path, { body: { ...wanted, amountUsd: '1' } });
    assert.deepEqual([less.status, less.body.code], [409, 'REFERENCE_REUSED'], less.text);
    assert.match(less.body.error, /belongs to a refund of 5\.0000 USD on the account wallet:0x/);
    const same = await admin(path, { body: { ...wanted, amountUsd: '5.00' } });
    assert.deepEqual([same.status, same.body.data.isRepeat], [200, true], same.text);
    const card = await admin(`/${farebox.owner.accountId}/refund`, { body: wanted });
    assert.equal(card.status, 400);
    const wallets = await admin('?kind=wallet');
    assert.ok(wallets.body.data.every(({ id }: { id: string }) => id.startsWith('wallet:')));
    const others = await admin('?kind=account');
    assert.ok(others.body.data.every(({ id }: { id: string }) => id.startsWith('acct_')));
  });

  test('a wallet with its own prices gets offers and charges with them', async () => {
    const account = await customer();
    const priced = async (input: number) => {
      const prices = { models: { m: { price: { input, output: 0, perRequest: input } } } };
      const changed = await admin(`/${account.address}`, { method: 'PATCH', body: { prices } });
      assert.equal(changed.status, 200, changed.text);
    };
    await priced(7);
    const signed = async () => ({ 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) });
    const refused = await chat(fixture.origin, await signed());
    assert.equal(refused.status, 402);
    const { accepts } = (await refused.json()) as { accepts: { amount: string }[] }; // an offer
    // The rest of the price: the wallet has 5 USD.
    for (const { amount } of accepts) assert.ok(Number(amount) > 2_000_000, amount);
    await priced(1);
    const before = await creditOf(farebox, account.address);
    const sold = await chat(fixture.origin, await signed());
    assert.equal(sold.status, 200);
    const { usage } = (await sold.json()) as { usage: { prompt_tokens: number } }; // a completion
    const spent = before - (await creditOf(farebox, account.address));
    assert.equal(spent, usdToNano('1') + BigInt(usage.prompt_tokens) * 1_000n);
  });

  test('a wallet cannot be the owner of a server', async () => {
    const { store, identity } = farebox.app.stores;
    await store.query(`UPDATE identity_account SET created_ms = 1 WHERE id LIKE 'wallet:%'`);
    assert.equal((await identity.oldestAccount())?.name, 'owner');
  });
});
