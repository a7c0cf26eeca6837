/** Company sign-in in a real browser, at a real OpenID Connect provider on loopback. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { type Bench, call, chatBody, startWithEngine } from '../app/call.ts';
import { launchChromium } from '../support/chromium.ts';
import { freePort } from '../support/free-port.ts';
import { CLIENT, type OidcProvider, startOidcProvider } from '../support/oidc-provider.ts';
import { Visitor } from './console-fixture.ts';

describe('company sign-in', () => {
  let bench: Bench;
  let oidc: OidcProvider;
  let browser: Browser;
  let origin: string;
  let downPort: number;
  const visitors: Visitor[] = [];

  before(async () => {
    const port = await freePort();
    origin = `http://127.0.0.1:${port}`;
    downPort = await freePort();
    oidc = await startOidcProvider(origin);
    browser = await launchChromium();
    bench = await startWithEngine({ port, yaml: yamlFor(oidc.issuer, downPort) });
    await fetch(origin);
  });
  afterEach(async () => {
    for (const visitor of visitors.splice(0)) await visitor.close();
  });
  after(async () => {
    await browser.close();
    await bench.stop();
    await oidc.stop();
  });

  async function visitor(options: Parameters<typeof Visitor.open>[2] = {}): Promise<Visitor> {
    const opened = await Visitor.open(browser, origin, { host: oidc.host, ...options });
    visitors.push(opened);
    return opened;
  }

  /** Signs in at the provider with the open page, which shows its form. */
  async function enter({ page }: Visitor, user: string): Promise<void> {
    await page.getByLabel('User').fill(user);
    await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  }

  async function signIn(user: string, path = '/console'): Promise<Visitor> {
    const one = await visitor();
    await one.open(path);
    await one.page.getByRole('button', { name: 'Continue with Acme' }).click();
    await enter(one, user);
    return one;
  }

  /** The session of a page, as its script sees it. */
  async function sessionOf({ page }: Visitor) {
    return await page.evaluate(async () => {
      const response = await fetch('/api/v1/console/session');
      return ((await response.json()) as { session: SessionBody }).session;
    });
  }

  test('a server starts while a provider is down, and only its sign-in fails', async () => {
    const one = await visitor({ refusals: [503] });
    await one.open('/console/sign-in');
    await one.checkAccess('sign-in with providers');
    await one.page.getByRole('button', { name: 'Continue with Down' }).click();
    await one.page.getByText('The sign-in provider Down cannot be reached').first().waitFor();
    assert.equal((await call(bench.farebox, '/models')).status, 200);
  });

  test('a person without a rule gets an account of its own, and returns to it', async () => {
    oidc.users.set('carol', { email: 'Carol@Home.example', email_verified: true, name: 'Carol' });
    const one = await signIn('carol', '/console/limits');
    await one.page.getByRole('heading', { name: 'Limits' }).waitFor();
    assert.equal(new URL(one.page.url()).search, '', 'the code is not in the address');
    const first = await sessionOf(one);
    assert.equal(first.kind, 'member');
    assert.equal(first.member.email, 'carol@home.example');
    assert.equal(first.member.role, 'owner');
    assert.equal(first.isOperator, false);
    const again = await signIn('carol');
    await again.page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.equal((await sessionOf(again)).accountId, first.accountId);
    assert.deepEqual(oidcCalls(oidc), ['GET /.well-known/openid-configuration']);
  });

  test('groups and domains map to accounts, plans and roles, the operator included', async () => {
    oidc.users.set('root', { email: 'root@acme.example', email_verified: true, groups: ['ops'] });
    oidc.users.set('dev', { email: 'dev@acme.example', email_verified: true });
    oidc.users.set('boss', { email: 'boss@acme.example', email_verified: true, groups: ['heads'] });
    const root = await signIn('root', '/console/operator/accounts');
    await root.page.getByRole('heading', { name: 'Accounts' }).waitFor();
    const operator = await sessionOf(root);
    assert.equal(operator.accountId, bench.farebox.owner.accountId);
    assert.equal(operator.isOperator, true);
    const dev = await signIn('dev');
    await dev.page.getByRole('heading', { name: 'Overview' }).waitFor();
    const ofDev = await sessionOf(dev);
    assert.equal(ofDev.plan, 'partner');
    assert.deepEqual(ofDev.rights, ['use', 'develop']);
    const boss = await signIn('boss');
    await boss.page.getByRole('heading', { name: 'Overview' }).waitFor();
    const ofBoss = await sessionOf(boss);
    assert.equal(ofBoss.member.role, 'owner');
    assert.equal(ofBoss.accountId, ofDev.accountId, 'one account of the company');
    for (const [one, canChange] of [
      [dev, 0],
      [boss, 1],
    ] as const) {
      await one.go('/console/budgets');
      await one.page.getByText('No budgets yet').waitFor();
      const create = one.page.getByRole('button', { name: 'Create a budget' });
      assert.equal(await create.count(), canChange);
    }
    assert.equal(await dev.page.getByRole('link', { name: 'Playground' }).count(), 1);
    assert.equal(await boss.page.getByRole('link', { name: 'Accounts' }).count(), 0);
  });

  test('a change of groups changes role and account at the next sign-in', async () => {
    oidc.users.set('ann', { email: 'ann@acme.example', email_verified: true, groups: ['heads'] });
    const before = await signIn('ann');
    await before.page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.equal((await sessionOf(before)).member.role, 'owner');
    oidc.users.set('ann', { email: 'ann@acme.example', email_verified: true });
    const later = await signIn('ann');
    await later.page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.equal((await sessionOf(later)).member.role, 'developer');
    assert.equal((await sessionOf(before)).member.role, 'developer', 'in open sessions too');
    oidc.users.set('ann', { email: 'ann@home.example', email_verified: true });
    const gone = await signIn('ann');
    await gone.page.getByRole('heading', { name: 'Overview' }).waitFor();
    assert.equal((await sessionOf(gone)).member.accounts.length, 1);
    assert.equal(await sessionOf(later), null, 'the membership and its sessions have ended');
  });

  test('an unverified address and a cancelled sign-in are rejected', async () => {
    oidc.users.set('mallory', { email: 'boss@acme.example', email_verified: false });
    const one = await visitor({ refusals: [401, 403] });
    await one.open('/console');
    await one.page.getByRole('button', { name: 'Continue with Acme' }).click();
    await enter(one, 'mallory');
    await one.page.getByText('Acme returned no verified email address').first().waitFor();
    const two = await visitor({ refusals: [401] });
    await two.open('/console');
    await two.page.getByRole('button', { name: 'Continue with Acme' }).click();
    await two.page.getByRole('button', { name: 'Cancel' }).click();
    await two.page.getByText('The sign-in at Acme was cancelled').first().waitFor();
  });

  test('a response for another browser is rejected', async () => {
    oidc.users.set('carol', { email: 'carol@home.example', email_verified: true });
    const attacker = await visitor();
    await attacker.open('/console/sign-in');
    let response = '';
    attacker.page.on('request', (request) => {
      if (request.url().startsWith(`${origin}/console/sign-in/acme?`)) response = request.url();
    });
    await attacker.page.getByRole('button', { name: 'Continue with Acme' }).click();
    await enter(attacker, 'carol');
    await attacker.page.getByRole('heading', { name: 'Overview' }).waitFor();
    const victim = await visitor({ refusals: [401] });
    await victim.page.goto(response);
    await victim.page.getByText('The sign-in was started in another browser').first().waitFor();
    assert.equal(await sessionOf(victim), null);
  });

  test('sign-out ends the session here and at the provider', async () => {
    oidc.users.set('carol', { email: 'carol@home.example', email_verified: true });
    const one = await signIn('carol');
    await one.page.getByRole('heading', { name: 'Overview' }).waitFor();
    const cookies = await one.context.cookies(origin);
    const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    await one.page.getByRole('button', { name: 'Sign out' }).click();
    await one.page.getByRole('button', { name: 'Yes, sign me out' }).click();
    await one.page.getByRole('button', { name: 'Continue with Acme' }).waitFor();
    const stolen = await call(bench.farebox, '/billing/balance', { headers: { cookie } });
    assert.equal(stolen.status, 401);
    await one.page.getByRole('button', { name: 'Continue with Acme' }).click();
    await one.page.getByLabel('User').waitFor();
  });

  test('an invitation is valid once, and its member is charged and can change the account', async () => {
    oidc.users.set('boss', { email: 'boss@acme.example', email_verified: true, groups: ['heads'] });
    oidc.users.set('dave', { email: 'dave@other.example', email_verified: true, name: 'Dave' });
    const boss = await signIn('boss', '/console/members');
    const { page } = boss;
    await page.getByRole('button', { name: 'Invite a member' }).click();
    await page.getByLabel('Role', { exact: true }).selectOption('developer');
    await page.getByRole('button', { name: 'Create the link' }).click();
    const link = await page.locator('.secret code').textContent();
    await page.getByRole('button', { name: 'I have copied it' }).click();
    await boss.checkAccess('members');
    const dave = await visitor();
    await dave.page.goto(link ?? '');
    await dave.page.getByText('Join the account').waitFor();
    assert.equal(new URL(dave.page.url()).hash, '', 'the token is not in the address');
    await dave.checkAccess('invitation');
    await dave.page.getByRole('button', { name: 'Continue with Acme' }).click();
    await enter(dave, 'dave');
    await dave.page.getByRole('heading', { name: 'Overview' }).waitFor();
    const joined = await sessionOf(dave);
    assert.equal(joined.member.role, 'developer');
    assert.equal(joined.accountId, (await sessionOf(boss)).accountId);
    assert.equal(joined.member.accounts.length, 2, 'and the account of its own by the rule');
    const second = await visitor({ refusals: [404] });
    await second.page.goto(link ?? '');
    await second.page
      .getByText('The invitation was used, has expired or was deleted')
      .first()
      .waitFor();

    await bench.farebox.app.stores.ledger.moveOnce({
      direction: 'credit',
      accountId: joined.accountId,
      amountNano: 1_000_000_000n as never,
      reference: 'test-1',
      note: undefined,
    });
    const status = await dave.page.evaluate(
      async ([token, body]) => {
        const headers = { 'content-type': 'application/json', 'x-csrf-token': token ?? '' };
        const init = { method: 'POST', headers, body: body ?? '' };
        return (await fetch('/api/v1/chat/completions', init)).status;
      },
      [joined.csrfToken, JSON.stringify(chatBody())],
    );
    assert.equal(status, 200);
    await dave.page.getByLabel('Account').selectOption({ label: 'dave@other.example (owner)' });
    await dave.page.getByText('Role owner').waitFor();
    assert.notEqual((await sessionOf(dave)).accountId, joined.accountId);

    await page.reload();
    await page.getByLabel('Role of dave@other.example').selectOption('viewer');
    await page.getByText('dave@other.example has the role viewer').first().waitFor();
    const row = page.getByRole('row', { name: /dave@other/ });
    await row.getByRole('button', { name: 'Remove' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Remove', exact: true }).click();
    await page.getByText('The member was removed').first().waitFor();
    await bench.farebox.audit();
  });
});

interface SessionBody {
  readonly accountId: string;
  readonly kind: string;
  readonly plan: string;
  readonly isOperator: boolean;
  readonly rights: readonly string[];
  readonly csrfToken: string;
  readonly member: {
    readonly email: string;
    readonly role: string;
    readonly accounts: readonly { readonly id: string }[];
  };
}

/** The discovery requests; one serves all sign-ins. */
function oidcCalls({ requests }: OidcProvider): string[] {
  return requests.filter((one) => one.includes('/.well-known/'));
}

function yamlFor(issuer: string, downPort: number): string {
  return `
signIn:
  providers:
    - id: acme
      label: Acme
      issuer: ${issuer}
      clientId: ${CLIENT.id}
      clientSecret: "${CLIENT.secret}"
      scopes: [openid, email, profile, groups]
      rules:
        - { groups: [ops], operator: true, role: owner }
        - { groups: [heads], account: Acme, plan: partner, role: owner }
        - { domains: [acme.example], account: Acme, plan: partner, role: developer }
        - { domains: [home.example, other.example] }
    - { id: down, label: Down, issuer: "http://127.0.0.1:${downPort}", clientId: x }
`;
}
