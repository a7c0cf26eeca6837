import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, after, before, describe, test } from 'node:test';
import { DatabaseSync } from 'node:sqlite';
import { type ProcessResponses, processResponses } from '../../test/app/process-responses.ts';
import { makeSqliteDatabase } from '../../test/databases/stores.ts';
import { freePort } from '../../test/support/free-port.ts';
import { TestUpstream } from '../../test/support/test-upstream.ts';
import { until } from '../../test/support/until.ts';
import { runCli } from '../../test/support/run-cli.ts';
import { loadConfig } from '../config/config.ts';
import { MIGRATIONS } from '../server/migrations.ts';
import type { App } from '../server/server.ts';
import { commandLine } from './cli.ts';
import { commandsBelow, nameOf } from './command.ts';
import { logFor, startupBanner, watchSettings } from './server-start.ts';
import type { Console } from './terminal.ts';

const BINARY = join(import.meta.dirname, '..', '..', 'bin', 'farebox.mjs');
const OTHER_USER = 65_534;
const NOWHERE = { write: () => undefined };
const { program: PROGRAM } = commandLine({
  argv: [],
  env: {},
  cwd: '',
  stdout: NOWHERE,
  stderr: NOWHERE,
  onSignal: () => undefined,
});
const COMMANDS = commandsBelow(PROGRAM);
const LOCAL = 'embedded: { enabled: false }\ndiscovery: { enabled: false }\n';

/** The members of `--json` that the tests below read. */
interface Printed {
  readonly isOperator: boolean;
  readonly link: string;
  readonly id: string;
  readonly secret: string;
  readonly plan: string;
  readonly limitUsd: string;
  readonly limitPeriod: string;
  readonly privacy: string;
  readonly models: readonly string[];
  readonly diemLeftToday: string;
  readonly balanceUsd: string;
  readonly period: string;
  readonly usd: string;
  readonly tag: string | null;
  readonly value: string | null;
}

interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command in this process. A word that is an object is added to the environment. */
function farebox(
  folder: string,
  ...words: readonly (string | Readonly<Record<string, string>>)[]
): Promise<Ended> {
  const argv = words.filter((word) => typeof word === 'string');
  const env = words.filter((word) => typeof word !== 'string');
  return runCli(folder, argv, Object.assign({ FAREBOX_DATA: join(folder, 'data') }, ...env));
}

/** Runs the real binary in a folder. */
function program(folder: string, ...argv: readonly string[]): Promise<Ended> {
  const env = { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: '' };
  return new Promise((resolve) => {
    execFile(process.execPath, [BINARY, ...argv], { cwd: folder, env }, (error, out, err) => {
      const code = error === null ? 0 : Number(error.code);
      resolve({ code, out, err });
    });
  });
}

/** Runs a command in a new, empty folder. */
async function inEmptyFolder(...argv: string[]): Promise<Ended> {
  const cwd = mkdtempSync(join(tmpdir(), 'farebox-words-'));
  const ended = await farebox(cwd, ...argv);
  rmSync(cwd, { recursive: true, force: true });
  return ended;
}

async function startServer(
  folder: string,
): Promise<{ url: string; key: string; child: ChildProcess; responses: ProcessResponses }> {
  const responses = processResponses();
  const env = { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: '0', ...responses.env };
  const child = spawn(process.execPath, [BINARY, 'serve'], { cwd: folder, env });
  let output = '';
  child.stderr.on('data', (chunk: Buffer) => void (output += chunk.toString()));
  for await (const chunk of child.stdout) {
    output += String(chunk);
    const url = /listens on (\S+)/.exec(output)?.[1];
    const key = /^ {4}(SVC_\S+)$/m.exec(output)?.[1];
    if (url !== undefined && key !== undefined && output.includes('--help')) {
      await responses.follow(url);
      return { url, key, child, responses };
    }
  }
  throw new Error(`The server did not start: ${output}`);
}

