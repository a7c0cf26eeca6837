/** The console in a real browser: sign-in, keys, budgets, webhooks, batches, payments, operator pages. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  getTransactionDecoder,
  getTransactionEncoder,
  partiallySignTransaction,
  signBytes,
} from '@solana/kit';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Hex } from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import OpenAI from 'openai';
import { type ConsoleFixture, type Visitor, startConsoleFixture } from './console-fixture.ts';

/** Sets `pwned` if a page inserts it as markup. */
const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;

/** Parameters of the wallet methods. */
type Params = [{ chainId: string } & Hex, string];

/** Announces a wallet by EIP-6963; the test responds to its requests. */
const EVM_WALLET = `
const provider = { request: async (call) => {
  const answer = await window.askWallet(JSON.stringify(call));
  if (answer.code !== undefined) throw Object.assign(new Error(answer.message), { code: answer.code });
  return answer.result;
} };
const info = { uuid: '350670db-19fa-4704-a166-e52e178b59d2', name: 'Test Wallet', icon: 'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg"/>', rdns: 'test.wallet' };
const say = () => window.dispatchEvent(new CustomEvent('eip6963:announceProvider', { detail: Object.freeze({ info, provider }) }));
window.addEventListener('eip6963:requestProvider', say);
say();`;

/** Registers a wallet by the Wallet Standard; the test creates its signatures. */
const solanaWallet = (address: string): string => `
const account = { address: '${address}', publicKey: new Uint8Array(32), chains: ['solana:mainnet'], features: ['solana:signMessage', 'solana:signTransaction'] };
const signed = async (kind, bytes) => new Uint8Array(await window.signSolana(kind, [...bytes]));
const wallet = {
  version: '1.0.0', name: 'Test Solana', icon: 'data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg"/>', chains: ['solana:mainnet'], accounts: [account],
  features: {
    'standard:connect': { version: '1.0.0', connect: async () => ({ accounts: [account] }) },
    'standard:events': { version: '1.0.0', on: () => () => undefined },
    'solana:signMessage': { version: '1.0.0', signMessage: async ({ message }) => [{ signedMessage: message, signature: await signed('message', message) }] },
    'solana:signTransaction': { version: '1.0.0', supportedTransactionVersions: ['legacy', 0], signTransaction: async ({ transaction }) => [{ signedTransaction: await signed('transaction', transaction) }] },
  },
};
const register = ({ register }) => register(wallet);
window.addEventListener('wallet-standard:app-ready', ({ detail }) => register(detail));
window.dispatchEvent(new CustomEvent('wallet-standard:register-wallet', { detail: register }));`;

