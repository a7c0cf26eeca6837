/** The console in a real browser: what callers do there, and what nobody may. */
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

/** Would run wherever a text became markup. */
const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`;

/** Of the methods that wallets are asked. */
type Params = [{ chainId: string } & Hex, string];

/** Announces a wallet by EIP-6963 whose requests the test answers. */
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

/** Registers a wallet by the Wallet Standard whose signatures the test makes. */
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
    // Webhooks of the tests are told on this machine.
    fixture = await startConsoleFixture('fetch: { allow: ["127.0.0.0/8"] }');
    admin = await fixture.farebox.key({ kind: 'ADMIN', description: 'owner' });
  });
  after(() => fixture.stop());

  /** Runs a visit and fails for whatever the page must not do. */
  async function visit(
    options: Parameters<ConsoleFixture['visitor']>[0],
    run: (visitor: Visitor) => Promise<void>,
  ): Promise<void> {
    const visitor = await fixture.visitor(options);
    await run(visitor);
    await visitor.close();
  }

  /** Answers what pages ask of the wallet of Base; it begins on another chain. */
  async function answerWallet(
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
          const answer = await fetch(fixture.wallets.anvil.rpcUrl, {
            method: 'POST',
            headers,
            body,
          });
          return { result: ((await answer.json()) as { result: unknown }).result };
        }
      }
    });
  }

  test('welcomes, and is small', async () => {
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

  test('signs in by key, keeps no secret, and a copied cookie ends with the session', async () => {
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

  test('signs in by the link of the terminal, once', async () => {
    const { identity } = fixture.farebox.app.stores;
    const { accountId, keyId } = await identity.keys.callerOf(admin);
    const link = `/console/sign-in#${await identity.sessions.issueLink(accountId, keyId)}`;
    await visit({ refusals: [401] }, async (visitor) => {
      const { page, context } = visitor;
      // Pasted where the sign-in page is open already: the document stays, its address changes.
      await visitor.open('/console/sign-in');
      await page.getByLabel('API key').waitFor();
      await visitor.open(link);
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      assert.equal(page.url(), `${fixture.origin}/console`);
      await context.clearCookies();
      await visitor.open('/');
      await visitor.open(link);
      await page.getByText('The link cannot be used: The sign-in link was used').waitFor();
      assert.equal(page.url(), `${fixture.origin}/console/sign-in`);
      await visitor.checkAccess('a used link');
    });
  });

  test('goes nowhere but into the console after the sign-in', async () => {
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

  test('every page is whole at a phone and at a desk, light and dark', async () => {
    const pages = [
      '',
      '/activity',
      '/activity/tags',
      '/keys',
      '/batches',
      '/budgets',
      '/webhooks',
      '/credit',
      '/playground',
      '/models',
      '/limits',
      '/sessions',
    ];
    const kinds = ['embeddings', 'background', 'transcription', 'video'];
    const all = [...pages, ...kinds.map((kind) => `/playground/${kind}`)];
    for (const [width, isDark] of [
      [360, false],
      [1440, true],
    ] as const) {
      await visit({ width, isDark }, async (visitor) => {
        await visitor.signIn(admin);
        for (const path of all) {
          // By its address at a phone, by a link at a desk.
          if (isDark && path !== '') await visitor.go(`/console${path}`);
          else await visitor.open(`/console${path}`);
          await visitor.page.locator('h1').waitFor();
          await visitor.settled();
          await visitor.checkAccess(`${path} at ${width}`);
          await visitor.checkWidth(`${path} at ${width}`);
        }
      });
    }
  });

  test('makes a key whose requests arrive as they are charged, and revokes it', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console/keys');
      await page.getByRole('button', { name: 'Create a key' }).click();
      await page.getByLabel('Description').fill(HOSTILE);
      await page.getByLabel('Cap in USD').fill('5');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('Its secret is shown only now').waitFor();
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
      // 12 x 1 and 13 x 2 USD a million tokens; no reload in between.
      await requests.getByText('$0.000038').waitFor();
      assert.equal(await requests.locator('tbody tr').count(), before + 1);
      await visitor.open('/console/keys');
      const row = page.locator('tbody tr', { hasText: 'pwned' });
      await row.getByText('$0.000038 of $5.00').waitFor();
      await row.getByRole('button', { name: 'Revoke' }).click();
      await page.getByLabel('Nothing that I need uses it any more').check();
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

  test('sets a budget for each user, shows who has used it, and takes it away', async () => {
    await visit({}, async (visitor) => {
      const { page } = visitor;
      const { secret: owner } = await fixture.farebox.account('1', { kind: 'ADMIN' });
      await visitor.signIn(owner);
      await visitor.open('/console/budgets');
      await page.getByText('There is no budget yet').waitFor();
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
      await page.getByRole('button', { name: 'Set a budget' }).click();
      await page.getByLabel('What counts').selectOption('each');
      await page.getByLabel('USD').fill('0.01');
      await visitor.checkAccess('a new budget');
      await page.getByRole('button', { name: 'Set', exact: true }).click();
      // What was spent before it counts, and another value has it for itself.
      await ask(HOSTILE);
      await ask('bert');
      await page.getByRole('button', { name: 'Each user' }).click();
      const values = page.getByRole('region', { name: 'Values' });
      await values.locator('tr', { hasText: 'bert' }).getByText('$0.000022 of $0.01').waitFor();
      await values.locator('tr', { hasText: 'onerror' }).getByText('$0.000044 of $0.01').waitFor();
      await visitor.checkAccess('the values');
      await page.getByLabel('Look at one user').fill('carl');
      await page.keyboard.press('Enter');
      await page.locator('.notice').getByText('$0.00 of $0.01').waitFor();
      await page.getByRole('button', { name: 'Close' }).click();
      await page.getByRole('button', { name: 'Change' }).click();
      await page.getByLabel('USD a day').fill('0.1');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText('$0.10 a day').waitFor();
      await page.getByRole('button', { name: 'Delete' }).click();
      await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByText('There is no budget yet').waitFor();
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

  test('makes a webhook, tries it, and shows why a message did not arrive', async () => {
    const receiver = createServer((request, response) => {
      request.resume().on('end', () => response.writeHead(500).end());
    });
    await new Promise<void>((listening) => receiver.listen(0, '127.0.0.1', listening));
    const { port } = receiver.address() as AddressInfo;
    const { secret: owner } = await fixture.farebox.account('1', { kind: 'ADMIN' });
    await visit({ refusals: [400] }, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(owner);
      await visitor.open('/console/webhooks');
      await page.getByText('There is no webhook yet').waitFor();
      await visitor.checkAccess('no webhook');
      await page.getByRole('button', { name: 'Create a webhook' }).click();
      const address = page.getByLabel('Address');
      await address.fill('http://169.254.169.254/latest');
      await page.getByLabel('Balance below').fill('5');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.locator('.hint.bad').waitFor();
      await visitor.checkAccess('a webhook that is refused');
      await address.fill(`http://127.0.0.1:${port}/hook`);
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('It is shown only now').waitFor();
      const secret = (await page.locator('.secret code').textContent()) ?? '';
      assert.match(secret, /^whsec_/);
      await visitor.checkAccess('the new webhook');
      await page.getByRole('button', { name: 'I have copied it' }).click();
      assert.ok(!(await page.content()).includes(secret));
      await page.getByRole('button', { name: `http://127.0.0.1:${port}/hook` }).click();
      await page.getByRole('button', { name: 'Send a test' }).click();
      await page.getByText('The test did not arrive. The address answered with 500').waitFor();
      await page.getByRole('button', { name: 'webhook.test' }).click();
      await page.getByText('"type": "webhook.test"').waitFor();
      await visitor.checkAccess('a message');
      await page.locator('dialog dialog').getByRole('button', { name: 'Close' }).click();
      await page.getByRole('button', { name: 'Change' }).click();
      await page.getByLabel('Spending of a day').fill('20');
      await page.getByLabel('Balance below').fill('');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.locator('dialog').getByText("a day's spending at $20.00").waitFor();
      await page.getByRole('button', { name: 'Pause' }).click();
      await page.getByRole('button', { name: 'Resume' }).click();
      await page.getByRole('button', { name: 'Pause' }).waitFor();
      await page.getByRole('button', { name: 'New secret' }).click();
      await page.getByRole('button', { name: 'Make a new secret' }).click();
      await page.getByText('are signed with the secret before as well').waitFor();
      assert.notEqual(await page.locator('.secret code').textContent(), secret);
      await page.getByRole('button', { name: 'I have copied it' }).click();
      await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.locator('dialog dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByText('There is no webhook yet').waitFor();
    });
    receiver.close();
    receiver.closeAllConnections();
  });

  test('reads a file of requests, runs it as a batch, and gives its answers', async () => {
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
      await page.getByText('There is no batch yet').waitFor();
      await visitor.checkAccess('no batch');
      await page.getByRole('button', { name: 'Start a batch' }).click();
      const input = page.getByLabel('A file of requests');
      await input.setInputFiles(file(line('a'), '{"custom_id": ', HOSTILE));
      await page.getByText('Line 2: is no JSON object').waitFor();
      assert.ok(await page.getByRole('button', { name: 'Upload and start' }).isDisabled());
      await visitor.checkAccess('a file that is not in order');
      await input.setInputFiles(file(line('a'), line(HOSTILE, { temperature: 'hot' }), ''));
      // 2 answers of 50 tokens at half of 2 USD a million.
      await page.getByText('at most $0.0001 for answers').waitFor();
      await page.getByRole('button', { name: 'Upload and start' }).click();
      const answers = page.getByRole('link', { name: 'Download 1 answer' });
      await answers.waitFor();
      await page.getByRole('link', { name: 'Download 1 error' }).waitFor();
      await visitor.checkAccess('a batch');
      const download = page.waitForEvent('download');
      await answers.click();
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

  test('streams an answer, stops one, and the bill is the receipt', async () => {
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
      await page.getByText('Thought').click();
      await page.getByRole('link', { name: 'Receipt' }).waitFor();
      const bill = (await page.locator('.bill span').first().textContent()) ?? '';
      assert.match(bill, /^\$0\.00005 · 10 in, 20 out/);
      await visitor.checkAccess('a conversation');
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

  test('signs in by a wallet of Base, and tops up while the balance moves', async () => {
    const account = await fixture.wallets.evmWallet();
    const reaction = { rejects: true };
    await visit({ refusals: [402, 202], script: EVM_WALLET }, async (visitor) => {
      const { page } = visitor;
      await answerWallet(visitor, account, reaction);
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Sign in with a wallet' }).click();
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByRole('button', { name: 'Add credit' }).click();
      await page.getByText('What will happen').waitFor();
      await visitor.checkAccess('the top-up');
      await page.getByLabel('In USD').fill('250');
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByText('has $100.00 in USDC on Base, which is less than $250.00').waitFor();
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByLabel('In USD').fill('7.5');
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByText('You rejected the request in your wallet').waitFor();
      reaction.rejects = false;
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByLabel('In USD').fill('7.5');
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByText('$7.50 is credited').waitFor();
      await page.locator('.tile', { hasText: 'Balance' }).getByText('$7.50').waitFor();
      await page.getByRole('region', { name: 'Statement' }).getByText('Top-up').waitFor();
      await visitor.checkAccess('the credit');
    });
  });

  test('a tab that was closed while it paid loses nothing, and pays once', async () => {
    const account = await fixture.wallets.evmWallet();
    await visit({ refusals: [402, 202, 409], script: EVM_WALLET }, async (visitor) => {
      const { page, context } = visitor;
      await answerWallet(visitor, account, { rejects: false });
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Sign in with a wallet' }).click();
      await page.getByRole('button', { name: 'Test Wallet' }).click();
      await page.getByRole('button', { name: 'Add credit' }).waitFor();
      const tab = await context.newPage();
      // The service takes the payment, and its answer reaches nobody.
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
      await tab.getByLabel('In USD').fill('8.25');
      await tab.getByRole('button', { name: 'Test Wallet' }).click();
      await isTaken;
      await tab.close();
      await visitor.open('/console/credit');
      await page.getByText('$8.25 is credited').waitFor();
      await page.locator('.tile', { hasText: 'Balance' }).getByText('$8.25').waitFor();
      assert.equal(await page.evaluate<unknown>("localStorage.getItem('top-up')"), null);
      await visitor.open('/console/credit');
      await page.getByRole('button', { name: 'Add credit' }).waitFor();
      const statement = page.getByRole('region', { name: 'Statement' });
      await statement.getByText('Top-up').first().waitFor();
      assert.equal(await statement.getByText('Top-up').count(), 1);
    });
  });

  test('signs in by a wallet of Solana, and tops up', async () => {
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
      await page.getByLabel('In USD').fill('500');
      await page.getByRole('button', { name: 'Test Solana' }).click();
      await page.getByText('The wallet has too little USDC for this payment').waitFor();
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByLabel('In USD').fill('6.25');
      await page.getByRole('button', { name: 'Test Solana' }).click();
      await page.getByText('$6.25 is credited').waitFor();
      await page.locator('.tile', { hasText: 'Balance' }).getByText('$6.25').waitFor();
    });
  });

  test('filters live in the address, and the range is exported', async () => {
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
      await page.getByText('No request fits these filters').waitFor();
    });
  });

  test('shows the operator every page, and others none of it', async () => {
    const parts = [
      'accounts',
      'revenue',
      'engines',
      'videos',
      'payments',
      'audit',
      'configuration',
      'check',
    ];
    await visit({ width: 360, isDark: true }, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      for (const part of parts) {
        await visitor.open(`/console/operator/${part}`);
        await page.locator('h1').waitFor();
        await visitor.settled();
        await visitor.checkWidth(part);
      }
      await visitor.open('/console/operator/accounts');
      await page.locator('tbody button').first().click();
      await page.locator('dialog .total').waitFor();
      await visitor.checkWidth('an account');
      await visitor.checkAccess('an account');
    });
    await visit({}, async (visitor) => {
      const { page } = visitor;
      await visitor.signIn(admin);
      await visitor.open('/console');
      for (const part of parts) {
        await visitor.go(`/console/operator/${part}`);
        await page.locator('h1').waitFor();
        await visitor.settled();
        assert.equal(await page.locator('.failure').count(), 0, part);
        await visitor.checkAccess(part);
      }
      await visitor.open('/console/operator/accounts');
      await page.getByRole('button', { name: 'Create an account' }).click();
      await page.getByLabel('Name').fill(HOSTILE);
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('Credit or debit').click();
      await page.getByLabel('USD', { exact: true }).fill('12.5');
      await page.getByRole('button', { name: /^Credit </ }).click();
      await page.locator('.total').getByText('$12.50').waitFor();
      await page.getByRole('button', { name: 'Set a budget' }).click();
      await page.getByLabel('USD', { exact: true }).last().fill('3');
      await page.getByRole('button', { name: 'Set', exact: true }).click();
      await page.getByText('$0.00 of $3.00 today').waitFor();
      await visitor.checkAccess('an account with a budget');
      assert.equal(await page.evaluate(() => 'pwned' in globalThis), false);
    });
    const { secret } = await fixture.farebox.account('1');
    await visit({}, async (visitor) => {
      await visitor.signIn(secret);
      await visitor.open('/console/operator/accounts');
      await visitor.page.getByText('This page is for whoever runs the server').waitFor();
      assert.equal(await visitor.page.getByRole('link', { name: 'Engines' }).count(), 0);
    });
  });

  test('is not framed, and does nothing for another origin', async () => {
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
    // The same with the cookie, as if the browser had sent it.
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