describe('commands beside a running server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  let upstream: TestUpstream;
  let server: Awaited<ReturnType<typeof startServer>>;

  before(async () => {
    upstream = await TestUpstream.start();
    // The configuration names a free port, because another server may use the default port.
    const listen = `listen: { port: ${await freePort()} }`;
    writeFileSync(
      join(folder, 'farebox.yaml'),
      `${LOCAL}${listen}\nengines: { rack: { url: ${upstream.url}, apiKey: very-secret-word } }
models: [{ id: atlas-24b, aliases: [gpt-4], type: text, context: 4096, price: { input: 0.3, output: 1.2 }, replicas: [{ engine: rack, model: m }] }]
`,
    );
    server = await startServer(folder);
  });
  after(async () => {
    const ended = once(server.child, 'exit');
    server.child.kill('SIGTERM');
    await ended;
    await upstream.kill();
    rmSync(folder, { recursive: true, force: true });
    server.responses.assertFitting();
  });

  const models = (key: string): Promise<number> =>
    fetch(`${server.url}/models?type=all`, { headers: { authorization: `Bearer ${key}` } }).then(
      ({ status }) => status,
    );
  const json = async (...argv: string[]): Promise<Printed> => {
    const { code, out, err } = await farebox(folder, ...argv, '--json');
    assert.equal(code, 0, err);
    return JSON.parse(out) as Printed;
  };

  test('`budgets` creates, lists, updates and deletes budgets', async () => {
    const made = await json('budgets', 'create', '--usd=2.50', '--period=week', '--tag=user');
    assert.deepEqual([made.period, made.usd, made.tag, made.value], ['WEEK', '2.50', 'user', null]);
    const all = await json('budgets', 'create', '--usd=100', '--period=month');
    const listed = await farebox(folder, 'budgets', 'list');
    assert.match(listed.out, /budget_\w+ +each user +2\.50 USD a week +- /);
    assert.match(listed.out, /budget_\w+ +all requests +100\.00 USD a month +0\.00 USD /);
    const changed = await json('budgets', 'update', made.id, '--usd=3');
    assert.equal(changed.usd, '3.00');
    for (const { id } of [made, all]) {
      assert.equal((await farebox(folder, 'budgets', 'delete', id)).code, 0);
    }
    const again = await farebox(folder, 'budgets', 'delete', made.id);
    assert.deepEqual([again.code, /has no budget/.test(again.err)], [1, true]);
    assert.match((await farebox(folder, 'budgets', 'list')).out, /has no budgets/);
  });

  test('`keys create` makes a key that works, `keys list` shows its cap, `keys revoke` ends it', async () => {
    const made = await json(
      'keys',
      'create',
      '--description=laptop',
      '--limit-usd=2.50',
      '--period=month',
      '--expires=30d',
      '--models=gpt-4, atlas-24b',
      '--privacy=private_only',
    );
    assert.match(made.secret, /^SVC_INFERENCE_KEY_/);
    assert.equal(made.limitUsd, '2.50');
    assert.deepEqual(
      [made.limitPeriod, made.privacy, made.models],
      ['MONTH', 'PRIVATE_ONLY', ['atlas-24b']],
    );
    const unknown = await farebox(folder, 'keys', 'create', '--models=gpt-5');
    assert.equal(unknown.code, 1);
    assert.match(unknown.err, /Model not found: "gpt-5"; "farebox models" lists the models/);
    assert.equal(await models(made.secret), 200);
    const listed = await farebox(folder, 'keys', 'list');
    assert.match(listed.out, /ENDS IN +DESCRIPTION/);
    assert.match(listed.out, /laptop .* 2\.50 USD a month/);
    assert.ok(!listed.out.includes(made.secret));
    assert.equal((await farebox(folder, 'keys', 'revoke', made.id)).code, 0);
    const again = await farebox(folder, 'keys', 'revoke', made.id);
    assert.deepEqual([again.code, /no active key/.test(again.err)], [1, true]);
    const left = await farebox(folder, 'keys', 'list');
    assert.match(left.out, /first key/);
    assert.doesNotMatch(left.out, /laptop/);
    const database = new DatabaseSync(join(folder, 'data', 'farebox.db'), { readOnly: true });
    const caps = database.prepare('SELECT usd_limit_nano AS cap FROM ledger_allowance').all();
    database.close();
    assert.deepEqual(
      caps.map(({ cap }) => cap),
      [2_500_000_000],
    );
  });

  test('`credit` adds an amount once per reference, and `debit` takes it back', async () => {
    const account = await json('accounts', 'create', 'alice', '--plan', 'pro', '--daily-diem', '3');
    assert.deepEqual([account.plan, account.diemLeftToday], ['pro', '3.00']);
    const argv = ['credit', '25', '--account', 'alice', '--reference', 'invoice-1'];
    assert.equal((await json(...argv)).balanceUsd, '25.00');
    assert.deepEqual(await json(...argv), {
      accountId: account.id,
      amountUsd: '25.00',
      balanceUsd: '25.00',
      isRepeat: true,
    });
    const again = await farebox(folder, ...argv);
    assert.match(again.out, /^Nothing changed: .* earlier with this reference/);
    const other = await farebox(folder, 'credit', '26', ...argv.slice(2));
    assert.equal(other.code, 1);
    assert.match(
      other.err,
      /"invoice-1" belongs to a credit of 25\.00 USD to acct_\w+, so nothing was changed/,
    );
    const back = await farebox(folder, 'debit', '0.000000001', '--account', account.id);
    assert.match(back.out, /taken from the account "alice"; the balance is 24\.999999999 USD/);
    const tooMuch = await farebox(folder, 'debit', '30', '--account', 'alice');
    assert.equal(tooMuch.code, 1);
    assert.match(tooMuch.err, /has 24\.999999999 USD .* so 30\.00 USD cannot be taken/);
    const unknown = await farebox(folder, 'credit', '1', '--account', 'alise');
    assert.match(unknown.err, /There is no account "alise"; did you mean "alice"\?/);
    const made = await json('accounts', 'update', 'alice', '--operator');
    const unmade = await json('accounts', 'update', 'alice', '--no-operator');
    assert.deepEqual([made.isOperator, unmade.isOperator], [true, false]);
    await json('accounts', 'update', 'alice', '--disable');
    const listed = await farebox(folder, 'accounts', 'list');
    assert.match(listed.out, /alice +pro +24\.999999999 +3\.00 .* disabled/);
  });

  test('`sign-in` prints a link, if the account has an ADMIN key', async () => {
    const { link } = await json('sign-in');
    assert.match(link, /\/console\/sign-in#[\w-]{43}$/);
    const none = await farebox(folder, 'sign-in', '--account', 'alice');
    assert.equal(none.code, 1);
    assert.match(none.err, /"alice" has no ADMIN key; create one with "farebox keys create --adm/);
  });

  test('`models` lists the configuration if no server runs on its port', async () => {
    const { out } = await farebox(folder, 'models');
    const port = 'if yours has another port, set PORT or listen\\.port';
    const heading = `^No server responds at http://127\\.0\\.0\\.1:\\d+/api/v1; ${port}`;
    assert.match(out, new RegExp(heading));
    assert.match(out, /atlas-24b +text +4096 +0\.3 in, 1\.2 out .*rack \(127\.0\.0\.1:\d+\)/);
  });

  test('`models` lists the models of the running server', async () => {
    const port = new URL(server.url).port;
    writeFileSync(join(folder, 'listen.yaml'), `${LOCAL}listen: { port: ${port} }\n`);
    const env = { FAREBOX_CONFIG: 'listen.yaml' };
    const { out } = await farebox(folder, env, 'models', '--json');
    const offer = JSON.parse(out) as { server: string; models: { id: string }[] };
    assert.equal(offer.server, server.url);
    assert.ok(offer.models.some((model) => model.id === 'atlas-24b'));
  });

  test('`check` tests engines and database, and masks secrets', async () => {
    const { code, out } = await farebox(folder, 'check');
    assert.equal(code, 0, out);
    assert.match(out, /engine rack +note +responds in \d+ ms and lists 2 models, but not m/);
    assert.match(out, /database +ok +sqlite responds/);
    assert.ok(!out.includes('very-secret-word'));
  });

  test('`audit` finds no difference, and commands start no epoch and take no lock', async () => {
    const { code, out } = await program(folder, 'audit');
    assert.equal(code, 0);
    assert.match(out, /Every balance is the sum of its postings/);
    const database = new DatabaseSync(join(folder, 'data', 'farebox.db'), { readOnly: true });
    const epochs = database.prepare('SELECT count(*) AS count FROM ledger_epoch').get();
    database.close();
    // With SQLite, holds are in memory, so the server has no epoch either.
    assert.equal(epochs?.['count'], 0);
    const second = await program(folder, 'serve');
    assert.equal(second.code, 1);
    assert.match(second.err, /Another server runs on the data folder/);
    const other = mkdtempSync(join(tmpdir(), 'farebox-beside-'));
    const file = join(folder, 'data', 'farebox.db');
    writeFileSync(join(other, 'farebox.yaml'), `${LOCAL}database: sqlite:${file}\n`);
    const beside = await program(other, 'serve');
    assert.equal(beside.code, 1, beside.out);
    assert.match(beside.err, /Another server runs on .* the database sqlite:.*farebox\.db/);
    const moved = await program(other, 'move', '--to', 'postgres://farebox@127.0.0.1:9/farebox');
    assert.match(moved.err, /^A server uses the data folder .* or the file of "database": stop it/);
    rmSync(other, { recursive: true });
    assert.equal(await models(server.key), 200);
  });

  test('`agents` creates a key with a cap and writes settings after a backup', async () => {
    const file = join(folder, 'claude', 'settings.json');
    const env = { CLAUDE_CONFIG_DIR: join(folder, 'claude'), CODEX_HOME: join(folder, 'codex') };
    const claude = ['agents', 'claude', `--url=${server.url}`];
    const printed = await farebox(folder, env, ...claude);
    assert.equal(printed.code, 0, printed.err);
    assert.match(printed.out, /^export ANTHROPIC_MODEL=atlas-24b$/m);
    assert.match(printed.out, /may spend 5\.00 USD a day/);
    assert.ok(!existsSync(file));
    mkdirSync(join(folder, 'claude'));
    writeFileSync(file, '{"theme":"dark","env":{"A":"1"}}');
    const options = ['--write', '--limit-usd=0.5', '--period=MONTH', '--json'];
    const written = await farebox(folder, env, ...claude, ...options);
    assert.equal(written.code, 0, written.err);
    const { backup, secret } = JSON.parse(written.out);
    assert.equal(readFileSync(backup, 'utf8'), '{"theme":"dark","env":{"A":"1"}}');
    const settings = JSON.parse(readFileSync(file, 'utf8'));
    assert.equal(settings.theme, 'dark');
    assert.equal(settings.env.A, '1');
    assert.equal(settings.env.ANTHROPIC_BASE_URL, new URL('/api', server.url).href);
    assert.equal(settings.env.ANTHROPIC_AUTH_TOKEN, secret);
    assert.equal(await models(settings.env.ANTHROPIC_AUTH_TOKEN), 200);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const { out } = await farebox(folder, 'keys', 'list', '--json');
    const caps = (JSON.parse(out) as Printed[]).map((key) => `${key.limitUsd} ${key.limitPeriod}`);
    assert.ok(caps.includes('0.50 MONTH') && caps.includes('5.00 EPOCH'), out);

    const codex = await farebox(folder, env, 'agents', 'codex', '--write', `--url=${server.url}`);
    assert.equal(codex.code, 0, codex.err);
    const toml = readFileSync(join(folder, 'codex', 'config.toml'), 'utf8');
    assert.match(toml, /^model = "atlas-24b"$/m);
    assert.match(toml, /^model_context_window = 4096$/m);
    assert.match(toml, /^experimental_bearer_token = "SVC_INFERENCE_KEY_/m);
    writeFileSync(file, '// mine\n{}');
    const rejected = await farebox(folder, env, ...claude, '--write');
    assert.equal(rejected.code, 1);
    assert.match(rejected.err, /was not changed: its text is not a JSON object/);
    const after = await farebox(folder, 'keys', 'list', '--json');
    assert.equal(JSON.parse(after.out).length, JSON.parse(out).length + 1);
  });
});

describe('commands without a server', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  test('`check` of an empty folder succeeds and creates no database', async () => {
    writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
    const { code, out } = await farebox(folder, 'check', '--json');
    assert.equal(code, 0);
    const report = JSON.parse(out) as { findings: { what: string; state: string }[] };
    const database = report.findings.find((finding) => finding.what === 'database');
    assert.equal(database?.state, 'note');
    assert.throws(() => new DatabaseSync(join(folder, 'data', 'farebox.db'), { readOnly: true }));
  });

  test('`check` names the migration steps of a database of an older or a newer version', async () => {
    const place = mkdtempSync(join(tmpdir(), 'farebox-version-'));
    writeFileSync(join(place, 'farebox.yaml'), LOCAL);
    const file = join(place, 'data', 'farebox.db');
    await makeSqliteDatabase(`sqlite:${file}`, MIGRATIONS);
    const database = new DatabaseSync(file);
    database.exec('DELETE FROM store_migration WHERE id = (SELECT max(id) FROM store_migration)');
    const older = await farebox(place, 'check');
    assert.match(
      older.out,
      /database +note +sqlite responds; the next start runs 1 migration step/,
    );
    assert.equal(older.code, 0, older.out);
    database.exec("INSERT INTO store_migration VALUES ('ledger-9999')");
    const newer = await farebox(place, 'check');
    assert.match(newer.out, /database +wrong +A newer version of Farebox .*ledger-9999/);
    assert.equal(newer.code, 1);
    database.close();
    rmSync(place, { recursive: true });
  });

  test('`check` names models of the Responses API, and accepts an engine without a list', async () => {
    const engine = await TestUpstream.start();
    const only = { error: { message: 'This model is only supported in v1/responses.' } };
    const statuses: Readonly<Record<string, readonly [status: number, body: object]>> = {
      '/v1/chat/completions': [404, only],
      '/v1/responses': [400, { error: { message: 'Missing input' } }],
      '/azure/models?api-version=1': [404, { error: { message: 'Resource not found' } }],
      '/azure/chat/completions?api-version=1': [400, { error: { message: '[] is too short' } }],
    };
    engine.otherwise = {
      kind: 'own',
      answer: (response) => {
        const [status, body] = statuses[engine.seen.at(-1)?.path ?? ''] ?? [404, {}];
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify(body));
      },
    };
    const model = (id: string, on: string) =>
      `  - { id: ${id}, context: 8192, price: { input: 1, output: 2 }, replicas: [{ engine: ${on}, model: models/tiny }] }\n`;
    const settings = `${LOCAL}engines:
  pro: { url: "${engine.url}", apiKey: k }
  azure: { url: "http://127.0.0.1:${engine.port}/azure?api-version=1", headers: { api-key: k } }
  lost: { url: "http://127.0.0.1:${engine.port}/lost?a=1", apiKey: k }
models:
`;
    const models = model('a', 'pro') + model('b', 'azure') + model('c', 'lost');
    writeFileSync(join(folder, 'farebox.yaml'), settings + models);
    const { code, out, err } = await farebox(folder, 'check');
    await engine.kill();
    assert.equal(code, 1, out + err);
    assert.equal(err, '');
    assert.match(
      out,
      /engine pro +note.*; engines\.pro\.protocol: responses saves the first attempt/,
    );
    assert.match(out, /engine azure +note +responds, but has no list of models/);
    assert.match(out, /engine lost +wrong +GET \/models returned HTTP 404/);
    for (const { path, body } of engine.seen) {
      if (!path.includes('/models')) assert.match(body, /"(?:messages|input)":\[\]/);
    }
  });

  test('`check` exits with 1 if an engine is down or the configuration is not valid', async () => {
    writeFileSync(
      join(folder, 'farebox.yaml'),
      `${LOCAL}engines: { gone: { url: http://127.0.0.1:1/v1 } }\n`,
    );
    const down = await farebox(folder, 'check');
    assert.equal(down.code, 1);
    assert.match(down.out, /engine gone +wrong/);
    writeFileSync(join(folder, 'farebox.yaml'), 'engins: {}\n');
    const wrong = await farebox(folder, 'check');
    assert.equal(wrong.code, 1);
    assert.match(wrong.err, /farebox\.yaml:1.*engines/s);
  });

  test('`check` exits with 1 for unreachable RPC nodes, search and a missing persona folder', async () => {
    const yaml = `${LOCAL}personas: { folder: ./nowhere }
search: { provider: searxng, url: http://127.0.0.1:1 }
rpc:
  publicNodes: false
  networks:
    ethereum-mainet: { upstreams: [{ url: http://127.0.0.1:1 }] }
    base-mainnet: { upstreams: [{ url: http://127.0.0.1:1, name: mine }] }
`;
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const { code, out } = await farebox(folder, 'check');
    assert.equal(code, 1);
    assert.match(out, /personas +wrong +personas\.folder cannot be read: .*nowhere/);
    assert.match(out, /search searxng +wrong +The search provider did not respond: .*ECONNREFUSED/);
    assert.match(out, /rpc ethereum-mainet +wrong +.*did you mean "ethereum-mainnet"/);
    assert.match(out, /rpc mine +wrong +Returns no usable response to eth_chainId/);
  });

  test('`check` warns about a price per token instead of per million tokens', async () => {
    const yaml = `${LOCAL}models:
  - { id: a, context: 8000, price: { input: 0.0000003, output: 1.2 }, replicas: [] }
`;
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const { code, out, err } = await farebox(folder, 'check');
    assert.equal(code, 0, out);
    assert.match(err, /models\[0\]\.price\.input: 3e-7 USD per 1,000,000 tokens .*multiplied by/);
    assert.ok(!err.includes('price.output'));
  });

  test('`check` and `serve` report the same configuration errors with line numbers', async () => {
    const yaml = `${LOCAL}http: { trustProxy: [10.0.0.0/8, nonsense] }\ncluster: { workers: 4 }\n`;
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    for (const command of ['check', 'serve']) {
      const { code, err } = await program(folder, command);
      assert.equal(code, 1);
      assert.match(err, /farebox\.yaml:3:\d+: http\.trustProxy\[1\]: .*not "nonsense"/);
      assert.match(err, /farebox\.yaml:4:\d+: cluster\.workers: 4 workers need PostgreSQL/);
    }
  });

  test('`serve` and `check` explain a busy port and an unusable data folder', async () => {
    writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
    writeFileSync(join(folder, 'file'), '');
    const holder = createServer().listen(0, '127.0.0.1');
    await once(holder, 'listening');
    const { port } = holder.address() as AddressInfo; // a TCP server has one
    const busy = await program(folder, 'serve', '--port', String(port));
    assert.deepEqual(
      [busy.code, /^Another program uses port \d+ .*--port/.test(busy.err)],
      [1, true],
    );
    const check = await farebox(folder, 'check', { PORT: String(port) });
    assert.equal(check.code, 1);
    assert.match(check.out, /listen +wrong +Another program uses port \d+ of 127\.0\.0\.1/);
    holder.close();
    const bad = await program(folder, 'serve', '--port', '0', '--data', 'file/data');
    assert.equal(bad.code, 1);
    assert.match(bad.err, /The data folder .*file\/data cannot be used: .*--data/);
  });

  test('`check` reports a missing folder for temporary files beside all other findings', async () => {
    const place = mkdtempSync(join(tmpdir(), 'farebox-temporary-'));
    writeFileSync(join(place, 'farebox.yaml'), LOCAL);
    const env = { ...process.env, FAREBOX_DATA: join(place, 'data'), TMPDIR: '/nowhere' };
    const { code, out } = await new Promise<Omit<Ended, 'err'>>((resolve) => {
      execFile(process.execPath, [BINARY, 'check'], { cwd: place, env }, (error, text) => {
        resolve({ code: error === null ? 0 : Number(error.code), out: text });
      });
    });
    rmSync(place, { recursive: true });
    assert.match(
      out,
      /temporary files +wrong +.* cannot be tested: ENOENT: .*\/nowhere.*: set TMPDIR/,
    );
    assert.match(out, /^models /m);
    assert.equal(code, 1);
  });

  test('`check` starts every embedded engine and names a missing program', async () => {
    const yaml = 'listen: { port: 0 }\ndiscovery: { enabled: false }\n';
    writeFileSync(join(folder, 'farebox.yaml'), yaml);
    const fine = await farebox(folder, 'check');
    assert.match(fine.out, /engine embedded +ok +works with node-llama-cpp/);
    assert.match(fine.out, /engine embedded-sentences +ok/);
    assert.match(fine.out, /engine embedded-cutout +ok +works with onnxruntime-node, sharp/);
    assert.match(fine.out, /engine embedded-video +ok/);
    assert.match(fine.out, /engine embedded-speech +ok +works with .*sherpa-onnx-node/);
    const videos = `${yaml}embedded: { demo: false, sentences: false }\n`;
    writeFileSync(join(folder, 'farebox.yaml'), `${videos}media: { ffmpeg: /no/ffmpeg }\n`);
    const wrong = await farebox(folder, 'check');
    assert.equal(wrong.code, 1);
    assert.match(wrong.out, /engine embedded-video +wrong +.*\/no\/ffmpeg is not a program/);
  });

  test('a command without a database names its path, and creates none', async () => {
    const empty = join(folder, 'empty');
    const file = join(empty, 'data', 'farebox.db');
    mkdirSync(empty);
    for (const command of ['keys list', 'audit', 'usage']) {
      const { code, err } = await farebox(empty, ...command.split(' '));
      assert.equal(code, 1);
      assert.equal(
        err,
        `There is no database ${file}: start the server once with "farebox serve", or name its data folder with --data\n`,
      );
      assert.equal(existsSync(file), false);
    }
  });

  test('commands name the owner of a data folder that is closed to their user', async () => {
    const place = mkdtempSync(join(tmpdir(), 'farebox-closed-'));
    writeFileSync(join(place, 'farebox.yaml'), LOCAL);
    const data = join(place, 'data');
    await makeSqliteDatabase(`sqlite:${join(data, 'farebox.db')}`, MIGRATIONS);
    chmodSync(place, 0o755);
    // Root may enter every folder, so it runs the command as another user.
    const isRoot = process.getuid?.() === 0;
    chmodSync(data, isRoot ? 0o700 : 0o000);
    const child = spawn(process.execPath, [BINARY, 'audit'], {
      cwd: place,
      env: { ...process.env, FAREBOX_DATA: data },
      ...(isRoot ? { uid: OTHER_USER } : {}),
    });
    let err = '';
    child.stderr.on('data', (chunk: Buffer) => void (err += String(chunk)));
    const [code] = await once(child, 'close');
    chmodSync(data, 0o700);
    rmSync(place, { recursive: true });
    assert.equal(code, 1);
    assert.match(err, /farebox\.db belongs to user 0, but|this user has no permission to write/);
  });

  test('`audit` lists a difference and exits with 1', async () => {
    writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
    const file = join(folder, 'data', 'farebox.db');
    await makeSqliteDatabase(`sqlite:${file}`, MIGRATIONS);
    const database = new DatabaseSync(file);
    database.exec(
      "INSERT INTO ledger_account (id, balance_nano, held_nano, daily_allocation_nano, daily_day, daily_spent_nano, daily_held_nano, created_ms) VALUES ('acct_x', 1, 0, 0, 0, 0, 0, 0)",
    );
    database.close();
    const { code, out } = await farebox(folder, 'audit');
    assert.equal(code, 1);
    assert.match(out, /acct_x +balance +0\.000000001 +0\.00/);
  });
});

