/**
 * References to objects of another account, or beyond the scope of a key: each response is that to an
 * id that does not exist, and nothing changes. Every route with a caller has a line here.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type Bench, type CallOptions, type Called, call, startWithEngine } from '../app/call.ts';
import { freePort } from '../support/free-port.ts';
import { StripeDouble } from '../support/stripe-double.ts';
import { signIn } from './wallet-fixture.ts';

const OBJECTS = [
  'account',
  'key',
  'child',
  'budget',
  'member',
  'invitation',
  'session',
  'response',
  'item',
  'receipt',
  'file',
  'batch',
  'webhook',
  'checkout',
  'video',
  'token',
  'wallet',
] as const;
type Kind = (typeof OBJECTS)[number];

interface Reference {
  /** Method and path of the route. */
  readonly route: string;
  readonly kind: Kind;
  readonly ask: (id: string) => readonly [path: string, options?: CallOptions];
  /** The credentials of the account that may use the object. Default: all of its keys. */
  readonly scope?: 'admin' | 'key' | 'wallet' | 'member';
}

type Asked = ReturnType<Reference['ask']>;
type Scope = Reference['scope'];

function reference(
  route: string,
  kind: Kind,
  scope: Scope,
  ask: (method: string, path: string, id: string) => Asked,
): Reference {
  const [method = '', path = ''] = route.split(' ');
  const of = { route, kind, ask: (id: string) => ask(method, path, id) };
  return scope === undefined ? of : { ...of, scope };
}

/** The id is in the path. */
function pathOf(route: string, kind: Kind, scope?: Scope, body?: unknown): Reference {
  return reference(route, kind, scope, (method, path, id) => [
    path.replace(/:\w+/, id),
    body === undefined ? { method } : { method, body },
  ]);
}

function bodyOf(
  route: string,
  kind: Kind,
  body: (id: string) => unknown,
  scope?: Scope,
): Reference {
  return reference(route, kind, scope, (method, path, id) => [path, { method, body: body(id) }]);
}

function queryOf(route: string, kind: Kind, name: string, scope?: Scope): Reference {
  return reference(route, kind, scope, (method, path, id) => [`${path}?${name}=${id}`, { method }]);
}

const video = (id: string) => ({ queue_id: id, model: 'film' });

/** References that delete their object are last. */
const REFERENCES: readonly Reference[] = [
  pathOf('GET /api_keys/:id', 'key', 'admin'),
  bodyOf('PATCH /api_keys', 'key', (id) => ({ id, description: 'changed' }), 'admin'),
  queryOf('GET /usage', 'key', 'key', 'key'),
  queryOf('GET /usage/tags', 'key', 'key', 'key'),
  queryOf('GET /usage/requests', 'key', 'key', 'key'),
  queryOf('GET /usage/requests', 'receipt', 'requestId', 'key'),
  queryOf('GET /usage/days', 'key', 'key', 'key'),
  pathOf('GET /usage/:id', 'receipt', 'key'),
  pathOf('GET /usage/:id/signed', 'receipt', 'key'),
  pathOf('GET /budgets/:id', 'budget', 'admin'),
  pathOf('PATCH /budgets/:id', 'budget', 'admin', { usd: 4 }),
  pathOf('PATCH /members/:id', 'member', 'admin', { role: 'owner' }),
  bodyOf('POST /console/session/account', 'account', (accountId) => ({ accountId }), 'member'),
  pathOf('GET /responses/:id', 'response'),
  pathOf('GET /responses/:id/input_items', 'response'),
  bodyOf('POST /responses', 'response', (id) => ({
    model: 'atlas',
    input: 'And?',
    previous_response_id: id,
    store: false,
  })),
  bodyOf('POST /responses', 'item', (id) => ({
    model: 'atlas',
    input: [{ type: 'item_reference', id }],
    store: false,
  })),
  bodyOf('POST /responses/input_tokens', 'response', (id) => ({
    model: 'atlas',
    input: 'And?',
    previous_response_id: id,
  })),
  pathOf('GET /files/:id', 'file'),
  pathOf('GET /files/:id/content', 'file'),
  queryOf('GET /files', 'file', 'after'),
  bodyOf('POST /batches', 'file', (id) => ({
    input_file_id: id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  })),
  pathOf('GET /batches/:id', 'batch'),
  queryOf('GET /batches', 'batch', 'after'),
  pathOf('POST /batches/:id/cancel', 'batch'),
  pathOf('PATCH /webhooks/:id', 'webhook', 'admin', { paused: true }),
  pathOf('GET /webhooks/:id/deliveries', 'webhook', 'admin'),
  pathOf('POST /webhooks/:id/secret/rotate', 'webhook', 'admin'),
  pathOf('POST /webhooks/:id/test', 'webhook', 'admin'),
  pathOf('GET /billing/checkout/:id', 'checkout'),
  bodyOf('POST /video/retrieve', 'video', video),
  bodyOf('POST /video/cancel', 'video', video),
  bodyOf('POST /video/complete', 'video', video),
  pathOf('GET /x402/balance/:wallet', 'wallet', 'wallet'),
  pathOf('GET /x402/transactions/:wallet', 'wallet', 'wallet'),
  queryOf('DELETE /key/children', 'child', 'id', 'key'),
  pathOf('DELETE /budgets/:id', 'budget', 'admin'),
  pathOf('DELETE /members/invitations/:id', 'invitation', 'admin'),
  pathOf('DELETE /members/:id', 'member', 'admin'),
  pathOf('DELETE /console/sessions/:id', 'session', 'key'),
  pathOf('DELETE /responses/:id', 'response'),
  pathOf('DELETE /files/:id', 'file'),
  pathOf('DELETE /webhooks/:id', 'webhook', 'admin'),
  pathOf('DELETE /x402/token/:id', 'token', 'wallet'),
  queryOf('DELETE /api_keys', 'key', 'id', 'admin'),
];

