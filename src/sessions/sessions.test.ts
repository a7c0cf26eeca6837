/** Sessions over HTTP: permissions of a cookie, its expiry, and protection against theft and misuse. */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { createSiweMessage, generateSiweNonce } from 'viem/siwe';
import {
  type Bench,
  type CallOptions,
  call,
  chatBody,
  startWithEngine,
} from '../../test/app/call.ts';
import { DAY_MS, MINUTE_MS } from '../core/clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { ConsoleResponse, SessionResponse, SessionListResponse } from './sessions-schema.ts';

/** A rail whose chain is never called, because signing in needs none. */
const YAML = `
payments:
  base:
    rpcUrl: "http://127.0.0.1:9"
    payTo: "0x00000000000000000000000000000000000fa12b"
    gasKey: "0x${'11'.repeat(32)}"
limits: { guard: { failures: 8 } }
`;

interface SignedIn {
  readonly cookie: string;
  readonly csrf: string;
  readonly id: string;
}

describe('console sessions', () => {
  const clock = new TestClock(Date.now());
  let bench: Bench;
  let admin: string;
  let inference: string;
  let other: { accountId: string; secret: string };

  before(async () => {
    bench = await startWithEngine({ clock, yaml: YAML });
    const { farebox } = bench;
    const { accountId, secret } = await farebox.account('5');
    inference = secret;
    admin = await farebox.key({ accountId, kind: 'ADMIN', description: 'mine' });
    other = await farebox.account('7', { kind: 'ADMIN' });
  });
  after(() => bench.stop());

  async function signIn(options: CallOptions): Promise<SignedIn> {
    const answer = await call(bench.farebox, '/console/session', { method: 'POST', ...options });
    assert.equal(answer.status, 200, answer.text);
    return signedIn(answer.headers, answer.body);
  }

  function signedIn(headers: Headers, body: unknown): SignedIn {
    const { session } = SessionResponse.parse(body);
    const set = headers.get('set-cookie') ?? '';
    assert.match(
      set,
      /^svc_session=[\w-]{43}; Max-Age=604800; Path=\/; HttpOnly; SameSite=Strict$/,
    );
    assert.equal(headers.get('cache-control'), 'no-store');
    const [cookie = ''] = set.split(';');
    return { cookie, csrf: session.csrfToken, id: session.id };
  }

  const ask = (path: string, { cookie }: Pick<SignedIn, 'cookie'>, options: CallOptions = {}) =>
    call(bench.farebox, path, { ...options, headers: { cookie, ...options.headers } });
  const write = (path: string, session: SignedIn, options: CallOptions) =>
    ask(path, session, {
      ...options,
      headers: { 'x-csrf-token': session.csrf, ...options.headers },
    });

  test('a key signs in, and its session has the rights of the key', async () => {
    const session = await signIn({ secret: inference });
    const console = ConsoleResponse.parse((await ask('/console/session', session)).body);
    assert.equal(console.session?.kind, 'key');
    assert.equal(console.session?.keyKind, 'INFERENCE');
    assert.equal(console.session?.isOperator, false);
    assert.equal(console.session?.csrfToken, session.csrf);
    assert.equal((await ask('/billing/balance', session)).body.balances.usd, 5);
    const answer = await write('/chat/completions', session, { body: chatBody() });
    assert.equal(answer.status, 200, answer.text);
    const receipt = await ask(`/usage/${answer.headers.get('x-request-id')}`, session);
    assert.equal(receipt.status, 200);
    assert.equal((await ask('/api_keys', session)).status, 401, 'no ADMIN key');
    assert.equal((await ask('/api_keys', await signIn({ secret: admin }))).status, 200);
  });

  test('a request without a cookie is not signed in, without an error', async () => {
    const answer = await call(bench.farebox, '/console/session');
    const body = ConsoleResponse.parse(answer.body);
    assert.equal(body.session, null);
    assert.equal(answer.headers.get('set-cookie'), null);
    assert.equal(body.wallet?.info.domain, new URL(bench.farebox.config.publicUrl).host);
    const stale = await ask('/console/session', { cookie: 'svc_session=abc' });
    assert.equal(stale.body.session, null);
    assert.match(stale.headers.get('set-cookie') ?? '', /^svc_session=; Max-Age=0; /);
  });

  test('a copied cookie is invalid after the sign-out, and other sessions continue', async () => {
    const [session, second] = [await signIn({ secret: admin }), await signIn({ secret: admin })];
    const out = await write('/console/session', session, { method: 'DELETE' });
    assert.equal(out.status, 200, out.text);
    assert.match(out.headers.get('set-cookie') ?? '', /^svc_session=; Max-Age=0; /);
    const stolen = await ask('/billing/balance', session);
    assert.equal(stolen.status, 401);
    assert.equal(stolen.body.code, 'AUTHENTICATION_FAILED');
    assert.equal((await ask('/billing/balance', second)).status, 200);
  });

  test('a write without the CSRF token, or from another origin, is rejected', async () => {
    const session = await signIn({ secret: admin });
    const body = { apiKeyType: 'INFERENCE', description: 'stolen' };
    const { host, origin } = new URL(bench.farebox.url);
    const foreign: CallOptions[] = [
      { body },
      { body, headers: { 'x-csrf-token': 'f'.repeat(64) } },
      { body, headers: { 'x-csrf-token': session.csrf, origin: 'https://evil.example' } },
      { body, headers: { 'x-csrf-token': session.csrf, 'sec-fetch-site': 'cross-site' } },
      { body, headers: { 'x-csrf-token': session.csrf, 'sec-fetch-site': 'same-site' } },
    ];
    for (const options of foreign) {
      const answer = await ask('/api_keys', session, options);
      assert.equal(answer.status, 403, JSON.stringify(options));
      assert.equal(answer.body.code, 'CSRF_CHECK_FAILED');
    }
    const read = await ask('/billing/balance', session, {
      headers: { 'sec-fetch-site': 'same-site' },
    });
    assert.equal(read.status, 403, 'another port of this machine is another origin');
    const console = await ask('/console/session', session, {
      headers: { 'sec-fetch-site': 'same-site' },
    });
    assert.equal(console.body.session, null);
    assert.equal(console.headers.get('set-cookie'), null, 'no other origin signs anybody out');
    const own = { origin, host, 'sec-fetch-site': 'same-origin' };
    assert.equal((await write('/api_keys', session, { body, headers: own })).status, 200);
  });

  test('a key in the request has priority over the cookie and needs no CSRF token', async () => {
    const session = await signIn({ secret: admin });
    const answer = await ask('/billing/balance', session, { secret: other.secret });
    assert.equal(answer.body.balances.usd, 7);
    const chat = await ask('/chat/completions', session, {
      secret: other.secret,
      body: chatBody(),
    });
    assert.equal(chat.status, 200, chat.text);
  });

  test('a sign-in ignores the cookie of the request and ends its session', async () => {
    const fixed = 'svc_session=' + 'A'.repeat(43);
    const session = await signIn({ secret: admin, headers: { cookie: fixed } });
    assert.notEqual(session.cookie, fixed);
    const next = await signIn({ secret: admin, headers: { cookie: session.cookie } });
    assert.equal((await ask('/billing/balance', session)).status, 401);
    assert.equal((await ask('/billing/balance', next)).status, 200);
    const renewed = await write('/console/session', next, { method: 'POST' });
    assert.equal(renewed.status, 401, 'a session does not renew itself');
    const foreign = { origin: 'https://evil.example' };
    const login = await call(bench.farebox, '/console/session', {
      method: 'POST',
      secret: admin,
      headers: foreign,
    });
    assert.equal(login.status, 403, 'nobody is signed in by a page of another origin');
  });

  test('sessions are listed and ended only by their owner', async () => {
    const [mine, lesser, strange] = [
      await signIn({ secret: admin }),
      await signIn({ secret: inference }),
      await signIn({ secret: other.secret }),
    ];
    const ids = async (session: SignedIn) =>
      SessionListResponse.parse((await ask('/console/sessions', session)).body).data.map(
        ({ id }) => id,
      );
    assert.deepEqual(await ids(strange), [strange.id]);
    assert.ok((await ids(mine)).includes(lesser.id), 'an ADMIN key sees its account');
    assert.ok(!(await ids(lesser)).includes(mine.id));
    for (const [session, id] of [
      [strange, mine.id],
      [lesser, mine.id],
    ] as const) {
      const answer = await write(`/console/sessions/${id}`, session, { method: 'DELETE' });
      assert.equal(answer.status, 404);
      assert.equal(answer.body.code, 'SESSION_NOT_FOUND');
    }
    assert.equal(
      (await write(`/console/sessions/${lesser.id}`, mine, { method: 'DELETE' })).status,
      200,
    );
    assert.equal((await ask('/billing/balance', lesser)).status, 401);
  });

  test('a session ends with its key, and after a week', async () => {
    const key = await bench.farebox.key({ accountId: other.accountId });
    const session = await signIn({ secret: key });
    const keys = await call(bench.farebox, '/api_keys', { secret: other.secret });
    const id = keys.body.data.find((one: { last6Chars: string }) =>
      key.endsWith(one.last6Chars),
    ).id;
    await call(bench.farebox, `/api_keys?id=${id}`, { secret: other.secret, method: 'DELETE' });
    assert.equal((await ask('/billing/balance', session)).status, 401);
    const old = await signIn({ secret: other.secret });
    clock.advance(7 * DAY_MS);
    assert.equal((await ask('/billing/balance', old)).status, 401);
  });

  test('a session of a disabled account is rejected', async () => {
    const { identity } = bench.farebox.app.stores;
    const { accountId, secret } = await bench.farebox.account('1');
    const session = await signIn({ secret });
    const account = await identity.findAccount(accountId);
    assert.ok(account);
    await identity.updateAccount({ ...account, disabled: true });
    const answer = await ask('/billing/balance', session);
    assert.deepEqual([answer.status, answer.body.code], [403, 'API_ACCESS_DISABLED']);
  });

  test('a link signs in once, and not after it expired', async () => {
    const { app } = bench.farebox;
    const caller = await app.stores.identity.keys.callerOf(admin);
    const issue = () => app.stores.identity.sessions.issueLink(caller.accountId, caller.keyId);
    const take = (token: string) =>
      call(bench.farebox, '/console/session/link', { body: { token } });
    const token = await issue();
    const answer = await take(token);
    assert.equal(answer.status, 200, answer.text);
    const session = signedIn(answer.headers, answer.body);
    assert.equal((await ask('/api_keys', session)).status, 200);
    assert.equal((await take(token)).status, 401, 'used');
    const old = await issue();
    clock.advance(15 * MINUTE_MS);
    assert.equal((await take(old)).status, 401, 'old');
    const tries = await Promise.all(Array.from({ length: 12 }, () => take('guessed')));
    assert.ok(
      tries.some(({ status }) => status === 429),
      'guessing is limited',
    );
  });

  test('a wallet signs in by its signature, and not by a wallet token', async () => {
    const account = privateKeyToAccount(generatePrivateKey());
    const proof = async () => {
      const message = createSiweMessage({
        address: account.address,
        chainId: 8453,
        domain: new URL(bench.farebox.config.publicUrl).host,
        nonce: generateSiweNonce(),
        uri: bench.farebox.config.publicUrl,
        version: '1',
        issuedAt: new Date(clock.nowMs()),
      });
      const signature = await account.signMessage({ message });
      const made = { address: account.address, message, signature, chainId: 8453 };
      return { 'sign-in-with-x': Buffer.from(JSON.stringify(made)).toString('base64') };
    };
    const session = await signIn({ headers: await proof() });
    const console = ConsoleResponse.parse((await ask('/console/session', session)).body);
    const wallet = account.address.toLowerCase();
    assert.deepEqual([console.session?.kind, console.session?.wallet], ['wallet', wallet]);
    const balance = await ask(`/x402/balance/${account.address}`, session);
    assert.equal(balance.status, 200, balance.text);
    const stranger = await ask(`/x402/balance/0x${'1'.repeat(40)}`, session);
    assert.equal(stranger.status, 403);
    const minted = await call(bench.farebox, '/x402/token?usdLimit=1', {
      method: 'POST',
      headers: await proof(),
    });
    const { token } = minted.body.data;
    const byToken = await call(bench.farebox, '/console/session', {
      method: 'POST',
      secret: token,
    });
    assert.equal(byToken.status, 401, 'a token has limits that a session would not have');
    const token2 = await write('/x402/token', session, { method: 'POST' });
    assert.equal(token2.status, 401, 'a token takes a signature');
    // A token does not allow access to the sign-in sessions of the wallet.
    const seen = await call(bench.farebox, '/console/sessions', { secret: token });
    const path = `/console/sessions/${console.session?.id}`;
    const ended = await call(bench.farebox, path, { method: 'DELETE', secret: token });
    assert.deepEqual([seen.status, ended.status], [401, 401]);
    const own = await call(bench.farebox, '/console/sessions', { headers: await proof() });
    assert.equal(own.body.data.length, 1);
    const events = await fetch(`${bench.farebox.url}/events`, {
      headers: { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(20_000),
    });
    const revoked = await call(bench.farebox, `/x402/token/${minted.body.data.id}`, {
      method: 'DELETE',
      headers: await proof(),
    });
    assert.equal(revoked.status, 200, revoked.text);
    const ticks = setInterval(() => clock.advance(1_000), 20);
    const text = await events.text().finally(() => clearInterval(ticks));
    assert.match(text, /event: end\ndata: {"reason":"session"}/, 'the token was revoked');
  });

  test('a read that the console cancels when its page changes is not listed as a failure', async (t) => {
    const session = await signIn({ secret: inference });
    const { ledger, store } = bench.farebox.app.stores;
    const released = Promise.withResolvers<void>();
    let running = 0;
    const funds = ledger.funds.bind(ledger);
    t.mock.method(ledger, 'funds', async (accountId: string) => {
      running += 1;
      await released.promise;
      return await funds(accountId);
    });
    const leaving = new AbortController();
    const path = '/billing/balance';
    const gone = Promise.allSettled([
      ask(path, session, { signal: leaving.signal }),
      call(bench.farebox, path, { secret: inference, signal: leaving.signal }),
    ]);
    await until(() => running === 2, 'both reads');
    leaving.abort();
    await gone;
    // The server has noticed the end of both connections.
    await sleep(300);
    released.resolve();
    const listed = async () =>
      store.query(
        `SELECT status FROM observability_failure WHERE status = 499 AND route = 'GET ${path}'`,
      );
    await until(async () => {
      clock.advance(1_000);
      return (await listed()).length > 0;
    }, 'the read of a program');
    await call(bench.farebox, path, { secret: inference });
    assert.deepEqual(await listed(), [{ status: 499n }]);
  });

  test('guessing keys at the sign-in is limited by the abuse guard', async () => {
    const guess = () =>
      call(bench.farebox, '/console/session', {
        method: 'POST',
        secret: 'SVC_INFERENCE_KEY_guessed',
      });
    const statuses: number[] = [];
    for (let at = 0; at < 12; at += 1) statuses.push((await guess()).status);
    assert.equal(statuses[0], 401);
    assert.equal(statuses.at(-1), 429);
  });

  test('the session cookie is found among others, and similar names are ignored', async () => {
    const { cookie } = await signIn({ secret: admin });
    const { port } = new URL(bench.farebox.url);
    const status = (header: string): Promise<number> =>
      new Promise((resolve, reject) => {
        const sent = request(
          { port, host: '127.0.0.1', path: '/api/v1/billing/balance', headers: { cookie: header } },
          (answer) => {
            answer.resume();
            resolve(answer.statusCode ?? 0);
          },
        );
        sent.on('error', reject);
        sent.end();
      });
    assert.equal(await status(`theme=dark; ${cookie}; a=b`), 200);
    assert.equal(await status(`x${cookie}`), 402);
  });
});