test('a reader that closes the pipe early, such as head, causes no error', async () => {
  const child = spawn(process.execPath, [BINARY, 'completion', 'bash']);
  child.stdout.destroy();
  let err = '';
  child.stderr.on('data', (chunk: Buffer) => void (err += String(chunk)));
  const [code] = await once(child, 'close');
  assert.deepEqual([code, err], [0, '']);
});

test('a full disk below the error output ends no process', async () => {
  const full = openSync('/dev/full', 'w');
  const child = spawn(process.execPath, [BINARY, 'credits'], { stdio: ['ignore', 'ignore', full] });
  closeSync(full);
  const [code] = await once(child, 'close');
  assert.equal(code, 2, 'the code of wrong usage, not that of an uncaught error');
});

test('a full disk below the output fails a command in one sentence, and ends no server', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-full-'));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
  const port = await freePort();
  const full = openSync('/dev/full', 'w');
  t.after(() => closeSync(full));
  const start = (...words: readonly string[]) => {
    const env = { ...process.env, FAREBOX_DATA: join(folder, 'data'), PORT: String(port) };
    const child = spawn(process.execPath, [BINARY, ...words], {
      cwd: folder,
      env,
      stdio: ['ignore', full, 'pipe'],
    });
    const run = { child, err: '' };
    child.stderr?.on('data', (chunk: Buffer) => void (run.err += String(chunk)));
    return run;
  };
  const command = start('completion', 'bash');
  const [code] = await once(command.child, 'close');
  const sentence = 'The output is incomplete: ENOSPC: no space left on device, write\n';
  assert.deepEqual([code, command.err], [1, sentence]);
  const server = start('serve');
  t.after(() => server.child.kill('SIGKILL'));
  await until(() => server.err !== '');
  assert.equal(server.err, sentence);
  assert.equal((await fetch(`http://127.0.0.1:${port}/livez`)).status, 200);
});