describe('the console', () => {
  let fixture: ConsoleFixture;
  let admin: string;

  before(async () => {
    // Allows webhooks to this machine.
    fixture = await startConsoleFixture(`
fetch: { allow: ["127.0.0.0/8"] }
rpc:
  networks:
    ethereum-mainnet:
      upstreams:
        - { url: "http://127.0.0.1:9/key", name: a node with a long name in the first data centre }
        - { url: "http://127.0.0.1:9/key2" }
`);
    admin = await fixture.farebox.key({ kind: 'ADMIN', description: 'owner' });
  });
  after(() => fixture.stop());

  /** Runs a visit, and fails for errors, policy violations and requests to other hosts. */
  async function visit(
    options: Parameters<ConsoleFixture['visitor']>[0],
    run: (visitor: Visitor) => Promise<void>,
  ): Promise<void> {
    const visitor = await fixture.visitor(options);
    await run(visitor);
    await visitor.close();
  }

  /** Responds for the Base wallet, which starts on another chain. */
  async function serveWallet(
    { context }: Visitor,
    account: PrivateKeyAccount,
    reaction: { readonly rejects: boolean },
  ): Promise<void> {
    let chainId = '0x1';
    await context.exposeFunction('askWallet', async (text: string) => {
      const { method, params } = JSON.parse(text) as { method: string; params: Params };
      switch (method) {
        case 'eth_requestAccounts':
          return { result: [account.address.toLowerCase()] };
        case 'eth_chainId':
          return { result: chainId };
        case 'wallet_switchEthereumChain':
          ({ chainId } = params[0]);
          return { result: null };
        case 'personal_sign':
          return { result: await account.signMessage({ message: { raw: params[0] } }) };
        case 'eth_signTypedData_v4': {
          if (reaction.rejects) return { code: 4001, message: 'User rejected the request' };
          const { EIP712Domain: _domain, ...types } = JSON.parse(params[1]).types;
          return { result: await account.signTypedData({ ...JSON.parse(params[1]), types }) };
        }
        default: {
          const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
          const headers = { 'content-type': 'application/json' };
          const { rpcUrl } = fixture.wallets.anvil;
          const response = await fetch(rpcUrl, { method: 'POST', headers, body });
          return { result: ((await response.json()) as { result: unknown }).result };
        }
      }
    });
  }

  test('the welcome page shows code samples and loads less than 90 kB', async () => {
    await visit({}, async (visitor) => {
      let bytes = 0;
      visitor.page.on('response', (response) => {
        void response
          .request()
          .sizes()
          .then(({ responseBodySize }) => (bytes += responseBodySize));
      });
      await visitor.open('/');
      await visitor.page.getByRole('heading', { level: 1 }).waitFor();
      await visitor.checkAccess('welcome');
      await visitor.page.getByRole('tab', { name: 'Python' }).click();
      await visitor.page.getByText('from openai import OpenAI').waitFor();
      await visitor.page.getByRole('link', { name: 'Sign in' }).click();
      await visitor.page.getByRole('heading', { name: 'Sign in' }).waitFor();
      await visitor.checkAccess('sign-in');
      assert.ok(bytes > 10_000 && bytes < 90_000, `${bytes} bytes`);
    });
  });

  test('sign-in by key stores no secret, and sign-out invalidates a copied cookie', async () => {
    await visit({ refusals: [401] }, async (visitor) => {
      const { page, context } = visitor;
      await visitor.open('/console/keys');
      await page.getByLabel('API key').fill('wrong');
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
      await page.getByRole('alert').waitFor();
      await page.getByLabel('API key').fill(admin);
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
      await page.getByRole('heading', { name: 'Keys' }).waitFor();
      const kept = await page.evaluate<string>(
        'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])',
      );
      assert.ok(!kept.includes(admin) && !kept.includes('session'), kept);
      assert.ok(!(await page.content()).includes(admin));
      const [cookie] = await context.cookies();
      assert.ok(cookie?.httpOnly && cookie.sameSite === 'Strict');
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByText('You are signed out').waitFor();
      const stolen = { cookie: `${cookie.name}=${cookie.value}` };
      const answer = await fetch(`${fixture.farebox.url}/billing/balance`, { headers: stolen });
      assert.equal(answer.status, 401);
    });
  });

  test('a sign-in link works once', async () => {
    const { identity } = fixture.farebox.app.stores;
    const { accountId, keyId } = await identity.keys.callerOf(admin);
    const link = `/console/sign-in#${await identity.sessions.issueLink(accountId, keyId)}`;
    await visit({ refusals: [401] }, async (visitor) => {
      const { page, context } = visitor;
      // The sign-in page is open already, so only the part after `#` changes.
      await visitor.open('/console/sign-in');
      await page.getByLabel('API key').waitFor();
      await visitor.open(link);
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      assert.equal(page.url(), `${fixture.origin}/console`);
      await context.clearCookies();
      await visitor.open('/');
      await visitor.open(link);
      await page.getByText('The link is not valid: The sign-in link was used').waitFor();
      assert.equal(page.url(), `${fixture.origin}/console/sign-in`);
      await visitor.checkAccess('a used link');
    });
  });

  test('sign-in redirects only to pages of the console', async () => {
    await visit({}, async (visitor) => {
      await visitor.signIn(admin);
      for (const [next, lands] of [
        ['//evil.test/', '/console'],
        ['https://evil.test', '/console'],
        ['/\\evil.test', '/console'],
        ['/console/../..//evil.test', '/console'],
        ['/console/models?x=1', '/console/models?x=1'],
      ] as const) {
        await visitor.open(`/console/sign-in?next=${encodeURIComponent(next)}`);
        await visitor.page.locator('.page nav').waitFor();
        assert.equal(visitor.page.url(), fixture.origin + lands);
      }
    });
  });

  test('a new key works, its request appears without a reload, and revoking ends it', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console/keys');
      await page.getByRole('button', { name: 'Create a key' }).click();
      await page.getByLabel('Description').fill(HOSTILE);
      await page.getByLabel('Spend limit in USD').fill('5');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('cannot show it again').waitFor();
      const secret = (await page.locator('.secret code').textContent()) ?? '';
      await visitor.checkAccess('the new key');
      await page.getByRole('button', { name: 'I have copied it' }).click();
      assert.ok(!(await page.content()).includes(secret));
      await visitor.open('/console');
      await page.getByRole('heading', { name: 'Latest requests' }).waitFor();
      await visitor.settled();
      const requests = page.getByRole('region', { name: 'Requests' });
      const before = await requests.locator('tbody tr').count();
      fixture.wallets.upstream.script.push({
        kind: 'answer',
        content: 'Hi',
        promptTokens: 12,
        completionTokens: 13,
      });
      const openai = new OpenAI({ baseURL: fixture.farebox.url, apiKey: secret });
      const answer = await openai.chat.completions.create({
        model: 'm',
        messages: [{ role: 'user', content: 'Hi' }],
      });
      assert.ok(answer.choices[0]);
      // 12 x 1 and 13 x 2 USD per million tokens, without a reload.
      await requests.getByText('$0.000038').waitFor();
      assert.equal(await requests.locator('tbody tr').count(), before + 1);
      await visitor.open('/console/keys');
      const row = page.locator('tbody tr', { hasText: 'pwned' });
      await row.getByText('$0.000038 of $5.00').waitFor();
      await row.getByRole('button', { name: 'Revoke' }).click();
      await page.getByLabel('No program that I need uses this key').check();
      await page.locator('dialog').getByRole('button', { name: 'Revoke' }).click();
      await row.waitFor({ state: 'detached' });
      const again = openai.chat.completions.create({
        model: 'm',
        messages: [{ role: 'user', content: 'Hi' }],
      });
      await assert.rejects(again, { status: 401 });
      assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
    });
  });

  test('a budget per user shows the spending of each user, is changed and deleted', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      const { secret: owner } = await fixture.farebox.account('1', { kind: 'ADMIN' });
      await visitor.signIn(owner);
      await visitor.open('/console/budgets');
      await page.getByText('No budgets yet').waitFor();
      await visitor.checkAccess('no budget');
      const openai = new OpenAI({ baseURL: fixture.farebox.url, apiKey: owner, maxRetries: 0 });
      const ask = (user: string) =>
        openai.chat.completions.create({
          model: 'm',
          max_completion_tokens: 5,
          messages: [{ role: 'user', content: 'Hi' }],
          metadata: { user },
        });
      await ask(HOSTILE);
      await page.getByRole('button', { name: 'Create a budget' }).click();
      await page.getByLabel('Applies to').selectOption('each');
      await page.getByLabel('USD').fill('0.01');
      await visitor.checkAccess('a new budget');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      // The budget includes earlier spending of the period, per value of the tag.
      await ask(HOSTILE);
      await ask('bert');
      await page.getByRole('button', { name: 'Each user' }).click();
      const values = page.getByRole('region', { name: 'Values' });
      await values.locator('tr', { hasText: 'bert' }).getByText('$0.000022 of $0.01').waitFor();
      await values.locator('tr', { hasText: 'onerror' }).getByText('$0.000044 of $0.01').waitFor();
      await visitor.checkAccess('the values');
      await page.getByLabel('Find one user').fill('carl');
      await page.keyboard.press('Enter');
      await page.locator('.notice').getByText('$0.00 of $0.01').waitFor();
      await page.getByRole('button', { name: 'Close' }).click();
      await page.getByRole('button', { name: 'Change' }).click();
      await page.getByLabel('USD a day').fill('0.1');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('$0.10 a day').waitFor();
      await page.getByRole('button', { name: 'Delete' }).click();
      await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByText('No budgets yet').waitFor();
      await visitor.go('/console/activity');
      await page.getByRole('link', { name: 'By tag' }).click();
      const tags = page.getByRole('region', { name: 'Usage by tag' });
      await tags.locator('tr', { hasText: 'onerror' }).getByText('$0.000044').waitFor();
      await tags.getByRole('button', { name: 'bert' }).click();
      await page.locator('dialog .total').getByText('$0.000022').waitFor();
      await visitor.checkAccess('the days of a value');
      assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
    });
  });

  test('a webhook is created, tested, changed, rotated and deleted, and shows why a test failed', async () => {
    const receiver = createServer((request, response) => {
      request.resume().on('end', () => response.writeHead(500).end());
    });
    await new Promise<void>((listening) => receiver.listen(0, '127.0.0.1', listening));
    const { port } = receiver.address() as AddressInfo;
    const { secret: owner, accountId } = await fixture.farebox.account('1', { kind: 'ADMIN' });
    await visit({ refusals: [400] }, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(owner);
      await visitor.open('/console/webhooks');
      await page.getByText('No webhooks yet').waitFor();
      await visitor.checkAccess('no webhook');
      await page.getByRole('button', { name: 'Create a webhook' }).click();
      const address = page.getByLabel('URL', { exact: true });
      await address.fill('http://169.254.169.254/latest');
      await page.getByLabel('Balance below').fill('5');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.locator('.hint.bad').waitFor();
      await visitor.checkAccess('a rejected webhook');
      await address.fill(`http://127.0.0.1:${port}/hook`);
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('it is not shown again').waitFor();
      const secret = (await page.locator('.secret code').textContent()) ?? '';
      assert.match(secret, /^whsec_/);
      await visitor.checkAccess('the new webhook');
      await page.getByRole('button', { name: 'I have copied it' }).click();
      assert.ok(!(await page.content()).includes(secret));
      await page.getByRole('button', { name: `http://127.0.0.1:${port}/hook` }).click();
      await page.getByRole('button', { name: 'Send a test' }).click();
      await page.getByText(/The test was not delivered\. .*500/).waitFor();
      await page.getByRole('button', { name: 'webhook.test' }).click();
      await page.getByText('"type": "webhook.test"').waitFor();
      await visitor.checkAccess('a message');
      await page.locator('dialog dialog').getByRole('button', { name: 'Close' }).click();
      await fixture.farebox.app.stores.store.query(
        `INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body, state,
         attempts, due_ms, problem, created_ms, ended_ms)
         SELECT 'msg_' || subject, webhook_id, account_id, event, subject, 0, body, 'failed', 1, 0, 'refused', $3, $3
         FROM (SELECT id AS webhook_id, account_id FROM webhooks_webhook WHERE account_id = $4) hook,
         (SELECT 'key.limit_reached' AS event, 'key' AS subject, CAST($1 AS TEXT) AS body
          UNION ALL SELECT 'budget.limit_reached', 'budget', CAST($2 AS TEXT)) crossing`,
        [
          JSON.stringify({ data: { apiKeyId: 'key_019aa3f1c0de', description: HOSTILE } }),
          JSON.stringify({ data: { budgetId: 'budget_019aa3f1', tag: 'user', value: 'anna' } }),
          Date.now(),
          accountId,
        ],
      );
      await page.reload();
      const messages = page.locator('dialog').getByRole('region', { name: 'Messages' });
      await messages.getByText('user: anna').waitFor();
      await messages.getByText(HOSTILE).waitFor();
      await visitor.checkAccess('messages about keys and budgets');
      await messages.getByRole('button', { name: 'key.limit_reached' }).click();
      await page.locator('dialog dialog dd', { hasText: HOSTILE }).waitFor();
      await page.locator('dialog dialog').getByRole('button', { name: 'Close' }).click();
      await page.getByRole('button', { name: 'Change' }).click();
      await page.getByLabel('Daily spending').fill('20');
      await page.getByLabel('Balance below').fill('');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.locator('dialog').getByText('daily spending of $20.00').waitFor();
      await page.getByRole('button', { name: 'Pause' }).click();
      await page.getByRole('button', { name: 'Resume' }).click();
      await page.getByRole('button', { name: 'Pause' }).waitFor();
      await page.getByRole('button', { name: 'New secret' }).click();
      await page.getByRole('button', { name: 'Create a new secret' }).click();
      await page.getByText('are also signed with the previous secret').waitFor();
      assert.notEqual(await page.locator('.secret code').textContent(), secret);
      await page.getByRole('button', { name: 'I have copied it' }).click();
      await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.locator('dialog dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByText('No webhooks yet').waitFor();
    });
    receiver.close();
    receiver.closeAllConnections();
  });

  test('a file of requests is validated, runs as a batch, and its responses can be downloaded', async () => {
    const { secret } = await fixture.farebox.account('1');
    const line = (id: string, body: object = {}) =>
      JSON.stringify({
        custom_id: id,
        method: 'POST',
        url: '/v1/chat/completions',
        body: {
          model: 'm',
          messages: [{ role: 'user', content: 'Hi' }],
          max_completion_tokens: 50,
          ...body,
        },
      });
    const file = (...lines: string[]) => ({
      name: 'questions.jsonl',
      mimeType: 'application/jsonl',
      buffer: Buffer.from(lines.join('\n')),
    });
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(secret);
      await visitor.open('/console/batches');
      await page.getByText('No batches yet').waitFor();
      await visitor.checkAccess('no batch');
      await page.getByRole('button', { name: 'Start a batch' }).click();
      const input = page.getByLabel('File of requests');
      await input.setInputFiles(file(line('a'), '{"custom_id": ', HOSTILE));
      await page.getByText('Line 2: must be a JSON object').waitFor();
      assert.ok(await page.getByRole('button', { name: 'Upload and start' }).isDisabled());
      await visitor.checkAccess('an invalid file');
      await input.setInputFiles(file(line('a'), line(HOSTILE, { temperature: 'hot' }), ''));
      // 2 completions of 50 tokens at half of 2 USD per million.
      await page.getByText('at most $0.0001 for completions').waitFor();
      await page.getByRole('button', { name: 'Upload and start' }).click();
      const responses = page.getByRole('link', { name: 'Download 1 response' });
      await responses.waitFor();
      await page.getByRole('link', { name: 'Download 1 error' }).waitFor();
      await page.locator('dialog dd', { hasText: 'questions.jsonl' }).waitFor();
      await visitor.checkAccess('a batch');
      const download = page.waitForEvent('download');
      await responses.click();
      const pieces = await (await download).createReadStream().then((stream) => stream.toArray());
      const [answer] = Buffer.concat(pieces as Buffer[])
        .toString()
        .trim()
        .split('\n')
        .map(
          (text) => JSON.parse(text) as { custom_id: string; response: { status_code: number } },
        );
      assert.deepEqual([answer?.custom_id, answer?.response.status_code], ['a', 200]);
      await page.getByRole('button', { name: 'Close' }).click();
      const batches = page.getByRole('region', { name: 'Batches' });
      await batches.getByText('questions.jsonl').waitFor();
      await batches.getByText('completed').waitFor();
      const files = page.getByRole('region', { name: 'Files' });
      const row = files.locator('tr', { hasText: 'questions.jsonl' });
      await row.getByRole('button', { name: 'Delete' }).click();
      await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
      await row.waitFor({ state: 'detached' });
      await visitor.checkAccess('the batches');
      assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
    });
  });

  test('the chat streams and stops a response, and shows the cost of its receipt', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console/playground');
      fixture.wallets.upstream.script.push({
        kind: 'answer',
        content: `**Bold** ${HOSTILE} [out](javascript:window.pwned=1) ![p](https://evil.test/p.png)`,
        reasoning: HOSTILE,
        promptTokens: 10,
        completionTokens: 20,
      });
      await page.getByLabel('Message', { exact: true }).fill(HOSTILE);
      await page.getByRole('button', { name: 'Send' }).click();
      await page.locator('.message strong', { hasText: 'Bold' }).waitFor();
      await page.getByText('Reasoning', { exact: true }).click();
      await page.getByRole('link', { name: 'Receipt' }).waitFor();
      const bill = (await page.locator('.bill span').first().textContent()) ?? '';
      assert.match(bill, /^\$0\.00005 · 10 in, 20 out/);
      await visitor.checkAccess('a conversation');
      const history = page.getByRole('list', { name: 'Latest requests' });
      await history.getByRole('link', { name: '$0.00005' }).waitFor();
      await history.getByRole('button', { name: 'img' }).click();
      await page.locator('.message').first().waitFor({ state: 'detached' });
      assert.equal(await page.getByLabel('Message', { exact: true }).inputValue(), HOSTILE);
      fixture.wallets.upstream.script.push({
        kind: 'answer',
        content: 'Again',
        promptTokens: 10,
        completionTokens: 20,
      });
      await page.getByLabel('Message', { exact: true }).press('Enter');
      await page.getByRole('link', { name: 'Receipt' }).waitFor();
      await page.getByRole('button', { name: 'Code' }).first().click();
      await page.getByRole('tab', { name: 'TypeScript' }).click();
      await visitor.checkAccess('the code');
      await page.getByRole('button', { name: 'Close' }).click();
      await page.getByRole('link', { name: 'Receipt' }).click();
      await page.locator('dialog .total').getByText('$0.00005').waitFor();
      await visitor.checkAccess('a receipt');
      await visitor.open('/console/playground');
      fixture.wallets.upstream.script.push({
        kind: 'stream',
        chunks: 200,
        everyMs: 30,
        usage: true,
      });
      await page.getByLabel('Message', { exact: true }).fill('Long');
      await page.keyboard.press('Enter');
      await page.locator('.message .prose').waitFor();
      await page.getByRole('button', { name: 'Stop' }).click();
      await page
        .locator('.bill', { hasText: 'stopped' })
        .getByText(/^\$0\.0/)
        .waitFor();
      const stopped = (await page.locator('.bill span').first().textContent()) ?? '';
      const href = (await page.getByRole('link', { name: 'Receipt' }).getAttribute('href')) ?? '';
      const id = new URL(href, fixture.origin).searchParams.get('open');
      const headers = { authorization: `Bearer ${admin}` };
      const answer = await fetch(`${fixture.farebox.url}/usage/${id}`, { headers });
      const receipt = (await answer.json()) as { status: string; cost: { usd: number } };
      assert.equal(receipt.status, 'aborted');
      assert.ok(
        stopped.startsWith(`$${receipt.cost.usd}`),
        `${stopped} is not ${receipt.cost.usd}`,
      );
      assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
    });
  });

  test('a Base wallet signs in and tops up, and the balance updates', async () => {
    const account = await fixture.wallets.evmWallet();
    const reaction = { rejects: true };
    await visit({ refusals: [402, 202], script: EVM_WALLET }, async (visitor) => {
      const { page } = visitor;
      await serveWallet(visitor, account, reaction);
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Sign in with a wallet' }).click();
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByRole('button', { name: 'Add credit' }).click();
      await page.getByText('Next steps').waitFor();
      await visitor.checkAccess('the top-up');
      await page.getByLabel('Amount in USD').fill('250');
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByText('has $100.00 in USDC on Base, which is less than $250.00').waitFor();
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByLabel('Amount in USD').fill('7.5');
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByText('You rejected the request in your wallet').waitFor();
      reaction.rejects = false;
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByLabel('Amount in USD').fill('7.5');
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByText('$7.50 was credited').waitFor();
      await page.locator('.tile', { hasText: 'Balance' }).getByText('$7.50').waitFor();
      await page.getByRole('region', { name: 'Statement' }).getByText('Top-up').waitFor();
      await visitor.checkAccess('the credit');
    });
  });

  test('a payment continues after its tab was closed, and pays once', async () => {
    const account = await fixture.wallets.evmWallet();
    await visit({ refusals: [402, 202, 409], script: EVM_WALLET }, async (visitor) => {
      const { page, context } = visitor;
      await serveWallet(visitor, account, { rejects: false });
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Sign in with a wallet' }).click();
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByRole('button', { name: 'Add credit' }).waitFor();
      const tab = await context.newPage();
      // The server receives the payment, but the tab does not receive the response.
      const isTaken = new Promise<void>((resolve, reject) => {
        void tab.route('**/x402/top-up', async (route) => {
          if (route.request().headers()['payment-signature'] === undefined) {
            await route.continue();
            return;
          }
          await route.fetch().then(() => resolve(), reject);
        });
      });
      await tab.goto(`${fixture.origin}/console/credit`);
      await tab.getByRole('button', { name: 'Add credit' }).click();
      await tab.getByLabel('Amount in USD').fill('8.25');
      await tab.getByRole('button', { name: 'Test Wallet' }).click();
      await isTaken;
      await tab.close();
      await visitor.open('/console/credit');
      await page.getByText('$8.25 was credited').waitFor();
      await page.locator('.tile', { hasText: 'Balance' }).getByText('$8.25').waitFor();
      const stored = await page.evaluate<string[]>('Object.keys(localStorage)');
      assert.deepEqual(
        stored.filter((name) => name.startsWith('top-up')),
        [],
      );
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Add credit' }).waitFor();
      const statement = page.getByRole('region', { name: 'Statement' });
      await statement.getByText('Top-up').first().waitFor();
      assert.equal(await statement.getByText('Top-up').count(), 1);
    });
  });

  test('a Solana wallet signs in and tops up', async () => {
    const signer = await fixture.wallets.solanaWallet();
    const script = solanaWallet(signer.address);
    await visit({ refusals: [402, 202, 400], script }, async (visitor) => {
      const { page } = visitor;
      await page.exposeFunction('signSolana', async (kind: string, bytes: number[]) => {
        const given = Uint8Array.from(bytes);
        const { privateKey } = signer.keyPair;
        if (kind === 'message') return [...(await signBytes(privateKey, given))];
        const transaction = getTransactionDecoder().decode(given);
        const signed = await partiallySignTransaction([signer.keyPair], transaction);
        return [...getTransactionEncoder().encode(signed)];
      });
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Sign in with a wallet' }).click();
      await page.getByRole('button', { name: 'Test Solana' }).click();
      await page.getByRole('button', { name: 'Add credit' }).click();
      await page.getByLabel('Amount in USD').fill('500');
      await page.getByRole('button', { name: 'Test Solana' }).click();
      await page.getByText('The wallet has too little USDC for this payment').waitFor();
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByLabel('Amount in USD').fill('6.25');
      await page.getByRole('button', { name: 'Test Solana' }).click();
      await page.getByText('$6.25 was credited').waitFor();
      await page.locator('.tile', { hasText: 'Balance' }).getByText('$6.25').waitFor();
    });
  });

  test('the address contains the filters, and the CSV export applies them', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console/activity?status=completed');
      await visitor.settled();
      await page.getByLabel('Model', { exact: true }).selectOption('m');
      await page.waitForURL(/model=m/);
      const download = page.waitForEvent('download');
      await page.getByRole('link', { name: 'Export CSV' }).click();
      const text = await (await download).createReadStream().then((stream) => stream.toArray());
      const rows = Buffer.concat(text as Buffer[])
        .toString()
        .trim()
        .split('\r\n');
      await visitor.settled();
      assert.equal(rows.length - 1, await page.locator('tbody tr').count());
      await page.getByLabel('Status', { exact: true }).selectOption('expired');
      await page.getByText('No request matches these filters').waitFor();
    });
  });

  test('only an operator can open the operator pages', async () => {
    await visit({ width: 360, isDark: true }, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console/operator/engines');
      const nodes = page.getByRole('region', { name: 'RPC nodes' });
      await nodes.getByText('ethereum-mainnet#2').waitFor();
      assert.equal(await nodes.getByText('127.0.0.1').count(), 0);
      await visitor.open('/console/operator/accounts');
      await page.locator('tbody button').first().click();
      await page.locator('dialog .total').waitFor();
      await visitor.checkWidth('an account');
      await visitor.checkAccess('an account');
    });
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console/operator/accounts');
      await page.getByRole('button', { name: 'Create an account' }).click();
      await page.getByLabel('Name').fill(HOSTILE);
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('Credit or debit').click();
      await page.getByLabel('USD', { exact: true }).fill('12.5');
      await page.getByRole('button', { name: /^Credit </ }).click();
      await page.locator('.total').getByText('$12.50').waitFor();
      await page.getByRole('button', { name: 'Create a budget' }).click();
      await page.getByLabel('USD', { exact: true }).last().fill('3');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('$0.00 of $3.00 today').waitFor();
      await visitor.checkAccess('an account with a budget');
      assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
    });
    const { secret } = await fixture.farebox.account('1');
    await visit({}, async (visitor) => {
      await visitor.signIn(secret);
      await visitor.open('/console/operator/accounts');
      await visitor.page.getByText('Only the operator of the server can open this page').waitFor();
      assert.equal(await visitor.page.getByRole('link', { name: 'Engines' }).count(), 0);
    });
  });

  test('the operator finds a failed request, and reads its tries and the next step', async () => {
    const { farebox, wallets } = fixture;
    const { secret } = await farebox.account('5');
    const words = `A worker has died ${HOSTILE}`;
    const failing = { status: 500, body: JSON.stringify({ error: { message: words } }) } as const;
    for (let at = 0; at < 3; at += 1) wallets.upstream.script.push({ kind: 'status', ...failing });
    const response = await fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hi' }] }),
    });
    assert.equal(response.status, 500);
    const id = response.headers.get('x-request-id') ?? '';
    for (const width of [1280, 360]) {
      await visit({ width, isDark: width === 360 }, async (visitor) => {
        const { page } = visitor;
        await visitor.signIn(admin);
        await visitor.open('/console/operator/requests');
        await page.getByRole('link', { name: 'Failed and retried' }).click();
        await page.getByLabel('Error code').fill('INFERENCE_FAILED');
        await page.getByRole('button', { name: 'Find' }).click();
        await page.waitForURL(/code=INFERENCE_FAILED/);
        await page.locator('tbody button').first().click();
        await page.getByText('Read the log of the engine fake').waitFor();
        assert.equal(await page.locator('.tries > li').count(), 3);
        await page.getByText('A worker has died').first().waitFor();
        await visitor.checkAccess('a failed request');
        await visitor.checkWidth('a failed request');
        await page.keyboard.press('Escape');
        await page.getByRole('link', { name: 'Sold' }).click();
        await page.getByLabel('Request id').fill(id);
        await page.getByRole('button', { name: 'Find' }).click();
        await page.getByText('Not charged: the hold was released').waitFor();
        assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
      });
    }
  });

  test('another origin can neither frame the console nor use its session', async () => {
    const visitor = await fixture.visitor();
    await visitor.signIn(admin);
    const [cookie] = await visitor.context.cookies();
    const evil = createServer((_request, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(`<iframe src="${fixture.origin}/console"></iframe>`);
    });
    await new Promise<void>((resolve) => {
      evil.listen(0, 'localhost', resolve);
    });
    const { port } = evil.address() as AddressInfo;
    const page = await visitor.context.newPage();
    await page.goto(`http://localhost:${port}/`);
    const frame = page.frames()[1];
    assert.equal(await frame?.locator('#app').count(), 0);
    const keys = `${fixture.farebox.url}/api_keys`;
    const status = await page.evaluate(async (url) => {
      const body = JSON.stringify({ apiKeyType: 'ADMIN', description: 'x' });
      const init = { method: 'POST', body, credentials: 'include', mode: 'no-cors' } as const;
      return (await fetch(url, init)).type;
    }, keys);
    assert.equal(status, 'opaque');
    // The same request with the cookie, as if the browser had sent it.
    const headers = {
      cookie: `${cookie?.name}=${cookie?.value}`,
      origin: `http://localhost:${port}`,
      'content-type': 'application/json',
    };
    const body = JSON.stringify({ apiKeyType: 'ADMIN', description: 'x' });
    const answer = await fetch(keys, { method: 'POST', headers, body });
    assert.equal(answer.status, 403);
    const list = await fetch(keys, { headers: { authorization: `Bearer ${admin}` } });
    const { data } = (await list.json()) as { data: { description: string }[] };
    assert.ok(data.every(({ description }) => description !== 'x'));
    await page.close();
    evil.close();
    await visitor.close();
  });
});