/** Routes without a reference to an object of an account. */
const WITHOUT =
  /^(?:POST \/(?:chat|completions|messages|embeddings|rerank|v1|v2|moderations|crypto|image|images|audio|mcp|video\/(?:queue|transcriptions)|api_keys|key\/children|budgets|members\/invitations|console\/session|files|webhooks|billing\/checkout|x402\/token)|(?:GET|PUT|DELETE) \/billing\/auto-top-up|DELETE \/console\/session$|GET \/(?:api_keys|key|members|webhooks|credits|events|billing\/(?:balance|transactions|statement|top-ups)|console\/sessions|video\/jobs|x402\/token|budgets)(?:$|\/children|\/invitations|\/rate_limit))/;

describe('references to objects of others', () => {
  let stripe: StripeDouble;
  let bench: Bench;
  let origin: string;
  let ids: Record<Kind, string>;
  let owner: { accountId: string; admin: string; key: string; wallet: PrivateKeyAccount };
  const newWallet = () => privateKeyToAccount(generatePrivateKey());

  before(async () => {
    stripe = await StripeDouble.start();
    const port = await freePort();
    origin = `http://127.0.0.1:${port}`;
    bench = await startWithEngine({
      port,
      yaml: `
limits: { unsoldPerMinute: 1000000, guard: { failures: 1000000 } }
payments:
  ${stripe.yaml()}
  routesPerMinute: { balance: 10000, transactions: 10000, token: 10000 }
  base: { rpcUrl: 'http://127.0.0.1:9', payTo: '0x00000000000000000000000000000000000fa12b', gasKey: '0x${'11'.repeat(32)}' }
signIn: { providers: [{ id: acme, label: Acme, issuer: 'https://login.acme.example', clientId: x }] }
`,
    });
    await makeObjects();
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
    await stripe.stop();
  });

  const ask = (path: string, options: CallOptions = {}) => call(bench.farebox, path, options);
  const signed = async (wallet: PrivateKeyAccount) => ({
    'sign-in-with-x': await signIn(wallet, origin),
  });

  async function made(called: Promise<Called>): Promise<Called['body']> {
    const { status, text, body } = await called;
    assert.equal(status, 200, text);
    return body;
  }

  async function memberOf(accountId: string) {
    const { identity, ledger } = bench.farebox.app.stores;
    const provider = bench.farebox.config.signIn.providers[0]!;
    const name = `person-${accountId}`;
    const rule = { account: accountId, role: 'owner', operator: false, plan: 'paid' } as const;
    return await identity.members.signIn({
      person: {
        issuer: provider.issuer,
        subject: name,
        email: `${name}@acme.example`,
        name,
        groups: [],
        idToken: '',
      },
      provider: { ...provider, rules: [rule] },
      invitation: undefined,
      openAccount: (id, tx) => ledger.openAccount(id, tx),
    });
  }

  /** Headers of a new session of a key or a member. */
  async function sessionOf(who: { accountId: string; keyId: string }) {
    const place = { userAgent: 'test', address: '127.0.0.1' };
    const { secret, session } = await bench.farebox.app.stores.identity.sessions.begin(who, place);
    return {
      id: session.id,
      headers: { cookie: `svc_session=${secret}`, 'x-csrf-token': session.csrfToken },
    };
  }

  async function makeObjects(): Promise<void> {
    const { stores } = bench.farebox.app;
    const { accountId, secret: admin } = await bench.farebox.account('5', { kind: 'ADMIN' });
    const create = (path: string, body: unknown, secret = admin) =>
      made(ask(path, { secret, body }));
    const { data: made1 } = await create('/api_keys', {
      apiKeyType: 'INFERENCE',
      description: 'used',
    });
    const wallet = newWallet();
    owner = { accountId, admin, key: made1.apiKey, wallet };
    const child = await create('/key/children', { description: 'child' });
    const budget = await create('/budgets', { period: 'MONTH', usd: 4 });
    const invited = await create('/members/invitations', { role: 'developer' });
    const response = await create(
      '/responses',
      { model: 'atlas', input: 'A secret', max_output_tokens: 50 },
      owner.key,
    );
    const chat = { messages: [{ role: 'user', content: 'A secret' }] };
    const completion = await create(
      '/chat/completions',
      { model: 'atlas', max_completion_tokens: 50, ...chat },
      owner.key,
    );
    const form = new FormData();
    const line = { custom_id: 'a secret', method: 'POST', url: '/v1/chat/completions' };
    const text = JSON.stringify({ ...line, body: { model: 'atlas', ...chat } });
    form.set('purpose', 'batch');
    form.set('file', new Blob([text]), 'a-secret.jsonl');
    const uploaded = await fetch(`${bench.farebox.url}/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${owner.key}` },
      body: form,
    });
    const file = (await uploaded.json()) as { id: string };
    const batch = await create('/batches', {
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const webhook = await create('/webhooks', {
      url: 'https://1.1.1.1/a-secret',
      events: ['balance.low'],
      thresholds: { balanceUsd: 1 },
    });
    const checkout = await create('/billing/checkout', { amountUsd: 20 });
    const token = await made(ask('/x402/token', { method: 'POST', headers: await signed(wallet) }));
    const [adminKey] = (
      await stores.identity.listKeys(accountId, {}, { limit: 9, offset: 0 })
    ).filter(({ kind }) => kind === 'ADMIN');
    const videoId = '0b6f0c2e-4a52-4c0e-9a3c-5d4f6b1c7e10';
    const laterMs = Date.now() + 86_400_000;
    // Another process makes it.
    await stores.store.query(
      `INSERT INTO video_job (id, account_id, key_id, model_id, state, quote_nano, request, inputs,
         engine, engine_model, engine_job_id, attempts, progress_ppm, created_ms, started_ms,
         finished_ms, execution_ms, due_ms, lease_owner, lease_until_ms, failure, media_bytes,
         media_type, media_until_ms, has_media, webhook_url, webhook_attempts, webhook_due_ms)
       VALUES ($1, $2, '', 'film', 'running', 1, '{}', '[]', 'rack1', 'f', 'e1', 1, 500000,
         $3, $3, 0, 0, $4, 'other', $4, '', 0, '', 0, 0, '', 0, 0)`,
      [videoId, accountId, Date.now(), laterMs],
    );
    ids = {
      account: accountId,
      key: made1.id,
      child: child.data.id,
      budget: budget.data.id,
      member: (await memberOf(accountId)).id,
      invitation: invited.data.id,
      session: (await sessionOf({ accountId, keyId: adminKey?.id ?? '' })).id,
      response: response.id,
      item: response.output[0].id,
      receipt: completion.id.replace('chatcmpl-', ''),
      file: file.id,
      batch: batch.id,
      webhook: webhook.id,
      checkout: checkout.id,
      video: videoId,
      token: token.data.id,
      wallet: wallet.address,
    };
  }

  /** An id of the same form that does not exist. */
  const unknown = (id: string): string => id.slice(0, -1) + (id.endsWith('0') ? '1' : '0');

  /** The response without the id and what differs from one request to the next. */
  function seen({ status, text }: Called, id: string): string {
    return `${status} ${text.replaceAll(new RegExp(id, 'gi'), 'ID')}`.replaceAll(
      /"(?:request_id|requestId|id|created_at)":"?[^",}]*"?/g,
      '',
    );
  }

  /** All objects as their owner sees them. */
  async function stateOf(): Promise<string> {
    const { admin, wallet } = owner;
    const paths = [
      '/api_keys?limit=100',
      '/key/children',
      '/budgets',
      '/members',
      '/members/invitations',
      '/console/sessions',
      '/files',
      '/webhooks',
      `/webhooks/${ids.webhook}/deliveries`,
      `/responses/${ids.response}`,
      `/billing/checkout/${ids.checkout}`,
      '/video/jobs',
    ];
    const bodies = await Promise.all(
      paths.map(async (path) => [path, await made(ask(path, { secret: admin }))]),
    );
    const tokens = await made(ask('/x402/token', { headers: await signed(wallet) }));
    const state = JSON.stringify([bodies, tokens], undefined, 1);
    return state.replaceAll(/"(?:lastUsedAt|execution_duration)": .*/g, '');
  }

  test('every route with a caller is in a table', () => {
    const listed = new Set(REFERENCES.map(({ route }) => route));
    const missing = bench.farebox.app.routes
      .filter(({ auth }) => auth !== 'public' && auth !== 'operator')
      .map(({ method, path }) => `${method} ${path}`)
      .filter((route) => !listed.has(route) && (route.includes(':') || !WITHOUT.test(route)));
    assert.deepEqual(missing, ['POST /crypto/rpc/:network']);
  });

  test('an object of another account is as unknown as one that does not exist', async () => {
    const other = await bench.farebox.account('5', { kind: 'ADMIN' });
    const otherKey = await bench.farebox.key({ accountId: other.accountId });
    const wallet = newWallet();
    const minted = await made(
      ask('/x402/token?usdLimit=1', { method: 'POST', headers: await signed(wallet) }),
    );
    const member = await sessionOf(await memberOf(other.accountId));
    const revoked = await bench.farebox.key({ accountId: owner.accountId, kind: 'ADMIN' });
    const ended = await sessionOf({ accountId: owner.accountId, keyId: 'key_none' });
    const { identity } = bench.farebox.app.stores;
    for (const { id } of (
      await identity.listKeys(owner.accountId, {}, { limit: 100, offset: 0 })
    ).filter(({ last6 }) => revoked.endsWith(last6)))
      assert.ok(await identity.revokeKey(owner.accountId, id));
    const strangers: Readonly<Record<string, () => Promise<CallOptions>>> = {
      'an ADMIN key': async () => ({ secret: other.secret }),
      'an INFERENCE key': async () => ({ secret: otherKey }),
      'a wallet': async () => ({ headers: await signed(wallet) }),
      'a wallet token': async () => ({ secret: minted.data.token }),
      'a member': async () => ({ headers: member.headers }),
      'a revoked key of the account': async () => ({ secret: revoked }),
      'an ended session of the account': async () => ({ headers: ended.headers }),
    };
    const before = await stateOf();
    for (const [who, credential] of Object.entries(strangers)) {
      for (const { route, kind, ask: asked } of REFERENCES) {
        const sent = async (id: string): Promise<string> => {
          const [path, options] = asked(id);
          return seen(await ask(path, { ...options, ...(await credential()) }), id);
        };
        const answer = await sent(ids[kind]);
        assert.equal(answer, await sent(unknown(ids[kind])), `${who}: ${route}`);
        assert.doesNotMatch(answer, /secret/i, `${who}: ${route}`);
        if (/revoked|ended/.test(who)) assert.match(answer, /^401 /, `${who}: ${route}`);
      }
    }
    assert.equal(await stateOf(), before);
  });

  test('a key without the right for an object finds as little of it in its own account', async () => {
    const key = await bench.farebox.key({ accountId: owner.accountId });
    const before = await stateOf();
    for (const { route, kind, scope, ask: asked } of REFERENCES) {
      if (scope === undefined) continue;
      const sent = async (id: string): Promise<string> => {
        const [path, options] = asked(id);
        return seen(await ask(path, { ...options, secret: key }), id);
      };
      const answer = await sent(ids[kind]);
      assert.equal(answer, await sent(unknown(ids[kind])), route);
      if (scope === 'admin') assert.match(answer, /ADMIN_KEY_REQUIRED/, route);
    }
    const after = await stateOf();
    assert.equal(after, before);
  });

  test('the owner of an object uses it', async () => {
    for (const { route, kind, scope, ask: asked } of REFERENCES) {
      if (scope === 'member') continue;
      const sent = async (id: string): Promise<string> => {
        const [path, options] = asked(id);
        const credential =
          scope === 'wallet' ? { headers: await signed(owner.wallet) } : { secret: owner.admin };
        return seen(await ask(path, { ...options, ...credential }), id);
      };
      const answer = await sent(ids[kind]);
      assert.notEqual(answer, await sent(unknown(ids[kind])), route);
      assert.doesNotMatch(answer, /^(?:401|404) /, route);
    }
  });

  test('an idempotency key of another account is free', async () => {
    const { secret } = await bench.farebox.account('5');
    const headers = { 'idempotency-key': 'the-same' };
    const body = { model: 'atlas', messages: [{ role: 'user', content: 'Hello' }] };
    const chat = (by: string) => ask('/chat/completions', { secret: by, headers, body });
    const [first, own, foreign] = [
      await chat(owner.admin),
      await chat(owner.admin),
      await chat(secret),
    ];
    const isReplayed = ({ headers }: Called) => headers.get('idempotent-replayed');
    assert.deepEqual([first, own, foreign].map(isReplayed), [null, 'true', null]);
    assert.notEqual(foreign.body.id, first.body.id);
  });
});