test('a reload during the start, such as in a migration, does not end the server', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-reload-'));
  writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
  const data = join(folder, 'data');
  const file = join(data, 'farebox.db');
  await makeSqliteDatabase(`sqlite:${file}`, MIGRATIONS);
  // The server waits for this lock while it opens the database.
  const database = new DatabaseSync(file);
  database.exec('BEGIN IMMEDIATE');
  const env = { ...process.env, FAREBOX_DATA: data, PORT: '0' };
  const child = spawn(process.execPath, [BINARY, 'serve'], { cwd: folder, env });
  t.after(async () => {
    child.kill('SIGKILL');
    await ended;
    rmSync(folder, { recursive: true });
  });
  const ended = once(child, 'close');
  let out = '';
  child.stdout.on('data', (chunk: Buffer) => void (out += String(chunk)));
  await until(() => existsSync(`${file}.lock`));
  child.kill('SIGHUP');
  await new Promise((resolve) => setTimeout(resolve, 200));
  database.close();
  await until(() => child.exitCode !== null || child.signalCode !== null || out !== '');
  assert.match(out, /listens on/);
});

/** Starts a server that lists these models; returns its port. */
async function serveModels(t: TestContext, data: readonly object[]): Promise<string> {
  const server = createHttpServer((_, response) => {
    response.setHeader('x-svc-version', '1').end(JSON.stringify({ data }));
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return String(port);
}

test('`models` shows why a model is offline, and the unit of speech', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-models-'));
  const spec = { offline: false, traits: [] };
  const offline = { ...spec, offline: true, offlineReason: 'The model is being downloaded: 9 %' };
  const data = [
    { id: 'voice', type: 'tts', model_spec: { ...spec, pricing: { input: { usd: 15 } } } },
    { id: 'slow', type: 'text', model_spec: offline },
  ];
  t.after(() => rmSync(folder, { recursive: true }));
  const { out } = await farebox(folder, { PORT: await serveModels(t, data) }, 'models');
  assert.match(out, /^voice .* 15 a million characters .* online$/m);
  assert.match(out, /^slow .* offline: The model is being downloaded: 9 %$/m);
});

test('`agents` names the default model as such while it is a small embedded one', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-cli-'));
  writeFileSync(join(folder, 'farebox.yaml'), LOCAL);
  mkdirSync(join(folder, 'data'));
  await makeSqliteDatabase(`sqlite:${join(folder, 'data', 'farebox.db')}`, MIGRATIONS);
  t.after(() => rmSync(folder, { recursive: true }));
  const traits = ['default', 'fastest'];
  const spec = { offline: false, traits, availableContextTokens: 8_192 };
  const data = [{ id: 'farebox-demo', type: 'text', model_spec: spec }];
  const env = { PORT: await serveModels(t, data) };
  const made = await farebox(folder, env, 'accounts', 'create', 'alice');
  assert.equal(made.code, 0, made.err);
  const codex = await farebox(folder, env, 'agents', 'codex', '--account=alice');
  assert.match(codex.out, /^model = "default"$/m);
  // The context of another model can be larger.
  assert.doesNotMatch(codex.out, /model_context_window/);
  const claude = await farebox(folder, env, 'agents', 'claude', '--account=alice');
  assert.match(claude.out, /^export ANTHROPIC_MODEL=default$/m);
  assert.match(claude.out, /^export ANTHROPIC_DEFAULT_HAIKU_MODEL=fastest$/m);
});

