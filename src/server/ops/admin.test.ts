/** Operator routes about the running service. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call as rpcCall } from '../../../test/rpc/bench.ts';
import { echoNode, replyWith, startNode, type TestNode } from '../../../test/rpc/node.ts';
import { type Bench, call, chatBody, startWithEngine } from '../../../test/app/call.ts';
import { MINUTE_MS, dayOf, dayStartMs, isoTime } from '../../core/clock.ts';

const KEY = '11'.repeat(32);
const WALLET = '0x2f3c0000000000000000000000000000000091ab';
const YAML = `
payments:
  base:
    rpcUrl: "http://127.0.0.1:9"
    payTo: "0x00000000000000000000000000000000000fa12b"
    gasKey: "0x${KEY}"
`;

const NODES = ['near', 'behind', 'other chain'];

describe('/admin of the running service', () => {
  let bench: Bench;
  let operator: string;
  let changed: string | undefined;
  let nodes: readonly TestNode[];

  before(async () => {
    nodes = await Promise.all(['0x1', '0x1', '0x2'].map((chain) => startNode(chain)));
    const upstreams = nodes.map(({ url }, index) => ({ url, name: NODES[index] }));
    const rpc = { networks: { 'ethereum-mainnet': { upstreams } } };
    const yaml = `${YAML}rpc: ${JSON.stringify(rpc)}\n`;
    bench = await startWithEngine({ yaml, changedYaml: () => changed });
    operator = await bench.farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await bench.stop();
    await Promise.all(nodes.map((node) => node.close()));
  });

  const get = async (path: string) => {
    const answer = await call(bench.farebox, `/admin${path}`, { secret: operator });
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };

  test('other keys are rejected', async () => {
    const stranger = await bench.farebox.account('1', { kind: 'ADMIN' });
    for (const path of ['engines', 'videos', 'top-ups', 'top-ups/x', 'audit', 'config', 'check']) {
      const answer = await call(bench.farebox, `/admin/${path}`, { secret: stranger.secret });
      assert.deepEqual([answer.status, answer.body.code], [403, 'OPERATOR_KEY_REQUIRED'], path);
    }
  });

  test('`GET /admin/engines` lists replicas with load and latency after a call', async () => {
    const { secret } = await bench.farebox.account('1');
    await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    const { engines, models } = await get('/engines');
    assert.deepEqual([engines[0].id, engines[0].source], ['rack1', 'configured']);
    const [replica] = engines[0].replicas;
    assert.deepEqual([replica.model, replica.breaker, replica.calls], ['tiny', 'closed', 1]);
    assert.ok(replica.latencyMs >= 0 && replica.latencyMs < 10_000);
    assert.deepEqual(models, [
      { id: 'atlas', type: 'text', isReady: true, replicas: [{ engine: 'rack1', model: 'tiny' }] },
    ]);
  });

  test('`GET /admin/engines` lists RPC networks and nodes by name, never by URL', async () => {
    const [near, behind] = nodes;
    near!.head = () => '0x64';
    behind!.head = () => '0x5f';
    // The node is used last for the method, because three callers found it missing.
    behind!.respond = replyWith({ error: { code: -32601, message: 'the method does not exist' } });
    near!.respond = behind!.respond;
    const path = '/crypto/rpc/ethereum-mainnet';
    for (const usd of ['1', '2', '3']) {
      const { secret } = await bench.farebox.account(usd);
      await call(bench.farebox, path, { secret, body: rpcCall('eth_getProof') });
    }
    near!.respond = echoNode();
    behind!.respond = echoNode();
    const { secret } = await bench.farebox.account('1');
    for (let round = 0; round < 12; round += 1)
      await call(bench.farebox, path, { secret, body: rpcCall('eth_getBalance', round) });
    const answer = await call(bench.farebox, '/admin/engines', { secret: operator });
    const { networks } = answer.body;
    assert.deepEqual([networks.length, networks[0].network], [1, 'ethereum-mainnet']);
    assert.equal(networks[0].head, 0x5f);
    const [first, second, other] = networks[0].nodes;
    assert.deepEqual(
      networks[0].nodes.map(({ name }: { name: string }) => name),
      NODES,
    );
    assert.deepEqual([first.head, first.lag, first.state], [0x64, -5, 'ready']);
    assert.deepEqual([second.head, second.lag, second.state], [0x5f, 0, 'ready']);
    assert.deepEqual([other.head, other.lag, other.state], [null, null, 'disabled']);
    assert.deepEqual(second.missingMethods, ['eth_getProof']);
    assert.deepEqual([second.oldestState, second.oldestLogs, second.hedges], [null, null, 0]);
    assert.equal(first.failures + second.failures, 6);
    assert.ok(first.calls + second.calls >= 18);
    assert.ok([first, second].some(({ p95Ms }) => p95Ms !== null && p95Ms >= 0));
    assert.equal(other.calls, 0);
    for (const { url } of nodes) assert.ok(!answer.text.includes(new URL(url).host));
    assert.ok(!answer.text.includes('key-secret'));
  });

  test('`GET /admin/audit` equals `farebox audit`', async () => {
    const [one, two] = await Promise.all([get('/audit'), get('/audit')]);
    assert.deepEqual([one.ok, one.differences, two], [true, [], one]);
    const { store } = bench.farebox.app.stores;
    await store.query('UPDATE ledger_account SET balance_nano = balance_nano + 1 WHERE id = $1', [
      bench.farebox.owner.accountId,
    ]);
    const wrong = await get('/audit');
    assert.equal(wrong.ok, false);
    assert.equal(wrong.differences[0].account, bench.farebox.owner.accountId);
    await store.query('UPDATE ledger_account SET balance_nano = balance_nano - 1 WHERE id = $1', [
      bench.farebox.owner.accountId,
    ]);
  });

  test('`GET /admin/config` masks secrets and lists the changes of a reload', async () => {
    const same = await get('/config');
    assert.doesNotMatch(same.yaml, new RegExp(KEY));
    assert.match(same.yaml, /atlas/);
    assert.deepEqual(same.reload, { ok: true, changed: [], restart: [], problems: [] });
    changed = 'limits: { minimumCreditUsd: "0.2" }\ndiscovery: { enabled: false }\n';
    const other = await get('/config');
    assert.ok(other.reload.changed.includes('limits'));
    assert.ok(other.reload.restart.includes('payments'));
    changed = 'limits: { minimumCredit: 1 }\n';
    const broken = await get('/config');
    assert.equal(broken.reload.ok, false);
    assert.match(broken.reload.problems[0], /^farebox\.yaml:1:\d+: .*minimumCredit/);
    changed = undefined;
  });

  test('`GET /admin/check` returns the findings', async () => {
    const { ok, findings } = await get('/check');
    const byName = new Map<string, string>(
      findings.map(({ what, state }: { what: string; state: string }) => [what, state]),
    );
    assert.equal(byName.get('database'), 'ok');
    assert.equal(byName.get('engine rack1') === undefined, false);
    assert.deepEqual([ok, byName.get('payments base')], [false, 'wrong'], 'no node answers');
  });

  test('`GET /admin/top-ups` lists payments by state, and returns the details of one', async () => {
    const { store } = bench.farebox.app.stores;
    const nowMs = Date.now();
    const insert = (id: string, state: string, createdMs: number, tx: string | null) =>
      store.query(
        `INSERT INTO payments_topup (payment_key, payment_id, network, wallet, amount_units, payload,
           payload_hash, state, tx_id, start_height, expires_at, lease_until_ms, next_check_ms,
           attempts, created_ms, updated_ms, offer)
         VALUES ($1, $1, 'eip155:8453', $2, 10000000, 'signed secret', 'h', $3, $4, 7, 9, 0, $5, 3,
           $6, $6, '{"payTo":"0xpay","asset":"0xusdc"}')`,
        [id, WALLET, state, tx, nowMs + 86_400_000, createdMs],
      );
    await insert('x402-stuck', 'sent', nowMs - 3_600_000, '0xabc');
    await insert('x402-fresh', 'open', nowMs, null);
    await insert('x402-done', 'credited', nowMs - 7_200_000, '0xdef');
    const ids = async (query: string): Promise<string[]> =>
      (await get(`/top-ups${query}`)).data.map((one: { paymentId: string }) => one.paymentId);
    assert.deepEqual(await ids(''), ['x402-fresh', 'x402-stuck', 'x402-done']);
    assert.deepEqual(await ids('?state=credited'), ['x402-done']);
    assert.deepEqual(await ids('?stuck=true'), ['x402-stuck']);
    assert.deepEqual(await ids('?wallet=0x1'), []);
    const first = await get('/top-ups?limit=2');
    assert.deepEqual(await ids(`?limit=2&cursor=${first.nextCursor}`), ['x402-done']);
    const detail = await get('/top-ups/x402-stuck');
    const { isStuck, amountUsd, explorerUrl, advice, payTo } = detail.data;
    assert.deepEqual(
      [isStuck, amountUsd, explorerUrl, payTo],
      [true, '10.0000', 'https://basescan.org/tx/0xabc', '0xpay'],
    );
    assert.match(advice, /takes long/);
    assert.doesNotMatch(JSON.stringify(detail), /signed secret/);
    const none = await call(bench.farebox, '/admin/top-ups/none', { secret: operator });
    assert.deepEqual([none.status, none.body.code], [404, 'PAYMENT_NOT_FOUND']);
  });

  test('`GET /admin/videos` lists jobs of all accounts, by state and by page', async () => {
    const { store } = bench.farebox.app.stores;
    const insert = (id: string, state: string, createdMs: number, failure: string) =>
      store.query(
        `INSERT INTO video_job (id, account_id, key_id, model_id, state, quote_nano, request, inputs,
           engine, engine_model, engine_job_id, attempts, progress_ppm, created_ms, started_ms,
           finished_ms, execution_ms, due_ms, lease_owner, lease_until_ms, failure, media_bytes,
           media_type, media_until_ms, has_media, webhook_url, webhook_attempts, webhook_due_ms)
         VALUES ($1, 'acct_1', '', 'film', $2, 350000000, '{}', '[]', 'rack1', 'f', 'e1', 1, 500000,
           $3, $3, 0, 0, $4, '', 0, $5, 0, '', 0, 0, '', 0, 0)`,
        [id, state, createdMs, Date.now() + 5 * MINUTE_MS, failure],
      );
    const wrong = { code: 'INFERENCE_FAILED', message: 'The engine lost it', isPolicy: false };
    await insert('job-1', 'failed', 1_000, JSON.stringify(wrong));
    await insert('job-2', 'running', 2_000, '');
    const first = await get('/videos?limit=1');
    const [running] = first.data;
    assert.deepEqual(
      [running.id, running.state, running.quoteUsd, running.progress, running.keyId],
      ['job-2', 'running', '0.3500', 0.5, null],
    );
    const rest = await get(`/videos?limit=1&cursor=${first.nextCursor}`);
    assert.deepEqual([rest.data[0].id, rest.nextCursor], ['job-1', null]);
    const failed = await get('/videos?state=failed');
    assert.deepEqual(
      failed.data.map((one: { failure: { code: string } }) => one.failure.code),
      ['INFERENCE_FAILED'],
    );
  });

  test('`GET /admin/books` rejects days of which postings were deleted', async () => {
    await bench.farebox.account('1');
    const { ledger } = bench.farebox.app.stores;
    const today = dayOf(Date.now());
    const date = (day: number): string => isoTime(dayStartMs(day)).slice(0, 10);
    const before = await get(`/books?from=${date(today - 3)}`);
    assert.notEqual(before.owedUsd, before.owedBeforeUsd);
    await ledger.dropOld({ usageDay: undefined, postingDay: today + 1 });
    const path = `/admin/books?from=${date(today - 3)}`;
    const { status, body } = await call(bench.farebox, path, { secret: operator });
    assert.equal(status, 400);
    assert.match(JSON.stringify(body), new RegExp(`Must be ${date(today + 1)} or later`));
    const usual = await call(bench.farebox, '/admin/books', { secret: operator });
    assert.match(JSON.stringify(usual.body), new RegExp(`Must be ${date(today + 1)} or later`));
  });
});
