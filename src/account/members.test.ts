/** Members over HTTP: the rights of each role on each route, invitations, and the end of memberships. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  type Bench,
  type Called,
  type CallOptions,
  call,
  chatBody,
  startWithEngine,
} from '../../test/app/call.ts';
import { startTestApp } from '../../test/app/test-app.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { untilBlocked } from '../../test/databases/waits.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { MEMBER_ROLES, type MemberRole, type SignInRule } from '../config/config.ts';
import { until } from '../../test/support/until.ts';
import { DAY_MS, SECOND_MS } from '../core/clock.ts';
import type { Member } from '../identity/identity.ts';

const YAML = `
payments:
  base:
    rpcUrl: "http://127.0.0.1:9"
    payTo: "0x00000000000000000000000000000000000fa12b"
    gasKey: "0x${'11'.repeat(32)}"
limits: { unsoldPerMinute: 1000000, guard: { failures: 1000000 } }
signIn:
  providers: [{ id: acme, label: Acme, issuer: "https://login.acme.example", clientId: x }]
`;

/** The roles that a route accepts, by the beginning of method and path; the first line that fits counts. */
const ROUTES: readonly (readonly [route: RegExp, roles: string])[] = [
  [/^(?:GET|DELETE|POST) \/console\//, 'owner billing developer viewer'],
  [/^GET \/members/, 'owner billing developer viewer'],
  [/^\w+ \/members/, 'owner'],
  [/^GET \/(?:api_keys|key)/, 'owner billing developer viewer'],
  [/^\w+ \/(?:api_keys|key)/, 'owner developer'],
  [/^\w+ \/webhooks/, 'owner developer'],
  [/^GET \/billing\/balance/, 'owner billing developer viewer'],
  [/^\w+ \/billing\//, 'owner billing'],
  [/^GET \/(?:credits|usage|events|x402)/, 'owner billing developer viewer'],
  [/^GET \/budgets/, 'owner billing developer viewer'],
  [/^\w+ \/budgets/, 'owner billing'],
  [/^\w+ \/(?:files|batches|responses|video)/, 'owner developer'],
  [/^POST \/(?:chat|completions|messages|embeddings|rerank|v1|v2|moderations)/, 'owner developer'],
  [/^POST \/(?:crypto|image|images|audio|mcp)/, 'owner developer'],
  [/^\w+ \/x402\/token/, 'owner developer'],
  [/^GET \/admin\//, 'owner billing developer viewer'],
  [/^POST \/admin\/accounts\/:id\/(?:credit|debit|refund)/, 'owner billing'],
  [/^POST \/admin\/top-ups/, 'owner billing'],
  [/^\w+ \/admin\//, 'owner'],
];

describe('members', () => {
  const clock = new TestClock(Date.now());
  let bench: Bench;
  let accountId: string;
  let admin: string;
  let people = 0;

  before(async () => {
    bench = await startWithEngine({ clock, yaml: YAML });
    ({ accountId } = await bench.farebox.account('5'));
    admin = await bench.farebox.key({ accountId, kind: 'ADMIN' });
  });
  after(() => bench.stop());

  interface Entered {
    readonly member: Member;
    /** Calls the API in the session of the member. */
    readonly ask: (path: string, options?: CallOptions) => Promise<Called>;
  }

  /** Signs in a person at the provider; a new one by default. */
  async function enter(
    rule: Partial<SignInRule>,
    { invitation, name = `person-${(people += 1)}` }: { invitation?: string; name?: string } = {},
  ): Promise<Entered> {
    const { identity, ledger } = bench.farebox.app.stores;
    const { issuer } = bench.farebox.config.signIn.providers[0]!;
    const rules: SignInRule[] =
      'operator' in rule || 'account' in rule || 'role' in rule
        ? [{ operator: false, plan: 'paid', ...rule }]
        : [];
    const member = await identity.members.signIn({
      person: {
        issuer,
        subject: name,
        email: `${name}@acme.example`,
        name,
        groups: [],
        idToken: '',
      },
      provider: { ...bench.farebox.config.signIn.providers[0]!, rules },
      invitation,
      openAccount: (id, tx) => ledger.openAccount(id, tx),
    });
    const place = { userAgent: 'test', address: '127.0.0.1' };
    const { secret, session } = await identity.sessions.begin(member, place);
    const headers = { cookie: `svc_session=${secret}`, 'x-csrf-token': session.csrfToken };
    return {
      member,
      ask: (path, options = {}) => call(bench.farebox, path, { ...options, headers }),
    };
  }

  const invite = (body: unknown, secret = admin) =>
    call(bench.farebox, '/members/invitations', { body, secret });
  const tokenOf = (answer: Called): string => new URL(answer.body.data.url).hash.slice(1);

  test('each route accepts exactly the roles of the table', async () => {
    const operator = bench.farebox.owner.accountId;
    const found: string[] = [];
    const wanted: string[] = [];
    for (const role of MEMBER_ROLES) {
      const own = await enter({ account: accountId, role });
      const ofOperator = await enter({ operator: true, role });
      assert.equal(ofOperator.member.accountId, operator);
      for (const route of bench.farebox.app.routes) {
        if (route.auth === 'public' || route.auth === 'wallet') continue;
        const name = `${route.method} ${route.path}`;
        // These would end the session of the test, or stay open.
        if (name === 'DELETE /console/session' || name === 'GET /events') continue;
        const line = ROUTES.find(([path]) => path.test(name));
        assert.ok(line !== undefined, `the table of this test has no line for ${name}`);
        const { ask } = route.auth === 'operator' ? ofOperator : own;
        if (route.root === true) continue;
        const path = route.path.replaceAll(/:\w+/g, 'unknown');
        const hasBody = route.method !== 'GET' && route.method !== 'DELETE';
        const answer = await ask(path, { method: route.method, ...(hasBody && { body: {} }) });
        const isRejected = answer.status === 403 && /member_role_required/i.test(answer.text);
        assert.ok(!answer.text.includes('ADMIN_KEY_REQUIRED'), name);
        found.push(`${role} ${name} ${isRejected ? 'no' : 'yes'}`);
        wanted.push(`${role} ${name} ${line[1].split(' ').includes(role) ? 'yes' : 'no'}`);
      }
    }
    assert.deepEqual(found, wanted);
    assert.ok(found.length > 200, `${found.length} cases`);
  });

  test('tools of the MCP server keep the rights of the role', async () => {
    const viewer = await enter({ account: accountId, role: 'viewer' });
    const body = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
    const url = new URL('/mcp', bench.farebox.url).href;
    const { identity } = bench.farebox.app.stores;
    const { secret, session } = await identity.sessions.begin(viewer.member, {
      userAgent: '',
      address: '',
    });
    const answer = await fetch(url, {
      method: 'POST',
      headers: {
        cookie: `svc_session=${secret}`,
        'x-csrf-token': session.csrfToken,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      body: JSON.stringify(body),
    });
    assert.equal(answer.status, 403, await answer.text());
  });

  test('only an owner can create, change and revoke ADMIN keys', async () => {
    const developer = await enter({ account: accountId, role: 'developer' });
    const owner = await enter({ account: accountId, role: 'owner' });
    const wanted = { apiKeyType: 'ADMIN', description: 'mine' };
    const rejected = await developer.ask('/api_keys', { body: wanted });
    assert.equal(rejected.body.code, 'MEMBER_ROLE_REQUIRED');
    const own = await developer.ask('/api_keys', { body: { ...wanted, apiKeyType: 'INFERENCE' } });
    assert.equal(own.status, 200, own.text);
    const made = await owner.ask('/api_keys', { body: wanted });
    assert.equal(made.status, 200, made.text);
    const { id } = made.body.data;
    const change = { method: 'PATCH', body: { id, description: 'taken' } };
    assert.equal((await developer.ask('/api_keys', change)).status, 403);
    assert.equal((await developer.ask(`/api_keys?id=${id}`, { method: 'DELETE' })).status, 403);
    assert.equal((await owner.ask('/api_keys', change)).status, 200);
    const listed = await owner.ask('/api_keys');
    const { keyId } = owner.member;
    assert.ok(listed.body.data.every((key: { id: string }) => key.id !== keyId));
    assert.equal((await owner.ask(`/api_keys?id=${keyId}`, { method: 'DELETE' })).status, 400);
  });

  test('a batch of a member runs no further request after its role was changed', async (t) => {
    t.after(() => {
      bench.upstream.otherwise = { kind: 'json', usage: true };
    });
    bench.upstream.otherwise = { kind: 'status', status: 503 };
    const developer = await enter({ account: accountId, role: 'developer' });
    const line = { custom_id: '1', method: 'POST', url: '/v1/chat/completions', body: chatBody() };
    const form = new FormData();
    form.set('purpose', 'batch');
    form.set('file', new Blob([JSON.stringify(line)]), 'lines.jsonl');
    const headers = { authorization: `Bearer ${admin}` };
    const sent = { method: 'POST', headers, body: form };
    const uploaded = await fetch(`${bench.farebox.url}/files`, sent);
    const file = (await uploaded.json()) as { id: string };
    const body = {
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    };
    const { id } = (await developer.ask('/batches', { body })).body;
    const hasTried = () => {
      clock.advance(SECOND_MS);
      return bench.upstream.seen.length > 0;
    };
    bench.upstream.seen.length = 0;
    await until(hasTried, 'a request to the engine');
    const { members } = bench.farebox.app.stores.identity;
    await members.setRole(accountId, developer.member.id, 'viewer');
    const read = async () => {
      clock.advance(SECOND_MS);
      return (await call(bench.farebox, `/batches/${id}`, { secret: admin })).body;
    };
    // The engine would be tried again for a day.
    await until(async () => (await read()).status === 'completed', 'the end of the batch');
    const path = `/files/${(await read()).error_file_id}/content`;
    assert.match((await call(bench.farebox, path, { secret: admin })).text, /"status_code":403/);
  });

  test('an invitation adds one person with its role, for its address, until it expires', async () => {
    const sent = await invite({ role: 'billing', email: 'Eve@acme.example' });
    assert.equal(sent.status, 200, sent.text);
    assert.equal(sent.headers.get('cache-control'), 'no-store');
    const token = tokenOf(sent);
    const shown = await call(bench.farebox, '/console/invitation', { body: { token } });
    assert.equal(shown.body.data.role, 'billing');
    await assert.rejects(enter({}, { invitation: token, name: 'other' }), {
      code: 'SIGN_IN_NOT_ALLOWED',
    });
    const eve = await enter({}, { invitation: token, name: 'eve' });
    assert.equal(eve.member.role, 'billing');
    assert.equal(eve.member.accountId, accountId);
    const again = enter({}, { invitation: token, name: 'eve' });
    await assert.rejects(again, { code: 'INVITATION_NOT_FOUND' });
    assert.equal((await enter({}, { name: 'eve' })).member.role, 'billing', 'no rule is needed');

    const withdrawn = await invite({ role: 'viewer' });
    const path = `/members/invitations/${withdrawn.body.data.id}`;
    const removed = await call(bench.farebox, path, { method: 'DELETE', secret: admin });
    assert.equal(removed.status, 200);
    const late = await invite({ role: 'viewer' });
    clock.advance(8 * DAY_MS);
    for (const one of [withdrawn, late]) {
      const taken = enter({}, { invitation: tokenOf(one), name: 'frank' });
      await assert.rejects(taken, { code: 'INVITATION_NOT_FOUND' });
    }
    const { store } = bench.farebox.app.stores;
    const rows = await store.query('SELECT * FROM identity_invitation');
    assert.ok(!JSON.stringify(rows, String).includes(tokenOf(late)), 'only a hash is stored');
  });

  test('two people who use one invitation at the same time become one member', async () => {
    const token = tokenOf(await invite({ role: 'viewer' }));
    const both = await Promise.allSettled([
      enter({}, { invitation: token, name: 'gina' }),
      enter({}, { invitation: token, name: 'hans' }),
    ]);
    const states = both.map(({ status }) => status).sort();
    assert.deepEqual(states, ['fulfilled', 'rejected']);
  });

  test('a role change applies to open sessions, and the last owner stays', async () => {
    const account = await bench.farebox.account('1');
    const owner = await enter({ account: account.accountId, role: 'owner' });
    const second = await enter({ account: account.accountId, role: 'viewer' });
    const changed = await owner.ask(`/members/${second.member.id}`, {
      method: 'PATCH',
      body: { role: 'developer' },
    });
    assert.equal(changed.body.data.role, 'developer');
    const made = await second.ask('/api_keys', {
      body: { apiKeyType: 'INFERENCE', description: 'x' },
    });
    assert.equal(made.status, 200, made.text);
    const path = `/members/${owner.member.id}`;
    const demoted = await owner.ask(path, { method: 'PATCH', body: { role: 'viewer' } });
    assert.equal(demoted.status, 409);
    assert.equal(demoted.body.code, 'LAST_OWNER');
    assert.equal((await owner.ask(path, { method: 'DELETE' })).status, 409);
    const removed = await owner.ask(`/members/${second.member.id}`, { method: 'DELETE' });
    assert.equal(removed.status, 200);
    assert.equal((await second.ask('/billing/balance')).status, 401);
    const byKey = await call(bench.farebox, '/usage', { secret: made.body.data.apiKey });
    assert.equal(byKey.status, 200, 'a key of the account stays');
    const foreign = await owner.ask(`/members/${(await enter({ role: 'owner' })).member.id}`, {
      method: 'DELETE',
    });
    assert.equal(foreign.body.code, 'MEMBER_NOT_FOUND', 'of another account');
  });

  test('a rule never gives the account of the operator by its name', async () => {
    const { identity } = bench.farebox.app.stores;
    const operator = await identity.findAccount(bench.farebox.owner.accountId);
    for (const account of [operator?.name, operator?.id]) {
      await assert.rejects(enter({ account, role: 'owner' }), { code: 'SIGN_IN_NOT_ALLOWED' });
    }
  });

  test('an account of its own gets a free name, and two first sign-ins make one account', async () => {
    const { identity } = bench.farebox.app.stores;
    await identity.createAccount('ida@acme.example', 'paid');
    const [one, two] = await Promise.all([
      enter({ role: 'owner' }, { name: 'ida' }),
      enter({ role: 'owner' }, { name: 'ida' }),
    ]);
    assert.equal(one.member.id, two.member.id);
    const account = await identity.findAccount(one.member.accountId);
    assert.match(account?.name ?? '', /^ida@acme\.example \([\da-f]{8}\)$/);
  });

  test('a person in two accounts changes between them, and into no other', async () => {
    const first = await enter({ role: 'owner' }, { name: 'jo' });
    const token = tokenOf(await invite({ role: 'viewer' }));
    const second = await enter({ role: 'owner' }, { name: 'jo', invitation: token });
    assert.equal(second.member.accountId, accountId);
    const change = (to: string) =>
      second.ask('/console/session/account', { body: { accountId: to } });
    const changed = await change(first.member.accountId);
    assert.equal(changed.body.session.accountId, first.member.accountId);
    assert.equal((await change(bench.farebox.owner.accountId)).status, 404);
    const sessions = await second.ask('/console/sessions');
    assert.equal(sessions.body.data[0].email, 'jo@acme.example');
  });

  test('a disabled account keeps no person out of its other accounts', async () => {
    const { identity } = bench.farebox.app.stores;
    const setDisabled = async (id: string, disabled: boolean): Promise<void> => {
      const account = await identity.findAccount(id);
      assert.ok(account !== undefined);
      await identity.updateAccount({ ...account, disabled });
    };
    const other = await bench.farebox.account('1');
    const otherAdmin = await bench.farebox.key({ accountId: other.accountId, kind: 'ADMIN' });
    await enter({}, { name: 'lou', invitation: tokenOf(await invite({ role: 'viewer' })) });
    clock.advance(1_000);
    const token = tokenOf(await invite({ role: 'viewer' }, otherAdmin));
    await enter({}, { name: 'lou', invitation: token });
    await setDisabled(other.accountId, true);
    const entered = await enter({}, { name: 'lou' });
    assert.equal(entered.member.accountId, accountId);
    assert.equal((await entered.ask('/billing/balance')).status, 200);
    // A rule that gives the disabled account keeps the membership, too.
    const ruled = await enter({ account: other.accountId }, { name: 'lou' });
    assert.equal(ruled.member.accountId, accountId);
    await setDisabled(other.accountId, false);
    const again = await enter({ account: other.accountId }, { name: 'lou' });
    assert.equal(again.member.accountId, other.accountId);
  });

  test('the operator invites the first owner of an account', async () => {
    const account = await bench.farebox.account('1');
    const operator = await bench.farebox.key({ kind: 'ADMIN' });
    const path = `/admin/accounts/${account.accountId}`;
    const role: MemberRole = 'owner';
    const sent = await call(bench.farebox, `${path}/invitations`, {
      body: { role },
      secret: operator,
    });
    const kim = await enter({}, { invitation: tokenOf(sent), name: 'kim' });
    assert.equal(kim.member.accountId, account.accountId);
    const listed = await call(bench.farebox, `${path}/members`, { secret: operator });
    assert.deepEqual(
      listed.body.data.map(({ email }: { email: string }) => email),
      ['kim@acme.example'],
    );
  });
});

describe('members on PostgreSQL', () => {
  test('a rename and a first sign-in lock names and account in the same order', async () => {
    const farebox = await startTestApp({ databaseUrl: await emptyPostgresDatabase() });
    try {
      const { accountId } = await farebox.account('1');
      const operator = await farebox.key({ kind: 'ADMIN' });
      const { store, identity } = farebox.app.stores;
      let renaming: Promise<Called> | undefined;
      await store.transaction(async (tx) => {
        await identity.namedAccount('other', tx);
        const change = { method: 'PATCH', body: { name: 'renamed' }, secret: operator };
        renaming = call(farebox, `/admin/accounts/${accountId}`, change);
        await untilBlocked(store);
        const sql = 'SELECT id FROM identity_account WHERE id = $1 FOR UPDATE SKIP LOCKED';
        assert.equal((await tx.query(sql, [accountId])).length, 1, 'the account is not locked');
      });
      assert.equal((await renaming)?.body.data.name, 'renamed');
    } finally {
      await farebox.stop();
    }
  });
});