describe('wrong usage', () => {
  const rows: readonly (readonly [argv: string, message: RegExp])[] = [
    ['credits 5', /no command "credits"; did you mean "credit"\?/],
    ['keys', /keys create .*\n.*keys list/],
    ['keys create --expires yesterday', /a span such as 12h/],
    ['keys create --expires 2020-01-01', /must be in the future/],
    ['keys create --period yearly', /one of EPOCH, WEEK, MONTH, LIFETIME/],
    ['keys create --models a,,b', /names separated by commas/],
    ['budgets create --usd 5', /--usd and --period are required/],
    ['budgets create --usd 5 --period week --value x', /--value needs --tag/],
    ['budgets update --usd 5', /argument <budget id> is missing: id of the budget/],
    ['accounts create', /argument <name> is missing/],
    ['accounts update alice', /at least one option/],
    ['accounts update alice --enable --disable', /--disable or --enable, not both/],
    ['credit -5', /above zero; "farebox debit 5"/],
    ['credit', /argument <amount> is missing: amount in USD/],
    ['credit 5 6', /Unexpected argument "6"/],
    ['credit 0', /above zero/],
    ['credit 1e3', /decimal amount such as 25/],
    ['credit 0.0000000001', /decimal amount/],
    ['audit now', /Unexpected argument "now"/],
    ['audit --fix', /"audit" has no option "--fix"/],
    ['serve --prot 1', /"serve" has no option "--prot"; did you mean "--port"\?/],
    ['keys craete', /no command "keys craete"; did you mean "keys create"\?/],
    ['usage --by week', /--by must be one of day, model, account, key/],
    ['completion powershell', /<shell> must be one of bash, zsh, fish, not "powershell"/],
    ['engines pull lama', /not "lama"; did you mean "llama"\?/],
    ['models pull qwen3-0.6b --proxy nowhere', /--proxy must be a URL/],
    ['models pull', /argument <model> is missing: qwen3-0\.6b/],
  ];
  for (const [argv, message] of rows) {
    test(`"farebox ${argv}" exits with 2 and explains the error`, async () => {
      const { code, out, err } = await inEmptyFolder(...argv.split(' '));
      assert.equal(code, 2);
      assert.equal(out, '');
      assert.match(err, message);
    });
  }

  test('the error stays in sight: one usage line and the command of the help follow it', async () => {
    const { err } = await inEmptyFolder('keys', 'craete');
    assert.equal(
      err,
      'There is no command "keys craete"; did you mean "keys create"?\n\nUsage: farebox keys [options] [command]\nHelp: farebox keys --help\n',
    );
    const option = await inEmptyFolder('credit', '5', '--acount', 'alice');
    assert.match(
      option.err,
      /^"credit" has no option "--acount"; did you mean "--account"\?\n\nUsage: /,
    );
    assert.match(option.err, /\nHelp: farebox credit --help\n$/);
  });

  test('a failure with --json prints one JSON document', async () => {
    for (const [argv, code, exit] of [
      ['keys craete --json', 'usage', 2],
      ['serve --prot 1 --json', 'usage', 2],
      ['models pull none --json', 'failed', 1],
    ] as const) {
      const { code: ended, out, err } = await inEmptyFolder(...argv.split(' '));
      assert.deepEqual([ended, err], [exit, '']);
      const { error } = JSON.parse(out) as { error: { code: string; message: string } };
      assert.equal(error.code, code);
      assert.ok(error.message.length > 10);
    }
  });

  test('--version prints release and revision', async () => {
    const { code, out } = await inEmptyFolder('--version');
    assert.equal(code, 0);
    assert.match(out, /^farebox \d+\.\d+\.\d+ \(\d{8}\.\d{6}\)\n$/);
  });

  test('`completion` prints every command and its options', async () => {
    const { out } = await inEmptyFolder('completion', 'bash');
    for (const command of COMMANDS) assert.ok(out.includes(command.name()), nameOf(command));
    assert.match(out, /"serve"\) words="[^"]*--port/);
    execFileSync('bash', ['-n'], { input: out });
  });

  test('`models pull` suggests the most similar model id', async () => {
    const { code, err } = await inEmptyFolder('models', 'pull', 'qwen3-0.6');
    assert.equal(code, 1);
    assert.match(err, /did you mean "qwen3-0\.6b"/);
  });

  test('every command has help with its usage line', async () => {
    for (const name of COMMANDS.map(nameOf)) {
      const { code, out } = await inEmptyFolder(...name.split(' '), '--help');
      assert.equal(code, 0);
      assert.ok(out.includes(`Usage: farebox ${name}`), name);
      assert.doesNotMatch(out, /\(default: (?:\{\}|\[\]|"1")\)/, 'a value of the code');
      const split = /^Example: .* Example: |^ +[\w, -]+,\n\S/m;
      assert.doesNotMatch(out, split, 'lines that the terminal has joined or split');
    }
    const { out } = await inEmptyFolder('--help');
    for (const name of COMMANDS.map(nameOf)) assert.match(out, new RegExp(`^  ${name} `, 'm'));
  });
});

test('the banner of a later start names the commands that open the console and create a key', async () => {
  const loaded = await loadConfig({ env: {}, cwd: '/', readFile: async () => '' });
  assert.ok(loaded.ok);
  const banner = (env: Console['env']): string =>
    startupBanner('http://127.0.0.1:8402', loaded.config, undefined, env);
  const byNpm = banner({ npm_execpath: '/usr/lib/npx-cli.js' });
  assert.match(byNpm, /^ {2}Open the console: npx farebox sign-in$/m);
  assert.match(byNpm, /^ {2}Create a key: {5}npx farebox keys create$/m);
  // A container image has no npx.
  assert.match(banner({}), /^ {2}Open the console: farebox sign-in$/m);
});

/** Watches a configuration file, as a server does. */
async function watchFile(t: TestContext, yaml: string) {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-level-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'farebox.yaml');
  const written: string[] = [];
  const terminal: Console = {
    argv: [],
    env: { FAREBOX_CONFIG: file },
    cwd: folder,
    stdout: NOWHERE,
    stderr: { write: (text) => written.push(text) },
    onSignal: () => undefined,
  };
  writeFileSync(file, yaml);
  const settings = await loadConfig(terminal);
  assert.ok(settings.ok);
  const log = logFor(terminal, settings.config, true);
  const app = { configure: () => undefined } as unknown as App; // no other member is used
  const watch = watchSettings(terminal, app, settings, log);
  t.after(() => watch.stop());
  const change = async (next: string): Promise<void> => {
    writeFileSync(file, next);
    await watch.check(true);
  };
  return { log, change, messages: () => written.map((line) => JSON.parse(line).msg) };
}

test('a changed `log.level` applies to a running server', async (t) => {
  const { log, change, messages } = await watchFile(t, 'log: { level: silent }\n');
  log.error({}, 'Before');
  await change('log: { level: warn }\n');
  log.info({}, 'Below');
  log.warn({}, 'After');
  assert.deepEqual(messages(), ['After']);
});

test('a change that needs a restart is not logged as applied', async (t) => {
  const { change, messages } = await watchFile(t, '');
  await change('service: { title: Shop }\n');
  assert.deepEqual(messages(), ['Restart the server to apply these sections']);
});
